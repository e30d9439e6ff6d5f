"""Readers for user files and downloads: text, NumPy archives, images and CIFAR's pickles."""

import io
import pickle
import pickletools
from collections.abc import Collection
from pathlib import Path
from typing import Any, Literal

import numpy as np
import psutil
from PIL import Image

from fedbench.core.errors import RequestError, shown
from fedbench.core.files import reading

# formats in which image data sets are published; Pillow supports dozens of others, one of which
# (EPS) starts another program
_FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "GIF")
# maximum number of tuples in a pickle: hashing time doubles with each level of nesting, and CIFAR's
# pickles contain few tuples
_DEEPEST = 20


def read_text(path: Path) -> str:
    """Return the content of a UTF-8 text file.

    Raises:
        RequestError: If the file cannot be read or is not in UTF-8.
    """
    with reading(path, "is not text in UTF-8"):
        return path.read_text(encoding="utf-8")


def read_npz(
    path: Path,
    known: Collection[str],
) -> dict[str, np.ndarray]:
    """Return the arrays in an archive written by ``numpy.savez`` or ``savez_compressed``.

    Args:
        path: The archive.
        known: Permitted names of arrays.

    Raises:
        RequestError: If the archive is corrupt, or contains an array with another name or with
            anything but plain numbers or text.
    """
    with (
        reading(path, "is not a .npz file of plain arrays", "write it with numpy.savez"),
        path.open("rb") as file,
        np.load(file, allow_pickle=False) as archive,
    ):
        names = archive.files
        if other := [name for name in names if name not in known]:
            raise RequestError(
                f"{path} has an unknown array {shown(other[0])}; it may contain {', '.join(known)}"
            )
        arrays = {name: archive[name] for name in names}
        for array in arrays.values():
            if array.dtype.kind == "U":
                "".join(array.ravel().tolist()).encode()  # reject lone surrogates
        return arrays


def open_image(source: str | Path | io.BytesIO) -> Image.Image:
    """Open an image and read only its header; Pillow rejects images with too many pixels."""
    return Image.open(source, formats=_FORMATS)


def read_pickle(path: Path) -> dict[Any, Any]:
    """Return the dictionary of plain values and NumPy arrays pickled in a CIFAR file.

    Functions named in the file are never called, not even NumPy's: with a crafted type and state,
    reading a NumPy array can crash. Stand-ins check both.

    Raises:
        pickle.UnpicklingError: If the file refers to anything else, or would exhaust memory or the
            stack.
        Exception: Any other error, if the file is corrupt.
    """
    content = path.read_bytes()
    tuples = 0
    for count, (opcode, argument, _) in enumerate(pickletools.genops(content)):
        tuples += "TUPLE" in opcode.name
        # a memo number never exceeds the number of preceding operations; a larger one would reserve
        # memory for all numbers up to it
        if tuples > _DEEPEST or ("PUT" in opcode.name and (argument or 0) > count):
            raise pickle.UnpicklingError("it is nested too deeply or out of order")
    unpickler = _ArraysOnly(io.BytesIO(content), encoding="latin1")
    loaded: dict[Any, Any] = unpickler.load()
    for key, value in loaded.items():
        if isinstance(value, _Call):
            loaded[key] = _array(value)
    return loaded


class _ArraysOnly(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if name not in _STAND_INS:
            raise pickle.UnpicklingError(f"it refers to {module}.{name}")
        return _STAND_INS[name]


class _Call:
    """A call requested by a pickle, and the state of its result; neither is executed."""

    def __init__(self, *arguments: Any) -> None:
        self.arguments = arguments

    def __setstate__(self, state: Any) -> None:
        self.state = state


# for the names in pickled arrays, and the function with which Python 3 pickles bytes for Python 2
_STAND_INS = {
    "_reconstruct": _Call,
    "ndarray": None,
    "dtype": _Call,
    "encode": lambda text, _: text.encode("latin1"),
}


def _array(call: _Call) -> np.ndarray:
    """Return the byte array represented by a call of ``_reconstruct``."""
    _, shape, kind, fortran, raw = call.state
    if kind.arguments[0] != "u1":
        raise pickle.UnpicklingError(
            f"it has an array of type {shown(kind.arguments[0])}, not of bytes"
        )
    content = raw.encode("latin1") if isinstance(raw, str) else raw  # text contains Python 2 bytes
    order: Literal["F", "C"] = "F" if fortran else "C"
    return np.frombuffer(content, np.uint8).reshape(shape, order=order)


def refuse_too_large(place: str, need: int, remedy: str) -> None:
    """Refuse data that do not fit into free memory, before the system kills the process.

    Args:
        place: Description of the data, for the message.
        need: Number of bytes needed.
        remedy: Advice for the user, for the message.

    Raises:
        RequestError: If the data do not fit; the message states both sizes.
    """
    free = psutil.virtual_memory().available
    if need > free:
        raise RequestError(
            f"{place} need {need / 1e9:.1f} GB, but {free / 1e9:.1f} GB are free; {remedy}"
        )
