"""Readers on small files in the official forms, made here."""

import json
import pickle

import numpy as np
import pytest
from data_files import (
    cases,
    check,
    leaf_file,
    write,
    write_cifar10,
    write_idx,
    write_image,
    write_images,
)
from tools import rejected

from fedbench.data.sources import cifar10, imagefolder, leaf_json, mnist

# ---- LEAF JSON


TRAIN = {"a": ([[1.0, 2.0], [3.0, 4.0]], [0, 1]), "b": ([[5.0, 6.0]], [2])}


def test_leaf_json_reads_a_file(tmp_path):
    e = leaf_json.load(train=leaf_file(tmp_path / "t.json", TRAIN))
    assert e.x.tolist() == [[1, 2], [3, 4], [5, 6]]
    check(
        e,
        y=[0, 1, 2],
        names=("a", "b"),
        owner=[0, 0, 1],
        classes=3,
        held_out=None,
    )


def test_leaf_json_reads_directories_and_test_sets(tmp_path):
    leaf_file(tmp_path / "train" / "1.json", {"b": TRAIN["b"]})
    leaf_file(tmp_path / "train" / "0.json", {"a": TRAIN["a"]})
    test = leaf_file(
        tmp_path / "test.json",
        {"b": ([[7.0, 8.0]], [1.0]), "c": ([[9.0, 0.0]], [0])},
    )
    e = leaf_json.load(
        train=str(tmp_path / "train"),
        test=test,
    )
    check(
        e,
        names=("a", "b", "c"),  # c is only tested
        held_out=[False, False, False, True, True],
        owner=[0, 0, 1, 1, 2],
        y=[0, 1, 2, 1, 0],
    )


def test_leaf_json_shapes_and_classes(tmp_path):
    flat = leaf_file(
        tmp_path / "t.json",
        {"a": ([[0.0] * 4, [1.0] * 4], [0, 0])},
    )
    e = leaf_json.load(train=flat, shape=[1, 2, 2], classes=7)
    check(e, shape=(2, 1, 2, 2), classes=7)
    scalars = leaf_file(
        tmp_path / "s.json",
        {"a": ([1.0, 2.0], [0, 1])},
    )
    assert leaf_json.load(train=scalars).x.shape == (2, 1)


FORMS = r"""
{                                                          Expecting property name
[]                                                         expected users and num_samples
{"users": []}                                              LEAF's JSON format .'num_samples'.;
{"users": ["a"], "num_samples": [], "user_data": {}}       argument 2 is shorter
{"users": ["a"], "num_samples": [1], "user_data": {}}      user 'a' needs user_data with x and y
{"users": ["a"], "num_samples": [1], "user_data": {"a": {"x": [], "y": []}}}     0 x and 0 y, not 1
{"users": ["a", "a"], "num_samples": [0, 0], "user_data": {"a": {"x": [], "y": []}}}   occurs twice
"""
USERS = r"""
{"a": [[["p"]], [0]]}                       x must be finite numbers
{"a": [[[NaN]], [0]]}                       x must be finite numbers
{"a": [[[1]], [0.5]]}                       y integers >= 0
{"a": [[[1]], [-1]]}                        y integers >= 0
{"a": [[[1]], [Infinity]]}                  y integers >= 0
{"a": [[[1]], [1000000000]]}                the label 1000000000; number labels from 0
{"a": [[[1]], [0]], "b": [[[1, 2]], [0]]}   all of the same shape, got \[\(1,\), \(2,\)\]
{"a": [[], []]}                             must have examples, .* got \[\]
"""


@pytest.mark.parametrize(("content", "message"), cases(FORMS))
def test_leaf_json_refuses_other_forms(tmp_path, content, message):
    write(tmp_path / "bad.json", content)
    with rejected(message):
        leaf_json.load(train=str(tmp_path / "bad.json"))


@pytest.mark.parametrize(("users", "message"), cases(USERS))
def test_leaf_json_refuses_examples(tmp_path, users, message):
    train = leaf_file(tmp_path / "bad.json", json.loads(users))
    with rejected(message):
        leaf_json.load(train=train)


OPTIONS = r"""
{"train": "nowhere"}  data.train=nowhere is neither a file nor
{"test": "empty"}     data.test=empty is neither a file nor a directory with .json files
{"classes": 2}        data.classes=2, but .* has the label 2
{"shape": [3]}        data.shape=\[3\] does not match the 2 values
"""


