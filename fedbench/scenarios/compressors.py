"""Compressors, which return the decoded vectors. Rows x are [c, P], one vector per sender."""

from collections.abc import Sequence
from math import inf, sqrt
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from fedbench.core.randomness import Purpose, fold_in, key
from fedbench.scenarios.population import normal

_DEPENDENT = 1e-12  # shorter columns, relative to their matrix, are rounding errors


def top_k(x: Tensor, k: int) -> Tensor:
    """Return the k largest values of each row in their places (Stich et al., NeurIPS 2018)."""
    size = x.abs().nan_to_num(nan=inf, posinf=inf)  # non-finite values are sent
    return torch.where(_largest(size, k), x, 0)


def random_k(
    x: Tensor,
    k: int,
    hashes: Tensor,
    unbiased: bool,
) -> Tensor:
    """Return the k values of each row with the smallest hashes in their places.

    Source: Stich et al., NeurIPS 2018.

    Args:
        x: The vectors.
        k: Number of values.
        hashes: A random number for each value [c, P].
        unbiased: Whether to scale the values by P/k.
    """
    kept = torch.where(_largest(-hashes, k), x, 0)
    if not unbiased:
        return kept
    scale = x.shape[1] / k
    return (kept.double() * scale).to(x.dtype)


def sign(x: Tensor, sizes: Sequence[int]) -> Tensor:
    """Return the signs times mean absolute values; the sign of 0 is +.

    Source: Karimireddy et al., ICML 2019, Alg. 1.

    Args:
        x: The vectors.
        sizes: Sizes of the groups of values that share a scale.
    """
    scales = []
    for part in x.split(sizes, 1):
        mean = part.abs().mean(1, keepdim=True, dtype=torch.float64)
        scales.append(mean.to(x.dtype).expand_as(part))
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
    """Return the values, rounded randomly to levels of their bucket's norm.

    Source: Alistarh et al., NeurIPS 2017, Sec. 3.1.

    Args:
        x: The vectors.
        levels: Number of levels, not counting 0 and the sign.
        bucket: Number of values that share a norm; the last bucket may be smaller.
        norm: Norm of a bucket.
        hashes: A random number for each value [c, P].
        unbiased: Whether the expected result is x; otherwise, the result is shrunk to be closer to
            x.
    """
    count = x.shape[1]

    def buckets(values: Tensor) -> Tensor:  # [c, buckets, bucket]
        padded = F.pad(values, (0, -count % bucket))
        return padded.view(len(x), -1, bucket)

    v = buckets(x.double())
    drawn = (hashes.double() + 0.5) / 2.0**63
    u = buckets(drawn)

    order = 2 if norm == "l2" else inf
    length = torch.linalg.vector_norm(v, order, 2, keepdim=True)
    length = length.to(x.dtype).double()  # in the precision in which it is sent

    r = torch.where(length > 0, levels * v.abs() / length, 0)
    below = r.floor()
    level = (below + (u < r - below)).clamp(max=levels)
    rounded = length * level * v.sign() / levels
    decoded: Tensor = rounded.flatten(1)[:, :count]

    if unbiased:
        return decoded.to(x.dtype)
    # variance bound relative to |x|^2 (Lemma 3.1); dividing by 1 + omega gives a contraction
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
    """Return low-rank matrices from one step of the power method.

    Source: PowerSGD, Vogels et al., NeurIPS 2019, Alg. 1.

    Args:
        x: The vectors.
        matrices: Rows, columns and rank of each tensor; rank 0 if it is sent uncompressed.
        draw: Key of the random draws.
        last: Previous factors; zeros initially, None if factors are not kept.

    Returns:
        The vectors, and the factors for the next round or None if factors are not kept.
    """
    counts = [n * m for n, m, _ in matrices]
    decoded = list(x.split(counts, 1))
    sizes = [m * r for _, m, r in matrices]
    before = None if last is None else last.double().split(sizes, 1)

    factors = [x[:, :0]]  # there may be no factors
    for place, (n, m, r) in enumerate(matrices):
        if not r:
            continue
        # drawn in every round: a fixed factor would never send the rest
        entry = torch.arange(m * r, device=x.device)
        tensor = torch.full_like(entry, place)
        hashes = fold_in(key(draw, Purpose.SKETCH), tensor, entry)
        q = normal(hashes).view(m, r)
        if before is not None:  # a column of zeros, of a matrix of lower rank, is drawn again
            warm = before[place].view(-1, m, r)
            known = (warm != 0).any(1, keepdim=True)
            q = torch.where(known, warm, q)

        matrix = decoded[place].double().view(-1, n, m)
        basis = orthonormal(matrix @ q)
        basis = basis.to(x.dtype).double()
        factor = (matrix.mT @ basis).to(x.dtype)
        product = basis @ factor.double().mT
        decoded[place] = product.flatten(1).to(x.dtype)
        factors.append(factor.flatten(1))

    new = None if last is None else torch.cat(factors, 1)
    return torch.cat(decoded, 1), new


def _largest(values: Tensor, k: int) -> Tensor:
    """Return a mask of the k largest values of each row [c, P]; ties go to the first value."""
    largest = values.topk(k, 1, sorted=False).values
    least = largest.amin(1, keepdim=True)
    above = values > least
    equal = values == least
    missing = k - above.sum(1, keepdim=True)
    first = equal.cumsum(1) <= missing
    chosen: Tensor = above | (equal & first)
    return chosen


def orthonormal(y: Tensor) -> Tensor:
    """Return an orthonormal basis of the columns of y [c, n, r].

    Columns that depend linearly on earlier columns become 0.
    """
    size = torch.linalg.vector_norm(y, dim=(1, 2))
    least = _DEPENDENT * size.view(-1, 1, 1)
    basis = y[:, :, :0]
    for column in y.split(1, 2):
        for _ in range(2):  # twice, to remove rounding errors
            column = column - basis @ (basis.mT @ column)
        length = torch.linalg.vector_norm(column, dim=1, keepdim=True)
        unit = torch.where(length > least, column / length, 0)
        basis = torch.cat([basis, unit], 2)
    return basis
