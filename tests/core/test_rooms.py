"""Temporary directories, and those that a killed process leaves."""

import multiprocessing
import os
import signal
from pathlib import Path

import pytest

from fedbench.core import writing
from fedbench.core.rooms import LOCK, abandoned, room
from fedbench.core.writing import replace_file, replaced_folder

fork = multiprocessing.get_context("fork")


def killed(work, *arguments):
    """Carry out a function in a process that kills itself at its end."""

    def to_its_end():
        work(*arguments)
        os.kill(os.getpid(), signal.SIGKILL)

    process = fork.Process(target=to_its_end)
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL


def enter(folder):
    """Take a room, write into it, and stay."""
    made = room(".x.", folder)
    (made.__enter__() / "half").write_text("half")
    globals()["kept"] = made  # until the end of the process


def names(folder):
    return sorted(p.name for p in folder.iterdir())


def removed(prefix, folder):
    return [path.name for path in abandoned(prefix, folder)]


def test_a_room_is_gone_at_the_end_of_the_block(tmp_path):
    with pytest.raises(KeyError), room(".x.", tmp_path) as made:
        assert names(made) == [LOCK]
        raise KeyError
    assert names(tmp_path) == []


def test_the_room_of_a_dead_writer_is_removed_and_that_of_a_living_one_stays(tmp_path):
    with room(".x.", tmp_path) as made:
        killed(enter, tmp_path)
        (left,) = set(names(tmp_path)) - {made.name}
        assert removed(".x.", tmp_path) == [left]
        assert names(tmp_path) == [made.name]
        assert names(made) == [LOCK]
    assert removed(".x.", tmp_path / "nowhere") == []


def test_what_is_no_room_stays(tmp_path):
    """Directories of the user's own with such a name, links, files, and rooms of another prefix."""
    killed(enter, tmp_path)
    (tmp_path / names(tmp_path)[0]).rename(tmp_path / "elsewhere")
    (tmp_path / ".x.12345678").symlink_to(tmp_path / "elsewhere")
    (tmp_path / ".x.abcdefgh").mkdir()
    (tmp_path / ".x.abcdefgh" / "own.txt").write_text("own")
    (tmp_path / ".x.file0000").write_text("own")
    (tmp_path / ".x.longer.abcdefgh").mkdir()
    (tmp_path / ".x.longer.abcdefgh" / LOCK).touch()
    before = names(tmp_path)
    assert removed(".x.", tmp_path) == []
    assert names(tmp_path) == before
    (tmp_path / ".x.empty000").mkdir()  # its writer was killed before it had the lock
    assert removed(".x.", tmp_path) == []
    assert names(tmp_path) == before


def replace_and_die(target, way):
    if way == "renames":
        writing.ctypes.CDLL = lambda _: object()
        Path.replace = lambda self, other: self.rename(other) and os.kill(os.getpid(), signal.SIGKILL)
    with replaced_folder(target) as new:
        replace_file(new / "report.md", "new") if way == "before" else (new / "report.md").unlink()
        if way == "before":
            os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("way", ["before", "renames"])
def test_a_report_that_was_killed_leaves_nothing_once_the_next_one_is_written(tmp_path, way):
    """Between two renames the old report is in the room alone: it comes back."""
    target = tmp_path / "report"
    target.mkdir()
    (target / "report.md").write_text("old")
    (target / "own.txt").write_text("own")
    killed(replace_and_die, target, way)
    assert len([n for n in names(tmp_path) if n.startswith(".report.")]) == 1
    assert target.exists() == (way == "before")
    with replaced_folder(target) as new:
        assert (new / "report.md").read_text() == "old"
        replace_file(new / "report.md", "newer")
    assert names(tmp_path) == ["report"]
    assert {p.name: p.read_text() for p in target.iterdir()} == {"own.txt": "own", "report.md": "newer"}


def test_a_report_in_the_current_directory_is_no_other(tmp_path, monkeypatch):
    """There the room is inside of the directory, and what a killed process left does not get into the report."""
    monkeypatch.chdir(tmp_path)
    killed(replace_and_die, tmp_path, "before")
    assert len(names(tmp_path)) == 1
    with replaced_folder(tmp_path) as new:
        replace_file(new / "report.md", "new")
    assert names(tmp_path) == ["report.md"]
