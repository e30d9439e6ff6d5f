"""Files of tensors in the safetensors format."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from fedbench.core.errors import RequestError


def save_tensors(tensors: Mapping[str, Tensor], path: Path) -> None:
    """Write tensors, which may share memory and be on any device.

    Raises:
        OSError: If the file cannot be written.
    """
    written: dict[str, Tensor] = {}
    memory: set[int] = set()
    for name, v in tensors.items():
        place = v.untyped_storage().data_ptr()  # the format refuses tensors that share memory
        written[name] = v.detach().clone() if place in memory else v.detach().contiguous()
        memory.add(place)
    try:
        save_file(written, path)
        os.umask(mask := os.umask(0))
        path.chmod(0o666 & ~mask)  # safetensors lets its owner alone read it
    except SafetensorError as error:
        full = "StorageFull" in str(error) or "No space" in str(error)
        raise OSError(errno.ENOSPC if full else errno.EIO, str(error)) from error


def read_tensors(path: Path, name: str) -> dict[str, Tensor]:
    """Return the tensors of a file in the safetensors format.

    Args:
        path: The file.
        name: Key that names it, for messages.

    Raises:
        RequestError: If it does not exist, or is not such a file.
    """
    if not path.is_file():
        raise RequestError(f"{name}={path} does not exist; it must be a .safetensors file, or null")
    try:
        found: dict[str, Tensor] = load_file(path)
    except Exception as error:  # of a corrupt file the library raises KeyError and others besides its own error
        fault = " ".join(str(error).split()) or type(error).__name__
        raise RequestError(f"{name}={path} cannot be read as a .safetensors file: {fault[:300]}") from error
    return found
