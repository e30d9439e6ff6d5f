"""Downloads from a server on loopback that truncates, stalls, answers with errors and sends the wrong bytes."""

import hashlib
import io
import multiprocessing
import re
import socket
import sys
import threading
import time
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from types import SimpleNamespace

import pytest
from loopback import hangs_up, ranged, serving, silent, status, whole, without_length
from rich.console import Console
from urllib3.util import Retry

from fedbench.core.errors import RequestError
from fedbench.data.files import archives, hosts, progress, transfer
from fedbench.data.files.download import Remote, checksum, ensure, unpack

CONTENT = bytes(range(256)) * 40  # 10240 bytes
MD5, SHA256 = hashlib.md5(CONTENT).hexdigest(), hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def server():
    with serving() as server:
        yield server


@pytest.fixture
def other():
    """A second server: another host."""
    with serving() as server:
        yield server


@pytest.fixture(autouse=True)
def surroundings(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "*")
    for name in ("FEDBENCH_OFFLINE", "FEDBENCH_MIRRORS"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(autouse=True)
def waits(monkeypatch):
    """The seconds between two tries, which are not waited."""
    waits = []
    monkeypatch.setattr("urllib3.util.retry.time", SimpleNamespace(sleep=waits.append, time=time.time))
    return waits


@pytest.fixture
def get(tmp_path):
    """Fetch one file; returns its bytes."""

    def get(*urls, **facts):
        facts = {"md5": MD5, **facts}
        (path,) = ensure([Remote("set/raw/a.bin", urls, **facts)], tmp_path, download=True, what="Letters")
        assert path == tmp_path / "set" / "raw" / "a.bin"
        return path.read_bytes()

    return get


def left(tmp_path):
    """Files below the data directory."""
    return sorted(p.relative_to(tmp_path).as_posix() for p in tmp_path.rglob("*") if p.is_file())


def part(tmp_path, content):
    """What an earlier process left."""
    path = tmp_path / "set" / "raw" / "a.bin.part"
    path.parent.mkdir(parents=True)
    path.write_bytes(content)


# ---- the good case


def test_fetches_verifies_and_leaves_nothing_else(server, get, tmp_path, waits):
    assert get(server.url(ranged(CONTENT)), md5=MD5.upper(), sha256=SHA256, size=len(CONTENT)) == CONTENT
    assert left(tmp_path) == ["set/raw/a.bin"]
    assert (server.asked(), waits) == ([None], [])
    assert server.agents == {("fedbench", "identity")}


def test_what_is_there_is_taken_as_it_is(server, get, tmp_path):
    (tmp_path / "set" / "raw").mkdir(parents=True)
    (tmp_path / "set" / "raw" / "a.bin").write_bytes(b"one's own")
    assert get(server.url(ranged(CONTENT))) == b"one's own"
    assert server.requests == []


def test_several_files_in_their_order(server, tmp_path):
    (tmp_path / "there").write_bytes(b"x")
    remotes = [Remote(name, (server.url(whole(name.encode()), path=name),)) for name in ("b", "there", "a")]
    assert ensure(remotes, tmp_path, download=True, what="Letters") == [tmp_path / n for n in ("b", "there", "a")]
    assert [(tmp_path / n).read_bytes() for n in ("a", "b", "there")] == [b"a", b"b", b"x"]
    assert [path for path, _ in server.requests] == ["/b", "/a"]


def test_an_empty_file(server, get):
    assert get(server.url(whole(b"")), md5=hashlib.md5(b"").hexdigest(), size=0) == b""


def test_bytes_are_kept_as_they_are_on_the_server(server, get):
    """A server that calls a .gz file an encoding does not get it decoded."""
    assert get(server.url(whole(CONTENT, Content_Encoding="gzip"))) == CONTENT


def test_a_server_that_does_not_say_how_much_it_sends(server, get, waits):
    assert get(server.url(without_length(CONTENT)), size=len(CONTENT)) == CONTENT
    assert waits == []


# ---- interruptions


@pytest.mark.parametrize("facts", [{}, {"size": len(CONTENT)}, {"md5": None}])
def test_a_truncated_body_is_resumed(server, get, tmp_path, waits, facts):
    assert get(server.url(ranged(CONTENT, cut=4000)), **facts) == CONTENT
    assert server.asked() == [None, "bytes=4000-", "bytes=8000-"]
    assert waits == [2]  # the second try is made at once
    assert left(tmp_path) == ["set/raw/a.bin"]


def test_truncated_without_a_length(server, get):
    """Only the size that is known beforehand shows that something is missing."""
    assert get(server.url(without_length(CONTENT[:3000]), ranged(CONTENT)), size=len(CONTENT)) == CONTENT
    assert server.asked() == [None, "bytes=3000-"]


def test_a_server_without_ranges_starts_over(server, get):
    assert get(server.url(ranged(CONTENT, cut=4000), whole(CONTENT))) == CONTENT
    assert server.asked() == [None, "bytes=4000-"]


@pytest.mark.parametrize("md5", [MD5, None])
def test_the_wrong_range_is_not_appended(server, get, md5):
    def wrong(h):
        h.answer(206, CONTENT[:6240], length=6240, headers={"Content-Range": "bytes 0-6239/10240"})

    assert get(server.url(ranged(CONTENT, cut=4000), wrong, ranged(CONTENT)), md5=md5) == CONTENT
    assert server.asked() == [None, "bytes=4000-", None]


def test_a_later_call_resumes(server, get, tmp_path):
    part(tmp_path, CONTENT[:5000])
    assert get(server.url(ranged(CONTENT))) == CONTENT
    assert server.asked() == ["bytes=5000-"]


def test_a_later_call_does_not_resume_what_cannot_be_verified(server, get, tmp_path):
    part(tmp_path, b"?" * 5000)
    assert get(server.url(ranged(CONTENT)), md5=None) == CONTENT
    assert server.asked() == [None]


@pytest.mark.parametrize(("size", "asked"), [(None, ["bytes=10241-", None]), (len(CONTENT), [None])])
def test_more_than_the_file_starts_over(server, get, tmp_path, size, asked):
    part(tmp_path, CONTENT + b"!")
    assert get(server.url(ranged(CONTENT)), size=size) == CONTENT
    assert server.asked() == asked


def test_a_complete_part_needs_no_request(server, get, tmp_path):
    part(tmp_path, CONTENT)
    assert get(server.url(ranged(CONTENT)), size=len(CONTENT)) == CONTENT
    assert server.requests == []


def test_a_wrong_part_is_thrown_away(server, get, tmp_path):
    part(tmp_path, b"?" * 5000)
    assert get(server.url(ranged(CONTENT))) == CONTENT
    assert server.asked() == ["bytes=5000-", None]


def test_an_interruption_keeps_what_is_there(server, tmp_path, monkeypatch):
    def interrupt(retry):
        raise KeyboardInterrupt

    remote = Remote("a.bin", (server.url(ranged(CONTENT, cut=4000)),), md5=MD5)
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(Retry, "sleep", interrupt)
        ensure([remote], tmp_path, download=True, what="Letters")
    assert (tmp_path / "a.bin.part").read_bytes() == CONTENT[:4000]
    ensure([remote], tmp_path, download=True, what="Letters")
    assert server.asked() == [None, "bytes=4000-", "bytes=8000-"]


def test_a_silent_server_is_asked_again(server, get, monkeypatch, waits):
    monkeypatch.setattr(transfer, "TIMEOUT", (1.0, 0.1))
    monkeypatch.setattr(transfer, "_CHUNK", 1000)
    quiet = threading.Event()

    def stalls(h):
        h.answer(200, CONTENT[:4000], length=len(CONTENT))
        quiet.wait(30)

    try:
        assert get(server.url(stalls, ranged(CONTENT))) == CONTENT
    finally:
        quiet.set()
    assert server.asked() == [None, "bytes=4000-"]
    assert waits == []


# ---- answers that are no file


def test_unavailable_then_there(server, get, waits):
    assert get(server.url(status(503), status(500), hangs_up, whole(CONTENT))) == CONTENT
    assert waits == [2, 4]


def test_retry_after_is_obeyed(server, get, waits):
    date = format_datetime(datetime.now(UTC) + timedelta(seconds=200), usegmt=True)
    answers = [status(429, Retry_After="7"), status(503, Retry_After=date), status(503)]
    assert get(server.url(*answers, whole(CONTENT))) == CONTENT
    assert (waits[0], waits[2]) == (7, 4)
    assert 100 < waits[1] <= 200


@pytest.mark.parametrize("value", ["86400", "soon"])
def test_a_server_that_wants_too_much_patience_is_left(server, other, get, waits, value):
    late = other.url(status(429, Retry_After=value))
    assert get(late, server.url(whole(CONTENT))) == CONTENT
    assert (waits, len(other.asked())) == ([], 1)


def test_there_is_less_patience_while_other_addresses_are_left(server, other, get, waits):
    """A minute's wait is granted to the last address only."""
    answers = [status(503, Retry_After="60"), whole(CONTENT)]
    assert get(other.url(*answers), server.url(*answers)) == CONTENT
    assert (waits, len(other.asked()), len(server.asked())) == ([60], 1, 2)


def test_the_wait_that_was_too_long_is_named(server, get):
    with pytest.raises(RequestError, match=r"/file: the server asks to wait for \d+ s\); try again later, name"):
        get(server.url(status(503, Retry_After="86400")))


@pytest.mark.parametrize("code", [401, 403, 404, 410])
def test_not_there_means_the_next_mirror_at_once(server, get, waits, code):
    assert get(server.url(status(code), path="gone"), server.url(whole(CONTENT))) == CONTENT
    assert (waits, len(server.asked("gone")), len(server.asked())) == ([], 1, 1)


def test_tries_are_counted_and_waits_double(server, get, waits):
    with pytest.raises(RequestError, match=r"/file: too many 503 error responses\); try again later, name"):
        get(server.url(status(503)))
    assert waits == [2, 4]
    assert len(server.asked()) == 4


def test_progress_earns_new_tries(server, get, waits, monkeypatch):
    monkeypatch.setattr(transfer, "_PROGRESS", 1000)
    assert get(server.url(ranged(CONTENT, cut=1000))) == CONTENT
    assert len(server.asked()) == 11  # 10240 bytes in thousands; four tries were not enough
    assert waits == []


def test_nobody_listens(get, server, waits):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        assert get(f"http://127.0.0.1:{unused.getsockname()[1]}/", server.url(whole(CONTENT))) == CONTENT
    assert waits == []  # one more try, at once


def test_an_address_that_is_none(get, server, waits):
    assert get("nothing://here", server.url(whole(CONTENT))) == CONTENT
    assert waits == []


# ---- servers that fail, hang or are slow


class Clock:
    """A clock that goes on by ``step`` seconds whenever somebody looks at it."""

    def __init__(self, step=1.0):
        self.now, self.step = 0.0, step

    def monotonic(self):
        self.now += self.step
        return self.now


def test_a_server_that_failed_is_not_asked_for_another_file(server, other, get, tmp_path, capsys):
    """Neither one with an error 500 nor one that nobody runs; the error says so."""
    broken = other.url(status(500), path="a")
    assert get(broken, server.url(whole(CONTENT))) == CONTENT
    (tmp_path / "set" / "raw" / "a.bin").unlink()
    assert get(other.url(whole(CONTENT), path="b"), server.url(whole(CONTENT))) == CONTENT
    assert (len(other.asked("a")), other.asked("b")) == (2, [])
    with pytest.raises(RequestError, match="/b: not asked again, it failed before: too many 500 error responses"):
        ensure([Remote("c", (other.url(path="b"),), md5=MD5)], tmp_path, download=True, what="Letters")
    assert f"fedbench: a.bin: {hosts.host(broken)}: too many 500 error responses\n" in capsys.readouterr().err


def test_a_server_that_lacks_one_file_is_asked_for_the_next(server, other, get, tmp_path):
    gone = [other.url(status(404), path="gone"), other.url(whole(CONTENT[::-1]), path="wrong")]
    assert get(*gone, server.url(whole(CONTENT))) == CONTENT
    assert ensure([Remote("b", (other.url(whole(CONTENT), path="b"),), md5=MD5)], tmp_path, download=True, what="B")
    assert len(other.requests) == 3


def test_a_server_that_hangs_is_left_and_not_asked_again(server, other, get, tmp_path, monkeypatch, waits):
    monkeypatch.setattr(transfer, "TIMEOUT", (1.0, 0.1))
    quiet = threading.Event()
    try:
        assert get(other.url(silent(quiet)), server.url(whole(CONTENT))) == CONTENT
        (tmp_path / "set" / "raw" / "a.bin").unlink()
        assert get(other.url(silent(quiet)), server.url(whole(CONTENT))) == CONTENT
    finally:
        quiet.set()
    assert (len(other.asked()), len(server.asked()), waits) == (2, 2, [])


def test_a_server_that_broke_gets_a_last_attempt_where_no_other_address_works(server, other, get, waits):
    """It breaks twice, the other one lacks the file, and the third time it sends the rest."""
    breaking = server.url(ranged(CONTENT, cut=300), ranged(CONTENT, cut=300), ranged(CONTENT))
    assert get(breaking, other.url(status(404))) == CONTENT
    assert server.asked() == [None, "bytes=300-", "bytes=600-"]
    assert len(other.asked()) == 1
    assert hosts.failure(breaking) is None


def test_a_server_that_broke_with_an_earlier_file_gets_a_last_attempt_too(server, other, get, tmp_path, waits):
    breaking = server.url(ranged(CONTENT, cut=10), ranged(CONTENT, cut=10))
    assert get(breaking, other.url(whole(CONTENT))) == CONTENT
    (tmp_path / "set" / "raw" / "a.bin").unlink()
    assert hosts.failure(breaking) is not None
    assert get(server.url(whole(CONTENT), path="b"), other.url(status(404), path="b")) == CONTENT
    assert (server.asked("b"), other.asked("b")) == ([None], [None])


def test_a_server_that_keeps_breaking_is_named_once(server, other, get, waits):
    with pytest.raises(RequestError) as caught:
        get(server.url(ranged(CONTENT, cut=1)), other.url(status(404)))
    assert len(server.asked()) == 2 + 4  # as one of several addresses, then as the only one
    assert str(caught.value).count(f"{server.root}/file: ") == 1


def test_a_slow_server_is_left_for_another_that_resumes(server, other, get, monkeypatch):
    """At most 100 bytes a second against a lowest speed of 200, over 10 seconds; then the clock stands still."""
    monkeypatch.setattr(transfer, "time", clock := Clock())
    monkeypatch.setattr(transfer, "_CHUNK", 100)
    monkeypatch.setattr(transfer, "_SLOWEST", 200.0)

    def fast(h):
        clock.step = 0.0
        ranged(CONTENT)(h)

    assert get(other.url(ranged(CONTENT)), server.url(fast)) == CONTENT
    assert other.asked() == [None]
    (start,) = server.asked()
    assert 0 < int(start.removeprefix("bytes=").removesuffix("-")) <= 1000
    assert hosts.slow_last([other.root, server.root]) == [server.root, other.root]


def test_a_fast_server_is_not_left(server, other, get, monkeypatch):
    """1000 bytes a second, but for the first and the last."""
    monkeypatch.setattr(transfer, "time", Clock())
    monkeypatch.setattr(transfer, "_CHUNK", 1000)
    monkeypatch.setattr(transfer, "_SLOWEST", 200.0)
    assert get(other.url(ranged(CONTENT * 10)), server.url(ranged(CONTENT)), md5=None) == CONTENT * 10
    assert (other.asked(), server.asked()) == ([None], [])


def test_a_slow_server_has_to_do_where_no_other_address_works(server, other, get, monkeypatch, capsys):
    monkeypatch.setattr(transfer, "time", Clock())
    monkeypatch.setattr(transfer, "_CHUNK", 100)
    monkeypatch.setattr(transfer, "_SLOWEST", 200.0)
    assert get(other.url(ranged(CONTENT)), server.url(status(404))) == CONTENT
    assert [start is None for start in other.asked()] == [True, False]
    assert "only 0 kB/s; trying the other addresses first\n" in capsys.readouterr().err


def test_the_fastest_of_slow_servers_finishes(server, other, get, monkeypatch):
    """The clock goes half as fast while the second server sends, so this is the faster one."""
    monkeypatch.setattr(transfer, "time", clock := Clock())
    monkeypatch.setattr(transfer, "_CHUNK", 100)
    monkeypatch.setattr(transfer, "_SLOWEST", 1e6)

    def faster(h):
        clock.step = 0.5
        ranged(CONTENT)(h)

    assert get(other.url(ranged(CONTENT)), server.url(faster)) == CONTENT
    assert (len(other.asked()), len(server.asked())) == (1, 2)
    assert hosts.slow_last([other.root, server.root]) == [server.root, other.root]


def test_a_single_address_may_be_slow(server, get, monkeypatch):
    monkeypatch.setattr(transfer, "time", Clock())
    monkeypatch.setattr(transfer, "_CHUNK", 100)
    assert get(server.url(ranged(CONTENT))) == CONTENT
    assert server.asked() == [None]


def test_a_byte_now_and_then_is_slow_not_silent(server, other, get, monkeypatch):
    """What came in is counted as it comes, not when a whole chunk is there."""
    monkeypatch.setattr(transfer, "time", Clock())
    over = threading.Event()

    def trickles(h):
        h.answer(200, b"", length=len(CONTENT))
        for k in range(len(CONTENT)):
            h.wfile.write(CONTENT[k : k + 1])
            if over.wait(0.01):
                return

    try:
        assert get(other.url(trickles), server.url(ranged(CONTENT))) == CONTENT
    finally:
        over.set()
    (start,) = server.asked()
    assert 0 < int(start.removeprefix("bytes=").removesuffix("-")) < len(CONTENT) // 2


# ---- versions of a file, and ranges that are none


def test_a_file_is_resumed_only_in_the_same_version(server, get):
    """If-Range: a server that has another version by now sends it whole."""
    old = CONTENT[::-1]
    assert get(server.url(ranged(old, cut=4000, tag='"old"'), ranged(CONTENT, tag='"new"'))) == CONTENT
    assert (server.asked(), server.versions) == ([None, "bytes=4000-"], [None, '"old"'])


def test_a_weak_tag_marks_no_version(server, get):
    assert get(server.url(ranged(CONTENT, cut=4000, tag='W/"x"'), ranged(CONTENT, tag='W/"x"'))) == CONTENT
    assert server.versions == [None, None]


def test_after_wrong_bytes_no_range_is_asked_for(server, get):
    """A server that takes the range of another byte makes a wrong file; the next try takes nothing over."""

    def shifted(h):
        place = {"Content-Range": f"bytes 4000-{len(CONTENT) - 1}/{len(CONTENT)}"}
        h.answer(206, CONTENT[:6240], length=6240, headers=place)

    cut = ranged(CONTENT, cut=4000)
    assert get(server.url(cut, shifted, cut, whole(CONTENT))) == CONTENT
    assert server.asked() == [None, "bytes=4000-", None, None]


def test_a_range_of_a_file_of_another_size(server, other, get, tmp_path):
    part(tmp_path, CONTENT[:4000])
    longer = other.url(ranged(CONTENT + b"!"))
    assert get(longer, server.url(ranged(CONTENT)), size=len(CONTENT)) == CONTENT
    assert (other.asked(), server.asked()) == (["bytes=4000-"], ["bytes=4000-"])


# ---- the wrong file


@pytest.mark.parametrize("facts", [{"md5": MD5}, {"md5": None, "sha256": SHA256}, {"md5": MD5, "sha256": SHA256}])
def test_wrong_bytes_are_removed_and_the_mirror_asked(server, get, tmp_path, facts):
    wrong = server.url(whole(CONTENT[::-1]), path="wrong")
    assert get(wrong, server.url(whole(CONTENT)), **facts) == CONTENT
    assert left(tmp_path) == ["set/raw/a.bin"]
    with pytest.raises(RequestError) as error:
        (tmp_path / "set" / "raw" / "a.bin").unlink()
        get(wrong, **facts)
    name, value = ("md5", MD5) if facts["md5"] else ("sha256", SHA256)
    assert f"gave {name} {hashlib.new(name, CONTENT[::-1]).hexdigest()} instead of {value}" in str(error.value)
    assert [p for p in left(tmp_path) if not p.endswith(".lock")] == []


def test_a_wrong_size_is_not_even_fetched(server, get, tmp_path):
    with pytest.raises(RequestError, match="offers 5 bytes instead of 10240"):
        get(server.url(whole(b"12345")), size=len(CONTENT))
    assert not [p for p in left(tmp_path) if not p.endswith(".lock")]


def test_a_stream_that_is_too_long_is_cut(server, get, tmp_path):
    with pytest.raises(RequestError, match=r"gave \d+ bytes instead of 10240"):
        get(server.url(without_length(CONTENT + b"!")), size=len(CONTENT))
    assert not [p for p in left(tmp_path) if not p.endswith(".lock")]


def test_one_of_two_checksums_is_not_enough(server, get):
    with pytest.raises(RequestError, match=f"instead of {SHA256[::-1]}"):
        get(server.url(whole(CONTENT)), sha256=SHA256[::-1])


# ---- errors


def test_an_error_names_every_file_still_wanted(server, tmp_path):
    remotes = [
        Remote("a", (server.url(whole(CONTENT), path="a"),), md5=MD5, size=10240),
        Remote("sub/b", (f"{server.root}/b1", f"{server.root}/b2"), md5="0" * 32),
        Remote("c", (server.url(whole(CONTENT), path="c"),), sha256=SHA256),
    ]
    with pytest.raises(RequestError) as error:
        ensure(remotes, tmp_path, download=True, what="Letters")
    assert str(error.value) == (
        f"Letters: 2 files missing: b could not be downloaded ({server.root}/b1: 404 Not Found; "
        f"{server.root}/b2: 404 Not Found); try again later, name a mirror in data.mirrors, or download yourself: "
        f"{tmp_path}/sub/b from "
        f"{server.root}/b1 or {server.root}/b2 (md5 {'0' * 32}); {tmp_path}/c from {server.root}/c "
        f"(sha256 {SHA256})"
    )
    assert (tmp_path / "a").read_bytes() == CONTENT


def test_what_is_not_public(tmp_path):
    with pytest.raises(RequestError, match=r"no public address\).*: .*/clothing.tar which has no public address$"):
        ensure([Remote("clothing.tar", ())], tmp_path, download=True, what="Clothing1M")


def test_a_directory_that_cannot_be_made(server, tmp_path):
    (tmp_path / "set").write_text("a file")
    with pytest.raises(RequestError, match=r"Letters: .*/set/a cannot be written \(.*change data_dir"):
        ensure([Remote("set/a", (server.url(whole(CONTENT)),))], tmp_path, download=True, what="Letters")
    assert server.requests == []


def test_a_full_disk_is_no_reason_to_ask_again(server, get, monkeypatch, waits):
    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(transfer.os, "fsync", full)
    with pytest.raises(RequestError, match="No space left on device, .* free.; free some space"):
        get(server.url(whole(CONTENT)))
    assert (waits, len(server.asked())) == ([], 1)


@pytest.mark.parametrize(
    ("download", "offline", "reason"),
    [
        (False, None, "downloads are disabled by data.download=false; set it to true"),
        (False, "0", "downloads are disabled by data.download=false; set it to true"),
        (True, "1", "downloads are disabled by FEDBENCH_OFFLINE; unset it"),
        (False, "true", "downloads are disabled by FEDBENCH_OFFLINE; unset it"),
    ],
)
def test_offline_makes_no_request(server, tmp_path, monkeypatch, download, offline, reason):
    if offline:
        monkeypatch.setenv("FEDBENCH_OFFLINE", offline)
    monkeypatch.setattr(socket, "socket", None)  # opening one fails
    remotes = [Remote("a", ("http://one/a", "http://two/a"), md5=MD5, size=10240), Remote("b", ("http://one/b",))]
    with pytest.raises(RequestError) as error:
        ensure(remotes, tmp_path / "data", download=download, what="Letters")
    assert str(error.value) == (
        f"Letters: 2 files missing: {reason}, or download yourself: {tmp_path}/data/a from http://one/a or "
        f"http://two/a (md5 {MD5}, 10240 bytes); {tmp_path}/data/b from http://one/b"
    )
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "data").mkdir()
    for name in "ab":
        (tmp_path / "data" / name).touch()
    assert len(ensure(remotes, tmp_path / "data", download=download, what="Letters")) == 2


