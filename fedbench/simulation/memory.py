"""Memory of this process and its device: how much is free, and which errors say that it has run out."""

import ctypes
import errno
import os
import sys

import psutil
import torch

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX = -1, -2, -4  # from glibc's malloc.h
_MESSAGES = (  # of torch's RuntimeErrors
    "can't allocate memory",
    "not enough memory",
    "out of memory",
    "std::bad_alloc",
    "status_alloc_failed",  # of cuBLAS, cuDNN and others
    "unable to find an engine",  # of cuDNN, when no kernel's workspace fits
)


class OutOfMemory(Exception):
    """The smallest piece of work does not fit into memory; the message names it and how to make it smaller."""


def allocation_failed(error: BaseException) -> bool:
    """Return whether an error is that memory could not be allocated: by torch, NumPy, compiled code or the system."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    return isinstance(error, RuntimeError) and any(
        message in str(error).lower() for message in _MESSAGES
    )


def free_bytes(device: torch.device) -> int:
    """Return how many bytes tensors on a device can take: free memory of the GPU, or main memory without swapping."""
    if device.type != "cuda":
        return int(psutil.virtual_memory().available)
    free, _ = torch.cuda.mem_get_info(device)
    return int(free) + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)


def keep_memory() -> None:
    """Keep freed memory in this process instead of returning it to the system, if the allocator is glibc's.

    Buffers of a few MB, of which a training step allocates dozens, are otherwise mapped and cleared
    every time; docs/performance.md has measurements. Settings in MALLOC_* environment variables
    take precedence.
    """
    if sys.platform != "linux" or any(name.startswith("MALLOC_") for name in os.environ):
        return
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except AttributeError:  # another C library
        return
    mallopt(_MMAP_MAX, 0)
    mallopt(_TRIM_THRESHOLD, 2**31 - 1)
    mallopt(_TOP_PAD, 64 * 2**20)
