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

    def read(lists: Sequence[Any]) -> list[np.ndarray]:
        if len(lists) != len(names):
            raise RequestError(f"{where} has examples of {len(lists)} clients, but {len(names)} names")
        places = [f"{where}: the examples of {name}" for name in names]
        return [_positions(rows, count, place) for place, rows in zip(places, lists, strict=True)]

    train = read(given.train)
    test = [] if given.test is None else read(given.test)
    shared = []
    if given.shared is not None:
        shared.append(_positions(given.shared, count, f"{where}: the shared test examples"))
    lists = [*train, *test, *shared]
    owners = [*names, *(names if test else ()), "all clients"]  # of each list

    positions = np.concatenate(lists)
    places = np.repeat(np.arange(len(lists)), [len(rows) for rows in lists])
    order = np.argsort(positions, kind="stable")
    twice = np.flatnonzero(np.diff(positions[order]) == 0)
    if len(twice):
        first, second = order[twice[0] : twice[0] + 2]
        raise RequestError(
            f"{where}: example {positions[first]} is listed twice, for {owners[places[first]]} and for "
            f"{owners[places[second]]}; every example has at most one place"
        )
    owning = {owner for owner, rows in zip(owners, lists, strict=False) if len(rows)}
    idle = [name for name in names if name not in owning]
    if idle and not empty:
        raise RequestError(f"{where}: without examples: {shown(idle)}; remove these clients")
    return Given(names, train, test or None, shared[0] if shared else None)


def _positions(values: Any, count: int, place: str) -> np.ndarray:
    """Return positions among ``count`` examples in ascending order, int64.

    Raises:
        RequestError: If they are no such positions; the message begins with ``place``.
    """
    with reading(place):
        positions = np.sort(np.asarray(values, dtype=None if len(values) else np.int64))
    if positions.ndim != 1 or positions.dtype.kind not in "iu":
        got = f"{positions.dtype} {list(positions.shape)}"
        raise RequestError(f"{place} must be integers, one per example, got {got}")
    wrong = positions[(positions < 0) | (positions >= count)]
    if len(wrong):
        raise RequestError(f"{place}: {wrong[0]} is not among the {count} examples of the source, from 0")
    return positions.astype(np.int64)


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
        content = _read_table(path) if path.suffix == ".parquet" else json.loads(path.read_bytes())
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
        clients[name] = given.train[k].tolist()
        if given.test is not None:
            clients[name] = {"train": clients[name], "test": given.test[k].tolist()}
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
    split = table.get("split")
    if split is not None and not split.isin(["train", "test"]).all():
        raise ValueError("split must be train or test in every row")
    clients: dict[str, Any] = {}
    for name, rows in table.groupby("client", sort=False):
        index = rows["index"]
        if split is None:
            clients[str(name)] = index.to_numpy()
        else:
            clients[str(name)] = {half: index[rows["split"] == half].to_numpy() for half in ("train", "test")}
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
        return _given(content["clients"])._replace(shared=content.get("shared_test"))

    names = tuple(map(str, content))
    halves = [name for name, rows in content.items() if isinstance(rows, Mapping)]
    if not halves:
        return Given(names, [*content.values()])
    for name, rows in content.items():
        if not isinstance(rows, Mapping) or not {"train", "test"} <= rows.keys():
            raise ValueError(f"client {name} needs train and test, as client {halves[0]} has one of them")
    train_rows = [rows["train"] for rows in content.values()]
    return Given(names, train_rows, [rows["test"] for rows in content.values()])
