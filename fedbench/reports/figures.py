"""Figures as PNG and SVG: those of papers, and the curves and clients of any runs."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path

import numpy as np
import pandas as pd

from fedbench.analysis.curves import low_and_high, position, run_curves
from fedbench.analysis.matching import Evidence, MatchedRuns
from fedbench.analysis.settings import blocks_of
from fedbench.analysis.table_model import TableData
from fedbench.core.config_values import keys_text
from fedbench.core.metrics import metric_info
from fedbench.papers.schema import Figure, Method, Paper, Row
from fedbench.reports import plots
from fedbench.reports.canvas import Look, looks
from fedbench.reports.filters import grouped
from fedbench.reports.plots import DrawnFigure, Panel, Pictures, Series, drawn
from fedbench.runs.run import Run

OWN_FIELDS = ("train_loss", "accuracy_mean", "accuracy_worst30")
_MOST_SETTINGS = 8  # settings of own runs that are drawn


# ---- figures of papers


@dataclass(frozen=True)
class FigureRow:
    """A row of a figure with its runs.

    Attributes:
        row: The row.
        setup: Title of its setup.
        method: Its method.
        runs: Its runs.
    """

    row: Row
    setup: str
    method: Method
    runs: MatchedRuns

    @property
    def label(self) -> str:
        """The label of its line."""
        return f"{self.method.label} {keys_text(self.row.hyperparameters)}".rstrip()


@dataclass(frozen=True)
class FigureRuns:
    """A figure of a paper with the runs of each row."""

    paper: Paper
    figure: Figure
    rows: Sequence[FigureRow]

    @cached_property
    def drawn(self) -> list[FigureRow]:
        """The rows that have runs."""
        return [row for row in self.rows if row.runs.runs]

    @cached_property
    def look(self) -> dict[str, Look]:
        """The looks of the lines of all rows.

        The subject is the method whose algo is named like the paper.
        """
        return looks({row.label: row.method.algo for row in self.rows}, self.paper.id)


def paper_figures(evidence: Evidence, folder: Path) -> list[DrawnFigure]:
    """Draw the figures of a paper that have runs, and return all that are drawn from runs.

    Args:
        evidence: The paper and its finished runs.
        folder: Directory of the pictures.
    """
    figures = [figure for figure in evidence.paper.figures.values() if figure.kind in _KINDS]
    return [view for figure in figures for view in paper_figure(figure, evidence, folder)]


def paper_figure(figure: Figure, evidence: Evidence, folder: Path) -> list[DrawnFigure]:
    """Draw a figure with runs of a setup that are reduced alike, and return its pictures."""
    paper = evidence.paper
    rows = []
    for setup in figure.setups:
        members = [row for row in figure.rows if row.setup == setup]
        for row, runs in zip(members, evidence.comparable(members), strict=True):
            rows.append(FigureRow(row, paper.setups[setup].title, paper.methods[row.algo], runs))
    shown = FigureRuns(paper, figure, rows)
    tuning = figure.tuning
    view = DrawnFigure(
        f"{paper.id}/{figure.id}",
        f"{paper.name}, Figure {figure.id.removeprefix('figure').replace('_', '').upper()}",
        figure.caption,
        reduced=_reduced(shown),
        note=_missing(shown),
        tuning=(("in the paper", tuning.paper), ("here", tuning.here)) if tuning else (),
    )
    return drawn(view, folder, _KINDS[figure.kind](shown)) or [view]


def _reduced(shown: FigureRuns) -> tuple[str, ...]:
    """Return the departures from the paper, each with the rows that have them."""
    rows = shown.drawn
    reductions = grouped(
        (row.runs.reduced, f"{row.label} on {row.setup}") for row in rows if row.runs.reduced
    )
    texts = []
    for departures, names in reductions.items():
        members = "all runs" if len(names) == len(rows) > 1 else ", ".join(dict.fromkeys(names))
        texts.append(f"{members}: {', '.join(departures)}")
    return tuple(texts)


def _missing(shown: FigureRuns) -> str:
    """Return which rows are not drawn, and why; empty if all are."""
    missing = grouped(
        ((row.setup, "diverged" if row.runs.diverged else "not run"), row.label)
        for row in shown.rows
        if not row.runs.runs
    )
    sizes = Counter(row.setup for row in shown.rows)
    texts = []
    for (setup, reason), labels in missing.items():
        members = "everything" if len(labels) == sizes[setup] else ", ".join(labels)
        texts.append(f"{members} on {setup} ({reason})")
    return f"not drawn: {'; '.join(texts)}" if texts else ""


def _curve_panels(shown: FigureRuns, rows: Iterable[FigureRow]) -> list[Panel]:
    """Return a panel per setup and field, with the curves of rows."""
    panels = []
    for setup, members in grouped((row.setup, row) for row in rows).items():
        for field in shown.figure.fields:
            curves = [(row, row.runs.curve(field).values()) for row in members]
            series = [_series(row.label, c, field, shown.look[row.label]) for row, c in curves if c]
            if series:
                panels.append(Panel(setup, series, "round", metric_info(field).axis))
    return panels


def _series(label: str, curves: Iterable[pd.Series], field: str, look: Look) -> Series:
    """Return the curves of a field, one per run, as they are drawn: in its printed unit."""
    table = pd.DataFrame(dict(enumerate(curves)))
    return Series(
        label, table.index.to_numpy(float), table.to_numpy().T * metric_info(field).factor, look
    )


def _curves(shown: FigureRuns) -> Pictures:
    drawing = partial(plots.curves, log_y=shown.figure.fields == ("update_norm",))
    curves = ("", drawing, _curve_panels(shown, shown.drawn))
    return (
        [curves, *_distribution(shown, "_distribution")] if shown.figure.distribution else [curves]
    )


def _distribution(shown: FigureRuns, part: str = "") -> Pictures:
    panels = []
    for setup, rows in grouped((row.setup, row) for row in shown.drawn).items():
        lines = {row.label: (shown.look[row.label], list(row.runs.runs.values())) for row in rows}
        panels += client_panels(setup, lines)
    return [(part, plots.curves, panels)]


def _sweep(shown: FigureRuns) -> Pictures:
    """Return final values over a hyperparameter."""
    parameter = shown.figure.parameter
    panels = []
    for setup, rows in grouped((row.setup, row) for row in shown.drawn).items():
        by_value = {float(row.row.hyperparameters[parameter]): row for row in rows}
        values = sorted(by_value)
        method = rows[0].method
        look = looks({method.label: method.algo}, shown.paper.id)[method.label]
        for field in shown.figure.fields:
            final = _final([by_value[value] for value in values], field)
            series = Series(method.label, np.array(values), final, look)
            panels.append(Panel(setup, [series], parameter, metric_info(field).axis))
    return [("", plots.means, panels)]


def _front(shown: FigureRuns) -> Pictures:
    """Return the plane of two final values, in which a swept method is a line, and its curves."""
    parameter = shown.figure.parameter
    one, two = shown.figure.fields
    swept = [row for row in shown.drawn if parameter in row.row.hyperparameters]
    lines = grouped(
        (f"{row.method.label} over {parameter}" if row in swept else row.label, row)
        for row in shown.drawn
    )
    look = looks({label: rows[0].method.algo for label, rows in lines.items()}, shown.paper.id)
    series = []
    for label, rows in lines.items():
        texts = tuple(f"{row.row.hyperparameters[parameter]:g}" for row in rows if row in swept)
        series.append(Series(label, _final(rows, one), _final(rows, two), look[label], texts))
    panel = Panel("", series, metric_info(one).axis, metric_info(two).axis)
    return [
        ("", plots.means, [panel] if series else []),
        ("_curves", plots.curves, _curve_panels(replace(shown, rows=swept), swept)),
    ]


def _final(rows: Iterable[FigureRow], field: str) -> np.ndarray:
    """Return final values [seeds, rows] in the printed unit, NaN where a seed was not run."""
    table = pd.DataFrame([row.runs.final(field) for row in rows]).sort_index(axis=1)
    return table.to_numpy(float).T * metric_info(field).factor


def _two_clients(shown: FigureRuns) -> Pictures:
    look = looks({"lowest loss at first": "", "highest loss at first": ""})
    panels = []
    for row in shown.drawn:
        clients = zip(*(low_and_high(run.clients()) for run in row.runs.runs.values()), strict=True)
        series = [
            _series(label, c, "train_loss", look[label])
            for label, c in zip(look, clients, strict=True)
        ]
        panels.append(Panel(row.setup, series, "round", "training loss"))
    return [("", plots.curves, panels)]


_KINDS: dict[str, Callable[[FigureRuns], Pictures]] = {
    "curves": _curves,
    "distribution": _distribution,
    "sweep": _sweep,
    "front": _front,
    "two_clients": _two_clients,
}


# ---- any runs


def client_panels(title: str, lines: Mapping[str, tuple[Look, Sequence[Run]]]) -> list[Panel]:
    """Return a panel of the accuracies of the clients of all seeds in their last rounds, in order.

    There is none if no run has accuracies of its clients.

    Clients are counted in percent, so that methods with different numbers of seeds can be compared.

    Args:
        title: Title of the panel.
        lines: The look and the runs of each line.
    """
    series = []
    for label, (look, runs) in lines.items():
        known = [
            run.last_clients()["accuracy"].dropna().to_numpy(float)
            for run in runs
            if run.has_clients
        ]
        if known:
            accuracies = np.sort(100 * np.concatenate(known))
            ranks = np.linspace(0, 100, len(accuracies) + 1)[1:]
            series.append(Series(label, ranks, accuracies[None], look))
    seeds = " of all seeds" if any(len(runs) > 1 for _, runs in lines.values()) else ""
    panel = Panel(title, series, f"rank among the clients{seeds} (%), worst first", "accuracy (%)")
    return [panel] if series else []


def curve_panels(
    runs: Sequence[Run], fields: Sequence[str], x: str = "round", by: str = "algo"
) -> list[Panel]:
    """Return the curves of runs: a panel per setting and field, a line per value of a key.

    Lines of several methods with one value also have the name of the method.

    Args:
        runs: The runs; those that are not done do not count.
        fields: The metrics.
        x: The horizontal axis, see ``position``.
        by: The key: ``algo``, ``data``, ``model`` or a dotted key of the configuration.

    Raises:
        RequestError: If a key is unknown, or no run measured a metric.
    """
    curves = [(field, curve) for field in fields for curve in run_curves(runs, x, field, by)]
    methods = Counter(name for name, _ in {(c.name, c.algo) for _, c in curves})
    labels = [f"{c.algo} {c.name}" if methods[c.name] > 1 else c.name for _, c in curves]
    look = looks({label: c.algo for label, (_, c) in zip(labels, curves, strict=True)})
    panels = grouped(
        ((c.setting, field), Series(label, c.x, c.y, look[label]))
        for label, (field, c) in zip(labels, curves, strict=True)
    )
    return [
        Panel(setting, panels[setting, field], position(x)[0], metric_info(field).axis)
        for setting, field in sorted(panels, key=lambda panel: panel[0])
    ]


def run_figures(table: TableData, folder: Path) -> list[DrawnFigure]:
    """Draw the curves and clients of the runs of a table.

    A note says if there are too many settings to draw.
    """
    runs = [run for line in table.lines for run in line.matched.runs.values()]
    if not runs:
        return []
    fields = [
        name for name in OWN_FIELDS if any(run.last_round().get(name) is not None for run in runs)
    ]
    blocks = blocks_of(runs, "algo")
    look = looks(
        {name: members[0].meta["algo"] for block in blocks for name, members in block.lines.items()}
    )
    clients = []
    for block in blocks[:_MOST_SETTINGS]:
        clients += client_panels(
            block.title, {name: (look[name], members) for name, members in block.lines.items()}
        )
    figure = DrawnFigure(
        table.name,
        table.title,
        reduced=tuple(
            f"{line.name}: {', '.join(line.matched.reduced)}"
            for line in table.lines
            if line.matched.reduced
        ),
    )
    if len(blocks) > _MOST_SETTINGS:
        figure = replace(
            figure, note=f"drawn are the first {_MOST_SETTINGS} of {len(blocks)} settings"
        )
    curves = curve_panels(runs, fields)[: _MOST_SETTINGS * len(fields)]
    return drawn(
        figure, folder, [("_curves", plots.curves, curves), ("_clients", plots.curves, clients)]
    )
