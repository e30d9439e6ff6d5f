"""Construction of a federated data set from examples and a partition."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from fedbench.core.errors import RequestError
from fedbench.core.randomness import DataPurpose, data_generator
from fedbench.data.dataset import FederatedDataset, Rows, share_of
from fedbench.data.examples import Examples, numbered
from fedbench.data.partitions.basic import Partition, class_pools, deal, sizes_of
from fedbench.data.partitions.given import Given

_MOST_TOKENS = 10_000_000  # larger than any vocabulary


def assemble(
    examples: Examples,
    *,
    partition: Partition | Given | None,
    clients: int | None,
    split: float,
    local_test: str,
    seed: int,
    test_clients: int | None = None,
) -> FederatedDataset:
    """Assign training and test examples to every client.

    Args:
        examples: Examples returned by a source.
        partition: Rule that assigns examples without owners to clients, or the examples of each
            client, which replace the owners named by the source.
        clients: Number of clients. If None, all clients of the source are used; a smaller number of
            clients is chosen at random.
        split: Fraction of each client's examples to train on.
        local_test: "split" divides each client's examples by ``split``. "official" assigns the
            official test examples to their owners if the source names them; otherwise it deals them
            class by class, in the proportions of each client's training examples. "auto" is
            "official" if the source names the owners of the official test examples, and "split"
            otherwise. "central" tests every client on all test examples: the official ones or, if
            the source names owners, the test examples of all clients. "others" trains on all
            examples of the clients and tests on all examples of ``test_clients`` other clients.
        seed: Random seed of the partition, the split and the choice of clients; independent of the
            run's seed.
        test_clients: Number of clients to test on, chosen at random; for "others" only.

    Raises:
        RequestError: If the request is incompatible with the examples.
    """
    natural = examples.owner is not None and not isinstance(partition, Given)
    fits = test_clients is None
    if local_test == "others":
        fits = test_clients is not None and natural
    if not fits:
        raise RequestError(
            "data.local_test=others needs data.test_clients=N, and the other way round, and a data "
            "set that assigns examples to clients itself, such as femnist"
        )
    needs_tests = local_test == "official" or (local_test == "central" and not natural)
    if needs_tests and not examples.tested.any():
        raise RequestError(
            f"data.local_test={local_test} needs a data set with test examples; use "
            "data.local_test=split"
        )

    central = local_test in ("central", "others")
    notes: list[str] = []
    if natural:
        chosen, others = _choose(len(examples.names), clients, test_clients or 0, seed)
        train, test = _natural(examples, chosen, others, split, local_test, seed)
        names = tuple(examples.names[k] for k in chosen)
    else:
        given = _given(examples, partition, clients, seed)
        train, test = _rows_of(examples, given, split, local_test, seed)
        names = given.names
        central = central or given.shared is not None
        notes = _notes(examples, train, test)
    if not len(train.index):
        raise RequestError(f"no client has a training example with data.split={split:g}")

    if central:
        tested = np.sort(test.index.numpy())
        test = Rows.shared(tested, len(names))
    return FederatedDataset(
        x=torch.from_numpy(np.ascontiguousarray(examples.x)),
        y=torch.from_numpy(examples.y.astype(np.int64)),
        train=train,
        test=test,
        names=names,
        classes=examples.classes,
        sources=(*examples.sources, *notes),
        unofficial=examples.unofficial,
        vectors=examples.vectors,
        central=central,
        **_units(examples),
    )


def _units(examples: Examples) -> dict[str, Any]:
    """Return ``mean`` and ``std`` for images, ``tokens`` for sequences, or no fields."""
    x = examples.x
    if x.dtype == np.uint8 and x.ndim > 2:
        return {
            "mean": _per_channel("mean", examples.mean, x.shape[1], default=0.0),
            "std": _per_channel("std", examples.std, x.shape[1], default=1.0),
        }
    if x.dtype.kind == "f":
        return {}

    if examples.tokens is not None:
        return {"tokens": examples.tokens}
    low = int(x.min(initial=0))
    high = int(x.max(initial=0))
    if low < 0 or high >= _MOST_TOKENS:
        raise RequestError(
            f"tokens must be integers from 0 to {_MOST_TOKENS - 1}, got {low} to {high}"
        )
    return {"tokens": high + 1}


def _per_channel(
    key: str, values: Sequence[float] | None, channels: int, *, default: float
) -> torch.Tensor:
    """Return one value per channel, [channels] float64."""
    if values is None:
        values = [default] * channels
    if len(values) != channels:
        raise RequestError(
            f"data.source.{key} must be a list of {channels} numbers, one per channel, "
            f"got {list(values)}"
        )
    return torch.tensor(values, dtype=torch.float64)


def _notes(examples: Examples, train: Rows, test: Rows) -> list[str]:
    """Return notes on examples without a client and on training examples shared by clients."""
    trained = train.index.numpy()
    tested = test.index.numpy()
    notes = []

    rows = np.arange(len(examples.y))
    unused = np.setdiff1d(rows, np.append(trained, tested))
    official = examples.tested[unused].sum()
    reasons = {
        "by the partition": len(unused) - official,
        "of the test examples set apart": official,
    }
    counts = [f"{count} {reason}" for reason, count in reasons.items() if count]
    if counts:
        notes.append(f"left out: {', '.join(counts)}")

    distinct = np.unique(trained)
    if len(trained) > len(distinct):
        leaked = np.isin(tested, distinct).sum()
        notes.append(
            f"shared by clients: {len(trained)} training examples, {len(distinct)} of them "
            f"distinct; {leaked} test examples of a client are training examples of some client"
        )
    return notes


def _choose(
    count: int,
    clients: int | None,
    test_clients: int,
    seed: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Choose training and test-only clients among ``count``; return both in ascending order."""
    most = count - test_clients
    wanted = most if clients is None else clients
    if not 1 <= wanted <= most:
        others = f", of which data.test_clients takes {test_clients}" if test_clients else ""
        raise RequestError(
            f"data.clients must be between 1 and {most} (this data set has {count} clients"
            f"{others}), got {wanted}"
        )
    if wanted == count:
        return np.arange(count), np.arange(0)
    rng = data_generator(seed, DataPurpose.CLIENTS)
    drawn = rng.choice(count, wanted + test_clients, replace=False)
    return np.sort(drawn[:wanted]), np.sort(drawn[wanted:])


