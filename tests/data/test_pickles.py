"""The restricted unpickler: what it reads as pickle does, and what it refuses."""

import contextlib
import io
import os
import pickle
import random
import struct
from collections import OrderedDict
from fractions import Fraction

import numpy as np
import pytest

from fedbench.data.files.pickles import arrays_only

PROTOCOLS = range(pickle.HIGHEST_PROTOCOL + 1)
ARRAYS = [
    np.arange(6, dtype=np.uint8).reshape(2, 3),
    np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    np.arange(24).reshape(2, 3, 4).transpose(1, 0, 2),
    np.array([1, 2**40], dtype=">i8"),
    np.array([0.5, np.inf], dtype=np.float16),
    np.array([1 + 2j]),
    np.array([True, False]),
    np.array(["a", "bcä"]),
    np.array([b"a", b"bc"]),
    np.zeros((0, 3)),
    np.array(7),
]


class Evil:
    """Pickled as a call."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


def global_(module, name):
    return b"c" + f"{module}\n{name}\n".encode()


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("array", ARRAYS, ids=lambda a: f"{a.dtype}{list(a.shape)}")
def test_arrays(protocol, array):
    got = arrays_only(pickle.dumps({"data": array}, protocol=protocol))["data"]
    expected = pickle.loads(pickle.dumps(array, protocol=protocol))
    assert isinstance(got, np.ndarray)
    assert type(np.asarray(got)) is np.ndarray
    assert (got.dtype, got.shape) == (expected.dtype, expected.shape)
    assert np.array_equal(got, array)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_plain_content(protocol):
    shared = [1, 2]
    content = {
        "text": "ä",
        "bytes": b"\xff\0",
        "numbers": [1, -(2**70), 0.5, True, None],
        "nested": ({"a": shared}, shared, ()),
        "sets": [{1, 2}, frozenset({3})],
        "ordered": OrderedDict([("z", 1), ("a", 2)]),
        "scalars": [np.float32(0.1), np.int64(-3), np.bool_(True), np.str_("x")],
    }
    got = arrays_only(pickle.dumps(content, protocol=protocol))
    assert got == content
    assert got["nested"][0]["a"] is got["nested"][1]
    assert [type(s) for s in got["scalars"]] == [np.float32, np.int64, np.bool_, np.str_]
    assert list(got["ordered"]) == ["z", "a"]


def python2_array():
    """A dictionary with uint8 [2, 2], as Python 2 wrote CIFAR's: text and bytes are one type, protocol 2."""

    def text(value):
        return b"U" + bytes([len(value)]) + value

    return (
        b"\x80\x02}" + text(b"data") + global_("numpy.core.multiarray", "_reconstruct") + global_("numpy", "ndarray")
        + b"K\0\x85" + text(b"b") + b"\x87R(K\x01K\x02K\x02\x86" + global_("numpy", "dtype") + text(b"u1")
        + b"K\0K\x01\x87R(K\x03" + text(b"|") + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\0tb\x89"
        + text(b"\x01\xff\0\x80") + b"tbs."
    )  # fmt: skip


def test_python_2():
    assert pickle.loads(python2_array(), encoding="latin1")["data"].tolist() == [[1, 255], [0, 128]]
    for encoding, key in (("latin1", "data"), ("bytes", b"data")):
        got = arrays_only(python2_array(), encoding)
        assert list(got) == [key]
        assert got[key].tolist() == [[1, 255], [0, 128]]


