"""NumPy archives (``.npz``): every array's header is compared with the size of its member before the array is made.

``numpy.load`` would allocate what a header declares, read members that nobody asked for, and unpickle on request.
"""

from __future__ import annotations

import zipfile
from collections.abc import Collection
from pathlib import Path
from typing import IO

import numpy as np

from fedbench.core.errors import RequestError, shown
from fedbench.data.files.archives import opened_zip
from fedbench.data.files.limits import MOST_DIMENSIONS, filled, refuse_too_large, size_of

_HEADERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}  # version 3 is for names of fields, which no array here has


def read_npz(path: Path, known: Collection[str]) -> dict[str, np.ndarray]:
    """Return the arrays of an archive that ``numpy.savez`` or ``savez_compressed`` has written.

    Args:
        path: The archive.
        known: Names that its arrays may have.

    Raises:
        RequestError: If it is corrupt, has an array of another name, or one that is not of plain numbers or text, has
            more than 8 dimensions or does not fit into memory.
    """
    with opened_zip(path, "write it with numpy.savez", "a .npz file of plain arrays") as packed:
        members = packed.infolist()
        for info in members:
            if info.filename.removesuffix(".npy") not in known:
                raise RequestError(
                    f"{path} has an unknown array {shown(info.filename.removesuffix('.npy'))}; it may contain "
                    f"{', '.join(known)}"
                )
        refuse_too_large(f"the {len(members)} arrays of {path}", sum(info.file_size for info in members))
        return {info.filename.removesuffix(".npy"): _member(packed, info, path) for info in members}


def _member(packed: zipfile.ZipFile, info: zipfile.ZipInfo, path: Path) -> np.ndarray:
    place = f"{path}: the array {info.filename.removesuffix('.npy')}"
    try:
        with packed.open(info) as stream:
            return _array(stream, info.file_size, place)
    except RequestError:
        raise
    except Exception as error:  # a corrupt member may fail in any way
        fault = " ".join(str(error).split()) or type(error).__name__
        raise RequestError(f"{place} cannot be read: {fault}; write it again with numpy.savez") from error


def _array(stream: IO[bytes], size: int, place: str) -> np.ndarray:
    version = np.lib.format.read_magic(stream)
    if version not in _HEADERS:
        raise RequestError(f"{place} has the version {version[0]}.{version[1]} of NumPy's format; 1.0 and 2.0 are read")
    shape, fortran, dtype = _HEADERS[version](stream)
    if dtype.kind not in "biufSU" or dtype.itemsize == 0:
        raise RequestError(f"{place} is of type {shown(dtype)}; only numbers and text are read")
    if len(shape) > MOST_DIMENSIONS or min(shape, default=0) < 0:
        raise RequestError(f"{place} has the shape {shown(shape)}; at most {MOST_DIMENSIONS} dimensions are read")
    need, held = size_of(shape, dtype.itemsize), size - stream.tell()
    if need != held:
        raise RequestError(f"{place} declares {shown(shape)} of {dtype}, {need} bytes, but holds {held}")
    content = filled(stream, need)
    if len(content) < need or stream.read(1):  # the read at the end also compares the checksum
        raise RequestError(f"{place} declares {need} bytes, but {len(content)} can be read")
    if dtype.kind == "U" and (odd := _no_character(content.view(dtype.byteorder + "u4"))):
        raise RequestError(f"{place} has text with the code {odd:#x}, which is no character")
    return content.view(dtype).reshape(shape, order="F" if fortran else "C")


def _no_character(codes: np.ndarray) -> int | None:
    """Return the first of some numbers that is no character of Unicode, which NumPy's text may contain."""
    wrong = codes[(codes > 0x10FFFF) | ((codes >= 0xD800) & (codes < 0xE000))]
    return int(wrong[0]) if len(wrong) else None
