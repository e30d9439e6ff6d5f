"""Partitions: iid, by quantity, two rules from authors' published code, and shared functions.

Every rule in this package takes the labels y [T], the number of clients and a random generator.
Unless its documentation says otherwise, it assigns each position to at most one client; examples
left out are documented. Every rule terminates: an unsatisfiable request raises an error with the
reason and a remedy.
"""

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from numpy.random import Generator

from fedbench.core.errors import RequestError
from fedbench.core.options import Count, NonNegative, Positive

Owned: TypeAlias = list[np.ndarray]  # the positions of the examples of each client
Partition = Callable[[np.ndarray, int, Generator], Owned]
# shares [tries, K, N], examples per class [K] -> counts
Cut = Callable[[np.ndarray, np.ndarray], np.ndarray]

_TRIES = 10, 10_000  # minimum and maximum number of draws for one request
_CELLS = 2_000_000  # approximate maximum of numbers drawn for one request
_BLOCK = 200_000  # numbers drawn at once


def iid(y: np.ndarray, clients: int, rng: Generator) -> Owned:
    """Deal out the shuffled examples in parts whose sizes differ by at most one."""
    require_examples(len(y), clients)
    return np.array_split(rng.permutation(len(y)), clients)


def dirichlet_min_share(
    y: np.ndarray,
    clients: int,
    rng: Generator,
    *,
    alpha: Positive,
    min_share: NonNegative = 0.1,
) -> Owned:
    """Draw Dirichlet shares of every class until every client has a minimum share.

    For each class, q ~ Dir(α 1_N). The matrix of all classes is redrawn until every client's shares
    sum to at least min_share / N of one class, and every client has an example. Client k gets
    floor(q_k n_class) of the shuffled examples of a class; the remainder is dropped. This follows
    the authors' code of AdaFedAdam (Ju et al. 2023), where min_share is 0.1. In their code a client
    can end up without examples if classes are very small.

    Raises:
        RequestError: If no draw meets ``min_share``.
    """
    sizes = np.unique(y, return_counts=True)[1]  # [K]
    require_examples(len(y), clients)

    tries = tries_for(len(sizes) * clients)
    concentration = np.full(clients, alpha)
    for _ in range(tries):
        shares = rng.dirichlet(concentration, len(sizes))  # [K, N]
        counts = np.floor(shares * sizes[:, None]).astype(np.int64)
        enough = shares.sum(0).min() * clients >= min_share
        if enough and counts.any(0).all():
            pools = zip(class_pools(y, rng), counts.sum(1), strict=True)
            rows = [pool[:size] for pool, size in pools]
            return deal(np.concatenate(rows), counts)

    raise RequestError(
        f"no draw of data.partition.alpha={alpha:g} for data.clients={clients} gave every client "
        f"an example and data.partition.min_share={min_share:g}/{clients} of a class in {tries} "
        "tries; raise data.partition.alpha, or lower data.clients or data.partition.min_share"
    )


def two_classes_power_law(
    y: np.ndarray,
    clients: int,
    rng: Generator,
    *,
    least: Count = 5,
    sigma: NonNegative = 2.0,
) -> Owned:
    """Give every client two classes, with power-law sizes.

    Client i has the classes i mod K and i+1 mod K. Of each, it gets ``least`` examples and a share
    of the rest, proportional to its lognormal(0, sigma) draw for the class; a part that no longer
    fits is left out (FedProx's script for MNIST, Li et al. 2020; 1000 clients, least 5, sigma 2).
    With fewer than K - 1 clients, some classes belong to no client.

    Raises:
        RequestError: If there are too few examples for ``least`` per client and class.
    """
    pools = class_pools(y, rng)
    owner = np.repeat(np.arange(clients), 2)
    held = (owner + np.tile([0, 1], clients)) % len(pools)  # class of each of an owner's two parts
    z = sigma * rng.standard_normal(len(held))
    rows = []
    owners = []
    for c in np.unique(held):
        pool = pools[c]
        holders = owner[held == c]
        needed = least * len(holders)
        spare = len(pool) - needed
        if spare < 0:
            raise RequestError(
                f"class {y[pool[0]]} has {len(pool)} examples, too few for data.partition.least="
                f"{least} for each of the {len(holders)} of data.clients={clients} that hold it; "
                "lower data.clients or data.partition.least"
            )
        exponents = z[held == c]
        draws = np.exp(exponents - exponents.max())  # only ratios matter; no draw overflows
        total = np.cumsum(draws)[-1]
        extra = (spare * draws / total).astype(np.int64)
        extra[np.cumsum(extra) >= spare] = 0
        used = needed + extra.sum()
        rows.append(pool[:used])
        owners.append(np.repeat(holders, least))
        owners.append(np.repeat(holders, extra))
    return to_owners(np.concatenate(rows), np.concatenate(owners), clients)


