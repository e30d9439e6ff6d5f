"""Partitions in files: fedbench's own form, plain lists, tables, and the files of FL-bench and FLGo.

The formats are those of public code: FL-bench's ``generate_data.py`` (``partition.pkl``) and FLGo's
``BuiltinClassPipe.save_task`` (``data.json``). What flwr-datasets has is a dictionary from a partition's number to
its indices, which JSON can hold as it is.
"""

from __future__ import annotations

import json
import pickle
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fedbench.core.errors import RequestError
from fedbench.core.files import replace_file, replacing
from fedbench.data.files.pickles import arrays_only
from fedbench.data.partitions.given import Given, checked

SUFFIXES = (".json", ".npz", ".parquet")
_PICKLES = (".pkl", ".pickle")
_FORMS = "a list of lists, {client: [indices]}, or {client: {train: [indices], test: [indices]}}"


def indices(y: np.ndarray, held_out: np.ndarray, *, file: str) -> Given:
    """Give every client the examples that a file lists.

    Positions count the examples of the source in stored order, from 0: the official training examples first, then the
    official test examples. So indices into a training set, as FLGo and flwr-datasets have, are used as they are.
    Validation examples of FL-bench (``val``) belong to no client.

    Args:
        y: Labels of all examples of the source, [T, ...].
        held_out: True for its official test examples, [T].
        file: A .json, .npz or .parquet file, or FL-bench's partition.pkl.

    Raises:
        RequestError: If the file cannot be read, or a position in it is out of range, or has two owners.
    """
    path = Path(str(file)).expanduser()
    if not path.is_file():
        raise RequestError(f"data.partition.file={file} does not exist; it must be a file with indices per client")
    try:
        content = _content(path)
        given = _given(content)
    except (OSError, ValueError, KeyError, TypeError, pickle.UnpicklingError, zipfile.BadZipFile) as error:
        if isinstance(error, RequestError):
            raise
        reason = str(error) if isinstance(error, ValueError | pickle.UnpicklingError) else repr(error)
        raise RequestError(f"{path} cannot be read as indices per client ({reason}); it must hold {_FORMS}") from error
    expected = content.get("examples") if isinstance(content, Mapping) and "clients" in content else None
    if expected is not None and expected != len(y):
        raise RequestError(f"{path} divides {expected} examples, and this source has {len(y)}; use the same data set")
    return checked(given, len(y), str(path))


def write(path: Path, data: str, examples: int, given: Given) -> None:
    """Write a partition to a .json, .npz or .parquet file that ``indices`` reads.

    Args:
        path: The file.
        data: Name of the data set, for readers of a JSON file.
        examples: Number of examples of the source, which is compared when a JSON file is read.
        given: The partition.

    Raises:
        RequestError: If the suffix is another one, or a table would have to hold test examples of all clients alike.
    """
    if path.suffix not in SUFFIXES:
        raise RequestError(f"a partition is written to a file with the suffix {', '.join(SUFFIXES)}, got {path.name}")
    if path.suffix == ".json":
        replace_file(path, json.dumps(_tree(data, examples, given)) + "\n")
        return
    if given.shared is not None:
        raise RequestError(f"all clients share their test examples, which only a .json file can say; got {path.name}")
    table = _table(given)
    if path.suffix == ".npz":
        with replacing(path) as part, part.open("wb") as file:
            np.savez_compressed(file, allow_pickle=False, **table, names=np.array(given.names))
        return
    import pandas as pd

    words = {"client": np.array(given.names, dtype=object)[table["client"]], "index": table["index"]}
    if given.test is not None:
        words["split"] = np.where(table["test"], "test", "train").astype(object)
    with replacing(path) as part:
        pd.DataFrame(words).to_parquet(part, index=False)


def _tree(data: str, examples: int, given: Given) -> dict[str, Any]:
    clients: dict[str, Any] = {name: rows.tolist() for name, rows in zip(given.names, given.train, strict=True)}
    if given.test is not None:
        tested = dict(zip(given.names, given.test, strict=True))
        clients = {name: {"train": rows, "test": tested[name].tolist()} for name, rows in clients.items()}
    shared = {} if given.shared is None else {"shared_test": given.shared.tolist()}
    return {"data": data, "examples": examples, "clients": clients, **shared}


def _table(given: Given) -> dict[str, np.ndarray]:
    """Return the partition as a table of one row per example: the number of its client, its index, and its split."""
    splits = [given.train, *([] if given.test is None else [given.test])]
    counts = [len(rows) for split in splits for rows in split]
    table = {
        "client": np.repeat(np.tile(np.arange(len(given.names)), len(splits)), counts),
        "index": np.concatenate([rows for split in splits for rows in split]),
    }
    if given.test is not None:
        table["test"] = np.repeat([False, True], [sum(map(len, split)) for split in splits])
    return table


