"""The user's data in LEAF's JSON format.

A file contains ``users``, ``num_samples`` and ``user_data: {user: {x, y}}``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedbench.core.errors import RequestError, shown
from fedbench.core.files import reading, user_path
from fedbench.core.options import Count
from fedbench.data.examples import Examples, Part, are_finite, are_labels, count_of, join

_FORM = (
    "expected users and num_samples, lists of the same length, and user_data with x and y of each "
    "user"
)


def load(
    train: str,
    *,
    test: str | None = None,
    shape: Sequence[Count] | None = None,
    classes: Count | None = None,
) -> Examples:
    """Read files in LEAF's JSON format.

    Args:
        train: A file, or a directory in which all ``*.json`` files are read.
        test: The same for the test examples. If None, the caller splits each client's examples.
        shape: Shape of one example, such as [1, 28, 28]. If None, the shape in the file is kept.
        classes: Number of classes. If None, the largest label plus one.

    Raises:
        RequestError: If a file does not have this format; the message names the file, the user and
            the fault.
    """
    held_out = None if test is None else False
    files = json_files(train, "data.train")
    parts = [part_of(user, held_out) for user in users_of(files)]
    sources = [f"LEAF JSON: {train}"]
    if test is not None:
        files = json_files(test, "data.test")
        parts += [part_of(user, True) for user in users_of(files)]
        sources.append(f"LEAF JSON: {test}")
    shapes = {part.x.shape[1:] for part in parts if len(part.y)}
    if len(shapes) != 1:
        raise RequestError(
            f"{train} must have examples, all of the same shape, got {sorted(shapes)[:3]}"
        )
    (given,) = shapes
    if shape is not None and prod(shape) != prod(given):
        raise RequestError(
            f"data.shape={shape} does not match the {prod(given)} values of an example"
        )
    labels = np.concatenate([part.y for part in parts])
    examples = join(
        parts,
        classes=count_of(labels, classes, train),
        sources=tuple(sources),
    )
    x = examples.x.reshape(-1, *(shape or given))
    return replace(examples, x=x)


def part_of(user: User, held_out: bool | None) -> Part:
    """Return a user's examples: inputs [n, ...] and labels [n], both float64."""
    form = (
        "x must be finite numbers of 32 bits, of the same shape for all examples, and y integers "
        ">= 0"
    )
    with reading(f"{user.place}:", form):
        x = np.array(user.x, dtype=np.float64)
        y = np.array(user.y, dtype=np.float64)
        if y.ndim != 1 or not are_labels(y) or not are_finite(x):
            raise ValueError("out of range")
        if len(y) and not x.size:
            raise ValueError("x is empty")
    if x.ndim == 1:
        x = x[:, None]
    return Part(user.name, held_out, x, y)


class User(NamedTuple):
    """The entry of one user in a file."""

    place: str  # file and user, for messages
    name: str
    x: Any  # the inputs as read
    y: Any  # the labels as read


def json_files(where: str, option: str) -> list[Path]:
    """Return a file, or all ``*.json`` files in a directory, in alphabetical order.

    Args:
        where: The file or directory.
        option: Dotted key that names the file or directory, for messages.

    Raises:
        RequestError: If there is no such file.
    """
    path = user_path(option, where)
    files = sorted(path.glob("*.json")) if path.is_dir() else [path]
    if not files or not path.exists():
        raise RequestError(f"{option}={where} is neither a file nor a directory with .json files")
    return files


def users_of(files: Iterable[Path]) -> Iterator[User]:
    """Yield the users in several files, with one file in memory at a time.

    Raises:
        RequestError: If a file is not in LEAF's JSON format, a user occurs twice, or a user's
            number of examples differs from ``num_samples``.
    """
    seen: set[str] = set()
    for file in files:
        with reading(file, "is not in LEAF's JSON format", _FORM):
            content = json.loads(file.read_text(encoding="utf-8-sig"))
            listed = list(zip(content["users"], content["num_samples"], strict=True))
            entries = content["user_data"]
            "".join(content["users"]).encode()  # must be text without lone surrogates
        for user, size in listed:
            place = f"{file}: user {shown(user)}"
            if user in seen:
                raise RequestError(f"{place} occurs twice; a user must be in one file only")
            seen.add(user)
            with reading(place, "needs user_data with x and y, as many as num_samples says"):
                # pop frees the entry early: its Python numbers take 16 times the memory of the
                # arrays
                entry = entries.pop(user)
                x, y = entry["x"], entry["y"]
                if not len(x) == len(y) == size:
                    raise ValueError(f"{len(x)} x and {len(y)} y, not {size}")
            yield User(place, user, x, y)