def lognormal_sizes(
    y: np.ndarray,
    clients: int,
    rng: Generator,
    *,
    sigma: NonNegative = 0.3,
    min_size: Count = 10,
) -> Owned:
    """Deal random examples in lognormal amounts.

    Every client gets ``min_size`` examples; the others are divided in proportion to lognormal(0,
    sigma) draws (the unbalanced setting of FedDyn, Acar et al. 2021, has sigma 0.3 and no minimum
    size). All examples are used.

    Raises:
        RequestError: If there are too few examples for ``min_size``.
    """
    weights = lognormal_weights(clients, sigma, rng)
    return _deal_in_proportion(weights, len(y), min_size, rng)


def power_law_sizes(
    y: np.ndarray,
    clients: int,
    rng: Generator,
    *,
    exponent: NonNegative = 1.0,
    min_size: Count = 10,
) -> Owned:
    """Deal random examples in amounts that decrease as a power of the rank.

    Every client gets ``min_size`` examples; of the others, the client with rank r = 1 .. N gets a
    share proportional to r^-exponent. Ranks are random. Exponent 1 gives Zipf's law, and 0 gives
    equal sizes. All examples are used.

    Raises:
        RequestError: If there are too few examples for ``min_size``.
    """
    ranks = np.arange(1.0, clients + 1)
    weights = rng.permutation(ranks**-exponent)
    return _deal_in_proportion(weights, len(y), min_size, rng)


def _deal_in_proportion(
    weights: np.ndarray,
    total: int,
    least: int,
    rng: Generator,
) -> Owned:
    """Deal shuffled examples: ``least`` to each client, the others in proportion to weights."""
    require_examples(total, len(weights), least)
    sizes = sizes_of(weights, total, least)
    ends = np.cumsum(sizes)
    return np.split(rng.permutation(total), ends[:-1])


def require_examples(
    total: int,
    clients: int,
    each: int = 1,
    key: str = "data.partition.min_size",
) -> None:
    """Reject a request for more examples than exist.

    Args:
        total: Number of examples.
        clients: Number of clients N.
        each: Minimum number of examples per client.
        key: Name of the option that sets ``each``.

    Raises:
        RequestError: If there are too few examples; the message states the largest possible number
            of clients.
    """
    if clients * each > total:
        needed = "" if each == 1 else f" with {key}={each}, which needs {clients * each} examples"
        raise RequestError(
            f"data.clients must be at most {total // each}, as there are {total} examples, "
            f"got {clients}{needed}"
        )


def by_label(y: np.ndarray, rng: Generator | None = None) -> np.ndarray:
    """Return the positions [T] sorted by label.

    Positions with the same label are in random order or, without ``rng``, in stored order.
    """
    rows = np.arange(len(y))
    if rng is not None:
        rows = rng.permutation(rows)
    order = np.argsort(y[rows], kind="stable")
    return rows[order]


def to_owners(rows: np.ndarray, owner: np.ndarray, clients: int) -> Owned:
    """Assign ``rows [T]`` to the clients ``owner [T]`` and return the rows of each client."""
    order = np.argsort(owner, kind="stable")
    ends = np.cumsum(np.bincount(owner, minlength=clients))
    return np.split(rows[order], ends[:-1])


def class_pools(y: np.ndarray, rng: Generator) -> list[np.ndarray]:
    """Return the shuffled positions of each label that occurs in y [T], in label order."""
    pools = [np.flatnonzero(y == label) for label in np.unique(y)]
    return [rng.permutation(pool) for pool in pools]


def deal(rows: np.ndarray, counts: np.ndarray) -> Owned:
    """Give client k the next ``counts[c, k]`` rows of class c, in client order.

    Args:
        rows: [Σ counts], class by class.
        counts: [classes, N].
    """
    classes, clients = counts.shape
    columns = np.tile(np.arange(clients), classes)
    owner = np.repeat(columns, counts.ravel())
    return to_owners(rows, owner, clients)


def evenly(total: int, parts: int) -> np.ndarray:
    """Return integers [parts] that sum to ``total``; the first ones may be larger by one."""
    size, larger = divmod(total, parts)
    return size + (np.arange(parts) < larger)


