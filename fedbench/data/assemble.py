"""Build a federated data set from examples and a partition."""

from __future__ import annotations

import numpy as np
import torch

from fedbench.core.errors import RequestError
from fedbench.core.randomness import DataPurpose, data_generator
from fedbench.data.dataset import FederatedDataset, Rows
from fedbench.data.examples import Examples
from fedbench.data.partitions.basic import Partition
from fedbench.data.partitions.given import Given

_MOST_TOKENS = 10_000_000  # more than any vocabulary has: larger numbers are no tokens


def assemble(
    examples: Examples,
    *,
    partition: Partition | None,
    clients: int | None,
    split: float,
    local_test: str,
    seed: int,
    test_clients: int | None = None,
    given: Given | None = None,
) -> FederatedDataset:
    """Give every client its training and test examples.

    Args:
        examples: Examples that a source returned.
        partition: Rule that assigns examples without owners to clients.
        clients: Number of clients; None takes all that a source has, a smaller number is chosen at random.
        split: Fraction of a client's examples that it trains on.
        local_test: "split" cuts each client's examples by ``split``; "official" assigns the official test examples,
            class by class in the proportions of the client's training examples, or to their owners where the source
            names them; "auto" is "official" in that last case and "split" otherwise. "central" tests every client on
            all test examples: the official ones, or those of all clients where owners are given. "others" trains on
            all examples of the clients and tests on all examples of ``test_clients`` other clients.
        test_clients: Number of clients to test on, chosen at random; for "others" only.
        seed: Random seed of the partition, the split and the choice of clients; independent of the run's.
        given: The examples of each client, in place of a partition and of owners that the source names.

    Raises:
        RequestError: If the request does not fit the examples.
    """
    whole = examples.owner is None or given is not None  # all clients of the source take part
    if (local_test == "others") != (test_clients is not None) or (local_test == "others" and whole):
        raise RequestError(
            "data.local_test=others needs data.test_clients=N, and the other way round, and a data set that assigns "
            "examples to clients itself, such as femnist"
        )
    if given is not None:
        train, test, names = _given(examples, given, clients, split, local_test, seed)
    elif examples.owner is not None:
        train, test, names = _natural(examples, clients, split, local_test, seed, test_clients or 0)
    else:
        if partition is None or clients is None:
            raise RequestError(
                "this data set is not divided among clients; type data/partition=iid data.clients=10, for example"
            )
        train, test = _partitioned(examples, partition, clients, split, local_test, seed)
        names = tuple(f"client_{k:0{len(str(clients - 1))}d}" for k in range(clients))
    central = local_test in ("central", "others") or (given is not None and given.shared is not None)
    notes = _notes(examples, train, test) if whole else ()
    if not len(train.index):
        remedy = "all examples are test examples" if examples.held_out is not None else "use a larger one"
        raise RequestError(f"no client has a training example with data.split={split:g}; {remedy}")
    mean, std = examples.mean, examples.std
    if mean is None and examples.x.dtype == np.uint8 and examples.x.ndim > 2:  # images: 0 to 1
        mean, std = (0.0,) * examples.x.shape[1], (1.0,) * examples.x.shape[1]
    scale = [None if v is None else torch.tensor(v, dtype=torch.float64) for v in (mean, std)]
    return FederatedDataset(
        x=torch.from_numpy(np.ascontiguousarray(examples.x)),
        y=torch.from_numpy(examples.y.astype(np.int64)),
        train=train,
        test=Rows.shared(np.sort(test.index.numpy()), len(names)) if central else test,
        names=names,
        classes=examples.classes,
        mean=scale[0],
        std=scale[1],
        sources=(*examples.sources, *notes),
        unofficial=examples.unofficial,
        tokens=_tokens(examples, scale[0] is not None),
        vectors=examples.vectors,
        central=central,
    )


def _tokens(examples: Examples, images: bool) -> int | None:
    if images or examples.x.dtype.kind == "f":
        return None
    if examples.tokens is not None:
        return examples.tokens
    low, high = int(examples.x.min(initial=0)), int(examples.x.max(initial=0))
    if low < 0 or high >= _MOST_TOKENS:
        raise RequestError(f"tokens must be integers from 0 to {_MOST_TOKENS - 1}, got {low} to {high}")
    return high + 1


def _notes(examples: Examples, train: Rows, test: Rows) -> tuple[str, ...]:
    """Notes on the examples that no client owns, and on training examples that several clients own."""
    own, tested = train.index.numpy(), test.index.numpy()
    idle = np.ones(len(examples.y), dtype=bool)
    idle[own], idle[tested] = False, False
    apart = (idle & examples.tested).sum()
    counts = {"by the partition": idle.sum() - apart, "of the test examples set apart": apart}
    notes = [f"left out: {', '.join(f'{n} {what}' for what, n in counts.items() if n)}"] if idle.any() else []
    distinct = np.unique(own)
    if len(own) > len(distinct):
        notes.append(
            f"shared by clients: {len(own)} training examples, {len(distinct)} of them distinct; "
            f"{np.isin(tested, distinct).sum()} test examples of a client are training examples of some client"
        )
    return tuple(notes)


