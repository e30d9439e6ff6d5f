"""Directories of images: find or download them, and decode the images in several threads."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import psutil
from PIL import Image

from fedbench.core.errors import RequestError
from fedbench.data.files.download import Remote, unpacked

_CHUNK = 256  # images that a thread decodes at a time
_SHARE = 0.8  # largest fraction of the free memory for decoded images


def find(data_dir: Path, name: str, needed: Iterable[str]) -> Path | None:
    """Return ``data_dir/name``, or the directory of that name in it, if it contains everything ``needed``."""
    wanted = list(needed)
    for folder in (data_dir / name, data_dir / name / name):
        if all((folder / n).exists() for n in wanted):
            return folder
    return None


def fetched(
    data_dir: Path,
    name: str,
    needed: Sequence[str],
    archive: Remote,
    *,
    download: bool,
    what: str,
    most_bytes: int,
    flat: bool = False,
) -> Path:
    """Return the directory that contains ``needed``, downloading and unpacking it if it is missing.

    Args:
        data_dir: Directory of all data sets.
        name: Name of the directory in it.
        needed: Files or directories in that directory.
        archive: The archive that contains the directory.
        download: Whether downloads are allowed.
        what: Name of the data set, for messages.
        most_bytes: Largest total size of the unpacked files.
        flat: Whether the archive contains the files themselves, not a directory ``name``.

    Raises:
        RequestError: If the directory is incomplete, or is missing and cannot be downloaded.
    """
    folder = find(data_dir, name, needed)
    if folder is not None:
        return folder
    target = data_dir / name
    missing = ", ".join(n for n in needed if not (target / n).exists())
    if target.is_dir() and any(target.iterdir()):
        raise RequestError(
            f"{what} in {target} is incomplete: {missing} missing; add the missing files, or remove {target}"
        )
    into = target if flat else data_dir
    (packed,) = unpacked([archive], data_dir, into, download=download, what=what, most_bytes=most_bytes)
    folder = find(data_dir, name, needed)
    if folder is None:
        raise RequestError(
            f"{packed} does not contain {what}: {missing} missing; remove it and {target} to download it again"
        )
    return folder


def files_in(folder: Path, endings: Sequence[str]) -> list[Path]:
    """Return the files of a directory with one of these endings, in either case, in alphabetical order."""
    return sorted(p for p in folder.iterdir() if p.suffix.lower() in endings)


def decode(
    names: Sequence[object],
    opened: Callable[[int], Image.Image],
    shape: tuple[int, int, int],
    *,
    change: Callable[[Image.Image], Image.Image] | None = None,
    remedy: str = "",
) -> np.ndarray:
    """Return images as uint8 [T, channels, height, width].

    Args:
        names: Names of the images, for messages.
        opened: Function from the position of an image to the image; called by several threads at once.
        shape: Channels (1 grey, 3 RGB), height and width of every image.
        change: Function applied to an image before its size is checked.
        remedy: Advice for an image of another size, or for too many images.

    Raises:
        RequestError: If an image cannot be read or has another size (the message names it), or the images do not fit
            into memory.
    """
    channels, height, width = shape
    need, free = len(names) * channels * height * width, psutil.virtual_memory().available
    tail = f"; {remedy}" if remedy else ""
    if need > _SHARE * free:
        raise RequestError(f"{len(names)} images need {need / 1e9:.1f} GB, but {free / 1e9:.1f} GB are free{tail}")
    mode = "L" if channels == 1 else "RGB"
    pixels = np.empty((len(names), *shape), dtype=np.uint8)

    def fill(start: int) -> None:
        for t in range(start, min(start + _CHUNK, len(names))):
            try:
                with opened(t) as image:
                    ready = image if change is None else change(image)
                    if ready.size != (width, height):
                        got = f"{ready.size[0]}x{ready.size[1]}"
                        raise RequestError(f"{names[t]} is {got}, expected {width}x{height}{tail}")
                    pixels[t] = np.asarray(ready.convert(mode)).reshape(height, width, channels).transpose(2, 0, 1)
            except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
                if isinstance(error, RequestError):
                    raise
                raise RequestError(f"{names[t]} cannot be read as an image: {error}") from error

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for _ in pool.map(fill, range(0, len(names), _CHUNK)):
            pass
    return pixels