def cut(shares: np.ndarray, total: np.ndarray | int) -> np.ndarray:
    """Cut ``total`` examples at floor(cumsum(shares) total).

    Args:
        shares: [..., N], non-negative, with any positive sum.
        total: [...] numbers of examples.

    Returns:
        [..., N] numbers of examples that sum to ``total``.
    """
    edges = np.cumsum(shares, axis=-1)
    scaled = edges / edges[..., -1:] * np.expand_dims(total, -1)
    ends = np.floor(scaled).astype(np.int64)
    return np.diff(ends, axis=-1, prepend=0)


def restrict_shares(
    shares: np.ndarray,
    able: np.ndarray,
    rng: Generator,
) -> np.ndarray:
    """Set the Dirichlet shares of ineligible clients to 0 and renormalise the other shares.

    The result is a Dirichlet draw among the eligible clients. If all their shares underflow, one
    eligible client, chosen at random, gets everything: the limit for small alpha.

    Args:
        shares: [..., N].
        able: [..., N] mask of eligible clients, at least one in each row.
        rng: Random generator for this choice.
    """
    shares = shares * able
    lost = ~shares.any(-1)
    if lost.any():
        eligible = able[lost]
        luck = (1 + rng.random(eligible.shape)) * eligible
        shares[lost] = luck == luck.max(-1, keepdims=True)
    restricted: np.ndarray = shares / shares.sum(-1, keepdims=True)
    return restricted


def deal_dirichlet(
    cut_classes: Cut,
    y: np.ndarray,
    clients: int,
    rng: Generator,
    *,
    alpha: float,
    min_size: int,
) -> Owned:
    """Draw shares q ~ Dir(α 1_N) of every class until all clients have enough examples.

    The number of draws is bounded.

    Args:
        cut_classes: Function that returns counts [tries, K, N] for several draws at once.
        y: Labels [T] of K classes.
        clients: Number of clients N.
        rng: Random generator of the draws.
        alpha: Concentration of the Dirichlet distribution.
        min_size: Minimum number of examples per client.

    Returns:
        The examples of every client, from the first draw that gives every client enough.

    Raises:
        RequestError: If no such draw exists or none was found.
    """
    require_examples(len(y), clients, min_size)
    sizes = np.unique(y, return_counts=True)[1]  # [K]
    cells = len(sizes) * clients
    tries = tries_for(cells)
    concentration = np.full(clients, alpha)
    most = 0
    done = 0
    block = 1
    while done < tries:
        draws = min(block, tries - done)
        shares = rng.dirichlet(concentration, (draws, len(sizes)))  # [tries, K, N]
        counts = cut_classes(shares, sizes)
        smallest = counts.sum(1).min(1)  # [tries]
        enough = smallest >= min_size
        if enough.any():
            return deal(by_label(y, rng), counts[np.argmax(enough)])
        most = max(most, int(smallest.max()))
        done += draws
        block = max(1, min(2 * block, _BLOCK // cells))

    raise RequestError(
        f"no draw of data.partition.alpha={alpha:g} for data.clients={clients} gave every client "
        f"data.partition.min_size={min_size} of the {len(y)} examples in {tries} tries; the "
        f"smallest client had at most {most}; raise data.partition.alpha, or lower data.clients "
        "or data.partition.min_size"
    )


def tries_for(cells: int) -> int:
    """Return the maximum number of draws for a request that needs ``cells`` numbers per draw."""
    return int(np.clip(_CELLS // cells, *_TRIES))


def sizes_of(weights: np.ndarray, total: int, least: int) -> np.ndarray:
    """Give every client ``least`` examples, and divide the others in proportion to the weights.

    Args:
        weights: [N], non-negative, with a sum of at least 1; if all are 0, the remaining examples
            are left out.
        total: Number of examples, at least N times ``least``.
        least: Minimum number of examples per client.

    Returns:
        [N] sizes that sum to ``total``.
    """
    shares = np.cumsum(weights)
    spare = total - least * len(weights)
    total_share = max(shares[-1], 1)
    edges = np.rint(shares / total_share * spare)
    sizes: np.ndarray = np.diff(edges.astype(np.int64), prepend=0) + least
    return sizes


def lognormal_weights(clients: int, sigma: float, rng: Generator) -> np.ndarray:
    """Draw N weights from the lognormal(0, sigma) distribution, up to a common factor."""
    z = sigma * rng.standard_normal(clients)
    weights: np.ndarray = np.exp(z - z.max())
    return weights
