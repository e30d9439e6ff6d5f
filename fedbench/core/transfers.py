"""Copies from the host to the device of the computation."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


def upload(values: np.ndarray, device: torch.device, dtype: torch.dtype | None = None) -> Tensor:
    """Return an array as a tensor on ``device``, of ``dtype`` if given; on a CPU it may share the array's memory.

    The host does not wait for a GPU to finish what it has been given: ordinary memory is staged before the call
    returns, so that the array may change or go away, and the copy takes its place among the operations on the device.
    """
    return torch.from_numpy(values).to(device, dtype, non_blocking=True)
