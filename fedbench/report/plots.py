"""Pictures from arrays, as PNG and SVG: the same data give the same bytes.

The first argument of each drawing function is ``base``, the path of its files without ``.png`` and ``.svg``. Its named
arguments include ``title``, the title of the whole picture, and ``reduced``, whether to write "reduced setting" in the
corner. It returns the paths of the PNG and the SVG. It raises ``RequestError`` if matplotlib is not installed and
``ValueError`` if the data are inconsistent, in which case nothing is written.

A panel is 3.3 inches wide in print, with no text smaller than 8 pt (the unit of font sizes). Colours are those of Okabe
and Ito, which colour-blind readers can distinguish; lines also differ in dashes and markers. An index always gives the
same look, independently of the rest of the picture. Spread over seeds is the sample STD.
"""

from __future__ import annotations

import io
import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, Concatenate, Literal, ParamSpec

import numpy as np
import pandas as pd

from fedbench.core.errors import RequestError

# The three lengths share no factor, which gives 252 different looks. Yellow is too faint for a line.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_DASHES = ("solid", (0, (5, 1.5)), (0, (1.2, 1.2)), (0, (6, 1.5, 1.2, 1.5)))
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">")
_FILLS = (*_COLOURS, "#F0E442", "#777777", "#DDDDDD")  # colours of classes

_WIDTH = 3.3  # width of a panel, inches
_SIZE = (_WIDTH, 2.4)
_POINTS = 400  # most points of a curve
_CLIENTS = 60  # most clients in a picture of labels
_CELLS = 12  # most rows of a matrix whose values are written out
_SIZES = ("font.size", "axes.labelsize", "xtick.labelsize", "ytick.labelsize", "legend.fontsize")
_STYLE: dict[Any, Any] = {
    **dict.fromkeys((*_SIZES, "legend.title_fontsize"), 8),
    **{"axes.titlesize": 9, "axes.titlelocation": "left", "figure.titlesize": 10},
    **{"axes.spines.top": False, "axes.spines.right": False, "axes.linewidth": 0.6},
    **{"axes.grid": True, "axes.axisbelow": True, "grid.color": "0.9", "grid.linewidth": 0.5},
    **{"legend.frameon": False, "legend.handlelength": 2.8},
    **{"lines.linewidth": 1.3, "lines.markersize": 3.5, "errorbar.capsize": 2},
    **{"svg.fonttype": "none", "svg.hashsalt": "fedbench"},
}
_BAND: dict[str, Any] = {"alpha": 0.18, "linewidth": 0, "zorder": 1.5}
_EDGE: dict[str, Any] = {"edgecolor": "0.3", "linewidth": 0.2}

_P = ParamSpec("_P")
Figure = Any  # matplotlib's Figure: its annotations differ between the supported versions
Values = tuple[str, np.ndarray, int]  # label, percent [N], index
Point = tuple[str, np.ndarray, np.ndarray, int]  # label, x [S], y [S], index
# label, x [V, S], y [V, S], V values of the parameter as text, index
Swept = tuple[str, np.ndarray, np.ndarray, Sequence[str], int]


@dataclass(frozen=True)
class Series:
    """One method's curve: x [T], and y [S, T] with a row per seed and NaN where missing."""

    label: str
    x: np.ndarray
    y: np.ndarray
    index: int


@dataclass(frozen=True)
class Panel:
    """One pair of axes; their labels name the units."""

    title: str
    series: Sequence[Series]
    x_label: str
    y_label: str


