"""A compressor: values are rounded at random to -s, 0 or s (TernGrad, Wen et al., NeurIPS 2017)."""

from dataclasses import dataclass
from math import ceil

import torch
from torch import Tensor

from fedbench.core.randomness import fold_in
from fedbench.scenarios.compression import Codec


@dataclass(frozen=True, kw_only=True)
class Ternary(Codec):
    """Values become s · sign(x) with probability |x| / s, otherwise 0; s is the largest |x|.

    The expected result is x.
    """

    def decoded(self, x: Tensor, draw: int, at: tuple[Tensor, ...]) -> Tensor:
        """Return the vectors that are decoded for x [c, P]."""
        entry = torch.arange(x.shape[1], device=x.device)
        u = fold_in(draw, *at, entry).double() / 2.0**63  # uniform in [0, 1)
        scale = x.abs().amax(1, keepdim=True)
        return torch.where(u * scale < x.abs(), scale * x.sign(), 0)

    def size(self, count: int, b: int) -> int:
        """Return the bytes of a scale of b bytes and of two bits per value."""
        return b + ceil(2 * count / 8)
