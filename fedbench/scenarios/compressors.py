"""Compressors: what the receiver decodes from compressed vectors. Rows x are [c, P], a vector per sender."""

from collections.abc import Sequence
from math import inf, sqrt
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from fedbench.core.randomness import Purpose, fold_in, key
from fedbench.scenarios.population import normal

_DEPENDENT = 1e-12  # a column that is shorter than this, in units of its matrix, is rounding


def top_k(x: Tensor, k: int) -> Tensor:
    """Return the k largest values of each row in their places (Stich et al., NeurIPS 2018)."""
    size = x.abs().nan_to_num(nan=inf, posinf=inf)  # what is not finite is sent
    return torch.where(_largest(size, k), x, 0)


def random_k(
    x: Tensor,
    k: int,
    hashes: Tensor,
    unbiased: bool,
) -> Tensor:
    """Return the k values of each row with the smallest hashes in their places (Stich et al., NeurIPS 2018).

    Args:
        x: The vectors.
        k: Number of values.
        hashes: A random number of each value [c, P].
        unbiased: Whether to scale them by P/k.
    """
    kept = torch.where(_largest(-hashes, k), x, 0)
    return (kept.double() * (x.shape[1] / k)).to(x.dtype) if unbiased else kept


def sign(x: Tensor, sizes: Sequence[int]) -> Tensor:
    """Return signs times mean absolute values (Karimireddy et al., ICML 2019, Alg. 1); 0 has the sign +.

    Args:
        x: The vectors.
        sizes: Numbers of values that share a scale.
    """
    scales = [
        part.abs()
        .mean(
            1,
            keepdim=True,
            dtype=torch.float64,
        )
        .to(x.dtype)
        .expand_as(part)
        for part in x.split(sizes, 1)
    ]
    scale = torch.cat(scales, 1)
    return torch.where(x >= 0, scale, -scale)


def qsgd(
    x: Tensor,
    levels: int,
    bucket: int,
    norm: Literal["l2", "max"],
    hashes: Tensor,
    unbiased: bool,
) -> Tensor:
    """Return values rounded at random to levels of their bucket's norm (Alistarh et al., NeurIPS 2017, Sec. 3.1).

    Args:
        x: The vectors.
        levels: Number of levels, without 0 and the sign.
        bucket: Number of values that share a norm; the last bucket may be smaller.
        norm: Norm of a bucket.
        hashes: A random number of each value [c, P].
        unbiased: Whether the result has mean x; otherwise it is shrunk to be nearer to x.
    """
    count = x.shape[1]

    def buckets(values: Tensor) -> Tensor:  # [c, buckets, bucket]
        return F.pad(values, (0, -count % bucket)).view(len(x), -1, bucket)

    v = buckets(x.double())
    u = buckets((hashes.double() + 0.5) / 2.0**63)
    length = torch.linalg.vector_norm(v, 2 if norm == "l2" else inf, 2, keepdim=True)
    length = length.to(x.dtype).double()  # as it is sent
    r = torch.where(length > 0, levels * v.abs() / length, 0)
    level = (r.floor() + (u < r - r.floor())).clamp(max=levels)
    decoded: Tensor = (length * level * v.sign() / levels).flatten(1)[:, :count]
    if unbiased:
        return decoded.to(x.dtype)
    omega = bucket / (4 * levels**2)
    if norm == "l2":
        omega = min(bucket / levels**2, sqrt(bucket) / levels)
    return (decoded / (1 + omega)).to(x.dtype)


def power(
    x: Tensor,
    matrices: Sequence[tuple[int, int, int]],
    draw: int,
    last: Tensor | None,
) -> tuple[Tensor, Tensor | None]:
    """Return matrices of low rank by one step of the power method (PowerSGD; Vogels et al., NeurIPS 2019, Alg. 1).

    Args:
        x: The vectors.
        matrices: Rows, columns and rank of each tensor; rank 0 where it is sent as it is.
        draw: The key of the draws.
        last: The factors before; zeros at first, None if they are not kept.

    Returns:
        The vectors, and the factors for the next round; None if they are not kept.
    """
    decoded = list(x.split([n * m for n, m, _ in matrices], 1))
    before = None if last is None else last.double().split([m * r for _, m, r in matrices], 1)
    factors = []
    for place, (n, m, r) in enumerate(matrices):
        if not r:
            continue
        # drawn in every round: the same factor would never send the rest
        entry = torch.arange(m * r, device=x.device)
        hashes = fold_in(key(draw, Purpose.SKETCH), torch.full_like(entry, place), entry)
        q = normal(hashes).view(m, r)
        if before is not None:  # a column of zeros, of a matrix of lower rank, is drawn again
            warm = before[place].view(-1, m, r)
            q = torch.where((warm != 0).any(1, keepdim=True), warm, q)
        matrix = decoded[place].double().view(-1, n, m)
        basis = orthonormal(matrix @ q).to(x.dtype).double()
        factor = (matrix.mT @ basis).to(x.dtype)
        decoded[place] = (basis @ factor.double().mT).flatten(1).to(x.dtype)
        factors.append(factor.flatten(1))
    return torch.cat(decoded, 1), None if last is None else torch.cat(factors, 1)


def _largest(values: Tensor, k: int) -> Tensor:
    """Return which k values of each row [c, P] are the largest; of equal ones the first."""
    least = values.topk(k, 1, sorted=False).values.amin(1, keepdim=True)
    above, equal = values > least, values == least
    missing = k - above.sum(1, keepdim=True)
    chosen: Tensor = above | (equal & (equal.cumsum(1) <= missing))
    return chosen


def orthonormal(y: Tensor) -> Tensor:
    """Return an orthonormal basis of the columns of y [c, n, r], with 0 for columns that depend on those before."""
    least = _DEPENDENT * torch.linalg.vector_norm(y, dim=(1, 2)).view(-1, 1, 1)
    basis = y[:, :, :0]
    for column in y.split(1, 2):
        for _ in range(2):  # once more for what rounding leaves
            column = column - basis @ (basis.mT @ column)
        length = torch.linalg.vector_norm(column, dim=1, keepdim=True)
        basis = torch.cat([basis, torch.where(length > least, column / length, 0)], 2)
    return basis
