"""Temporary directories, and those that a killed process leaves."""

import multiprocessing
import os
import signal

import pytest

from fedbench.core.rooms import LOCK, abandoned, room

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
