"""Pictures of tables: labels of clients, and matrices. ``fedbench.report.plots`` explains the common arguments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.colors import PowerNorm
from matplotlib.patches import Patch

from fedbench.report.canvas import WIDTH, Figure, check, integer_ticks, picture, sheet, wrap

# colours of classes: those of Okabe and Ito, then greys
_FILLS = (
    *("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000"),
    *("#F0E442", "#777777", "#DDDDDD"),
)
_CLIENTS = 60  # most clients in a picture of labels
_CELLS = 12  # most rows of a matrix whose values are written out
_EDGE: dict[str, Any] = {"edgecolor": "0.3", "linewidth": 0.2}


@picture
def bars(title: str, panels: Sequence[tuple[str, np.ndarray]], reduced: bool = False) -> Figure:
    """Draw the labels of each client: stacked counts for up to 10 classes, shares by colour for more.

    A panel consists of its title and the number of examples per client and class, [clients, classes]. If there are more
    than 60 clients, the 60 with the most examples are drawn, in the order of their numbers, and the axis says so.
    """
    for name, counts in panels:
        fits = counts.ndim == 2 and counts.size > 0 and (np.isfinite(counts) & (counts >= 0)).all()
        check(fits, name, "", f"counts of shape {counts.shape} are not [clients, classes] of numbers from 0 up")
    most = max((c.shape[1] for _, c in panels if c.shape[1] <= len(_FILLS)), default=0)
    legend = [Patch(facecolor=fill, label=str(k), **_EDGE) for k, fill in enumerate(_FILLS[:most])]
    figure, places = sheet(title, reduced, len(panels), legend, size=(WIDTH, 2.6))
    for box in figure.legends:
        box.set_title("class")
    norm = PowerNorm(0.5, 0, 1)  # 62 even classes have shares of .016, which must be visible
    shaded = []
    for axes, (name, counts) in zip(places, panels, strict=True):
        drawn = np.sort(np.argsort(-counts.sum(1), kind="stable")[:_CLIENTS])
        shown, at = counts[drawn], np.arange(len(drawn))
        axes.set(xlabel="client" + f" (the {len(at)} largest of {len(counts)})" * (len(at) < len(counts)))
        axes.set_title(wrap(name, WIDTH - 0.5, 9))
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
            integer_ticks(axes.yaxis)
            shaded.append(axes)
        ticks = at[:: next(step for step in (1, 2, 5, 10) if len(at) <= 8 * step)]
        axes.set_xticks(ticks, labels=[str(k) for k in drawn[ticks]])
    if shaded:
        figure.colorbar(shaded[0].images[0], ax=shaded, label="share of examples")
    return figure


@picture
def matrix(title: str, panels: Sequence[tuple[str, np.ndarray]], reduced: bool = False) -> Figure:
    """Draw square matrices by colour on the scale 0..1; matrices of up to 12 rows show their values as text.

    A panel consists of its title and its values [N, N]; NaN is grey.
    """
    colours = matplotlib.colormaps["viridis"].with_extremes(bad="0.8")
    figure, places = sheet(title, reduced, len(panels), [], size=(WIDTH + 0.2, 3.2))  # with room for the colour bar
    for axes, (name, values) in zip(places, panels, strict=True):
        square = values.ndim == 2 and values.shape[0] == values.shape[1] > 0
        check(square, name, "", f"values have shape {values.shape}, not [N, N]")
        image = axes.imshow(values, cmap=colours, vmin=0, vmax=1, interpolation="nearest")
        axes.set_title(wrap(name, WIDTH - 0.5, 9))
        axes.grid(False)
        integer_ticks(axes.xaxis, axes.yaxis)
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
