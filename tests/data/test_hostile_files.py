"""Files that are damaged, of another form or no files: a message that can be printed, never another error."""

import io
import json
import os
import pickle
import random
import zipfile
from functools import partial

import numpy as np
import pytest
from data_files import cifar100_files, leaf_file, write_cifar, write_idx
from PIL import Image
from test_image_sources import nist_files, write_cinic, write_clothing, write_tiny
from test_readers import tar
from test_text_sources import GLOVE, GUTENBERG, TEST_TWEETS, TWEETS, WIKI

from fedbench.core.errors import RequestError
from fedbench.data.files.fetch import unpack
from fedbench.data.partitions.given import indices
from fedbench.data.sources import (
    cifar10,
    cifar100,
    cinic10,
    clothing1m,
    femnist,
    imagefolder,
    leaf_json,
    mnist,
    npz,
    sent140,
    shakespeare,
    tinyimagenet,
    wikitext2,
)

TIMES = 40  # mutations of a data set
VALUES = b'\x00\xff"\\[{0-9eE,\n\x1b\xed\xa0\x80'


def mutated(content, rng):
    """Flip, overwrite, remove or add some bytes, near the beginning or the end more often than elsewhere."""
    content = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 5))):
        size = len(content)
        if not size:
            break
        place = rng.choice(
            (
                rng.randrange(size),
                rng.randrange(min(size, 200)),
                size - 1 - rng.randrange(min(size, 200)),
            )
        )
        kind = rng.randrange(6)
        if kind == 0:
            content[place] ^= 1 << rng.randrange(8)
        elif kind == 1:
            content[place] = rng.choice(VALUES)
        elif kind == 2:
            del content[place : place + rng.choice((1, 4, 50))]
        elif kind == 3:
            content[place:place] = rng.choice(
                (VALUES, b"[" * 5000, b"9" * 5000, b'"\\ud800"', b"NaN", b"1e999")
            )
        elif kind == 4:
            content[place : place + 20] = rng.randbytes(20)
        else:
            del content[place:]
    return bytes(content)


def packed_zip(path, method):
    with zipfile.ZipFile(path, "w", method) as packed:
        packed.writestr("d/x", b"some text " * 50)
        packed.writestr("y", b"z")


def make_npz(folder, save, **more):
    x = np.arange(40, dtype=np.float64).reshape(8, 5)
    arrays = {"x": x, "y": np.arange(8) % 3, "owner": np.arange(8) % 2, **more}
    save(folder / "d.npz", **arrays)


def make_text(folder):
    for name, content in (
        ("shakespeare/data/raw_data/raw_data.txt", GUTENBERG.encode()),
        ("sent140/data/raw_data/training.csv", TWEETS),
        ("sent140/data/raw_data/test.csv", TEST_TWEETS),
        ("glove/g.txt", GLOVE.encode()),
        *((f"wikitext-2/wiki.{part}.tokens", text.encode()) for part, text in WIKI.items()),
    ):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


def make_nist(folder):
    (folder / "femnist").mkdir()
    files, _ = nist_files()
    for name in ("by_class", "by_write"):
        with zipfile.ZipFile(folder / f"femnist/{name}.zip", "w", zipfile.ZIP_DEFLATED) as packed:
            for member, content in files.items():
                if member.startswith(name):
                    packed.writestr(member, content)


def make_pictures(folder):
    for k, form in enumerate(("png", "jpg", "webp", "bmp", "gif")):
        image = Image.fromarray(
            np.random.default_rng(k).integers(0, 255, (9, 9, 3), dtype=np.uint8)
        )
        place = folder / "train" / f"class_{k}"
        place.mkdir(parents=True)
        image.save(place / f"{form}.png", {"jpg": "jpeg"}.get(form, form))


def make_cifar100(folder):
    (folder / "cifar-100-python").mkdir()
    for name, content in cifar100_files().items():
        (folder / "cifar-100-python" / name).write_bytes(pickle.dumps(content, protocol=2))


USERS = {"a": ([[1.0, 2.0], [0.5, 1.0]], [0, 1]), "b\u00e9": ([[1.0, 2.0]], [1])}
WRITERS = {"w": ([[1.0] * 784], [3]), "v": ([[0.0] * 784], [61])}
CLIENTS = {"clients": {"a": [0, 1], "b": [2, 3]}, "examples": 6}


def partition(folder, name):
    return indices(np.zeros(6), np.zeros(6, dtype=bool), file=str(folder / name))


