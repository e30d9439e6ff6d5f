"""Official files: find or download them, and decode images in several threads."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil
from PIL import Image

from fedbench.core.errors import RequestError
from fedbench.data.files.download import Remote, unpacked

_CHUNK = 256  # images that a thread decodes at a time
_SHARE = 0.8  # largest fraction of the free memory for decoded images


@dataclass(frozen=True)
class Archive(Remote):
    """The archive of a data set.

    Attributes:
        what: Name of the data set, for messages.
        into: Directory to unpack the archive into, below the data directory.
        most_bytes: Largest total size of the unpacked files.
    """

    what: str = ""
    into: str = ""
    most_bytes: int = 0


def found(data_dir: Path, layouts: Sequence[Sequence[str]], archive: Archive, *, download: bool) -> list[Path]:
    """Return the official files or directories of a data set, downloading and unpacking them if they are missing.

    Args:
        data_dir: Directory of all data sets.
        layouts: Possible places of the files or directories, below ``data_dir``; the first complete layout is used. The
            last one is the layout of the unpacked archive.
        archive: The archive that contains them.
        download: Whether downloads are allowed.

    Raises:
        RequestError: If the files are missing and cannot be downloaded, or are not in the archive.
    """
    for attempt in range(2):
        for layout in layouts:
            files = [data_dir / name for name in layout]
            if all(f.exists() for f in files):
                return files
        if attempt == 0:
            into, what, most = data_dir / archive.into, archive.what, archive.most_bytes
            packed = unpacked([archive], data_dir, into, download=download, what=what, most_bytes=most)
    missing = ", ".join(Path(n).name for n in layouts[-1])
    raise RequestError(f"{packed[0]} does not contain {missing}; remove it to download it again")


def fetched(data_dir: Path, name: str, needed: Sequence[str], archive: Archive, *, download: bool) -> list[Path]:
    """Return what is ``needed`` of the directory ``name``, which is downloaded and unpacked if it is missing.

    Args:
        data_dir: Directory of all data sets.
        name: Name of the directory in it; the files may also be in a directory of the same name inside.
        needed: Files or directories in that directory.
        archive: The archive that contains them.
        download: Whether downloads are allowed.

    Raises:
        RequestError: If the directory is incomplete, or is missing and cannot be downloaded.
    """
    layouts = [[f"{folder}/{n}" for n in needed] for folder in (name, f"{name}/{name}")]
    target = data_dir / name
    complete = any(all((data_dir / n).exists() for n in layout) for layout in layouts)
    if not complete and target.is_dir() and any(target.iterdir()):
        missing = ", ".join(n for n in needed if not (target / n).exists())
        raise RequestError(
            f"{archive.what} in {target} is incomplete: {missing} missing; add the missing files, or remove {target}"
        )
    return found(data_dir, layouts, archive, download=download)


def files_in(folder: Path, ending: str) -> list[Path]:
    """Return the files of a directory with this ending, in either case, in alphabetical order."""
    return sorted(p for p in folder.iterdir() if p.suffix.lower() == ending)


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
