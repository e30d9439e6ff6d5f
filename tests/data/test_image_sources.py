"""Readers of image sets and of users' arrays, on small files in the official forms, made here."""

import gzip
import json
import struct
import sys
from dataclasses import replace
from io import BytesIO
from types import SimpleNamespace

import numpy as np
import pytest
from data_files import (
    bytes_of,
    cases,
    check,
    idx,
    leaf_file,
    pack,
    write,
    write_cifar100,
    write_idx,
    write_image,
)
from PIL import Image
from tools import rejected

from fedbench.data.assemble import assemble
from fedbench.data.files import fetch, readers
from fedbench.data.partitions.basic import iid
from fedbench.data.sources import (
    _idx,
    _images,
    cifar100,
    cinic10,
    clothing1m,
    emnist,
    femnist,
    fmnist,
    huggingface,
    npz,
    tinyimagenet,
)


def png(pixels):
    out = BytesIO()
    Image.fromarray(pixels).save(out, "PNG")
    return out.getvalue()


def units(examples):
    """Mean and standard deviation of each channel, as models read the images."""
    whole = replace(
        examples,
        owner=None,
        names=(),
        held_out=None,
    )
    data = assemble(
        whole,
        partition=iid,
        clients=1,
        split=0.5,
        local_test="split",
        seed=0,
    )
    return data.mean.tolist(), data.std.tolist()


# ---- idx


def test_idx_holds_lengths_and_bytes(tmp_path):
    array = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    write(tmp_path / "a", idx(array))
    write(tmp_path / "a.gz", gzip.compress(idx(array)))
    assert _idx.read(tmp_path / "a").tolist() == array.tolist()
    assert _idx.read(tmp_path / "a.gz").tolist() == array.tolist()


FIVE = idx(np.zeros(5, np.uint8))


@pytest.mark.parametrize(
    ("name", "raw", "message"),
    [
        ("floats", FIVE.replace(b"\x08", b"\x0d"), "it begins with 00000d01"),
        (
            "a-length-of-two",
            struct.pack(">BBBBI", 0, 0, 8, 2, 1),
            "is not a complete idx file",
        ),
        ("long", FIVE + b"x", "is not a complete idx file"),
        ("plain.gz", FIVE, "is not a complete idx file of bytes .Not a gzipped file"),
        (
            "short.gz",
            gzip.compress(idx(bytes_of(500)))[:-100],
            "is not a complete idx file",
        ),
    ],
)
def test_idx_refuses(tmp_path, name, raw, message):
    write(tmp_path / name, raw)
    with rejected(message):
        _idx.read(tmp_path / name)


# ---- Fashion-MNIST


def write_fmnist(root):
    labels = (range(10), (0, 2, 6, 9))
    return write_idx(root / "FashionMNIST/raw", labels, packed=True)


def test_fmnist_three_classes_by_pixel(tmp_path):
    """The mean and deviation of a pixel are those of all training images."""
    (train, _), (test, _) = write_fmnist(tmp_path)
    e = fmnist.load(
        tmp_path,
        classes=[0, 2, 6],
        standardise="pixel",
    )
    check(
        e,
        y=[0, 1, 2, 0, 1, 2],
        held_out=[False] * 3 + [True] * 3,
    )
    kept = np.concatenate([train[[0, 2, 6]], test[:3]])
    expected = (kept - train.mean(0)) / (train.std(0) + 0.001)
    assert e.x[:, 0] == pytest.approx(expected, rel=1e-4, abs=1e-4)
    assert e.mean is None


def test_fmnist_options(tmp_path):
    write_fmnist(tmp_path)
    plain = fmnist.load(tmp_path, standardise="none")
    assert units(plain) == ([0], [1])  # x / 255 is left as it is
    # the numbers of the classes follow the order in which they are asked for
    assert fmnist.load(tmp_path, classes=[6, 0]).y.tolist() == [1, 0, 1, 0]


