"""Archives and pickles from elsewhere: nothing is written outside, nothing is called."""

import io
import os
import pickle
import random
import resource
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest

from fedbench.core.errors import RequestError
from fedbench.data.files.fetch import unpack
from fedbench.data.files.readers import read_pickle
from fedbench.data.sources.cifar10 import FILES, read_batches


def tar(path, *members, mode="w:gz"):
    with tarfile.open(path, mode) as packed:
        for name, content in members:
            entry = tarfile.TarInfo(name)
            if isinstance(content, bytes):
                entry.size = len(content)
                packed.addfile(entry, io.BytesIO(content))
            else:
                entry.type, entry.linkname = tarfile.SYMTYPE, content
                packed.addfile(entry)


@pytest.mark.parametrize("form", ["w:gz", "w:bz2", "w:xz", "w", "zip"])
def test_files_join_those_that_are_there(tmp_path, form):
    packed, target = (
        tmp_path / f"a.{form.replace('w:', 'tar.').replace('w', 'tar')}",
        tmp_path / "target",
    )
    (target / "d").mkdir(parents=True)
    (target / "d" / "old").write_text("old")
    (target / "d" / "both").write_text("old")
    if form == "zip":
        with zipfile.ZipFile(packed, "w") as z:
            z.writestr("d/both", "new")
            z.writestr("e/new", "new")
    else:
        tar(packed, ("d/both", b"new"), ("e/new", b"new"), mode=form)
    unpack(packed, target)
    found = {
        p.relative_to(target).as_posix(): p.read_text() for p in target.rglob("*") if p.is_file()
    }
    assert found == {"d/old": "old", "d/both": "new", "e/new": "new"}


@pytest.mark.parametrize(
    "member", [("../out", b"x"), ("/tmp/../../out", b"x"), ("link", "../../out")]
)
def test_members_that_lead_out_are_refused_and_nothing_is_unpacked(tmp_path, member):
    tar(tmp_path / "a.tgz", ("good", b"x"), member)
    with pytest.raises(RequestError, match="a.tgz cannot be unpacked into .*outside"):
        unpack(tmp_path / "a.tgz", tmp_path / "deep" / "target")
    assert [p.name for p in tmp_path.rglob("*")] == ["a.tgz", "deep", "target"] or not list(
        (tmp_path / "deep" / "target").iterdir()
    )


@pytest.mark.parametrize("member", ["../../out", "/out", "in/../../out", "in/.."])
def test_a_zip_with_members_that_lead_out_is_refused(tmp_path, member):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as z:
        z.writestr("in", "x")
        z.writestr(member, "x")
    with pytest.raises(RequestError, match=r"a.zip cannot be unpacked into .* leads outside"):
        unpack(tmp_path / "a.zip", tmp_path / "deep" / "target")
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["a.zip", "deep", "target"]


