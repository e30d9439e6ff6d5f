"""FEMNIST (Caldas et al., 2018): handwritten characters by writer.

The images are read from LEAF's JSON files or from NIST's archives.
"""

import hashlib
import re
import string
import zipfile
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Literal

import numpy as np
from PIL import Image

from fedbench.core.errors import RequestError
from fedbench.core.files import reading
from fedbench.data.examples import Examples, Part, join
from fedbench.data.files.cache import prepared
from fedbench.data.files.fetch import published
from fedbench.data.files.readers import open_image
from fedbench.data.sources._images import decode
from fedbench.data.sources.leaf_json import User, part_of, users_of

# in the order of the labels
_CHARACTERS = string.digits + string.ascii_uppercase + string.ascii_lowercase
_SIDE = 28
_NIST = published("femnist")
# LEAF's JSON files are a random sample without published checksums
FILES = (replace(_NIST, layouts=[["femnist/data/train"], *_NIST.layouts]),)

# LEAF reads these files, not the copies in train_*/; a directory's name is the hexadecimal code of
# its character
_CLASS = re.compile(r"by_class/(3[0-9]|[46][1-9a-f]|[57][0-9a])/hsf_\d/[^/]+\.png")
_WRITE = re.compile(r"by_write/[^/]+/([^/]+)/[^/]+/[^/]+\.png")


def load(
    data_dir: Path,
    *,
    form: Literal["auto", "leaf", "nist"] = "auto",
    pool: bool = False,
    download: bool = True,
) -> Examples:
    """Read images of 28 x 28; every writer is a client.

    Labels are 0-9 digits, 10-35 A-Z, 36-61 a-z. White paper is 255; models read images scaled to
    [0, 1], as in LEAF, without subtraction of a mean. LEAF's files contain one image of almost
    every writer twice (see ``_nist``), possibly once for training and once for testing; these files
    are read unchanged.

    Args:
        data_dir: Directory of all data sets, with femnist/data/{train,test}/*.json as written by
            LEAF's preprocess.sh (with -t sample), or femnist/{by_class,by_write}.zip of NIST
            Special Database 19.
        form: "leaf" reads the JSON files, "nist" reads the archives, and "auto" reads the JSON
            files if they exist, or else the archives.
        pool: Whether to join LEAF's training and test images of each writer, to be split again by
            ``data.split``. NIST's images have no official split.
        download: Whether downloads are allowed.

    Raises:
        RequestError: If files are missing or do not have the expected format.
    """
    folder = data_dir / "femnist/data"
    trained = sorted(folder.glob("train/*.json"))
    tested = sorted(folder.glob("test/*.json"))
    if form == "leaf" and not trained:
        raise RequestError(
            f"{folder / 'train'} contains no .json file; put LEAF's data/femnist/data there, made "
            "by preprocess.sh -t sample, or use data.source.form=nist"
        )
    if trained and form != "nist":
        paths = trained + tested
        return prepared(
            data_dir, "femnist", paths, {"pool": pool}, lambda: _leaf(trained, tested, pool)
        )
    paths = _NIST.find(data_dir, download=download)
    return prepared(data_dir, "femnist-nist", paths, {}, lambda: _nist(*paths))


def _leaf(trained: list[Path], tested: list[Path], pool: bool) -> Examples:
    """Read LEAF's files, omitting writers without training images."""
    parts = [_part(user, False) for user in users_of(trained)]
    names = {part.name for part in parts}
    tests = [_part(user, True) for user in users_of(tested)]
    known = [part for part in tests if part.name in names]
    if tested and not known:
        raise RequestError(
            f"no writer of {tested[0].parent} is in {trained[0].parent}: the files were made with "
            "-t user; make them with preprocess.sh -t sample, which splits every writer's images"
        )
    parts += known
    if not any(len(part.y) for part in parts):
        raise RequestError(
            f"{trained[0].parent} contains no image; every writer's num_samples is 0"
        )
    note = f"FEMNIST: LEAF JSON, {len(names)} writers"
    if len(tests) > len(known):
        note += f"; {len(tests) - len(known)} writers of test/ without training images left out"
    examples = join(parts, classes=len(_CHARACTERS), sources=(note,))
    return examples if tested and not pool else replace(examples, held_out=None)