@pytest.mark.parametrize(("options", "message"), cases(OPTIONS))
def test_leaf_json_refuses_options(tmp_path, monkeypatch, options, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    leaf_file(tmp_path / "t.json", TRAIN)
    with rejected(message):
        leaf_json.load(**({"train": "t.json"} | json.loads(options)))


# ---- MNIST


def test_mnist_reads_idx_files(tmp_path):
    (train, train_y), (test, test_y) = write_idx(tmp_path / "MNIST/raw")
    e = mnist.load(tmp_path)
    assert np.array_equal(e.x[:, 0], np.concatenate([train, test]))
    check(
        e,
        y=[*train_y, *test_y],
        held_out=[False] * 5 + [True] * 3,
        unofficial=("MNIST: not the official files (md5 differs)",),
    )
    assert mnist.load(tmp_path, pool=True).held_out is None


def test_mnist_standardised_by_pixel_over_all_images(tmp_path):
    """FedProx's script, on the arrays as it has them: float32, 1e-3 added to the deviation, test
    images included."""
    (train, _), (test, _) = write_idx(tmp_path / "MNIST/raw")
    e = mnist.load(tmp_path, standardise="pixel")
    every = np.concatenate([train, test]).astype(np.float32)
    want = (every - every.mean(0)) / (every.std(0) + 0.001)
    assert e.mean is None
    assert e.x[:, 0] == pytest.approx(want, rel=1e-4, abs=1e-4)


# ---- CIFAR-10


def test_cifar_reads_batches(tmp_path):
    made = write_cifar10(tmp_path)
    e = cifar10.load(tmp_path)
    assert np.array_equal(e.x.reshape(24, -1), np.concatenate([d for d, _ in made]))
    check(
        e,
        shape=(24, 3, 32, 32),
        y=sum((labels for _, labels in made), []),
        held_out=[False] * 20 + [True] * 4,
        unofficial=("CIFAR-10: not the official files (md5 differs)",),
    )


@pytest.mark.parametrize(
    "damage",
    [b"", pickle.dumps([1, 2]), pickle.dumps({"labels": [1]})],
)
def test_cifar_refuses_damaged_batches(tmp_path, damage):
    write_cifar10(tmp_path)
    write(tmp_path / "cifar-10-batches-py/test_batch", damage)
    with rejected("test_batch is not a file of CIFAR-10"):
        cifar10.load(tmp_path)


# ---- image folders


def test_imagefolder(tmp_path):
    write_images(tmp_path, "train", 3)
    write_images(tmp_path, "test", 1)
    write_image(tmp_path / "train/dog/grey.jpg", "L", (6, 6), 7)
    write(tmp_path / "train/dog/notes.txt", "not an image")
    e = imagefolder.load(root=str(tmp_path))
    check(
        e,
        shape=(9, 3, 6, 6),
        y=[0, 0, 0, 1, 1, 1, 1, 0, 1],
        held_out=[False] * 7 + [True] * 2,
    )
    assert e.x[1, :, 0, 0].tolist() == [0, 20, 200]


def test_imagefolder_resizes(tmp_path):
    write_images(tmp_path, "train", 1)
    write_image(tmp_path / "train/cat/wide.png", "RGB", (20, 10), 0)
    with rejected(r"wide.png is 20x10, expected 6x6; set data.size"):
        imagefolder.load(root=str(tmp_path))
    assert imagefolder.load(root=str(tmp_path), size=4).x.shape == (3, 3, 4, 4)


def test_imagefolder_refuses(tmp_path):
    with rejected("has no directory train/"):
        imagefolder.load(root=str(tmp_path))
    write_images(tmp_path, "train", 1)
    write(tmp_path / "train/cat/broken.png", b"no image")
    with rejected("broken.png"):
        imagefolder.load(root=str(tmp_path))
    write_images(tmp_path, "test", 1, classes=("cow",))
    with rejected("classes that are missing in train/: cow"):
        imagefolder.load(root=str(tmp_path))


# ---- the real data


@pytest.mark.data("MNIST")
def test_real_mnist(real_data):
    e = mnist.load(real_data)
    check(
        e,
        shape=(70000, 1, 28, 28),
        sources=("MNIST: official files",),
        unofficial=(),
    )
    train = e.x[:60000].astype(np.float32) / 255
    assert train.mean() == pytest.approx(e.mean[0], abs=1e-4)
    assert train.std() == pytest.approx(e.std[0], abs=1e-4)


@pytest.mark.data("cifar-10-batches-py")
def test_real_cifar10(real_data):
    e = cifar10.load(real_data)
    assert e.x.shape == (60000, 3, 32, 32)
    assert np.bincount(e.y).tolist() == [6000] * 10
    sample = e.x[:10000] / 255
    assert sample.mean((0, 2, 3)) == pytest.approx(e.mean, abs=0.01)
    assert sample.std((0, 2, 3)) == pytest.approx(e.std, abs=0.01)
