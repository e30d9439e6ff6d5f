"""Prepared data: read once, mapped afterwards, equal to what was read."""

import dataclasses
import hashlib
import json
import multiprocessing
import os
import shutil
import signal

import numpy as np
import pytest

from fedbench.core.rooms import room
from fedbench.data.examples import Examples
from fedbench.data.files import cache
from fedbench.data.files.cache import ChangedFiles, digest_of, prepared, read_again

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
        self.calls, self.examples = 0, examples

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


def test_what_comes_back_is_what_was_read(tmp_path):
    make = Maker()
    for _ in range(3):
        same(prepared(tmp_path, "set", [], {"a": "1"}, make), EXAMPLES)
    assert make.calls == 1
    few = Maker(Examples(x=np.ones((2, 3)), y=np.array([0, 1]), classes=2))
    same(prepared(tmp_path, "few", [], {}, few), few.examples)


@pytest.mark.parametrize("name", ["manifest.json", "x.npy", "owner.npy"])
@pytest.mark.parametrize("harm", ["cut", "gone", "empty", "a bit"])
def test_what_is_damaged_is_made_anew(tmp_path, capsys, name, harm):
    make = Maker()
    prepared(tmp_path, "set", [], {}, make)
    (folder,) = (p for p in (tmp_path / "prepared").iterdir() if p.is_dir())
    file = folder / name
    content = file.read_bytes()
    if harm == "gone":
        file.unlink()
    else:
        file.write_bytes(
            {"cut": content[:-1], "empty": b"", "a bit": content[:-2] + bytes([content[-2] ^ 4, content[-1]])}[harm]
        )
    for _ in range(2):
        same(prepared(tmp_path, "set", [], {}, make), EXAMPLES)
    assert make.calls == 2
    assert capsys.readouterr().err.count("is corrupt; rebuilding it") == ((name, harm) != ("manifest.json", "gone"))


def test_a_full_disk_loses_nothing(tmp_path, monkeypatch, capsys):
    def full(*_):
        raise OSError("no space left")

    monkeypatch.setattr(np, "save", full)
    same(prepared(tmp_path, "set", [], {}, Maker()), EXAMPLES)
    assert "not cached: no space left" in capsys.readouterr().err
    assert not [p for p in (tmp_path / "prepared").iterdir() if p.is_dir()]


def test_another_version_prepares_its_own(tmp_path, monkeypatch):
    make = Maker()
    for version in ("1", "2", "2"):
        monkeypatch.setattr(cache, "__version__", version)
        prepared(tmp_path, "set", [], {}, make)
    assert make.calls == 2


def test_other_inputs_are_other_data(tmp_path):
    make = Maker()
    for inputs in ({"a": "1"}, {"a": "2"}, {"a": "1", "b": "1"}):
        prepared(tmp_path, "set", [], inputs, make)
    assert make.calls == 3


def test_arrays_are_mapped_and_the_file_cannot_be_changed(tmp_path):
    first = prepared(tmp_path, "set", [], {}, Maker())
    assert isinstance(first.x, np.memmap)
    first.x[:] = 0
    same(prepared(tmp_path, "set", [], {}, Maker()), EXAMPLES)


def test_reading_again_on_request(tmp_path):
    make = Maker()
    prepared(tmp_path, "set", [], {}, make)
    with read_again():
        prepared(tmp_path, "set", [], {}, make)
    prepared(tmp_path, "set", [], {}, make)
    assert make.calls == 2


def test_a_failure_leaves_nothing_behind(tmp_path):
    def broken():
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        prepared(tmp_path, "set", [], {}, broken)
    assert not [p for p in (tmp_path / "prepared").iterdir() if p.suffix != ".lock"]
    same(prepared(tmp_path, "set", [], {}, Maker()), EXAMPLES)


def test_a_directory_that_cannot_be_written(tmp_path, capsys):
    (tmp_path / "prepared").write_text("in the way")
    make = Maker()
    same(prepared(tmp_path, "set", [], {}, make), EXAMPLES)
    assert "prepared data are not cached" in capsys.readouterr().err


def test_a_changed_file_is_read_again(tmp_path):
    make, file = Maker(), tmp_path / "f"
    for text, calls in (("a", 1), ("a", 1), ("ab", 2)):
        if not file.exists() or file.read_text() != text:
            file.write_text(text)
        prepared(tmp_path, "set", [file], {}, make)
        assert make.calls == calls


def test_a_picture_replaced_in_place_is_noticed_when_reading_again(tmp_path, capsys):
    folder = tmp_path / "images"
    (folder / "cat").mkdir(parents=True)
    (folder / "cat" / "1.png").write_bytes(b"one")
    prepared(tmp_path, "set", [folder], {}, Maker())
    (kept,) = (p for p in (tmp_path / "prepared").iterdir() if p.is_dir())
    sums = json.loads((kept / "manifest.json").read_text())["checksums"]
    content = hashlib.sha256(b"cat/1.png\x003\x00one").hexdigest()
    assert sums == {str(folder): f"sha256 {content} of names and contents"}
    with read_again():
        prepared(tmp_path, "set", [folder], {}, Maker())
    assert capsys.readouterr().err == ""
    (folder / "cat" / "1.png").write_bytes(b"two")
    for _ in range(2):  # it is not forgotten
        with read_again(), pytest.raises(ChangedFiles, match=f"changed since .*: {folder}; .* remove {kept}"):
            prepared(tmp_path, "set", [folder], {}, Maker())
    shutil.rmtree(kept)
    prepared(tmp_path, "set", [folder], {}, Maker())
    assert json.loads((kept / "manifest.json").read_text())["checksums"] == {str(folder): digest_of(folder)}


def test_what_a_killed_preparation_left_is_removed_by_the_next_one(tmp_path, capsys):
    """Whatever it was of; one that is at work stays."""

    def die():
        os.kill(os.getpid(), signal.SIGKILL)

    def work(name):
        cache.file_checksum = lambda _: die()
        prepared(tmp_path, name, [], {}, Maker())

    for name in ("set", "other"):
        process = multiprocessing.get_context("fork").Process(target=work, args=(name,))
        process.start()
        process.join()
        assert process.exitcode == -signal.SIGKILL
    folder = tmp_path / "prepared"
    left = [p for p in folder.iterdir() if p.name.startswith(".part.")]
    assert len(left) >= 1
    with room(".part.", folder) as living:
        same(prepared(tmp_path, "set", [], {}, Maker()), EXAMPLES)
        assert [p for p in folder.iterdir() if p.name.startswith(".part.")] == [living]
    assert "is left by a process that was killed; removing it" in capsys.readouterr().err
