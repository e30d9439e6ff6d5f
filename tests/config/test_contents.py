"""Digests of user files: by content and relative names, whatever else is known of the files."""

import os
from hashlib import sha256
from pathlib import Path

import pytest

from fedbench.config.identity import content_digest
from fedbench.core.errors import RequestError


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_a_file_has_the_sha256_of_its_content(tmp_path):
    file = write(tmp_path / "a.csv", "one")
    assert content_digest(file) == sha256(b"one").hexdigest()


@pytest.mark.parametrize("change", ["size", "time", "inode"])
def test_a_changed_file_is_read_again(tmp_path, change):
    file = write(tmp_path / "a.csv", "one")
    before = content_digest(file)
    time = file.stat().st_mtime_ns
    if change == "inode":  # moved into place, with the size and the time of the other one
        write(tmp_path / "b.csv", "two").replace(file)
    else:
        file.write_text("three" if change == "size" else "two")
    later = time + (change == "time")
    os.utime(file, ns=(later, later))
    assert content_digest(file) != before


def test_a_directory_goes_by_relative_names_and_contents(tmp_path):
    for root in ("here", "there"):
        write(tmp_path / root / "b/x.txt", "x")
        write(tmp_path / root / "a.txt", "a")
    digest = content_digest(tmp_path / "here")
    lines = f"a.txt:{sha256(b'a').hexdigest()}\nb/x.txt:{sha256(b'x').hexdigest()}\n"
    assert digest == sha256(lines.encode()).hexdigest()
    assert content_digest(tmp_path / "there") == digest
    (tmp_path / "there/a.txt").rename(tmp_path / "there/c.txt")
    assert content_digest(tmp_path / "there") != digest


def test_links_to_directories_are_followed_and_end(tmp_path):
    write(tmp_path / "data/a.txt", "a")
    before = content_digest(tmp_path / "data")
    (tmp_path / "data/around").symlink_to(tmp_path / "data")
    assert content_digest(tmp_path / "data") == before
    write(tmp_path / "other/b.txt", "b")
    (tmp_path / "data/link").symlink_to(tmp_path / "other")
    assert content_digest(tmp_path / "data") != before


def test_a_path_that_cannot_be_read_is_named(tmp_path, monkeypatch):
    file = write(tmp_path / "a.csv", "one")

    def refused(self, *args, **kwargs):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refused)
    with pytest.raises(RequestError, match=r"a\.csv cannot be read"):
        content_digest(file)
