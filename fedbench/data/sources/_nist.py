"""Handwritten characters of NIST Special Database 19 by writer, from which LEAF builds FEMNIST."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import TypeAlias

import numpy as np
from PIL import Image

from fedbench.core.errors import RequestError
from fedbench.data.examples import Examples
from fedbench.data.files.archives import member_of, opened_zip
from fedbench.data.files.images import open_image
from fedbench.data.sources._folders import decode

_SIDE = 28
_CLASS = re.compile(r"by_class/([34567][0-9a-f])/hsf_\d/[^/]+\.png")  # LEAF reads these, not the copies in train_*/
_WRITE = re.compile(r"by_write/[^/]+/([^/]+)/[^/]+/[^/]+\.png")
_MOST = 2**20  # bytes of an image; the official ones have a few hundred


_Images: TypeAlias = tuple[list[str], Callable[[str], bytes]]  # names in alphabetical order, and how to read one


@contextmanager
def _images(path: Path) -> Iterator[_Images]:
    """Open the images of ``by_class`` or ``by_write``, a directory or its archive."""
    if path.is_dir():
        names = sorted(p.relative_to(path.parent).as_posix() for p in path.rglob("*.png"))
        yield names, lambda name: _start_of(path.parent / name)
        return
    with opened_zip(path) as packed:

        def read(name: str) -> bytes:
            with member_of(packed, name, path) as file:
                return file.read(_MOST)

        yield sorted(n for n in packed.namelist() if n.endswith(".png")), read


def _start_of(file: Path) -> bytes:
    with file.open("rb") as content:
        return content.read(_MOST)


def by_writer(by_class: Path, by_write: Path, origin: str) -> Examples:
    """Read every writer's images, 28 x 28 on white paper (255), with the labels given by ``by_class``.

    The files of by_write do not name the character that they show; those of by_class do, and are the same files: an
    image gets the class of the file with the same md5, the first in alphabetical order if there are several. Images
    of 128 x 128 are converted to grey and scaled down with Lanczos' filter, without halving them first, as Pillow
    before version 7 does in LEAF's ``thumbnail`` with ``ANTIALIAS``. Images without a class are left out and counted in
    ``sources``.

    Deviation: LEAF's script takes the first image of every writer but the first twice, hence 817851 images instead of
    the 814255 in the archives. Here it is taken once.

    Args:
        by_class: by_class.zip, or the directory in it.
        by_write: by_write.zip, or the directory in it.
        origin: Note on the two, for the record of the run.

    Raises:
        RequestError: If an archive is corrupt, or the two do not match.
    """
    labels: dict[bytes, int] = {}
    with _images(by_class) as (names, read):
        for name in names:
            found = _CLASS.fullmatch(name)
            label = None if found is None else _label(int(found[1], 16))
            if label is not None:
                labels.setdefault(hashlib.md5(read(name)).digest(), label)
    with _images(by_write) as images:
        return _labelled(by_write, images, labels, origin)


def _labelled(path: Path, images: _Images, labels: dict[bytes, int], origin: str) -> Examples:
    every, read = images
    writers: dict[str, int] = {}
    chosen: list[tuple[str, str, int]] = []
    unknown = 0
    for name in every:
        found = _WRITE.fullmatch(name)
        if found is None:
            continue
        label = labels.get(hashlib.md5(read(name)).digest())
        if label is None:
            unknown += 1
        else:
            chosen.append((found[1], name, label))
    if not chosen:
        raise RequestError(
            f"{path} contains no image that is also in by_class/<class>/hsf_*/; use both from NIST Special "
            "Database 19, second edition"
        )
    chosen.sort(key=lambda c: c[:2])
    for writer, _, _ in chosen:
        writers.setdefault(writer, len(writers))
    names = [name for _, name, _ in chosen]
    left_out = f"; {unknown} images without a class left out" if unknown else ""
    return Examples(
        x=decode(
            names,
            lambda t: open_image(BytesIO(read(names[t]))),
            (1, _SIDE, _SIDE),
            change=lambda image: image.convert("L").resize((_SIDE, _SIDE), Image.Resampling.LANCZOS),
        ),
        y=np.array([label for _, _, label in chosen]),
        classes=62,
        owner=np.array([writers[writer] for writer, _, _ in chosen]),
        names=tuple(writers),
        mean=(0.0,),
        std=(1.0,),
        sources=(f"FEMNIST: NIST archives, {origin}; {len(writers)} writers{left_out}",),
    )


def _label(code: int) -> int | None:
    """Return LEAF's label of a character's ASCII code: 0-9 digits, 10-35 A-Z, 36-61 a-z; None for any other."""
    for first, last, label in ((0x30, 0x39, 0), (0x41, 0x5A, 10), (0x61, 0x7A, 36)):
        if first <= code <= last:
            return label + code - first
    return None
