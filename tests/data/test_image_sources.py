"""Readers of image sets and of users' arrays, on small files in the official forms, made here."""

import gzip
import json
import pickle
import struct
import sys
import zipfile
from dataclasses import replace
from io import BytesIO
from types import SimpleNamespace

import numpy as np
import pytest
from data_files import bytes_of, cifar100_files, idx, write_fmnist
from PIL import Image

from fedbench.core.errors import RequestError
from fedbench.core.validation import checked
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
    data = assemble(
        replace(examples, owner=None, names=(), held_out=None),
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
    (tmp_path / "a").write_bytes(idx(array))
    (tmp_path / "a.gz").write_bytes(gzip.compress(idx(array)))
    assert _idx.read(tmp_path / "a").tolist() == array.tolist()
    assert _idx.read(tmp_path / "a.gz").tolist() == array.tolist()


@pytest.mark.parametrize(
    ("name", "raw", "message"),
    [
        ("a", b"", "is not a complete idx file"),
        ("a", b"<html>", "it begins with 3c68746d"),
        # floats
        ("a", struct.pack(">BBBBI", 0, 0, 13, 1, 1) + bytes(4), "it begins with 00000d01"),
        # one length of two
        ("a", struct.pack(">BBBBI", 0, 0, 8, 2, 1), "is not a complete idx file"),
        ("a", idx(np.zeros(5, np.uint8))[:-1], "is not a complete idx file"),
        ("a", idx(np.zeros(5, np.uint8)) + b"x", "is not a complete idx file"),
        (
            "a.gz",
            idx(np.zeros(5, np.uint8)),
            "is not a complete idx file of bytes .Not a gzipped file",
        ),
        ("a.gz", gzip.compress(idx(bytes_of(500)))[:-100], "is not a complete idx file"),
    ],
)
def test_idx_refuses(tmp_path, name, raw, message):
    (tmp_path / name).write_bytes(raw)
    with pytest.raises(RequestError, match=message):
        _idx.read(tmp_path / name)


# ---- Fashion-MNIST


@pytest.mark.parametrize("packed", [True, False])
def test_fmnist(tmp_path, packed):
    (train, train_y), (test, test_y) = write_fmnist(tmp_path, packed)
    e = fmnist.load(tmp_path, download=False)
    assert e.x.dtype == np.uint8
    assert np.array_equal(e.x[:, 0], np.concatenate([train, test]))
    assert e.y.tolist() == [*train_y, *test_y]
    assert e.held_out.tolist() == [False] * 10 + [True] * 4
    assert e.sources == e.unofficial == ("Fashion-MNIST: not the official files (md5 differs)",)


def test_fmnist_three_classes_by_pixel(tmp_path):
    """Hand-derived: pixel 0 of the ten training images is 0, 10, ... 90: mean 45, variance 825."""
    (train, _), (test, _) = write_fmnist(tmp_path)
    train[:, 0, 0] = 10 * np.arange(10)
    (tmp_path / "FashionMNIST/raw/train-images-idx3-ubyte.gz").write_bytes(
        gzip.compress(idx(train))
    )
    e = fmnist.load(tmp_path, classes=[0, 2, 6], standardise="pixel", download=False)
    assert (e.x.shape, e.x.dtype, e.classes, e.mean, e.std) == (
        (6, 1, 28, 28),
        np.float32,
        3,
        None,
        None,
    )
    assert e.y.tolist() == [0, 1, 2, 0, 1, 2]
    assert e.held_out.tolist() == [False] * 3 + [True] * 3
    kept = np.array([0, 20, 60, *test[:3, 0, 0]])
    assert e.x[:, 0, 0, 0] == pytest.approx((kept - 45) / (825**0.5 + 0.001), rel=1e-6)
    plain = fmnist.load(tmp_path, standardise="none", download=False)
    # x / 255 is left as it is
    assert (plain.x.dtype, units(plain)) == (np.uint8, ([0], [1]))
    # the numbers of the classes follow the order in which they are asked for
    assert fmnist.load(tmp_path, classes=[6, 0], download=False).y.tolist() == [1, 0, 1, 0]


@pytest.mark.parametrize("classes", [[], [0, 0], [10], [-1]])
def test_classes_must_be_labels(tmp_path, classes):  # which is said before files are looked for
    with pytest.raises(
        RequestError, match="data.source.classes must be distinct labels from 0 to 9"
    ):
        fmnist.load(tmp_path, classes=classes, download=False)


@pytest.mark.parametrize("classes", [[1.0], [True], "0", 3])
def test_classes_must_be_a_list_of_integers(classes):
    with pytest.raises(
        RequestError, match="classes (must be (a list|an integer)|.*not allowed as a Sequence)"
    ):
        checked(fmnist.load, {"classes": classes})


def test_fmnist_refuses(tmp_path):
    with pytest.raises(
        RequestError,
        match=r"Fashion-MNIST.*train-images-idx3-ubyte.gz.*md5:8d4fb7e6c68d591d4c3dfef9ec88bf0d",
    ):
        fmnist.load(tmp_path, download=False)
    write_fmnist(tmp_path, labels=(range(10), (10,)))
    with pytest.raises(RequestError, match="labels from 0 to 10, expected 0 to 9"):
        fmnist.load(tmp_path, download=False)
    (tmp_path / "FashionMNIST/raw/t10k-labels-idx1-ubyte.gz").write_bytes(
        gzip.compress(idx(bytes_of(3)))
    )
    with pytest.raises(RequestError, match=r"got \[1, 28, 28\] and \[3\]"):
        fmnist.load(tmp_path, download=False)


# ---- EMNIST


def emnist_files(split, labels):
    """The four files' content, and the images as they are to come out."""
    files, upright = {}, []
    for part, y in zip(("train", "test"), labels, strict=True):
        x = bytes_of(len(y), 28, 28)
        upright.append(x)
        files[f"emnist-{split}-{part}-images-idx3-ubyte"] = idx(
            np.ascontiguousarray(x.transpose(0, 2, 1))
        )
        files[f"emnist-{split}-{part}-labels-idx1-ubyte"] = idx(np.array(y, dtype=np.uint8))
    return files, np.concatenate(upright)


def test_emnist_reads_its_archive_upright(tmp_path, monkeypatch):
    files, upright = emnist_files("letters", ([1, 2, 26], [26, 1]))  # EMNIST counts letters from 1
    (tmp_path / "EMNIST").mkdir()
    with zipfile.ZipFile(tmp_path / "EMNIST/gzip.zip", "w") as archive:
        for name, content in files.items():
            archive.writestr(f"gzip/{name}.gz", gzip.compress(content))
    monkeypatch.setattr(fetch, "_difference", lambda path, expected: None)  # this is a small one
    e = emnist.load(tmp_path, split="letters", download=False)
    assert np.array_equal(e.x[:, 0], upright)
    assert e.y.tolist() == [0, 1, 25, 25, 0]
    assert e.held_out.tolist() == [False] * 3 + [True] * 2
    assert e.classes == 26
    assert (e.mean[0], e.std[0]) == pytest.approx(
        (upright[:3].mean() / 255, upright[:3].std() / 255), rel=1e-12
    )
    with pytest.raises(
        RequestError, match=r"gzip.zip does not contain .*emnist-byclass-train-images"
    ):
        emnist.load(tmp_path, split="byclass", download=False)


@pytest.mark.parametrize(("where", "ending"), [("raw", ""), ("raw", ".gz"), ("raw/gzip", ".gz")])
def test_emnist_reads_unpacked_files(tmp_path, where, ending):
    """Small letters a, b, j are labels 36, 37, 45 of byclass; the kept classes are renumbered."""
    files, upright = emnist_files("byclass", ([0, 36, 61, 45, 37], [36, 10]))
    (tmp_path / "EMNIST" / where).mkdir(parents=True)
    for name, content in files.items():
        (tmp_path / "EMNIST" / where / f"{name}{ending}").write_bytes(
            gzip.compress(content) if ending else content
        )
    e = emnist.load(tmp_path, classes=list(range(36, 46)), download=False)
    assert e.y.tolist() == [0, 9, 1, 0]
    assert np.array_equal(e.x[:, 0], upright[[1, 3, 4, 5]])
    assert (e.classes, e.held_out.tolist()) == (10, [False, False, False, True])
    # another choice is not answered from what was prepared for this one
    assert emnist.load(tmp_path, download=False).classes == 62


# ---- FEMNIST of LEAF


def leaf(path, writers):
    content = {
        "users": list(writers),
        "num_samples": [len(y) for _, y in writers.values()],
        "user_data": {
            w: {"x": (np.asarray(x) / 255).tolist(), "y": y} for w, (x, y) in writers.items()
        },
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))


