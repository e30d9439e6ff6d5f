"""Digests of user files: by content, and cached only where that is safe."""

import hashlib
import json
import os
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from fedbench.config import contents
from fedbench.config.contents import cache_file, content_digest, last_change
from fedbench.core.errors import RequestError

LONG_AGO = 1_700_000_000


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setattr(contents, "cache_file", cache_file)  # the real one
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache/fedbench/digests.json"


@pytest.fixture
def reads(monkeypatch):
    """The files that were read."""
    real, seen = contents.file_digest, []

    def counted(file):
        seen.append(file.name)
        return real(file)

    monkeypatch.setattr(contents, "file_digest", counted)
    return seen


def write(path, text, seconds=LONG_AGO):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    os.utime(path, (seconds, seconds))
    return path


def test_a_file_has_the_sha256_of_its_content_and_is_read_once(tmp_path, cache, reads):
    path = write(tmp_path / "a.bin", "one")
    assert [content_digest(path) for _ in range(3)] == [hashlib.sha256(b"one").hexdigest()] * 3
    assert reads == ["a.bin"]
    assert cache_file() == cache
    assert list(json.loads(cache.read_text())) == [str(path)]


@pytest.mark.parametrize("change", ["size", "time", "inode"])
def test_a_changed_file_is_read_again(tmp_path, reads, change):
    path = write(tmp_path / "a.bin", "one")
    content_digest(path)
    if change == "size":
        write(path, "other")
    elif change == "time":
        write(path, "two", LONG_AGO + 1)
    else:
        write(tmp_path / "b.bin", "two").replace(path)
    assert content_digest(path) == hashlib.sha256(path.read_bytes()).hexdigest()
    assert reads == ["a.bin", "a.bin"]


def test_a_file_that_changed_just_now_is_not_cached(tmp_path, cache, reads):
    """Within the resolution of the clock it could change again and look the same."""
    path = write(tmp_path / "a.bin", "one", time.time())
    stamp = path.stat()
    content_digest(path)
    path.write_text("two")
    os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    assert content_digest(path) == hashlib.sha256(b"two").hexdigest()
    assert not cache.exists()


def test_a_directory_goes_by_relative_names_and_contents(tmp_path, reads):
    a, b = tmp_path / "a", tmp_path / "b"
    for root in (a, b):
        write(root / "train/x.png", "1")
        write(root / "test/y.png", "2")
    digest = content_digest(a)
    assert content_digest(b) == digest
    reads.clear()
    assert content_digest(a) == digest
    assert not reads
    changes = [
        lambda: write(a / "train/x.png", "3", LONG_AGO + 1),
        lambda: (a / "train/x.png").replace(a / "train/z.png"),
        lambda: write(a / "more.txt", ""),
        lambda: (a / "test/y.png").unlink(),
    ]
    seen = {digest}
    for n, change in enumerate(changes, 2):
        change()
        seen.add(content_digest(a))
        assert len(seen) == n


def test_links_to_directories_are_followed_and_end(tmp_path):
    write(tmp_path / "images/0.png", "1")
    folder = tmp_path / "a"
    folder.mkdir()
    (folder / "train").symlink_to(tmp_path / "images")
    (folder / "images").symlink_to(tmp_path)  # contains this very directory
    before = content_digest(folder / "train")
    whole = content_digest(folder)
    write(tmp_path / "images/0.png", "2", LONG_AGO + 1)
    assert content_digest(folder / "train") != before
    assert content_digest(folder) != whole


def test_a_directory_apart_does_not_count(tmp_path):
    write(tmp_path / "d/x", "1")
    before = content_digest(tmp_path / "d")
    write(tmp_path / "d/results/y", "1")
    assert content_digest(tmp_path / "d", tmp_path / "d/results") == before
    assert content_digest(tmp_path / "d") != before


@pytest.mark.parametrize("damage", ["", "{", "[1]", '{"%s": 5}', '{"%s": ["x", 1]}', "\xff"])
def test_a_corrupt_cache_is_rebuilt(tmp_path, cache, reads, damage):
    path = write(tmp_path / "a.bin", "one")
    write(cache, damage.replace("%s", str(path)))
    assert content_digest(path) == content_digest(path) == hashlib.sha256(b"one").hexdigest()
    assert reads == ["a.bin"]


def test_without_a_place_for_the_cache_digests_are_right(tmp_path, monkeypatch, reads):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    path = write(tmp_path / "a.bin", "one")
    assert content_digest(path) == content_digest(path) == hashlib.sha256(b"one").hexdigest()
    assert reads == ["a.bin", "a.bin"]


def test_the_cache_is_bounded_and_whole_when_several_write(tmp_path, cache, monkeypatch):
    monkeypatch.setattr(contents, "_KEPT", 5)
    paths = [write(tmp_path / f"{n}.bin", str(n)) for n in range(20)]
    with ThreadPoolExecutor(4) as pool:
        digests = list(pool.map(content_digest, paths))
    assert digests == [hashlib.sha256(str(n).encode()).hexdigest() for n in range(20)]
    assert 1 <= len(json.loads(cache.read_text())) <= 5


def test_the_last_change_is_that_of_the_newest_file(tmp_path):
    write(tmp_path / "d/x", "1")
    write(tmp_path / "d/y/z", "1", LONG_AGO + 5)
    assert last_change(tmp_path / "d") == LONG_AGO + 5
    assert last_change(tmp_path / "d/x") == LONG_AGO


def test_a_path_that_cannot_be_read_is_named(tmp_path, monkeypatch):
    path = write(tmp_path / "a.bin", "one")
    monkeypatch.setattr(contents, "file_digest", lambda file: (_ for _ in ()).throw(PermissionError("not yours")))
    with pytest.raises(RequestError, match="a.bin cannot be read: not yours"):
        content_digest(path)
