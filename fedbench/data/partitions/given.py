"""Partitions given by indices, in files or by users' functions, and checked before use.

A file has fedbench's own format, contains plain lists, or is the ``data.json`` of FLGo
(``BuiltinClassPipe.save_task``). The partitions of flwr-datasets are dictionaries from partition
number to indices, which can be stored in JSON unchanged.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedbench.core.errors import RequestError, shown
from fedbench.core.files import reading, user_path
from fedbench.data.examples import numbered

_FORMS = (
    "it must be a .json file that holds a list of lists, {client: [indices]}, or {client: {train: "
    "[indices], test: [indices]}}"
)


class Given(NamedTuple):
    """The examples of every client, as positions in the source, from 0 in stored order.

    Attributes:
        names: [N] names of the clients.
        train: Training examples of each client; all its examples if there is no ``test``.
        test: Test examples of each client. If None, ``data.local_test`` determines them.
        shared: Test examples shared by all clients, or None if there are none.
    """

    names: tuple[str, ...]
    train: Sequence[np.ndarray]
    test: Sequence[np.ndarray] | None = None
    shared: np.ndarray | None = None


def checked(
    given: Given,
    count: int,
    where: str,
    empty: bool = False,
) -> Given:
    """Return the partition with ascending positions.

    Args:
        given: The partition.
        count: Number of examples in the source.
        where: The file or function that provides the partition, for messages.
        empty: Whether clients may have no examples.

    Raises:
        RequestError: If a position is out of range or not an integer, or is listed twice, or a
            client has no examples.
    """
    names = given.names
    if not names or len({*names}) < len(names):
        raise RequestError(f"{where} must have clients, and a different name for each")
    lengths = {len(given.train), len(given.test or names)}
    if lengths != {len(names)}:
        raise RequestError(
            f"{where} must have examples of {len(names)} clients, as many as it has names"
        )

    def positions_of(parts: Sequence[np.ndarray]) -> list[np.ndarray]:
        return [
            _positions(rows, count, f"{where}: the examples of {name}")
            for name, rows in zip(names, parts, strict=True)
        ]

    if given.test and given.shared is not None:
        raise RequestError(
            f"{where} has test examples of each client and shared ones; remove one of the two"
        )
    train = positions_of(given.train)
    test = positions_of(given.test) if given.test else []
    sizes = np.array([len(rows) for rows in train])
    if test:
        sizes += [len(rows) for rows in test]
    idle = [names[k] for k in np.flatnonzero(sizes == 0)]
    if idle and not empty:
        raise RequestError(f"{where}: without examples: {shown(idle)}; remove these clients")

    owned = train + test
    shared = given.shared
    if shared is not None:
        shared = _positions(shared, count, f"{where}: the shared test examples")
        owned.append(shared)
    positions, times = np.unique(np.concatenate(owned), return_counts=True)
    repeated = positions[times > 1]
    if len(repeated):
        raise RequestError(
            f"{where}: example {repeated[0]} is listed twice; every example has at most one place"
        )
    return Given(names, train, test or None, shared)


def _positions(values: Any, count: int, place: str) -> np.ndarray:
    """Return positions among ``count`` examples in ascending order, int64.

    Raises:
        RequestError: If the values are not valid positions; the message begins with ``place``.
    """
    with reading(place):
        dtype = None if len(values) else np.int64
        positions = np.sort(np.asarray(values, dtype=dtype))
    if positions.ndim != 1 or positions.dtype.kind not in "iu":
        raise RequestError(
            f"{place} must be integers, one per example, "
            f"got {positions.dtype} {list(positions.shape)}"
        )
    wrong = positions[(positions < 0) | (positions >= count)]
    if len(wrong):
        raise RequestError(
            f"{place}: {wrong[0]} is not among the {count} examples of the source, from 0"
        )
    return positions.astype(np.int64)


def indices(
    y: np.ndarray,
    held_out: np.ndarray,
    *,
    file: str,
) -> Given:
    """Give every client the examples listed in a file.

    Positions count the examples of the source in stored order, from 0: the official training
    examples first, then the official test examples. Indices into a training set, as in FLGo and
    flwr-datasets, can therefore be used unchanged.

    Args:
        y: Labels of all examples in the source, [T, ...].
        held_out: True for the official test examples, [T].
        file: The .json file.

    Raises:
        RequestError: If the file cannot be read, or a position in it is out of range or has two
            owners.
    """
    path = user_path("data.partition.file", file)
    fault = "of data.partition.file cannot be read as indices per client"
    with reading(path, fault, _FORMS):
        given = _given(json.loads(path.read_bytes()), len(y))
        "".join(given.names).encode()  # reject lone surrogates
    return checked(given, len(y), str(path))


def write(
    path: Path,
    data: str,
    examples: int,
    given: Given,
) -> None:
    """Write a partition to a file that ``indices`` can read.

    Args:
        path: The file.
        data: Name of the data set, for human readers.
        examples: Number of examples in the source, which is checked when the file is read.
        given: The partition.
    """
    clients: dict[str, Any] = {}
    for k, name in enumerate(given.names):
        train = given.train[k].tolist()
        clients[name] = train
        if given.test is not None:
            test = given.test[k].tolist()
            clients[name] = {"train": train, "test": test}
    content = {"data": data, "examples": examples, "clients": clients}
    if given.shared is not None:
        content["shared_test"] = given.shared.tolist()
    path.write_text(json.dumps(content) + "\n", encoding="utf-8")


def _given(content: Any, count: int) -> Given:
    """Return the partition of ``count`` examples described by lists and dictionaries."""
    if isinstance(content, list):
        names = numbered("client", len(content))
        content = dict(zip(names, content, strict=True))
    if not isinstance(content, Mapping):
        raise ValueError(f"got {type(content).__name__}")
    if "client_names" in content:  # FLGo
        content = {name: content[name]["data"] for name in content["client_names"]}
    elif "clients" in content:  # fedbench
        expected = content.get("examples", count)
        if expected != count:
            raise ValueError(
                f"it divides {expected} examples, and this source has {count}; use the same data "
                "set"
            )
        given = _given(content["clients"], count)
        return given._replace(shared=content.get("shared_test"))

    names = tuple(map(str, content))
    owned = [*content.values()]
    if not any(isinstance(rows, Mapping) for rows in owned):
        return Given(names, owned)
    train = [rows["train"] for rows in owned]
    test = [rows["test"] for rows in owned]
    return Given(names, train, test)
