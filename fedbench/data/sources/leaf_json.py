"""The user's own data in LEAF's JSON form: ``users``, ``num_samples``, ``user_data: {user: {x, y}}``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from fedbench.core.errors import RequestError
from fedbench.data.examples import Examples
from fedbench.data.sources._classes import are_labels, count_of


def load(
    data_dir: Path,
    seed: int,
    *,
    train: str,
    test: str | None = None,
    shape: Sequence[int] | None = None,
    classes: int | None = None,
) -> Examples:
    """Read LEAF JSON.

    Args:
        data_dir: Not used; ``train`` and ``test`` are paths on their own.
        seed: Not used.
        train: A file, or a directory all of whose ``*.json`` files are read.
        test: The same for the test examples; None lets the caller split each client's examples.
        shape: Shape of one example, such as [1, 28, 28]; None keeps the shape in the file.
        classes: Number of classes; None means the largest label plus one.

    Raises:
        RequestError: If a file is not of that form; the message names the file, the user and the fault.
    """
    parts = [_read(train, "data.train")]
    if test is not None:
        parts.append(_read(test, "data.test"))
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
            raise RequestError(f"data.shape must be a list of lengths, got {shape!r}; such as [1,28,28]")
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
        sources=tuple(f"LEAF JSON: {p}" for p in (train, test) if p is not None),
    )


def _read(where: str, name: str) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    path = Path(str(where)).expanduser()
    files = sorted(path.glob("*.json")) if path.is_dir() else [path]
    if not files or not path.exists():
        what = "contains no .json file" if path.exists() else "does not exist"
        raise RequestError(
            f"{name}={where} {what}; it must be a file in LEAF's JSON format or a directory of such files"
        )
    found: dict[str, tuple[np.ndarray, np.ndarray]] = {}
    for file in files:
        try:
            content = json.loads(file.read_text(encoding="utf-8-sig"))
        except (ValueError, RecursionError, OSError) as error:
            raise RequestError(f"{file} is not JSON: {error}") from error
        for user, pair in _users(file, content):
            if user in found:
                raise RequestError(f"{file}: user {user!r} occurs twice; a user must be in one file only")
            found[user] = pair
    return found


def _users(file: Path, content: Any) -> list[tuple[str, tuple[np.ndarray, np.ndarray]]]:
    keys = ("users", "num_samples", "user_data")
    if not isinstance(content, dict) or any(k not in content for k in keys):
        got = sorted(content) if isinstance(content, dict) else type(content).__name__
        raise RequestError(f"{file} is not in LEAF's JSON format: expected the keys {', '.join(keys)}, got {got}")
    users, sizes, data = (content[k] for k in keys)
    if not isinstance(users, list) or not isinstance(sizes, list) or len(users) != len(sizes):
        raise RequestError(f"{file}: users and num_samples must be lists of the same length")
    result = []
    for user, size in zip(users, sizes, strict=True):
        entry = data.get(user) if isinstance(data, dict) and isinstance(user, str) else None
        if not isinstance(entry, dict) or "x" not in entry or "y" not in entry:
            raise RequestError(f"{file}: user {user!r} has no user_data with x and y")
        result.append((str(user), _pair(f"{file}: user {user!r}", entry["x"], entry["y"], size)))
    return result


def _pair(what: str, xs: Any, ys: Any, size: Any) -> tuple[np.ndarray, np.ndarray]:
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
        raise RequestError(f"{what}: labels must be integers >= 0, got {ys[:3]}")
    if not np.isfinite(x).all():
        raise RequestError(f"{what}: x contains values that are not finite")
    return x[:, None] if x.ndim == 1 else x, y.astype(np.int64)
