"""Readers of files from users and downloads: text, NumPy archives, images, CIFAR's pickles."""

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

# Pillow knows dozens of formats, one of which (EPS) starts another program; data sets of images
# come in these
_FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "GIF")
# tuples of a pickle: the time of a hash doubles with each one around another, and CIFAR's have few
_DEEPEST = 20


def read_text(path: Path) -> str:
    """Return the content of a text file in UTF-8.

    Raises:
        RequestError: If it cannot be read or is not in UTF-8.
    """
    with reading(path, "is not text in UTF-8"):
        return path.read_text(encoding="utf-8")


def read_npz(
    path: Path,
    known: Collection[str],
) -> dict[str, np.ndarray]:
    """Return the arrays of an archive that ``numpy.savez`` or ``savez_compressed`` has written.

    Args:
        path: The archive.
        known: Names that its arrays may have.

    Raises:
        RequestError: If it is corrupt, has an array of another name, or one that is not of plain
            numbers or text.
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
                "".join(array.ravel().tolist()).encode()  # it is text, without lone surrogates
        return arrays


def open_image(source: str | Path | io.BytesIO) -> Image.Image:
    """Open an image and read its header only; Pillow refuses those that declare too many pixels."""
    return Image.open(source, formats=_FORMATS)


def read_pickle(path: Path) -> dict[Any, Any]:
    """Return the pickled dictionary of plain values and NumPy arrays in a file of CIFAR.

    No function that the file names is called, NumPy's included: its arrays can be given a type and
    a state by which reading them crashes. Stand-ins check both.

    Raises:
        pickle.UnpicklingError: If it refers to anything else, or would exhaust memory or the stack.
        Exception: Any other, if it is corrupt.
    """
    content = path.read_bytes()
    tuples = 0
    for count, (opcode, argument, _) in enumerate(pickletools.genops(content)):
        tuples += "TUPLE" in opcode.name
        # every value before this one has a number, in order; another number would reserve memory
        # for all up to it
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
    """A call that a pickle asks for, and the state of its result; neither is carried out."""

    def __init__(self, *arguments: Any) -> None:
        self.arguments = arguments

    def __setstate__(self, state: Any) -> None:
        self.state = state


# for the names in pickled arrays, and for the function by which Python 3 writes bytes for Python 2
_STAND_INS = {
    "_reconstruct": _Call,
    "ndarray": None,
    "dtype": _Call,
    "encode": lambda text, _: text.encode("latin1"),
}


def _array(call: _Call) -> np.ndarray:
    """Return the array of bytes that a call of ``_reconstruct`` stands for."""
    _, shape, kind, fortran, raw = call.state
    if kind.arguments[0] != "u1":
        raise pickle.UnpicklingError(
            f"it has an array of type {shown(kind.arguments[0])}, not of bytes"
        )
    content = raw.encode("latin1") if isinstance(raw, str) else raw  # text: bytes of Python 2
    order: Literal["F", "C"] = "F" if fortran else "C"
    return np.frombuffer(content, np.uint8).reshape(shape, order=order)


def refuse_too_large(place: str, need: int, remedy: str) -> None:
    """Refuse data that do not fit into the free memory: the system would kill the process.

    Args:
        place: What needs the memory, for the message.
        need: Bytes that it needs.
        remedy: What to do instead, for the message.

    Raises:
        RequestError: With both sizes.
    """
    free = psutil.virtual_memory().available
    if need > free:
        raise RequestError(
            f"{place} need {need / 1e9:.1f} GB, but {free / 1e9:.1f} GB are free; {remedy}"
        )
