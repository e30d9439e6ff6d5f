"""``fedbench data check-links``: a table of every address, and status 1 if a file has none that works."""

import pytest
from loopback import serving, status, whole

from fedbench.data.files.remote import Remote
from fedbench.data.sources import mnist


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "*")
    for name in ("FEDBENCH_OFFLINE", "FEDBENCH_MIRRORS"):
        monkeypatch.delenv(name, raising=False)
    with serving() as server:
        server.url(whole(b"letters"), path="there")
        server.url(status(404), path="gone")
        yield server


def official(monkeypatch, *remotes):
    monkeypatch.setattr(mnist, "OFFICIAL", [Remote(path, urls, md5="0" * 32) for path, urls in remotes])


def test_a_file_needs_one_address_that_works(fed, server, monkeypatch):
    gone, there = f"{server.root}/gone", f"{server.root}/there"
    official(monkeypatch, ("a", (gone, there)), ("b", (there,)))
    status, out, err = fed("data", "check-links", "mnist_iid")
    assert (status, err) == (0, "")
    assert out[0].split() == ["file", "address", "bytes", "seconds", "status"]
    assert [(w[0], w[1]) for w in map(str.split, out[1:4])] == [("a", gone), ("a", there), ("b", there)]
    assert [line.endswith(end) for line, end in zip(out[1:4], ("404 Not Found", "200 OK", "200 OK"), strict=True)]
    assert out[2].split()[2] == "7"
    assert out[4:] == ["2 of 3 addresses work"]


def test_a_file_without_one_is_status_1(fed, server, monkeypatch):
    official(monkeypatch, ("a", (f"{server.root}/gone",)), ("b", (f"{server.root}/there",)))
    status, out, _ = fed("data", "check-links", "mnist_iid")
    assert status == 1
    assert out[-2:] == [
        "1 of 2 addresses work",
        "a: no address works; name another in data.mirrors or FEDBENCH_MIRRORS",
    ]
    mirror = "data.mirrors={a: '" + f"{server.root}/there" + "'}"
    assert fed("data", "check-links", "mnist_iid", mirror)[0] == 0


def test_all_data_sets(fed, server, monkeypatch):
    """Without a name: the files of every source, here of one that is not asked about anything else."""
    monkeypatch.setattr("fedbench.runs.build_data.iter_modules", lambda _: [type("M", (), {"name": "mnist"})])
    official(monkeypatch, ("a", (f"{server.root}/there",)))
    assert fed("data", "check-links")[0] == 0
    monkeypatch.setenv("FEDBENCH_MIRRORS", server.root)
    assert "1 of 2 addresses work" in fed("data", "check-links")[1]


def test_what_cannot_be_checked(fed, server, monkeypatch):
    assert fed("data", "check-links", "synthetic_iid")[:2] == (0, ["synthetic_iid: no published files"])
    status, _, err = fed("data", "check-links", "mnist_id")
    assert status == 2
    assert "did you mean mnist_iid" in err
    monkeypatch.setenv("FEDBENCH_OFFLINE", "1")
    status, _, err = fed("data", "check-links")
    assert (status, err) == (2, "fedbench: downloads are disabled by FEDBENCH_OFFLINE; unset it\n")
