"""Every reader of a user's files: valid files, how to pack what has been changed inside them, and files of ill will."""

import bz2
import gzip
import hashlib
import io
import json
import lzma
import pickle
import struct
import tarfile
import zipfile
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from fedbench.core.errors import RequestError

RNG = np.random.default_rng(0)


@dataclass(frozen=True)
class Reader:
    """A reader.

    Attributes:
        name: Its name in the table.
        seeds: Valid contents of the file that is changed.
        put: Writes such a content, and whatever else the reader needs, into an empty directory.
        read: Reads what is there.
        clean: The errors that are an answer.
        attacks: Contents that are tried as they are.
        words: Texts that changes insert, beside the general ones.
        share: Relative number of cases: less for slow readers.
    """

    name: str
    seeds: Any
    put: Any
    read: Any
    clean: tuple = (RequestError,)
    attacks: Any = ()
    words: tuple = ()
    share: float = 1.0
    made: list = field(default_factory=list)

    def contents(self):
        """The valid contents, made once."""
        if not self.made:
            self.made.append(self.seeds() if callable(self.seeds) else self.seeds)
        return self.made[0]

    def hostile(self):
        """The contents that are tried as they are, made once."""
        if len(self.made) < 2:
            self.contents()
            self.made.append(list(self.attacks() if callable(self.attacks) else self.attacks))
        return self.made[1]


def into(name):
    """Write the content to one file."""

    def put(root, content):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)

    return put


# ---- NumPy


def npy(array):
    out = io.BytesIO()
    np.lib.format.write_array(out, np.asarray(array), allow_pickle=True)
    return out.getvalue()


def npy_header(shape, descr="<f8", body=b"", order="False"):
    text = f"{{'descr': {descr!r}, 'fortran_order': {order}, 'shape': {shape}, }}".encode()
    text += b" " * (-(len(text) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + body


def zipped(members, method=zipfile.ZIP_DEFLATED):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        for name, content in members.items():
            info = zipfile.ZipInfo("x")
            info.filename, info.compress_type = name, method  # whatever the name
            archive.writestr(info, content)
    return out.getvalue()


def npz_seeds():
    made = []
    for save in (np.savez, np.savez_compressed):
        for x in (np.eye(3), RNG.integers(0, 255, (3, 1, 4, 4), dtype=np.uint8), np.arange(6).reshape(3, 2)):
            out = io.BytesIO()
            save(out, x=x, y=[0, 1, 1], owner=["a", "b", "a"], held_out=[True, False, False])
            made.append(out.getvalue())
    return made


def npz_attacks():
    y = npy(np.array([0, 1]))
    bad = [
        npy_header("(1000000000000,)"), npy_header("(4294967296, 4294967296)"),
        npy_header(str((1,) * 64), body=b"\0" * 8),
        npy_header("(2,)", "|O", pickle.dumps([1, 2])), npy_header("(1000000000,)", "|S0"), npy_header("(-2,)"),
        npy_header("(2,)", "<U99999999"), npy_header("(2,)", "<M8[s]", b"\0" * 16), npy_header("(" * 400 + ")" * 400),
        npy_header("(2,)", "<U1", b"\xff" * 8), npy_header("(2,)", "<U1", b"\0\xd8\0\0" * 2), npy_header("(2**30,)"),
    ]  # fmt: skip
    made = [zipped({"x.npy": x, "y.npy": y}) for x in bad]
    made += [
        zipped({"x.npy": npy(np.eye(2)), "y.npy": y, name: b"1"}) for name in ("", "../x.npy", "a" * 5000, "/", "\0")
    ]
    made.append(zipped({"x.npy": npy_header("(100000000, 1)", "|u1", b"\0" * 10**8), "y.npy": y}))  # 100 kB, 100 MB
    made.append(zipped({"x.npy": npy(np.eye(2)), "y.npy": y}, zipfile.ZIP_LZMA))
    return made


def read_npz(root):
    from fedbench.data.sources import npz

    return npz.load(file=str(root / "a.npz"))


def put_arrays(root, content):
    into("a.npz")(root, zipped({"x.npy": content, "y.npy": npy([0, 1, 1])}))


# ---- idx


def idx(array):
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()


def idx_seeds():
    return [idx(RNG.integers(0, 255, (3, 4, 4), dtype=np.uint8)), idx(np.arange(3, dtype=np.uint8))]


def idx_attacks():
    return [
        b"\0\0\x08\x03" + b"\xff" * 12,
        b"\0\0\x08\xff" + b"\0\0\0\1" * 255,
        b"\0\0\x08\x40" + b"\0\0\0\1" * 64 + b"x",
        b"\0\0\x08\x00x",
        b"\0\0\x08\x01\x10\0\0\0",
        b"\0\0\x08\x02\0\0\0\0\xff\xff\xff\xff",
    ]


def read_idx(root):
    from fedbench.data.sources import _idx

    return [_idx.read(p) for p in root.iterdir()]


def packed_attacks():
    return [*map(gzip.compress, idx_attacks()), gzip.compress(b"\0\0\x08\x01\x05\xf5\xe1\x00" + bytes(10**8))]


# ---- archives

FILES = {"set/a.txt": b"alpha" * 300, "set/b/c.bin": bytes(range(256)), "set/empty": b""}


def tarred(members=FILES, fmt=tarfile.PAX_FORMAT, change=None):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=fmt) as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            if change:
                change(info)
            archive.addfile(info, io.BytesIO(content) if info.isreg() else None)
    return out.getvalue()


def tar_seeds():
    formats = (tarfile.PAX_FORMAT, tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT)
    long = {"set/" + "ü" * 90 + "/x": b"1", **FILES}
    return [*(tarred(FILES, f) for f in formats), tarred(long), tarred(long, tarfile.GNU_FORMAT)]


def header(kind, size, name=b"x"):
    block = bytearray(512)
    block[: len(name)] = name
    block[100:108], block[108:116], block[116:124] = b"0000644\0", b"0000000\0", b"0000000\0"
    block[124:136], block[136:148], block[156:157] = size, b"00000000000\0", kind
    block[257:265], block[148:156] = b"ustar\x0000", b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


def tar_attacks():
    huge = b"\x80" + (2**62).to_bytes(11, "big")
    made = [header(k, s) + b"\0" * 1024 for k in (b"x", b"g", b"L", b"K", b"0", b"S") for s in (huge, b"77777777777\0")]
    made += [header(b"x", b"00000000001\0") * 3000, header(b"L", b"00000000000\0") * 3000]
    for name in ("../x", "/tmp/fuzz-escape", "", "a\0b", "a" * 5000, "a/" * 3000 + "x", "."):
        made.append(tarred({name: b"1"}))
    for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE):

        def change(info, kind=kind):
            info.type, info.linkname = kind, "/etc/passwd"

        made.append(tarred({"x": b""}, change=change))
    zeros = tarred({"x": bytes(3 * 10**7)})
    return [*made, zeros, gzip.compress(zeros), bz2.compress(zeros), lzma.compress(zeros), *map(gzip.compress, made)]


