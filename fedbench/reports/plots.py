"""Pictures drawn from arrays; ``fedbench.reports.canvas.draw`` writes them to files.

``fedbench.reports.canvas`` defines line styles. The paper's own method is drawn on top of the
others. The legend explains bands and bars. The spread over seeds is the sample STD. ``reduced``
writes "reduced setting" in the corner.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from fedbench.papers.schema import Tuning
from fedbench.reports.canvas import (
    SIZE,
    WIDTH,
    Figure,
    draw,
    legend_lines,
    plain_numbers,
    sheet,
)
from fedbench.reports.charts import Spec, curve_chart, mean_chart
from fedbench.reports.panels import Panel, Series, thinned
from fedbench.reports.templates import render

_POINTS = 400  # maximum number of points of a curve


def curves(
    title: str,
    panels: Sequence[Panel],
    log_y: bool = False,
    reduced: bool = False,
) -> Figure:
    """Draw the mean over seeds as a line, with a band from the lowest to the highest seed.

    Points without a value for any seed are left out. If there are more than 400 points, 400 evenly
    spaced points are drawn, including the first and the last. A logarithmic axis (``log_y``) clips
    values of 0 and below at its lower end.
    """
    band = Patch(
        facecolor="0.5",
        alpha=0.3,
        label="band: lowest to highest seed",
    )
    figure, every_axes = sheet(
        title,
        panels,
        _legend(panels, band),
        reduced,
    )
    for axes, panel in zip(every_axes, panels, strict=True):
        for number, series in enumerate(panel.series):
            _draw_curve(axes, series, number)
        if log_y and any((series.y > 0).any() for series in panel.series):
            axes.set_yscale("log")
            plain_numbers(axes.yaxis)
    return figure


log_curves = partial(curves, log_y=True)


def _draw_curve(
    axes: Any,
    series: Series,
    number: int,
) -> None:
    """Draw the mean of a panel's n-th series, and a band if there are several seeds."""
    y = thinned(pd.DataFrame(series.y.T, index=series.x).dropna(how="all"), _POINTS)
    every = max(1, round(len(y) / 8))
    first = number * every // 3 % every  # markers of different series are offset
    axes.plot(
        y.index,
        y.mean(axis=1),
        label=series.label,
        markevery=(first, every),
        **series.look.line,
    )
    if len(series.y) > 1:
        axes.fill_between(
            y.index,
            y.min(axis=1),
            y.max(axis=1),
            color=series.look.colour,
            alpha=0.18,
            linewidth=0,
            zorder=1.5,
        )


def means(
    title: str,
    panels: Sequence[Panel],
    reduced: bool = False,
) -> Figure:
    """Draw means with bars of one STD, against a parameter or in the plane of two measures."""
    bar = Line2D(
        [],
        [],
        color="0.4",
        linestyle="none",
        marker="|",
        markersize=9,
        label="bars: ± 1 STD over seeds",
    )
    plane = any(series.x.ndim == 2 for panel in panels for series in panel.series)
    size = (2 * WIDTH, 3.4) if plane else SIZE
    figure, every_axes = sheet(
        title,
        panels,
        _legend(panels, bar),
        reduced,
        size,
    )
    for axes, panel in zip(every_axes, panels, strict=True):
        for series in panel.series:
            _draw_means(axes, series)
    return figure


def _draw_means(axes: Any, series: Series) -> None:
    """Draw the means of a series with their bars and labels."""
    y = pd.DataFrame(series.y).dropna(axis=1, how="all")
    x = pd.DataFrame(np.atleast_2d(series.x))[y.columns]
    with np.errstate(invalid="ignore"):  # diverged runs have no spread
        x_bars = x.std()
        y_bars = y.std()
    axes.errorbar(
        x.mean(),
        y.mean(),
        xerr=x_bars,
        yerr=y_bars,
        label=series.label,
        elinewidth=0.8,
        **series.look.line,
    )
    for i, text in enumerate(series.texts):
        if i in y:
            axes.annotate(
                text,
                (x[i].mean(), y[i].mean()),
                (4, 4),
                textcoords="offset points",
                color=series.look.colour,
            )


def _legend(panels: Sequence[Panel], note: Any) -> list[Any]:
    """Return the legend entries: each line and, if there are several seeds, the band or bar."""
    series = list(chain.from_iterable(panel.series for panel in panels))
    lines = legend_lines((line.label, line.look) for line in series)
    several = any(len(line.y) > 1 for line in series)
    return [*lines, note] if several else lines


# ---- pictures of figures

# file suffix, drawing function and panels
Pictures = Sequence[tuple[str, Callable[..., Figure], Sequence[Panel]]]


@dataclass(frozen=True)
class DrawnFigure:
    """A picture of a figure, with the text below it.

    Attributes:
        name: Name of the files; for a paper's figure, it begins with the paper's id.
        title: Heading.
        caption: Description of the figure.
        svg: Text of the SVG file; empty if there is nothing to draw yet.
        reduced: Departures from the paper.
        note: Note on rows or settings that are not drawn.
        alt: Alternative text of the picture.
        tuning: Sentences on tuned methods; None if nothing is known about tuning.
        charts: The same as interactive charts, one per panel.
    """

    name: str
    title: str
    caption: str = ""
    svg: str = ""
    reduced: tuple[str, ...] = ()
    note: str = ""
    alt: str = ""
    tuning: Tuning | None = None
    charts: tuple[Spec, ...] = ()


_CHARTS: dict[Any, Callable[[Panel], Spec]] = {
    curves: curve_chart,
    log_curves: partial(curve_chart, log_y=True),
    means: mean_chart,
}


def drawn(
    figure: DrawnFigure,
    folder: Path,
    pictures: Pictures,
) -> list[DrawnFigure]:
    """Draw the pictures of a figure that have panels, and return a copy of the figure for each."""
    views = []
    for part, drawing, panels in pictures:
        if not panels:
            continue
        name = f"{figure.name}{part}"
        base = folder / name.replace("/", "_")
        reduced = bool(figure.reduced)
        *_, file = draw(
            base,
            drawing,
            figure.title,
            panels,
            reduced=reduced,
        )
        svg = file.read_text(encoding="utf-8")
        alt = render("alt.txt", panels=panels).strip()
        charts = tuple(map(_CHARTS[drawing], panels))
        views.append(replace(figure, name=name, svg=svg, alt=alt, charts=charts))
    return views