def test_femnist_keeps_writers_and_their_test_images(tmp_path):
    data = tmp_path / "femnist" / "data"
    x = {name: bytes_of(n, 784) for name, n in (("a", 2), ("b", 3), ("a test", 1), ("b test", 1))}
    leaf(data / "train" / "all_data_0.json", {"f1_00": (x["a"], [0, 61])})
    leaf(data / "train" / "all_data_1.json", {"f2_00": (x["b"], [10, 36, 36])})
    leaf(
        data / "test" / "all_data_0.json",
        {"f2_00": (x["b test"], [9]), "f1_00": (x["a test"], [1])},
    )
    # was never in train/
    leaf(data / "test" / "all_data_1.json", {"f8_00": (bytes_of(1, 784), [3])})
    leaf(
        data / "test_only" / "all_data_2.json",
        {"f9_00": (bytes_of(1, 784), [3]), "f7_00": (bytes_of(1, 784), [3])},
    )
    e = femnist.load(tmp_path, download=False)
    assert (e.x.dtype, e.x.shape, e.classes) == (np.uint8, (7, 1, 28, 28), 62)
    assert np.array_equal(
        e.x.reshape(7, -1), np.concatenate([x["a"], x["b"], x["b test"], x["a test"]])
    )
    assert e.names == ("f1_00", "f2_00")
    assert e.owner.tolist() == [0, 0, 1, 1, 1, 1, 0]
    assert e.y.tolist() == [0, 61, 10, 36, 36, 9, 1]
    assert e.held_out.tolist() == [False] * 5 + [True] * 2
    assert units(e) == ([0], [1])  # what models read is what LEAF's files say
    assert "1 writers of test/ without training images left out" in e.sources[0]
    assert femnist.load(tmp_path, pool=True, download=False).held_out is None


