"""What the partition rules share: dealing examples out by counts, and drawing again until every client has enough."""

from __future__ import annotations

import bisect
from collections.abc import Callable

import numpy as np

from fedbench.core.errors import RequestError

Draw = Callable[[float, int, int], np.ndarray]  # (alpha, clients, tries) -> counts [tries, classes, clients]

_TRIES = 10, 10_000  # draws for one request, at least and at most
_CELLS = 2_000_000  # and about so many numbers drawn
_BLOCK = 200_000  # of them at once
_PROBES, _PROBED = (4, 400), 100_000  # the same for a setting that might be proposed
_LADDER = [m * 10.0**e for e in range(-3, 2) for m in (1, 2, 5)] + [100.0]  # values of alpha that are proposed


def enough(total: int, clients: int, each: int = 1, key: str = "data.partition.min_size") -> None:
    """Refuse a request that asks for more examples than there are.

    Args:
        total: Examples there are.
        clients: N.
        each: Least number of examples per client.
        key: The option that says ``each``.

    Raises:
        RequestError: With the nearest values that can be had.
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
    """Return the positions [T] in order of their labels: within a label at random, without ``rng`` in stored order."""
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
        counts: [classes, N]; a row sums to the number of examples of its class.
        rng: Says which.
    """
    classes, clients = counts.shape
    owner = np.repeat(np.tile(np.arange(clients), classes), counts.ravel())
    return to_owners(by_label(y, rng), owner, clients)


def evenly(total: int, parts: int) -> np.ndarray:
    """Return [parts] whole numbers that sum to ``total`` and differ by at most one, the larger ones first."""
    return total // parts + (np.arange(parts) < total % parts)


def cut(shares: np.ndarray, total: np.ndarray | int) -> np.ndarray:
    """Cut ``total`` examples at floor(cumsum(shares) total).

    Args:
        shares: [..., N] not negative, with a positive sum, which is taken as the whole.
        total: [...] numbers of examples.

    Returns:
        [..., N] numbers of examples that sum to ``total``.
    """
    edges = np.cumsum(shares, axis=-1)
    edges = np.floor(edges / edges[..., -1:] * np.asarray(total)[..., None]).astype(np.int64)
    return np.diff(edges, axis=-1, prepend=0)


def among(shares: np.ndarray, able: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Take Dirichlet shares from the clients that are not able, and let the others' sum to 1 again.

    What remains is a Dirichlet draw among the able. Where all their shares are too small for floating point, one of
    them, chosen at random, has it all: the limit for small alpha.

    Args:
        shares: [..., N].
        able: [..., N], some client in each row.
        rng: chooses.
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


def first_enough(draw: Draw, total: int, classes: int, *, alpha: float, clients: int, min_size: int) -> np.ndarray:
    """Draw until every client has ``min_size`` examples, but not for ever.

    Args:
        draw: Makes several draws of counts at once.
        total: Examples there are.
        classes: K.
        alpha: Of the Dirichlet distribution.
        clients: N.
        min_size: Examples that every client must have, at least.

    Returns:
        Counts [K, N] of the first draw that will do.

    Raises:
        RequestError: If there cannot be or was no such draw, with settings near by that have been found to do.
    """
    enough(total, clients, min_size)
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
        f"data.partition.min_size={min_size} of the {total} examples in {tries} tries; the poorest had {most} at best; "
        f"{' or '.join(ways)} will do"
    )


def tries_for(cells: int) -> int:
    """Return how often a request of so many numbers is drawn again."""
    return int(np.clip(_CELLS // cells, *_TRIES))


def nearest_settings(good: Callable[[float, int, int], int], classes: int, alpha: float, clients: int) -> list[str]:
    """Return a larger alpha and fewer clients, the nearest on a grid, for which one draw in a hundred will do.

    A request makes so many draws that it finds what one in a hundred does.

    Args:
        good: From (alpha, clients, tries) to how many of so many draws will do.
        classes: K.
        alpha: That was asked for.
        clients: That were asked for.
    """

    def fit(alpha: float, clients: int) -> bool:
        probes = int(np.clip(_PROBED // (classes * clients), *_PROBES))
        return good(alpha, clients, probes) >= max(2, probes / 100)

    # One by one, for larger is not always better: even shares of small classes fall to the same clients every time.
    larger = next((a for a in _LADDER if a > alpha and fit(a, clients)), None)
    fewer = sorted({int(clients * 0.95**i) for i in range(1, 200)} - {0}, reverse=True)
    j = bisect.bisect_left(fewer, True, key=lambda n: fit(alpha, n))
    ways = [f"data.partition.alpha={larger:g}" if larger else "data/partition=iid"]
    return ways + ([f"data.clients={fewer[j]}"] if j < len(fewer) else [])