@pytest.mark.parametrize(
    ("thing", "name"),
    [
        (Evil(os.system, "true"), r"(posix|nt)\.system"),
        (Evil(eval, "1"), r"(builtins|__builtin__)\.eval"),
        (Evil(getattr, "x", "upper"), r"\.getattr"),
        (Evil(np.load, "x"), r"numpy\.load"),
        (Evil(np.fromfile, "x"), r"fromfile"),
        (Fraction(1, 2), "fractions.Fraction"),
        (np.array([1, "a"], dtype=object), "arrays of type 'O8'"),
        (np.zeros(2, dtype=[("a", "u1"), ("b", "f4")]), "arrays of type 'V5'"),
        (np.array(["2020-01-01"], dtype="M8[D]"), "arrays of type 'M8'"),
        (np.random.default_rng(0), r"it refers to numpy\."),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,  # without addresses in memory
)
@pytest.mark.parametrize("protocol", [0, 2, 4, 5])
def test_anything_else_is_refused(thing, name, protocol):
    raw = pickle.dumps(thing, protocol=protocol)
    with pytest.raises(pickle.UnpicklingError, match=name):
        arrays_only(raw)


def test_nothing_is_called_before_it_is_refused(tmp_path):
    with pytest.raises(pickle.UnpicklingError, match="system"):
        arrays_only(pickle.dumps([np.zeros(3), Evil(os.system, f"touch {tmp_path / 'done'}")]))
    assert list(tmp_path.iterdir()) == []


def array_state(code, shape, content, then=b""):
    """Protocol 2: an array of a type, filled with a shape and content; ``then`` sees the type as memo 1."""
    dtype = global_("numpy", "dtype") + pickle.dumps((code, 0, 1), protocol=0)[:-1] + b"Rp1\n"
    state = (
        b"(K\x01" + pickle.dumps(shape, protocol=0)[:-1] + b"g1\n\x89" + pickle.dumps(content, protocol=3)[2:-1] + b"t"
    )
    empty = global_("numpy.core.multiarray", "_reconstruct") + global_("numpy", "ndarray") + b"K\0\x85C\x01b\x87"
    return b"\x80\x03" + dtype + b"0" + empty + b"R" + state + b"b" + then + b"."


def test_sizes_are_compared():
    assert arrays_only(array_state("u1", (2, 2), b"abcd")).tolist() == [[97, 98], [99, 100]]
    for shape in ((2, 3), (10**9,), (-1,), (2**62, 4), (1,)):
        with pytest.raises(pickle.UnpicklingError):
            arrays_only(array_state("u1", shape, b"abcd"))


def test_a_type_cannot_grow_under_its_array():
    """A state that gives a one-byte type 1000 bytes, after the array was made: NumPy itself would believe it."""
    longer = b"g1\n" + pickle.dumps((3, "|", None, None, None, 1000, 1, 0), protocol=0)[:-1] + b"b0"
    got = arrays_only(array_state("S1", (4,), b"abcd", then=longer))
    assert got.dtype == np.dtype("S1")
    assert got.tolist() == [b"a", b"b", b"c", b"d"]


@pytest.mark.parametrize("code", ["O", "V8", "u1,O", "(2,)u1", "M8", "f99", "S-1", "", "U9999999999", "object", "i1\n"])
def test_types_that_are_not_plain(code):
    with pytest.raises(pickle.UnpicklingError):
        arrays_only(array_state(code, (4,), b"abcd"))


@pytest.mark.parametrize(
    "module, name", [("numpy", "dtype"), ("numpy._core.numeric", "_frombuffer"), ("builtins", "set")]
)
def test_a_pickle_cannot_change_the_reader(module, name):
    """Attributes that one pickle sets on what it may name do not matter to the next."""
    good = pickle.dumps([np.arange(6).reshape(2, 3)], protocol=5)
    for attribute, value in (("__setstate__", 1), ("__defaults__", ()), ("__call__", 1), ("__name__", "x")):
        state = pickle.dumps((None, {attribute: value}), protocol=0)[:-1]
        with contextlib.suppress(pickle.UnpicklingError):
            arrays_only(b"\x80\x02" + global_(module, name) + state + b"b.")
        assert arrays_only(python2_array())["data"].tolist() == [[1, 255], [0, 128]]
        assert arrays_only(good)[0].tolist() == [[0, 1, 2], [3, 4, 5]]


def test_memory_is_not_taken_for_what_is_not_there():
    huge = b"\x80\x02]r" + struct.pack("<I", 2**31) + b"."
    assert arrays_only(huge) == []  # the memory of 2^31 objects that it declares is a dictionary of one
    for code in (b"\x8e", b"\x96", b"\x8d"):  # bytes, a bytearray and text of 2^60
        with pytest.raises(pickle.UnpicklingError, match="corrupt"):
            arrays_only(b"\x80\x05" + code + struct.pack("<Q", 2**60) + b"abc.")


@pytest.mark.parametrize("raw", [b"", b"no pickle", b"\x80\x04", b"\x80\xff.", pickle.dumps([1])[:-1], b"<html>"])
def test_damage(raw):
    with pytest.raises(pickle.UnpicklingError):
        arrays_only(raw)


def test_persistent_names_are_refused():
    stream = io.BytesIO()
    pickler = pickle.Pickler(stream)
    pickler.persistent_id = lambda value: "x" if value == "secret" else None
    pickler.dump(["secret"])
    with pytest.raises(pickle.UnpicklingError):
        arrays_only(stream.getvalue())


def test_any_damage_is_one_kind_of_error():
    """Bytes overwritten anywhere: something plain, or UnpicklingError."""
    content = {"data": ARRAYS[0], "labels": [1, 2, 3], "names": ["a.png"], "set": {1}}
    raws = [pickle.dumps(content, protocol=p) for p in PROTOCOLS]
    refused = 0
    for seed in range(500):
        rng = random.Random(seed)
        raw = bytearray(rng.choice(raws))
        for _ in range(rng.randint(1, 4)):
            raw[rng.randrange(len(raw))] = rng.randrange(256)
        try:
            arrays_only(bytes(raw))
        except pickle.UnpicklingError:
            refused += 1
    assert refused > 250