def _picture(draw: Callable[_P, Figure]) -> Callable[Concatenate[Path, _P], list[Path]]:
    """Wrap a drawing function so that it writes its files in this module's style, whatever the user's settings."""

    @wraps(draw)
    def written(base: Path, /, *args: _P.args, **kwargs: _P.kwargs) -> list[Path]:
        try:
            import matplotlib
        except ModuleNotFoundError as error:
            raise RequestError("pictures need matplotlib; run: pip install matplotlib") from error
        files = {}
        with matplotlib.rc_context({**matplotlib.rcParamsDefault, **_STYLE}):
            figure = draw(*args, **kwargs)
            for kind, unnamed in (("png", ["Software"]), ("svg", ["Date", "Creator"])):
                buffer = io.BytesIO()
                figure.savefig(buffer, format=kind, dpi=150, metadata=dict.fromkeys(unnamed))
                files[base.with_name(f"{base.name}.{kind}")] = buffer.getvalue()
        base.parent.mkdir(parents=True, exist_ok=True)
        for path, content in files.items():
            path.write_bytes(content)
        return list(files)

    return written


@_picture
def curves(title: str, panels: Sequence[Panel], log_y: bool = False, reduced: bool = False) -> Figure:
    """Draw the mean over seeds as a line and, for several seeds, a band from the lowest to the highest value.

    Points at which no seed has a value are left out. If there are more than 400 points, 400 of them are drawn, evenly
    spread from the first to the last. A logarithmic axis (``log_y``) cuts off values of 0 and below at its lower end.
    """
    figure, places = _frames(title, panels, reduced)
    for axes, panel in zip(places, panels, strict=True):
        for series in panel.series:
            kept = _drawn_points(series.y)
            x, y, look = series.x[kept], series.y[:, kept], _look(series.index)
            axes.plot(x, _mean(y, 0), label=series.label, markevery=_every(len(x), series.index), **look)
            if len(y) > 1:
                axes.fill_between(x, np.nanmin(y, 0), np.nanmax(y, 0), color=look["color"], **_BAND)
        known = np.concatenate([s.y[np.isfinite(s.y)] for s in panel.series])
        if log_y and known.size:
            _check(
                known.max() > 0,
                panel.title,
                "",
                f"a logarithmic axis needs values above 0; the largest is {known.max():g}",
            )
            axes.set_yscale("log")
            _plain_numbers(axes.yaxis)
    return figure


@_picture
def sweep(title: str, panels: Sequence[Panel], reduced: bool = False) -> Figure:
    """Draw the mean over seeds at each value of a parameter, with error bars of one STD."""
    figure, places = _frames(title, panels, reduced)
    for axes, panel in zip(places, panels, strict=True):
        for series in panel.series:
            order = np.argsort(series.x, kind="stable")
            order = order[~np.isnan(series.y[:, order]).all(0)]
            x, y = series.x[order], series.y[:, order]
            axes.errorbar(x, _mean(y, 0), _spread(y, 0), label=series.label, elinewidth=0.8, **_look(series.index))
    return figure


@_picture
def distribution(title: str, panels: Sequence[tuple[str, Sequence[Values]]], reduced: bool = False) -> Figure:
    """Draw how accuracies spread over clients: a histogram at the left, from the worst client to the best at the right.

    A panel consists of its title and (label, values in percent [N], index) per method; NaN is left out.
    """
    legend = _lines((label, index) for _, rows in panels for label, _, index in rows)
    figure, places = _sheet(title, reduced, 2 * len(panels), legend, columns=2, size=(_WIDTH, 2.1))
    for left, right, (name, rows) in zip(places[::2], places[1::2], panels, strict=True):
        left.set(xlabel="accuracy of a client (%)", ylabel="clients", xlim=(0, 100))
        left.set_title(_wrap(name, 2 * _WIDTH - 0.5, 9))
        right.set(xlabel="rank of the client, worst first", ylabel="accuracy (%)")
        _integer_ticks(left.yaxis, right.xaxis)
        _check(rows, name, "", "there is nothing to draw")
        for label, values, index in rows:
            _check(values.ndim == 1, name, label, f"values have shape {values.shape}, not [N]")
            y = np.sort(values[~np.isnan(values)])
            _check(((y > -1e-6) & (y < 100 + 1e-6)).all(), name, label, "a value is not within 0..100 percent")
            counts, edges = np.histogram(y.clip(0, 100), bins=20, range=(0, 100))
            look, ranked = _look(index), _drawn_points(y[None])
            left.stairs(counts, edges, edgecolor=look["color"], linestyle=look["linestyle"], linewidth=1.3)
            right.plot(ranked + 1, y[ranked], label=label, markevery=_every(len(ranked), index), **look)
    return figure


