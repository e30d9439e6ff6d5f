"""FEMNIST (Caldas et al., 2018): handwritten characters by writer, from LEAF's JSON files or from NIST's archives."""

from __future__ import annotations

import hashlib
import re
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import TypeAlias

import numpy as np
from PIL import Image

from fedbench.core.errors import RequestError, boolean, choice
from fedbench.data.examples import Examples
from fedbench.data.files.cache import prepared
from fedbench.data.files.fetch import Files, Remote
from fedbench.data.files.readers import open_image
from fedbench.data.sources._images import decode
from fedbench.data.sources.leaf_json import User, content_of, users_of

_CLASSES = 62
_SIDE = 28
_ARCHIVES = [
    Remote(
        f"femnist/{name}.zip",
        (f"https://s3.amazonaws.com/nist-srd/SD19/{name}.zip", f"https://nist-srd.s3.amazonaws.com/SD19/{name}.zip"),
        f"md5:{md5}",
    )
    for name, md5 in (
        ("by_class", "79572b1694a8506f2b722c7be54130c4"),
        ("by_write", "a29f21babf83db0bb28a2f77b2b456cb"),
    )
]
# LEAF's JSON files are a random sample without published checksums
_LEAF = "femnist/data/train"
_UNPACKED = ["femnist/by_class", "femnist/by_write"]
_NIST = Files(
    "FEMNIST (or put LEAF's JSON files into femnist/data)", [_UNPACKED, [a.path for a in _ARCHIVES]], _ARCHIVES
)
FILES = (replace(_NIST, layouts=[[_LEAF], *_NIST.layouts]),)

_CLASS = re.compile(r"by_class/([34567][0-9a-f])/hsf_\d/[^/]+\.png")  # LEAF reads these, not the copies in train_*/
_WRITE = re.compile(r"by_write/[^/]+/([^/]+)/[^/]+/[^/]+\.png")
_Images: TypeAlias = tuple[list[str], Callable[[str], bytes]]  # names in alphabetical order, and how to read one


def load(data_dir: Path, *, form: str = "auto", pool: bool = False, download: bool = True) -> Examples:
    """Read images of 28 x 28; every writer is a client.

    Labels are 0-9 digits, 10-35 A-Z, 36-61 a-z. White paper is 255; the images are scaled to [0, 1], as for LEAF's
    models, without subtracting a mean. LEAF's files contain one image of almost every writer twice (see
    ``by_writer``), possibly once for training and once for testing; they are read unchanged.

    Args:
        data_dir: Directory of all data sets; contains femnist/data/{train,test}/*.json as LEAF's preprocess.sh writes
            them (with -t sample), or femnist/{by_class,by_write}.zip of NIST Special Database 19, or these unpacked.
        form: "leaf" reads the JSON files, "nist" the archives, "auto" the JSON files if they exist.
        pool: Whether LEAF's training and test images of a writer are joined, to be split again by ``data.split``.
            NIST's images are not split.
        download: Whether downloads are allowed.

    Raises:
        RequestError: If files are missing or not of the expected form.
    """
    choice("form", form, ("auto", "leaf", "nist"))
    boolean("pool", pool)
    folder = data_dir / "femnist"
    trained = sorted((folder / "data/train").glob("*.json"))
    if form == "leaf" and not trained:
        raise RequestError(
            f"{folder / 'data/train'} contains no .json file; put LEAF's data/femnist/data there, made by "
            "preprocess.sh -t sample, or use data.source.form=nist"
        )
    if trained and form != "nist":
        tested = sorted((folder / "data/test").glob("*.json"))
        ignored = sorted((folder / "data/test_only").glob("*.json"))
        files = [*trained, *tested, *ignored]
        return prepared(data_dir, "femnist", files, {"pool": str(pool)}, lambda: _leaf(trained, tested, ignored, pool))
    paths = _NIST.find(data_dir, download=download)
    return prepared(data_dir, "femnist-nist", paths, {}, lambda: _nist(paths))


