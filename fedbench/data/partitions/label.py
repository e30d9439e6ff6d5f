"""Partitions by label, except the Dirichlet ones.

Only ``consecutive_classes`` leaves out examples and, with ``as_published``, uses examples more than
once.
"""

from collections.abc import Sequence

import numpy as np
from numpy.random import Generator

from fedbench.core.errors import RequestError
from fedbench.core.options import Count, Natural, NonNegative, Positive, PositiveShare, UnitInterval
from fedbench.data.partitions.basic import (
    Owned,
    by_label,
    class_pools,
    deal,
    deal_dirichlet,
    evenly,
    require_examples,
    restrict_shares,
    to_owners,
)

_PUBLISHED = 4000  # examples per class in FedProx's script for skewed FEMNIST


def shards(
    y: np.ndarray,
    clients: int,
    rng: Generator,
    *,
    shards_per_client: Count = 2,
) -> Owned:
    """Sort the examples by label, cut them into shards, and deal each client a few shards.

    The N * ``shards_per_client`` shards are contiguous after sorting by label (in stored order
    within a label), their sizes differ by at most one, and they are dealt without replacement
    (McMahan et al. 2017).

    Raises:
        RequestError: If there are fewer examples than shards.
    """
    require_examples(len(y), clients, shards_per_client, "data.partition.shards_per_client")
    sizes = evenly(len(y), clients * shards_per_client)
    owners = np.repeat(np.arange(clients), shards_per_client)
    owner = rng.permutation(owners)  # owner of each shard
    return to_owners(by_label(y), np.repeat(owner, sizes), clients)


