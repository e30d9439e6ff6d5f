"""Memory: how much there is, how much a local step takes, and which errors mean that it ran out."""

from __future__ import annotations

import errno

import psutil
import torch
from torch import Tensor

from fedbench.data.dataset import FederatedDataset
from fedbench.simulation.task import Task, example_losses

_SIGNS = (  # in torch's RuntimeErrors
    "can't allocate memory",
    "not enough memory",
    "out of memory",
    "std::bad_alloc",
    "status_alloc_failed",  # of cuBLAS, cuDNN and others
    "unable to find an engine",  # of cuDNN, when no kernel's workspace fits
)
_EXAMPLES = 4  # in the batch that is measured; the activations of a batch are proportional to its size
_PASSES = 2  # a backward pass and its temporary tensors take about as much as what the forward pass saved
_VECTORS = 8  # of the size of the model, per client: models, gradients, the method's own, the upload, the new state


class OutOfMemory(Exception):
    """What has to be in memory at once does not fit; the message says what that is and how to make it smaller."""


def allocation_failed(error: BaseException) -> bool:
    """Return whether an error is that memory could not be allocated: by torch, NumPy, compiled code or the system."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    return isinstance(error, RuntimeError) and any(sign in str(error).lower() for sign in _SIGNS)


def free_bytes(device: torch.device) -> int:
    """Number of bytes that tensors on a device can take: free memory of the GPU, or main memory without swapping."""
    if device.type != "cuda":
        return int(psutil.virtual_memory().available)
    free, _ = torch.cuda.mem_get_info(device)
    return int(free) + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)


def client_bytes(task: Task, data: FederatedDataset, width: int) -> int:
    """Return about how many bytes the local phase of one client takes, with batches of ``width`` examples.

    These are a number of vectors of the size of the model, and the activations. The latter are measured: the tensors
    that one forward pass over a few examples saves for its backward pass.
    """
    count = max(1, min(_EXAMPLES, width, len(data.train.index)))
    saved = _saved_bytes(task, data, data.train.index[:count])
    return _VECTORS * task.size * task.dtype.itemsize + _PASSES * saved * width // count


def _saved_bytes(task: Task, data: FederatedDataset, rows: Tensor) -> int:
    """Return the bytes that a forward pass over the examples ``rows`` saves, without the parameters."""
    w = torch.zeros(task.size, device=task.device, dtype=task.dtype)
    kept: dict[int, torch.UntypedStorage] = {}  # views share one; held, so that no other takes its address

    def keep(tensor: Tensor) -> None:
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage()

    leaves = [v.requires_grad_() for v in task.layout.views(w)]
    draws = torch.zeros((), dtype=torch.int64, device=task.device) if task.traits.random else None
    with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(keep, lambda nothing: nothing):
        example_losses(task.apply(leaves, task.images(data.features(rows)), draws), data.labels(rows), 1)
    kept.pop(w.untyped_storage().data_ptr(), None)
    return sum(storage.nbytes() for storage in kept.values())
