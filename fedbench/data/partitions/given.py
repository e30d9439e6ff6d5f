"""A partition that is given by indices: its form, and the checks that it passes before it is used."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fedbench.core.errors import RequestError


class Given(NamedTuple):
    """The examples of every client, by their positions in the source, from 0 in stored order.

    Attributes:
        names: [N] names of the clients.
        train: Training examples of each client; all its examples where there is no ``test``.
        test: Test examples of each client; None leaves them to ``data.local_test``.
        shared: Test examples of all clients alike; None if there are none.
    """

    names: tuple[str, ...]
    train: Sequence[np.ndarray]
    test: Sequence[np.ndarray] | None = None
    shared: np.ndarray | None = None


def checked(given: Given, count: int, where: str, empty: bool = False) -> Given:
    """The partition with ascending positions.

    Args:
        given: The partition.
        count: Number of examples of the source.
        where: The file or function that it comes from, for messages.
        empty: Whether clients may be without examples.

    Raises:
        RequestError: If a position is out of range or no integer, belongs to two clients or twice to one, or a client
            has no example.
    """
    names = given.names
    if not names or len({*names}) < len(names):
        twice = next((n for n in names if names.count(n) > 1), None)
        raise RequestError(f"{where} has no clients" if twice is None else f"{where}: two clients are named {twice}")
    parts = [("training", given.train), *([("test", given.test)] if given.test is not None else [])]
    for split, owned in parts:
        if len(owned) != len(names):
            raise RequestError(f"{where} has {split} examples of {len(owned)} clients, but {len(names)} names")
        for name, rows in zip(names, owned, strict=True):
            _refuse_no_positions(rows, count, f"{where}: {split} examples of client {name}")
    if given.shared is not None:
        _refuse_no_positions(given.shared, count, f"{where}: test examples of all clients")
    _refuse_overlaps(given, count, where)
    held = [sum(len(o[k]) for _, o in parts) for k in range(len(names))]
    if (idle := [name for name, n in zip(names, held, strict=True) if n == 0]) and not empty:
        more = f" and {len(idle) - 3} more" if len(idle) > 3 else ""
        raise RequestError(f"{where}: without examples: {', '.join(idle[:3])}{more}; remove these clients")
    return Given(
        names,
        [np.sort(r).astype(np.int64) for r in given.train],
        None if given.test is None else [np.sort(r).astype(np.int64) for r in given.test],
        None if given.shared is None else np.sort(given.shared).astype(np.int64),
    )


def _refuse_no_positions(rows: np.ndarray, count: int, what: str) -> None:
    if not isinstance(rows, np.ndarray) or rows.ndim != 1 or (len(rows) and rows.dtype.kind not in "iu"):
        got = f"{rows.dtype} {list(rows.shape)}" if isinstance(rows, np.ndarray) else type(rows).__name__
        raise RequestError(f"{what} must be integers, one per example, got {got}")
    if len(rows) and (rows.min() < 0 or rows.max() >= count):
        wrong = rows[(rows < 0) | (rows >= count)][0]
        raise RequestError(f"{what}: {wrong} is not among the {count} examples of the source, 0 to {count - 1}")


def _refuse_overlaps(given: Given, count: int, where: str) -> None:
    """Refuse a position that two clients have, or one client twice; the names are in the message."""
    lists = [*given.train, *(given.test or []), *([] if given.shared is None else [given.shared])]
    named = [*given.names] * (1 if given.test is None else 2) + ["the test examples of all clients"]
    if (np.bincount(np.concatenate(lists).astype(np.int64), minlength=count) < 2).all():
        return
    rows = np.concatenate(lists).astype(np.int64)
    holder = np.repeat(np.arange(len(lists)), [len(r) for r in lists])
    order = np.argsort(rows, kind="stable")
    at = int(np.flatnonzero(np.diff(rows[order]) == 0)[0])
    first, second = (named[holder[order[i]]] for i in (at, at + 1))
    both = f"twice to {first}" if first == second else f"to {first} and to {second}"
    raise RequestError(f"{where}: example {rows[order[at]]} belongs {both}; every example has at most one place")
