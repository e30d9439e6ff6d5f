"""Partitions that are given by indices, in files or by functions of the user's own; they are checked before use.

A file is of fedbench's own form, plain lists, a table, or the ``data.json`` of FLGo (``BuiltinClassPipe.save_task``).
What flwr-datasets has is a dictionary from a partition's number to its indices, which JSON can hold as it is.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedbench.core.errors import RequestError, shown
from fedbench.core.files import reading, user_path
from fedbench.data.examples import numbered

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
    """Return the partition with ascending positions.

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
    if not names:
        raise RequestError(f"{where} has no clients")
    repeated = [name for name, times in Counter(names).items() if times > 1]
    if repeated:
        raise RequestError(f"{where}: two clients are named {repeated[0]}")
    tests = [] if given.test is None else given.test
    for lists in (given.train, tests or given.train):
        if len(lists) != len(names):
            raise RequestError(f"{where} has examples of {len(lists)} clients, but {len(names)} names")

    owned = [*zip(names, given.train, strict=True), *zip(names, tests, strict=False)]
    if given.shared is not None:
        owned.append(("all clients", given.shared))
    for name, rows in owned:
        _check_rows(rows, count, f"{where}: ", name)
    lengths = [len(rows) for _, rows in owned]
    positions = np.concatenate([rows for _, rows in owned]).astype(np.int64)
    places = np.repeat(np.arange(len(owned)), lengths)
    order = np.argsort(positions, kind="stable")
    twice = np.flatnonzero(np.diff(positions[order]) == 0)
    if len(twice):
        first, second = order[twice[0] : twice[0] + 2]
        owners = [owned[places[first]][0], owned[places[second]][0]]
        both = f"twice to {owners[0]}" if owners[0] == owners[1] else f"to {owners[0]} and to {owners[1]}"
        raise RequestError(f"{where}: example {positions[first]} belongs {both}; every example has at most one place")
    idle = {*names} - {name for name, rows in owned if len(rows)}
    if idle and not empty:
        raise RequestError(f"{where}: without examples: {shown(sorted(idle))}; remove these clients")
    return Given(
        names,
        [_ascending(rows) for rows in given.train],
        None if given.test is None else [_ascending(rows) for rows in given.test],
        None if given.shared is None else _ascending(given.shared),
    )


def _check_rows(rows: Any, count: int, where: str, name: str) -> None:
    """Check that the examples of a client are positions among ``count`` examples."""
    if not isinstance(rows, np.ndarray) or rows.ndim != 1 or (len(rows) and rows.dtype.kind not in "iu"):
        got = f"{rows.dtype} {list(rows.shape)}" if isinstance(rows, np.ndarray) else type(rows).__name__
        raise RequestError(f"{where}the examples of {name} must be integers, one per example, got {got}")
    wrong = rows[(rows < 0) | (rows >= count)]
    if len(wrong):
        raise RequestError(f"{where}{wrong[0]} of {name} is not among the {count} examples of the source, from 0")


def _ascending(rows: np.ndarray) -> np.ndarray:
    return np.sort(rows).astype(np.int64)


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
        content = _read_table(path) if path.suffix == ".parquet" else json.loads(path.read_text(encoding="utf-8"))
        given = _given(content)
        "".join(given.names).encode()  # without lone surrogates
    expected = content.get("examples") if isinstance(content, Mapping) and "clients" in content else None
    if expected not in (None, len(y)):
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
    clients: dict[str, Any] = {}
    for k, name in enumerate(given.names):
        train = given.train[k].tolist()
        clients[name] = train if given.test is None else {"train": train, "test": given.test[k].tolist()}
    content = {"data": data, "examples": examples, "clients": clients}
    if given.shared is not None:
        content["shared_test"] = given.shared.tolist()
    path.write_text(json.dumps(content) + "\n", encoding="utf-8")


def _read_table(path: Path) -> dict[str, Any]:
    """Return a table of one row per example as {client: indices}, in the order of the rows."""
    import pandas as pd  # takes half a second, and most runs read no table

    table = pd.read_parquet(path)
    if not {"client", "index"} <= {*table}:
        raise ValueError(f"it has the columns {', '.join(map(str, table))}; needed are client and index")
    if "split" not in table:
        return {str(name): rows["index"].to_numpy() for name, rows in table.groupby("client", sort=False)}
    unknown = {*map(str, table["split"])} - {"train", "test"}
    if unknown:
        raise ValueError(f"split is {min(unknown)!r} in a row; it must be train or test")
    clients: dict[str, Any] = {}
    for name, rows in table.groupby("client", sort=False):
        clients[str(name)] = {split: rows["index"][rows["split"] == split].to_numpy() for split in ("train", "test")}
    return clients


def _given(content: Any) -> Given:
    """Return the partition that lists and dictionaries stand for."""
    if isinstance(content, list):
        content = dict(zip(numbered("client", len(content)), content, strict=True))
    if not isinstance(content, Mapping):
        raise ValueError(f"got {type(content).__name__}")
    if "client_names" in content:  # FLGo
        content = {name: content[name]["data"] for name in content["client_names"]}
    elif "clients" in content:  # fedbench
        given = _given(content["clients"])
        return given._replace(shared=_positions(content["shared_test"])) if "shared_test" in content else given
    elif content.keys() == {"train", "test"}:
        train, test = _given(content["train"]), _given(content["test"])
        if {*train.names} != {*test.names}:
            raise ValueError("train and test list other clients")
        rows = dict(zip(test.names, test.train, strict=True))
        return train._replace(test=[rows[name] for name in train.names])

    names = tuple(map(str, content))
    halves = [name for name, rows in content.items() if isinstance(rows, Mapping)]
    if not halves:
        return Given(names, [_positions(rows) for rows in content.values()])
    for name, rows in content.items():
        if not isinstance(rows, Mapping) or not {"train", "test"} <= rows.keys():
            raise ValueError(f"client {name} needs train and test, as client {halves[0]} has one of them")
    train_rows = [_positions(rows["train"]) for rows in content.values()]
    return Given(names, train_rows, [_positions(rows["test"]) for rows in content.values()])


def _positions(values: Any) -> np.ndarray:
    """Return a list as an array, of integers if it is empty."""
    rows = np.asarray(values)
    return rows if rows.size else rows.astype(np.int64)
