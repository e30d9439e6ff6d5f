"""Official files: find or download them, and decode images in several threads."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from fedbench.core.errors import RequestError
from fedbench.data.files.download import Remote, unpacked
from fedbench.data.files.limits import refuse_too_large

_CHUNK = 256  # images that a thread decodes at a time


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
    refuse_too_large(f"{len(names)} images", len(names) * channels * height * width, remedy)
    tail = f"; {remedy}" if remedy else ""
    mode = "L" if channels == 1 else "RGB"
    pixels = np.empty((len(names), *shape), dtype=np.uint8)

    def fill(start: int) -> None:
        for t in range(start, min(start + _CHUNK, len(names))):
            try:
                with opened(t) as image:
                    ready = image if change is None else change(image)
                    size = ready.size
                    if size == (width, height):  # else it is not decoded
                        pixels[t] = np.asarray(ready.convert(mode)).reshape(height, width, channels).transpose(2, 0, 1)
            except Exception as error:  # the decoder of a corrupt file may fail in any way
                raise unreadable(names[t], error) from error
            if size != (width, height):
                raise RequestError(f"{names[t]} is {size[0]}x{size[1]}, expected {width}x{height}{tail}")

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for _ in pool.map(fill, range(0, len(names), _CHUNK)):
            pass
    return pixels


def unreadable(name: object, error: Exception) -> RequestError:
    """Return the error for an image that cannot be read."""
    fault = " ".join(str(error).split()) or type(error).__name__
    return RequestError(f"{name} cannot be read as an image: {fault}")