SETS = {
    "npz": (partial(make_npz, save=np.savez), lambda d: npz.load(str(d / "d.npz"))),
    "npz compressed": (
        partial(make_npz, save=np.savez_compressed),
        lambda d: npz.load(str(d / "d.npz")),
    ),
    "npz words": (
        partial(make_npz, save=np.savez, owner=np.array(["a", "b\u00e9"] * 4)),
        lambda d: npz.load(str(d / "d.npz")),
    ),
    "idx": (lambda d: write_idx(d / "MNIST/raw"), lambda d: mnist.load(d, download=False)),
    "leaf": (lambda d: leaf_file(d / "d.json", USERS), lambda d: leaf_json.load(str(d / "d.json"))),
    "leaf text": (
        lambda d: leaf_file(d / "d.json", {"a": (["x" * 80] * 3, ["y"] * 3)}),
        lambda d: shakespeare.load(d, 0, json_train=str(d / "d.json"), split=1),
    ),
    "femnist leaf": (
        lambda d: leaf_file(d / "femnist/data/train/a.json", WRITERS),
        lambda d: femnist.load(d, download=False),
    ),
    "femnist nist": (make_nist, lambda d: femnist.load(d, form="nist", download=False)),
    "sent140": (
        make_text,
        lambda d: sent140.load(d, min_tweets=1, glove="g.txt", download=False).vectors(),
    ),
    "shakespeare": (make_text, lambda d: shakespeare.load(d, 0, split=1, download=False)),
    "wikitext2": (
        make_text,
        lambda d: wikitext2.load(d, clients=1, columns=1, length=2, download=False),
    ),
    "cifar10": (
        lambda d: write_cifar(d / "cifar-10-batches-py"),
        lambda d: cifar10.load(d, download=False),
    ),
    "cifar100": (make_cifar100, lambda d: cifar100.load(d, download=False)),
    "imagefolder": (make_pictures, lambda d: imagefolder.load(str(d))),
    "cinic10": (lambda d: write_cinic(d / "cinic-10"), lambda d: cinic10.load(d, download=False)),
    "tinyimagenet": (
        lambda d: write_tiny(d / "tiny-imagenet-200"),
        lambda d: tinyimagenet.load(d, download=False),
    ),
    "clothing1m": (
        lambda d: write_clothing(d / "clothing1m"),
        lambda d: clothing1m.load(d, 0, size=4),
    ),
    "indices": (
        lambda d: (d / "p.json").write_text(json.dumps(CLIENTS)),
        partial(partition, name="p.json"),
    ),
    "zip": (
        lambda d: packed_zip(d / "a.zip", zipfile.ZIP_DEFLATED),
        lambda d: unpack(d / "a.zip", d / "out"),
    ),
    "zip lzma": (
        lambda d: packed_zip(d / "a.zip", zipfile.ZIP_LZMA),
        lambda d: unpack(d / "a.zip", d / "out"),
    ),
    "tar": (
        lambda d: tar(d / "a.tar", ("d/x", b"text" * 50), mode="w"),
        lambda d: unpack(d / "a.tar", d / "out"),
    ),
    "tar.gz": (
        lambda d: tar(d / "a.tar.gz", ("d/x", b"text" * 50)),
        lambda d: unpack(d / "a.tar.gz", d / "out"),
    ),
    "tar.xz": (
        lambda d: tar(d / "a.tar.xz", ("d/x", b"text" * 50), mode="w:xz"),
        lambda d: unpack(d / "a.tar.xz", d / "out"),
    ),
}


def check_message(error):
    """It is one line that can be printed."""
    text = str(error)
    assert text
    assert text.isprintable()


@pytest.mark.parametrize("name", SETS)
def test_damaged_files_of_every_source_end_in_a_message(tmp_path, name):
    make, load = SETS[name]
    make(tmp_path)
    load(tmp_path)
    rng = random.Random(name)
    files = sorted(
        p for p in tmp_path.rglob("*") if p.is_file() and not {"prepared", "out"} & {*p.parts}
    )
    contents = {file: file.read_bytes() for file in files}
    for _ in range(TIMES):
        file = rng.choice(files)
        other = contents[rng.choice(files)]
        file.write_bytes(
            mutated(contents[file], rng) if rng.random() < 0.9 else rng.choice((b"", other))
        )
        try:
            load(tmp_path)
        except RequestError as error:
            check_message(error)
        file.write_bytes(contents[file])