def test_femnist_refuses_what_leaf_does_not_write(tmp_path):
    train = tmp_path / "femnist/data/train"
    leaf(train / "0.json", {"a": (np.full((1, 784), 0.5), [0])})
    with pytest.raises(RequestError, match=r"pixels other than 0/255, 1/255"):
        femnist.load(tmp_path, download=False)
    leaf(train / "0.json", {"a": (np.full((1, 784), 256), [0])})
    with pytest.raises(RequestError, match=r"pixels other than 0/255, 1/255"):
        femnist.load(tmp_path, download=False)
    leaf(train / "0.json", {"a": (bytes_of(1, 784), [62])})
    with pytest.raises(RequestError, match="y with labels from 0 to 61"):
        femnist.load(tmp_path, download=False)
    leaf(train / "0.json", {"a": (bytes_of(1, 784), [0])})
    leaf(train / "1.json", {"a": (bytes_of(1, 784), [0])})
    with pytest.raises(RequestError, match="user 'a' occurs twice"):
        femnist.load(tmp_path, download=False)
    (train / "1.json").unlink()
    leaf(tmp_path / "femnist/data/test/0.json", {"b": (bytes_of(1, 784), [0])})
    with pytest.raises(RequestError, match="made with -t user"):
        femnist.load(tmp_path, download=False)
    with pytest.raises(RequestError, match=r"by_class.zip.*79572b1694a8506f2b722c7be54130c4"):
        femnist.load(tmp_path, form="nist", download=False)
    with pytest.raises(RequestError, match=r"contains no .json file.*preprocess.sh"):
        femnist.load(tmp_path / "empty", form="leaf", download=False)


# ---- FEMNIST from NIST's archives


def nist_files():
    """Three writers' images of 128 x 128, black and white; every file has its twin in the other hierarchy."""
    images = {k: png(np.where(bytes_of(128, 128) < 128, 0, 255).astype(np.uint8)) for k in "ABCDE"}
    files = {
        "by_class/30/hsf_0/hsf_0_00000.png": images["A"],  # 0
        "by_class/5a/hsf_0/hsf_0_00000.png": images["B"],  # Z
        "by_class/61/hsf_4/hsf_4_00000.png": images["C"],  # a
        "by_class/7a/hsf_0/hsf_0_00000.png": images["D"],  # z
        "by_class/61/train_61/train_61_00000.png": images["E"],  # LEAF does not read these
        "by_class/61/hsf_4.mit": b"a list",
        "by_write/hsf_0/f0001_00/c0001_00/c0001_00_00000.png": images["C"],
        "by_write/hsf_0/f0000_14/u0000_14/u0000_14_00000.png": images["B"],
        "by_write/hsf_0/f0000_14/d0000_14/d0000_14_00000.png": images["A"],
        "by_write/hsf_4/f0900_00/l0900_00/l0900_00_00000.png": images["D"],
        "by_write/hsf_4/f0900_00/l0900_00/l0900_00_00001.png": images["E"],  # in no class
    }
    return files, images


