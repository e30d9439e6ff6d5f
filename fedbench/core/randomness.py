"""Keyed randomness, and cohorts drawn with it.

Every draw is a pure function of (seed, purpose, round, ...).

No generator state has to be saved, because a draw does not depend on earlier draws. Batches and
cohorts are therefore the same for every algorithm, engine mode, cohort size and device, and after
resuming.

The hash is the finaliser of SplitMix64 (Steele, Lea & Flood, OOPSLA 2014), chained over the
coordinates. Tensors store the 64 bits as int64; products wrap around as in unsigned arithmetic.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from math import ceil
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

if TYPE_CHECKING:  # planning runs imports data sources, which draw with NumPy alone
    import torch
    from torch import Tensor

Integers = TypeVar("Integers", "Tensor", np.ndarray)

# (round, training examples per client [N], seed) -> ids of the cohort, ascending
Sampler = Callable[[int, np.ndarray, int], np.ndarray]

_GOLDEN = 0x9E3779B97F4A7C15
_M1, _M2 = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_MASK = 2**64 - 1
# With at least ``_POPULATION`` ids, a draw of at most one in ``_FEW`` skips the keys of all others:
# computing them (16 ms for a million ids) would take longer than a round of a small model.
_POPULATION, _FEW = 2**15, 100


class Purpose(enum.IntEnum):
    """Purpose of a random draw under the run's seed.

    Draws for different purposes are independent. Changing a value changes results.
    """

    INIT = 1
    SAMPLING = 2
    BATCHES = 3
    EPOCHS = 4
    SETUP = 5
    PERSONAL = 6
    LOCAL = 7
    MODEL = 8
    AUGMENT = 9
    TRIALS = 10
    EVALUATION = 11  # which clients are evaluated
    REACHED = 12  # this purpose and the following ones belong to scenarios
    TRAITS = 13
    JITTER = 14
    STRAGGLERS = 15
    ATTACKERS = 16
    FORGED = 17
    BUCKETS = 18
    NOISE = 19
    COUNT = 20
    POISSON = 21
    UPLINK = 22
    DOWNLINK = 23
    SKETCH = 24
    LOST = 25
    FINETUNE = 26  # local steps before an evaluation
    CANDIDATES = 27  # which clients are asked for their losses
    HELD_OUT = 28  # which clients never train


class DataPurpose(enum.IntEnum):
    """Purpose of a random draw under the seed of the data. Changing a value changes results.

    Draws with different numbers are independent. Partitions and the choice of images share number 0
    and therefore draw from the same stream.
    """

    PARTITION = 0  # which client owns which examples
    SPLIT = 1  # which examples are for training and which for testing
    CLIENTS = 2  # which clients of the source take part
    LABEL_NOISE = 3
    VALIDATION = 8  # which training examples of a client are held out
    ROLES = 7  # which clients of a text source are read
    AVAILABILITY = 13  # degree of availability of each class
    IMAGES = 0  # alias of PARTITION: which images of a source are read


def _signed(x: int) -> int:
    return x - 2**64 if x >= 2**63 else x


def key(*coordinates: int) -> int:
    """Return the 64-bit key of integers, such as (seed, purpose, round)."""
    h = 0
    for c in coordinates:
        x = (h + _GOLDEN * ((c & _MASK) + 1)) & _MASK
        x = ((x ^ (x >> 30)) * _M1) & _MASK
        x = ((x ^ (x >> 27)) * _M2) & _MASK
        h = x ^ (x >> 31)
    return h


def _shift(x: Any, bits: int) -> Any:
    """Return x >> bits as for unsigned integers (int64 shifts copy the sign bit)."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def fold_in(base: int, *coordinates: Integers) -> Integers:
    """Return 63-bit keys of ``base`` chained with int64 arrays or tensors of broadcastable shapes.

    The keys are uniform, non-negative int64.
    """
    h: Any = _signed(base)
    for c in coordinates:
        x = (c + 1) * _signed(_GOLDEN) + h
        x = (x ^ _shift(x, 30)) * _signed(_M1)
        x = (x ^ _shift(x, 27)) * _signed(_M2)
        h = x ^ _shift(x, 31)
    keys: Integers = _shift(h, 1)
    return keys