# ---- at the same time


def fetch_in_process(url, folder, start):
    start.wait(30)
    ensure([Remote("a", (url,), md5=MD5)], folder, download=True, what="Letters")


class Told(io.StringIO):
    """Standard error that counts who waits."""

    def __init__(self):
        super().__init__()
        self.waiting = threading.Semaphore(0)

    def write(self, text):
        if "waiting" in text:
            self.waiting.release()
        return super().write(text)


def test_threads_fetch_once(server, tmp_path, monkeypatch):
    go, found, told = threading.Event(), [], Told()

    def answer(h):
        go.wait(30)
        whole(CONTENT)(h)

    def work():
        found.extend(ensure([remote], tmp_path, download=True, what="Letters"))

    remote = Remote("a", (server.url(answer),), md5=MD5)
    monkeypatch.setattr(sys, "stderr", told)
    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    everyone_else = [told.waiting.acquire(timeout=30) for _ in range(3)]
    go.set()
    for t in threads:
        t.join(30)
    assert all(everyone_else)
    assert found == [tmp_path / "a"] * 4
    assert server.asked() == [None]
    assert told.getvalue().count(f"waiting for another process that is downloading {tmp_path / 'a'}\n") == 3
    assert left(tmp_path) == ["a"]


def test_processes_fetch_once(server, tmp_path):
    context = multiprocessing.get_context("spawn")  # a fork would take the server's threads along
    start, url = context.Event(), server.url(whole(CONTENT))
    workers = [context.Process(target=fetch_in_process, args=(url, tmp_path, start)) for _ in range(2)]
    for w in workers:
        w.start()
    start.set()
    for w in workers:
        w.join(60)
    assert [w.exitcode for w in workers] == [0, 0]
    assert server.asked() == [None]
    assert left(tmp_path) == ["a"]


