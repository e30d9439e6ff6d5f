"""Partitions in files: fedbench's own form, plain lists, tables, and the file of FLGo.

The format of FLGo is that of its ``BuiltinClassPipe.save_task`` (``data.json``). What flwr-datasets has is a dictionary
from a partition's number to its indices, which JSON can hold as it is.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fedbench.core.errors import RequestError
from fedbench.data.partitions.given import Given, checked

_FORMS = "a list of lists, {client: [indices]}, or {client: {train: [indices], test: [indices]}}"


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
    path = Path(str(file)).expanduser()
    if not path.is_file():
        raise RequestError(f"data.partition.file={file} does not exist; it must be a file with indices per client")
    if path.suffix not in (".json", ".parquet"):
        raise RequestError(f"data.partition.file={file}: indices are read from .json and .parquet files")
    try:
        content = json.loads(path.read_text(encoding="utf-8")) if path.suffix == ".json" else _from_table(path)
        given = _given(content)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise RequestError(f"{path} cannot be read as indices per client ({error}); it must hold {_FORMS}") from error
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
