"""Figures as PNG and SVG: those of papers, and the curves and clients of any runs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path

import numpy as np
import pandas as pd

from fedbench.analysis.claims.curve_claims import moments
from fedbench.analysis.curves import low_and_high, position, run_curves
from fedbench.analysis.matching import Evidence, MatchedRuns
from fedbench.analysis.settings import blocks_of
from fedbench.analysis.table_model import TableData
from fedbench.core.config_values import keys_text
from fedbench.core.metrics import metric_info
from fedbench.papers.registry import LABELS
from fedbench.papers.schema import Figure, Paper, Row
from fedbench.reports import plots
from fedbench.reports.canvas import Look, looks
from fedbench.reports.plots import DrawnFigure, Image, Panel, Pictures, Series, drawn
from fedbench.runs.run import Run

OWN_FIELDS = ("train_loss", "accuracy_mean", "accuracy_worst30")
_MOST_SETTINGS = 8  # settings of own runs that are drawn


# ---- figures of papers


@dataclass(frozen=True)
class _Shown:
    """A figure of a paper, or some of its rows, with the runs of each row; ``root`` has the label counts."""

    paper: Paper
    figure: Figure
    rows: Sequence[tuple[Row, MatchedRuns]]
    root: Path

    @cached_property
    def look(self) -> dict[tuple[str, str], Look]:
        """The looks of its lines; the subject is the method whose algo is named like the paper."""
        return looks([self.line(row) for row, _ in self.rows], self.paper.id)

    def at(self, setup: str) -> list[tuple[Row, MatchedRuns]]:
        """Return the rows of a setup that have runs."""
        return [(row, found) for row, found in self.rows if row.setup == setup and found.runs]

    def title(self, setup: str) -> str:
        return self.paper.setups[setup].title

    def line(self, row: Row) -> tuple[str, str]:
        """Return the method and the label of a row's line."""
        method = self.paper.methods[row.algo]
        return method.algo, f"{method.label} {keys_text(row.hyperparameters)}".rstrip()


def paper_figures(paper: Paper, evidence: Evidence, root: Path, folder: Path) -> list[DrawnFigure]:
    """Draw the figures of a paper for which there are runs, and return all of them but sketches.

    Args:
        paper: The paper.
        evidence: The finished runs.
        root: Directory of the label counts.
        folder: Directory of the pictures.
    """
    figures = [figure for figure in paper.figures.values() if figure.kind in _KINDS]
    return [view for figure in figures for view in paper_figure(paper, figure, evidence, root, folder)]


def paper_figure(paper: Paper, figure: Figure, evidence: Evidence, root: Path, folder: Path) -> list[DrawnFigure]:
    """Draw a figure if runs exist, those of a setup reduced alike if possible, and return its one or more pictures."""
    by_setup = [[row for row in figure.rows if row.setup == setup] for setup in figure.setups]
    rows = [pair for of in by_setup for pair in zip(of, evidence.comparable(of), strict=True)]
    shown = _Shown(paper, figure, rows, root)
    tuning = figure.tuning
    view = DrawnFigure(
        f"{paper.id}/{figure.id}",
        f"{paper.name}, Figure {figure.id.removeprefix('figure').replace('_', '').upper()}",
        figure.caption,
        reduced=_reduced(shown),
        note=_lacking(shown),
        tuning=(("in the paper", tuning.paper), ("here", tuning.here)) if tuning else (),
    )
    return drawn(view, folder, _KINDS[figure.kind](shown)) or [view]


def _reduced(shown: _Shown) -> tuple[str, ...]:
    """Return the departures from the paper, each with the rows that have them."""
    rows = [(row, found) for row, found in shown.rows if found.runs]
    why: dict[tuple[str, ...], list[str]] = {}
    for row, found in rows:
        if found.reduced:
            why.setdefault(found.reduced, []).append(f"{shown.line(row)[1]} on {shown.title(row.setup)}")
    return tuple(
        f"{'all runs' if len(names) == len(rows) > 1 else ', '.join(dict.fromkeys(names))}: {', '.join(words)}"
        for words, names in why.items()
    )


def _lacking(shown: _Shown) -> str:
    """Return which rows are not drawn, and why; empty if all are."""
    if all(found.runs for _, found in shown.rows):
        return ""
    why: dict[tuple[str, str], list[str]] = {}
    for row, found in shown.rows:
        if not found.runs:
            why.setdefault((row.setup, "diverged" if found.diverged else "not run"), []).append(shown.line(row)[1])
    texts = []
    for (setup, reason), names in why.items():
        every = len(names) == sum(row.setup == setup for row, _ in shown.rows)
        texts.append(f"{'everything' if every else ', '.join(names)} on {shown.title(setup)} ({reason})")
    return f"not drawn: {'; '.join(texts)}"


