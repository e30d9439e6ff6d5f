"""Addresses are tried by HEAD, or by a first byte where a server does not know HEAD."""

import threading

import pytest
from loopback import Handler, ranged, serving, silent, status, whole

from fedbench.core.mirrors import Mirror
from fedbench.data.files import links
from fedbench.data.files.links import check
from fedbench.data.files.mirrors import using
from fedbench.data.files.remote import Remote

CONTENT = b"letters" * 100


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "*")
    monkeypatch.delenv("FEDBENCH_MIRRORS", raising=False)
    with serving() as server:
        yield server


def answer(server, *answers, size=None):
    (link,) = check([Remote("a", (server.url(*answers),), md5="0" * 32, size=size)])
    return link


def only_get(then):
    """Refuses HEAD."""
    return lambda h: then(h) if h.command == "GET" else status(405)(h)


def first_byte(h: Handler):
    assert h.headers["Range"] == "bytes=0-0"
    h.answer(206, CONTENT[:1], length=1, headers={"Content-Range": f"bytes 0-0/{len(CONTENT)}"})


@pytest.mark.parametrize("size", [None, len(CONTENT)])
@pytest.mark.parametrize(("given", "said"), [(whole(CONTENT), "200 OK"), (only_get(first_byte), "206 Partial Content")])
def test_an_address_that_works(server, given, said, size):
    link = answer(server, given, size=size)
    assert (link.path, link.url, link.status) == ("a", f"{server.root}/file", said)
    assert (link.size, link.works) == (len(CONTENT), True)
    assert link.seconds > 0


def test_nothing_is_downloaded(server):
    answer(server, ranged(CONTENT))
    assert [name for name, _ in server.requests] == ["/file"]
    assert server.commands == ["HEAD"]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (status(404), "404 Not Found"),
        (status(500), "500 Internal Server Error"),
        (whole(CONTENT + b"!"), "another file: 701 bytes instead of 700"),
        (whole(CONTENT, Content_Type="text/html; charset=utf-8"), "a web page, not the file"),
    ],
)
def test_an_address_that_does_not_work(server, given, said):
    link = answer(server, given, size=len(CONTENT))
    assert (link.status, link.works) == (said, False)


def test_a_server_that_hangs_holds_nothing_up(server, monkeypatch):
    monkeypatch.setattr(links, "TIMEOUT", (1.0, 0.1))
    quiet = threading.Event()
    try:
        link = answer(server, silent(quiet))
    finally:
        quiet.set()
    assert "timed out" in link.status
    assert not link.works


def test_mirrors_are_tried_too_and_every_address_once(server):
    remote = Remote("a", (server.url(whole(CONTENT), path="one"),) * 2, md5="0" * 32)
    with using((Mirror("", server.root.replace("//", "//me:secret@")),)):
        found = check([remote, remote, Remote("local", ())])
    assert [(k.url, k.works) for k in found] == [(f"{server.root}/a", False), (f"{server.root}/one", True)]
