"""Prepared data: read once, mapped afterwards, equal to what was read."""

import dataclasses
import os

import numpy as np
import pytest

from fedbench.data.examples import Examples
from fedbench.data.files import cache
from fedbench.data.files.cache import prepared

EXAMPLES = Examples(
    x=np.arange(24, dtype=np.uint8).reshape(6, 1, 2, 2),
    y=np.array([0, 1, 2, 0, 1, 2]),
    classes=3,
    owner=np.array([0, 0, 1, 1, 1, 0]),
    names=("a", "bé"),
    held_out=np.array([True, False] * 3),
    mean=(0.5,),
    std=(0.25,),
    sources=("a set: not the official files", "a note"),
    unofficial=("a set: not the official files",),
)


class Maker:
    def __init__(self, examples=EXAMPLES):
        self.calls = 0
        self.examples = examples

    def __call__(self):
        self.calls += 1
        return self.examples


def same(a, b):
    for field in dataclasses.fields(Examples):
        x, y = getattr(a, field.name), getattr(b, field.name)
        if isinstance(y, np.ndarray):
            assert x.dtype == y.dtype
            assert np.array_equal(x, y)
        else:
            assert x == y


def read(folder, make, paths=(), **options):
    return prepared(folder, "set", paths, options, make)


def folders(tmp_path):
    return [p for p in (tmp_path / "prepared").iterdir() if p.is_dir()]


def test_what_comes_back_is_what_was_read(tmp_path):
    make = Maker()
    for _ in range(3):
        same(read(tmp_path, make, a="1"), EXAMPLES)
    assert make.calls == 1
    few = Maker(Examples(x=np.ones((2, 3)), y=np.array([0, 1]), classes=2))
    same(
        prepared(tmp_path, "few", [], {}, few),
        few.examples,
    )


@pytest.mark.parametrize("name", ["facts.json", "x.npy", "owner.npy"])
@pytest.mark.parametrize("harm", ["cut", "gone", "empty"])
def test_corrupt_data_are_rebuilt(tmp_path, capsys, name, harm):
    make = Maker()
    read(tmp_path, make)
    file = folders(tmp_path)[0] / name
    if harm == "gone":
        file.unlink()
    else:
        file.write_bytes(file.read_bytes()[:-2] if harm == "cut" else b"")
    for _ in range(2):
        same(read(tmp_path, make), EXAMPLES)
    assert make.calls == 2
    times = 0 if (name, harm) == ("facts.json", "gone") else 1
    assert capsys.readouterr().err.count("is corrupt; rebuilding it") == times


@pytest.mark.parametrize(
    "name",
    ["facts.json", "x.npy", "y.npy", "owner.npy", "held_out.npy"],
)
def test_a_flipped_bit_is_noticed(tmp_path, capsys, name):
    make = Maker()
    read(tmp_path, make)
    file = folders(tmp_path)[0] / name
    content = bytearray(file.read_bytes())
    content[-8] ^= 1
    file.write_bytes(content)
    same(read(tmp_path, make), EXAMPLES)
    assert make.calls == 2
    assert f"{name} has changed since it was written" in capsys.readouterr().err


def rewrite(file, content):
    """Change a file and give it the size and the modification time that it had."""
    before = file.stat()
    # the clock of a file system ticks every few milliseconds
    while file.stat().st_ctime_ns == before.st_ctime_ns:
        file.write_text(content)
        os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (file.stat().st_size, file.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)


@pytest.mark.parametrize("given", ["folder/class/image", "folder"])
def test_a_source_that_changes_within_its_size_and_time_is_read_again(tmp_path, given):
    make = Maker()
    file = tmp_path / "folder/class/image"
    file.parent.mkdir(parents=True)
    file.write_text("a")
    for calls, content in enumerate("bc", 2):
        read(tmp_path, make, [tmp_path / given])
        rewrite(file, content)
        for _ in range(2):
            read(tmp_path, make, [tmp_path / given])
        assert make.calls == calls


def test_a_full_disk_loses_nothing(tmp_path, monkeypatch, capsys):
    def full(*_):
        raise OSError("no space left")

    monkeypatch.setattr(np, "save", full)
    same(read(tmp_path, Maker()), EXAMPLES)
    assert "cannot be written: no space left" in capsys.readouterr().err
    assert not folders(tmp_path)


def test_other_inputs_and_another_version_are_other_data(tmp_path, monkeypatch):
    make = Maker()
    file = tmp_path / "f"
    inputs = [("a", "", "1"), ("ab", "", "1"), ("ab", "x", "1"), ("ab", "y", "1"), ("ab", "", "2")]
    for calls, (text, option, version) in enumerate(inputs, 1):
        file.write_text(text)
        monkeypatch.setattr(cache, "__version__", version)
        for _ in range(2):
            read(tmp_path, make, [file], option=option)
        assert make.calls == calls


def test_arrays_are_mapped_and_the_file_cannot_be_changed(tmp_path):
    first = read(tmp_path, Maker())
    assert isinstance(first.x, np.memmap)
    first.x[:] = 0
    same(read(tmp_path, Maker()), EXAMPLES)


def test_a_failure_leaves_nothing_behind(tmp_path):
    def broken():
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        read(tmp_path, broken)
    assert not folders(tmp_path)
    same(read(tmp_path, Maker()), EXAMPLES)


def test_a_directory_that_cannot_be_written(tmp_path, capsys):
    (tmp_path / "prepared").write_text("in the way")
    same(read(tmp_path, Maker()), EXAMPLES)
    assert "prepared data are not cached" in capsys.readouterr().err