def _curve_panels(shown: _Shown, fields: Iterable[str]) -> list[Panel]:
    """Return a panel per setup and field, with the curves of all rows."""
    panels = []
    for setup in shown.figure.setups:
        for name in fields:
            curves = [(shown.line(row), found.curve(name)) for row, found in shown.at(setup)]
            series = [_series(line[1], c.values(), name, shown.look[line]) for line, c in curves if c]
            if series:
                panels.append(Panel(shown.title(setup), series, "round", metric_info(name).axis))
    return panels


def _series(label: str, curves: Iterable[pd.Series], name: str, look: Look) -> Series:
    """Return the curves of a field, one per run, as they are drawn: in its printed unit."""
    table = pd.DataFrame(dict(enumerate(curves)))
    return Series(label, table.index.to_numpy(float), table.to_numpy().T * metric_info(name).factor, look)


def _curves(shown: _Shown) -> Pictures:
    figure = shown.figure
    drawing = partial(plots.curves, log_y=figure.fields == ("update_norm",))
    clients = _distribution(shown, "_distribution") if figure.distribution else []
    return [("", drawing, _curve_panels(shown, figure.fields)), *clients]


def _distribution(shown: _Shown, part: str = "") -> Pictures:
    panels = []
    for setup in shown.figure.setups:
        runs = {shown.line(row): list(found.runs.values()) for row, found in shown.at(setup)}
        panels += client_panels(shown.title(setup), {line[1]: (shown.look[line], of) for line, of in runs.items()})
    return [(part, plots.curves, panels)]


def _sweep(shown: _Shown) -> Pictures:
    parameter, panels = shown.figure.parameter, []
    for setup in shown.figure.setups:
        here = sorted(shown.at(setup), key=lambda entry: float(entry[0].hyperparameters[parameter]))
        for name in shown.figure.fields if here else ():
            x = np.array([float(row.hyperparameters[parameter]) for row, _ in here])
            method = shown.paper.methods[here[0][0].algo]
            line = method.algo, method.label
            series = Series(method.label, x, _final(here, name), looks([line], shown.paper.id)[line])
            panels.append(Panel(shown.title(setup), [series], parameter, metric_info(name).axis))
    return [("", plots.means, panels)]


def _front(shown: _Shown) -> Pictures:
    """Return the plane of two final values, in which a swept method is a line, and its curves."""
    parameter, (one, two) = shown.figure.parameter, shown.figure.fields
    method = shown.paper.methods[next(run.algo for run in shown.figure.runs if parameter in run.hyperparameters)]
    lines: dict[tuple[str, str], list[tuple[Row, MatchedRuns]]] = {}
    for row, found in shown.rows:
        if found.runs:
            swept = parameter in row.hyperparameters
            line = (method.algo, f"{method.label} over {parameter}") if swept else shown.line(row)
            lines.setdefault(line, []).append((row, found))
    look, series = looks(list(lines), shown.paper.id), []
    for line, here in lines.items():
        values = [row.hyperparameters.get(parameter) for row, _ in here]
        texts = tuple(f"{value:g}" for value in values if value is not None)
        series.append(Series(line[1], _final(here, one), _final(here, two), look[line], texts))
    rows = [(row, found) for row, found in shown.rows if parameter in row.hyperparameters]
    curves = [_late(p) for p in _curve_panels(replace(shown, rows=rows), shown.figure.fields)]
    panel = Panel("", series, metric_info(one).axis, metric_info(two).axis)
    return [("", plots.means, [panel] if series else []), ("_curves", plots.curves, curves)]


