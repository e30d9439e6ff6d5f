"""Archives and pickles from elsewhere: nothing is written outside, nothing is called."""

import os
import pickle
import random
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from data_files import mutated, pack, write
from tools import rejected

from fedbench.core.errors import RequestError
from fedbench.data.files.fetch import unpack
from fedbench.data.files.readers import read_pickle
from fedbench.data.sources.cifar10 import FILES, read_batches


@pytest.mark.parametrize(
    "name",
    ["a.tar.gz", "a.tar.bz2", "a.tar.xz", "a.tar", "a.zip"],
)
def test_files_join_those_that_are_there(tmp_path, name):
    target = tmp_path / "target"
    write(target / "d/old", "old")
    write(target / "d/both", "old")
    pack(tmp_path / name, {"d/both": b"new", "e/new": b"new"})
    unpack(tmp_path / name, target)
    files = [path for path in target.rglob("*") if path.is_file()]
    texts = {path.relative_to(target).as_posix(): path.read_text() for path in files}
    assert texts == {"d/old": "old", "d/both": "new", "e/new": "new"}


@pytest.mark.parametrize(
    ("archive", "member", "content"),
    [
        ("a.tar.gz", "../out", b"x"),
        ("a.tar.gz", "/tmp/../../out", b"x"),
        ("a.tar.gz", "link", Path("../../out")),
        ("a.zip", "../../out", b"x"),
        ("a.zip", "/out", b"x"),
        ("a.zip", "in/../../out", b"x"),
        ("a.zip", "in/..", b"x"),
    ],
)
def test_members_that_lead_out_are_refused_and_nothing_is_unpacked(
    tmp_path, archive, member, content
):
    pack(tmp_path / archive, {"in": b"x", member: content})
    with rejected(f"{archive} cannot be unpacked into .*outside"):
        unpack(tmp_path / archive, tmp_path / "deep/target")
    assert sorted(path.name for path in tmp_path.rglob("*")) == [archive, "deep", "target"]


def test_names_with_two_dots_in_a_zip_are_files(tmp_path):
    pack(tmp_path / "a.zip", {"a..b/c..txt": b"x"})
    unpack(tmp_path / "a.zip", tmp_path / "target")
    assert (tmp_path / "target/a..b/c..txt").read_text() == "x"


@pytest.mark.parametrize("cut", [0, 40, 1500])
@pytest.mark.parametrize("name", ["a.tar.gz", "a.zip"])
def test_corrupt_archives_leave_nothing(tmp_path, name, cut):
    packed = tmp_path / name
    pack(
        packed,
        {"x": np.random.default_rng(0).bytes(3000)},
    )
    packed.write_bytes(packed.read_bytes()[:cut])
    with rejected("cannot be unpacked into .*if it is corrupt, remove it"):
        unpack(packed, tmp_path / "target")
    assert not list((tmp_path / "target").iterdir())


def read_dumped(folder, content, protocol=4):
    """Pickle a value and read the file."""
    write(folder / "p", pickle.dumps(content, protocol=protocol))
    return read_pickle(folder / "p")


@pytest.mark.parametrize("protocol", [2, 4])
def test_pickles_of_arrays_are_read(tmp_path, protocol):
    content = {
        "data": np.arange(6, dtype=np.uint8).reshape(2, 3),
        "labels": [1, 2],
        b"names": [b"x", None, (1.5,)],
    }
    read = read_dumped(tmp_path, content, protocol)
    assert np.array_equal(read.pop("data"), content.pop("data"))
    assert read == content


