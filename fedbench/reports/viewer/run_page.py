"""The page of one run, and the charts of several."""

import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedbench.analysis.curves import curve_of
from fedbench.analysis.data_text import title_of
from fedbench.analysis.settings import by_setting, distinguishing
from fedbench.core.config_values import config_value, keys_text
from fedbench.core.metrics import metric_info
from fedbench.reports.canvas import Look, looks
from fedbench.reports.charts import Spec, curve_chart
from fedbench.reports.figures import OWN_FIELDS, client_panels, curve_series
from fedbench.reports.filters import grouped
from fedbench.reports.page import render_page
from fedbench.reports.panels import Panel
from fedbench.reports.viewer.listing import url_path, viewed
from fedbench.runs.progress import duration
from fedbench.runs.run import DamagedRun, Run, read_run

FIELDS = (*OWN_FIELDS, "accuracy_std")
SCRIPT = "viewer.js"


def run_page(path: Path, root: Path) -> str:
    """Return the page of the run in a directory below ``root``."""
    status = viewed(path)
    values: dict[str, Any] = {
        "setting": "run",
        "title": path.name,
        "remarks": [],
        "command": "",
        "facts": {},
        "numbers": {},
        "departures": {},
        "config": {},
    }
    if status.run is not None:
        values |= _run_values(status.run, status.last)
    files = sorted(file for file in path.iterdir() if _is_shown(file))
    return render_page(
        "run.html",
        charts=True,
        script=SCRIPT,
        id=url_path(path, root),
        status=status,
        files=[(file.name, url_path(file, root), file.stat().st_size) for file in files],
        **values,
    )


def _is_shown(file: Path) -> bool:
    """Return whether a run's page links a file: not those of a process that is writing."""
    return file.is_file() and not file.name.startswith(".") and file.suffix != ".part"


def _run_values(run: Run, last: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a readable run for the template of its page.

    Args:
        run: The run.
        last: The last evaluated round; empty before the first.
    """
    meta = run.meta
    departures = {}
    for key, (experiment, value) in meta.get("departures", {}).items():
        departures[key] = f"{config_value(value)} (the experiment has {config_value(experiment)})"
    return {
        "setting": meta["experiment"] or meta["data"],
        "title": f"{meta['algo']}, seed {meta['seed']}",
        "remarks": meta.get("remarks", []),
        "command": f"fedbench {shlex.join(map(str, meta.get('overrides', [])))}",
        "facts": {name: value for name, value in _facts(run, last).items() if value},
        "numbers": _numbers(last),
        "departures": departures,
        "config": {key: config_value(value) for key, value in sorted(run.flat.items())},
    }


def _facts(run: Run, last: Mapping[str, Any]) -> dict[str, str]:
    """Return facts about a run by name; unknown ones are empty."""
    meta = run.meta
    versions = meta.get("versions", {})
    commit = str(meta.get("git_commit") or "")
    if commit and meta.get("git_dirty"):
        commit += " with changes"
    device = [str(meta[key]) for key in ("device", "device_name") if meta.get(key)]
    memory = meta.get("peak_memory_bytes")
    return {
        "data": title_of([run]),
        "model": str(meta["model"]),
        "hash": str(meta["hash"]),
        "started": str(meta.get("started") or ""),
        "ended": str(meta.get("ended") or ""),
        "training": duration(last["seconds_train"]) if last.get("seconds_train") else "",
        "evaluation": duration(last["seconds_eval"]) if last.get("seconds_eval") else "",
        "device": ", ".join(device),
        "engine": keys_text(meta.get("engine", {})),
        "peak memory": f"{memory / 1e6:.0f} MB" if memory else "",
        "commit": commit,
        "versions": ", ".join(f"{name} {number}" for name, number in versions.items()),
    }


def _numbers(last: Mapping[str, Any]) -> dict[str, str]:
    """Return the metrics of a round as text with units, by label."""
    numbers = {}
    for name, value in last.items():
        if name != "round" and isinstance(value, int | float):
            info = metric_info(name)
            numbers[info.label] = f"{info.text(info.factor * value)} {info.unit}"
    return numbers


# ---- charts


def run_charts(paths: Iterable[Path]) -> list[Spec]:
    """Return charts of runs, finished or not: a line per run, and charts per data and metric.

    Runs that cannot be read or have no round yet are left out.
    """
    runs = [run for path in paths if (run := _readable(path))]
    names = _names(runs)
    look = looks({names[run.path]: str(run.meta["algo"]) for run in runs})
    by_data = grouped((str(run.meta["experiment"] or run.meta["data"]), run) for run in runs)
    panels: list[Panel] = []
    for title, members in by_data.items():
        named = {names[run.path]: run for run in members}
        panels += _curve_panels(title, named, look)
        panels += client_panels(title, {name: [run] for name, run in named.items()}, look)
    return [curve_chart(panel) for panel in panels]


def _readable(path: Path) -> Run | None:
    """Return a run with rounds whose files can be read, or None."""
    try:
        run = read_run(path)
        if not run.begun:
            return None
        run.rounds()
        if run.has_clients:
            run.clients()
    except DamagedRun:
        return None
    return run


def _names(runs: Sequence[Run]) -> dict[Path, str]:
    """Return the names of lines: method, the keys in which the runs differ, and seed."""
    settings = by_setting(runs)
    names = {}
    for key, tree in distinguishing(settings).items():
        apart = {name: value for name, value in tree.items() if name not in ("data", "model")}
        for run in settings[key]:
            words = (str(run.meta["algo"]), keys_text(apart), f"seed {run.meta['seed']}")
            names[run.path] = " ".join(filter(None, words))
    return names


def _curve_panels(
    title: str,
    runs: Mapping[str, Run],
    look: Mapping[str, Look],
) -> list[Panel]:
    """Return a panel per measured metric with a line per run, whose names are the keys."""
    panels = []
    for field in FIELDS:
        curves = {name: curve_of(run.rounds(), field) for name, run in runs.items()}
        series = [
            curve_series(name, [curve], field, look[name])
            for name, curve in curves.items()
            if len(curve)
        ]
        if series:
            panels.append(Panel(title, series, "round", metric_info(field).axis))
    return panels
