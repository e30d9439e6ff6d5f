"""Pictures from arrays. ``fedbench.reports.canvas.draw`` writes them; the same data give the same bytes.

The looks of lines come from ``fedbench.reports.canvas``; the subject of a paper is drawn last, on top of the others.
The legend explains bands and bars. Spread over seeds is the sample STD. ``reduced`` writes "reduced setting" in the
corner.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.colors import PowerNorm
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from fedbench.reports.canvas import SIZE, WIDTH, Figure, Look, draw, legend_lines, plain_numbers, sheet, wrap

_RANGE = "band: lowest to highest seed"
_POINTS = 400  # most points of a curve


@dataclass(frozen=True)
class Series:
    """A line, or points in the plane of two measures.

    Attributes:
        x: Positions [T]; [S, T] for points whose position has a spread over seeds.
        y: Values [S, T], a row per seed; NaN where missing.
        texts: What is written at the points; empty for nothing.
    """

    label: str
    x: np.ndarray
    y: np.ndarray
    look: Look
    texts: tuple[str, ...] = ()


@dataclass(frozen=True)
class Panel:
    """One pair of axes; their labels name the units.

    Attributes:
        steps: Whether lines are the steps of a histogram.
    """

    title: str
    series: Sequence[Series]
    x_label: str
    y_label: str
    steps: bool = False


@dataclass(frozen=True)
class Image:
    """A matrix [rows, columns] by colour; NaN is grey.

    Attributes:
        scale: What the colours are.
    """

    title: str
    values: np.ndarray
    x_label: str
    y_label: str
    scale: str


def curves(title: str, panels: Sequence[Panel], log_y: bool = False, reduced: bool = False) -> Figure:
    """Draw the mean over seeds as a line and, for several seeds, a band from lowest to highest value.

    Points at which no seed has a value are left out. If there are more than 400 points, 400 of them are drawn, evenly
    spread from the first to the last. A logarithmic axis (``log_y``) cuts off values of 0 and below at its lower end.
    """
    notes: list[Any] = []
    if any(len(s.y) > 1 for p in panels for s in p.series):
        notes.append(Patch(facecolor="0.5", alpha=0.3, label=_RANGE))
    figure, places = _frames(title, panels, reduced, notes)
    for axes, panel in zip(places, panels, strict=True):
        for number, series in _in_order(panel.series):
            known = np.flatnonzero(~np.isnan(series.y).all(0))
            kept = known[np.linspace(0, len(known) - 1, min(len(known), _POINTS)).round().astype(int)]
            x, y, colour = series.x[kept], series.y[:, kept], series.look.colour
            look = {**series.look.line, "drawstyle": "steps-post", "marker": ""} if panel.steps else series.look.line
            every = max(1, round(len(x) / 8))
            axes.plot(x, mean_of(y), label=series.label, markevery=(number * every // 3 % every, every), **look)
            if len(y) > 1:
                axes.fill_between(
                    x, np.nanmin(y, 0), np.nanmax(y, 0), color=colour, alpha=0.18, linewidth=0, zorder=1.5
                )
        if log_y and any((series.y > 0).any() for series in panel.series):
            axes.set_yscale("log")
            plain_numbers(axes.yaxis)
    return figure


def means(title: str, panels: Sequence[Panel], reduced: bool = False) -> Figure:
    """Draw means over seeds with error bars of one STD: over a parameter, or in the plane of two measures."""
    notes: list[Any] = []
    if any(len(s.y) > 1 for p in panels for s in p.series):
        text = "bars: ± 1 STD over seeds"
        notes.append(Line2D([], [], color="0.4", linestyle="none", marker="|", markersize=9, label=text))
    plane = any(s.x.ndim == 2 for p in panels for s in p.series)
    figure, places = _frames(title, panels, reduced, notes, (2 * WIDTH, 3.4) if plane else SIZE)
    for axes, panel in zip(places, panels, strict=True):
        for _, series in _in_order(panel.series):
            kept = ~np.isnan(series.y).all(0)
            y, x = series.y[:, kept], np.atleast_2d(series.x)[:, kept]
            at, spread = (mean_of(x), mean_of(y)), {"yerr": _spread(y), "xerr": _spread(x)}
            axes.errorbar(*at, **spread, label=series.label, elinewidth=0.8, **series.look.line)
            for text, *place in zip(series.texts, *at, strict=False):
                axes.annotate(text, place, (4, 4), textcoords="offset points", color=series.look.colour)
    return figure


def images(title: str, panels: Sequence[Image], reduced: bool = False) -> Figure:
    """Draw matrices by colour on one scale, from 0 to 1 or to the highest value above 1."""
    colours = matplotlib.colormaps["viridis"].with_extremes(bad="0.8")
    highest = max(1.0, *(float(np.nanmax(panel.values, initial=0.0)) for panel in panels))
    norm = PowerNorm(0.5 if highest > 2 else 1.0, 0, highest)  # few examples are visible next to thousands
    figure, places = sheet(title, reduced, len(panels), [], size=(WIDTH + 0.2, 3.0))  # with room for the colour bar
    for axes, panel in zip(places, panels, strict=True):
        image = axes.imshow(panel.values, cmap=colours, norm=norm, aspect="auto", interpolation="nearest")
        axes.set(xlabel=panel.x_label, ylabel=panel.y_label)
        axes.set_title(wrap(panel.title, WIDTH - 0.5, 9))
        axes.grid(False)
        for axis in (axes.xaxis, axes.yaxis):
            axis.get_major_locator().set_params(integer=True)
    figure.colorbar(image, ax=places, label=panels[0].scale)
    return figure


def _frames(
    title: str, panels: Sequence[Panel], reduced: bool, notes: Sequence[Any], size: tuple[float, float] = SIZE
) -> tuple[Figure, list[Any]]:
    """Return a figure and its axes, a panel each, with everything but the data; ``notes`` end the legend."""
    legend = [*legend_lines((s.label, s.look) for p in panels for s in p.series), *notes]
    columns = len({p.y_label for p in panels})  # the panels of one setting are in one row
    figure, places = sheet(title, reduced, len(panels), legend, columns if columns in (2, 3) else 0, size)
    for axes, panel in zip(places, panels, strict=True):
        axes.set(xlabel=wrap(panel.x_label, size[0] - 0.8), ylabel=wrap(panel.y_label, size[1] - 0.5))
        axes.set_title(wrap(panel.title, size[0] - 0.8, 9))
    return figure, places


def _in_order(series: Sequence[Series]) -> list[tuple[int, Series]]:
    """Return the lines with their places in the legend, the subject of the paper last, hence on top."""
    return sorted(enumerate(series), key=lambda entry: entry[1].look.subject)


def mean_of(y: np.ndarray) -> np.ndarray:
    """Return the mean of the known values over seeds."""
    return np.asarray(pd.DataFrame(y).mean())


def _spread(y: np.ndarray) -> np.ndarray:
    """Return the sample STD of the known values over seeds; NaN for fewer than two values and for infinite values."""
    with np.errstate(invalid="ignore"):
        return np.asarray(pd.DataFrame(y).std())


# ---- pictures of figures

# suffix of the files, drawing function, and its panels
Pictures = Sequence[tuple[str, Callable[..., Figure], Sequence[Panel | Image]]]


@dataclass(frozen=True)
class DrawnFigure:
    """A picture of a figure, with what stands below it.

    Attributes:
        name: Name of its files; that of a paper begins with the paper's id.
        title: Heading.
        caption: What is drawn.
        svg: Text of the SVG file; empty if there is nothing to draw yet.
        reduced: Departures from the paper.
        note: What is not drawn.
        alt: What is drawn, as the alternative text of the picture.
        tuning: Which methods were tuned, as (by whom, sentence).
    """

    name: str
    title: str
    caption: str = ""
    svg: str = ""
    reduced: tuple[str, ...] = ()
    note: str = ""
    alt: str = ""
    tuning: tuple[tuple[str, str], ...] = ()


def drawn(figure: DrawnFigure, folder: Path, pictures: Pictures) -> list[DrawnFigure]:
    """Draw the pictures of a figure that have something to draw, and return one with each."""
    found = []
    for part, drawing, panels in pictures:
        if panels:
            name = f"{figure.name}{part}"
            files = draw(folder / name.replace("/", "_"), drawing, figure.title, panels, reduced=bool(figure.reduced))
            svg = next(file for file in files if file.suffix == ".svg").read_text(encoding="utf-8")
            found.append(replace(figure, name=name, svg=svg, alt=_alt(panels)))
    return found


def _alt(panels: Sequence[Panel | Image]) -> str:
    """Return a sentence on what pictures show: the axes, the panels and the lines."""
    axes = dict.fromkeys(f"{p.y_label} by {p.x_label}" for p in panels)
    titles = dict.fromkeys(p.title for p in panels if p.title)
    labels = dict.fromkeys(s.label for p in panels if isinstance(p, Panel) for s in p.series)
    parts = (("", axes), ("panels: ", titles), ("lines: ", labels))
    return "; ".join(f"{what}{', '.join(names)}" for what, names in parts if names) + "."
