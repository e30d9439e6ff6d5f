"""What partition rules share: allocate examples by counts, and redraw until every client has enough."""

from __future__ import annotations

import bisect
from collections.abc import Callable

import numpy as np

from fedbench.core.errors import RequestError

Draw = Callable[[float, int, int], np.ndarray]  # (alpha, clients, tries) -> counts [tries, classes, clients]

_TRIES = 10, 10_000  # fewest and most draws for one request
_CELLS = 2_000_000  # about the most numbers drawn for one request
_BLOCK = 200_000  # numbers drawn at once
_PROBES, _PROBED = (4, 400), 100_000  # the same for a setting that may be suggested
_LADDER = [m * 10.0**e for e in range(-3, 2) for m in (1, 2, 5)] + [100.0]  # values of alpha that are suggested


def require_examples(total: int, clients: int, each: int = 1, key: str = "data.partition.min_size") -> None:
    """Reject a request for more examples than exist.

    Args:
        total: Number of examples.
        clients: Number of clients N.
        each: Lowest number of examples per client.
        key: Name of the option that sets ``each``.

    Raises:
        RequestError: With the nearest values that are possible.
    """
    if clients * each <= total:
        return
    if each == 1:
        raise RequestError(f"data.clients must be at most the number of examples, {total}, got {clients}")
    ways = [f"data.clients to at most {total // each}"] if total >= each else []
    ways += [f"{key} to at most {total // clients}"] if total >= clients else []
    raise RequestError(
        f"data.clients={clients} with {key}={each} needs {clients * each} examples, but there are {total}; "
        f"set {' or '.join(ways) or 'both lower'}"
    )


def by_label(y: np.ndarray, rng: np.random.Generator | None = None) -> np.ndarray:
    """Return the positions [T] sorted by label: in random order within a label, without ``rng`` in stored order."""
    rows = np.arange(len(y)) if rng is None else rng.permutation(len(y))
    return rows[np.argsort(y[rows], kind="stable")]


def to_owners(rows: np.ndarray, owner: np.ndarray, clients: int) -> list[np.ndarray]:
    """Give ``rows [T]`` to the clients ``owner [T]`` and return the rows of each."""
    order = np.argsort(owner, kind="stable")
    return np.split(rows[order], np.cumsum(np.bincount(owner, minlength=clients))[:-1])


def deal(y: np.ndarray, counts: np.ndarray, rng: np.random.Generator) -> list[np.ndarray]:
    """Give client k ``counts[c, k]`` examples, chosen at random, of the c-th label that occurs in ``y``.

    Args:
        y: Labels [T].
        counts: [classes, N]; each row sums to the number of examples of its class.
        rng: Random generator of the choice.
    """
    classes, clients = counts.shape
    owner = np.repeat(np.tile(np.arange(clients), classes), counts.ravel())
    return to_owners(by_label(y, rng), owner, clients)


def evenly(total: int, parts: int) -> np.ndarray:
    """Return [parts] integers that sum to ``total`` and differ by at most one, the larger ones first."""
    return total // parts + (np.arange(parts) < total % parts)


def cut(shares: np.ndarray, total: np.ndarray | int) -> np.ndarray:
    """Cut ``total`` examples at floor(cumsum(shares) total).

    Args:
        shares: [..., N], not negative, of any positive sum.
        total: [...] numbers of examples.

    Returns:
        [..., N] numbers of examples that sum to ``total``.
    """
    edges = np.cumsum(shares, axis=-1)
    edges = np.floor(edges / edges[..., -1:] * np.asarray(total)[..., None]).astype(np.int64)
    return np.diff(edges, axis=-1, prepend=0)


def restrict_shares(shares: np.ndarray, able: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Set the Dirichlet shares of ineligible clients to 0 and renormalise those of the others.

    The result is a Dirichlet draw among the eligible. Where all their shares underflow, one of them, chosen at random,
    gets everything: the limit for small alpha.

    Args:
        shares: [..., N].
        able: [..., N], which clients are eligible; at least one in each row.
        rng: Random generator of that choice.
    """
    shares = shares * able
    total = shares.sum(-1, keepdims=True)
    lost = total[..., 0] == 0
    if lost.any():
        luck = (1 + rng.random(able[lost].shape)) * able[lost]
        shares[lost] = luck == luck.max(-1, keepdims=True)
        total = shares.sum(-1, keepdims=True)
    remaining: np.ndarray = shares / total
    return remaining


def draw_until_enough(draw: Draw, total: int, classes: int, *, alpha: float, clients: int, min_size: int) -> np.ndarray:
    """Draw until every client has ``min_size`` examples, a bounded number of times.

    Args:
        draw: Function that returns several draws of counts at once.
        total: Number of examples.
        classes: Number of classes K.
        alpha: Concentration of the Dirichlet distribution.
        clients: Number of clients N.
        min_size: Lowest number of examples per client.

    Returns:
        Counts [K, N] of the first draw that gives every client enough.

    Raises:
        RequestError: If no such draw exists or was found, with nearby settings for which one was.
    """
    require_examples(total, clients, min_size)
    cells = classes * clients
    tries = tries_for(cells)
    most, done, block = 0, 0, 1
    while done < tries:
        counts = draw(alpha, clients, min(block, tries - done))
        smallest = counts.sum(1).min(1)  # [tries]
        if smallest.max() >= min_size:
            found: np.ndarray = counts[np.argmax(smallest >= min_size)]
            return found
        most, done = max(most, int(smallest.max())), done + len(counts)
        block = max(1, min(2 * block, _BLOCK // cells))

    def good(alpha: float, clients: int, tries: int) -> int:
        return int((draw(alpha, clients, tries).sum(1).min(1) >= min_size).sum())

    ways = nearest_settings(good, classes, alpha, clients)
    ways += [f"data.partition.min_size={most}"] if most else []
    raise RequestError(
        f"no draw of data.partition.alpha={alpha:g} for data.clients={clients} gave every client "
        f"data.partition.min_size={min_size} of the {total} examples in {tries} tries; the smallest client had at "
        f"most {most}; use {' or '.join(ways)}"
    )


def tries_for(cells: int) -> int:
    """Return the number of draws for a request that needs ``cells`` numbers per draw."""
    return int(np.clip(_CELLS // cells, *_TRIES))


def nearest_settings(good: Callable[[float, int, int], int], classes: int, alpha: float, clients: int) -> list[str]:
    """Return the nearest larger alpha and the nearest lower number of clients for which one draw in a hundred succeeds.

    A request makes enough draws to find one that occurs once in a hundred.

    Args:
        good: Function of (alpha, clients, tries) that returns how many of the draws succeed.
        classes: Number of classes K.
        alpha: The requested concentration.
        clients: The requested number of clients.
    """

    def fit(alpha: float, clients: int) -> bool:
        probes = int(np.clip(_PROBED // (classes * clients), *_PROBES))
        return good(alpha, clients, probes) >= max(2, probes / 100)

    # One by one, since larger is not always better: even shares of small classes always go to the same clients.
    larger = next((a for a in _LADDER if a > alpha and fit(a, clients)), None)
    fewer = sorted({int(clients * 0.95**i) for i in range(1, 200)} - {0}, reverse=True)
    j = bisect.bisect_left(fewer, True, key=lambda n: fit(alpha, n))
    ways = [f"data.partition.alpha={larger:g}" if larger else "data/partition=iid"]
    return ways + ([f"data.clients={fewer[j]}"] if j < len(fewer) else [])
