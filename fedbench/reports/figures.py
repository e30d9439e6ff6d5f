"""Figures as PNG and SVG: papers' figures, and the curves and clients of any runs."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from pathlib import Path

import numpy as np
import pandas as pd

from fedbench.analysis.curves import RunCurve, low_and_high, position, run_curves
from fedbench.analysis.matching import Evidence, MatchedRuns
from fedbench.analysis.settings import blocks_of
from fedbench.analysis.table_model import TableData
from fedbench.core.config_values import keys_text
from fedbench.core.metrics import metric_info
from fedbench.papers.schema import Figure, Method, Paper, Row
from fedbench.reports import plots
from fedbench.reports.canvas import Look, looks
from fedbench.reports.filters import grouped, reduced_texts
from fedbench.reports.panels import Panel, Series
from fedbench.reports.plots import DrawnFigure, Pictures, drawn
from fedbench.runs.run import Run

OWN_FIELDS = ("train_loss", "accuracy_mean", "accuracy_worst30")
_MOST_SETTINGS = 8  # maximum number of drawn settings of other runs


# ---- figures of papers


@dataclass(frozen=True)
class FigureRow:
    """A row of a figure with its runs.

    Attributes:
        row: The row.
        method: The method of the row.
        runs: The runs of the row.
    """

    row: Row
    method: Method
    runs: MatchedRuns

    @property
    def label(self) -> str:
        """The label of the row's line."""
        return f"{self.method.label} {keys_text(self.row.hyperparameters)}".rstrip()


@dataclass(frozen=True)
class FigureRuns:
    """A paper's figure with the runs of each row."""

    paper: Paper
    figure: Figure
    rows: Sequence[FigureRow]

    @cached_property
    def by_setup(self) -> dict[str, list[FigureRow]]:
        """The rows with runs, by title of the setup."""
        return grouped((row.runs.setup, row) for row in self.rows if row.runs.runs)

    @cached_property
    def drawn(self) -> list[FigureRow]:
        """The rows with runs."""
        return list(chain.from_iterable(self.by_setup.values()))

    @cached_property
    def looks(self) -> dict[str, Look]:
        """The styles of the lines of all rows, by label."""
        return self.looks_of({row.label: row.method for row in self.rows})

    def looks_of(self, methods: Mapping[str, Method]) -> dict[str, Look]:
        """Return the styles of lines by label.

        The subject is the method whose algorithm has the same name as the paper.

        Args:
            methods: The method of each line by label.
        """
        algos = {label: method.algo for label, method in methods.items()}
        return looks(algos, subject=self.paper.id)


def paper_figures(evidence: Evidence, folder: Path) -> list[DrawnFigure]:
    """Draw the figures of a paper that have runs, and return all figures that fedbench can draw.

    Args:
        evidence: The paper and its finished runs.
        folder: Directory for the pictures.
    """
    figures: list[DrawnFigure] = []
    for figure in evidence.paper.figures.values():
        if figure.drawn:
            figures += paper_figure(figure, evidence, folder)
    return figures


def paper_figure(
    figure: Figure,
    evidence: Evidence,
    folder: Path,
) -> list[DrawnFigure]:
    """Draw a figure from runs that are reduced alike within a setup, and return its pictures."""
    paper = evidence.paper
    rows = []
    for setup in figure.setups:
        members = [row for row in figure.rows if row.setup == setup]
        matched = evidence.comparable(members)
        for row, runs in zip(members, matched, strict=True):
            rows.append(FigureRow(row, paper.methods[row.algo], runs))

    shown = FigureRuns(paper, figure, rows)
    reduced = [(f"{row.label} on {row.runs.setup}", row.runs.reduced) for row in shown.drawn]
    view = DrawnFigure(
        name=f"{paper.id}/{figure.id}",
        title=f"{paper.name}, Figure {figure.number}",
        caption=figure.caption,
        reduced=reduced_texts(reduced),
        note=_missing(shown),
        tuning=figure.tuning,
    )
    pictures = _KINDS[figure.kind](shown)
    return drawn(view, folder, pictures) or [view]


def _missing(shown: FigureRuns) -> str:
    """Return a note on the rows that are not drawn, with reasons; empty if all are drawn."""
    rows_of_setup = Counter(row.runs.setup for row in shown.rows)
    missing: dict[tuple[str, str], list[str]] = {}
    for row in shown.rows:
        if not row.runs.runs:
            reason = "diverged" if row.runs.diverged else "not run"
            missing.setdefault((row.runs.setup, reason), []).append(row.label)

    texts = []
    for (setup, reason), labels in missing.items():
        everything = len(labels) == rows_of_setup[setup]
        members = "everything" if everything else ", ".join(labels)
        texts.append(f"{members} on {setup} ({reason})")
    return f"not drawn: {'; '.join(texts)}" if texts else ""