def _part(user: User, held_out: bool) -> Part:
    """Return a writer's images, uint8 [n, 1, 28, 28], and labels."""
    part = part_of(user, held_out)
    sizes_fit = part.x.size == len(part.y) * _SIDE**2
    if not sizes_fit or part.y.max(initial=0) >= len(_CHARACTERS):
        raise RequestError(
            f"{user.place} needs x with {_SIDE**2} numbers per image, and y with labels from 0 to "
            "61"
        )
    x = part.x.reshape(len(part.y), 1, _SIDE, _SIDE)
    pixels = np.rint(255 * x).clip(0, 255)
    if not np.allclose(x, pixels / 255, rtol=0, atol=1e-6):
        raise RequestError(
            f"{user.place} has pixels other than 0/255, 1/255 ... 255/255, so this is not LEAF's "
            "FEMNIST; use data=leaf_json instead"
        )
    return part._replace(x=pixels.astype(np.uint8))


def _nist(by_class: Path, by_write: Path) -> Examples:
    """Read every writer's images, 28 x 28 on white paper (255), with the labels from ``by_class``.

    The file names in by_write do not contain the character shown. The same files are in by_class,
    whose directories name the character: an image gets the class of the file with the same md5, the
    first in alphabetical order if there are several. The 128 x 128 images are converted to
    greyscale and scaled down with the Lanczos filter, without first halving them, as in LEAF's
    ``thumbnail`` with ``ANTIALIAS`` in Pillow before version 7. Images without a class are left out
    and counted in ``sources``.

    Deviation: for every writer except the first, LEAF's script reads the first image twice. It thus
    has 817851 images instead of the 814255 in the archives. fedbench reads each image once.

    Args:
        by_class: The archive by_class.zip.
        by_write: The archive by_write.zip.

    Raises:
        RequestError: If the two archives do not match.
    """
    genuine = _NIST.genuine([by_class, by_write])
    note = "official files" if genuine else "not the official files (md5 differs)"
    fault = "is corrupt or not an archive"
    with (
        reading(f"{by_class} or {by_write}", fault, "remove it to download it again"),
        zipfile.ZipFile(by_class) as classes,
        zipfile.ZipFile(by_write) as writers,
    ):
        images, unknown = _labelled(classes, writers)
        names, files, y = zip(*images, strict=True)
        x = decode(
            files,
            1,
            (_SIDE, _SIDE),
            opened=lambda file: open_image(BytesIO(writers.read(file))),
            change=_small,
        )
    clients, owner = np.unique(names, return_inverse=True)
    left_out = f"; {unknown} images without a class left out" if unknown else ""
    sources = (f"FEMNIST: NIST archives, {note}; {len(clients)} writers{left_out}",)
    return Examples(
        x=x,
        y=np.array(y),
        classes=len(_CHARACTERS),
        owner=owner,
        names=tuple(clients.tolist()),
        sources=sources,
        unofficial=() if genuine else sources,
    )


def _labelled(
    classes: zipfile.ZipFile, writers: zipfile.ZipFile
) -> tuple[list[tuple[str, str, int]], int]:
    """Return (writer, file, label) of the labelled images, sorted, and the number of the others."""
    labels: dict[bytes, int] = {}
    for match in map(_CLASS.fullmatch, sorted(classes.namelist())):
        if match:
            character = bytes.fromhex(match[1]).decode()
            labels.setdefault(_digest(classes, match[0]), _CHARACTERS.index(character))

    images = []
    unknown = 0
    for match in map(_WRITE.fullmatch, writers.namelist()):
        if match:
            label = labels.get(_digest(writers, match[0]))
            if label is None:
                unknown += 1
            else:
                images.append((match[1], match[0], label))
    if not images:
        raise RequestError(
            f"{writers.filename} contains no image that is also in by_class/<class>/hsf_*/; use "
            "both from NIST Special Database 19, second edition"
        )
    return sorted(images), unknown


def _digest(archive: zipfile.ZipFile, name: str) -> bytes:
    return hashlib.md5(archive.read(name)).digest()


def _small(image: Image.Image) -> Image.Image:
    return image.convert("L").resize((_SIDE, _SIDE), Image.Resampling.LANCZOS)
