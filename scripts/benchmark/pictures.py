"""The pictures of a benchmark: fronts of two metrics, and average ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmark.ranks import RankTest
from benchmark.values import Front
from fedbench.core.metrics import metric_info
from fedbench.reports.canvas import SIZE, Figure, legend_lines, looks, sheet
from fedbench.reports.plots import Panel

_ROW = 0.14  # inches per method
_LINE = 0.055  # height of a name, as a fraction of the panel


def front_figure(fronts: Sequence[Front], title: str) -> Figure:
    """Draw the means of every method, one panel per setting; those on the front are named and joined."""
    methods = sorted({m for front in fronts for m in front.methods})
    shown = looks({m: m for m in methods})
    panels = [
        Panel(front.setting, (), *(metric_info(m).axis for m in front.metrics)) for front in fronts
    ]
    legend = legend_lines(shown.items(), linestyle="")
    figure, places = sheet(title, panels, legend, size=(SIZE[0], 2.9))
    for front, axes in zip(fronts, places, strict=True):
        x, y = (metric_info(m) for m in front.metrics)
        across, up = x.factor * front.x, y.factor * front.y
        for i, method in enumerate(front.methods):
            look, member = shown[method], bool(front.member[i])
            axes.plot(
                across[i],
                up[i],
                look.marker,
                color=look.colour,
                alpha=1 if member else 0.45,
                zorder=3 + member,
            )
        ends = sorted(np.flatnonzero(front.member), key=lambda i: (across[i], up[i]))
        axes.plot(across[ends], up[ends], color="0.55", linewidth=0.8, zorder=1)
        bars = {"xerr": x.factor * front.spread[0][ends], "yerr": y.factor * front.spread[1][ends]}
        axes.errorbar(
            across[ends], up[ends], **bars, fmt="none", ecolor="0.7", elinewidth=0.7, zorder=2
        )
        axes.margins(0.1)
        _name(axes, [(front.methods[k], across[k], up[k]) for k in ends])
    return figure


def rank_figure(tests: Sequence[tuple[str, RankTest]], title: str) -> Figure:
    """Draw average ranks, one panel per metric, the best on top; the band reaches one critical difference from it."""
    count = max(len(test.methods) for _, test in tests)
    shown = looks({m: m for m in sorted({m for _, t in tests for m in t.methods})})
    panels = [
        Panel(label, (), f"average rank, 1 is best (CD {test.test.critical_difference:.1f})", "")
        for label, test in tests
    ]
    figure, places = sheet(title, panels, size=(SIZE[0], 0.7 + _ROW * count))
    for (_, test), axes in zip(tests, places, strict=True):
        best = test.ordered[0][1]
        axes.axvspan(best, best + test.test.critical_difference, color="0.93", zorder=0)
        for place, (method, rank) in enumerate(test.ordered):
            look = shown[method]
            axes.plot(rank, place, look.marker, color=look.colour)
        axes.set_yticks(range(len(test.methods)), [m for m, _ in test.ordered])
        axes.set_ylim(len(test.methods) - 0.5, -0.5)
        axes.grid(axis="y", visible=False)
    return figure


def _name(axes: Any, points: Sequence[tuple[str, float, float]]) -> None:
    """Write names to the left of points, from top to bottom without overlaps; a line leads from each to its point."""
    axes.set_xlim(axes.get_xlim())
    axes.set_ylim(axes.get_ylim())
    inside = axes.transData + axes.transAxes.inverted()
    below = np.inf
    for text, x, y in sorted(points, key=lambda point: -point[2]):
        across, up = inside.transform((x, y))
        below = min(up, below - _LINE)
        axes.annotate(
            text,
            (x, y),
            xytext=(max(across, 0.35) - 0.08, below),
            textcoords="axes fraction",
            ha="right",
            va="center",
            fontsize=8,
            zorder=5,
            arrowprops={"arrowstyle": "-", "color": "0.6", "linewidth": 0.5},
        )
