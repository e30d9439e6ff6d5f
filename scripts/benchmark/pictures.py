"""The figures of a benchmark: fronts of two metrics, and average ranks."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from benchmark.ranks import RankTest
from benchmark.values import COMPARED, Front
from fedbench.core.metrics import metric_info
from fedbench.reports.canvas import SIZE, Figure, Look, legend_lines, looks, sheet
from fedbench.reports.charts import Spec, mean_chart
from fedbench.reports.panels import Panel, Series

_ROW = 0.14  # inches per method
_LINE = 0.055  # height of a name, as a fraction of the panel


def front_figure(fronts: Sequence[Front], title: str) -> Figure:
    """Draw the means of every method, one panel per setting.

    Methods on the front are named and joined.
    """
    x, y = map(metric_info, COMPARED)
    methods: set[str] = set()
    for front in fronts:
        methods |= set(front.methods)
    shown = _looks(methods)
    panels = [Panel(front.setting, (), x.axis, y.axis) for front in fronts]
    figure, every_axes = sheet(
        title,
        panels,
        legend_lines(shown.items(), linestyle=""),
        size=(SIZE[0], 2.9),
    )
    factors = np.array([[x.factor], [y.factor]])
    for front, axes in zip(fronts, every_axes, strict=True):
        means = factors * front.means
        points = zip(front.methods, front.member, means.T, strict=True)
        for method, member, point in points:
            look = shown[method]
            axes.plot(
                *point,
                look.marker,
                color=look.colour,
                alpha=1 if member else 0.45,
                zorder=3 + bool(member),
            )
        members = np.flatnonzero(front.member)
        order = np.lexsort(means[::-1, members])  # by the first metric, then the second
        members = members[order]
        line = means[:, members]
        axes.plot(
            *line,
            color="0.55",
            linewidth=0.8,
            zorder=1,
        )
        bars = factors * front.stds[:, members]
        axes.errorbar(
            *line,
            xerr=bars[0],
            yerr=bars[1],
            fmt="none",
            ecolor="0.7",
            elinewidth=0.7,
            zorder=2,
        )
        axes.margins(0.1)
        names = [front.methods[i] for i in members]
        _name(axes, list(zip(names, *line, strict=True)))
    return figure


def front_charts(fronts: Sequence[Front]) -> tuple[Spec, ...]:
    """Return interactive charts of the means of every method, one per setting."""
    x, y = map(metric_info, COMPARED)
    charts = []
    for front in fronts:
        shown = _looks(set(front.methods))
        points = []
        for method, mean_x, mean_y in zip(front.methods, *front.means, strict=True):
            place = np.array([[x.factor * mean_x]]), np.array([[y.factor * mean_y]])
            points.append(Series(method, *place, shown[method]))
        charts.append(mean_chart(Panel(front.setting, points, x.axis, y.axis)))
    return tuple(charts)


def rank_figure(tests: Sequence[tuple[str, RankTest]], title: str) -> Figure:
    """Draw average ranks, one panel per metric, the best on top.

    The band reaches one critical difference from the best rank.
    """
    panels = []
    methods: set[str] = set()
    for label, test in tests:
        methods |= set(test.methods)
        axis = f"average rank, 1 is best (CD {test.critical_difference:.1f})"
        panels.append(Panel(label, (), axis, ""))
    shown = _looks(methods)
    count = max(len(test.methods) for _, test in tests)
    figure, every_axes = sheet(
        title,
        panels,
        size=(SIZE[0], 0.7 + _ROW * count),
    )
    for (_, test), axes in zip(tests, every_axes, strict=True):
        best = min(test.ranks)
        axes.axvspan(
            best,
            best + test.critical_difference,
            color="0.93",
            zorder=0,
        )
        names = []
        for row, (method, rank) in enumerate(test.ordered):
            look = shown[method]
            axes.plot(rank, row, look.marker, color=look.colour)
            names.append(method)
        axes.set_yticks(range(len(names)), names)
        axes.set_ylim(len(names) - 0.5, -0.5)
        axes.grid(axis="y", visible=False)
    return figure


def _looks(methods: Iterable[str]) -> dict[str, Look]:
    return looks({method: method for method in sorted(methods)})


def _name(axes: Any, points: Sequence[tuple[str, float, float]]) -> None:
    """Write names to the left of points, from top to bottom without overlaps.

    A line leads from each name to its point.
    """
    axes.set_xlim(axes.get_xlim())
    axes.set_ylim(axes.get_ylim())
    to_axes = axes.transData + axes.transAxes.inverted()
    below = np.inf
    for text, x, y in sorted(points, key=lambda point: -point[2]):
        across, up = to_axes.transform((x, y))
        below = min(up, below - _LINE)
        left = max(across, 0.35) - 0.08
        axes.annotate(
            text,
            (x, y),
            xytext=(left, below),
            textcoords="axes fraction",
            ha="right",
            va="center",
            fontsize=8,
            zorder=5,
            arrowprops={
                "arrowstyle": "-",
                "color": "0.6",
                "linewidth": 0.5,
            },
        )