HOSTILE = [
    # an array of objects
    b"\x80\x02cnumpy\nndarray\n(K\x01\x85cnumpy\ndtype\nX\x01\0\0\0O\x85RC\x08AAAAAAAAtR.",
    # the same, made
    b"\x80\x02cnumpy\nndarray\nK\x01\x85cnumpy\ndtype\nX\x01\0\0\0O\x85R\x86\x81.",
    # a type with a state
    b"\x80\x02cnumpy\ndtype\nU\x02u1\x85R(K\x03U\x01|N]}J\xff\xff\xff\x7fK\x01Ktb.",
    # a number of a value
    b"\x80\x02]r\xff\xff\xff\x3f.",
    # nested tuples, hashed
    b"\x80\x02})" + b"\x85" * 1_000_000 + b"K\x01s.",
    # lists that hold themselves
    b"\x80\x02}U\x04data]q\x01(h\x01h\x01esU\x06labelsh\x01s.",
    # a long frame, a long text
    b"\x80\x04\x95" + b"\xff" * 7 + b"\x7f}.",
    b"\x80\x04\x8e" + b"\xff" * 7 + b"\x7f.",
    # a changed function
    b"\x80\x02c_codecs\nencode\nN}U\x08__code__K\x01s\x86b.",
]
BATCH = {
    "data": np.zeros((2, 3072), dtype=np.uint8),
    "labels": [1, 2],
    "names": [b"x", ("y",)],
}
GENUINE = [pickle.dumps(BATCH, protocol=protocol) for protocol in (2, 3, 4, 5)]
CODES = b"Rb\x81\x92o(t)\x85\x86\x87012N}]aesu\x8f\x90\x91\x97\x98Q\x94.#"
PARTS = [
    b"cnumpy\nndarray\n",
    b"cnumpy\ndtype\n",
    b"cnumpy.core.multiarray\n_reconstruct\n",
    b"c_codecs\nencode\n",
    b"inumpy\nndarray\n",
    b"h\x01",
    b"q\x01",
    b"U\x01O",
    b"U\x02u1",
    b"\x82\x01",
    b"r\xff\xff\xff\x7f",
    b"L" + b"9" * 5000 + b"L\n",
    *(bytes([code]) for code in CODES),
]


def read_hostile_pickles(folder, times):
    """Read pickles as files of CIFAR-10, in a process of its own; any error but a message ends
    it."""
    resource.setrlimit(resource.RLIMIT_AS, (2**32, 2**32))
    path = Path(folder) / "data_batch_1"
    rng = random.Random(0)
    for content in HOSTILE + [mutated(rng.choice(GENUINE), rng, PARTS) for _ in range(times)]:
        write(path, content)
        try:
            read_batches(FILES[0], [path], "labels", 10)
        except RequestError as error:
            assert str(error).startswith(f"{path} is not a file of CIFAR-10 (")


@pytest.mark.processes
def test_no_pickle_crashes_the_process(tmp_path):
    command = f"import test_readers; test_readers.read_hostile_pickles({str(tmp_path)!r}, 1500)"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", command], env=environment, capture_output=True, text=True
    )
    last = (tmp_path / "data_batch_1").read_bytes()[:300]
    assert (done.returncode, done.stderr) == (0, ""), last


@pytest.mark.parametrize(
    "kind",
    ["O", "f4", "M8[s]", "u1,O", "U3"],
)
def test_arrays_of_other_types_are_refused(tmp_path, kind):
    with pytest.raises(pickle.UnpicklingError, match="not of bytes"):
        read_dumped(
            tmp_path,
            {"data": np.zeros(3, dtype=kind)},
        )


def test_arrays_are_plain_ones(tmp_path):
    stored = np.asfortranarray(np.eye(3, dtype=np.uint8)[:2])
    data = read_dumped(tmp_path, {"data": stored})["data"]
    assert type(data) is np.ndarray
    assert data.tolist() == [[1, 0, 0], [0, 1, 0]]


class Calls:
    def __init__(self, function, *arguments):
        self.reduced = function, arguments

    def __reduce__(self):
        return self.reduced


@pytest.mark.parametrize(
    "function",
    [exec, open, np.load, pickle.loads],
)
def test_a_pickle_calls_nothing(tmp_path, function):
    with pytest.raises(pickle.UnpicklingError, match="it refers to "):
        read_dumped(
            tmp_path,
            {"data": Calls(function, str(tmp_path / "made"), "w")},
        )
    assert not (tmp_path / "made").exists()