def _nist(paths: list[Path]) -> Examples:
    if paths[0].is_dir():
        return by_writer(paths[0], paths[1], "unpacked")
    if _NIST.genuine(paths):
        return by_writer(paths[0], paths[1], "official files")
    examples = by_writer(paths[0], paths[1], "not the official files (md5 differs)")
    return replace(examples, unofficial=examples.sources)


def _leaf(trained: list[Path], tested: list[Path], ignored: list[Path], pool: bool) -> Examples:
    """Read LEAF's files; writers without training images are left out, and counted in ``sources``."""
    names: dict[str, int] = {}
    parts: list[tuple[int, bool, np.ndarray, np.ndarray]] = []
    untrained = 0
    for held_out, files in ((False, trained), (True, tested)):
        for user in users_of(files):
            arrays = _arrays(user)
            if held_out and user.name not in names:
                untrained += 1
                continue
            parts.append((names.setdefault(user.name, len(names)), held_out, *arrays))
    if tested and all(not held_out for _, held_out, _, _ in parts):
        raise RequestError(
            f"no writer of {tested[0].parent} is in {trained[0].parent}: the files were made with -t user; make them "
            "with preprocess.sh -t sample, which splits every writer's images"
        )
    notes = [f"LEAF JSON, {len(names)} writers"]
    if untrained:
        notes.append(f"{untrained} writers of test/ without training images left out")
    if ignored:
        notes.append(f"{sum(len(content_of(f)['users']) for f in ignored)} writers of test_only/ left out")
    sizes = [len(y) for *_, y in parts]
    if not sum(sizes):
        raise RequestError(f"{trained[0].parent} contains no image; every writer's num_samples is 0")
    return Examples(
        x=np.concatenate([x for _, _, x, _ in parts]),
        y=np.concatenate([y for *_, y in parts]),
        classes=_CLASSES,
        owner=np.repeat([k for k, *_ in parts], sizes),
        names=tuple(names),
        held_out=None if pool or not tested else np.repeat([h for _, h, _, _ in parts], sizes),
        mean=(0.0,),
        std=(1.0,),
        sources=(f"FEMNIST: {'; '.join(notes)}",),
    )


def _arrays(user: User) -> tuple[np.ndarray, np.ndarray]:
    """The images uint8 [n, 1, 28, 28] and the labels int64 [n] of a writer."""
    try:
        x, y = np.array(user.x, dtype=np.float64), np.array(user.y, dtype=np.float64)
        x, y = x.reshape(len(y), 784), y.reshape(len(y))
    except (TypeError, ValueError, OverflowError) as error:
        raise RequestError(f"{user.place} needs x with 784 numbers per image and y with labels") from error
    pixels = np.rint(255 * x.clip(0, 1))  # NaN stays, and fails the comparison
    if not (np.abs(x - pixels / 255) < 1e-6).all():
        raise RequestError(
            f"{user.place} has pixels other than 0/255, 1/255 ... 255/255, so this is not LEAF's FEMNIST; use "
            "data=leaf_json instead"
        )
    if not ((y == np.floor(y)) & (y >= 0) & (y < _CLASSES)).all():
        raise RequestError(f"{user.place} has labels other than 0 to {_CLASSES - 1}")
    return pixels.astype(np.uint8).reshape(-1, 1, 28, 28), y.astype(np.int64)


@contextmanager
def _images(path: Path) -> Iterator[_Images]:
    """Open the images of ``by_class`` or ``by_write``, a directory or its archive."""
    if path.is_dir():
        names = sorted(p.relative_to(path.parent).as_posix() for p in path.rglob("*.png"))
        yield names, lambda name: (path.parent / name).read_bytes()
        return
    try:
        with zipfile.ZipFile(path) as packed:
            yield sorted(n for n in packed.namelist() if n.endswith(".png")), packed.read
    except (zipfile.BadZipFile, OSError) as error:
        raise RequestError(f"{path} is corrupt or not an archive ({error}); remove it to download it again") from error


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
    """LEAF's label of a character's ASCII code: 0-9 digits, 10-35 A-Z, 36-61 a-z; None for any other."""
    for first, last, label in ((0x30, 0x39, 0), (0x41, 0x5A, 10), (0x61, 0x7A, 36)):
        if first <= code <= last:
            return label + code - first
    return None
