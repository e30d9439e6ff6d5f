"""Some of a data set's classes, numbered anew."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedbench.errors import RequestError


def keep(y: np.ndarray, classes: Sequence[int] | None, count: int) -> tuple[np.ndarray, np.ndarray, int]:
    """Return the rows whose label is kept, their new labels, and how many labels there are.

    Args:
        y: [T] labels in [0, count).
        classes: labels to keep; the first becomes 0, the next 1, and so on. None keeps all as they are.
        count: number of labels of the data set.

    Raises:
        RequestError: if ``classes`` are not different labels of the data set.
    """
    if y.size and not 0 <= y.min() <= y.max() < count:
        raise RequestError(f"the files hold labels from {y.min()} to {y.max()}, expected 0 to {count - 1}")
    if classes is None:
        return np.arange(len(y)), y, count
    wanted = list(classes) if isinstance(classes, list | tuple) else []
    whole = [c for c in wanted if isinstance(c, int) and not isinstance(c, bool) and 0 <= c < count]
    if not wanted or len(whole) != len(wanted) or len(set(whole)) != len(whole):
        raise RequestError(
            f"data.source.classes must be different labels from 0 to {count - 1}, such as [0,1], or null for all; "
            f"got {classes!r}"
        )
    new = np.full(count, -1)
    new[whole] = np.arange(len(whole))
    rows = np.flatnonzero(new[y] >= 0)
    return rows, new[y[rows]], len(whole)
