"""Downloads from a server on loopback, and what is found, missing or wrong on disk."""

import hashlib
import importlib
import threading
from contextlib import suppress
from pkgutil import iter_modules

import pytest
from data_files import error_while_waiting, pack, write
from filelock import FileLock
from loopback import serving
from tools import rejected

from fedbench.data import sources
from fedbench.data.files import fetch
from fedbench.data.files.fetch import Files, MissingFiles, Remote, mirrors, verify

CONTENT = b"the published file\n" * 9000
HASH = f"sha256:{hashlib.sha256(CONTENT).hexdigest()}"
MODULES = {
    m.name: importlib.import_module(f"{sources.__name__}.{m.name}")
    for m in iter_modules(sources.__path__)
}
PUBLISHED = {name: files for name, m in MODULES.items() if (files := getattr(m, "FILES", ()))}


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "*")
    monkeypatch.delenv("FEDBENCH_OFFLINE")
    monkeypatch.delenv("FEDBENCH_MIRRORS", raising=False)
    with serving() as running:
        yield running


def remote(server, *paths, hash=HASH):
    return Remote("set/file.bin", tuple(f"{server.root}/{path}" for path in paths), hash)


def ensure(remotes, folder, *, download):
    return Files("A set", [[r.path for r in remotes]], remotes).find(
        folder,
        download=download,
    )


def put(folder, *names):
    for name in names:
        write(folder / name, "")


def download(server, folder, *paths):
    return ensure(
        [remote(server, *paths)],
        folder,
        download=True,
    )


def failure(server, folder, *paths):
    """The message of a download that fails."""
    with pytest.raises(MissingFiles) as error:
        download(server, folder, *paths)
    return str(error.value)


# ---- downloads


def test_a_missing_file_is_downloaded_once(server, tmp_path):
    server.files["a"] = CONTENT
    for _ in range(2):
        assert download(server, tmp_path, "a") == [tmp_path / "set/file.bin"]
    assert (tmp_path / "set/file.bin").read_bytes() == CONTENT
    assert server.asked == ["a"]
    assert [path.name for path in (tmp_path / "set").iterdir()] == ["file.bin"]


def test_files_of_a_set_are_downloaded_one_by_one(server, tmp_path):
    server.files |= {"x": b"1", "y": b"2"}
    remotes = [Remote(name, (f"{server.root}/{name}",), None) for name in "xy"]
    files = Files("A set", [["x", "y"]], remotes)
    paths = files.find(tmp_path, download=True)
    assert [path.read_bytes() for path in paths] == [b"1", b"2"]
    assert server.asked == ["x", "y"]


def test_addresses_are_tried_in_order_and_wrong_bytes_are_no_file(server, tmp_path, capsys):
    server.files |= {"down": 503, "other": b"<html>", "good": CONTENT}
    (path,) = download(
        server,
        tmp_path,
        "gone",
        "down",
        "other",
        "good",
    )
    assert path.read_bytes() == CONTENT
    assert server.asked == ["gone", "down", "other", "good"]
    shown = capsys.readouterr().err
    for text in ("gone: 404", "down: 503", "other: SHA256 hash of downloaded file"):
        assert text in shown


def test_a_failure_names_the_place_the_addresses_and_the_checksum(server, tmp_path):
    server.files["other"] = CONTENT[:-1]
    text = failure(server, tmp_path, "gone", "other")
    assert text.startswith("A set: files are missing: file.bin could not be downloaded (")
    root = server.root
    assert f"{tmp_path / 'set/file.bin'} from {root}/gone or {root}/other ({HASH})" in text
    assert not list((tmp_path / "set").iterdir())


def endless(handler):
    """Send bytes until the client hangs up."""
    handler.wfile.write(b"HTTP/1.1 200 OK\r\n\r\n")
    with suppress(ConnectionError):
        while True:
            handler.wfile.write(CONTENT)