@_picture
def front(
    title: str, points: Sequence[Point], connected: Sequence[Swept], x_label: str, y_label: str, reduced: bool = False
) -> Figure:
    """Draw methods in the plane of two measures: means over seeds, with error bars of one STD.

    Each of ``connected`` is a method with a swept parameter, whose values are written at its points.
    """
    legend = _lines(((row[0], row[3]) for row in points), linestyle="none", markersize=6)
    legend += _lines((row[0], row[4]) for row in connected)
    figure, (axes,) = _sheet(title, reduced, 1, legend, size=(2 * _WIDTH, 3.4))
    axes.set(xlabel=_wrap(x_label, 5), ylabel=_wrap(y_label, 3))
    for label, x, y, index in points:
        fits = x.ndim == 1 and x.size > 0 and x.shape == y.shape
        _check(fits, title, label, f"x has shape {x.shape} and y {y.shape}, not [S] both")
        look = {**_look(index), "elinewidth": 0.8, "linestyle": "none", "markersize": 6}
        axes.errorbar(_mean(x, 0), _mean(y, 0), _spread(y, 0), _spread(x, 0), label=label, **look)
    for label, x, y, texts, index in connected:
        fits = x.ndim == 2 and x.size > 0 and x.shape == y.shape and len(texts) == len(x)
        _check(fits, title, label, f"x has shape {x.shape}, y {y.shape}, not [V, S] both for V = {len(texts)} values")
        at, look = (_mean(x, 1), _mean(y, 1)), _look(index)
        axes.errorbar(*at, _spread(y, 1), _spread(x, 1), label=label, elinewidth=0.8, **look)
        for text, *place in zip(texts, *at, strict=True):
            axes.annotate(text, place, (4, 4), textcoords="offset points", color=look["color"])
    return figure


@_picture
def bars(title: str, panels: Sequence[tuple[str, np.ndarray]], reduced: bool = False) -> Figure:
    """Draw the labels of each client: stacked counts for up to 10 classes, shares by colour for more.

    A panel consists of its title and the number of examples per client and class, [clients, classes]. If there are more
    than 60 clients, the 60 with the most examples are drawn, in the order of their numbers, and the axis says so.
    """
    from matplotlib.colors import PowerNorm
    from matplotlib.patches import Patch

    for name, counts in panels:
        fits = counts.ndim == 2 and counts.size > 0 and (np.isfinite(counts) & (counts >= 0)).all()
        _check(fits, name, "", f"counts of shape {counts.shape} are not [clients, classes] of numbers from 0 up")
    most = max((c.shape[1] for _, c in panels if c.shape[1] <= len(_FILLS)), default=0)
    legend = [Patch(facecolor=fill, label=str(k), **_EDGE) for k, fill in enumerate(_FILLS[:most])]
    figure, places = _sheet(title, reduced, len(panels), legend, size=(_WIDTH, 2.6))
    for box in figure.legends:
        box.set_title("class")
    norm = PowerNorm(0.5, 0, 1)  # 62 even classes have shares of .016, which must be visible
    shaded = []
    for axes, (name, counts) in zip(places, panels, strict=True):
        drawn = np.sort(np.argsort(-counts.sum(1), kind="stable")[:_CLIENTS])
        shown, at = counts[drawn], np.arange(len(drawn))
        axes.set(xlabel="client" + f" (the {len(at)} largest of {len(counts)})" * (len(at) < len(counts)))
        axes.set_title(_wrap(name, _WIDTH - 0.5, 9))
        if counts.shape[1] <= most:
            axes.set_ylabel("examples")
            axes.grid(False, axis="x")
            for k, part in enumerate(shown.T):
                axes.bar(at, part, 0.9, shown[:, :k].sum(1), color=_FILLS[k], **_EDGE)
            axes.set_ylim(0)
        else:
            axes.set_ylabel("class")
            axes.grid(False)
            share = shown / np.maximum(shown.sum(1, keepdims=True), 1)
            axes.imshow(share.T, aspect="auto", interpolation="nearest", origin="lower", norm=norm)
            _integer_ticks(axes.yaxis)
            shaded.append(axes)
        ticks = at[:: next(step for step in (1, 2, 5, 10) if len(at) <= 8 * step)]
        axes.set_xticks(ticks, labels=[str(k) for k in drawn[ticks]])
    if shaded:
        figure.colorbar(shaded[0].images[0], ax=shaded, label="share of examples")
    return figure


