"""What cannot be written is one line with path, need and free space, and leaves everything as it was."""

import errno
import os
import re
from pathlib import Path

import pytest

from fedbench.core import writing
from fedbench.core.writing import NotWritten, replace_file, replaced_folder, replacing, reserve

FULL = OSError(errno.ENOSPC, "No space left on device")


def tree(folder):
    return {p.relative_to(folder).as_posix(): p.read_text() for p in folder.rglob("*") if p.is_file()}


@pytest.fixture
def free(monkeypatch):
    """A disk with 1,500 free bytes."""
    monkeypatch.setattr(writing.shutil, "disk_usage", lambda path: type("", (), {"free": 1500}))


@pytest.mark.parametrize(
    ("error", "need", "words"),
    [
        (FULL, 2_500_000, "No space left on device, 2.5 MB needed, 1.5 kB free; free some space and run the same"),
        (FULL, None, "No space left on device, 1.5 kB free; free some space"),
        (OSError(errno.EDQUOT, "Disk quota exceeded"), 12, "Disk quota exceeded, 12 bytes needed, 1.5 kB free"),
        (OSError(errno.EROFS, "Read-only file system"), 12, "Read-only file system; make its directory writable"),
        (OSError(errno.ENOENT, "No such file or directory"), 12, "its directory was removed meanwhile"),
    ],
)
def test_the_message_has_path_need_and_free_space(tmp_path, free, error, need, words):
    text = str(NotWritten(tmp_path / "not" / "there", error, need))
    assert text.startswith(f"{tmp_path}/not/there cannot be written: ")
    assert words in text
    assert "\n" not in text


def test_a_file_that_cannot_be_replaced_is_as_it_was(tmp_path, monkeypatch, free):
    path = tmp_path / "meta.json"
    replace_file(path, "old", lasting=True)

    def half(self, content):
        with self.open("wb") as file:
            file.write(content[:1])
        raise FULL

    monkeypatch.setattr(Path, "write_bytes", half)
    with pytest.raises(NotWritten, match="meta.json cannot be written: .*3 bytes needed"):
        replace_file(path, "new")
    assert tree(tmp_path) == {"meta.json": "old"}


def test_other_errors_pass(tmp_path):
    with pytest.raises(KeyError), replacing(tmp_path / "a") as part:
        part.touch()
        raise KeyError
    assert tree(tmp_path) == {}


def test_space_is_taken_before_it_is_written(tmp_path):
    with (tmp_path / "a").open("wb") as file:
        reserve(file, 100_000)
        assert os.fstat(file.fileno()).st_size == 100_000
        assert os.fstat(file.fileno()).st_blocks * 512 >= 100_000
        reserve(file, 0)


@pytest.mark.parametrize("way", ["exchange", "renames", "in place"])
def test_a_directory_is_replaced_as_a_whole(tmp_path, monkeypatch, way):
    target = tmp_path / "report"
    (target / "tables").mkdir(parents=True)
    (target / "tables" / "old.md").write_text("old")
    (target / "own.txt").write_text("own")
    before = tree(target)
    if way == "renames":
        monkeypatch.setattr(writing.ctypes, "CDLL", lambda _: object())
    if way == "in place":
        monkeypatch.chdir(target)

    def change(new):
        assert tree(new) == before
        (new / "tables" / "old.md").unlink()
        (new / "figures").mkdir()
        replace_file(new / "figures" / "new.svg", "new")
        assert tree(target).items() >= before.items()  # until the end

    with pytest.raises(KeyError), replaced_folder(target) as new:
        change(new)
        raise KeyError
    assert tree(tmp_path / "report") == before
    with replaced_folder(target) as new:
        change(new)
    assert tree(target) == {"figures/new.svg": "new", "own.txt": "own"}
    assert [p.name for p in tmp_path.iterdir()] == ["report"]


def test_the_old_directory_comes_back_if_the_new_one_cannot_take_its_place(tmp_path, monkeypatch):
    target, real = tmp_path / "report", Path.replace
    target.mkdir()
    (target / "a").write_text("old")

    def replace(self, other):
        if self.name == "new":
            raise OSError(errno.EIO, "Input/output error")
        return real(self, other)

    monkeypatch.setattr(writing.ctypes, "CDLL", lambda _: object())
    monkeypatch.setattr(Path, "replace", replace)
    with pytest.raises(NotWritten, match="report cannot be written: Input/output error"), replaced_folder(target):
        pass
    assert tree(tmp_path) == {"report/a": "old"}


def test_a_disk_that_is_full_while_a_directory_is_copied_is_said(tmp_path, monkeypatch, free):
    """And the directory is as it was: every link takes an entry, and below, a directory takes a block."""
    (tmp_path / "report" / "tables").mkdir(parents=True)
    (tmp_path / "report" / "tables" / "a").write_text("old")

    def full(*_, **__):
        raise FULL

    monkeypatch.setattr(os, "link", full)
    target = tmp_path / "report"
    with pytest.raises(NotWritten, match="report cannot be written: No space left on device, .* free; free some"):
        replaced_folder(target).__enter__()
    assert tree(tmp_path) == {"report/tables/a": "old"}


def test_a_file_in_a_new_directory_is_named_by_its_place(tmp_path, free):
    words = f"^{re.escape(str(tmp_path))}/report/a/b cannot be written"
    with (
        pytest.raises(NotWritten, match=words),
        replaced_folder(tmp_path / "report") as new,
        writing.writing(new / "a" / "b", 7),
    ):
        raise FULL
    assert tree(tmp_path) == {}