def test_fmnist_is_scaled(tmp_path):
    """Pixels are standardised after scaling."""
    (train, _), _ = write_fmnist(tmp_path)
    e = fmnist.load(tmp_path, size=32, standardise="none")
    assert e.x.shape == (14, 1, 32, 32)
    images = [Image.fromarray(image) for image in train]
    expected = [np.asarray(image.resize((32, 32), Image.Resampling.BILINEAR)) for image in images]
    assert (e.x[:10, 0] == expected).all()
    by_pixel = fmnist.load(tmp_path, size=32, standardise="pixel").x[:10]
    assert abs(by_pixel.mean(0)) == pytest.approx(0, abs=1e-3)


@pytest.mark.parametrize(
    "classes",
    [[], [0, 0], [10]],
)
def test_classes_must_be_labels(tmp_path, classes):
    """The error comes before files are looked for."""
    with rejected("data.source.classes must be distinct labels from 0 to 9"):
        fmnist.load(tmp_path, classes=classes)


def test_fmnist_refuses(tmp_path):
    write_idx(tmp_path / "FashionMNIST/raw", (range(10), (10,)))
    with rejected("labels from 0 to 10, expected 0 to 9"):
        fmnist.load(tmp_path)
    write(tmp_path / "FashionMNIST/raw/t10k-labels-idx1-ubyte", idx(bytes_of(3)))
    with rejected(r"got \[1, 28, 28\] and \[3\]"):
        fmnist.load(tmp_path)


# ---- EMNIST


def emnist_files(split, labels):
    """The four files' content, and the images as they are to come out."""
    files = {}
    upright = []
    for part, y in zip(("train", "test"), labels, strict=True):
        x = bytes_of(len(y), 28, 28)
        upright.append(x)
        stored = np.ascontiguousarray(x.transpose(0, 2, 1))
        files[f"emnist-{split}-{part}-images-idx3-ubyte"] = idx(stored)
        files[f"emnist-{split}-{part}-labels-idx1-ubyte"] = idx(np.array(y, dtype=np.uint8))
    return files, np.concatenate(upright)


def test_emnist_reads_its_archive_upright(tmp_path, monkeypatch):
    # EMNIST counts letters from 1
    files, upright = emnist_files(
        "letters",
        ([1, 2, 26], [26, 1]),
    )
    packed = {f"gzip/{name}.gz": gzip.compress(content) for name, content in files.items()}
    pack(tmp_path / "EMNIST/gzip.zip", packed)
    monkeypatch.setattr(fetch, "_difference", lambda path, expected: None)  # this is a small one
    e = emnist.load(tmp_path, split="letters")
    assert np.array_equal(e.x[:, 0], upright)
    trained = upright[:3] / 255
    check(
        e,
        y=[0, 1, 25, 25, 0],
        held_out=[False] * 3 + [True] * 2,
        classes=26,
        mean=pytest.approx([trained.mean()], rel=1e-12),
        std=pytest.approx([trained.std()], rel=1e-12),
    )


def test_emnist_reads_unpacked_files(tmp_path):
    """Small letters a, b, j are labels 36, 37, 45 of byclass; the kept classes are renumbered."""
    files, upright = emnist_files(
        "byclass",
        ([0, 36, 61, 45, 37], [36, 10]),
    )
    for name, content in files.items():
        write(tmp_path / "EMNIST/raw" / name, content)
    e = emnist.load(
        tmp_path,
        classes=list(range(36, 46)),
    )
    assert e.y.tolist() == [0, 9, 1, 0]
    assert np.array_equal(e.x[:, 0], upright[[1, 3, 4, 5]])
    check(
        e,
        classes=10,
        held_out=[False, False, False, True],
    )
    # another choice is not answered from what was prepared for this one
    assert emnist.load(tmp_path).classes == 62


# ---- FEMNIST of LEAF


def write_leaf(path, **writers):
    """``writers``: name -> (pixels, labels)."""
    leaf_file(
        path,
        {name: ((x / 255).tolist(), y) for name, (x, y) in writers.items()},
    )