@_picture
def matrix(title: str, panels: Sequence[tuple[str, np.ndarray]], reduced: bool = False) -> Figure:
    """Draw square matrices by colour on the scale 0..1; matrices of up to 12 rows show their values as text.

    A panel consists of its title and its values [N, N]; NaN is grey.
    """
    import matplotlib

    colours = matplotlib.colormaps["viridis"].with_extremes(bad="0.8")
    figure, places = _sheet(title, reduced, len(panels), [], size=(_WIDTH + 0.2, 3.2))  # with room for the colour bar
    for axes, (name, values) in zip(places, panels, strict=True):
        square = values.ndim == 2 and values.shape[0] == values.shape[1] > 0
        _check(square, name, "", f"values have shape {values.shape}, not [N, N]")
        image = axes.imshow(values, cmap=colours, vmin=0, vmax=1, interpolation="nearest")
        axes.set_title(_wrap(name, _WIDTH - 0.5, 9))
        axes.grid(False)
        _integer_ticks(axes.xaxis, axes.yaxis)
        for (i, j), value in np.ndenumerate(values if len(values) <= _CELLS else values[:0]):
            light = np.dot(colours(image.norm(value))[:3], (0.299, 0.587, 0.114)) > 0.5
            axes.text(j, i, _short(value), ha="center", va="center", color="black" if light else "white")
    low, high = (any(beyond(v, end).any() for _, v in panels) for beyond, end in ((np.less, 0), (np.greater, 1)))
    figure.colorbar(image, ax=places, extend=("neither", "min", "max", "both")[low + 2 * high])
    return figure


def _short(value: float) -> str:
    """Return a number as text that is short enough for twelve in a row."""
    digits = 2 if abs(value) < 0.995 else 1 if abs(value) < 9.95 else 0
    return "–" if np.isnan(value) else f"{value:.{digits}f}".replace("0.", ".", 1)


def _check(fits: object, name: str, label: str, fault: str) -> None:
    if not fits:
        raise ValueError(f"{name!r}{f', {label!r}' if label else ''}: {fault}")


def _frames(title: str, panels: Sequence[Panel], reduced: bool) -> tuple[Figure, list[Any]]:
    """Return a figure and its axes, a panel each, with everything but the data."""
    for panel in panels:
        _check(panel.series, panel.title, "", "there is nothing to draw")
        for s in panel.series:
            fits = s.x.ndim == 1 and s.y.ndim == 2 and s.y.size > 0 and s.y.shape[1:] == s.x.shape
            _check(fits, panel.title, s.label, f"x has shape {s.x.shape} and y {s.y.shape}, not [T] and [S, T]")
            _check(np.isfinite(s.x).all(), panel.title, s.label, "a value of x is not finite")
    legend = _lines((s.label, s.index) for p in panels for s in p.series)
    columns = len({p.y_label for p in panels})  # the panels of one setting are in one row
    figure, places = _sheet(title, reduced, len(panels), legend, columns if columns in (2, 3) else 0)
    for axes, panel in zip(places, panels, strict=True):
        axes.set(xlabel=_wrap(panel.x_label, _WIDTH - 0.8), ylabel=_wrap(panel.y_label, 1.9))
        axes.set_title(_wrap(panel.title, _WIDTH - 0.8, 9))
    return figure, places


