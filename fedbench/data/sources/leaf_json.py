"""The user's own data in LEAF's JSON form: ``users``, ``num_samples``, ``user_data: {user: {x, y}}``."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from fedbench.core.errors import RequestError, shown
from fedbench.data.examples import Examples
from fedbench.data.files.limits import MOST_DIMENSIONS
from fedbench.data.sources._classes import are_finite, are_labels, count_of
from fedbench.data.sources._leaf import User, json_files, users_of


def load(
    train: str,
    *,
    test: str | None = None,
    shape: Sequence[int] | None = None,
    classes: int | None = None,
) -> Examples:
    """Read LEAF JSON.

    Args:
        train: A file, or a directory all of whose ``*.json`` files are read.
        test: The same for the test examples; None lets the caller split each client's examples.
        shape: Shape of one example, such as [1, 28, 28]; None keeps the shape in the file.
        classes: Number of classes; None means the largest label plus one.

    Raises:
        RequestError: If a file is not of that form; the message names the file, the user and the fault.
    """
    given = {"data.train": train} | ({} if test is None else {"data.test": test})
    parts = [{u.name: _pair(u) for u in users_of(json_files(where, key))} for key, where in given.items()]
    names = tuple(dict.fromkeys(user for part in parts for user in part))
    place = {user: k for k, user in enumerate(names)}
    owned = [(held, place[user], *pair) for held, part in enumerate(parts) for user, pair in part.items()]
    shapes = {x.shape[1:] for _, _, x, y in owned if len(y)}
    if not shapes:
        raise RequestError(f"data.train={train} contains no example; every user's num_samples is 0")
    if len(shapes) > 1:
        raise RequestError(f"all examples must have the same shape, got {sorted(shapes)[:3]} in {train}")
    lengths = [len(y) for _, _, _, y in owned]
    x = np.concatenate([x for _, _, x, y in owned if len(y)])
    y = np.concatenate([y for _, _, x, y in owned])
    count = count_of(y, classes, train)
    if shape is not None:
        if not isinstance(shape, list | tuple) or not all(type(n) is int and n > 0 for n in shape):
            raise RequestError(f"data.shape must be a list of lengths, got {shown(shape)}; such as [1,28,28]")
        if prod(shape) != prod(x.shape[1:]):
            raise RequestError(f"data.shape={list(shape)} does not match the {prod(x.shape[1:])} values of an example")
        x = x.reshape(len(x), *shape)
    return Examples(
        x=x,
        y=y,
        classes=count,
        owner=np.repeat([k for _, k, _, _ in owned], lengths),
        names=names,
        held_out=None if test is None else np.repeat([bool(h) for h, _, _, _ in owned], lengths),
        sources=tuple(f"LEAF JSON: {where}" for where in given.values()),
    )


def _pair(user: User) -> tuple[np.ndarray, np.ndarray]:
    """Return the inputs [n, ...] float64 and the labels [n] int64 of a user."""
    what, _, xs, ys, size = user
    if not isinstance(xs, list) or not isinstance(ys, list) or not len(xs) == len(ys) == size:
        counts = [len(v) if isinstance(v, list) else type(v).__name__ for v in (xs, ys)]
        raise RequestError(f"{what} has {counts[0]} x and {counts[1]} y, but num_samples says {size}")
    try:
        x, y = np.array(xs, dtype=np.float64), np.array(ys, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise RequestError(
            f"{what}: x must be numbers, of the same shape for all examples, and y one number each"
        ) from None
    if y.ndim != 1 or not are_labels(y):
        raise RequestError(f"{what}: labels must be integers >= 0, got {shown(ys[:3])}")
    if not are_finite(x):
        raise RequestError(f"{what}: x contains values that are not finite numbers of 32 bits")
    if x.ndim > MOST_DIMENSIONS or (len(x) and not x.size):
        raise RequestError(f"{what}: x has the shape {list(x.shape)}; none of at most {MOST_DIMENSIONS} may be 0")
    return x[:, None] if x.ndim == 1 else x, y.astype(np.int64)
