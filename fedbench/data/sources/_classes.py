"""Checks of labels and of per-channel numbers, and the choice of some of a data set's classes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedbench.core.errors import RequestError, WrongValue, integer, number

_LARGEST = 2**53  # label; up to here floats and ints agree
_FEW, _SPARSE = 1000, 10  # most classes accepted without data.classes; else most labels per label that occurs


def keep(y: np.ndarray, classes: Sequence[int] | None, count: int) -> tuple[np.ndarray, np.ndarray, int]:
    """Return the rows whose label is kept, their new labels, and the number of classes.

    Args:
        y: [T] labels in [0, count).
        classes: Labels to keep; the first becomes 0, the next 1, and so on. None keeps all unchanged.
        count: Number of classes of the data set.

    Raises:
        RequestError: If ``classes`` is not a list of distinct labels of the data set.
    """
    if y.size and not 0 <= y.min() <= y.max() < count:
        raise RequestError(f"the files contain labels from {y.min()} to {y.max()}, expected 0 to {count - 1}")
    if classes is None:
        return np.arange(len(y)), y, count
    wanted = list(classes) if isinstance(classes, list | tuple) else []
    labels = [c for c in wanted if isinstance(c, int) and not isinstance(c, bool) and 0 <= c < count]
    if not wanted or len(labels) != len(wanted) or len(set(labels)) != len(labels):
        raise RequestError(
            f"data.source.classes must be distinct labels from 0 to {count - 1}, such as [0,1], or null for all; "
            f"got {classes!r}"
        )
    new = np.full(count, -1)
    new[labels] = np.arange(len(labels))
    rows = np.flatnonzero(new[y] >= 0)
    return rows, new[y[rows]], len(labels)


def are_labels(y: np.ndarray) -> bool:
    """Return whether the numbers y are non-negative integers and small enough to be labels."""
    return bool(((y >= 0) & (y <= _LARGEST)).all() and (y == np.floor(y)).all())


def are_finite(x: np.ndarray) -> bool:
    """Return whether the numbers x stay finite in float32, in which models compute."""
    return x.dtype.kind != "f" or bool((np.abs(x) <= np.finfo(np.float32).max).all())


def count_of(y: np.ndarray, classes: object, where: str) -> int:
    """Return the number of classes: ``classes``, or the largest label plus one.

    Args:
        y: Labels: integers from 0, at least one of them.
        classes: Value of data.classes; None if not set.
        where: Origin of the labels, for messages.

    Raises:
        RequestError: If a label is not below ``classes``, or is implausibly large.
    """
    count = int(y.max()) + 1
    if classes is not None:
        declared = integer("data.classes", classes, at_least=1)
        if declared < count:
            raise RequestError(f"data.classes={declared}, but {where} has the label {count - 1}; raise it or omit it")
        return declared
    if count > max(_FEW, _SPARSE * (different := len(np.unique(y)))):
        raise RequestError(
            f"{where} has the label {count - 1}, but only {different} distinct labels; number them from 0, or set "
            "data.classes to the number of classes"
        )
    return count


def per_channel(key: str, value: object, channels: int, default: float) -> tuple[float, ...]:
    """Return ``value``, one number per channel, or the default for each channel if it is None.

    Raises:
        RequestError: If it is anything else, or a standard deviation is not above 0.
    """
    if value is None:
        return (default,) * channels
    above = 0.0 if key == "std" else None
    if not isinstance(value, list | tuple) or len(value) != channels:
        raise WrongValue(key, f"must be a list of {channels} numbers, one per channel, got {value!r}")
    return tuple(number(f"{key}[{k}]", v, above=above) for k, v in enumerate(value))
