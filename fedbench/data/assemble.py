"""Build a federated data set from examples and a partition."""

import numpy as np
import torch

from fedbench.core.errors import RequestError
from fedbench.core.randomness import DataPurpose, data_generator
from fedbench.data.dataset import FederatedDataset, Rows, share_of
from fedbench.data.examples import Examples, numbered
from fedbench.data.partitions.basic import Partition, class_pools, deal, sizes_of
from fedbench.data.partitions.given import Given

_MOST_TOKENS = 10_000_000  # more than any vocabulary has


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
        clients: Number of clients; None takes all that a source has, a smaller number is chosen at
            random.
        split: Fraction of a client's examples that it trains on.
        local_test: "split" cuts each client's examples by ``split``; "official" assigns the
            official test examples, class by class in the proportions of the client's training
            examples, or to their owners where the source names them; "auto" is "official" in that
            last case and "split" otherwise. "central" tests every client on all test examples: the
            official ones, or those of all clients where owners are given. "others" trains on all
            examples of the clients and tests on all examples of ``test_clients`` other clients.
        test_clients: Number of clients to test on, chosen at random; for "others" only.
        seed: Random seed of the partition, the split and the choice of clients; independent of the
            run's.
        given: The examples of each client, in place of a partition and of owners that the source
            names.

    Raises:
        RequestError: If the request does not fit the examples.
    """
    natural = examples.owner is not None and given is None
    tests_others = local_test == "others"
    if tests_others != (test_clients is not None) or (tests_others and not natural):
        raise RequestError(
            "data.local_test=others needs data.test_clients=N, and the other way round, and a data set that assigns "
            "examples to clients itself, such as femnist"
        )
    needs_tests = local_test == "official" or (local_test == "central" and not natural)
    if needs_tests and not examples.tested.any():
        raise RequestError(
            f"data.local_test={local_test} needs a data set with test examples; use data.local_test=split"
        )
    notes: list[str] = []
    if natural:
        train, test, names = _natural(examples, clients, split, local_test, seed, test_clients or 0)
    else:
        given = given or _partitioned(examples, partition, clients, seed)
        train, test = _given(examples, given, clients, split, local_test, seed)
        names = given.names
        notes = _notes(examples, train, test)
    if not len(train.index):
        raise RequestError(f"no client has a training example with data.split={split:g}")

    central = local_test in ("central", "others") or (
        given is not None and given.shared is not None
    )
    if central:
        test = Rows.shared(np.sort(test.index.numpy()), len(names))
    mean, std = examples.mean, examples.std
    if mean is None and examples.x.dtype == np.uint8 and examples.x.ndim > 2:  # images: 0 to 1
        channels = examples.x.shape[1]
        mean, std = (0.0,) * channels, (1.0,) * channels
    return FederatedDataset(
        x=torch.from_numpy(np.ascontiguousarray(examples.x)),
        y=torch.from_numpy(examples.y.astype(np.int64)),
        train=train,
        test=test,
        names=names,
        classes=examples.classes,
        mean=None if mean is None else torch.tensor(mean, dtype=torch.float64),
        std=None if std is None else torch.tensor(std, dtype=torch.float64),
        sources=(*examples.sources, *notes),
        unofficial=examples.unofficial,
        tokens=None if mean is not None else _tokens(examples),
        vectors=examples.vectors,
        central=central,
    )


def _tokens(examples: Examples) -> int | None:
    """Return the number of different tokens; None if the examples are no tokens."""
    if examples.x.dtype.kind == "f":
        return None
    if examples.tokens is not None:
        return examples.tokens
    low, high = int(examples.x.min(initial=0)), int(examples.x.max(initial=0))
    if low < 0 or high >= _MOST_TOKENS:
        raise RequestError(
            f"tokens must be integers from 0 to {_MOST_TOKENS - 1}, got {low} to {high}"
        )
    return high + 1


def _notes(examples: Examples, train: Rows, test: Rows) -> list[str]:
    """Return notes on examples that no client owns, and on training examples that several clients own."""
    trained, tested = train.index.numpy(), test.index.numpy()
    unused = np.setdiff1d(np.arange(len(examples.y)), np.concatenate([trained, tested]))
    official = examples.tested[unused].sum()
    reasons = {
        "by the partition": len(unused) - official,
        "of the test examples set apart": official,
    }
    notes = []
    if len(unused):
        counts = ", ".join(f"{count} {reason}" for reason, count in reasons.items() if count)
        notes.append(f"left out: {counts}")
    distinct = np.unique(trained)
    if len(trained) > len(distinct):
        notes.append(
            f"shared by clients: {len(trained)} training examples, {len(distinct)} of them distinct; "
            f"{np.isin(tested, distinct).sum()} test examples of a client are training examples of some client"
        )
    return notes


def _natural(
    examples: Examples,
    clients: int | None,
    split: float,
    local_test: str,
    seed: int,
    test_clients: int,
) -> tuple[Rows, Rows, tuple[str, ...]]:
    """Return training rows, test rows and names of clients that the source itself names."""
    assert examples.owner is not None
    count = len(examples.names)
    chosen, others = _choose(count, clients, test_clients, seed)
    order = np.argsort(examples.owner, kind="stable")
    everyone = Rows.from_flat(order, np.bincount(examples.owner, minlength=count))
    owned = everyone.select(chosen)
    if local_test == "others":
        train, test = owned, everyone.select(others)
    elif examples.held_out is not None:
        if local_test == "split":
            raise RequestError(
                "data.local_test=split is not available: this data set already has test examples for every client; "
                "use auto, official, central or others"
            )
        train, test = owned.where(~examples.held_out), owned.where(examples.held_out)
    else:
        train, test = _split(owned, split, seed)
    return train, test, tuple(examples.names[k] for k in chosen)


def _choose(
    count: int, clients: int | None, test_clients: int, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the clients, of ``count``, that train and those that only test, both in ascending order."""
    most = count - test_clients
    wanted = most if clients is None else clients
    if not 1 <= wanted <= most:
        others = f", of which data.test_clients takes {test_clients}" if test_clients else ""
        raise RequestError(
            f"data.clients must be between 1 and {most} (this data set has {count} clients{others}), got {wanted}"
        )
    if wanted == count:
        return np.arange(count), np.arange(0)
    rng = data_generator(seed, DataPurpose.CLIENTS)
    drawn = rng.choice(count, wanted + test_clients, replace=False)
    return np.sort(drawn[:wanted]), np.sort(drawn[wanted:])