def test_a_download_that_exceeds_its_size_is_stopped(server, tmp_path, monkeypatch):
    assert fetch._MOST_BYTES == 2 * 10**9
    monkeypatch.setattr(fetch, "_MOST_BYTES", len(CONTENT))
    server.files |= {"long": CONTENT + b"more", "endless": endless, "good": CONTENT}
    text = failure(server, tmp_path, "long", "endless")
    for path in ("long", "endless"):
        stopped = f"{path}: stopped, as the server sends more than {len(CONTENT)} bytes"
        assert stopped in text
    assert not list((tmp_path / "set").iterdir())
    (path,) = download(server, tmp_path, "long", "endless", "good")
    assert path.read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("value", "cause"), [("1", "FEDBENCH_OFFLINE; unset it"), ("0", "data.download=false; set it")]
)
def test_without_downloads_the_error_says_what_to_place_where(
    server, tmp_path, monkeypatch, value, cause
):
    monkeypatch.setenv("FEDBENCH_OFFLINE", value)
    server.files["a"] = CONTENT
    with pytest.raises(MissingFiles, match=f"downloads are disabled by {cause}") as error:
        ensure(
            [remote(server, "a")],
            tmp_path,
            download=value == "1",
        )
    place = f"{tmp_path / 'set/file.bin'} from {server.root}/a ({HASH})"
    assert f"download yourself: {place}" in str(error.value)
    assert not server.asked


def test_a_data_directory_that_does_not_exist_is_not_created(server, tmp_path, monkeypatch):
    """It is probably a typing error; only the default is created."""
    server.files["a"] = CONTENT
    with rejected("data_dir=.*typo is not a directory; correct it"):
        download(server, tmp_path / "typo", "a")
    assert not list(tmp_path.iterdir())
    assert not server.asked
    monkeypatch.setattr(fetch, "_DEFAULT", tmp_path / "default")
    (path,) = download(server, tmp_path / "default", "a")
    assert path.is_file()


def test_a_server_that_cannot_be_reached_is_said_in_two_words(server, tmp_path):
    server.root = "http://127.0.0.1:9"  # a port at which nothing listens
    text = failure(server, tmp_path, "file")
    assert "could not be downloaded (http://127.0.0.1:9/file: no connection)" in text


@pytest.mark.parametrize("by", ["key", "variable"])
def test_mirrors_are_asked_first_and_only_for_files_with_a_checksum(
    server, tmp_path, monkeypatch, by
):
    server.files |= {"mirror/set/file.bin": CONTENT, "a": CONTENT}
    bases = (f"{server.root}/none/", f"{server.root}/mirror")
    if by == "variable":
        monkeypatch.setenv("FEDBENCH_MIRRORS", ", ".join(bases))
    for name in "12":
        (tmp_path / name).mkdir()
    with mirrors(bases if by == "key" else ()):
        download(server, tmp_path / "1", "a")
        ensure(
            [remote(server, "a", hash=None)],
            tmp_path / "2",
            download=True,
        )
    assert server.asked == ["none/set/file.bin", "mirror/set/file.bin", "a"]


