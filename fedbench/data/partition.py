"""Who owns which example: rules from labels to one array of positions per client.

Every rule takes the labels y [T], the number of clients and a generator, gives every position to at most one client,
and says what it leaves out. None can run for ever: an impossible request ends with the reason and a remedy.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fedbench.errors import RequestError, number, whole

Partition = Callable[[np.ndarray, int, np.random.Generator], list[np.ndarray]]

_TRIES = 10_000


def iid(y: np.ndarray, clients: int, rng: np.random.Generator) -> list[np.ndarray]:
    """Deal the shuffled examples out in parts whose sizes differ by at most one."""
    if clients > len(y):
        raise RequestError(f"data.clients must be at most the number of examples, {len(y)}, got {clients}")
    return np.array_split(rng.permutation(len(y)), clients)


def dirichlet_min_share(
    y: np.ndarray, clients: int, rng: np.random.Generator, *, alpha: float, min_share: float = 0.1
) -> list[np.ndarray]:
    """Dirichlet shares of every class, redrawn until no client is left with next to nothing.

    Per class q ~ Dir(α 1_N); the matrix of all classes is redrawn until every client's shares sum to at least
    min_share / N of one class; client k gets floor(q_k n_class) of the class's shuffled examples and the remainder is
    dropped (authors' code of AdaFedAdam, Ju et al. 2023; there min_share is 0.1).

    Raises:
        RequestError: if ``alpha`` is not positive, or no draw meets ``min_share``.
    """
    remedy = "for equal clients use data/partition=iid"
    alpha = number("data.partition.alpha", alpha, above=0, remedy=remedy)
    least = number("data.partition.min_share", min_share, at_least=0) / clients
    labels = np.unique(y)
    for _ in range(_TRIES):
        q = rng.dirichlet(np.full(clients, alpha), len(labels))
        if np.isfinite(q).all() and (q.sum(0) >= least).all():
            break
    else:
        raise RequestError(
            f"no draw of data.partition.alpha={alpha:g} for data.clients={clients} gave every client "
            f"{min_share:g}/{clients} of a class in {_TRIES} tries; raise alpha, or lower clients or min_share"
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

    Client i has the classes i mod K and i+1 mod K: ``least`` examples of each, and of what then is left of a class the
    share that a lognormal(0, sigma) draw gives it among the draws of the class; a part that no longer fits is left
    out (script for MNIST of FedProx, Li et al. 2020; 1000 clients, least 5, sigma 2).

    Raises:
        RequestError: if there are too few examples for ``least`` per client and class.
    """
    least = whole("data.partition.least", least, at_least=1)
    sigma = number("data.partition.sigma", sigma, at_least=0)
    classes = int(y.max()) + 1
    pools = [rng.permutation(np.flatnonzero(y == c)) for c in range(classes)]
    pairs = [(i, (i + j) % classes) for i in range(clients) for j in range(2)]
    holders = np.bincount([c for _, c in pairs], minlength=classes)
    for c in range(classes):
        if holders[c] * least > len(pools[c]):
            raise RequestError(
                f"class {c} has {len(pools[c])} examples, too few for {least} for each of {holders[c]} clients; "
                "lower data.clients or data.partition.least"
            )
    draws = rng.lognormal(0.0, sigma, len(pairs))
    totals = np.bincount([c for _, c in pairs], weights=draws, minlength=classes)
    owned: list[list[np.ndarray]] = [[] for _ in range(clients)]
    used = np.zeros(classes, dtype=np.int64)
    for i, c in pairs:
        owned[i].append(pools[c][used[c] : used[c] + least])
        used[c] += least
    spare = np.array([len(p) for p in pools]) - used
    for (i, c), draw in zip(pairs, draws, strict=True):
        size = int(spare[c] * draw / totals[c])
        if used[c] + size < len(pools[c]):
            owned[i].append(pools[c][used[c] : used[c] + size])
            used[c] += size
    return [np.concatenate(parts) for parts in owned]
