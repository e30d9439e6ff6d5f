"""FEMNIST (Caldas et al., 2018): handwritten characters by writer, from LEAF's JSON files or from NIST's archives."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from fedbench.core.errors import RequestError, boolean, choice
from fedbench.data.examples import Examples
from fedbench.data.files.cache import prepared
from fedbench.data.files.download import Remote, checksum, ensure
from fedbench.data.files.places import any_of
from fedbench.data.sources._leaf import User, content_of, users_of
from fedbench.data.sources._nist import by_writer

_CLASSES = 62
_ARCHIVES = [
    Remote(
        f"femnist/{name}.zip",
        (f"https://s3.amazonaws.com/nist-srd/SD19/{name}.zip", f"https://nist-srd.s3.amazonaws.com/SD19/{name}.zip"),
        md5=md5,
    )
    for name, md5 in (
        ("by_class", "79572b1694a8506f2b722c7be54130c4"),
        ("by_write", "a29f21babf83db0bb28a2f77b2b456cb"),
    )
]
OFFICIAL = _ARCHIVES  # LEAF's JSON files are a random sample without published checksums
PLACES = any_of(["femnist/data/train"], [a.path for a in _ARCHIVES], ["femnist/by_class", "femnist/by_write"])


def load(data_dir: Path, *, form: str = "auto", pool: bool = False, download: bool = True) -> Examples:
    """Read images of 28 x 28; every writer is a client.

    Labels are 0-9 digits, 10-35 A-Z, 36-61 a-z. White paper is 255; the images are scaled to [0, 1], as for LEAF's
    models, without subtracting a mean. LEAF's files contain one image of almost every writer twice (see
    ``_nist.by_writer``), possibly once for training and once for testing; they are read unchanged.

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
    unpacked = [folder / "by_class", folder / "by_write"]
    if all(u.is_dir() for u in unpacked):
        return prepared(data_dir, "femnist-nist", unpacked, {}, lambda: by_writer(unpacked[0], unpacked[1], "unpacked"))
    packed = ensure(
        _ARCHIVES, data_dir, download=download, what=f"FEMNIST (LEAF's JSON files are not in {folder / 'data/train'})"
    )
    return prepared(data_dir, "femnist-nist", packed, {}, lambda: _from_archives(packed))


def _from_archives(packed: list[Path]) -> Examples:
    if all(checksum(path) == remote.md5 for path, remote in zip(packed, _ARCHIVES, strict=True)):
        return by_writer(packed[0], packed[1], "official files")
    examples = by_writer(packed[0], packed[1], "not the official files (md5 differs)")
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
    """Return the images uint8 [n, 1, 28, 28] and the labels int64 [n] of a writer."""
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
