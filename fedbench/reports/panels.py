"""Content of a picture: lines and points with their labels and looks, on axes side by side."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

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


def thinned(table: pd.DataFrame, most: int) -> pd.DataFrame:
    """Return at most ``most`` evenly spaced rows, including the first and the last."""
    chosen = np.linspace(0, len(table) - 1, min(len(table), most))
    return table.iloc[chosen.round().astype(int)]