def test_femnist_from_nist_matches_the_two_hierarchies(tmp_path):
    files, images = nist_files()
    (tmp_path / "femnist").mkdir(parents=True)
    for kind in ("by_class", "by_write"):
        with zipfile.ZipFile(tmp_path / "femnist" / f"{kind}.zip", "w") as archive:
            for name, content in files.items():
                if name.startswith(kind):
                    archive.writestr(name, content)
    e = femnist.load(tmp_path, download=False)
    assert e.names == ("f0000_14", "f0001_00", "f0900_00")
    assert e.owner.tolist() == [0, 0, 1, 2]
    assert e.y.tolist() == [0, 35, 36, 61]
    assert e.sources == e.unofficial
    assert e.sources == (
        "FEMNIST: NIST archives, not the official files (md5 differs); 3 writers; 1 images without a class left out",
    )
    assert e.held_out is None
    for row, name in enumerate("ABCD"):
        small = (
            Image.open(BytesIO(images[name]))
            .convert("L")
            .resize((28, 28), Image.Resampling.LANCZOS)
        )
        assert np.array_equal(e.x[row, 0], np.asarray(small))


def test_femnist_from_nist_refuses(tmp_path):
    files, _ = nist_files()
    (tmp_path / "femnist").mkdir()
    for kind in ("by_class", "by_write"):
        with zipfile.ZipFile(tmp_path / "femnist" / f"{kind}.zip", "w") as archive:
            for name, content in files.items():
                if name.startswith(kind) and "hsf_0" not in name and "hsf_4" not in name:
                    archive.writestr(name, content)
    with pytest.raises(RequestError, match="contains no image that is also in by_class"):
        femnist.load(tmp_path, download=False)
    (tmp_path / "femnist" / "by_write.zip").write_bytes(b"no zip")
    with pytest.raises(RequestError, match="by_write.zip is corrupt or not an archive"):
        femnist.load(tmp_path, download=False)


# ---- CIFAR-100


def test_cifar100_fine_and_coarse(tmp_path):
    made = cifar100_files()
    (tmp_path / "cifar-100-python").mkdir()
    for name, content in made.items():
        (tmp_path / "cifar-100-python" / name).write_bytes(pickle.dumps(content, protocol=2))
    for labels, classes in (("fine", 100), ("coarse", 20)):
        e = cifar100.load(tmp_path, labels=labels, download=False)
        assert (e.x.shape, e.classes) == ((8, 3, 32, 32), classes)
        assert np.array_equal(
            e.x.reshape(8, -1), np.concatenate([c["data"] for c in made.values()])
        )
        assert e.y.tolist() == [y for c in made.values() for y in c[f"{labels}_labels"]]
        assert e.held_out.tolist() == [False] * 6 + [True] * 2


# ---- CINIC-10 and Tiny-ImageNet

CINIC = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


def write_cinic(folder):
    for p, part in enumerate(("train", "valid", "test")):
        for label, name in enumerate(CINIC):
            (folder / part / name).mkdir(parents=True)
            for j in (1, 0):
                color = (10 * label, 100 * p, 200 + j)
                Image.new("RGB", (32, 32), color).save(
                    folder / part / name / f"cifar10-{part}-{j}.png"
                )


def test_cinic10_joins_or_leaves_out_the_validation_images(tmp_path):
    write_cinic(tmp_path / "cinic-10")
    Image.new("L", (32, 32), 7).save(tmp_path / "cinic-10/train/airplane/a-grey-one.png")
    e = cinic10.load(tmp_path, download=False)
    assert (e.x.shape, e.classes, int(e.held_out.sum())) == ((61, 3, 32, 32), 10, 20)
    assert e.x[0, :, 5, 5].tolist() == [7, 7, 7]
    assert e.x[1, :, 0, 0].tolist() == [0, 0, 200]  # in alphabetical order
    assert e.y.tolist() == [
        0,
        *np.repeat(np.arange(10), 2),
        *np.tile(np.repeat(np.arange(10), 2), 2),
    ]
    assert set(e.x[~e.held_out][:, 1, 0, 0].tolist()) == {0, 7, 100}
    out = cinic10.load(tmp_path, valid="out", download=False)
    assert (len(out.y), int(out.held_out.sum())) == (41, 20)
    assert 100 not in out.x[:, 1, 0, 0]