def _sheet(
    title: str, reduced: bool, number: int, legend: Sequence[Any], columns: int = 0, size: Sequence[float] = _SIZE
) -> tuple[Figure, list[Any]]:
    """Return a figure and its ``number`` axes of ``size`` in inches, with the title above and the legend below."""
    from matplotlib.figure import Figure

    _check(number, title, "", "there is nothing to draw")
    columns = columns or (2 if number == 4 else min(3, number))
    rows, width = -(-number // columns), columns * size[0]
    above = _wrap(title, width - 0.2 - reduced, 10) or " "  # a blank reserves the row of the label
    for handle in legend:
        handle.set_label(_wrap(handle.get_label(), width - 0.7))
    longest = max((len(line) for handle in legend for line in handle.get_label().split("\n")), default=0)
    below = -(-len(legend) // max(1, int(72 * width / (8 * (0.6 * longest + 6)))))  # rows of the legend
    height = rows * size[1] + 0.2 * (above.count("\n") + 1) + 0.17 * below
    figure = Figure(figsize=(width, height), layout="constrained")
    places = list(figure.subplots(rows, columns, squeeze=False).flat)
    for spare in places[number:]:
        spare.remove()
    figure.suptitle(above, x=0.05 / width, ha="left")
    if reduced:
        figure.text(1 - 0.05 / width, 1 - 0.05 / height, "reduced setting", ha="right", va="top", style="italic")
    if legend:
        figure.legend(handles=legend, loc="outside lower center", ncols=-(-len(legend) // below))
    return figure, places[:number]


def _lines(entries: Iterable[tuple[str, int]], **other: Any) -> list[Any]:
    """Return the legend's lines, each once."""
    from matplotlib.lines import Line2D

    return [Line2D([], [], label=label, **{**_look(index), **other}) for label, index in dict.fromkeys(entries)]


def _look(index: int) -> dict[str, Any]:
    kinds: dict[str, tuple[Any, ...]] = {"color": _COLOURS, "linestyle": _DASHES, "marker": _MARKERS}
    return {name: known[index % len(known)] for name, known in kinds.items()}


def _every(points: int, index: int) -> tuple[int, int]:
    """Return the first index and the step of a curve's markers, about eight, at different places for each curve."""
    step = max(1, round(points / 8))
    return index * step // 3 % step, step


def _drawn_points(y: np.ndarray) -> np.ndarray:
    """Return the indices of the points of y [S, T] to draw: points with a value, at most 400."""
    known = np.flatnonzero(~np.isnan(y).all(0))
    return np.asarray(known[np.linspace(0, len(known) - 1, min(len(known), _POINTS)).round().astype(int)])


def _mean(y: np.ndarray, axis: Literal[0, 1]) -> np.ndarray:
    """Return the mean of the known values."""
    return np.asarray(pd.DataFrame(y).mean(axis=axis))


def _spread(y: np.ndarray, axis: Literal[0, 1]) -> np.ndarray:
    """Return the sample STD of the known values; NaN for fewer than two values and for infinite values."""
    with np.errstate(invalid="ignore"):
        return np.asarray(pd.DataFrame(y).std(axis=axis))


def _wrap(text: str, inches: float, size: float = 8) -> str:
    return textwrap.fill(text, max(8, int(72 * inches / (0.58 * size))), break_on_hyphens=False)


def _integer_ticks(*axes: Any) -> None:
    """Put ticks only at integers."""
    for axis in axes:
        axis.get_major_locator().set_params(integer=True)


def _plain_numbers(axis: Any) -> None:
    """Label a logarithmic axis with plain numbers, since small exponents are illegible; a short axis has more ticks."""
    from matplotlib.ticker import AutoLocator, FuncFormatter, LogLocator, NullFormatter

    low, high = axis.get_view_interval()
    if low > 0 and high < 30 * low:
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)) if high > 4 * low else AutoLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())
