"""The curves and clients of runs that belong to no paper."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fedbench.analysis.departures import departure_texts
from fedbench.analysis.run_curves import POSITIONS, RunCurve
from fedbench.analysis.settings import keys_text
from fedbench.analysis.table import Line, TableData
from fedbench.core.errors import RequestError
from fedbench.core.metrics import metric_info
from fedbench.report import alt_text, plots
from fedbench.report.canvas import Look, looks
from fedbench.report.figures import Looks, Picture, accuracies_of, drawn_figure, series_of
from fedbench.report.paper import DrawnFigure
from fedbench.report.plots import Clients, Panel, Series, Spread

BANDS = {"t": "band: 95 % t interval over seeds", "range": plots.RANGE, "none": ""}
_FIELDS = ("train_loss", "accuracy_mean", "accuracy_worst30")
_MOST_LINES, _MOST_PANELS = 24, 12  # more cannot be told apart


def run_figures(table: TableData, folder: Path) -> list[DrawnFigure]:
    """Draw the curves and clients of the runs of a table; settings of different lengths have separate panels.

    Of many settings, only the first ones of the table are drawn, which a note says.
    """
    shown = table.lines[:_MOST_LINES]
    note = f"drawn are the first {_MOST_LINES} of {len(table.lines)} settings" if shown != table.lines else ""
    reduced = tuple(f"{_label(x)}: {', '.join(departure_texts(x.found.reduced))}" for x in shown if x.found.reduced)
    panels, clients = [p for field in _FIELDS for p in curve_panels(table, field)], _client_panels(shown)
    pictures = [
        Picture("_curves", plots.curves, panels, alt_text.of_curves(panels)),
        Picture("_clients", plots.distribution, clients, alt_text.of_clients(clients)),
    ]
    drawn = []
    for picture in pictures:
        if picture.panels:
            base = folder / f"{table.name.replace('/', '_')}{picture.part}"
            figure = DrawnFigure(base.name, table.name, reduced=reduced, note=note)
            drawn.append(drawn_figure(figure, picture, base, table.name))
    return drawn


def curve_panels(table: TableData, field: str) -> list[Panel]:
    """Return the panels of a field for the runs of a table, one per number of rounds; of many settings, the first."""
    lines, panels = table.lines[:_MOST_LINES], []
    look = _looks(lines)
    for title, members in _by_length(lines).items():
        found = [_series(line, field, look[line.algo, _label(line)]) for line in members]
        if series := [s for s in found if s is not None]:
            panels.append(Panel(title, series, "round", metric_info(field).axis))
    return panels


def _client_panels(lines: Sequence[Line]) -> list[Spread]:
    look, panels = _looks(lines), []
    for title, members in _by_length(lines).items():
        rows = []
        for line in members:
            runs = [run for run in line.found.runs.values() if run.has_clients]
            if runs:
                rows.append(Clients(_label(line), accuracies_of(runs), look[line.algo, _label(line)], len(runs)))
        if rows:
            panels.append(Spread(f"clients, {title}" if title else "clients", rows))
    return panels


def _looks(lines: Sequence[Line]) -> Looks:
    return looks([(line.algo, _label(line)) for line in lines])


def _label(line: Line) -> str:
    return f"{line.label} {keys_text(line.keys)}".rstrip()


def _by_length(lines: Sequence[Line]) -> dict[str, list[Line]]:
    """Return lines by the title of their panel: the rounds of their configuration, empty if these are the same."""
    found: dict[int, list[Line]] = {}
    for line in lines:
        rounds = max(int(run.config["rounds"]) for run in line.found.runs.values())
        found.setdefault(rounds, []).append(line)
    return {f"{n} rounds" if len(found) > 1 else "": found[n] for n in sorted(found)}


def _series(line: Line, field: str, look: Look) -> Series | None:
    """Return the curves of a setting; if its seeds end in different rounds, the label lists these."""
    curves = line.found.curve(field)
    if not curves:
        return None
    ends = sorted({int(curve.index[-1]) for curve in curves.values()})
    label = _label(line) + (f" (seeds end at rounds {', '.join(map(str, ends))})" if len(ends) > 1 else "")
    return series_of(label, curves.values(), field, look)


def draw_curves(
    file: Path, curves: Sequence[RunCurve], x: str, y: str, band: str = "t", log_y: bool = False
) -> list[Path]:
    """Draw the mean over seeds of every curve, a panel per setting, and return the files.

    Args:
        file: The file, which ends in .pdf, .png or .svg.
        curves: The curves.
        x: One of ``POSITIONS``.
        y: The metric.
        band: One of ``BANDS``: what is drawn around a mean over several seeds.
        log_y: Whether the axis of the metric is logarithmic.

    Raises:
        RequestError: If there are too many settings or lines, or none of the values of a logarithmic axis is above 0.
        NotWritten: If the file cannot be written.
    """
    by_setting: dict[str, list[RunCurve]] = {}
    for curve in curves:
        by_setting.setdefault(curve.setting, []).append(curve)
    most = max(map(len, by_setting.values()))
    if len(by_setting) > _MOST_PANELS or most > _MOST_LINES:
        raise RequestError(
            f"{len(by_setting)} settings with up to {most} lines each are too many to tell apart (at most "
            f"{_MOST_PANELS} and {_MOST_LINES}); choose some with --where KEY=VALUE, such as "
            f"--where data={curves[0].setting.split()[0]}"
        )
    if log_y and not any((curve.y > 0).any() for curve in curves):
        raise RequestError(f"--log needs values above 0, and {y} has none")
    look, several = looks([(c.algo, c.name) for c in curves]), len(by_setting) > 1
    panels = [
        Panel(
            setting if several else "",
            [Series(c.name, c.x, c.y, look[c.algo, c.name], band=_band(c, band)) for c in members],
            POSITIONS[x][0],
            metric_info(y).axis,
        )
        for setting, members in by_setting.items()
    ]
    return plots.curves(file, "" if several else curves[0].setting, panels, log_y=log_y, band_label=BANDS[band])


def _band(curve: RunCurve, band: str) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the ends of the band around a mean; None for a single seed."""
    if band == "none" or len(curve.y) < 2:
        return None
    return curve.t_interval() if band == "t" else (np.nanmin(curve.y, 0), np.nanmax(curve.y, 0))
