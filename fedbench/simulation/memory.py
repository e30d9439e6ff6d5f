"""Memory of this process and its device: the free amount, and out-of-memory errors."""

import ctypes
import errno
import os
import sys

import psutil
import torch

# from glibc's malloc.h
_TRIM_THRESHOLD = -1
_TOP_PAD = -2
_MMAP_MAX = -4
_MESSAGES = (  # in torch's RuntimeErrors
    "can't allocate memory",
    "not enough memory",
    "out of memory",
    "std::bad_alloc",
    "status_alloc_failed",  # of cuBLAS, cuDNN and others
    "unable to find an engine",  # of cuDNN, when no kernel's workspace fits
)


class OutOfMemory(Exception):
    """Error raised, with advice, if the smallest piece of work does not fit into memory."""


def allocation_failed(error: BaseException) -> bool:
    """Return whether torch, NumPy, compiled code or the system could not allocate memory."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    if not isinstance(error, RuntimeError):
        return False
    text = str(error).lower()
    return any(message in text for message in _MESSAGES)


def free_bytes(device: torch.device) -> int:
    """Return the bytes available to tensors: GPU memory, or main memory without swap."""
    if device.type != "cuda":
        return int(psutil.virtual_memory().available)
    free, _ = torch.cuda.mem_get_info(device)
    reserved = torch.cuda.memory_reserved(device)
    unused = reserved - torch.cuda.memory_allocated(device)
    return int(free) + unused


def keep_memory() -> None:
    """Keep freed memory in this process instead of returning it to the system (glibc only).

    Otherwise, the system maps and clears buffers of a few MB every time, and a training step
    allocates dozens of them; docs/performance.md contains measurements. Settings in MALLOC_*
    environment variables take precedence.
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
