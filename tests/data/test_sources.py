"""Readers on small files in the official forms, made here."""

import pickle

import numpy as np
import pytest
from data_files import leaf_file, write_cifar, write_idx, write_images
from PIL import Image

from fedbench.core.errors import RequestError
from fedbench.core.validation import checked
from fedbench.data.sources import cifar10, imagefolder, leaf_json, mnist

# ---- LEAF JSON


TRAIN = {"a": ([[1.0, 2.0], [3.0, 4.0]], [0, 1]), "b": ([[5.0, 6.0]], [2])}


def test_leaf_json_reads_a_file(tmp_path):
    e = leaf_json.load(train=leaf_file(tmp_path / "t.json", TRAIN))
    assert e.x.tolist() == [[1, 2], [3, 4], [5, 6]]
    assert e.y.tolist() == [0, 1, 2]
    assert (e.names, e.owner.tolist(), e.classes, e.held_out) == (("a", "b"), [0, 0, 1], 3, None)


def test_leaf_json_reads_directories_and_test_sets(tmp_path):
    leaf_file(tmp_path / "train" / "1.json", {"b": TRAIN["b"]})
    leaf_file(tmp_path / "train" / "0.json", {"a": TRAIN["a"]})
    test = leaf_file(tmp_path / "test.json", {"b": ([[7.0, 8.0]], [1.0]), "c": ([[9.0, 0.0]], [0])})
    e = leaf_json.load(train=str(tmp_path / "train"), test=test)
    assert e.names == ("a", "b", "c")  # c is only tested
    assert e.held_out.tolist() == [False, False, False, True, True]
    assert e.owner.tolist() == [0, 0, 1, 1, 2]
    assert e.y.tolist() == [0, 1, 2, 1, 0]


def test_leaf_json_shapes_and_classes(tmp_path):
    flat = leaf_file(tmp_path / "t.json", {"a": ([[0.0] * 4, [1.0] * 4], [0, 0])})
    assert leaf_json.load(train=flat, shape=[1, 2, 2], classes=7).x.shape == (2, 1, 2, 2)
    assert leaf_json.load(train=flat, classes=7).classes == 7
    scalars = leaf_file(tmp_path / "s.json", {"a": ([1.0, 2.0], [0, 1])})
    assert leaf_json.load(train=scalars).x.shape == (2, 1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", r"is not in LEAF's JSON format \(Expecting property name"),
        (
            "[]",
            "; expected users and num_samples, lists of the same length, and user_data with x and y of each user",
        ),
        ('{"users": []}', "in LEAF's JSON format .'num_samples'.;"),
        ('{"users": ["a"], "num_samples": [], "user_data": {}}', "argument 2 is shorter"),
        (
            '{"users": ["a"], "num_samples": [1], "user_data": {}}',
            "user 'a' needs user_data with x and y",
        ),
        (
            '{"users": ["a"], "num_samples": [2], "user_data": {"a": {"x": [[1]], "y": [0]}}}',
            "1 x and 1 y, not 2",
        ),
        (
            '{"users": ["a"], "num_samples": [1], "user_data": {"a": {"x": [["p"]], "y": [0]}}}',
            "x must be finite numbers",
        ),
        (
            '{"users": ["a"], "num_samples": [1], "user_data": {"a": {"x": [[1]], "y": [0.5]}}}',
            "integers >= 0",
        ),
        (
            '{"users": ["a"], "num_samples": [1], "user_data": {"a": {"x": [[1]], "y": [-1]}}}',
            "integers >= 0",
        ),
        (
            '{"users": ["a"], "num_samples": [1], "user_data": {"a": {"x": [[NaN]], "y": [0]}}}',
            "x must be finite numbers",
        ),
        (
            '{"users": ["a", "b"], "num_samples": [1, 1], "user_data": {"a": {"x": [[1]], "y": [0]},'
            ' "b": {"x": [[1, 2]], "y": [0]}}}',
            r"all of the same shape, got \[\(1,\), \(2,\)\]",
        ),
        (
            '{"users": ["a", "a"], "num_samples": [1, 1], "user_data": {"a": {"x": [[1]], "y": [0]}}}',
            "user 'a' occurs twice",
        ),
        (
            '{"users": ["a"], "num_samples": [0], "user_data": {"a": {"x": [], "y": []}}}',
            r"must have examples, .* got \[\]",
        ),
    ],
)
def test_leaf_json_refuses(tmp_path, text, message):
    path = tmp_path / "bad.json"
    path.write_text(text)
    with pytest.raises(RequestError, match=message):
        leaf_json.load(train=str(path))


