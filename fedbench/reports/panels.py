"""What a picture shows: lines and points with their labels and looks, on axes side by side."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedbench.reports.canvas import Look


@dataclass(frozen=True)
class Series:
    """A line, or points in the plane of two measures.

    Attributes:
        x: Positions [T]; [S, T] for points whose position has a spread over seeds.
        y: Values [S, T], a row per seed; NaN where missing.
        texts: Annotations of the points; empty for none.
    """

    label: str
    x: np.ndarray
    y: np.ndarray
    look: Look
    texts: tuple[str, ...] = ()


@dataclass(frozen=True)
class Panel:
    """A pair of axes, whose labels include the units."""

    title: str
    series: Sequence[Series]
    x_label: str
    y_label: str