def _partitioned(
    examples: Examples, partition: Partition | None, clients: int | None, seed: int
) -> Given:
    """Divide the examples, without the official test examples, by a rule."""
    if partition is None or clients is None:
        raise RequestError(
            "this data set is not divided among clients; type data/partition=iid data.clients=10, for example"
        )
    rows = np.flatnonzero(~examples.tested)
    parts = partition(examples.y[rows], clients, data_generator(seed, DataPurpose.PARTITION))
    return Given(numbered("client", clients), [np.sort(rows[part]) for part in parts])


def _given(
    examples: Examples, given: Given, clients: int | None, split: float, local_test: str, seed: int
) -> tuple[Rows, Rows]:
    """Return the training and test rows of a partition that is given by indices."""
    count = len(given.names)
    if clients is not None and clients != count:
        raise RequestError(
            f"data.clients={clients}, but the partition has {count} clients; type data.clients={count}"
        )
    train = Rows.of(given.train)
    if given.test is not None or given.shared is not None:
        if local_test != "auto":
            raise RequestError(
                f"data.local_test={local_test}, but the partition has test examples for its clients; use auto"
            )
        shared = [] if given.shared is None else [given.shared]
        return train, Rows.of(given.test or shared)
    if local_test in ("auto", "split"):
        return _split(train, split, seed)

    if examples.tested[train.index.numpy()].any():
        raise RequestError(
            f"data.local_test={local_test} tests on the official test examples, and the partition gives some of them "
            "to clients; use data.local_test=split"
        )
    tested = np.flatnonzero(examples.tested)
    if local_test == "central":
        return train, Rows.of([tested])
    return train, _in_proportion(examples.y, train, tested, data_generator(seed, DataPurpose.SPLIT))


def _split(owned: Rows, split: float, seed: int) -> tuple[Rows, Rows]:
    """Split each client's examples at random: int(split n) train, the rest test, both in stored order."""
    rng = data_generator(seed, DataPurpose.SPLIT)
    return owned.divide(share_of(owned.counts, split), lambda client, rows: rng.shuffle(rows))


def _in_proportion(
    y: np.ndarray, train: Rows, tested: np.ndarray, rng: np.random.Generator
) -> Rows:
    """Deal the rows ``tested`` so that client k gets the same share of a class as of its training examples."""
    counts = train.label_counts(y, int(y.max()) + 1).T  # [classes, N]
    labels = np.unique(y[tested])
    pools = class_pools(y[tested], rng)
    sizes = np.stack(
        [sizes_of(counts[label], len(pool), 0) for label, pool in zip(labels, pools, strict=True)]
    )

    # none of a class without holders
    held = [pool[:size] for pool, size in zip(pools, sizes.sum(1), strict=True)]
    return Rows.of([np.sort(tested[rows]) for rows in deal(np.concatenate(held), sizes)])
