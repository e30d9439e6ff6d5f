"""Partitions: the iid rule, and two rules from the code of papers' authors (AdaFedAdam, FedProx).

Every rule of this package takes the labels y [T], the number of clients and a generator, gives every position to at
most one client, and documents what it leaves out. All terminate: an impossible request ends with the reason and a
remedy.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable

import numpy as np

from fedbench.core.errors import RequestError, integer, number
from fedbench.data.partitions.allocation import nearest_settings, require_examples, tries_for

Partition = Callable[[np.ndarray, int, np.random.Generator], list[np.ndarray]]


def iid(y: np.ndarray, clients: int, rng: np.random.Generator) -> list[np.ndarray]:
    """Deal the shuffled examples out in parts whose sizes differ by at most one."""
    require_examples(len(y), clients)
    return np.array_split(rng.permutation(len(y)), clients)


def dirichlet_min_share(
    y: np.ndarray, clients: int, rng: np.random.Generator, *, alpha: float, min_share: float = 0.1
) -> list[np.ndarray]:
    """Dirichlet shares of every class, redrawn until no client has next to nothing.

    Per class q ~ Dir(α 1_N); the matrix of all classes is redrawn until every client's shares sum to at least
    min_share / N of one class, and until every client has an example; client k gets floor(q_k n_class) of the class's
    shuffled examples and the remainder is dropped (authors' code of AdaFedAdam, Ju et al. 2023; there min_share
    is 0.1, and clients may end up empty, which takes classes of a few examples).

    Raises:
        RequestError: If ``alpha`` is not positive, or no draw meets ``min_share``.
    """
    alpha = number("alpha", alpha, above=0, remedy="for equal clients use data/partition=iid")
    labels, counts = np.unique(y, return_counts=True)
    remedy = "it is a share of one class, divided by the number of clients, of which there is one per class to share"
    min_share = number("min_share", min_share, at_least=0, at_most=len(labels), remedy=remedy)
    require_examples(len(y), clients)

    def poorest(
        q: np.ndarray,
    ) -> float:  # the smallest share, of one class, times N; negative if a client has no example
        some = np.floor(q * counts[:, None]).sum(0).min() > 0
        return float(q.sum(0).min() * q.shape[1]) if some else -1.0

    def good(alpha: float, clients: int, tries: int) -> int:
        draws = rng.dirichlet(np.full(clients, alpha), (tries, len(labels)))
        return sum(poorest(q) >= min_share for q in draws)

    best, tries = -1.0, tries_for(len(labels) * clients)
    for _ in range(tries):
        q = rng.dirichlet(np.full(clients, alpha), len(labels))
        best = max(best, poorest(q))
        if best >= min_share:
            break
    else:
        ways = nearest_settings(good, len(labels), alpha, clients)
        ways += [f"data.partition.min_share={0.999 * best:.4g}"] if best > 0 else []
        raise RequestError(
            f"no draw of data.partition.alpha={alpha:g} for data.clients={clients} gave every client an example and "
            f"data.partition.min_share={min_share:g}/{clients} of a class in {tries} tries; use {' or '.join(ways)}"
        )
    owned: list[list[np.ndarray]] = [[] for _ in range(clients)]
    for row, label in zip(q, labels, strict=True):
        members = rng.permutation(np.flatnonzero(y == label))
        sizes = np.floor(row * len(members)).astype(np.int64)
        for k, part in enumerate(np.split(members[: sizes.sum()], np.cumsum(sizes)[:-1])):
            owned[k].append(part)
    return [np.concatenate(parts) for parts in owned]


def two_classes_power_law(
    y: np.ndarray, clients: int, rng: np.random.Generator, *, least: int = 5, sigma: float = 2.0
) -> list[np.ndarray]:
    """Two classes per client, sizes by a power law.

    Client i has the classes i mod K and i+1 mod K: ``least`` examples of each, and of the rest of a class the share
    that its lognormal(0, sigma) draw has among the draws of the class; a part that no longer fits is left
    out (script for MNIST of FedProx, Li et al. 2020; 1000 clients, least 5, sigma 2). With fewer than K - 1 clients
    some classes belong to no client.

    Raises:
        RequestError: If there are too few examples for ``least`` per client and class.
    """
    least = integer("least", least, at_least=1)
    sigma = number("sigma", sigma, at_least=0)
    labels = np.unique(y)
    classes = len(labels)
    pools = [rng.permutation(np.flatnonzero(y == label)) for label in labels]
    pairs = [(i, (i + j) % classes) for i in range(clients) for j in range(2)]
    holders = np.bincount([c for _, c in pairs], minlength=classes)
    sizes = np.array([len(p) for p in pools])
    if (holders * least > sizes).any():
        raise _too_many_holders(labels, sizes, clients, least)
    held = np.array([c for _, c in pairs])
    z, top = sigma * rng.standard_normal(len(pairs)), np.full(classes, -np.inf)
    np.maximum.at(top, held, z)
    draws = np.exp(z - top[held])  # a class's draws up to a factor: only their shares count, and none overflows
    totals = np.bincount(held, weights=draws, minlength=classes)
    owned: list[list[np.ndarray]] = [[] for _ in range(clients)]
    used = np.zeros(classes, dtype=np.int64)
    for i, c in pairs:
        owned[i].append(pools[c][used[c] : used[c] + least])
        used[c] += least
    spare = sizes - used
    for (i, c), draw in zip(pairs, draws, strict=True):
        size = int(spare[c] * draw / totals[c])
        if used[c] + size < len(pools[c]):
            owned[i].append(pools[c][used[c] : used[c] + size])
            used[c] += size
    return [np.concatenate(parts) for parts in owned]


def _too_many_holders(labels: np.ndarray, sizes: np.ndarray, clients: int, least: int) -> RequestError:
    """Return the error with the nearest possible number of clients and value of ``least``."""
    classes = len(sizes)

    def holders(clients: int) -> np.ndarray:  # client i holds the classes i and i + 1 modulo K
        i = np.arange(clients)
        return np.bincount(np.concatenate([i % classes, (i + 1) % classes]), minlength=classes)

    fewer = bisect.bisect_left(range(1, clients), True, key=lambda n: bool((holders(n) * least > sizes).any()))
    lower = int((sizes // np.maximum(holders(clients), 1))[holders(clients) > 0].min())
    ways = [f"data.clients={fewer}"] * (fewer > 0) + [f"data.partition.least={lower}"] * (lower > 0)
    c = int(np.argmax(holders(clients) * least - sizes))
    remedy = f"use {' or '.join(ways)}" if ways else "lower both"
    return RequestError(
        f"class {labels[c]} has {sizes[c]} examples, too few for data.partition.least={least} for each of the "
        f"{holders(clients)[c]} of data.clients={clients} that hold it; {remedy}"
    )