def _natural(
    examples: Examples, clients: int | None, split: float, local_test: str, seed: int, test_clients: int
) -> tuple[Rows, Rows, tuple[str, ...]]:
    assert examples.owner is not None
    count = len(examples.names)
    chosen, others = _chosen(count, clients, test_clients, seed)
    order, sizes = np.argsort(examples.owner, kind="stable"), np.bincount(examples.owner, minlength=count)
    owned, apart = (Rows.cut(order[np.isin(examples.owner[order], k)], sizes[k]) for k in (chosen, others))
    if local_test == "others":
        train, test = owned, apart
    elif examples.held_out is not None:
        if local_test == "split":
            raise RequestError(
                "data.local_test=split is not available: this data set already has test examples for every client; "
                "use auto, official, central or others"
            )
        train, test = (owned.where(mask) for mask in (~examples.held_out, examples.held_out))
    elif local_test == "official":
        raise RequestError("data.local_test=official needs a data set with test examples; use data.local_test=split")
    else:
        train, test = _split(owned, split, seed)
    return train, test, tuple(examples.names[k] for k in chosen)


def _chosen(count: int, clients: int | None, test_clients: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """The clients, of ``count``, that train and the others that are tested on, both in ascending order."""
    wanted = count - test_clients if clients is None else clients
    if wanted + test_clients > count or wanted < 1:
        others = f", of which data.test_clients takes {test_clients}" if test_clients else ""
        raise RequestError(
            f"data.clients must be between 1 and {count - test_clients} (this data set has {count} clients{others}), "
            f"got {wanted}"
        )
    if wanted + test_clients == count and not test_clients:
        return np.arange(count), np.arange(0)
    drawn = data_generator(seed, DataPurpose.CLIENTS).choice(count, wanted + test_clients, replace=False)
    return np.sort(drawn[:wanted]), np.sort(drawn[wanted:])


def _partitioned(
    examples: Examples, partition: Partition, clients: int, split: float, local_test: str, seed: int
) -> tuple[Rows, Rows]:
    rows = np.flatnonzero(~examples.tested)
    rng = data_generator(seed, DataPurpose.PARTITION)
    owned = Rows.of([np.sort(rows[part]) for part in partition(examples.y[rows], clients, rng)])
    if local_test in ("auto", "split"):
        return _split(owned, split, seed)
    return _with_official_tests(examples, owned, local_test, seed)


def _with_official_tests(examples: Examples, owned: Rows, local_test: str, seed: int) -> tuple[Rows, Rows]:
    if not examples.tested.any():
        raise RequestError(
            f"data.local_test={local_test} needs a data set with test examples; use data.local_test=split"
        )
    tested = np.flatnonzero(examples.tested)
    if local_test == "central":
        return owned, Rows.of([tested])
    dealt = _in_proportion(examples.y, owned.split(), tested, data_generator(seed, DataPurpose.SPLIT))
    return owned, Rows.of(dealt)


def _given(
    examples: Examples, given: Given, clients: int | None, split: float, local_test: str, seed: int
) -> tuple[Rows, Rows, tuple[str, ...]]:
    count, train = len(given.names), Rows.of(given.train)
    if clients is not None and clients != count:
        raise RequestError(f"data.clients={clients}, but the partition has {count} clients; type data.clients={count}")
    if given.test is not None or given.shared is not None:
        if local_test != "auto":
            raise RequestError(
                f"data.local_test={local_test}, but the partition has test examples for its clients; use auto"
            )
        shared = [] if given.shared is None else [given.shared]
        return train, Rows.of(shared if given.test is None else given.test), given.names
    if local_test in ("auto", "split"):
        return *_split(train, split, seed), given.names
    trained = [name for name, rows in zip(given.names, given.train, strict=True) if examples.tested[rows].any()]
    if trained:
        raise RequestError(
            f"data.local_test={local_test} tests on the official test examples, and the partition gives some of "
            f"them to client {trained[0]}; use data.local_test=split"
        )
    return *_with_official_tests(examples, train, local_test, seed), given.names


def _split(owned: Rows, split: float, seed: int) -> tuple[Rows, Rows]:
    """Split each client's examples at random: int(split n) train, the rest test, both in stored order."""
    rng = data_generator(seed, DataPurpose.SPLIT)
    cut = (split * owned.counts + 1e-9).astype(np.int64)  # 0.7 * 10 is a little less than 7
    return owned.divided(cut, lambda client, rows: rng.shuffle(rows))


def _in_proportion(
    y: np.ndarray, owned: list[np.ndarray], test_rows: np.ndarray, rng: np.random.Generator
) -> list[np.ndarray]:
    """Deal the rows ``test_rows`` so that client k gets the same share of a class as of its training examples."""
    classes = int(y.max()) + 1
    counts = np.stack([np.bincount(y[rows], minlength=classes) for rows in owned])  # [N, classes]
    parts: list[list[np.ndarray]] = [[] for _ in owned]
    for c in np.unique(y[test_rows]):
        members = rng.permutation(test_rows[y[test_rows] == c])
        total = counts[:, c].sum()
        if total:
            cuts = np.rint(np.cumsum(counts[:, c])[:-1] / total * len(members)).astype(np.int64)
            for k, part in enumerate(np.split(members, cuts)):
                parts[k].append(part)
    return [np.sort(np.concatenate([*p, np.empty(0, dtype=np.int64)])) for p in parts]
