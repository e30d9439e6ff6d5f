"""Partitions that are given by indices, in files or by functions of the user's own; they are checked before use.

A file is of fedbench's own form, plain lists, a table, or the ``data.json`` of FLGo (``BuiltinClassPipe.save_task``).
What flwr-datasets has is a dictionary from a partition's number to its indices, which JSON can hold as it is.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedbench.core.errors import RequestError
from fedbench.core.files import reading, user_path

_FORMS = "a list of lists, {client: [indices]}, or {client: {train: [indices], test: [indices]}}"


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
    names, train, test = given.names, list(given.train), list(given.test or [])
    if not names or len({*names}) < len(names):
        twice = next((n for n in names if names.count(n) > 1), None)
        raise RequestError(f"{where} has no clients" if twice is None else f"{where}: two clients are named {twice}")
    for owned in (train, test) if given.test is not None else (train,):
        if len(owned) != len(names):
            raise RequestError(f"{where} has examples of {len(owned)} clients, but {len(names)} names")
    owners = [*names, *names[: len(test)]]
    lists = [*train, *test]
    if given.shared is not None:
        owners, lists = [*owners, "all clients"], [*lists, given.shared]
    for name, rows in zip(owners, lists, strict=True):
        if not isinstance(rows, np.ndarray) or rows.ndim != 1 or (len(rows) and rows.dtype.kind not in "iu"):
            got = f"{rows.dtype} {list(rows.shape)}" if isinstance(rows, np.ndarray) else type(rows).__name__
            raise RequestError(f"{where}: the examples of {name} must be integers, one per example, got {got}")
        if len(wrong := rows[(rows < 0) | (rows >= count)]):
            raise RequestError(f"{where}: {wrong[0]} of {name} is not among the {count} examples of the source, from 0")
    owned_rows = np.concatenate(lists).astype(np.int64)
    held = np.bincount(owned_rows, minlength=count)
    if (held > 1).any():
        row = int(np.argmax(held > 1))
        first, second = [name for name, rows in zip(owners, lists, strict=True) for r in rows if r == row][:2]
        both = f"twice to {first}" if first == second else f"to {first} and to {second}"
        raise RequestError(f"{where}: example {row} belongs {both}; every example has at most one place")
    idle = [name for k, name in enumerate(names) if not len(train[k]) and not (test and len(test[k]))]
    if idle and not empty:
        more = f" and {len(idle) - 3} more" if len(idle) > 3 else ""
        raise RequestError(f"{where}: without examples: {', '.join(idle[:3])}{more}; remove these clients")
    ascending = [np.sort(rows).astype(np.int64) for rows in lists]
    train, test = ascending[: len(names)], ascending[len(names) : len(names) + len(test)]
    return Given(names, train, None if given.test is None else test, None if given.shared is None else ascending[-1])


def indices(y: np.ndarray, held_out: np.ndarray, *, file: str) -> Given:
    """Give every client the examples that a file lists.

    Positions count the examples of the source in stored order, from 0: the official training examples first, then the
    official test examples. So indices into a training set, as FLGo and flwr-datasets have, are used as they are.

    Args:
        y: Labels of all examples of the source, [T, ...].
        held_out: True for its official test examples, [T].
        file: A .json file, or a .parquet table with the columns client, index and, for test examples, split.

    Raises:
        RequestError: If the file cannot be read, or a position in it is out of range, or has two owners.
    """
    path = user_path("data.partition.file", file)
    fault = "of data.partition.file cannot be read as indices per client"
    with reading(path, fault, f"it must be a .json or .parquet file that holds {_FORMS}"):
        content = _from_table(path) if path.suffix == ".parquet" else json.loads(path.read_text(encoding="utf-8"))
        given = _given(content)
        "".join(given.names).encode()  # without lone surrogates
    expected = content.get("examples") if isinstance(content, Mapping) and "clients" in content else None
    if expected is not None and expected != len(y):
        raise RequestError(f"{path} divides {expected} examples, and this source has {len(y)}; use the same data set")
    return checked(given, len(y), str(path))


def write(path: Path, data: str, examples: int, given: Given) -> None:
    """Write a partition to a .json file that ``indices`` reads.

    Args:
        path: The file.
        data: Name of the data set, for readers of the file.
        examples: Number of examples of the source, which is compared when the file is read.
        given: The partition.

    Raises:
        RequestError: If the suffix is another one.
    """
    if path.suffix != ".json":
        raise RequestError(f"a partition is written to a .json file, got {path.name}")
    clients: dict[str, Any] = {name: rows.tolist() for name, rows in zip(given.names, given.train, strict=True)}
    if given.test is not None:
        tested = dict(zip(given.names, given.test, strict=True))
        clients = {name: {"train": rows, "test": tested[name].tolist()} for name, rows in clients.items()}
    shared = {} if given.shared is None else {"shared_test": given.shared.tolist()}
    tree = {"data": data, "examples": examples, "clients": clients, **shared}
    path.write_text(json.dumps(tree) + "\n", encoding="utf-8")


def _from_table(path: Path) -> dict[str, Any]:
    """A table of one row per example as {client: indices}, in the order of the rows."""
    import pandas as pd  # takes half a second, and most runs read no table

    table = pd.read_parquet(path)
    if not {"client", "index"} <= {*table}:
        raise ValueError(f"it has the columns {', '.join(map(str, table))}; needed are client and index")
    clients = {str(name): rows for name, rows in table.groupby("client", sort=False)}
    if "split" not in table:
        return {name: rows["index"].to_numpy() for name, rows in clients.items()}
    if other := set(table["split"]) - {"train", "test"}:
        raise ValueError(f"split is {sorted(map(str, other))[0]!r} in a row; it must be train or test")
    return {
        name: {split: rows["index"][rows["split"] == split].to_numpy() for split in ("train", "test")}
        for name, rows in clients.items()
    }


def _given(content: Any) -> Given:
    """The partition that lists and dictionaries stand for."""
    shared = None
    if isinstance(content, Mapping) and "client_names" in content:  # FLGo
        content = {name: content[name]["data"] for name in content["client_names"]}
    elif isinstance(content, Mapping) and "clients" in content:  # fedbench
        shared = _positions(content["shared_test"]) if "shared_test" in content else None
        content = content["clients"]
    elif isinstance(content, Mapping) and content.keys() == {"train", "test"}:
        train, test = _named(content["train"]), _named(content["test"])
        if train.keys() != test.keys():
            raise ValueError("train and test list other clients")
        content = {name: {"train": rows, "test": test[name]} for name, rows in train.items()}
    clients = _named(content)
    split = [name for name, rows in clients.items() if isinstance(rows, Mapping)]
    if not split:
        return Given(tuple(clients), [_positions(rows) for rows in clients.values()], None, shared)
    for name, rows in clients.items():
        if not isinstance(rows, Mapping) or {"train", "test"} - rows.keys():
            raise ValueError(f"client {name} needs train and test, as client {split[0]} has one of them")
    train_rows, test_rows = ([_positions(rows[key]) for rows in clients.values()] for key in ("train", "test"))
    return Given(tuple(clients), train_rows, test_rows, shared)


def _named(content: Any) -> dict[str, Any]:
    """The clients of a list or dictionary by name."""
    if isinstance(content, Mapping):
        return {str(name): rows for name, rows in content.items()}
    if not isinstance(content, list):
        raise ValueError(f"got {type(content).__name__}")
    width = len(str(len(content) - 1))
    return {f"client_{k:0{width}d}": rows for k, rows in enumerate(content)}


def _positions(values: Any) -> np.ndarray:
    rows = np.asarray(values)
    return rows.astype(np.int64) if not rows.size else rows
