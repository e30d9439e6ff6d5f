"""The page of one run, and the charts of several."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from fedbench.analysis.curves import curve_of
from fedbench.analysis.settings import Key, by_setting, distinguishing
from fedbench.core.config_values import Tree, keys_text
from fedbench.core.metrics import metric_info
from fedbench.reports.canvas import Look, looks
from fedbench.reports.charts import Spec, curve_chart
from fedbench.reports.figures import OWN_FIELDS, client_panels, curve_series
from fedbench.reports.filters import grouped
from fedbench.reports.page import render_page
from fedbench.reports.panels import Panel
from fedbench.reports.viewer.listing import shown_path, url_path
from fedbench.reports.viewer.run_values import setting_of, viewed
from fedbench.runs.run import Run

FIELDS = (*OWN_FIELDS, "accuracy_std")
SCRIPT = "viewer.js"


def run_page(path: Path, root: Path) -> str:
    """Return the page of the run in a directory below ``root``."""
    status, read = viewed(path)
    values: dict[str, Any] = {
        "setting": "run",
        "title": path.name,
        "remarks": [],
        "command": "",
        "facts": {},
        "numbers": {},
        "departures": {},
        "config": {},
        **read,
    }
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


# ---- charts


def run_charts(paths: Iterable[Path], root: Path) -> list[Spec]:
    """Return charts of runs, finished or not: a line per run, and charts per data and metric.

    Runs that cannot be drawn or have no round yet are left out.

    Args:
        paths: The directories of the runs.
        root: A directory above them, to which paths in names of lines are relative.
    """
    runs = [run for path in paths if (run := _drawable(path))]
    by_title = grouped((setting_of(run), run) for run in runs)
    names = _names(by_title, root)
    look = looks({names[run.path]: str(run.meta["algo"]) for run in runs})
    panels: list[Panel] = []
    for title, members in by_title.items():
        panels += _panels(title, {names[run.path]: run for run in members}, look)
    return [curve_chart(panel) for panel in panels]


def _drawable(path: Path) -> Run | None:
    """Return a run with rounds that can be drawn, or None."""
    status, _ = viewed(path)
    run = status.run
    if run is None or not run.begun:
        return None
    try:
        _panels("", {"": run}, looks({"": ""}))
    except Exception:  # whatever its files contain, the others are drawn
        return None
    return run


def _names(
    by_title: Mapping[str, Sequence[Run]],
    root: Path,
) -> dict[Path, str]:
    """Return the names of lines, which are unique below each title.

    A name contains the method, the keys in which the runs differ, and the seed, and for copies of a
    run also its path.
    """
    runs = chain.from_iterable(by_title.values())
    keys = distinguishing(by_setting(runs))
    names = {}
    for members in by_title.values():
        several_data = len({run.meta["data"] for run in members}) > 1
        named = grouped((_name(run, keys, several_data), run) for run in members)
        for name, alike in named.items():
            for run in alike:
                names[run.path] = name
                if len(alike) > 1:
                    names[run.path] += f" {shown_path(run.path.relative_to(root))}"
    return names


def _name(
    run: Run,
    keys: Mapping[Key, Tree],
    with_data: bool,
) -> str:
    """Return the name of a run's line: method, keys of its setting, and seed."""
    apart = dict(keys[run.meta["algo"], run.meta["hash"]])
    if not with_data:
        apart.pop("data", None)
    words = (
        str(run.meta["algo"]),
        keys_text(apart),
        f"seed {run.meta['seed']}",
    )
    return " ".join(filter(None, words))


def _panels(
    title: str,
    runs: Mapping[str, Run],
    look: Mapping[str, Look],
) -> list[Panel]:
    """Return panels of metrics and of clients with a line per run, whose names are the keys."""
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
    lines = {name: [run] for name, run in runs.items()}
    return panels + client_panels(title, lines, look)
