"""Masks as bits: what a client sends is an eighth of a byte per parameter."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def packed(mask: Tensor) -> Tensor:
    """Return the bits of a mask [C, P] bool as bytes [C, ceil(P/8)] uint8, the first in the lowest place."""
    bits = F.pad(mask.to(torch.uint8), (0, -mask.shape[1] % 8)).view(len(mask), -1, 8)
    return (bits << torch.arange(8, dtype=torch.uint8, device=mask.device)).sum(2, dtype=torch.uint8)


def unpacked(packs: Tensor, size: int) -> Tensor:
    """Return the mask [C, size] bool of ``packed`` bytes."""
    places = torch.arange(8, dtype=torch.uint8, device=packs.device)
    bits = (packs.unsqueeze(2) >> places) & 1
    return bits.view(len(packs), -1)[:, :size].bool()
