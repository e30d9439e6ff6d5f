"""Small data sets on disk in the official forms."""

import gzip
import json
import pickle
import struct

import numpy as np
from PIL import Image

RNG = np.random.default_rng(0)


def leaf_file(path, users):
    """``users``: name -> (x, y)."""
    content = {
        "users": list(users),
        "num_samples": [len(y) for _, y in users.values()],
        "user_data": {u: {"x": x, "y": y} for u, (x, y) in users.items()},
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))
    return str(path)


def write_idx(folder, counts=(5, 3)):
    """The four files, gzipped too, as torchvision lays them out; pixels and labels are identified by their position."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    made = []
    for part, n in zip(("train", "t10k"), counts, strict=True):
        images, labels = (
            rng.integers(0, 256, (n, 28, 28), dtype=np.uint8),
            (np.arange(n) % 10).astype(np.uint8),
        )
        for name, body in (
            (f"{part}-images-idx3-ubyte", struct.pack(">iiii", 2051, n, 28, 28) + images.tobytes()),
            (f"{part}-labels-idx1-ubyte", struct.pack(">ii", 2049, n) + labels.tobytes()),
        ):
            (folder / name).write_bytes(body)
            (folder / f"{name}.gz").write_bytes(gzip.compress(body))
        made.append((images, labels))
    return made


def write_cifar(folder, per_batch=4):
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    made = []
    for name in [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]:
        data = rng.integers(0, 256, (per_batch, 3072), dtype=np.uint8)
        labels = rng.integers(0, 10, per_batch).tolist()
        content = {
            b"batch_label": name.encode(),
            b"labels": labels,
            b"data": data,
            b"filenames": [b"x.png"] * per_batch,
        }
        # the official files were pickled by Python 2 with protocol 2: text as bytes
        (folder / name).write_bytes(
            pickle.dumps({k.decode(): v for k, v in content.items()}, protocol=2)
        )
        made.append((data, labels))
    return made


def write_images(root, part, per_class, side=6, classes=("cat", "dog")):
    for i, name in enumerate(classes):
        (root / part / name).mkdir(parents=True, exist_ok=True)
        for j in range(per_class):
            color = (10 * i, 20 * j, 200)
            Image.new("RGB", (side, side), color).save(root / part / name / f"{j}.png")


def idx(array):
    """An array of bytes in the idx format."""
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()


def bytes_of(*shape):
    return RNG.integers(0, 256, shape, dtype=np.uint8)


def write_fmnist(root, packed=True, labels=(range(10), (0, 2, 6, 9))):
    folder = root / "FashionMNIST" / "raw"
    folder.mkdir(parents=True)
    made = []
    for part, y in zip(("train", "t10k"), labels, strict=True):
        x, y = bytes_of(len(y), 28, 28), np.array(y, dtype=np.uint8)
        made.append((x, y))
        for name, array in ((f"{part}-images-idx3-ubyte", x), (f"{part}-labels-idx1-ubyte", y)):
            (folder / f"{name}{'.gz' * packed}").write_bytes(
                gzip.compress(idx(array)) if packed else idx(array)
            )
    return made


def cifar100_files():
    made = {}
    for name, n in (("train", 6), ("test", 2)):
        fine = RNG.integers(0, 100, n)
        made[name] = {
            "data": bytes_of(n, 3072),
            "fine_labels": fine.tolist(),
            "coarse_labels": (fine % 20).tolist(),
        }
    return made