# ---- kinds of figures


def _curves(shown: FigureRuns) -> Pictures:
    """Return curves over the rounds, and the accuracies of clients if the figure shows them."""
    log = shown.figure.fields == ("update_norm",)
    drawing = plots.log_curves if log else plots.curves
    curves = ("", drawing, _curve_panels(shown))
    if not shown.figure.distribution:
        return [curves]
    return [curves, ("_distribution", plots.curves, _client_panels(shown))]


def _curve_panels(shown: FigureRuns) -> list[Panel]:
    """Return a panel per setup and field, with a curve per row."""
    panels = []
    for setup, rows in shown.by_setup.items():
        for field in shown.figure.fields:
            series = []
            for row in rows:
                curves = row.runs.curve(field)
                if curves:
                    look = shown.looks[row.label]
                    line = curve_series(
                        row.label,
                        curves.values(),
                        field,
                        look,
                    )
                    series.append(line)
            if series:
                axis = metric_info(field).axis
                panels.append(Panel(setup, series, "round", axis))
    return panels


def curve_series(
    label: str,
    curves: Iterable[pd.Series],
    field: str,
    look: Look,
) -> Series:
    """Return the curves of a field, one per run, in the printed unit."""
    table = pd.DataFrame(dict(enumerate(curves)))
    rounds = table.index.to_numpy(float)
    values = table.to_numpy().T * metric_info(field).factor
    return Series(label, rounds, values, look)


def _distribution(shown: FigureRuns) -> Pictures:
    return [("", plots.curves, _client_panels(shown))]


def _client_panels(shown: FigureRuns) -> list[Panel]:
    """Return a panel per setup with the clients' accuracies, with a line per row."""
    panels = []
    for setup, rows in shown.by_setup.items():
        runs = {row.label: list(row.runs.runs.values()) for row in rows}
        panels += client_panels(setup, runs, shown.looks)
    return panels


def _sweep(shown: FigureRuns) -> Pictures:
    """Return final values against a hyperparameter, with a panel per setup and field."""
    parameter = shown.figure.parameter
    panels = []
    for setup, rows in shown.by_setup.items():
        by_value = {float(row.row.hyperparameters[parameter]): row for row in rows}
        values = sorted(by_value)
        ordered = [by_value[value] for value in values]
        method = rows[0].method
        look = shown.looks_of({method.label: method})[method.label]
        for field in shown.figure.fields:
            series = Series(
                method.label,
                np.array(values),
                _final(ordered, field),
                look,
            )
            panel = Panel(
                setup,
                [series],
                x_label=parameter,
                y_label=metric_info(field).axis,
            )
            panels.append(panel)
    return [("", plots.means, panels)]


def _front(shown: FigureRuns) -> Pictures:
    """Return the plane of two final values, with swept methods as lines, and their curves."""
    parameter = shown.figure.parameter
    x, y = shown.figure.fields
    swept = [row for row in shown.drawn if parameter in row.row.hyperparameters]
    lines: dict[str, list[FigureRow]] = {}
    for row in shown.drawn:
        label = f"{row.method.label} over {parameter}" if row in swept else row.label
        lines.setdefault(label, []).append(row)

    methods = {label: rows[0].method for label, rows in lines.items()}
    look = shown.looks_of(methods)
    series = []
    for label, rows in lines.items():
        line = Series(
            label,
            _final(rows, x),
            _final(rows, y),
            look[label],
        )
        if rows[0] in swept:
            values = [f"{row.row.hyperparameters[parameter]:g}" for row in rows]
            line = replace(line, texts=tuple(values))
        series.append(line)
    plane = Panel(
        "",
        series,
        x_label=metric_info(x).axis,
        y_label=metric_info(y).axis,
    )
    curves = _curve_panels(replace(shown, rows=swept))
    return [
        ("", plots.means, [plane] if series else []),
        ("_curves", plots.curves, curves),
    ]


def _final(rows: Iterable[FigureRow], field: str) -> np.ndarray:
    """Return final values [seeds, rows] in the printed unit, NaN for seeds that were not run."""
    by_seed = pd.DataFrame([row.runs.final(field) for row in rows])
    table = by_seed.sort_index(axis=1).to_numpy(float)
    return table.T * metric_info(field).factor


def _two_clients(shown: FigureRuns) -> Pictures:
    """Return the training losses of the clients with the lowest and the highest initial loss."""
    look = looks({"lowest loss at first": "", "highest loss at first": ""})
    panels = []
    for row in shown.drawn:
        pairs = [low_and_high(run.clients()) for run in row.runs.runs.values()]
        series = [
            curve_series(label, curves, "train_loss", look[label])
            for label, curves in zip(look, zip(*pairs, strict=True), strict=True)
        ]
        panel = Panel(
            row.runs.setup,
            series,
            x_label="round",
            y_label="training loss",
        )
        panels.append(panel)
    return [("", plots.curves, panels)]