def test_cinic10_refuses(tmp_path):
    write_cinic(tmp_path / "cinic-10")
    (tmp_path / "cinic-10/train/dog/broken.png").write_bytes(png(bytes_of(32, 32))[:200])
    with pytest.raises(RequestError, match=r"broken.png cannot be read as an image"):
        cinic10.load(tmp_path, download=False)
    (tmp_path / "cinic-10/train/dog/broken.png").write_bytes(png(bytes_of(32, 31)))
    with pytest.raises(RequestError, match=r"broken.png is 31x32, expected 32x32"):
        cinic10.load(tmp_path, download=False)
    for file in (tmp_path / "cinic-10/train/dog").iterdir():
        file.unlink()
    with pytest.raises(RequestError, match=r"dog contains no .png image"):
        cinic10.load(tmp_path, download=False)


def write_tiny(folder):
    """Two classes; their order is that of wnids.txt."""
    (folder / "val/images").mkdir(parents=True)
    (folder / "wnids.txt").write_text("n02\nn01\n")
    for wnid, value in (("n01", 40), ("n02", 200)):
        (folder / "train" / wnid / "images").mkdir(parents=True)
        for j in range(2):
            Image.new("RGB", (64, 64), (value, value, j)).save(
                folder / "train" / wnid / "images" / f"{wnid}_{j}.JPEG"
            )
    Image.new("L", (64, 64), 200).save(folder / "val/images/val_0.JPEG")
    (folder / "val/val_annotations.txt").write_text("val_0.JPEG\tn02\t0\t32\t44\t62\n")


def test_tinyimagenet(tmp_path):
    write_tiny(tmp_path / "tiny-imagenet-200")
    e = tinyimagenet.load(tmp_path, download=False)
    assert (e.x.shape, e.classes) == ((5, 3, 64, 64), 2)
    assert e.y.tolist() == [0, 0, 1, 1, 0]
    assert e.held_out.tolist() == [False] * 4 + [True]
    assert np.abs(e.x[:, 0, 9, 9].astype(int) - [200, 200, 40, 40, 200]).max() <= 3  # JPEG
    assert np.abs(e.x[4].astype(int) - 200).max() <= 3  # a grey image has three equal channels


def test_tinyimagenet_refuses(tmp_path):
    with pytest.raises(
        RequestError,
        match=r"Tiny-ImageNet.*tiny-imagenet-200.zip.*90528d7ca1a48142e341f4ef8d21d0de",
    ):
        tinyimagenet.load(tmp_path, download=False)
    folder = tmp_path / "tiny-imagenet-200"
    write_tiny(folder)
    for line in ("val_0.JPEG\tn03\t0\t0\t0\t0", "val_1.JPEG\tn02\t0\t0\t0\t0", "val_0.JPEG"):
        (folder / "val/val_annotations.txt").write_text(f"{line}\n")
        with pytest.raises(
            RequestError,
            match=r"val_annotations.txt, line 1: expected a file|val_1.JPEG cannot be read as",
        ):
            tinyimagenet.load(tmp_path, download=False)
    (folder / "wnids.txt").write_text("n01\nn02\nn03\n")
    with pytest.raises(RequestError, match="No such file or directory: .*n03/images"):
        tinyimagenet.load(tmp_path, download=False)


def test_images_that_would_not_fit_into_memory(monkeypatch):
    monkeypatch.setattr(readers.psutil, "virtual_memory", lambda: SimpleNamespace(available=10**9))
    with pytest.raises(
        RequestError, match=r"1000000 images need 12.3 GB, but 1.0 GB are free; lower size"
    ):
        _images.decode(range(10**6), 3, (64, 64), remedy="lower size")