def test_who_waited_for_one_that_failed_fetches_itself(server, tmp_path):
    """The lock outlives a failure: the next process takes it over."""
    gone = Remote("a", (f"{server.root}/gone",), md5=MD5)
    with pytest.raises(RequestError):
        ensure([gone], tmp_path, download=True, what="Letters")
    ensure([Remote("a", (server.url(whole(CONTENT)),), md5=MD5)], tmp_path, download=True, what="Letters")
    assert left(tmp_path) == ["a"]


# ---- for people


def test_quiet_where_nobody_watches(server, get, capsys):
    get(server.url(status(503), ranged(CONTENT, cut=4000), ranged(CONTENT)))
    assert capsys.readouterr() == ("", "")


def test_a_line_every_ten_seconds_off_a_terminal(capsys, monkeypatch):
    """The clock is read every 4 seconds: 3 MB in the 12 seconds from one line to the next."""
    monkeypatch.setattr(progress, "time", Clock(4.0))
    with progress.metering("a.bin", 10_240_000) as show:
        for million in range(1, 7):
            show(million * 10**6)
    with progress.metering("b.bin", None) as show:
        show(10**6)
        show(5 * 10**5)  # starts over
        show(25 * 10**5)
    assert capsys.readouterr().err.splitlines() == [
        "fedbench: a.bin: 3.0 of 10.2 MB, 0.25 MB/s",
        "fedbench: a.bin: 6.0 of 10.2 MB, 0.25 MB/s",
        "fedbench: b.bin: 2.5 MB, 0.21 MB/s",
    ]