_KINDS: dict[str, Callable[[FigureRuns], Pictures]] = {
    "curves": _curves,
    "distribution": _distribution,
    "sweep": _sweep,
    "front": _front,
    "two_clients": _two_clients,
}


# ---- any runs


def client_panels(
    title: str,
    runs_of_line: Mapping[str, Sequence[Run]],
    look: Mapping[str, Look],
) -> list[Panel]:
    """Return a list with a panel of the sorted last-round accuracies of all seeds' clients.

    The list is empty if no run contains the accuracies of its clients. The ranks of clients are
    percentages, so that methods with different numbers of seeds can be compared.

    Args:
        title: Title of the panel.
        runs_of_line: The runs of each line by label.
        look: The style of each line by label.
    """
    series = []
    for label, runs in runs_of_line.items():
        clients = [run.last_clients()["accuracy"].dropna() for run in runs if run.has_clients]
        if clients:
            accuracies = np.sort(100 * pd.concat(clients).to_numpy(float))
            ranks = np.linspace(0, 100, len(accuracies) + 1)[1:]
            line = Series(
                label,
                ranks,
                accuracies[None],
                look[label],
            )
            series.append(line)
    if not series:
        return []
    several = any(len(runs) > 1 for runs in runs_of_line.values())
    seeds = " of all seeds" if several else ""
    x_label = f"rank among the clients{seeds} (%), worst first"
    return [Panel(title, series, x_label, "accuracy (%)")]


def curve_panels(
    runs: Sequence[Run],
    fields: Sequence[str],
    x: str = "round",
    by: str = "algo",
) -> list[Panel]:
    """Return the curves of runs: a panel per setting and field, with a line per value of a key.

    Unless the key is ``algo``, the labels of lines include the name of the method.

    Args:
        runs: The runs; unfinished runs are ignored.
        fields: The metrics.
        x: The horizontal axis, as for ``position``.
        by: The key: ``algo``, ``data``, ``model`` or a dotted configuration key.

    Raises:
        RequestError: If a key is unknown, or no run measured a metric.
    """
    curves = grouped(
        ((curve.setting, field), curve)
        for field in fields
        for curve in run_curves(runs, x, field, by)
    )
    every_curve = chain.from_iterable(curves.values())
    look = looks({_label(curve, by): curve.algo for curve in every_curve})
    panels = []
    for setting, field in sorted(curves, key=lambda place: place[0]):
        series = []
        for curve in curves[setting, field]:
            label = _label(curve, by)
            line = Series(
                label,
                curve.x,
                curve.y,
                look[label],
            )
            series.append(line)
        x_label, *_ = position(x)
        panel = Panel(
            setting,
            series,
            x_label=x_label,
            y_label=metric_info(field).axis,
        )
        panels.append(panel)
    return panels


def _label(curve: RunCurve, by: str) -> str:
    """Return the label of a line, which includes the method unless the key is ``algo``."""
    return curve.name if by == "algo" else f"{curve.algo} {curve.name}"


def measured_fields(runs: Iterable[Run]) -> list[str]:
    """Return the metrics in ``OWN_FIELDS`` that at least one of the runs measured."""
    known: set[str] = set()
    for run in runs:
        for name, value in run.last_round().items():
            if value is not None:
                known.add(name)
    return [name for name in OWN_FIELDS if name in known]


def run_figures(table: TableData, folder: Path) -> list[DrawnFigure]:
    """Draw the curves and clients of the runs of a table.

    If there are too many settings to draw, the figure has a note.
    """
    runs = [run for line in table.lines for run in line.matched.runs.values()]
    if not runs:
        return []
    blocks = blocks_of(runs, "algo")
    titles = {block.title for block in blocks[:_MOST_SETTINGS]}
    panels = curve_panels(runs, measured_fields(runs))
    curves = [panel for panel in panels if panel.title in titles]

    algos: dict[str, str] = {}
    for block in blocks:
        for name, members in block.lines.items():
            algos[name] = members[0].meta["algo"]
    look = looks(algos)
    clients = []
    for block in blocks[:_MOST_SETTINGS]:
        clients += client_panels(block.title, block.lines, look)

    note = ""
    if len(blocks) > _MOST_SETTINGS:
        note = f"drawn are the first {_MOST_SETTINGS} of {len(blocks)} settings"
    reduced = reduced_texts((line.name, line.matched.reduced) for line in table.lines)
    figure = DrawnFigure(
        table.name,
        table.title,
        reduced=reduced,
        note=note,
    )
    pictures: Pictures = [
        ("_curves", plots.curves, curves),
        ("_clients", plots.curves, clients),
    ]
    return drawn(figure, folder, pictures)