def test_names_with_two_dots_in_a_zip_are_files(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as z:
        z.writestr("a..b/c..txt", "x")
    unpack(tmp_path / "a.zip", tmp_path / "target")
    assert (tmp_path / "target/a..b/c..txt").read_text() == "x"


@pytest.mark.parametrize("cut", [0, 40, 1500])
@pytest.mark.parametrize("form", ["w:gz", "zip"])
def test_corrupt_archives_leave_nothing(tmp_path, form, cut):
    packed, content = (
        tmp_path / ("a.zip" if form == "zip" else "a.tgz"),
        np.random.default_rng(0).bytes(3000),
    )
    if form == "zip":
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as z:
            z.writestr("x", content)
    else:
        tar(packed, ("x", content))
    packed.write_bytes(packed.read_bytes()[:cut])
    with pytest.raises(RequestError, match="cannot be unpacked into .*if it is corrupt, remove it"):
        unpack(packed, tmp_path / "target")
    assert not list((tmp_path / "target").iterdir())


@pytest.mark.parametrize("protocol", [2, 4])
def test_pickles_of_arrays_are_read(tmp_path, protocol):
    content = {
        "data": np.arange(6, dtype=np.uint8).reshape(2, 3),
        "labels": [1, 2],
        b"names": [b"x", None, (1.5,)],
    }
    (tmp_path / "p").write_bytes(pickle.dumps(content, protocol=protocol))
    found = read_pickle(tmp_path / "p")
    assert np.array_equal(found.pop("data"), content.pop("data"))
    assert found == content


ARRAY = b"cnumpy\nndarray\n"
TYPE = b"cnumpy\ndtype\n"
HOSTILE = {
    "an array of objects": b"\x80\x02"
    + ARRAY
    + b"(K\x01\x85"
    + TYPE
    + b"X\x01\0\0\0O\x85RC\x08AAAAAAAAtR.",
    "an array of objects, made": b"\x80\x02"
    + ARRAY
    + b"K\x01\x85"
    + TYPE
    + b"X\x01\0\0\0O\x85R\x86\x81.",
    "a type with a state": b"\x80\x02"
    + TYPE
    + b"U\x02u1\x85R(K\x03U\x01|N]}J\xff\xff\xff\x7fK\x01Ktb.",
    "a number of a value": b"\x80\x02]r\xff\xff\xff\x3f.",
    "nested tuples, hashed": b"\x80\x02})" + b"\x85" * 1_000_000 + b"K\x01s.",
    "lists that hold themselves": b"\x80\x02}U\x04data]q\x01(h\x01h\x01esU\x06labelsh\x01s.",
    "a long frame": b"\x80\x04\x95" + b"\xff" * 7 + b"\x7f}.",
    "a long text": b"\x80\x04\x8e" + b"\xff" * 7 + b"\x7f.",
    "a changed function": b"\x80\x02c_codecs\nencode\nN}U\x08__code__K\x01s\x86b.",
}
GENUINE = [
    pickle.dumps(
        {"data": np.zeros((2, 3072), dtype=np.uint8), "labels": [1, 2], "names": [b"x", ("y",)]},
        protocol=p,
    )
    for p in (2, 3, 4, 5)
]
PARTS = [
    *(
        ARRAY,
        TYPE,
        b"cnumpy.core.multiarray\n_reconstruct\n",
        b"c_codecs\nencode\n",
        b"inumpy\nndarray\n",
    ),
    *(bytes([code]) for code in b"Rb\x81\x92o(t)\x85\x86\x87012N}]aesu\x8f\x90\x91\x97\x98Q\x94.#"),
    *(
        b"h\x01",
        b"q\x01",
        b"U\x01O",
        b"U\x02u1",
        b"\x82\x01",
        b"r\xff\xff\xff\x7f",
        b"L" + b"9" * 5000 + b"L\n",
    ),
]


def read_hostile_pickles(folder, times):
    """Read pickles as files of CIFAR-10, in a process of its own; any error but a message ends it."""
    resource.setrlimit(resource.RLIMIT_AS, (2**32, 2**32))
    path = Path(folder) / "data_batch_1"
    rng = random.Random(0)
    for k in range(-len(HOSTILE), times):
        content = bytearray(rng.choice(GENUINE) if k >= 0 else [*HOSTILE.values()][k])
        for _ in range(rng.choice((1, 2, 4)) if k >= 0 else 0):
            place = rng.choice((rng.randrange(200), len(content) - 1 - rng.randrange(150)))
            kind = rng.randrange(3)
            if kind == 0:
                content[place] = rng.randrange(256)
            elif kind == 1:
                content[place:place] = rng.choice(PARTS)
            else:
                del content[place : place + rng.choice((1, 4))]
        path.write_bytes(content)
        try:
            read_batches(FILES[0], [path], "labels", 10)
        except RequestError as error:
            assert str(error).startswith(f"{path} is not a file of CIFAR-10 (")


def test_no_pickle_crashes_the_process(tmp_path):
    command = f"import test_readers; test_readers.read_hostile_pickles({str(tmp_path)!r}, 1500)"
    paths = os.pathsep.join(map(str, (Path(__file__).parents[2], Path(__file__).parent)))
    environment = {**os.environ, "PYTHONPATH": paths}
    done = subprocess.run(
        [sys.executable, "-c", command], env=environment, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, ""), (tmp_path / "data_batch_1").read_bytes()[:300]


@pytest.mark.parametrize("kind", ["O", "f4", "M8[s]", "u1,O", "U3"])
def test_arrays_of_other_types_are_refused(tmp_path, kind):
    (tmp_path / "p").write_bytes(pickle.dumps({"data": np.zeros(3, dtype=kind)}))
    with pytest.raises(pickle.UnpicklingError, match="not of bytes"):
        read_pickle(tmp_path / "p")


def test_arrays_are_plain_ones(tmp_path):
    (tmp_path / "p").write_bytes(
        pickle.dumps({"data": np.asfortranarray(np.eye(3, dtype=np.uint8)[:2])})
    )
    found = read_pickle(tmp_path / "p")["data"]
    assert type(found) is np.ndarray
    assert found.tolist() == [[1, 0, 0], [0, 1, 0]]


class Calls:
    def __init__(self, function, *arguments):
        self.reduced = function, arguments

    def __reduce__(self):
        return self.reduced


@pytest.mark.parametrize("function", [exec, eval, open, np.save, np.load, pickle.loads])
def test_a_pickle_calls_nothing(tmp_path, function):
    (tmp_path / "p").write_bytes(
        pickle.dumps({"data": Calls(function, str(tmp_path / "made"), "w")})
    )
    with pytest.raises(pickle.UnpicklingError, match="it refers to "):
        read_pickle(tmp_path / "p")
    assert not (tmp_path / "made").exists()