def test_leaf_json_names_what_is_missing(tmp_path):
    with pytest.raises(RequestError, match=r"data.train=.*nowhere is neither a file nor"):
        leaf_json.load(train=str(tmp_path / "nowhere"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(
        RequestError, match=r"data.test=.*empty is neither a file nor a directory with .json files"
    ):
        leaf_json.load(train=leaf_file(tmp_path / "t.json", TRAIN), test=str(tmp_path / "empty"))
    with pytest.raises(RequestError, match="data.classes=2, but .* has the label 2"):
        leaf_json.load(train=str(tmp_path / "t.json"), classes=2)
    with pytest.raises(RequestError, match=r"data.shape=\[3\] does not match the 2 values"):
        leaf_json.load(train=str(tmp_path / "t.json"), shape=[3])


# ---- MNIST


def test_mnist_reads_idx_files(tmp_path):
    (train, train_y), (test, test_y) = write_idx(tmp_path / "MNIST" / "raw")
    e = mnist.load(tmp_path)
    assert e.x.dtype == np.uint8
    assert np.array_equal(e.x[:, 0], np.concatenate([train, test]))
    assert np.array_equal(e.y, np.concatenate([train_y, test_y]))
    assert e.held_out.tolist() == [False] * 5 + [True] * 3
    assert mnist.load(tmp_path, pool=True).held_out is None
    with pytest.raises(
        RequestError, match=r"MNIST: files are missing.*MNIST/raw/train-images-idx3-ubyte.gz"
    ):
        mnist.load(tmp_path / "empty", download=False)
    assert e.sources == e.unofficial == ("MNIST: not the official files (md5 differs)",)


@pytest.mark.parametrize("pool", [False, True])
def test_mnist_standardised_by_pixel_over_all_images(tmp_path, pool):
    """FedProx's script, on the arrays as it has them: float32, 1e-3 added to the deviation, test images included."""
    (train, _), (test, _) = write_idx(tmp_path / "MNIST" / "raw")
    e = mnist.load(tmp_path, pool=pool, standardise="pixel")
    every = np.concatenate([train, test]).astype(np.float32)
    want = (every - every.mean(0)) / (every.std(0) + 0.001)
    assert (e.x.dtype, e.x.shape, e.mean, e.std) == (np.float32, (8, 1, 28, 28), None, None)
    assert e.x[:, 0] == pytest.approx(want, rel=1e-4, abs=1e-4)


# ---- CIFAR-10


def test_cifar_reads_batches(tmp_path):
    made = write_cifar(tmp_path / "cifar-10-batches-py")
    e = cifar10.load(tmp_path)
    assert e.x.shape == (24, 3, 32, 32)
    assert np.array_equal(e.x.reshape(24, -1), np.concatenate([d for d, _ in made]))
    assert e.y.tolist() == sum((labels for _, labels in made), [])
    assert e.held_out.tolist() == [False] * 20 + [True] * 4
    assert e.sources == e.unofficial == ("CIFAR-10: not the official files (md5 differs)",)


@pytest.mark.parametrize(
    "damage", [b"", b"\x80\x02", pickle.dumps([1, 2]), pickle.dumps({"labels": [1], "data": [[0]]})]
)
def test_cifar_refuses_damaged_batches(tmp_path, damage):
    folder = tmp_path / "cifar-10-batches-py"
    write_cifar(folder)
    (folder / "test_batch").write_bytes(damage)
    with pytest.raises(RequestError, match="test_batch is not a file of CIFAR-10"):
        cifar10.load(tmp_path)


# ---- image folders


def test_imagefolder(tmp_path):
    write_images(tmp_path, "train", 3)
    write_images(tmp_path, "test", 1)
    Image.new("L", (6, 6), 7).save(tmp_path / "train" / "dog" / "grey.jpg")
    (tmp_path / "train" / "dog" / "notes.txt").write_text("not an image")
    e = imagefolder.load(root=str(tmp_path))
    assert e.x.shape == (9, 3, 6, 6)
    assert e.y.tolist() == [0, 0, 0, 1, 1, 1, 1, 0, 1]
    assert e.held_out.tolist() == [False] * 7 + [True] * 2
    assert e.x[1, :, 0, 0].tolist() == [0, 20, 200]


def test_imagefolder_resizes(tmp_path):
    write_images(tmp_path, "train", 1)
    Image.new("RGB", (20, 10)).save(tmp_path / "train" / "cat" / "wide.png")
    with pytest.raises(RequestError, match=r"wide.png is 20x10, expected 6x6; set data.size"):
        imagefolder.load(root=str(tmp_path))
    assert imagefolder.load(root=str(tmp_path), size=4).x.shape == (3, 3, 4, 4)


def test_imagefolder_refuses(tmp_path):
    with pytest.raises(RequestError, match="has no directory train/"):
        imagefolder.load(root=str(tmp_path))
    (tmp_path / "train").mkdir()
    with pytest.raises(RequestError, match="train"):
        imagefolder.load(root=str(tmp_path))
    write_images(tmp_path, "train", 1)
    (tmp_path / "train" / "cat" / "broken.png").write_bytes(b"no image")
    with pytest.raises(RequestError, match="broken.png"):
        imagefolder.load(root=str(tmp_path))
    write_images(tmp_path, "test", 1, classes=("cow",))
    with pytest.raises(RequestError, match="classes that are missing in train/: cow"):
        imagefolder.load(root=str(tmp_path))


# ---- the real data


@pytest.mark.data("MNIST")
def test_real_mnist(real_data):
    e = mnist.load(real_data)
    assert e.x.shape == (70000, 1, 28, 28)
    assert (e.sources, e.unofficial) == (("MNIST: official files",), ())
    train = e.x[:60000].astype(np.float32) / 255
    assert (train.mean(), train.std()) == pytest.approx((e.mean[0], e.std[0]), abs=1e-4)
    assert np.bincount(e.y[:60000]).tolist() == [
        5923,
        6742,
        5958,
        6131,
        5842,
        5421,
        5918,
        6265,
        5851,
        5949,
    ]


@pytest.mark.data("cifar-10-batches-py")
def test_real_cifar10(real_data):
    e = cifar10.load(real_data)
    assert e.x.shape == (60000, 3, 32, 32)
    assert np.bincount(e.y[~e.held_out]).tolist() == [5000] * 10
    assert np.bincount(e.y[e.held_out]).tolist() == [1000] * 10
    sample = e.x[:10000] / 255
    assert sample.mean((0, 2, 3)) == pytest.approx(e.mean, abs=0.01)
    assert sample.std((0, 2, 3)) == pytest.approx(e.std, abs=0.01)


@pytest.mark.parametrize(
    ("y", "options", "message"),
    [
        ("[0, Infinity]", {}, "and y integers >= 0"),
        ("[0, NaN]", {}, "and y integers >= 0"),
        ("[0, 1e300]", {}, "and y integers >= 0"),
        ("[0, 1000000000]", {}, "the label 1000000000; number labels from 0, and set data.classes"),
        ("[0, 1]", {"shape": [-1, -2]}, "shape must be >= 1, got -1"),
    ],
)
def test_leaf_json_refuses_odd_labels_and_shapes(tmp_path, y, options, message):
    file = tmp_path / "a.json"
    file.write_text(
        f'{{"users": ["u"], "num_samples": [2], "user_data": {{"u": {{"x": [[1, 2], [3, 4]], "y": {y}}}}}}}'
    )
    with pytest.raises(RequestError, match=message):
        leaf_json.load(train=str(file), **checked(leaf_json.load, options))
