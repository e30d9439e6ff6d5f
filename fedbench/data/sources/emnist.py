"""EMNIST (Cohen, Afshar, Tapson and van Schaik, 2017), from the official idx files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from fedbench.core.errors import choice
from fedbench.data.examples import Examples
from fedbench.data.files.archives import member_of, opened_zip
from fedbench.data.files.cache import prepared
from fedbench.data.files.download import Remote, checksum, ensure
from fedbench.data.files.places import any_of
from fedbench.data.sources._classes import keep
from fedbench.data.sources._idx import images_of, parse, read

_MD5 = "58c8d27c78d21e728a6bc7b3cc06412e"
_ARCHIVE = Remote(
    "EMNIST/gzip.zip",
    (
        "https://biometrics.nist.gov/cs_links/EMNIST/gzip.zip",
        "https://www.itl.nist.gov/iaui/vip/cs_links/EMNIST/gzip.zip",
    ),
    md5=_MD5,
)
_CLASSES = {"byclass": 62, "balanced": 47, "letters": 26}
_KINDS = [f"{part}-{kind}-ubyte" for part in ("train", "test") for kind in ("images-idx3", "labels-idx1")]
_NAMES = [f"EMNIST/raw/{where}emnist-{s}-{kind}" for where in ("", "gzip/") for s in _CLASSES for kind in _KINDS]
# the files have no published checksums
OFFICIAL = [_ARCHIVE, *(Remote(name + ending, ()) for name in _NAMES for ending in ("", ".gz"))]
_PLAIN = [f"emnist-byclass-{kind}" for kind in _KINDS]  # the set that the papers use
PLACES = any_of(
    [_ARCHIVE.path],
    *([f"EMNIST/raw/{n}{end}" for n in _PLAIN] for end in ("", ".gz")),
    [f"EMNIST/raw/gzip/{n}.gz" for n in _PLAIN],
)


def load(
    data_dir: Path,
    *,
    split: str = "byclass",
    classes: Sequence[int] | None = None,
    download: bool = True,
) -> Examples:
    """Read one of EMNIST's sets; its test images are held out.

    The files store every image with rows and columns exchanged; here they are upright. Mean and standard deviation are
    those of the training images that are kept.

    Args:
        data_dir: Directory of all data sets; contains EMNIST/gzip.zip, which is read in place, or EMNIST/raw/ with the
            idx files, gzipped or not.
        split: "byclass" 62 classes (0-9 digits, 10-35 A-Z, 36-61 a-z; 697932 + 116323), "balanced" 47 classes
            (112800 + 18800), "letters" 26 classes, capital and small together (124800 + 20800).
        classes: Labels to keep, renumbered in this order; None keeps all.
        download: Whether downloads are allowed.

    Raises:
        RequestError: If files are missing or corrupt, or an option is invalid.
    """
    choice("split", split, _CLASSES)
    keep(np.empty(0, dtype=np.int64), classes, _CLASSES[split])  # fail before any download
    names = [f"emnist-{split}-{kind}" for kind in _KINDS]
    files = _unpacked(data_dir / "EMNIST" / "raw", names)
    if not files:
        files = ensure([_ARCHIVE], data_dir, download=download, what="EMNIST")
    options = {"split": split, "classes": str(classes)}
    return prepared(data_dir, f"emnist-{split}", files, options, lambda: _read(files, names, split, classes))


def _unpacked(folder: Path, names: Sequence[str]) -> list[Path]:
    for where, ending in ((folder, ""), (folder, ".gz"), (folder / "gzip", ".gz")):
        files = [where / f"{n}{ending}" for n in names]
        if all(f.is_file() for f in files):
            return files
    return []


def _read(files: Sequence[Path], names: Sequence[str], split: str, classes: Sequence[int] | None) -> Examples:
    packed = files[0].name == "gzip.zip"
    arrays = list(_from_archive(files[0], names) if packed else (read(f) for f in files))
    read_in = [images_of(arrays[i], arrays[i + 1], str(files[0].parent)) for i in (0, 2)]
    first = 1 if split == "letters" else 0  # the labels of the letters begin at 1
    kept = [keep(y - first, classes, _CLASSES[split]) for _, y in read_in]
    sizes = [len(rows) for rows, _, _ in kept]
    upright = np.empty((sum(sizes), *read_in[0][0].shape[1:]), dtype=np.uint8)
    start = 0
    for (x, _), (rows, _, _) in zip(read_in, kept, strict=True):
        for some in np.array_split(rows, max(1, len(rows) // 10_000)):  # no second copy of all images at once
            upright[start : start + len(some)] = x[some].swapaxes(2, 3)
            start += len(some)
    mean, std = _statistics(upright[: sizes[0]])
    genuine = not packed or checksum(files[0]) == _MD5
    origin = "official files" if genuine else "not the official files (md5 differs)"
    note = f"EMNIST {split}: {origin if packed else 'unpacked idx files, which have no published md5'}"
    return Examples(
        x=upright,
        y=np.concatenate([y for _, y, _ in kept]),
        classes=kept[0][2],
        held_out=np.repeat([False, True], sizes),
        mean=(mean,),
        std=(std,),
        sources=(note,),
        unofficial=() if genuine else (note,),
    )


def _from_archive(archive: Path, names: Sequence[str]) -> Iterator[np.ndarray]:
    with opened_zip(archive) as packed:
        for name in names:
            with member_of(packed, f"gzip/{name}.gz", archive) as file:
                yield parse(file, f"{archive}: {name}.gz", packed.getinfo(f"gzip/{name}.gz").file_size)


def _statistics(images: np.ndarray) -> tuple[float, float]:
    """Return mean and standard deviation of all pixels, in units of the full range, from the counts of the values."""
    counts = np.zeros(256)
    for part in np.array_split(images, max(1, len(images) // 10_000)):  # bincount uses eight bytes per pixel
        counts += np.bincount(part.ravel(), minlength=256)
    values = np.arange(256) / 255
    mean = float(counts @ values / counts.sum())
    return mean, float(np.sqrt(counts @ (values - mean) ** 2 / counts.sum()))