def generator(seed: int, purpose: Purpose) -> torch.Generator:
    """Return a new CPU generator, for a purpose that needs many draws at once.

    The initial model, for example, is drawn with it.
    """
    import torch

    return torch.Generator().manual_seed(key(seed, purpose) >> 1)


def data_generator(
    seed: int,
    purpose: DataPurpose,
    *further: int,
) -> np.random.Generator:
    """Return a new generator for a random draw of the data set.

    ``further`` separates draws for the same purpose, for example by client.
    """
    return np.random.default_rng([seed, purpose, *further])


def integers(
    base: int,
    ids: np.ndarray,
    low: int,
    high: int,
) -> np.ndarray:
    """Return one uniform integer in [low, high] per id."""
    count = high - low + 1
    return low + fold_in(base, ids) % count


def without_replacement(
    base: int, size: int, weight: np.ndarray, uniform: bool = True
) -> np.ndarray:
    """Draw ``size`` ids with positive weight, without replacement.

    Args:
        base: Key of the draw.
        size: Number of ids. If fewer have positive weight, all of these are drawn.
        weight: Non-negative weights [N]; ids of weight 0 are never drawn.
        uniform: Whether all ids have the same probability. Otherwise, ids are drawn one after
            another with probability proportional to weight (exponential clocks: the ids with the
            smallest E_k / weight_k; Efraimidis & Spirakis, IPL 2006).

    Returns:
        The ids [size], ascending.
    """
    if uniform and len(weight) >= max(_POPULATION, _FEW * size):
        tried = fold_in(base, np.arange(2 * size + 64)) % len(weight)
        _, first = np.unique(tried, return_index=True)
        distinct = tried[np.sort(first)]  # in the order of the draws
        drawn = distinct[weight[distinct] > 0][:size]
        if len(drawn) == size:
            return np.sort(drawn)
    ids = np.flatnonzero(weight > 0)
    if size >= len(ids):
        return ids

    clocks = fold_in(base, ids)
    if not uniform:
        u = (clocks.astype(np.float64) + 0.5) / 2.0**63
        clocks = -np.log(u) / weight[ids]
    first_to_ring = np.argpartition(clocks, size)[:size]
    return np.sort(ids[first_to_ring])


def cohort_size(participation: float | int, clients: int) -> int:
    """Return the number of participating clients; a fraction is rounded up."""
    # 1e-9: 0.1 * 30 is slightly above 3 in floating point
    if isinstance(participation, float):
        return max(1, ceil(participation * clients - 1e-9))
    return participation


def sample_cohort(participation: float | int = 1.0, by_size: bool = False) -> Sampler:
    """Return a sampler of cohorts.

    The sampler maps (round, training examples per client [N], seed) to the ids of the cohort,
    ascending.

    Args:
        participation: Fraction of the N clients in (0, 1], rounded up, or a number of clients.
        by_size: Whether to draw with probability proportional to the number of training examples
            instead of uniformly.

    Clients without training examples are never drawn. Sampling is without replacement.
    """

    def sampler(
        round: int,
        n: np.ndarray,
        seed: int,
    ) -> np.ndarray:
        size = cohort_size(participation, len(n))
        base = key(seed, Purpose.SAMPLING, round)
        return without_replacement(
            base,
            size,
            n,
            uniform=not by_size,
        )

    return sampler


def one_by_one(
    round: int,
    n: np.ndarray,
    seed: int,
) -> np.ndarray:
    """Sample one client per round, cycling through all clients with training examples.

    Each cycle has a new random order.
    """
    able = np.flatnonzero(n)
    turn, place = divmod(round, len(able))
    drawn = fold_in(key(seed, Purpose.SAMPLING, turn), able)
    order = np.argsort(drawn, kind="stable")
    return able[order[place : place + 1]]


def dropout(
    x: Tensor,
    share: float,
    key: Tensor,
    place: int,
) -> Tensor:
    """Return x [...] with about a fraction ``share`` of its values dropped.

    Dropped values become 0; the others are divided by 1 - share.

    Args:
        x: The values.
        share: Fraction of values to drop, in [0, 1).
        key: Integer key of the random draws; the same key drops the same values.
        place: Number that distinguishes several draws under the same key.
    """
    import torch

    index = torch.arange(x.numel(), device=x.device)
    drawn = fold_in(place, key.expand(index.shape), index)
    kept = drawn >= int(share * 2**63)
    return x * kept.view(x.shape) / (1 - share)