def _natural(
    examples: Examples,
    chosen: np.ndarray,
    others: np.ndarray,
    split: float,
    local_test: str,
    seed: int,
) -> tuple[Rows, Rows]:
    """Return the training and test rows of the ``chosen`` clients if the source names owners."""
    assert examples.owner is not None
    order = np.argsort(examples.owner, kind="stable")
    counts = np.bincount(examples.owner, minlength=len(examples.names))
    everyone = Rows.from_flat(order, counts)
    owned = everyone.select(chosen)
    if local_test == "others":
        return owned, everyone.select(others)
    if examples.held_out is None:
        return _split(owned, split, seed)

    if local_test == "split":
        raise RequestError(
            "data.local_test=split is not available: this data set already has test examples for "
            "every client; use auto, official, central or others"
        )
    return owned.where(~examples.held_out), owned.where(examples.held_out)


def _given(
    examples: Examples,
    partition: Partition | Given | None,
    clients: int | None,
    seed: int,
) -> Given:
    """Return the examples of each client; a rule divides all except the official test examples."""
    if isinstance(partition, Given):
        count = len(partition.names)
        if clients not in (None, count):
            raise RequestError(
                f"data.clients={clients}, but the partition has {count} clients; type "
                f"data.clients={count}"
            )
        return partition

    if partition is None or clients is None:
        raise RequestError(
            "this data set is not divided among clients; type data/partition=iid "
            "data.clients=10, for example"
        )
    rows = np.flatnonzero(~examples.tested)
    rng = data_generator(seed, DataPurpose.PARTITION)
    parts = partition(examples.y[rows], clients, rng)
    owned = [np.sort(rows[part]) for part in parts]
    return Given(numbered("client", clients), owned)


def _rows_of(
    examples: Examples,
    given: Given,
    split: float,
    local_test: str,
    seed: int,
) -> tuple[Rows, Rows]:
    """Return the training and test rows of a partition given by indices."""
    train = Rows.of(given.train)
    tests = given.test if given.shared is None else [given.shared]
    if tests is not None:
        if local_test != "auto":
            raise RequestError(
                f"data.local_test={local_test}, but the partition has test examples for its "
                "clients; use auto"
            )
        return train, Rows.of(tests)
    if local_test in ("auto", "split"):
        return _split(train, split, seed)

    if examples.tested[train.index.numpy()].any():
        raise RequestError(
            f"data.local_test={local_test} tests on the official test examples, and the partition "
            "gives some of them to clients; use data.local_test=split"
        )
    tested = np.flatnonzero(examples.tested)
    if local_test == "central":
        return train, Rows.of([tested])
    rng = data_generator(seed, DataPurpose.SPLIT)
    return train, _in_proportion(examples.y, train, tested, rng)


def _split(owned: Rows, split: float, seed: int) -> tuple[Rows, Rows]:
    """Split each client's n examples at random: int(split n) to train on, the rest to test on."""
    rng = data_generator(seed, DataPurpose.SPLIT)
    sizes = share_of(owned.counts, split)
    return owned.divide(sizes, lambda client, rows: rng.shuffle(rows))


def _in_proportion(
    y: np.ndarray, train: Rows, tested: np.ndarray, rng: np.random.Generator
) -> Rows:
    """Deal the rows ``tested`` in the proportions of the training examples, class by class."""
    counts = train.label_counts(y, int(y.max()) + 1)  # [N, classes]
    labels = np.unique(y[tested])
    pools = class_pools(y[tested], rng)
    held = []
    sizes = []
    for label, pool in zip(labels, pools, strict=True):
        shares = sizes_of(counts[:, label], len(pool), 0)
        held.append(pool[: shares.sum()])  # empty for a class that no client holds
        sizes.append(shares)
    parts = deal(np.concatenate(held), np.stack(sizes))
    return Rows.of([np.sort(tested[rows]) for rows in parts])
