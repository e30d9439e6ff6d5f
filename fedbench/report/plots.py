"""Pictures from arrays, as PNG and SVG: the same data give the same bytes.

The first argument of each drawing function is ``base``, the path of its files without ``.png`` and ``.svg``. Its named
arguments include ``title``, the title of the whole picture, and ``reduced``, whether to write "reduced setting" in the
corner. It returns the paths of the PNG and the SVG. It raises ``ValueError`` if the data are inconsistent, in which
case nothing is written.

The looks of lines come from ``fedbench.report.canvas``; the subject of a paper is drawn last, on top of the others. The
legend explains bands, bars and smoothed lines. Spread over seeds is the sample STD.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from fedbench.report.canvas import (
    SIZE,
    WIDTH,
    Figure,
    Look,
    check,
    line_look,
    lines,
    picture,
    plain_numbers,
    sheet,
    wrap,
)

RANGE = "band: lowest to highest seed"
_POINTS = 400  # most points of a curve
_BAND: dict[str, Any] = {"alpha": 0.18, "linewidth": 0, "zorder": 1.5}


@dataclass(frozen=True)
class Series:
    """One method's curve.

    Attributes:
        x: Positions [T].
        y: Values [S, T], a row per seed; NaN where missing.
        tag: Text at the end of the line, such as the value of a swept parameter.
        band: Ends [T] of the band around the mean; None for the lowest and highest value of several seeds.
    """

    label: str
    x: np.ndarray
    y: np.ndarray
    look: Look
    tag: str = ""
    band: tuple[np.ndarray, np.ndarray] | None = None


@dataclass(frozen=True)
class Panel:
    """One pair of axes; their labels name the units.

    Attributes:
        note: What is not drawn, and why; shown below the axes.
        window: Number of points whose mean a line shows, over a faint line of the points; 1 for the points themselves.
    """

    title: str
    series: Sequence[Series]
    x_label: str
    y_label: str
    note: str = ""
    window: int = 1


class Clients(NamedTuple):
    """Accuracies of the clients of all seeds of a method, in percent [N]; NaN is left out."""

    label: str
    accuracy: np.ndarray
    look: Look
    seeds: int = 1


class Spread(NamedTuple):
    """One pair of panels: the clients of every method."""

    title: str
    rows: Sequence[Clients]
    note: str = ""


class Point(NamedTuple):
    """A method in the plane of two measures, with a value per seed: x [S] and y [S]."""

    label: str
    x: np.ndarray
    y: np.ndarray
    look: Look


class Swept(NamedTuple):
    """A method in the plane of two measures over V values of a parameter: x [V, S], y [V, S]."""

    label: str
    x: np.ndarray
    y: np.ndarray
    texts: Sequence[str]
    look: Look


@picture
def curves(
    title: str, panels: Sequence[Panel], log_y: bool = False, reduced: bool = False, band_label: str = RANGE
) -> Figure:
    """Draw the mean over seeds as a line and, for several seeds, a band, by default from lowest to highest value.

    Points at which no seed has a value are left out. If there are more than 400 points, 400 of them are drawn, evenly
    spread from the first to the last. A panel with a window has the running mean of that many points as its line, and
    the points themselves as a faint line instead of a band. A logarithmic axis (``log_y``) cuts off values of 0 and
    below at its lower end. ``band_label`` explains the bands in the legend; empty for no bands.
    """
    figure, places = _frames(title, panels, reduced, _curve_notes(panels, band_label))
    for axes, panel in zip(places, panels, strict=True):
        for series in _in_order(panel.series):
            kept = _drawn_points(series.y)
            x, y, look = series.x[kept], series.y[:, kept], line_look(series.look)
            mean, every = mean_of(y, 0), _every(len(x), list(panel.series).index(series))
            axes.plot(x, smoothed(mean, panel.window), label=series.label, markevery=every, **look)
            if panel.window > 1:
                axes.plot(x, mean, color=look["color"], linewidth=0.6, alpha=0.4, zorder=1.6)
            elif len(y) > 1 and band_label:
                low, high = (
                    (np.nanmin(y, 0), np.nanmax(y, 0)) if series.band is None else (b[kept] for b in series.band)
                )
                axes.fill_between(x, low, high, color=look["color"], **_BAND)
        known = np.concatenate([s.y[np.isfinite(s.y)] for s in panel.series])
        if log_y and known.size:
            fault = f"a logarithmic axis needs values above 0; the largest is {known.max(initial=0):g}"
            check(known.max() > 0, panel.title, "", fault)
            axes.set_yscale("log")
            plain_numbers(axes.yaxis)
        if any(series.tag for series in panel.series):
            _leave_out_start(axes, panel)
            _tag_ends(axes, panel)
    return figure


@picture
def sweep(title: str, panels: Sequence[Panel], reduced: bool = False) -> Figure:
    """Draw the mean over seeds at each value of a parameter, with error bars of one STD."""
    figure, places = _frames(title, panels, reduced, _bar_notes(s.y for p in panels for s in p.series))
    for axes, panel in zip(places, panels, strict=True):
        for series in _in_order(panel.series):
            order = np.argsort(series.x, kind="stable")
            order = order[~np.isnan(series.y[:, order]).all(0)]
            x, y = series.x[order], series.y[:, order]
            axes.errorbar(x, mean_of(y, 0), _spread(y, 0), label=series.label, elinewidth=0.8, **line_look(series.look))
    return figure


@picture
def distribution(title: str, panels: Sequence[Spread], reduced: bool = False) -> Figure:
    """Draw how accuracies spread over clients: a histogram at the left, from the worst client to the best at the right.

    The clients of all seeds of a method are pooled and counted in percent, so that methods with different numbers of
    seeds can be compared.
    """
    legend = lines((row.label, row.look) for panel in panels for row in panel.rows)
    figure, places = sheet(title, reduced, 2 * len(panels), legend, columns=2, size=(WIDTH, 2.1))
    for left, right, panel in zip(places[::2], places[1::2], panels, strict=True):
        check(panel.rows, panel.title, "", "there is nothing to draw")
        pooled = " of all seeds" if max(row.seeds for row in panel.rows) > 1 else ""
        left.set(xlabel="accuracy of a client (%)", ylabel=f"clients{pooled} (%)", xlim=(0, 100))
        left.set_title(wrap(panel.title, 2 * WIDTH - 0.5, 9))
        rank = f"rank among the clients{pooled} (%), worst first"
        right.set(xlabel=_with_note(rank, panel.note), ylabel="accuracy (%)")
        for number, (label, values, look, _) in enumerate(_in_order(panel.rows)):
            check(values.ndim == 1, panel.title, label, f"values have shape {values.shape}, not [N]")
            y = np.sort(values[~np.isnan(values)])
            within = ((y > -1e-6) & (y < 100 + 1e-6)).all()
            check(within, panel.title, label, "a value is not within 0..100 percent")
            counts, edges = np.histogram(y.clip(0, 100), bins=20, range=(0, 100))
            line, ranked = line_look(look), _drawn_points(y[None])
            share = 100 * counts / max(1, len(y))
            left.stairs(share, edges, edgecolor=look.colour, linestyle=look.dashes, linewidth=1.3)
            every = _every(len(ranked), number)
            right.plot(100 * (ranked + 1) / max(1, len(y)), y[ranked], label=label, markevery=every, **line)
    return figure


@picture
def front(
    title: str, points: Sequence[Point], connected: Sequence[Swept], x_label: str, y_label: str, reduced: bool = False
) -> Figure:
    """Draw methods in the plane of two measures: means over seeds, with error bars of one STD.

    Each of ``connected`` is a method with a swept parameter, whose values are written at its points.
    """
    legend = lines(((row.label, row.look) for row in points), linestyle="none", markersize=6)
    legend += lines((row.label, row.look) for row in connected)
    legend += _bar_notes([*(np.atleast_2d(row.y).T for row in points), *(np.atleast_2d(row.y).T for row in connected)])
    figure, (axes,) = sheet(title, reduced, 1, legend, size=(2 * WIDTH, 3.4))
    axes.set(xlabel=wrap(x_label, 5), ylabel=wrap(y_label, 3))
    for label, x, y, own in points:
        fits = x.ndim == 1 and x.size > 0 and x.shape == y.shape
        check(fits, title, label, f"x has shape {x.shape} and y {y.shape}, not [S] both")
        look = {**line_look(own), "elinewidth": 0.8, "linestyle": "none", "markersize": 6}
        axes.errorbar(mean_of(x, 0), mean_of(y, 0), _spread(y, 0), _spread(x, 0), label=label, **look)
    for label, x, y, texts, own in connected:
        fits = x.ndim == 2 and x.size > 0 and x.shape == y.shape and len(texts) == len(x)
        check(fits, title, label, f"x has shape {x.shape}, y {y.shape}, not [V, S] both for V = {len(texts)} values")
        at, look = (mean_of(x, 1), mean_of(y, 1)), line_look(own)
        axes.errorbar(*at, _spread(y, 1), _spread(x, 1), label=label, elinewidth=0.8, **look)
        for text, *place in zip(texts, *at, strict=True):
            axes.annotate(text, place, (4, 4), textcoords="offset points", color=look["color"])
    return figure


def smoothed(y: np.ndarray, window: int) -> np.ndarray:
    """Return the running mean of y [T] over ``window`` points, fewer at the ends."""
    return y if window < 2 else np.asarray(pd.Series(y).rolling(window, center=True, min_periods=1).mean())


def _frames(title: str, panels: Sequence[Panel], reduced: bool, notes: Sequence[Any]) -> tuple[Figure, list[Any]]:
    """Return a figure and its axes, a panel each, with everything but the data; ``notes`` end the legend."""
    for panel in panels:
        check(panel.series, panel.title, "", "there is nothing to draw")
        for s in panel.series:
            fits = s.x.ndim == 1 and s.y.ndim == 2 and s.y.size > 0 and s.y.shape[1:] == s.x.shape
            check(fits, panel.title, s.label, f"x has shape {s.x.shape} and y {s.y.shape}, not [T] and [S, T]")
            check(np.isfinite(s.x).all(), panel.title, s.label, "a value of x is not finite")
    legend = [*lines((s.label, s.look) for p in panels for s in p.series), *notes]
    columns = len({p.y_label for p in panels})  # the panels of one setting are in one row
    figure, places = sheet(title, reduced, len(panels), legend, columns if columns in (2, 3) else 0)
    for axes, panel in zip(places, panels, strict=True):
        axes.set(xlabel=_with_note(panel.x_label, panel.note), ylabel=wrap(panel.y_label, 1.9))
        axes.set_title(wrap(panel.title, WIDTH - 0.8, 9))
    return figure, places


def _with_note(label: str, note: str) -> str:
    """Return the label of an axis, with a note below it if there is one."""
    return "\n".join(wrap(text, WIDTH - 0.8) for text in (label, note) if text)


def _curve_notes(panels: Sequence[Panel], band_label: str) -> list[Any]:
    """Return the entries of the legend that explain bands and smoothed lines, if there are any."""
    notes: list[Any] = []
    if band_label and any(len(s.y) > 1 for p in panels if p.window == 1 for s in p.series):
        notes.append(Patch(facecolor="0.5", alpha=0.3, label=band_label))
    for window in sorted({p.window for p in panels if p.window > 1}):
        text = f"line: mean of {window} evaluations; faint: each"
        notes.append(Line2D([], [], color="0.4", linewidth=0.6, alpha=0.6, label=text))
    return notes


def _bar_notes(values: Iterable[np.ndarray]) -> list[Any]:
    """Return the entry of the legend that explains error bars, if any of the values [S, ...] has several seeds."""
    if not any(len(y) > 1 for y in values):
        return []
    return [Line2D([], [], color="0.4", linestyle="none", marker="|", markersize=9, label="bars: ± 1 STD over seeds")]


def _leave_out_start(axes: Any, panel: Panel) -> None:
    """Limit the axis to the values after the first tenth of the rounds, whose range would hide the differences."""
    late = [s.y[:, s.x >= s.x.min() + 0.1 * np.ptp(s.x)] for s in panel.series]
    known = np.concatenate([y[np.isfinite(y)] for y in late])
    if known.size and (room := 0.05 * float(np.ptp(known))):
        axes.set_ylim(known.min() - room, known.max() + room)


def _tag_ends(axes: Any, panel: Panel) -> None:
    """Write the tags of lines at their right ends, moved apart where they would overlap."""
    ends = [(float(mean_of(s.y, 0)[_drawn_points(s.y)[-1]]), s) for s in panel.series]
    low, high = axes.get_ylim()
    gap = 9 / 72 / (SIZE[1] - 0.9)  # of the height of the axes: a line of text
    places, at = [], -1.0
    for y, series in sorted(ends, key=lambda end: end[0]):
        at = max(at + gap, (y - low) / (high - low))
        places.append((at, (y - low) / (high - low), series))
    lower = max(0.0, at - 1)  # the highest stays within the axes
    for place, end, series in places:
        spot, colour = place - lower, series.look.colour
        axes.plot((1.0, 1.04), (end, spot), transform=axes.transAxes, color=colour, linewidth=0.5, clip_on=False)
        axes.text(1.05, spot, series.tag, transform=axes.transAxes, color=colour, va="center")


def _in_order(rows: Sequence[Any]) -> list[Any]:
    """Return what is drawn, with the subject of the paper last, hence on top."""
    return sorted(rows, key=lambda row: row.look.subject)


def _every(points: int, index: int) -> tuple[int, int]:
    """Return the first index and the step of a curve's markers, about eight, at other places for each ``index``."""
    step = max(1, round(points / 8))
    return index * step // 3 % step, step


def _drawn_points(y: np.ndarray) -> np.ndarray:
    """Return the indices of the points of y [S, T] to draw: points with a value, at most 400."""
    known = np.flatnonzero(~np.isnan(y).all(0))
    return np.asarray(known[np.linspace(0, len(known) - 1, min(len(known), _POINTS)).round().astype(int)])


def mean_of(y: np.ndarray, axis: Literal[0, 1]) -> np.ndarray:
    """Return the mean of the known values."""
    return np.asarray(pd.DataFrame(y).mean(axis=axis))


def _spread(y: np.ndarray, axis: Literal[0, 1]) -> np.ndarray:
    """Return the sample STD of the known values; NaN for fewer than two values and for infinite values."""
    with np.errstate(invalid="ignore"):
        return np.asarray(pd.DataFrame(y).std(axis=axis))
