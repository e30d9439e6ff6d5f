"""The page of one run, and the charts of several."""

import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedbench.analysis.curves import curve_of
from fedbench.analysis.data_text import title_of
from fedbench.analysis.settings import by_setting, distinguishing
from fedbench.core.config_values import config_value, keys_text
from fedbench.core.metrics import metric_info, metric_texts
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
    files = []
    for file in sorted(filter(_is_shown, path.iterdir())):
        size = file.stat().st_size
        files.append((file.name, url_path(file, root), size))
    return render_page(
        "run.html",
        charts=True,
        script=SCRIPT,
        id=url_path(path, root),
        status=status,
        files=files,
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
        before = config_value(experiment)
        departures[key] = f"{config_value(value)} (the experiment has {before})"
    config = {key: config_value(value) for key, value in sorted(run.flat.items())}
    facts = {name: value for name, value in _facts(run, last).items() if value}
    command = shlex.join(map(str, meta.get("overrides", [])))
    return {
        "setting": _setting(run),
        "title": f"{meta['algo']}, seed {meta['seed']}",
        "remarks": meta.get("remarks", []),
        "command": f"fedbench {command}",
        "facts": facts,
        "numbers": metric_texts(last),
        "departures": departures,
        "config": config,
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
    training = last.get("seconds_train")
    evaluation = last.get("seconds_eval")
    return {
        "data": title_of([run]),
        "model": str(meta["model"]),
        "hash": str(meta["hash"]),
        "started": str(meta.get("started") or ""),
        "ended": str(meta.get("ended") or ""),
        "training": duration(training) if training else "",
        "evaluation": duration(evaluation) if evaluation else "",
        "device": ", ".join(device),
        "engine": keys_text(meta.get("engine", {})),
        "peak memory": f"{memory / 1e6:.0f} MB" if memory else "",
        "commit": commit,
        "versions": ", ".join(f"{name} {number}" for name, number in versions.items()),
    }


# ---- charts


def run_charts(paths: Iterable[Path]) -> list[Spec]:
    """Return charts of runs, finished or not: a line per run, and charts per data and metric.

    Runs that cannot be read or have no round yet are left out.
    """
    runs = [run for path in paths if (run := _readable(path))]
    names = _names(runs)
    look = looks({names[run.path]: str(run.meta["algo"]) for run in runs})
    by_data = grouped((_setting(run), run) for run in runs)
    panels: list[Panel] = []
    for title, members in by_data.items():
        named = {names[run.path]: run for run in members}
        panels += _curve_panels(title, named, look)
        lines = {name: [run] for name, run in named.items()}
        panels += client_panels(title, lines, look)
    return [curve_chart(panel) for panel in panels]


def _setting(run: Run) -> str:
    """Return the experiment of a run, or its data if it belongs to none."""
    return str(run.meta["experiment"] or run.meta["data"])


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
        apart = {name: value for name, value in tree.items() if name != "data"}
        for run in settings[key]:
            words = (
                str(run.meta["algo"]),
                keys_text(apart),
                f"seed {run.meta['seed']}",
            )
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
        series = []
        for name, run in runs.items():
            curve = curve_of(run.rounds(), field)
            if len(curve):
                series.append(curve_series(name, [curve], field, look[name]))
        if series:
            panel = Panel(
                title,
                series,
                x_label="round",
                y_label=metric_info(field).axis,
            )
            panels.append(panel)
    return panels
