"""Partitions by Dirichlet draws: two common rules, and one for a sample of the data.

``dirichlet`` draws the clients' shares of every class, so that clients also differ in size;
``dirichlet_mixture`` draws a mixture of classes for every client, whose size is fixed in advance.
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
    """Divide every class among all clients by a Dirichlet draw.

    For each class, q ~ Dir(α 1_N), and the shuffled examples are cut at floor(cumsum(q) n_class).
    All classes are redrawn until every client has ``min_size`` examples. With ``balance``, before a
    class is cut, q_k is set to 0 for clients that already hold at least total / N examples, and q
    is renormalised (code of Yurochkin et al. 2019 and of FedMA, Wang et al. 2020). All examples are
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
    """Draw examples at random without replacement and divide them like ``dirichlet``.

    The other examples belong to no client. The rule is meant for deliberately reduced settings:
    every seed draws different examples.

    Args:
        y: Labels [T].
        clients: Number of clients N.
        rng: Random generator of the draws.
        examples: Number of examples to draw; T divides all examples like ``dirichlet``, but in
            another order.
        alpha: Concentration of the shares.
        min_size: Minimum number of examples per client.

    Raises:
        RequestError: If there are fewer than ``examples`` examples, or no draw meets ``min_size``.
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
    """Cut one class after another, skipping clients that are full.

    Args:
        q: Shares [tries, K, N].
        sizes: [K] number of examples of each class.
        rng: Random generator for the choice among clients whose shares are all 0.

    Returns:
        [tries, K, N] numbers of examples.
    """
    counts = np.zeros(q.shape, dtype=np.int64)
    for c, size in enumerate(sizes):
        held = counts.sum(1)  # [tries, N]
        room = held < sizes.sum() / q.shape[-1]  # never all False: examples remain
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
    """Draw a mixture of classes for every client, and its examples from this mixture.

    This is the rule of Hsu et al. (2019). Client k of size n_k has the mixture q_k ~ Dir(α p),
    where p sums to 1, and draws n_k examples without replacement. An exhausted class is dropped
    from the mixtures of later clients, which are renormalised. If all classes of a client are
    exhausted, the client draws uniformly from the remaining examples. The last clients therefore
    resemble their mixtures least. All examples are used.

    Args:
        y: Labels [T].
        clients: Number of clients N.
        rng: Random generator of the draws.
        alpha: Total concentration; with K classes and uniform p, each class has concentration
            α / K.
        prior: The base measure p: "data" for the class shares in ``y``, or "uniform".
        size_sigma: Spread of the sizes: sizes beyond ``min_size`` are proportional to lognormal(0,
            size_sigma) draws; 0 gives equal sizes.
        min_size: Minimum number of examples per client.

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
