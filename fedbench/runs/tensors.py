"""Files of tensors in the safetensors format, written piece by piece: no tensor is copied as a whole."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from fedbench.core.errors import RequestError

_PIECE = 2**24  # bytes that are copied at once
_NAMES = {
    torch.uint64: "U64", torch.int64: "I64", torch.float64: "F64", torch.complex64: "C64", torch.float32: "F32",
    torch.uint32: "U32", torch.int32: "I32", torch.bfloat16: "BF16", torch.float16: "F16", torch.uint16: "U16",
    torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8", torch.bool: "BOOL",
}  # fmt: skip  # in the order in which they come in a file


def save_tensors(tensors: Mapping[str, Tensor], path: Path, metadata: Mapping[str, str] | None = None) -> None:
    """Write tensors, which may share memory and be on any device, as ``safetensors.torch.save_file`` writes copies.

    Args:
        tensors: The tensors by name.
        path: The file.
        metadata: Texts for the file's header.

    Raises:
        OSError: If the file cannot be written.
    """
    order = list(_NAMES)
    names = sorted(tensors, key=lambda name: (order.index(tensors[name].dtype), name))
    header: dict[str, object] = {} if metadata is None else {"__metadata__": dict(metadata)}
    at = 0
    for name in names:
        v = tensors[name]
        header[name] = {"dtype": _NAMES[v.dtype], "shape": list(v.shape), "data_offsets": [at, at + v.nbytes]}
        at += v.nbytes
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name in names:
            for piece in _pieces(tensors[name].detach()):
                file.write(piece.data)


def read_tensors(path: Path, name: str) -> dict[str, Tensor]:
    """Return the tensors of a file in the safetensors format.

    Args:
        path: The file.
        name: Key that names it, for messages.

    Raises:
        RequestError: If it does not exist, or is not such a file.
    """
    from safetensors.torch import load_file

    if not path.is_file():
        raise RequestError(f"{name}={path} does not exist; it must be a .safetensors file, or null")
    try:
        found: dict[str, Tensor] = load_file(path)
    except Exception as error:  # of a corrupt file the library raises KeyError and others besides its own error
        fault = " ".join(str(error).split()) or type(error).__name__
        raise RequestError(f"{name}={path} cannot be read as a .safetensors file: {fault[:300]}") from error
    return found


def _pieces(v: Tensor) -> Iterator[np.ndarray]:
    """Yield the bytes of a tensor in its order, a few of its rows at a time."""
    rows = v.unsqueeze(0) if v.dim() == 0 else v
    size = max(1, _PIECE // max(1, rows[:1].nbytes))
    for part in rows.split(size):
        if len(part):
            yield part.contiguous().cpu().view(torch.uint8).numpy()
