"""Files that are damaged, of another form or no files: a message that can be printed, never another
error."""

import json
import os
import random
import zipfile
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from data_files import (
    VALUES,
    leaf_file,
    mutated,
    pack,
    write,
    write_cifar10,
    write_cifar100,
    write_idx,
)
from PIL import Image
from test_heart_disease import write_heart
from test_image_sources import write_cinic, write_clothing, write_nist, write_tiny
from test_text_sources import write_plays, write_tweets, write_wiki
from tools import rejected

from fedbench.core.errors import RequestError
from fedbench.data.files.fetch import unpack
from fedbench.data.partitions.given import indices
from fedbench.data.sources import (
    cifar10,
    cifar100,
    cinic10,
    clothing1m,
    femnist,
    heart_disease,
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
INSERTED = (
    VALUES,
    b"[" * 5000,
    b"9" * 5000,
    b'"\\ud800"',
    b"NaN",
    b"1e999",
)


def make_npz(folder, save=np.savez, **more):
    x = np.arange(40, dtype=np.float64).reshape(8, 5)
    arrays = {
        "x": x,
        "y": np.arange(8) % 3,
        "owner": np.arange(8) % 2,
    }
    save(folder / "d.npz", **(arrays | more))


def make_pictures(folder):
    rng = np.random.default_rng(0)
    for form in ("png", "jpeg", "webp", "bmp", "gif"):
        image = Image.fromarray(rng.integers(0, 255, (9, 9, 3), dtype=np.uint8))
        place = folder / "train" / form
        place.mkdir(parents=True)
        image.save(place / "image.png", form)


def make_text(folder):
    leaf_file(
        folder / "d.json",
        {"a": (["x" * 80] * 3, ["y"] * 3)},
    )


USERS = {"a": ([[1.0, 2.0], [0.5, 1.0]], [0, 1]), "b\u00e9": ([[1.0, 2.0]], [1])}
WRITERS = {
    "w": ([[1.0] * 784], [3]),
    "v": ([[0.0] * 784], [61]),
}
CLIENTS = {
    "clients": {"a": [0, 1], "b": [2, 3]},
    "examples": 6,
}


def load_npz(folder):
    return npz.load(str(folder / "d.npz"))


def load_tweets(folder):
    examples = sent140.load(folder, min_tweets=1, glove="small.2d.txt")
    return examples.vectors()


def load_indices(folder):
    return indices(
        np.zeros(6),
        np.zeros(6, dtype=bool),
        file=str(folder / "p.json"),
    )


def archive(name, method=zipfile.ZIP_DEFLATED):
    """The maker and the reader of an archive."""
    members = {"d/x": b"some text " * 50, "y": b"z"}
    make = partial(pack, members=members, method=method)
    return lambda d: make(d / name), lambda d: unpack(d / name, d / "out")


SETS = {
    "npz": (make_npz, load_npz),
    "npz compressed": (partial(make_npz, save=np.savez_compressed), load_npz),
    "npz words": (
        partial(make_npz, owner=["a", "b\u00e9"] * 4),
        load_npz,
    ),
    "idx": (lambda d: write_idx(d / "MNIST/raw"), mnist.load),
    "leaf": (
        lambda d: leaf_file(d / "d.json", USERS),
        lambda d: leaf_json.load(str(d / "d.json")),
    ),
    "leaf text": (
        make_text,
        lambda d: shakespeare.load(d, 0, json_train=str(d / "d.json"), split=1),
    ),
    "femnist leaf": (
        lambda d: leaf_file(d / "femnist/data/train/a.json", WRITERS),
        femnist.load,
    ),
    "femnist nist": (write_nist, femnist.load),
    "sent140": (write_tweets, load_tweets),
    "shakespeare": (
        write_plays,
        lambda d: shakespeare.load(d, 0, split=1),
    ),
    "wikitext2": (
        write_wiki,
        partial(wikitext2.load, clients=1, columns=1, length=2),
    ),
    "heart_disease": (
        write_heart,
        lambda d: heart_disease.load(d, 0),
    ),
    "cifar10": (write_cifar10, cifar10.load),
    "cifar100": (write_cifar100, cifar100.load),
    "imagefolder": (
        make_pictures,
        lambda d: imagefolder.load(str(d)),
    ),
    "cinic10": (write_cinic, cinic10.load),
    "tinyimagenet": (write_tiny, tinyimagenet.load),
    "clothing1m": (
        write_clothing,
        lambda d: clothing1m.load(d, 0, size=4),
    ),
    "indices": (
        lambda d: write(d / "p.json", json.dumps(CLIENTS)),
        load_indices,
    ),
    "zip": archive("a.zip"),
    "zip lzma": archive("a.zip", zipfile.ZIP_LZMA),
    "tar.gz": archive("a.tar.gz"),
    "tar.xz": archive("a.tar.xz"),
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
    files = sorted(path for path in tmp_path.rglob("*") if path.is_file())
    load(tmp_path)
    rng = random.Random(name)
    contents = {file: file.read_bytes() for file in files}
    for _ in range(TIMES):
        file = rng.choice(files)
        if rng.random() < 0.9:
            file.write_bytes(mutated(contents[file], rng, INSERTED))
        else:
            file.write_bytes(rng.choice((b"", contents[rng.choice(files)])))
        try:
            load(tmp_path)
        except RequestError as error:
            check_message(error)
        file.write_bytes(contents[file])


def change_leaf(folder, **changes):
    content = json.loads(Path(leaf_file(folder / "d.json", USERS)).read_text())
    write(folder / "d.json", json.dumps(content | changes))


def change_archive(folder, change):
    np.savez_compressed(
        folder / "d.npz",
        x=np.arange(500) % 3,
        y=np.arange(500) % 3,
    )
    write(
        folder / "d.npz",
        change((folder / "d.npz").read_bytes()),
    )


def damaged(content):
    start = content.index(b"x.npy") + 5
    return content[:start] + b"\xff" * 60 + content[start + 60 :]


def marked(offset, value):
    """Set a byte in the headers of all members of an archive, at this place in a local header and 2
    after in others."""

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
    "npz encrypted": (
        "npz",
        partial(change_archive, change=marked(6, 1)),
        "password required",
    ),
    "npz compressed otherwise": (
        "npz",
        partial(change_archive, change=marked(8, 19)),
        "compression method is not",
    ),
    "npz surrogate": (
        "npz",
        partial(make_npz, owner=words_of(97, 0xD800)),
        "surrogates not allowed",
    ),
    "npz code point": (
        "npz",
        partial(make_npz, owner=words_of(97, 2**31 - 1)),
        "d.npz is not a .npz",
    ),
    "leaf user is a list": (
        "leaf",
        partial(change_leaf, users=[["a"], "b"]),
        "d.json is not in LEAF's JSON format",
    ),
    "leaf surrogate": (
        "leaf",
        partial(change_leaf, users=["\ud800", "b"]),
        "surrogates not allowed",
    ),
    "leaf is deep": (
        "leaf",
        lambda d: write(d / "d.json", "[" * 200_000),
        "maximum recursion depth|Stack overflow",
    ),
    "indices are deep": (
        "indices",
        lambda d: write(d / "p.json", "[" * 200_000),
        "maximum recursion depth|Stack overflow",
    ),
    "indices surrogate": (
        "indices",
        lambda d: write(d / "p.json", json.dumps({"\ud800": [0], "b": [1]})),
        "p.json of data.partition.file cannot be read .*surrogates",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_files_of_wrong_content_are_named(tmp_path, name):
    source, make, message = WRONG[name]
    make(tmp_path)
    with rejected(message) as error:
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
    "imagefolder": "train/png/image.png",
    "indices": "p.json",
    "zip": "a.zip",
}


@pytest.mark.parametrize("name", PIPES)
def test_a_pipe_is_refused_and_not_waited_for(tmp_path, name):
    make, load = SETS[name]
    make(tmp_path)
    (tmp_path / PIPES[name]).unlink()
    os.mkfifo(tmp_path / PIPES[name])
    with rejected(f"{PIPES[name]} is not a regular file"):
        load(tmp_path)