def write_leaf(folder, **changes):
    leaf_file(folder / "d.json", USERS)
    content = json.loads((folder / "d.json").read_text())
    (folder / "d.json").write_text(json.dumps(content | changes))


def change_archive(folder, change):
    with zipfile.ZipFile(folder / "d.npz", "w", zipfile.ZIP_DEFLATED) as packed:
        for name in "xy":
            content = io.BytesIO()
            np.save(content, np.arange(500) % 3)
            packed.writestr(f"{name}.npy", content.getvalue())
    (folder / "d.npz").write_bytes(change((folder / "d.npz").read_bytes()))


def damaged(content):
    start = content.index(b"x.npy") + 5
    return content[:start] + b"\xff" * 60 + content[start + 60 :]


def marked(offset, value):
    """Set a byte in the headers of all members of an archive, at this place in a local header and 2 after in others."""

    def change(content):
        content = bytearray(content)
        for sign, place in ((b"PK\x03\x04", offset), (b"PK\x01\x02", offset + 2)):
            start = content.find(sign)
            while start >= 0:
                content[start + place] = value
                start = content.find(sign, start + 1)
        return bytes(content)

    return change


def words_of(*codes):
    return np.array(codes, dtype=np.uint32).view("U1")


WRONG = {
    "npz damaged": (
        "npz",
        partial(change_archive, change=damaged),
        "d.npz is not a .npz file of plain arrays",
    ),
    "npz encrypted": ("npz", partial(change_archive, change=marked(6, 1)), "password required"),
    "npz compressed otherwise": (
        "npz",
        partial(change_archive, change=marked(8, 19)),
        "compression method is not",
    ),
    "npz surrogate": (
        "npz",
        partial(make_npz, save=np.savez, owner=words_of(97, 0xD800)),
        "surrogates not allowed",
    ),
    "npz code point": (
        "npz",
        partial(make_npz, save=np.savez, owner=words_of(97, 2**31 - 1)),
        "d.npz is not a .npz",
    ),
    "leaf user is a list": (
        "leaf",
        partial(write_leaf, users=[["a"], "b"]),
        "d.json is not in LEAF's JSON format",
    ),
    "leaf user is a number": (
        "leaf",
        partial(write_leaf, users=[1, "b"]),
        "d.json is not in LEAF's JSON format",
    ),
    "leaf entry is a list": (
        "leaf",
        partial(write_leaf, user_data={"a": [1]}),
        "user 'a' needs user_data with x",
    ),
    "leaf surrogate": (
        "leaf",
        partial(write_leaf, users=["\ud800", "b"]),
        "surrogates not allowed",
    ),
    "leaf is deep": (
        "leaf",
        lambda d: (d / "d.json").write_text("[" * 200_000),
        "maximum recursion depth",
    ),
    "indices are deep": (
        "indices",
        lambda d: (d / "p.json").write_text("[" * 200_000),
        "maximum recursion depth",
    ),
    "indices surrogate": (
        "indices",
        lambda d: (d / "p.json").write_text(json.dumps({"\ud800": [0], "b": [1]})),
        "p.json of data.partition.file cannot be read .*surrogates",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_files_of_wrong_content_are_named(tmp_path, name):
    source, make, message = WRONG[name]
    make(tmp_path)
    with pytest.raises(RequestError, match=message) as error:
        SETS[source][1](tmp_path)
    check_message(error.value)
    assert str(tmp_path) in str(error.value)


PIPES = {
    "npz": "d.npz",
    "idx": "MNIST/raw/t10k-images-idx3-ubyte",
    "leaf": "d.json",
    "femnist nist": "femnist/by_class.zip",
    "sent140": "sent140/data/raw_data/test.csv",
    "shakespeare": "shakespeare/data/raw_data/raw_data.txt",
    "wikitext2": "wikitext-2/wiki.train.tokens",
    "cifar10": "cifar-10-batches-py/test_batch",
    "imagefolder": "train/class_0/png.png",
    "indices": "p.json",
    "zip": "a.zip",
}


@pytest.mark.parametrize("name", PIPES)
def test_a_pipe_is_refused_and_not_waited_for(tmp_path, name):
    make, load = SETS[name]
    make(tmp_path)
    (tmp_path / PIPES[name]).unlink()
    os.mkfifo(tmp_path / PIPES[name])
    with pytest.raises(RequestError, match=f"{PIPES[name]} is not a regular file"):
        load(tmp_path)