def test_a_download_shows_how_far_it_is(server, get, capsys, monkeypatch):
    monkeypatch.setattr(progress, "time", Clock(11.0))
    assert get(server.url(whole(CONTENT)))
    assert capsys.readouterr().err.endswith("fedbench: a.bin: 0.0 of 0.0 MB, 0.00 MB/s\n")


def test_a_bar_on_a_terminal(server, tmp_path, monkeypatch):
    shown = io.StringIO()
    console = Console(width=100, force_terminal=True, file=shown)
    monkeypatch.setattr(progress.sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(progress, "Console", lambda **options: console)
    remote = Remote("a.bin", (server.url(ranged(CONTENT, cut=4000)),), md5=MD5)
    ensure([remote], tmp_path, download=True, what="Letters")
    assert re.search(r"a\.bin .*10\.2/10\.2 kB", shown.getvalue())


# ---- small things


def test_checksum(tmp_path):
    (tmp_path / "abc").write_bytes(b"abc")
    assert checksum(tmp_path / "abc") == "900150983cd24fb0d6963f7d28e17f72"  # RFC 1321
    assert checksum(tmp_path / "abc", "sha256").startswith("ba7816bf8f01cfea")  # FIPS 180-2


def test_unpack_is_offered_here_too():
    assert unpack is archives.unpack