def test_processes_that_need_the_same_file_download_it_once(server, tmp_path):
    server.files["a"] = CONTENT
    threads = [threading.Thread(target=download, args=(server, tmp_path, "a")) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert server.asked == ["a"]


def test_a_directory_that_cannot_be_written(server, tmp_path):
    (tmp_path / "set").write_text("in the way")
    with rejected(r"A set: .*file.bin cannot be written .*exists"):
        download(server, tmp_path, "a")


# ---- servers and processes


def test_what_a_server_says_cannot_control_the_terminal(server, tmp_path, capsys):
    answer = b"HTTP/1.1 404 \x1b[31mred\x1b]0;title\x07 \x9b\r\n\r\n"
    server.files["a"] = lambda handler: handler.wfile.write(answer)
    text = failure(server, tmp_path, "a")
    for shown in (text, capsys.readouterr().err.rstrip("\n")):
        assert r"404 Client Error: \x1b[31mred\x1b]0;title\x07 \x9b" in shown
        assert shown.isprintable()


def test_a_process_that_waits_for_another_one_says_so(server, tmp_path, capsys):
    server.files["a"] = CONTENT
    waiting = threading.Thread(
        target=download,
        args=(server, tmp_path, "a"),
        daemon=True,
    )
    with FileLock(tmp_path / ".downloads.lock"):
        shown = error_while_waiting(waiting, capsys)
        message = f"fedbench: waiting for another process that is downloading into {tmp_path}\n"
        assert shown == message
        assert not server.asked
    waiting.join()
    assert server.asked == ["a"]


# ---- layouts and archives


def packed_set(*urls, hash=None):
    """A set of two files in a directory, or in an archive."""
    layouts = [["elsewhere/x", "elsewhere/y"], ["a/x", "a/y"]]
    return Files(
        "A set",
        layouts,
        [Remote("a.tar.gz", urls, hash)],
        into="a",
    )


def test_an_archive_is_downloaded_unpacked_and_found(server, tmp_path):
    pack(tmp_path / "served.tar.gz", {"x": b"1", "y": b"2"})
    content = server.files["a.tar.gz"] = (tmp_path / "served.tar.gz").read_bytes()
    files = packed_set(f"{server.root}/a.tar.gz", hash=f"md5:{hashlib.md5(content).hexdigest()}")
    assert files.missing(tmp_path) == "a.tar.gz"
    found = files.find(tmp_path, download=True)
    assert [p.read_bytes() for p in found] == [b"1", b"2"]
    assert files.find(tmp_path, download=False) == found
    put(tmp_path, "elsewhere/x", "elsewhere/y")
    others = [tmp_path / "elsewhere/x", tmp_path / "elsewhere/y"]
    assert files.find(tmp_path, download=False) == others
    assert files.missing(tmp_path) is None


@pytest.mark.parametrize(
    ("hash", "message"),
    [
        ("md5:00", r"a.tar.gz is not the official file: md5 \w{32} instead of 00; remove it"),
        (None, "a.tar.gz does not contain a/x, a/y; remove it to download it again"),
    ],
)
def test_an_archive_that_is_corrupt_or_of_something_else_is_named(tmp_path, hash, message):
    pack(tmp_path / "a.tar.gz", {"x": b"1"})
    with rejected(message):
        packed_set(hash=hash).find(tmp_path, download=False)
    assert (tmp_path / "a").exists() == (hash is None)


def test_verify_compares_what_is_read(tmp_path):
    put(tmp_path, "a", "b", "c", "folder/d")
    empty = hashlib.sha1(b"").hexdigest()
    published = Remote("c", (), f"sha1:{empty}")
    groups = [
        Files(
            "A set",
            [["a", "b", "c"]],
            sums={"a": f"sha1:{empty}", "b": "sha1:00"},
        ),
        Files("A set", [["folder"]]),
        Files(
            "A set",
            [["nowhere"]],
            [published, Remote("missing", (), None)],
        ),
    ]
    results = [(path.name, text, wrong) for path, text, wrong in verify(groups, tmp_path)]
    assert results == [
        ("a", f"official: sha1 {empty}", False),
        ("b", f"WRONG: sha1 {empty} instead of 00", True),
        ("c", f"no published checksum: md5 {hashlib.md5(b'').hexdigest()}", False),
        ("c", f"official: sha1 {empty}", False),
    ]


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_files_of_a_source(name, tmp_path):
    """All addresses are https and have a checksum; either form of the files is enough for a
    plan."""
    groups = PUBLISHED[name]
    for remote in (remote for files in groups for remote in files.remotes):
        assert remote.hash
        assert all(url.startswith("https://") for url in remote.urls)
    assert all(f.missing(tmp_path) for f in groups)
    put(
        tmp_path,
        *(path for f in groups for path in f.layouts[0]),
    )
    assert not any(f.missing(tmp_path) for f in groups)