def _late(panel: Panel) -> Panel:
    """Return a panel without the first tenth of the points, whose range would hide the differences."""
    series = [replace(s, x=s.x[len(s.x) // 10 :], y=s.y[:, len(s.x) // 10 :]) for s in panel.series]
    return replace(panel, title=f"{panel.title}, after a tenth of the rounds", series=series)


def _final(rows: Iterable[tuple[Row, MatchedRuns]], name: str) -> np.ndarray:
    """Return final values [seeds, rows] in the printed unit, NaN where a seed was not run."""
    table = pd.DataFrame([found.final(name) for _, found in rows]).sort_index(axis=1)
    return table.to_numpy(float).T * metric_info(name).factor


def _labels(shown: _Shown) -> Pictures:
    """Return the examples per class and client, of the setups whose counts are known."""
    panels = []
    for setup in shown.figure.setups:
        path = shown.root / LABELS / f"{shown.paper.setups[setup].experiment}.json"
        if path.exists():
            counts = np.array(json.loads(path.read_text(encoding="utf-8")))
            panels.append(Image(shown.title(setup), counts.T, "client", "class", "examples"))
    return [("", plots.images, panels)]


def _two_clients(shown: _Shown) -> Pictures:
    names = ("lowest loss at first", "highest loss at first")
    look = looks([("", name) for name in names])
    panels = []
    for row, found in shown.rows:
        if found.runs:
            pairs = zip(*(low_and_high(run.clients()) for run in found.runs.values()), strict=True)
            series = [_series(n, c, "train_loss", look["", n]) for n, c in zip(names, pairs, strict=True)]
            panels.append(Panel(shown.title(row.setup), series, "round", "training loss"))
    return [("", plots.curves, panels)]


def _cka(shown: _Shown) -> Pictures:
    """Return the similarity of the clients' moments in the first seed of each row."""
    panels = []
    for row, found in shown.rows:
        for unit, values in list(moments(found).items())[:1]:
            title = f"{shown.line(row)[1]}, seed {unit.seed}"
            panels.append(Image(title, values, "client", "client", "linear CKA"))
    return [("", plots.images, panels)]


_KINDS: dict[str, Callable[[_Shown], Pictures]] = {
    "curves": _curves, "distribution": _distribution, "sweep": _sweep, "front": _front, "labels": _labels,
    "two_clients": _two_clients, "cka": _cka,
}  # fmt: skip


# ---- any runs


def client_panels(title: str, lines: dict[str, tuple[Look, Sequence[Run]]]) -> list[Panel]:
    """Return how accuracies spread over the clients of all seeds in their last rounds: a histogram, and in order.

    Clients are counted in percent, so that methods with different numbers of seeds can be compared.

    Args:
        title: Title of both panels.
        lines: The look and the runs of each line.
    """
    histogram, ranks = [], []
    edges = np.linspace(0, 100, 21)
    for label, (look, runs) in lines.items():
        known = [run.last_clients()["accuracy"].dropna().to_numpy(float) for run in runs if run.has_clients]
        if known:
            y = np.sort(100 * np.concatenate(known))
            share = 100 * np.histogram(y, edges)[0] / max(1, len(y))
            histogram.append(Series(label, edges, np.append(share, share[-1])[None], look))
            ranks.append(Series(label, 100 * np.arange(1, len(y) + 1) / max(1, len(y)), y[None], look))
    if not ranks:
        return []
    of = " of all seeds" if any(len(runs) > 1 for _, runs in lines.values()) else ""
    return [
        Panel(title, histogram, "accuracy of a client (%)", f"clients{of} (%)", steps=True),
        Panel(title, ranks, f"rank among the clients{of} (%), worst first", "accuracy (%)"),
    ]


def curve_panels(runs: Sequence[Run], fields: Sequence[str], x: str = "round", by: str = "algo") -> list[Panel]:
    """Return the curves of runs: a panel per setting and field, a line per value of a key.

    Lines of several methods with one value also have the name of the method.

    Args:
        runs: The runs; those that are not done do not count.
        fields: The metrics.
        x: What ``position`` takes.
        by: The key: ``algo``, ``data``, ``model`` or a dotted key of the configuration.

    Raises:
        RequestError: If a key is unknown, or no run measured a metric.
    """
    found = [(name, curve) for name in fields for curve in run_curves(runs, x, name, by)]
    methods = Counter(name for name, _ in {(c.name, c.algo) for _, c in found})
    found = [(name, replace(c, name=f"{c.algo} {c.name}") if methods[c.name] > 1 else c) for name, c in found]
    look = looks([(c.algo, c.name) for _, c in found])
    settings = sorted({c.setting for _, c in found})
    panels = []
    for setting in settings:
        for name in fields:
            members = [c for of, c in found if (of, c.setting) == (name, setting)]
            series = [Series(c.name, c.x, c.y, look[c.algo, c.name]) for c in members]
            if series:
                panels.append(Panel(setting, series, position(x)[0], metric_info(name).axis))
    return panels


def run_figures(table: TableData, folder: Path) -> list[DrawnFigure]:
    """Draw the curves and clients of the runs of a table; of many settings, the first ones, which a note says."""
    runs = [run for line in table.lines for run in line.found.runs.values()]
    if not runs:
        return []
    fields = [name for name in OWN_FIELDS if any(run.last_round().get(name) is not None for run in runs)]
    curves = curve_panels(runs, fields)
    groups = [(block.title, block.lines) for block in blocks_of(runs, "algo")]
    look = looks([(str(of[0].meta["algo"]), name) for _, lines in groups for name, of in lines.items()])
    clients = []
    for title, lines in groups[:_MOST_SETTINGS]:
        clients += client_panels(title, {n: (look[str(of[0].meta["algo"]), n], of) for n, of in lines.items()})
    more = len(groups) > _MOST_SETTINGS
    figure = DrawnFigure(
        table.name,
        table.title,
        reduced=tuple(f"{line.name}: {', '.join(line.found.reduced)}" for line in table.lines if line.found.reduced),
        note=f"drawn are the first {_MOST_SETTINGS} of {len(groups)} settings" if more else "",
    )
    shown = curves[: _MOST_SETTINGS * len(fields)]
    return drawn(figure, folder, [("_curves", plots.curves, shown), ("_clients", plots.curves, clients)])