def zip_attacks():
    made = [
        zipped({name: b"1"}) for name in ("../x", "/tmp/fuzz-escape", "", "a" * 70, "C:/x", "a\\..\\..\\x", "a/" * 900)
    ]
    made += [
        zipped({"x": bytes(10**8)}),
        zipped({str(i): b"" for i in range(3000)}),
        b"PK\3\4" * 1000,
        b"PK\5\6" + bytes(18),
    ]
    made += [zipped({"x": b"1" * 999}, m) for m in (zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2)]
    return [*made, gzip.compress(bytes(10**8)), gzip.compress(gzip.compress(bytes(10**8)))]


def read_archive(root):
    from fedbench.data.files.archives import unpack

    unpack(root / "a.bin", root / "out", most_bytes=10**7)


# ---- pickles


class Call:
    """Pickled as a call."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


def pickle_seeds():
    data = RNG.integers(0, 255, (2, 3072), dtype=np.uint8)
    content = {"data": data, "labels": [1, 2], "filenames": ["a.png", "b.png"], "batch_label": "x"}
    return [pickle.dumps(content, p) for p in (0, 1, 2, 3, 4, 5)] + [
        pickle.dumps({"labels": np.arange(2), "data": data})
    ]


def pickle_attacks():
    import os
    import subprocess

    calls = [
        Call(os.system, "touch fuzz-ran"),
        Call(eval, "1"),
        Call(exec, "1"),
        Call(subprocess.Popen, "true"),
        Call(open, "x", "w"),
    ]
    doubled = b"\x80\x02)" + b"q\0h\0\x86" * 60 + b"q\1}h\1K\1s."  # a tuple of itself twice, sixty times, as a key
    lists = b"\x80\x02]q\0" + b"".join(b"](" + b"h\0" * 50 + b"eq\0" for _ in range(8)) + b"."
    data = b"\x80\x02}(X\4\0\0\0data" + lists[2:-1] + b"X\6\0\0\0labels" + lists[2:-1] + b"u."
    huge = [b"\x80\x05" + c + struct.pack("<Q", 2**40) + b"x." for c in (b"\x8e", b"\x96", b"\x8d", b"\x95")]
    empty = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(I0\ntS'b'\ntR(I1\n(I1000000000\ntcnumpy\ndtype\n"
    empty += b"(S'S0'\nI0\nI1\ntR(I3\nS'|'\nNNNI-1\nI-1\nI0\ntbI00\nS''\ntb."
    deep = [b"(" * 20000 + b".", b"]" * 50000 + b"a" * 49999 + b".", b")" + b"\x85" * 50000 + b"."]
    return [*map(pickle.dumps, calls), *(pickle.dumps(c, 0) for c in calls), doubled, lists, data, *huge, empty, *deep]


def read_pickle(root):
    from fedbench.data.files.pickles import arrays_only

    return arrays_only((root / "a").read_bytes())


def read_cifar(root):
    from fedbench.data.sources import cifar10

    return cifar10.read_pickles([root / "test_batch"], {"test_batch": ""}, "labels", 10, cifar10._ARCHIVE)


# ---- images


def image(kind, mode="RGB", size=(6, 6), **options):
    out = io.BytesIO()
    pixels = RNG.integers(0, 255, (size[1], size[0], 3), dtype=np.uint8)
    Image.fromarray(pixels).convert(mode).save(out, kind, **options)
    return out.getvalue()


def image_seeds():
    kinds = [image("PNG", m) for m in ("RGB", "L", "P", "RGBA", "1")]
    return [*kinds, image("JPEG"), image("JPEG", "L", progressive=True), image("WEBP"), image("BMP"), image("GIF", "P")]


def chunk(kind, content):
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def png(width, height, body=b"", extra=b"", depth=8, colour=2):
    head = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + extra + chunk(b"IDAT", body) + chunk(b"IEND", b"")


def image_attacks():
    sizes = ((30000, 30000), (2**31 - 1, 2**31 - 1), (2**31 - 1, 1), (1, 10**6), (0, 0), (12000, 12000), (10**6, 1))
    made = [png(w, h, zlib.compress(bytes(10**6))) for w, h in sizes]
    text = zlib.compress(bytes(10**8))
    made += [png(6, 6, extra=chunk(b"zTXt", b"a\0\0" + text)), png(6, 6, extra=chunk(b"iCCP", b"a\0\0" + text))]
    jpeg = bytearray(image("JPEG"))
    at = jpeg.index(b"\xff\xc0")
    jpeg[at + 5 : at + 9] = b"\xff\xff\xff\xff"
    eps = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 6 6\n%%EndComments\n(x) (w) file\n"
    bmp = bytearray(image("BMP"))
    bmp[18:26] = struct.pack("<ii", 2**20, 2**20)
    gif = bytearray(image("GIF", "P"))
    gif[6:10] = b"\xff\xff\xff\xff"
    return [*made, bytes(jpeg), eps, bytes(bmp), bytes(gif)]


def put_image(root, content):
    for name in ("a", "b"):
        (root / "train" / name).mkdir(parents=True)
    (root / "train/a/0.png").write_bytes(content)
    (root / "train/b/0.png").write_bytes(image_seeds_once()[0])


def image_seeds_once(kept=[]):  # noqa: B006 (made once)
    if not kept:
        kept.append(image("PNG"))
    return kept


def read_images(root):
    from fedbench.data.sources import imagefolder

    return imagefolder.load(root=str(root))


def read_scaled_images(root):
    from fedbench.data.sources import imagefolder

    return imagefolder.load(root=str(root), size=32)


def nist_parts(content):
    return {"by_class/30/hsf_0/a.png": content}, {"by_write/hsf_0/f0/d0/a.png": content}


def put_nist(root, content):
    for name, members in zip(("by_class", "by_write"), nist_parts(content), strict=True):
        into(f"{name}.zip")(root, zipped(members))


def put_nist_zip(root, content):
    into("by_class.zip")(root, zipped(nist_parts(image_seeds_once()[0])[0]))
    into("by_write.zip")(root, content)


def read_nist(root):
    from fedbench.data.sources._nist import by_writer

    return by_writer(root / "by_class.zip", root / "by_write.zip", "x")


# ---- JSON


def leaf(x, y, users=("u", "v")):
    data = {u: {"x": x, "y": y} for u in users}
    return json.dumps({"users": list(users), "num_samples": [len(y)] * len(users), "user_data": data}).encode()


def leaf_attacks():
    deep = b"[" * 100000 + b"]" * 100000
    nested = "[" * 60 + "1" + "]" * 60
    empty = b'{"users": ["u"], "num_samples": [1], "user_data": {"u": {"x": %s, "y": [0]}}}'
    tops = [
        deep,
        b"[" * 10**6,
        b'{"users":' * 5000,
        b"9" * 10**6,
        b"",
        b"null",
        b"\xff",
        b'{"users": [[[[]]]], "num_samples": [1], "user_data": {}}',
    ]
    return [
        *tops,
        *(
            empty % x
            for x in (
                deep[:1800],
                nested.encode(),
                b"[[]]",
                b"[1e400]",
                b'["1"]',
                b"[null]",
                b'["\\ud800"]',
                b"[" + b"9" * 4000 + b"]",
            )
        ),
    ]


def read_leaf(root):
    from fedbench.data.sources import leaf_json

    return leaf_json.load(train=str(root / "a.json"))


def femnist_seeds():
    return [leaf([[k / 255] * 784, [0.0] * 784], [3, 61]) for k in (0, 255)]


def read_femnist(root):
    from fedbench.data.sources import femnist

    return femnist._leaf([root / "a.json"], [], [], False)


def read_shakespeare_json(root):
    from fedbench.data.sources import shakespeare

    return shakespeare.load(root, 0, json_train=str(root / "a.json"), split=1.0)


# ---- texts


def play():
    roles = "".join(f"  {n}. {'some words to say ' * 8}\n    and more of them\n" for n in ("Hamlet", "Ophelia") * 3)
    work = f"\nTHE TITLE\n\n\nby William Shakespeare\n\n{roles}\n"
    return (work * 3).encode()


def read_shakespeare(root):
    from fedbench.data.sources import shakespeare

    return shakespeare.load(root, 0, split=0.5, download=False)


def tweets():
    rows = [f'"{p}","{i}","date","q","user{i % 2}","hello, world {i}!"' for i, p in enumerate((0, 4, 2, 0, 4, 0))]
    return ["\r\n".join(rows).encode()]


GLOVE = b"hello 0.1 0.2 0.3\nworld 1 -2 3e-1\n! 0 0 0\n"


def put_tweets(root, content):
    into("training.csv")(root, content)
    into("glove.txt")(root, GLOVE)


def read_tweets(root):
    from fedbench.data.sources import sent140

    return sent140._read([root / "training.csv"], root / "glove.txt", 1, 5, True)


def read_glove(root):
    from fedbench.data.sources import sent140

    return sent140.vectors(root / "glove.txt", sent140.vocabulary(root / "glove.txt"))


def put_words(root, content):
    for name in ("train", "valid", "test"):
        into(f"wikitext-2/wiki.{name}.tokens")(root, content if name == "train" else b"a b c <unk> " * 40)


def read_words(root):
    from fedbench.data.sources import wikitext2

    return wikitext2.load(root, download=False, clients=2, columns=2, length=3)


def put_tiny(root, content):
    folder = root / "tiny-imagenet-200"
    picture = image("PNG", size=(64, 64))
    for name in ("train/n01/images/a.JPEG", "val/images/v.JPEG"):
        into(f"tiny-imagenet-200/{name}")(root, picture)
    wnids, _, table = content.partition(b"\0\0")
    (folder / "wnids.txt").write_bytes(wnids)
    (folder / "val/val_annotations.txt").write_bytes(table)


def read_tiny(root):
    from fedbench.data.sources import tinyimagenet

    return tinyimagenet.load(root, download=False)


def put_clothing(root, content):
    into("keys.txt")(root, content.partition(b"\0\0")[0])
    into("labels.txt")(root, content.partition(b"\0\0")[2])


def read_clothing(root):
    from fedbench.data.sources import clothing1m

    return clothing1m._listed(root / "keys.txt", root / "labels.txt")


# ---- configurations


ALGO = b"""# a method
_target_: fedbench.algorithms.fedprox.fedprox
mu: 0.1  # proximal term
note: ${algo.mu}
list: [1, 2, {a: b}]
"""


def config_attacks():
    laughs = b"a0: &a0 [x,x,x,x,x,x,x,x,x]\n" + b"".join(
        b"a%d: &a%d [%s]\n" % (i, i, b",".join([b"*a%d" % (i - 1)] * 9)) for i in range(1, 12)
    )
    words = b"a0: xxxxxxxxxx\n" + b"".join(b"a%d: '%s'\n" % (i, b"${.a%d}" % (i - 1) * 9) for i in range(1, 12))
    chain_ = b"".join(b"a%d: ${.a%d}\n" % (i, i + 1) for i in range(1500)) + b"a1500: x\n"
    many = [b"z: " + b"x" * 5_000_000, b"z: [" + b"1," * 200_000 + b"]", laughs, words, chain_, b"z: " + b"[" * 5000]
    many += [
        b"z: " + b"9" * 5000,
        b"z: !!python/object/apply:os.system [touch fuzz-ran]",
        b"z: &a [*a]",
        b"z: ${.z}",
        b"z: ${${.mu}}",
    ]
    code = [
        ALGO.replace(b"fedbench.algorithms.fedprox.fedprox", t)
        for t in (b"os.system", b"builtins.eval", b"subprocess.run")
    ]
    return [*(ALGO + m for m in many), *code]


def read_config(root):
    from fedbench.config.compose import Composer
    from fedbench.config.user_code import user_code_from

    with user_code_from(root):
        return Composer(root).config(["experiment=smoke", "algo=own"])


def read_listed(root):
    from fedbench.commands.list import list_choices

    assert "own" in list_choices(["data"], root)


OVERRIDES = [
    b"local.lr=0.1", b"keep_clients=[1,2,3]", b"data.split=0.5", b"algo={mu: 0.1}", b"results_dir=a/b", b"seed=1,2,3",
    b"algo=fedavg", b"data.file='a b'", b"+algo.x=${oc.env:HOME}", b"seed=range(0,5)", b"data_dir=~/x",
    b"device=cpu", b"init.path=null",
]  # fmt: skip


def override_attacks():
    values = (
        b"[" * 4000,
        b"1," * 200_000,
        b"x" * 5_000_000,
        b"9" * 5000,
        b"~nobody-at-all/x",
        b"a\0b",
        b"a" * 300,
        b"a/" * 3000,
        b"\xff",
    )
    return [k + b"=" + v for k in (b"results_dir", b"keep_clients", b"data_dir", b"rounds") for v in values]


def read_override(root):
    from fedbench.config.compose import compose_run

    return compose_run(["experiment=smoke", (root / "a").read_bytes().decode("utf-8", "surrogateescape")])


# ---- results


def stored_run(root):
    import pandas as pd

    folder = root / "smoke/fedavg/abc/seed_0"
    folder.mkdir(parents=True)
    meta = {
        "algo": "fedavg",
        "hash": "abc",
        "status": "done",
        "data": "d",
        "model": "m",
        "experiment": "smoke",
        "seed": 0,
    }
    meta |= {"rounds": 2, "departures": {}, "overrides": [], "sources": [], "unofficial": []}
    (folder / "meta.json").write_text(json.dumps(meta))
    (folder / "config.yaml").write_text(
        "rounds: 2\nalgo: {_target_: fedbench.algorithms.fedavg.fedavg}\nlocal: {lr: 0.1}\n"
    )
    rows = [{"round": r, "accuracy_mean": 0.5, "seconds_train": 0.1} for r in (0, 1, 2)]
    (folder / "rounds.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    pd.DataFrame({"round": [2, 2], "client": ["a", "b"], "accuracy": [0.5, 0.6]}).to_parquet(folder / "clients.parquet")
    (folder / "DONE").write_text("")
    return folder


def run_seeds(kept=[]):  # noqa: B006 (made once)
    import tempfile

    if not kept:
        with tempfile.TemporaryDirectory() as folder:
            made = stored_run(Path(folder))
            kept.append({p.name: p.read_bytes() for p in made.iterdir()})
    return kept[0]


def run_part(name):
    return lambda: [run_seeds()[name]]


def put_run(name):
    def put(root, content):
        for other, valid in run_seeds().items():
            into(f"r/smoke/fedavg/abc/seed_0/{other}")(root, content if other == name else valid)

    return put


def read_results(root):
    from fedbench.runs.results import load_results

    return load_results(root / "r")


def bundle_seeds(kept=[]):  # noqa: B006 (made once)
    import tempfile

    from fedbench.runs.bundle_writing import Entry, watched, write_bundle
    from fedbench.runs.store import ResultStore

    if not kept:
        with tempfile.TemporaryDirectory() as folder:
            stored_run(Path(folder))
            runs = [watched(r) for r in ResultStore(Path(folder))]
            for r in runs:
                r.curves(["accuracy_mean"])
            write_bundle(Path(folder) / "out", [Entry(r, "smoke/fedavg/abc/seed_0") for r in runs], [], {})
            kept.append({p.name: p.read_bytes() for p in (Path(folder) / "out/evidence").iterdir()})
    return kept[0]


def bundle_attacks():
    import pyarrow as pa
    import pyarrow.parquet as pq

    out = io.BytesIO()
    pq.write_table(pa.table({"run": np.zeros(2 * 10**7, np.int64)}), out, compression="zstd")  # kB for 160 MB
    return [out.getvalue()]


def put_bundle(name):
    """The manifest has the checksums of what has been changed: a bundle of ill will would, too."""

    def put(root, content):
        files = {**bundle_seeds(), name: content}
        if name != "bundle.json":
            facts = json.loads(files["bundle.json"])
            facts["files"] = {k: hashlib.sha256(files[k]).hexdigest() for k in facts["files"]}
            files["bundle.json"] = json.dumps(facts).encode()
        for other, valid in files.items():
            into(f"r/evidence/{other}")(root, valid)

    return put


def bundle_part(name):
    return lambda: [bundle_seeds()[name]]


def prepared_seeds(kept=[]):  # noqa: B006 (made once)
    import tempfile

    if not kept:
        with tempfile.TemporaryDirectory() as folder:
            make_prepared(Path(folder))
            kept.append({p.name: p.read_bytes() for p in next((Path(folder) / "prepared").glob("x-*/")).iterdir()})
    return kept[0]


def make_prepared(root):
    from fedbench.data.examples import Examples
    from fedbench.data.files.cache import prepared

    return prepared(root, "x", [], {}, lambda: Examples(np.eye(3, dtype=np.float32), np.array([0, 1, 1]), 2))


def put_prepared(name):
    def put(root, content):
        make_prepared(root)
        into(name)(next((root / "prepared").glob("x-*/")), content)

    return put


def read_prepared(root):
    return np.asarray(make_prepared(root).x).sum()


def tensors():
    from safetensors.numpy import save

    return [save({"a": np.eye(3, dtype=np.float32), "b": np.arange(4)})]


def tensor_attacks():
    def of(head):
        text = json.dumps(head).encode()
        return struct.pack("<Q", len(text)) + text + b"\0" * 8

    huge = {"a": {"dtype": "F32", "shape": [2**40], "data_offsets": [0, 2**42]}}
    return [
        struct.pack("<Q", 2**62) + b"{}",
        of(huge),
        of({"a": {"dtype": "F32", "shape": [2] * 64, "data_offsets": [0, 8]}}),
        b"",
        of([]),
    ]


def read_tensors(root):
    from fedbench.runs.tensors import read_tensors as read

    return read(root / "a.safetensors", "init.path")


READERS = [
    Reader("npz", npz_seeds, into("a.npz"), read_npz, attacks=npz_attacks, share=3),
    Reader(
        "npz, its arrays",
        lambda: [npy(np.eye(3)), npy(np.arange(3)), npy(np.zeros((3, 1, 2, 2), np.uint8))],
        put_arrays,
        read_npz,
        share=3,
    ),
    Reader("idx", idx_seeds, into("a"), read_idx, attacks=idx_attacks, share=3),
    Reader(
        "idx, gzipped", lambda: list(map(gzip.compress, idx_seeds())), into("a.gz"), read_idx, attacks=packed_attacks
    ),
    Reader(
        "idx in a gzip", idx_seeds, lambda root, c: into("a.gz")(root, gzip.compress(c)), read_idx, attacks=idx_attacks
    ),
    Reader(
        "zip",
        lambda: [zipped(FILES), zipped(FILES, zipfile.ZIP_STORED)],
        into("a.bin"),
        read_archive,
        attacks=zip_attacks,
        share=2,
    ),
    Reader("tar", tar_seeds, into("a.bin"), read_archive, attacks=tar_attacks, share=2),
    Reader("tar.gz", lambda: list(map(gzip.compress, tar_seeds())), into("a.bin"), read_archive),
    Reader("tar in a gzip", tar_seeds, lambda root, c: into("a.bin")(root, gzip.compress(c)), read_archive),
    Reader(
        "tar.bz2, tar.xz",
        lambda: [f(t) for t in tar_seeds() for f in (bz2.compress, lzma.compress)],
        into("a.bin"),
        read_archive,
    ),
    Reader("pickle", pickle_seeds, into("a"), read_pickle, (pickle.UnpicklingError,), pickle_attacks, share=3),
    Reader("pickle of CIFAR", pickle_seeds, into("test_batch"), read_cifar, attacks=pickle_attacks, share=3),
    Reader("images", image_seeds, put_image, read_images, attacks=image_attacks, share=1),
    Reader("images, scaled", image_seeds, put_image, read_scaled_images, attacks=image_attacks, share=1),
    Reader("NIST, its images", image_seeds, put_nist, read_nist, attacks=image_attacks, share=1),
    Reader(
        "NIST, its zip",
        lambda: [zipped(nist_parts(image_seeds_once()[0])[1])],
        put_nist_zip,
        read_nist,
        attacks=zip_attacks,
    ),
    Reader(
        "LEAF JSON",
        lambda: [leaf([[1, 2.5], [0, 1]], [0, 1]), leaf([1, 2], [0, 1])],
        into("a.json"),
        read_leaf,
        attacks=leaf_attacks,
        share=3,
    ),
    Reader("FEMNIST", femnist_seeds, into("a.json"), read_femnist, attacks=leaf_attacks),
    Reader(
        "Shakespeare, JSON",
        lambda: [leaf(["a" * 80, "b c." * 20], ["x", "y"])],
        into("a.json"),
        read_shakespeare_json,
        attacks=leaf_attacks,
    ),
    Reader(
        "Shakespeare, text",
        lambda: [play()],
        into("shakespeare/data/raw_data/raw_data.txt"),
        read_shakespeare,
        words=(b"by William Shakespeare", b"THE COMEDY OF ERRORS"),
    ),
    Reader("Sentiment140", tweets, put_tweets, read_tweets, words=(b'"', b'""')),
    Reader("GloVe", lambda: [GLOVE], into("glove.txt"), read_glove),
    Reader("WikiText-2", lambda: [b" = Title = \n a b c d <unk> e\n" * 10], put_words, read_words),
    Reader("Tiny-ImageNet, lists", lambda: [b"n01\n\0\0v.JPEG\tn01\t0\t0\n"], put_tiny, read_tiny, share=0.5),
    Reader(
        "Clothing1M, lists",
        lambda: [b"images/0/a.jpg\nimages/0/b.jpg\n\0\0images/0/a.jpg 3\nimages/0/b.jpg 13\n"],
        put_clothing,
        read_clothing,
    ),
    Reader(
        "config file",
        lambda: [ALGO],
        into("algo/own.yaml"),
        read_config,
        attacks=config_attacks,
        share=0.05,
        words=(b"_target_: os.system", b"${oc.env:A,b}", b"defaults: [x]"),
    ),
    Reader(
        "config file, listed", lambda: [ALGO], into("data/own.yaml"), read_listed, attacks=config_attacks, share=0.05
    ),
    Reader("override", lambda: OVERRIDES, into("a"), read_override, attacks=override_attacks, share=0.05),
    *(
        Reader(f"run, {n}", run_part(n), put_run(n), read_results, share=0.2)
        for n in ("meta.json", "config.yaml", "rounds.jsonl", "clients.parquet", "DONE")
    ),
    *(
        Reader(f"bundle, {n}", bundle_part(n), put_bundle(n), read_results, attacks=bundle_attacks, share=0.2)
        for n in ("bundle.json", "runs.parquet", "rounds.parquet", "clients.parquet", "curves.parquet")
    ),
    *(
        Reader(f"prepared, {n}", lambda n=n: [prepared_seeds()[n]], put_prepared(n), read_prepared, share=0.3)
        for n in ("manifest.json", "x.npy")
    ),
    Reader("safetensors", tensors, into("a.safetensors"), read_tensors, attacks=tensor_attacks),
]