def test_femnist_keeps_writers_and_their_test_images(tmp_path):
    data = tmp_path / "femnist/data"
    a, b, a_test, b_test = (bytes_of(n, 784) for n in (2, 3, 1, 1))
    other = (bytes_of(1, 784), [3])
    write_leaf(data / "train/0.json", f1=(a, [0, 61]))
    write_leaf(
        data / "train/1.json",
        f2=(b, [10, 36, 36]),
    )
    write_leaf(
        data / "test/0.json",
        f2=(b_test, [9]),
        f1=(a_test, [1]),
    )
    write_leaf(data / "test/1.json", f8=other)  # was never in train/
    write_leaf(data / "test_only/2.json", f9=other)
    e = femnist.load(tmp_path)
    assert e.x.shape == (7, 1, 28, 28)
    assert np.array_equal(e.x.reshape(7, -1), np.concatenate([a, b, b_test, a_test]))
    check(
        e,
        names=("f1", "f2"),
        owner=[0, 0, 1, 1, 1, 1, 0],
        y=[0, 61, 10, 36, 36, 9, 1],
        held_out=[False] * 5 + [True] * 2,
    )
    assert units(e) == ([0], [1])  # what models read is what LEAF's files say
    assert "1 writers of test/ without training images left out" in e.sources[0]
    assert femnist.load(tmp_path, pool=True).held_out is None


BLACK = np.zeros((1, 784))


@pytest.mark.parametrize(
    ("path", "users", "message"),
    [
        (
            "train/0.json",
            {"a": (BLACK + 0.5, [0])},
            "pixels other than 0/255, 1/255",
        ),
        ("train/0.json", {"a": (BLACK, [62])}, "y with labels from 0 to 61"),
        ("train/1.json", {"a": (BLACK, [0])}, "user 'a' occurs twice"),
        ("test/0.json", {"b": (BLACK, [0])}, "made with -t user"),
    ],
)
def test_femnist_refuses_what_leaf_does_not_write(tmp_path, path, users, message):
    write_leaf(tmp_path / "femnist/data/train/0.json", a=(BLACK, [0]))
    write_leaf(tmp_path / "femnist/data" / path, **users)
    with rejected(message):
        femnist.load(tmp_path)


def test_femnist_of_leaf_needs_files(tmp_path):
    with rejected("contains no .json file.*preprocess.sh"):
        femnist.load(tmp_path, form="leaf")


# ---- FEMNIST from NIST's archives

NIST = {
    "by_class/30/hsf_0/hsf_0_00000.png": "A",  # 0
    "by_class/5a/hsf_0/hsf_0_00000.png": "B",  # Z
    "by_class/61/hsf_4/hsf_4_00000.png": "C",  # a
    "by_class/7a/hsf_0/hsf_0_00000.png": "D",  # z
    "by_class/61/train_61/train_61_00000.png": "E",  # LEAF does not read these
    "by_class/61/hsf_4.mit": "A",
    "by_write/hsf_0/f0001_00/c0001_00/c0001_00_00000.png": "C",
    "by_write/hsf_0/f0000_14/u0000_14/u0000_14_00000.png": "B",
    "by_write/hsf_0/f0000_14/d0000_14/d0000_14_00000.png": "A",
    "by_write/hsf_4/f0900_00/l0900_00/l0900_00_00000.png": "D",
    "by_write/hsf_4/f0900_00/l0900_00/l0900_00_00001.png": "E",  # in no class
}


def write_nist(root):
    """Three writers' images of 128 x 128, black and white, in both hierarchies; returns the
    images."""
    images = {
        name: png(np.where(bytes_of(128, 128) < 128, 0, 255).astype(np.uint8)) for name in "ABCDE"
    }
    for kind in ("by_class", "by_write"):
        paths = [path for path in NIST if path.startswith(kind)]
        pack(
            root / f"femnist/{kind}.zip",
            {path: images[NIST[path]] for path in paths},
        )
    return images


def test_femnist_from_nist_matches_the_two_hierarchies(tmp_path):
    images = write_nist(tmp_path)
    e = femnist.load(tmp_path)
    check(
        e,
        names=("f0000_14", "f0001_00", "f0900_00"),
        owner=[0, 0, 1, 2],
        y=[0, 35, 36, 61],
        held_out=None,
    )
    assert e.unofficial == (
        "FEMNIST: NIST archives, not the official files (md5 differs); 3 writers; "
        "1 images without a class left out",
    )
    for row, name in enumerate("ABCD"):
        grey = Image.open(BytesIO(images[name])).convert("L")
        small = grey.resize((28, 28), Image.Resampling.LANCZOS)
        assert np.array_equal(e.x[row, 0], np.asarray(small))


