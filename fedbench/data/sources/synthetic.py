"""Generated data: the two families called Synthetic.

Both draw x ~ N(v_k, Σ) with Σ = diag(j^-1.2) in 60 dimensions, and label x with one linear model
per client. They use NumPy's legacy generator, because the published data were drawn from it and its
stream is frozen.
"""

from typing import Annotated

import numpy as np
from pydantic import Field

from fedbench.core.errors import RequestError
from fedbench.core.options import Count, NonNegative, Seed
from fedbench.data.examples import Examples, Part, join

_DIM, _CLASSES = 60, 10
# Standard deviations; NumPy's power function differs in the last bit. NumPy's multivariate normal
# draws the same numbers, but decomposes the covariance for every client.
_SPREAD = np.sqrt([j**-1.2 for j in range(1, _DIM + 1)])


def leaf(
    clients: Count,
    *,
    generator_seed: Seed = 931231,
    feature_dtype: str = "float64",
) -> Examples:
    """Generate LEAF's synthetic data (Caldas et al., 2018), bit for bit.

    The data have one cluster, 10 classes and 60 dimensions. All clients share a matrix Q up to a
    scalar, so that one model can be correct for nearly all clients. Sizes are
    min(int(lognormal(3, 2)) + 5, 1000) and are drawn first; then the generator is seeded again.

    Args:
        clients: Number of clients (LEAF: num-tasks).
        generator_seed: Seed of the generator; LEAF's default is 931231.
        feature_dtype: Type to which the inputs are rounded, client by client.
    """
    rng = np.random.RandomState(generator_seed)
    drawn = rng.lognormal(3, 2, clients).astype(int)
    sizes = np.minimum(drawn + 5, 1000)
    rng = np.random.RandomState(generator_seed)
    q = rng.normal(0.0, 1.0, (_DIM + 1, _CLASSES, 1))
    center_of_center = rng.normal(0, 1.0)
    center = rng.normal(center_of_center, 1.0, 1)
    parts = []
    for client, n in enumerate(sizes):
        rng.random_sample()  # LEAF draws the cluster, even though there is only one
        center_of_mean = rng.normal(0.0, 1.0)
        mean = rng.normal(center_of_mean, 1.0, _DIM)
        x = mean + _SPREAD * rng.standard_normal((n, _DIM))
        w = q @ rng.normal(center, 0.1, 1)
        noise = rng.normal(0.0, 0.1, (n, _CLASSES))
        ones = np.ones((n, 1))
        with_bias = np.hstack([ones, x])
        y = (with_bias @ w + noise).argmax(1)
        features = x.astype(feature_dtype)
        parts.append(Part(str(client), None, features, y))
    note = f"LEAF synthetic generator: {clients} clients, seed {generator_seed}"
    return join(parts, classes=_CLASSES, sources=(note,))


def fedprox(
    seed: int,
    *,
    clients: Count,
    alpha: NonNegative | None,
    beta: NonNegative | None,
    size_sigma: Annotated[float, Field(ge=0, le=5)] = 2.0,
    most: Count | None = None,
    feature_dtype: str = "float64",
) -> Examples:
    """Generate Synthetic(α, β) of FedProx (Li et al., MLSys 2020) and q-FFL, or its iid form.

    Sizes are int(lognormal(4, size_sigma)) + 50. u_k ~ N(0, α), B_k ~ N(0, β) with α and β as
    standard deviations (as in the authors' code; the papers write N(0, α)); W_k, b_k ~ N(u_k, 1),
    v_k ~ N(B_k, 1); y = argmax(x W_k + b_k). The iid form has one W, b ~ N(0, 1) for all clients
    and v_k = 0. The order of the draws is: sizes, all u, all B, all v, then W, b, x per client. The
    authors do not set a seed, so their exact data cannot be reproduced; average over ``data.seed``.

    Args:
        seed: Random seed of the data.
        clients: Number of clients; 30 in FedProx, 100 in q-FFL.
        alpha: α, which determines how much the clients' models differ, or None for iid.
        beta: β, which determines how much the clients' inputs differ, or None for iid.
        size_sigma: Standard deviation of the logarithm of the sizes; 2, or 1 in q-FFL's iid script.
        most: Maximum number of examples per client, for very large populations. If None, there is
            no limit, as published.
        feature_dtype: Type to which the inputs are rounded, client by client.
    """
    rng = np.random.RandomState(seed)
    drawn = rng.lognormal(4, size_sigma, clients)
    sizes = drawn.astype(int) + 50
    if most is not None:
        sizes = np.minimum(sizes, most)
    if (alpha is None) != (beta is None):
        raise RequestError("alpha and beta must both be numbers, or both null for iid data")
    if alpha is None or beta is None:
        kind = "iid"
        w = rng.normal(0, 1, (_DIM, _CLASSES))
        b = rng.normal(0, 1, _CLASSES)
        v = np.zeros((clients, _DIM))
    else:
        kind = f"({alpha:g}, {beta:g})"
        u = rng.normal(0, alpha, clients)
        centers = rng.normal(0, beta, clients)
        v = rng.normal(centers[:, None], 1, (clients, _DIM))

    parts = []
    for k, n in enumerate(sizes):
        if kind != "iid":
            w = rng.normal(u[k], 1, (_DIM, _CLASSES))
            b = rng.normal(u[k], 1, _CLASSES)
        x = v[k] + _SPREAD * rng.standard_normal((n, _DIM))
        y = (x @ w + b).argmax(1)
        features = x.astype(feature_dtype)
        parts.append(Part(str(k), None, features, y))
    note = f"FedProx synthetic generator: {kind}, {clients} clients, seed {seed}"
    return join(parts, classes=_CLASSES, sources=(note,))