def _content(path: Path) -> Any:
    """Return what a file holds: lists and dictionaries, whatever its format."""
    if path.suffix == ".json":
        return json.loads(path.read_text(encoding="utf-8"))
    if path.suffix in _PICKLES:
        return arrays_only(path.read_bytes())
    if path.suffix == ".npz":
        with np.load(path, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        return _from_table(arrays, arrays.pop("names", None)) if {"client", "index"} <= arrays.keys() else arrays
    if path.suffix == ".parquet":
        import pandas as pd

        table = pd.read_parquet(path)
        columns = {str(name): table[name].to_numpy() for name in table}
        if not {"client", "index"} <= columns.keys():
            raise ValueError(f"it has the columns {', '.join(columns)}; needed are client and index")
        if "split" in columns:
            columns["test"] = _tested(columns["split"])
        return _from_table(columns, None)
    raise RequestError(f"{path}: indices are read from {', '.join((*SUFFIXES, *_PICKLES))} files")


def _tested(split: np.ndarray) -> np.ndarray:
    known = {"train", "test"}
    if other := {*map(str, np.unique(split.astype(str)))} - known:
        raise ValueError(f"split is {sorted(other)[0]!r} in a row; it must be train or test")
    tested: np.ndarray = split.astype(str) == "test"
    return tested


def _from_table(columns: Mapping[str, np.ndarray], names: np.ndarray | None) -> dict[str, Any]:
    """Return a table of one row per example as {client: indices}, in the order of ``names`` or else of the rows."""
    client, index = columns["client"], columns["index"]
    if names is None:
        found, first = np.unique(client.astype(str), return_index=True)
        words = [str(found[k]) for k in np.argsort(first)]
        client = client.astype(str)
    else:
        words, client = [str(n) for n in names], np.array([str(names[k]) for k in client])
    rows = {word: client == word for word in words}
    if "test" not in columns:
        return {word: index[mine] for word, mine in rows.items()}
    test = columns["test"].astype(bool)
    return {word: {"train": index[mine & ~test], "test": index[mine & test]} for word, mine in rows.items()}


def _given(content: Any) -> Given:
    """Return the partition that lists and dictionaries stand for."""
    shared = None
    if isinstance(content, Mapping):
        content = {_word(k): v for k, v in content.items()}
        if "client_names" in content:  # FLGo
            content = {name: content[name]["data"] for name in content["client_names"]}
        elif "data_indices" in content:  # FL-bench
            content = content["data_indices"]
        elif "clients" in content:  # fedbench
            shared = _positions(content["shared_test"]) if "shared_test" in content else None
            content = content["clients"]
        elif content.keys() == {"train", "test"}:
            trained, tested = (dict(_named(content[k])) for k in ("train", "test"))
            if trained.keys() != tested.keys():
                raise ValueError("train and test list other clients")
            content = {name: {"train": rows, "test": tested[name]} for name, rows in trained.items()}
    clients = dict(_named(content))
    split = [name for name, rows in clients.items() if isinstance(rows, Mapping)]
    if split and len(split) < len(clients):
        whole = next(name for name in clients if name not in split)
        raise ValueError(f"client {split[0]} has train and test, and client {whole} a single list")
    if not split:
        return Given(tuple(clients), [_positions(rows) for rows in clients.values()], None, shared)
    for name, rows in clients.items():
        if missing := {"train", "test"} - {_word(k) for k in rows}:
            raise ValueError(f"client {name} has no {sorted(missing)[0]}")
    train, test = ([_positions(rows[k]) for rows in clients.values()] for k in ("train", "test"))
    return Given(tuple(clients), train, test, shared)


def _named(content: Any) -> Iterable[tuple[str, Any]]:
    """Return the clients of a list or dictionary with their names."""
    if isinstance(content, Mapping):
        return ((_word(k), v) for k, v in content.items())
    if not isinstance(content, list | tuple):
        raise ValueError(f"got {type(content).__name__}")
    width = len(str(len(content) - 1))
    return ((f"client_{k:0{width}d}", rows) for k, rows in enumerate(content))


def _positions(values: Any) -> np.ndarray:
    rows = np.asarray(values)
    return rows.astype(np.int64) if not rows.size else rows


def _word(key: Any) -> str:
    return key.decode() if isinstance(key, bytes) else str(key)