def test_femnist_from_nist_refuses(tmp_path):
    write_nist(tmp_path)
    pack(tmp_path / "femnist/by_class.zip", {})
    with rejected("contains no image that is also in by_class"):
        femnist.load(tmp_path)
    write(tmp_path / "femnist/by_write.zip", b"no zip")
    with rejected("by_write.zip is corrupt or not an archive"):
        femnist.load(tmp_path)


# ---- CIFAR-100


@pytest.mark.parametrize(
    ("labels", "classes"),
    [("fine", 100), ("coarse", 20)],
)
def test_cifar100(tmp_path, labels, classes):
    made = write_cifar100(tmp_path)
    e = cifar100.load(tmp_path, labels=labels)
    assert np.array_equal(e.x.reshape(8, -1), np.concatenate([part["data"] for part in made]))
    check(
        e,
        shape=(8, 3, 32, 32),
        classes=classes,
        y=[y for part in made for y in part[f"{labels}_labels"]],
        held_out=[False] * 6 + [True] * 2,
    )


# ---- CINIC-10 and Tiny-ImageNet

CINIC = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


def write_cinic(root):
    for p, part in enumerate(("train", "valid", "test")):
        for label, name in enumerate(CINIC):
            for j in (1, 0):
                path = root / "cinic-10" / part / name / f"cifar10-{part}-{j}.png"
                write_image(
                    path,
                    "RGB",
                    (32, 32),
                    (10 * label, 100 * p, 200 + j),
                )


def test_cinic10_joins_or_leaves_out_the_validation_images(tmp_path):
    write_cinic(tmp_path)
    write_image(tmp_path / "cinic-10/train/airplane/a-grey-one.png", "L", (32, 32), 7)
    e = cinic10.load(tmp_path)
    assert e.x[0, :, 5, 5].tolist() == [7, 7, 7]
    assert e.x[1, :, 0, 0].tolist() == [0, 0, 200]  # in alphabetical order
    each = np.repeat(np.arange(10), 2)
    check(
        e,
        shape=(61, 3, 32, 32),
        classes=10,
        y=[0, *each, *each, *each],
        held_out=[False] * 41 + [True] * 20,
    )
    assert set(e.x[:41, 1, 0, 0].tolist()) == {0, 7, 100}
    out = cinic10.load(tmp_path, valid="out")
    assert out.held_out.tolist() == [False] * 21 + [True] * 20
    assert 100 not in out.x[:, 1, 0, 0]


def test_cinic10_refuses(tmp_path):
    write_cinic(tmp_path)
    dogs = tmp_path / "cinic-10/train/dog"
    for file in dogs.iterdir():
        file.unlink()
    with rejected("dog contains no .png image"):
        cinic10.load(tmp_path)


def write_tiny(root):
    """Two classes; their order is that of wnids.txt."""
    folder = root / "tiny-imagenet-200"
    write(folder / "wnids.txt", "n02\nn01\n")
    for wnid, value in (("n01", 40), ("n02", 200)):
        for j in range(2):
            path = folder / "train" / wnid / "images" / f"{wnid}_{j}.JPEG"
            write_image(
                path,
                "RGB",
                (64, 64),
                (value, value, j),
            )
    write_image(folder / "val/images/val_0.JPEG", "L", (64, 64), 200)
    write(folder / "val/val_annotations.txt", "val_0.JPEG\tn02\t0\t32\t44\t62\n")


def test_tinyimagenet(tmp_path):
    write_tiny(tmp_path)
    e = tinyimagenet.load(tmp_path)
    check(
        e,
        shape=(5, 3, 64, 64),
        classes=2,
        y=[0, 0, 1, 1, 0],
        held_out=[False] * 4 + [True],
    )
    # JPEG changes values by up to 3
    assert e.x[:, 0, 9, 9] == pytest.approx([200, 200, 40, 40, 200], abs=3)
    assert e.x[4].astype(int) == pytest.approx(200, abs=3)  # grey: three equal channels


TINY = r"""
val/val_annotations.txt  val_0.JPEG\tn03   line 1: expected a file
val/val_annotations.txt  val_0.JPEG        line 1: expected a file
val/val_annotations.txt  val_1.JPEG\tn02   val_1.JPEG cannot be read as
wnids.txt                n01 n02 n03       No such file or directory: .*n03/images
"""


