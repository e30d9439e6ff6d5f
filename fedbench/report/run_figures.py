"""Figures of runs that belong to no paper: pictures of the curves and of the clients per experiment or data set."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fedbench.analysis.matching import departure_texts
from fedbench.analysis.metrics_catalogue import metric_info
from fedbench.analysis.settings import keys_text
from fedbench.analysis.tables import Line, TableData
from fedbench.report import plots
from fedbench.report.figures import accuracies, series
from fedbench.report.plots import Panel, Series
from fedbench.report.views import FigureView

_FIELDS = ("train_loss", "accuracy_mean", "accuracy_worst30")


def run_figures(table: TableData, folder: Path) -> list[FigureView]:
    """Draw the runs of a table and return the pictures; settings of different lengths have separate panels."""
    lines = table.lines
    if not lines:
        return []
    base, name = folder / table.name.replace("/", "_"), table.name
    reduced = tuple(f"{_label(x)}: {', '.join(departure_texts(x.found.reduced))}" for x in lines if x.found.reduced)
    lengths = sorted({_length(line) for line in lines})
    panels = [p for field in _FIELDS for n in lengths if (p := _panel(lines, field, n, len(lengths) > 1)) is not None]
    files = plots.curves(base.with_name(f"{base.name}_curves"), name, panels, reduced=bool(reduced)) if panels else []
    clients = []
    for n in lengths:
        shown = [(_label(x), values, i) for i, x in _of_length(lines, n) if len(values := _accuracies(x))]
        if shown:
            clients.append(("clients of all seeds" + (f", {n} rounds" if len(lengths) > 1 else ""), shown))
    if clients:
        files += plots.distribution(base.with_name(f"{base.name}_clients"), name, clients, reduced=bool(reduced))
    svgs = [f for f in files if f.suffix == ".svg"]
    return [FigureView(f.stem, name, "", f.read_text(encoding="utf-8"), reduced, "") for f in svgs]


def _label(line: Line) -> str:
    return f"{line.label} {keys_text(line.keys)}".rstrip()


def _length(line: Line) -> int:
    """Return the number of rounds in the configuration of a setting, which all its seeds share."""
    return max(int(run.config["rounds"]) for run in line.found.runs.values())


def _of_length(lines: Sequence[Line], rounds: int) -> list[tuple[int, Line]]:
    return [(i, line) for i, line in enumerate(lines) if _length(line) == rounds]


def _panel(lines: Sequence[Line], field: str, rounds: int, several: bool) -> Panel | None:
    series = [_series(line, field, i) for i, line in _of_length(lines, rounds)]
    known = [s for s in series if s is not None]
    return Panel(f"{rounds} rounds" if several else "", known, "round", metric_info(field).axis) if known else None


def _series(line: Line, field: str, index: int) -> Series | None:
    """Return the curves of a setting; if its seeds end in different rounds, the label lists these."""
    curves = line.found.curve(field)
    ends = sorted({int(curve.index[-1]) for curve in curves.values()})
    label = _label(line) + (f" (seeds end at rounds {', '.join(map(str, ends))})" if len(ends) > 1 else "")
    return series(label, curves, field, index) if curves else None


def _accuracies(line: Line) -> np.ndarray:
    return accuracies(run for run in line.found.runs.values() if (run.path / "clients.parquet").exists())
