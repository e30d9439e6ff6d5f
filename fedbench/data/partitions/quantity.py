"""Partitions by quantity: clients that differ in size, not in classes."""

from __future__ import annotations

import numpy as np

from fedbench.core.errors import integer, number
from fedbench.data.partitions.basic import require_examples


def sizes_of(weights: np.ndarray, total: int, least: int) -> np.ndarray:
    """Give every client ``least`` examples, and share the others in proportion to the weights.

    Args:
        weights: [N], not negative, with a positive sum.
        total: Number of examples, at least N times ``least``.
        least: Lowest number of examples per client.

    Returns:
        [N] sizes that sum to ``total``.
    """
    shares = np.cumsum(weights)
    edges = np.rint(shares / shares[-1] * (total - least * len(weights))).astype(np.int64)
    sizes: np.ndarray = least + np.diff(edges, prepend=0)
    return sizes


def lognormal_weights(clients: int, sigma: float, rng: np.random.Generator) -> np.ndarray:
    """Draw N weights from the lognormal(0, sigma) distribution, up to a common factor; with sigma 0 all are equal."""
    z = sigma * rng.standard_normal(clients)
    weights: np.ndarray = np.exp(z - z.max())
    return weights


def lognormal_sizes(
    y: np.ndarray, clients: int, rng: np.random.Generator, *, sigma: float = 0.3, min_size: int = 10
) -> list[np.ndarray]:
    """Deal random examples in lognormal amounts.

    Every client has ``min_size`` examples; the others are shared out in proportion to lognormal(0, sigma) draws (the
    unbalanced setting of FedDyn, Acar et al. 2021, has sigma 0.3 and no lowest size). All examples are used.

    Raises:
        RequestError: If ``sigma`` is negative, or there are too few examples for ``min_size``.
    """
    sigma = number("sigma", sigma, at_least=0)
    least = integer("min_size", min_size, at_least=1)
    require_examples(len(y), clients, least)
    return _deal(sizes_of(lognormal_weights(clients, sigma, rng), len(y), least), rng)


def power_law_sizes(
    y: np.ndarray, clients: int, rng: np.random.Generator, *, exponent: float = 1.0, min_size: int = 10
) -> list[np.ndarray]:
    """Deal random examples in amounts that fall as a power of the rank.

    Every client has ``min_size`` examples; of the others the client of rank r = 1 .. N gets a share proportional to
    r^-exponent. Ranks are random. Exponent 1 is Zipf's law, 0 equal sizes. All examples are used.

    Raises:
        RequestError: If ``exponent`` is negative, or there are too few examples for ``min_size``.
    """
    exponent = number("exponent", exponent, at_least=0)
    least = integer("min_size", min_size, at_least=1)
    require_examples(len(y), clients, least)
    weights = rng.permutation(np.arange(1.0, clients + 1) ** -exponent)
    return _deal(sizes_of(weights, len(y), least), rng)


def _deal(sizes: np.ndarray, rng: np.random.Generator) -> list[np.ndarray]:
    return np.split(rng.permutation(sizes.sum()), np.cumsum(sizes)[:-1])
