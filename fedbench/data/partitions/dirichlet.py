"""Partitions by Dirichlet draws: two rules of the same name, and one for a part of the examples.

``dirichlet`` draws the shares of the clients in every class, so that clients differ in size too;
``dirichlet_mixture`` draws the mixture of classes of every client, whose size is fixed in advance.
The variant of AdaFedAdam's authors is ``dirichlet_min_share`` in fedbench.data.partitions.basic.
"""

from functools import partial
from typing import Literal

import numpy as np
from numpy.random import Generator

from fedbench.core.errors import RequestError
from fedbench.core.options import Count, NonNegative, Positive
from fedbench.data.partitions.basic import (
    Owned,
    by_label,
    cut,
    deal,
    deal_dirichlet,
    lognormal_weights,
    require_examples,
    restrict_shares,
    sizes_of,
)

_TINY = np.finfo(np.float64).tiny


def dirichlet(
    y: np.ndarray,
    clients: int,
    rng: Generator,
    *,
    alpha: Positive = 0.5,
    balance: bool = False,
    min_size: Count = 10,
) -> Owned:
    """Share every class among all clients by a Dirichlet draw.

    Per class q ~ Dir(α 1_N), and its shuffled examples are cut at floor(cumsum(q) n_class). All
    classes are redrawn until every client has ``min_size`` examples. With ``balance``, before a
    class is cut q_k is set to 0 for the clients that already hold total / N or more, and q is
    renormalised (code of Yurochkin et al. 2019 and of FedMA, Wang et al. 2020). All examples are
    used.

    Raises:
        RequestError: If no draw meets ``min_size``.
    """
    cut_classes = partial(_balanced, rng=rng) if balance else cut
    return deal_dirichlet(cut_classes, y, clients, rng, alpha=alpha, min_size=min_size)


def dirichlet_sample(
    y: np.ndarray,
    clients: int,
    rng: Generator,
    *,
    examples: Count = 10000,
    alpha: Positive = 0.1,
    min_size: Count = 10,
) -> Owned:
    """Draw examples at random without replacement and share them as ``dirichlet`` does.

    The others belong to no client. Meant for settings that are reduced on purpose: every seed draws
    other examples.

    Args:
        y: Labels [T].
        clients: Number of clients N.
        rng: Random generator of the draws.
        examples: Number of examples that are drawn; T of them give ``dirichlet`` of all, in another
            order.
        alpha: Concentration of the shares.
        min_size: Lowest number of examples per client.

    Raises:
        RequestError: If there are fewer examples than are to be drawn, or no draw meets
            ``min_size``.
    """
    if examples > len(y):
        raise RequestError(
            f"examples must be at most {len(y)}, the number of examples of the data, got {examples}"
        )
    kept = rng.permutation(len(y))[:examples]
    parts = dirichlet(y[kept], clients, rng, alpha=alpha, min_size=min_size)
    return [kept[rows] for rows in parts]


def _balanced(
    q: np.ndarray,
    sizes: np.ndarray,
    rng: Generator,
) -> np.ndarray:
    """Cut one class after the other, skipping clients that are full.

    Args:
        q: Shares [tries, K, N].
        sizes: [K] number of examples of each class.
        rng: Random generator of the choice among clients whose shares are all 0.

    Returns:
        [tries, K, N] numbers of examples.
    """
    counts = np.zeros(q.shape, dtype=np.int64)
    for c, size in enumerate(sizes):
        held = counts.sum(1)  # [tries, N]
        room = held < sizes.sum() / q.shape[-1]  # never all False: some examples are left
        shares = restrict_shares(q[:, c], room, rng)
        counts[:, c] = cut(shares, size)
    return counts


def dirichlet_mixture(
    y: np.ndarray,
    clients: int,
    rng: Generator,
    *,
    alpha: Positive = 1.0,
    prior: Literal["data", "uniform"] = "data",
    size_sigma: NonNegative = 0.0,
    min_size: Count = 10,
) -> Owned:
    """Draw for every client a mixture of classes, and its examples from that mixture.

    The rule of Hsu et al. (2019). Client k of size n_k has the mixture q_k ~ Dir(α p), where p sums
    to 1, and draws n_k examples without replacement: an exhausted class is dropped from the
    mixtures of the clients that follow, which are renormalised; a client all of whose classes are
    exhausted draws uniformly from the remaining examples. The last clients are therefore the least
    like their mixtures. All examples are used.

    Args:
        y: Labels [T].
        clients: Number of clients N.
        rng: Random generator of the draws.
        alpha: Total concentration: with K classes and equal p each class has α / K.
        prior: The base measure p: "data", the shares of the classes in ``y``, or "uniform".
        size_sigma: Sizes beyond ``min_size`` are proportional to lognormal(0, size_sigma) draws; 0
            means equal sizes.
        min_size: Lowest number of examples per client.

    Raises:
        RequestError: If there are too few examples for ``min_size``.
    """
    require_examples(len(y), clients, min_size)
    left = np.unique(y, return_counts=True)[1]  # [K]
    p = left / left.sum()
    if prior == "uniform":
        p = np.full(len(left), 1 / len(left))
    mixtures = rng.dirichlet(np.maximum(alpha * p, _TINY), clients)  # [N, K]
    weights = lognormal_weights(clients, size_sigma, rng)
    sizes = sizes_of(weights, len(y), min_size)
    counts = np.zeros((len(left), clients), dtype=np.int64)
    for client, missing in enumerate(sizes):
        while missing:
            shares = mixtures[client] * (left > 0)
            if not shares.any():
                shares = left
            wanted = rng.multinomial(missing, shares / shares.sum())
            drawn = np.minimum(wanted, left)
            counts[:, client] += drawn
            left = left - drawn
            missing -= drawn.sum()
    return deal(by_label(y, rng), counts)
