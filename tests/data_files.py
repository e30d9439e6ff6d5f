"""Small data sets on disk in the official forms."""

import gzip
import json
import pickle
import re
import struct
import tarfile
import zipfile
from io import BytesIO

import numpy as np
from PIL import Image

RNG = np.random.default_rng(0)
VALUES = b'\x00\xff"\\[{0-9eE,\n\x1b\xed\xa0\x80'


def bytes_of(*shape):
    return RNG.integers(0, 256, shape, dtype=np.uint8)


def write(path, content):
    """Write bytes or text, and make the directories that the path needs."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)


def check(examples, **fields):
    """Compare fields of examples, arrays as lists, and the shape of the inputs."""
    actual = vars(examples) | {"shape": examples.x.shape}
    for name, expected in fields.items():
        value = actual[name]
        plain = value.tolist() if isinstance(value, np.ndarray) else value
        assert plain == expected, f"{name}: {plain}"


def cases(table):
    """The rows of a table in text, whose cells are two blanks or more apart."""
    return [re.split(" {2,}", line.strip()) for line in table.strip().splitlines()]


def pack(path, members, method=zipfile.ZIP_DEFLATED):
    """Write a zip or tar archive, as the ending says; ``members``: name -> bytes, or the path of a
    link."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w", method) as archive:
            for name, content in members.items():
                archive.writestr(name, content)
        return
    with tarfile.open(path, f"w:{path.suffix[1:]}") as archive:
        for name, content in members.items():
            entry = tarfile.TarInfo(name)
            if isinstance(content, bytes):
                entry.size = len(content)
                archive.addfile(entry, BytesIO(content))
            else:
                entry.type = tarfile.SYMTYPE
                entry.linkname = str(content)
                archive.addfile(entry)


def leaf_file(path, users):
    """``users``: name -> (x, y)."""
    content = {
        "users": list(users),
        "num_samples": [len(y) for _, y in users.values()],
        "user_data": {user: {"x": x, "y": y} for user, (x, y) in users.items()},
    }
    write(path, json.dumps(content))
    return str(path)


def idx(array):
    """An array of bytes in the idx format."""
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()


def write_idx(folder, labels=(range(5), range(3)), packed=False):
    """The four files, gzipped or not, of training and test images with these labels."""
    made = []
    for part, y in zip(("train", "t10k"), labels, strict=True):
        x = bytes_of(len(y), 28, 28)
        y = np.array(y, dtype=np.uint8)
        made.append((x, y))
        for name, array in ((f"{part}-images-idx3-ubyte", x), (f"{part}-labels-idx1-ubyte", y)):
            if packed:
                write(folder / f"{name}.gz", gzip.compress(idx(array)))
            else:
                write(folder / name, idx(array))
    return made


def write_cifar10(root, per_batch=4):
    """The batches, as Python 2 pickled them: with protocol 2."""
    made = []
    for name in [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]:
        x = bytes_of(per_batch, 3072)
        labels = RNG.integers(0, 10, per_batch).tolist()
        content = {"batch_label": name, "labels": labels, "data": x}
        write(root / "cifar-10-batches-py" / name, pickle.dumps(content, protocol=2))
        made.append((x, labels))
    return made


def write_cifar100(root):
    made = []
    for name, count in (("train", 6), ("test", 2)):
        fine = RNG.integers(0, 100, count)
        content = {
            "data": bytes_of(count, 3072),
            "fine_labels": fine.tolist(),
            "coarse_labels": (fine % 20).tolist(),
        }
        write(root / "cifar-100-python" / name, pickle.dumps(content, protocol=2))
        made.append(content)
    return made


def write_image(path, mode, size, color):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, color).save(path, quality=95)


def write_images(root, part, per_class, side=6, classes=("cat", "dog")):
    for i, name in enumerate(classes):
        for j in range(per_class):
            write_image(root / part / name / f"{j}.png", "RGB", (side, side), (10 * i, 20 * j, 200))


def error_while_waiting(thread, capsys):
    """Start a thread that waits for a lock, and return its message on standard error."""
    thread.start()
    shown = ""
    for _ in range(1000):
        if "waiting" not in shown:
            thread.join(0.01)
            shown += capsys.readouterr().err
    return shown


def mutated(content, rng, inserted):
    """Change some bytes, near the beginning or the end more often than elsewhere."""
    content = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 5))):
        size = len(content)
        if not size:
            break
        edge = rng.randrange(min(size, 200))
        place = rng.choice((rng.randrange(size), edge, size - 1 - edge))
        kind = rng.randrange(6)
        if kind == 0:
            content[place] ^= 1 << rng.randrange(8)
        elif kind == 1:
            content[place] = rng.choice(VALUES)
        elif kind == 2:
            del content[place : place + rng.choice((1, 4, 50))]
        elif kind == 3:
            content[place:place] = rng.choice(inserted)
        elif kind == 4:
            content[place : place + 20] = rng.randbytes(20)
        else:
            del content[place:]
    return bytes(content)
