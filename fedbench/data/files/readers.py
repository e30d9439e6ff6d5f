"""Readers of files that a user or a download provides: text, NumPy archives, images, CIFAR's pickles."""

from __future__ import annotations

import io
import pickle
import zipfile
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from PIL import Image

from fedbench.core.errors import RequestError

# Pillow knows dozens of formats, one of which (EPS) starts another program; data sets of images come in these
_FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "GIF")
# what NumPy's pickled arrays name, and the function by which Python 3 writes bytes for Python 2
_ARRAYS = {
    ("numpy._core.multiarray", "_reconstruct"), ("numpy", "ndarray"), ("numpy", "dtype"), ("_codecs", "encode"),
}  # fmt: skip


def read_text(path: Path) -> str:
    """The content of a text file in UTF-8.

    Raises:
        RequestError: If it cannot be read or is not in UTF-8.
    """
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise RequestError(f"{path} is not text in UTF-8: {error}") from error
    except OSError as error:
        raise RequestError(f"{path} cannot be read: {error.strerror or error}") from error


def read_npz(path: Path, known: Collection[str]) -> dict[str, np.ndarray]:
    """The arrays of an archive that ``numpy.savez`` or ``savez_compressed`` has written.

    Args:
        path: The archive.
        known: Names that its arrays may have.

    Raises:
        RequestError: If it is corrupt, has an array of another name, or one that is not of plain numbers or text.
    """
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            names = archive.files
            if other := [name for name in names if name not in known]:
                raise RequestError(f"{path} has an unknown array {other[0]}; it may contain {', '.join(known)}")
            return {name: archive[name] for name in names}
    except RequestError:
        raise
    except (ValueError, OSError, EOFError, AttributeError, TypeError, zipfile.BadZipFile) as error:
        raise RequestError(f"{path} is not a .npz file of plain arrays ({error}); write it with numpy.savez") from error


def open_image(source: str | Path | io.BytesIO) -> Image.Image:
    """An image of which only the header has been read; Pillow refuses those that declare too many pixels."""
    return Image.open(source, formats=_FORMATS)


def read_pickle(path: Path) -> Any:
    """The content of a pickle of plain containers and NumPy arrays, as CIFAR's files are; nothing else is called.

    Raises:
        pickle.UnpicklingError: If it is corrupt, or refers to anything else.
    """
    with path.open("rb") as file:
        return _ArraysOnly(file, encoding="latin1").load()


class _ArraysOnly(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        module = module.replace("numpy.core", "numpy._core")  # renamed in NumPy 2
        if (module, name) not in _ARRAYS:
            raise pickle.UnpicklingError(f"it refers to {module}.{name}")
        return super().find_class(module, name)


def refuse_too_large(place: str, need: int, remedy: str) -> None:
    """Refuse what does not fit into the free memory, since the system would kill the process without a word.

    Args:
        place: What needs the memory, for the message.
        need: Bytes that it needs.
        remedy: What to do instead, for the message.

    Raises:
        RequestError: With both sizes.
    """
    free = psutil.virtual_memory().available
    if need > free:
        raise RequestError(f"{place} need {need / 1e9:.1f} GB, but {free / 1e9:.1f} GB are free; {remedy}")