def test_many_images_keep_their_places():
    """More than the threads take at once."""
    e = _images.decode(
        range(1000), 3, (1, 2), opened=lambda t: Image.new("RGB", (1, 2), (t % 256, t // 256, 7))
    )
    assert e[:, :, 1, 0].tolist() == [[t % 256, t // 256, 7] for t in range(1000)]


# ---- Clothing1M


def write_clothing(folder):
    keys = {
        name: [f"images/{i}/{j}.jpg" for j in range(4)]
        for i, name in enumerate(("noisy", "clean", "test"))
    }
    for i, names in enumerate(keys.values()):
        for j, name in enumerate(names):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (20 + j, 30), (80 * i, 10 * j, 5)).save(folder / name, quality=95)
    (folder / "noisy_train_key_list.txt").write_text("\n".join(keys["noisy"]))
    (folder / "clean_train_key_list.txt").write_text("\n".join(keys["clean"]))
    (folder / "clean_test_key_list.txt").write_text("\n".join(keys["test"]) + "\n")
    (folder / "noisy_label_kv.txt").write_text(
        "".join(f"{k} {13 - j}\n" for j, k in enumerate(keys["noisy"]))
    )
    (folder / "clean_label_kv.txt").write_text(
        "".join(f"{k} {j}\n" for n in ("clean", "test") for j, k in enumerate(keys[n]))
    )
    return keys


def test_clothing1m(tmp_path):
    write_clothing(tmp_path / "clothing1M")
    e = clothing1m.load(tmp_path, 0, size=8)
    assert (e.x.shape, e.classes) == ((8, 3, 8, 8), 14)
    assert e.y.tolist() == [13, 12, 11, 10, 0, 1, 2, 3]
    assert e.held_out.tolist() == [False] * 4 + [True] * 4
    clean = clothing1m.load(tmp_path, 0, train="clean", size=8)
    assert clean.y.tolist() == [0, 1, 2, 3, 0, 1, 2, 3]
    assert np.abs(clean.x[:, 0].astype(int) - 80 * np.repeat([1, 2], 4)[:, None, None]).max() <= 3
    some = [clothing1m.load(tmp_path, seed, size=8, images=2) for seed in (0, 0, 1, 2, 3)]
    assert all(len(s.y) == 6 and int(s.held_out.sum()) == 4 for s in some)
    assert np.array_equal(some[0].x, some[1].x)
    assert len({tuple(s.y) for s in some}) > 1  # the seed chooses


def test_clothing1m_refuses(tmp_path):
    with pytest.raises(
        RequestError, match=r"does not contain clothing1m/noisy_train_key_list.txt.*ask its authors"
    ):
        clothing1m.load(tmp_path, 0)
    folder = tmp_path / "clothing1m"
    write_clothing(folder)
    for table, line, message in (
        (
            "noisy_label_kv.txt",
            "images/0/0.jpg 14",
            "names an image without a label from 0 to 13 .* .'14'",
        ),
        (
            "noisy_label_kv.txt",
            "images/0/0.jpg",
            "names an image without a label from 0 to 13 .* .'images/0/0.jpg'",
        ),
        (
            "noisy_train_key_list.txt",
            "images/0/9.jpg",
            "names an image without a label from 0 to 13 in noisy_label_kv.txt .'images/0/9.jpg'",
        ),
    ):
        before = (folder / table).read_text()
        (folder / table).write_text(f"{line}\n")
        with pytest.raises(RequestError, match=message):
            clothing1m.load(tmp_path, 0)
        (folder / table).write_text(before)


# ---- npz


def saved(path, **arrays):
    np.savez(path, **arrays)
    return str(path)


def test_npz_of_images(tmp_path):
    x = bytes_of(4, 3, 5, 6)
    e = npz.load(file=saved(tmp_path / "a.npz", x=x, y=np.array([0, 2, 1, 0])))
    assert np.array_equal(e.x, x)
    assert (e.classes, e.owner, e.names, e.held_out) == (3, None, (), None)
    assert units(e) == ([0, 0, 0], [1, 1, 1])
    e = npz.load(file=str(tmp_path / "a.npz"), classes=5, mean=[0.1, 0.2, 0.3], std=[1, 2, 3])
    assert (e.classes, units(e)) == (5, ([0.1, 0.2, 0.3], [1, 2, 3]))
    e = npz.load(file=str(tmp_path / "a.npz"), std=[1, 2, 3])
    assert units(e) == ([0, 0, 0], [1, 2, 3])


@pytest.mark.parametrize(
    ("x", "kind", "shape"),
    [
        (np.arange(6, dtype=np.float64).reshape(2, 3), np.float64, (2, 3)),
        (np.arange(2, dtype=np.float16), np.float32, (2, 1)),
        (np.ones((2, 3), dtype=bool), np.float32, (2, 3)),
        (bytes_of(2, 3), np.float32, (2, 3)),  # bytes that are no images
        (np.arange(6).reshape(2, 3), np.int64, (2, 3)),  # tokens
    ],
)
def test_npz_of_numbers(tmp_path, x, kind, shape):
    e = npz.load(file=saved(tmp_path / "a.npz", x=x, y=[0, 1]))
    assert (e.x.dtype, e.x.shape, e.mean) == (kind, shape, None)
    assert np.array_equal(e.x.reshape(x.shape), x)


@pytest.mark.parametrize(
    ("given", "owner", "names"),
    [
        ({"owner": [7, 3, 7]}, [1, 0, 1], ("3", "7")),
        ({"owner": ["b", "a", "c"]}, [1, 0, 2], ("a", "b", "c")),
    ],
)
def test_npz_with_owners(tmp_path, given, owner, names):
    e = npz.load(
        file=saved(tmp_path / "a.npz", x=np.eye(3), y=[0, 1, 0], held_out=[0, 0, 1], **given)
    )
    assert (e.owner.tolist(), e.names) == (owner, names)
    assert e.held_out.tolist() == [False, False, True]


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": np.eye(2)}, "has no array y; it must contain x and y"),
        ({"x": np.eye(2), "y": [0, 1], "z": [0]}, "has an unknown array .z.; it may contain x, y"),
        ({"x": np.eye(2), "y": [0]}, r"y must be integers >= 0 of shape \[2\]"),
        ({"x": np.empty((0, 2)), "y": np.empty(0)}, "not empty"),
        ({"x": np.eye(2), "y": [0, -1]}, "y must be integers >= 0"),
        ({"x": np.eye(2), "y": [0, 0.5]}, "y must be integers >= 0"),
        ({"x": np.eye(2), "y": [0, np.inf]}, "y must be integers >= 0"),
        (
            {"x": np.eye(2), "y": np.array([0, 2**64 - 1], dtype=np.uint64)},
            "y must be integers >= 0",
        ),
        ({"x": bytes_of(2, 1, 0, 4), "y": [0, 1]}, "x must be finite real numbers"),
        ({"x": np.eye(2), "y": [[0], [1]]}, "y must be integers >= 0"),
        ({"x": np.array(["a", "b"]), "y": [0, 1]}, "x must be finite real numbers"),
        ({"x": np.eye(2) * 1j, "y": [0, 1]}, "x must be finite real numbers"),
        ({"x": np.array([[1, np.nan]]), "y": [0]}, "x must be finite"),
        (
            {"x": np.eye(2), "y": [0, 1], "owner": [0]},
            r"owner must be integers or words of shape \[2\]",
        ),
        ({"x": np.eye(2), "y": [0, 1], "held_out": [0, 2]}, "held_out must be true or false"),
        ({"x": bytes_of(2, 4, 4, 3), "y": [0, 1]}, "looks like images with the channels last"),
        ({"x": np.eye(2), "y": [0, 10**9]}, "has the label 1000000000; number labels from 0"),
        (
            {"x": np.array([object(), 1]), "y": [0, 1]},
            "is not a .npz file of plain arrays .Object arrays",
        ),  # never unpickled
    ],
)
def test_npz_refuses(tmp_path, arrays, message):
    with pytest.raises(RequestError, match=message):
        npz.load(file=saved(tmp_path / "a.npz", **arrays))


def test_npz_refuses_files_and_options(tmp_path):
    with pytest.raises(RequestError, match="is not a .npz file of plain arrays .*No such file"):
        npz.load(file=str(tmp_path / "no.npz"))
    for raw in (b"", b"no zip", b"PK\x03\x04 broken"):
        (tmp_path / "bad.npz").write_bytes(raw)
        with pytest.raises(RequestError, match="is not a .npz file of plain arrays"):
            npz.load(file=str(tmp_path / "bad.npz"))
    np.save(tmp_path / "one.npy", np.eye(2))
    with pytest.raises(RequestError, match="is not a .npz file of plain arrays"):
        npz.load(file=str(tmp_path / "one.npy"))
    file = saved(tmp_path / "a.npz", x=np.eye(2), y=[0, 1])
    with pytest.raises(RequestError, match="data.classes=1, but .* has the label 1"):
        npz.load(file=file, classes=1)
    with pytest.raises(
        RequestError, match="data.source.mean and data.source.std are for images of bytes"
    ):
        npz.load(file=file, mean=[0.5])
    file = saved(tmp_path / "i.npz", x=bytes_of(2, 3, 4, 4), y=[0, 1])
    with pytest.raises(RequestError, match="std must be a list of 3 numbers, one per channel"):
        units(npz.load(file=file, std=[1.0]))
    for std, message in (([1.0, 1.0, 0.0], "> 0"), (1.0, "a list")):
        with pytest.raises(RequestError, match=f"std must be {message}"):
            checked(npz.load, {"std": std})


# ---- directories of the library datasets


def test_huggingface_without_the_library(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(
        RequestError, match=r"needs the package datasets; run: pip install 'fedbench-harness\[hf\]'"
    ):
        huggingface.load(root=str(tmp_path))


@pytest.fixture
def library():
    return pytest.importorskip("datasets")


def test_huggingface_images(tmp_path, library):
    features = library.Features(
        {"image": library.Image(), "label": library.ClassLabel(names=["a", "b", "c"])}
    )
    made, splits = {}, library.DatasetDict()
    for part, n in (("train", 3), ("test", 2)):
        made[part] = bytes_of(n, 4, 5, 3)
        images = [Image.fromarray(p) for p in made[part]]
        splits[part] = library.Dataset.from_dict(
            {"image": images, "label": [1] * n}, features=features
        )
    splits.save_to_disk(str(tmp_path / "d"))
    e = huggingface.load(root=str(tmp_path / "d"))
    assert np.array_equal(e.x, np.concatenate([made["train"], made["test"]]).transpose(0, 3, 1, 2))
    assert (e.y.tolist(), e.classes, e.held_out.tolist()) == ([1] * 5, 3, [False] * 3 + [True] * 2)
    assert (e.mean, e.owner) == ((0.5,) * 3, None)
    assert huggingface.load(root=str(tmp_path / "d"), test=None).held_out is None
    assert huggingface.load(root=str(tmp_path / "d"), size=2).x.shape == (5, 3, 2, 2)
    with pytest.raises(RequestError, match=r"d has no column imag; its columns are image, label"):
        huggingface.load(root=str(tmp_path / "d"), x="imag")
    with pytest.raises(RequestError, match="has the splits train, test"):
        huggingface.load(root=str(tmp_path / "d"), train="all")


def test_huggingface_numbers_words_and_owners(tmp_path, library):
    columns = {
        "v": [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]],
        "kind": ["b", "a", "b"],
        "who": ["u2", "u1", "u2"],
    }
    library.Dataset.from_dict(columns).save_to_disk(str(tmp_path / "d"))
    e = huggingface.load(root=str(tmp_path / "d"), x="v", y="kind", owner="who")
    assert (e.x.dtype, e.x.tolist(), e.y.tolist(), e.classes) == (
        np.float32,
        columns["v"],
        [1, 0, 1],
        2,
    )
    assert (e.owner.tolist(), e.names, e.held_out, e.mean) == ([1, 0, 1], ("u1", "u2"), None, None)
    with pytest.raises(RequestError, match="labels must be words or integers >= 0"):
        huggingface.load(root=str(tmp_path / "d"), x="v", y="v")
    with pytest.raises(RequestError, match="the column who must have"):
        huggingface.load(root=str(tmp_path / "d"), x="who", y="kind")


def test_huggingface_grey_images_and_sizes(tmp_path, library):
    images = [Image.new("L", (3, 3), 9), Image.new("L", (3, 3), 8)]
    features = library.Features({"image": library.Image(), "label": library.Value("int64")})
    library.Dataset.from_dict({"image": images, "label": [0, 4]}, features=features).save_to_disk(
        str(tmp_path / "d")
    )
    e = huggingface.load(root=str(tmp_path / "d"))
    assert (e.x.shape, e.x[:, 0, 0, 0].tolist(), e.classes, e.mean) == (
        (2, 1, 3, 3),
        [9, 8],
        5,
        (0.5,),
    )
    images[0] = Image.new("RGB", (4, 3), (1, 2, 3))
    library.Dataset.from_dict({"image": images, "label": [0, 4]}, features=features).save_to_disk(
        str(tmp_path / "m")
    )
    with pytest.raises(RequestError, match="is 3x3, expected 4x3; set data.size"):
        huggingface.load(root=str(tmp_path / "m"))
    assert huggingface.load(root=str(tmp_path / "m"), size=3).x[0, :, 0, 0].tolist() == [1, 2, 3]
    with pytest.raises(RequestError, match="was not written by save_to_disk"):
        huggingface.load(root=str(tmp_path))
    with pytest.raises(RequestError, match="no was not written by save_to_disk .*no not found"):
        huggingface.load(root=str(tmp_path / "no"))


# ---- the real data


@pytest.mark.data("FashionMNIST")
def test_real_fmnist(real_data):
    e = fmnist.load(real_data, download=False)
    assert np.bincount(e.y[~e.held_out]).tolist() == [6000] * 10
    assert np.bincount(e.y[e.held_out]).tolist() == [1000] * 10
    train = e.x[:60000].astype(np.float32) / 255
    assert (train.mean(), train.std()) == pytest.approx((e.mean[0], e.std[0]), abs=2e-3)


@pytest.mark.slow
@pytest.mark.data("femnist")
def test_real_femnist(real_data, tmp_path):
    (tmp_path / "femnist").symlink_to(real_data / "femnist")  # what is prepared goes elsewhere
    e = femnist.load(tmp_path, download=False)
    assert len(np.unique(e.owner)) == len(e.names)
    assert (e.x[:, 0, 0, 0] == 255).mean() > 0.99  # white paper
