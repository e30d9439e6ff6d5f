"""From examples and a partition to a federated data set."""

from __future__ import annotations

import numpy as np
import torch

from fedbench.data.examples import Examples
from fedbench.data.federated import FederatedDataset, Rows
from fedbench.data.partition import Partition
from fedbench.errors import RequestError

_PARTITION, _SPLIT, _CHOICE = range(3)  # what a generator is for, beside the data seed


def assemble(
    examples: Examples,
    *,
    partition: Partition | None,
    clients: int | None,
    split: float,
    local_test: str,
    seed: int,
) -> FederatedDataset:
    """Give every client its training and test examples.

    Args:
        examples: from a source.
        partition: who owns what, for examples without owners.
        clients: how many clients; None takes all that a source has, fewer are chosen at random.
        split: share of a client's examples that it trains on.
        local_test: "split" cuts each client's examples by ``split``; "official" deals the test examples the source sets
            apart in the proportions, class by class, of the client's training examples. Where owners are given and the
            source sets test examples apart, each client keeps its own. "central" tests every client on all test
            examples: those set apart, and where owners are given those of all clients.
        seed: of the partition, the split and the choice of clients; independent of the run's.

    Raises:
        RequestError: if the request does not fit the examples.
    """
    if examples.owner is not None:
        train, test, names = _natural(examples, clients, split, local_test, seed)
    else:
        if partition is None or clients is None:
            raise RequestError("these examples have no owners: data.partition and data.clients must be set")
        train, test = _partitioned(examples, partition, clients, split, local_test, seed)
        names = tuple(f"client_{k:0{len(str(clients - 1))}d}" for k in range(clients))
    if local_test == "central":
        test = [np.unique(np.concatenate(test))] * len(train)
    notes = _left_out(examples, train, test) if examples.owner is None else ()
    if not any(len(t) for t in train):
        raise RequestError(f"no client has a training example with data.split={split:g}; raise it")
    mean, std = examples.mean, examples.std
    if mean is None and examples.x.dtype == np.uint8 and examples.x.ndim > 2:  # images: 0 to 1
        mean, std = (0.0,) * examples.x.shape[1], (1.0,) * examples.x.shape[1]
    scale = [None if v is None else torch.tensor(v, dtype=torch.float64) for v in (mean, std)]
    return FederatedDataset(
        x=torch.from_numpy(np.ascontiguousarray(examples.x)),
        y=torch.from_numpy(examples.y.astype(np.int64)),
        train=Rows.of(train),
        test=Rows.of(test),
        names=names,
        classes=examples.classes,
        mean=scale[0],
        std=scale[1],
        sources=(*examples.sources, *notes),
        vocabulary=examples.vocabulary,
        central=local_test == "central",
    )


def _left_out(examples: Examples, train: list[np.ndarray], test: list[np.ndarray]) -> tuple[str, ...]:
    """Return a line on the examples that nobody has been given, if there are such."""
    idle = np.ones(len(examples.y), dtype=bool)
    idle[np.concatenate([*train, *test])] = False
    apart = examples.held_out if examples.held_out is not None else np.zeros_like(idle)
    counts = {"by the partition": (idle & ~apart).sum(), "of the test examples set apart": (idle & apart).sum()}
    said = [f"{n} {what}" for what, n in counts.items() if n]
    return (f"left out: {', '.join(said)}",) if said else ()


def _natural(
    examples: Examples, clients: int | None, split: float, local_test: str, seed: int
) -> tuple[list[np.ndarray], list[np.ndarray], tuple[str, ...]]:
    count = len(examples.names)
    if clients is not None and clients > count:
        raise RequestError(f"data.clients must be at most {count}, the clients of this source; got {clients}")
    chosen = np.arange(count)
    if clients is not None and clients < count:
        chosen = np.sort(np.random.default_rng([seed, _CHOICE]).choice(count, clients, replace=False))
    assert examples.owner is not None
    order = np.argsort(examples.owner, kind="stable")
    bounds = np.searchsorted(examples.owner[order], np.arange(count + 1))
    owned = [order[bounds[k] : bounds[k + 1]] for k in chosen]
    if examples.held_out is not None:
        held_out = examples.held_out
        train, test = [o[~held_out[o]] for o in owned], [o[held_out[o]] for o in owned]
    elif local_test == "official":
        raise RequestError("data.local_test=official needs a source with test examples; use data.local_test=split")
    else:
        train, test = _split(owned, split, seed)
    return train, test, tuple(examples.names[k] for k in chosen)


def _partitioned(
    examples: Examples, partition: Partition, clients: int, split: float, local_test: str, seed: int
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    apart = examples.held_out if examples.held_out is not None else np.zeros(len(examples.y), dtype=bool)
    rows = np.flatnonzero(~apart)
    rng = np.random.default_rng([seed, _PARTITION])
    owned = [np.sort(rows[part]) for part in partition(examples.y[rows], clients, rng)]
    if local_test == "split":
        return _split(owned, split, seed)
    if not apart.any():
        raise RequestError(f"data.local_test={local_test} needs a source with test examples; use data.local_test=split")
    if local_test == "central":
        return owned, [np.flatnonzero(apart)]
    return owned, _in_proportion(examples.y, owned, np.flatnonzero(apart), np.random.default_rng([seed, _SPLIT]))


def _split(owned: list[np.ndarray], split: float, seed: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Cut each client's examples at random into int(split n) for training and the rest, both in stored order."""
    rng = np.random.default_rng([seed, _SPLIT])
    train, test = [], []
    for rows in owned:
        shuffled = rng.permutation(rows)
        cut = int(split * len(rows) + 1e-9)  # 0.7 * 10 is a little less than 7
        train.append(np.sort(shuffled[:cut]))
        test.append(np.sort(shuffled[cut:]))
    return train, test


def _in_proportion(
    y: np.ndarray, owned: list[np.ndarray], apart: np.ndarray, rng: np.random.Generator
) -> list[np.ndarray]:
    """Deal the rows ``apart`` so that client k gets its share of a class's training examples of that class."""
    classes = int(y.max()) + 1
    counts = np.stack([np.bincount(y[rows], minlength=classes) for rows in owned])  # [N, classes]
    parts: list[list[np.ndarray]] = [[] for _ in owned]
    for c in np.unique(y[apart]):
        members = rng.permutation(apart[y[apart] == c])
        total = counts[:, c].sum()
        if total:
            cuts = np.rint(np.cumsum(counts[:, c])[:-1] / total * len(members)).astype(np.int64)
            for k, part in enumerate(np.split(members, cuts)):
                parts[k].append(part)
    return [np.sort(np.concatenate([*p, np.empty(0, dtype=np.int64)])) for p in parts]