@pytest.mark.parametrize(
    ("file", "line", "message"),
    cases(TINY),
)
def test_tinyimagenet_refuses(tmp_path, file, line, message):
    write_tiny(tmp_path)
    write(tmp_path / "tiny-imagenet-200" / file, line.replace(r"\t", "\t"))
    with rejected(message):
        tinyimagenet.load(tmp_path)


def test_images_that_would_not_fit_into_memory(monkeypatch):
    memory = SimpleNamespace(available=10**9)
    monkeypatch.setattr(readers.psutil, "virtual_memory", lambda: memory)
    with rejected("1000000 images need 12.3 GB, but 1.0 GB are free; lower size"):
        _images.decode(
            range(10**6),
            3,
            (64, 64),
            remedy="lower size",
        )


def test_many_images_keep_their_places():
    """More than the threads take at once."""

    def opened(t):
        return Image.new(
            "RGB",
            (1, 2),
            (t % 256, t // 256, 7),
        )

    images = _images.decode(
        range(1000),
        3,
        (1, 2),
        opened=opened,
    )
    assert images[:, :, 1, 0].tolist() == [[t % 256, t // 256, 7] for t in range(1000)]


# ---- Clothing1M


def write_clothing(root):
    folder = root / "clothing1m"
    noisy, clean, test = ([f"images/{i}/{j}.jpg" for j in range(4)] for i in range(3))
    for i, names in enumerate((noisy, clean, test)):
        for j, name in enumerate(names):
            write_image(
                folder / name,
                "RGB",
                (20 + j, 30),
                (80 * i, 10 * j, 5),
            )
    write(folder / "noisy_train_key_list.txt", "\n".join(noisy))
    write(folder / "clean_train_key_list.txt", "\n".join(clean))
    write(folder / "clean_test_key_list.txt", "\n".join(test) + "\n")
    noisy_labels = [f"{name} {13 - j}\n" for j, name in enumerate(noisy)]
    write(folder / "noisy_label_kv.txt", "".join(noisy_labels))
    clean_labels = [f"{name} {j}\n" for names in (clean, test) for j, name in enumerate(names)]
    write(folder / "clean_label_kv.txt", "".join(clean_labels))


def test_clothing1m(tmp_path):
    write_clothing(tmp_path)
    (tmp_path / "clothing1m").rename(tmp_path / "clothing1M")
    e = clothing1m.load(tmp_path, 0, size=8)
    check(
        e,
        shape=(8, 3, 8, 8),
        classes=14,
        y=[13, 12, 11, 10, 0, 1, 2, 3],
        held_out=[False] * 4 + [True] * 4,
    )
    clean = clothing1m.load(tmp_path, 0, train="clean", size=8)
    assert clean.y.tolist() == [0, 1, 2, 3, 0, 1, 2, 3]
    assert clean.x[:, 0, 4, 4] == pytest.approx([80] * 4 + [160] * 4, abs=3)


def test_clothing1m_draws_images_by_the_seed(tmp_path):
    write_clothing(tmp_path)
    some = [clothing1m.load(tmp_path, seed, size=8, images=2) for seed in (0, 0, 1, 2, 3)]
    assert all(e.held_out.tolist() == [False] * 2 + [True] * 4 for e in some)
    assert np.array_equal(some[0].x, some[1].x)
    assert len({tuple(e.y) for e in some}) > 1


CLOTHING = """
noisy_label_kv.txt        images/0/0.jpg 14  '14'
noisy_label_kv.txt        images/0/0.jpg     'images/0/0.jpg'
noisy_train_key_list.txt  images/0/9.jpg     'images/0/9.jpg'
"""


@pytest.mark.parametrize(
    ("table", "line", "wrong"),
    cases(CLOTHING),
)
def test_clothing1m_refuses(tmp_path, table, line, wrong):
    write_clothing(tmp_path)
    write(tmp_path / "clothing1m" / table, line)
    with rejected(f"names an image without a label from 0 to 13 in noisy_label_kv.txt .{wrong}"):
        clothing1m.load(tmp_path, 0)


def test_clothing1m_cannot_be_downloaded(tmp_path):
    with rejected("does not contain clothing1m/noisy_train_key_list.txt.*ask its authors"):
        clothing1m.load(tmp_path, 0)


# ---- npz


def saved(folder, **arrays):
    np.savez(folder / "a.npz", **arrays)
    return str(folder / "a.npz")


def test_npz_of_images(tmp_path):
    x = bytes_of(4, 3, 5, 6)
    file = saved(
        tmp_path,
        x=x,
        y=[0, 2, 1, 0],
    )
    e = npz.load(file=file)
    assert np.array_equal(e.x, x)
    assert e.classes == 3
    assert (e.owner, e.names, e.held_out) == (None, (), None)
    assert units(e) == ([0, 0, 0], [1, 1, 1])
    e = npz.load(
        file=file,
        classes=5,
        mean=[0.1, 0.2, 0.3],
        std=[1, 2, 3],
    )
    assert e.classes == 5
    assert units(e) == ([0.1, 0.2, 0.3], [1, 2, 3])
    with rejected("std must be a list of 3 numbers, one per channel"):
        units(npz.load(file=file, std=[1.0]))


@pytest.mark.parametrize(
    ("x", "kind", "shape"),
    [
        (
            np.arange(6, dtype=np.float64).reshape(2, 3),
            np.float64,
            (2, 3),
        ),
        (bytes_of(2), np.float32, (2, 1)),  # bytes that are no images
        (
            np.arange(6).reshape(2, 3),
            np.int64,
            (2, 3),
        ),  # tokens
    ],
)
def test_npz_of_numbers(tmp_path, x, kind, shape):
    e = npz.load(file=saved(tmp_path, x=x, y=[0, 1]))
    assert e.x.dtype == kind
    assert e.x.shape == shape
    assert np.array_equal(e.x.reshape(x.shape), x)


@pytest.mark.parametrize(
    ("given", "owner", "names"),
    [([7, 3, 7], [1, 0, 1], ("3", "7")), (["b", "a", "c"], [1, 0, 2], ("a", "b", "c"))],
)
def test_npz_with_owners(tmp_path, given, owner, names):
    file = saved(
        tmp_path,
        x=np.eye(3),
        y=[0, 1, 0],
        held_out=[0, 0, 1],
        owner=given,
    )
    e = npz.load(file=file)
    check(
        e,
        owner=owner,
        names=names,
        held_out=[False, False, True],
    )


NPZ = r"""
{"y": null}                       has no array y; it must contain x and y
{"z": [0]}                        has an unknown array .z.; it may contain x, y
{"y": [0]}                        y must be integers >= 0 of shape \[2\]
{"y": [0, -1]}                    y must be integers >= 0
{"y": [0, 0.5]}                   y must be integers >= 0
{"y": [0, 18446744073709551615]}  y must be integers >= 0
{"y": [0, 1000000000]}            has the label 1000000000; number labels from 0
{"x": []}                         x must be .* not empty
{"x": ["a", "b"]}                 x must be finite real numbers
{"x": [1, NaN]}                   x must be finite
{"owner": [0]}                    owner must be integers or words of shape \[2\]
{"held_out": [0, 2]}              held_out must be true or false
"""


@pytest.mark.parametrize(("changes", "message"), cases(NPZ))
def test_npz_refuses_arrays(tmp_path, changes, message):
    arrays = {"x": np.eye(2), "y": [0, 1]} | json.loads(changes)
    given = {name: array for name, array in arrays.items() if array is not None}
    with rejected(message):
        npz.load(file=saved(tmp_path, **given))


def test_npz_refuses_inputs_files_and_options(tmp_path):
    channels_last = saved(tmp_path, x=bytes_of(2, 4, 4, 3), y=[0, 1])
    with rejected("looks like images with the channels last"):
        npz.load(file=channels_last)
    objects = saved(tmp_path, x=[object(), 1], y=[0, 1])
    with rejected("is not a .npz file of plain arrays .Object arrays"):
        npz.load(file=objects)
    with rejected("is not a .npz file of plain arrays .*No such file"):
        npz.load(file=str(tmp_path / "no.npz"))
    file = saved(tmp_path, x=np.eye(2), y=[0, 1])
    with rejected("data.classes=1, but .* has the label 1"):
        npz.load(file=file, classes=1)
    with rejected("mean and data.source.std are for images of bytes"):
        npz.load(file=file, mean=[0.5])


# ---- directories of the library datasets


def test_huggingface_without_the_library(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with rejected(r"needs the package datasets; run: pip install 'fedbench-harness\[hf\]'"):
        huggingface.load(root=str(tmp_path))


@pytest.fixture
def library():
    return pytest.importorskip("datasets")


def image_split(library, images, labels, kind):
    features = library.Features({"image": library.Image(), "label": kind})
    return library.Dataset.from_dict(
        {"image": images, "label": labels},
        features=features,
    )


def test_huggingface_images(tmp_path, library):
    root = str(tmp_path)
    kind = library.ClassLabel(names=["a", "b", "c"])
    pixels = bytes_of(5, 4, 5, 3)
    images = [Image.fromarray(image) for image in pixels]
    train = image_split(
        library,
        images[:3],
        [1] * 3,
        kind,
    )
    test = image_split(
        library,
        images[3:],
        [1] * 2,
        kind,
    )
    library.DatasetDict({"train": train, "test": test}).save_to_disk(root)
    e = huggingface.load(root=root)
    assert np.array_equal(e.x, pixels.transpose(0, 3, 1, 2))
    check(
        e,
        y=[1] * 5,
        classes=3,
        held_out=[False] * 3 + [True] * 2,
        mean=(0.5,) * 3,
    )
    assert huggingface.load(root=root, test=None).held_out is None
    with rejected("has no column imag; its columns are image, label"):
        huggingface.load(root=root, x="imag")
    with rejected("has the splits train, test"):
        huggingface.load(root=root, train="all")


def test_huggingface_numbers_words_and_owners(tmp_path, library):
    root = str(tmp_path)
    vectors = [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]
    columns = {
        "v": vectors,
        "kind": ["b", "a", "b"],
        "who": ["u2", "u1", "u2"],
    }
    library.Dataset.from_dict(columns).save_to_disk(root)
    e = huggingface.load(
        root=root,
        x="v",
        y="kind",
        owner="who",
    )
    assert e.x.dtype == np.float32
    assert e.x.tolist() == vectors
    check(
        e,
        y=[1, 0, 1],
        classes=2,
        owner=[1, 0, 1],
        names=("u1", "u2"),
    )
    assert (e.held_out, e.mean) == (None, None)
    with rejected("labels must be words or integers >= 0"):
        huggingface.load(root=root, x="v", y="v")
    with rejected("the column who must have"):
        huggingface.load(root=root, x="who", y="kind")


def test_huggingface_grey_images_and_sizes(tmp_path, library):
    root = str(tmp_path)
    images = [Image.new("L", (4, 3), 9), Image.new("L", (3, 3), 8)]
    kind = library.Value("int64")
    image_split(library, images, [0, 4], kind).save_to_disk(root)
    with rejected("is 3x3, expected 4x3; set data.size"):
        huggingface.load(root=root)
    e = huggingface.load(root=root, size=3)
    check(
        e,
        shape=(2, 1, 3, 3),
        classes=5,
        mean=(0.5,),
    )
    assert e.x[:, 0, 0, 0].tolist() == [9, 8]


def test_huggingface_refuses_other_directories(tmp_path, library):
    with rejected("was not written by save_to_disk"):
        huggingface.load(root=str(tmp_path))


# ---- the real data


@pytest.mark.data("FashionMNIST")
def test_real_fmnist(real_data):
    e = fmnist.load(real_data)
    assert np.bincount(e.y).tolist() == [7000] * 10
    train = e.x[:60000].astype(np.float32) / 255
    assert train.mean() == pytest.approx(e.mean[0], abs=2e-3)
    assert train.std() == pytest.approx(e.std[0], abs=2e-3)


@pytest.mark.slow
@pytest.mark.data("femnist")
def test_real_femnist(real_data, tmp_path):
    (tmp_path / "femnist").symlink_to(real_data / "femnist")  # what is prepared goes elsewhere
    e = femnist.load(tmp_path)
    assert len(np.unique(e.owner)) == len(e.names)
    assert (e.x[:, 0, 0, 0] == 255).mean() > 0.99  # white paper