def k_classes(
    y: np.ndarray,
    clients: int,
    rng: Generator,
    *,
    classes_per_client: Count = 5,
    own: bool = False,
) -> Owned:
    """Give every client ``classes_per_client`` random classes.

    The holders of a class share it evenly. A class that no client has drawn replaces, at a random
    client, a class with several holders. With ``own``, client i has class i modulo K and draws only
    the others (the code of NIID-Bench, Li et al. 2022).

    Raises:
        RequestError: If there are too few classes, if there are too few clients to hold all
            classes, or if a class has fewer examples than holders.
    """
    labels, sizes = np.unique(y, return_counts=True)
    classes = len(labels)
    fewest = -(-classes // clients)
    if not fewest <= classes_per_client <= classes:
        raise RequestError(
            f"data.partition.classes_per_client must be between {fewest}, so that every class has "
            f"one of data.clients={clients}, and {classes}, the number of classes, "
            f"got {classes_per_client}"
        )
    order = np.tile(np.arange(classes), (clients, 1))  # [N, K]
    if own:
        order = (order + np.arange(clients)[:, None]) % classes
        order[:, 1:] = rng.permuted(order[:, 1:], axis=1)
    else:
        order = rng.permuted(order, axis=1)
    held = np.zeros((classes, clients), dtype=bool)
    held[order[:, :classes_per_client].T, np.arange(clients)] = True
    for missing in np.flatnonzero(~held.any(1)):
        spare = held & (held.sum(1) > 1)[:, None]  # classes that another client also holds
        client = rng.choice(np.flatnonzero(spare.any(0)))
        replaced = rng.choice(np.flatnonzero(spare[:, client]))
        held[replaced, client] = False
        held[missing, client] = True
    return deal(by_label(y, rng), _even_counts(held, labels, sizes))


def consecutive_classes(
    y: np.ndarray,
    clients: int,
    rng: Generator,
    *,
    classes_per_client: Count = 3,
    mu: float = 4.0,
    sigma: NonNegative = 1.0,
    more: Natural = 5,
    least: Count = 2,
    as_published: bool = False,
) -> Owned:
    """Give client i the classes i, i + 1, ... modulo K, with equally many examples from each.

    The client's size is a lognormal(mu, sigma) draw plus ``more``. From each of its classes, it
    gets size // classes_per_client examples, but at least ``least``. Clients are served in turn; a
    class with too few examples left is skipped. The remaining examples are left out (FedProx's
    script for skewed FEMNIST, Li et al. 2020: 3 of the letters a to j, mu 4, sigma 1, more 5, least
    2).

    With ``as_published``, examples are assigned as in this script. At most 4000 random examples per
    class are used. Before a client gets its share, the script returns to the first example of the
    class if enough examples are *left*; it should do so if too few are left. Almost all clients
    with a class therefore get the same first examples: with the script's 200 clients, a tenth of
    the examples are distinct. Some of a client's test examples are training examples of other
    clients.

    Deviation: a share that extends beyond the 4000 examples is cut short both here and in the
    script, but the script mislabels all later examples. This happens only if two consecutive
    clients have 6000 examples each on average.

    Raises:
        RequestError: If there are too few classes, or if all classes of a client are exhausted.
    """
    count = len(np.unique(y))
    if classes_per_client > count:
        raise RequestError(
            f"data.partition.classes_per_client must be at most the number of classes, {count}, "
            f"got {classes_per_client}"
        )
    pools = class_pools(y, rng)
    if as_published:
        pools = [pool[:_PUBLISHED] for pool in pools]
    longest = np.log(len(y))  # a larger draw would exceed the number of examples
    exponents = mu + sigma * rng.standard_normal(clients)
    sizes = np.exp(np.minimum(exponents, longest)) + more
    wanted = np.maximum(sizes / classes_per_client, least).astype(np.int64)
    used = [0] * count
    owned = []
    for client, size in enumerate(wanted.tolist()):
        parts = []
        for k in range(client, client + classes_per_client):
            c = k % count
            pool = pools[c]
            start = used[c]
            if as_published and start + size < len(pool):
                start = 0
            if as_published or start + size <= len(pool):
                parts.append(pool[start : start + size])
                used[c] = start + size
        if not any(map(len, parts)):
            raise RequestError(
                f"the {classes_per_client} classes of client {client} have fewer than the {size} "
                "examples that it needs of each; lower data.clients, or mu, sigma, more or least "
                "of data.partition"
            )
        owned.append(np.concatenate(parts))
    return owned


def similarity(
    y: np.ndarray,
    clients: int,
    rng: Generator,
    *,
    similarity: UnitInterval = 0.95,
) -> Owned:
    """Deal a share of the examples at random, and the others sorted by label in contiguous blocks.

    Sizes differ by at most one. A similarity of 1 is iid; with 0, each client gets one block
    (SCAFFOLD, Karimireddy et al. 2020, where similarity is called s %).

    Args:
        y: Labels [T].
        clients: Number of clients N.
        rng: Random generator of the draws.
        similarity: Fraction of the examples to deal at random, in [0, 1].

    Raises:
        RequestError: If there are more clients than examples.
    """
    require_examples(len(y), clients)
    rows = rng.permutation(len(y))
    alike, rest = np.split(rows, [round(similarity * len(y))])
    ordered = rest[by_label(y[rest])]
    blocks = evenly(len(rest), clients)
    counts = np.stack([evenly(len(y), clients) - blocks, blocks])
    return deal(np.append(alike, ordered), counts)


def stratified(y: np.ndarray, clients: int, rng: Generator) -> Owned:
    """Give every client the same amount of every class; amounts and sizes differ by at most one.

    These are the disjoint sets with data of all classes in FAFED (Wu et al. 2023).

    Raises:
        RequestError: If there are more clients than examples.
    """
    return _in_turn(by_label(y, rng), clients)


def contiguous(y: np.ndarray, clients: int, rng: Generator) -> Owned:
    """Cut the examples in stored order into parts whose sizes differ by at most one.

    The parts do not depend on the seed.

    Raises:
        RequestError: If there are more clients than examples.
    """
    require_examples(len(y), clients)
    return np.array_split(np.arange(len(y)), clients)


def half_classes(
    y: np.ndarray,
    clients: int,
    rng: Generator,
    *,
    classes: Sequence[int] | None = None,
) -> Owned:
    """Divide some classes among the first half of the clients, the others among the second half.

    Within a half, clients' amounts of each class differ by at most one (FAFED, Wu et al. 2023).
    With an odd number of clients, the second half has one more client.

    Args:
        y: Labels [T].
        clients: Number of clients N, at least 2.
        rng: Random generator of the draws.
        classes: Labels of the first half. If None, the lower half of the labels.

    Raises:
        RequestError: If ``classes`` is not a proper, non-empty subset of the labels, or a half has
            fewer examples than clients.
    """
    labels = np.unique(y).tolist()
    if clients < 2:
        raise RequestError(
            f"data.clients must be >= 2, got {clients}; use data/partition=stratified for a single "
            "group"
        )
    first = labels[: len(labels) // 2] if classes is None else classes
    if not set() < {*first} < {*labels}:
        raise RequestError(
            "data.partition.classes must be a list of some, but not all, of the labels "
            f"{labels[0]} to {labels[-1]}, got {classes!r}; null is the lower half"
        )
    rows = by_label(y, rng)
    in_first = np.isin(y[rows], first)
    half = clients // 2
    return _in_turn(rows[in_first], half) + _in_turn(rows[~in_first], clients - half)


def one_class(y: np.ndarray, clients: int, rng: Generator) -> Owned:
    """Give client k the class k mod K, in label order.

    Clients with the same class share it evenly. With as many clients as classes, each client holds
    exactly one class (agnostic federated learning, Mohri et al. 2019; AdaFed, Hamidi & Yang 2024),
    and the owners do not depend on the seed.

    Raises:
        RequestError: If there are fewer clients than classes, or a class has fewer examples than
            clients.
    """
    labels, sizes = np.unique(y, return_counts=True)
    if clients < len(labels):
        raise RequestError(
            f"data.clients must be at least the number of classes, {len(labels)}, for one class "
            f"per client, got {clients}; or use data/partition=k_classes"
        )
    own = np.arange(clients) % len(labels)  # class of each client
    held = np.arange(len(labels))[:, None] == own
    return deal(by_label(y, rng), _even_counts(held, labels, sizes))


def bernoulli_dirichlet(
    y: np.ndarray,
    clients: int,
    rng: Generator,
    *,
    p: PositiveShare = 0.7,
    alpha: Positive = 10.0,
    min_size: Count = 1,
) -> Owned:
    """Give every client each class with probability p, and the holders of a class Dirichlet shares.

    A client without a class redraws its classes. Then q ~ Dir(α 1) over the holders of a class, and
    each example of the class goes to a holder drawn from q (FedCorr, Xu et al. 2022). A class
    without a holder goes to a random client, whereas the authors' code stops. Everything is redrawn
    until every client has ``min_size`` examples, whereas the authors' code allows empty clients.

    Raises:
        RequestError: If no draw meets ``min_size``.
    """

    def cut_classes(shares: np.ndarray, sizes: np.ndarray) -> np.ndarray:
        held = _bernoulli(shares.shape, p, rng)
        return rng.multinomial(sizes, restrict_shares(shares, held, rng))

    return deal_dirichlet(cut_classes, y, clients, rng, alpha=alpha, min_size=min_size)


def _bernoulli(shape: tuple[int, ...], p: float, rng: Generator) -> np.ndarray:
    """Draw the holders of the classes, [tries, K, N].

    A client holds each class with probability p, conditional on holding at least one. A client's
    first class has the geometric distribution truncated at K, so that no redraw is needed, however
    small p is. A class without a holder goes to a random client.
    """
    tries, classes, clients = shape
    ids = np.arange(classes)
    chance = (1 - p) ** ids
    chance /= chance.sum()
    first = rng.choice(classes, (tries, 1, clients), p=chance)
    column = ids[:, None]
    drawn = rng.random(shape) < p
    held: np.ndarray = (column == first) | ((column > first) & drawn)
    t, c = np.nonzero(~held.any(2))
    held[t, c, rng.integers(clients, size=len(t))] = True
    return held


def _even_counts(
    held: np.ndarray,
    labels: np.ndarray,
    sizes: np.ndarray,
) -> np.ndarray:
    """Divide each class evenly among its holders.

    Args:
        held: [K, N], True if the client holds the class.
        labels: [K] labels of the classes, for messages.
        sizes: [K] number of examples of each class.

    Returns:
        [K, N] numbers of examples.

    Raises:
        RequestError: If a class has fewer examples than holders.
    """
    counts = np.zeros(held.shape, dtype=np.int64)
    for label, size, row, holds in zip(labels, sizes, counts, held, strict=True):
        holders = holds.sum()
        if holders > size:
            raise RequestError(
                f"class {label} has {size} examples, too few for the {holders} clients that hold "
                "it; lower data.clients"
            )
        row[holds] = evenly(size, holders)
    return counts


def _in_turn(rows: np.ndarray, clients: int) -> Owned:
    """Deal ``rows [T]`` like cards, one to each client in turn.

    Raises:
        RequestError: If there are more clients than rows.
    """
    if clients > len(rows):
        raise RequestError(
            f"{clients} clients cannot share {len(rows)} examples; lower data.clients"
        )
    return [rows[k::clients] for k in range(clients)]
