"""Mirrors of the user's own come before the published addresses, whatever else is said."""

import gzip
import hashlib

import numpy as np
import pytest
from data_files import write_idx
from loopback import serving, status, whole

from fedbench.core.errors import RequestError
from fedbench.core.mirrors import Mirror, mirrors_of
from fedbench.data.files.download import Remote, ensure
from fedbench.data.files.mirrors import addresses, shown, using
from fedbench.data.sources import mnist

A = Remote("set/raw/a.bin", ("https://one/a.bin", "https://two/b"), md5="0" * 32)


@pytest.fixture(autouse=True)
def surroundings(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "*")
    for name in ("FEDBENCH_OFFLINE", "FEDBENCH_MIRRORS"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("value", "address"),
    [
        (["http://m/"], "http://m/set/raw/a.bin"),
        ({"set/raw": "http://m"}, "http://m/a.bin"),
        ({"/set/": "http://m/x/"}, "http://m/x/raw/a.bin"),
        ({"set/raw/a.bin": "http://m/other.name"}, "http://m/other.name"),
        ({"": "http://m"}, "http://m/set/raw/a.bin"),
        ({"se": "http://m"}, None),
        ({"set/raw/a": "http://m"}, None),
    ],
)
def test_a_list_is_laid_out_as_data_dir_and_a_map_replaces_the_beginning_of_a_path(value, address):
    with using(mirrors_of("data.mirrors", value)):
        assert addresses(A) == ((address,) if address else ()) + A.urls
    assert addresses(A) == A.urls


@pytest.mark.parametrize("value", [None, [], {}])
def test_no_mirrors(value):
    assert mirrors_of("data.mirrors", value) == ()


@pytest.mark.parametrize(
    ("value", "got"), [("http://m", "'http://m'"), (["ftp://m"], "'ftp://m'"), ([3], "3"), ({"a": None}, "null")]
)
def test_what_is_no_list_and_no_map_of_addresses(value, got):
    with pytest.raises(RequestError, match=f"^data.mirrors must be a list of addresses .*, or a map .*, got {got}$"):
        mirrors_of("data.mirrors", value)


def test_the_environment_names_mirrors_too(monkeypatch):
    """After those of the configuration; an address with an equals sign is still one."""
    monkeypatch.setenv("FEDBENCH_MIRRORS", "https://e/?key=1, set/raw=https://f  set/raw/a.bin=https://g?x=2")
    with using((Mirror("", "https://c"),)):
        assert addresses(A) == (
            "https://c/set/raw/a.bin", "https://e/?key=1/set/raw/a.bin", "https://f/a.bin", "https://g?x=2", *A.urls,
        )  # fmt: skip
    monkeypatch.setenv("FEDBENCH_MIRRORS", "example.org")
    with pytest.raises(RequestError, match="^FEDBENCH_MIRRORS must be .*, got 'example.org'$"):
        addresses(A)


def test_mirrors_are_asked_only_for_what_is_public_and_has_a_checksum():
    with using((Mirror("", "http://m"),)):
        assert addresses(Remote("a", (), md5="0" * 32)) == ()
        assert addresses(Remote("a", ("http://one/a",))) == ("http://one/a",)


def test_messages_show_no_password():
    assert shown("https://me:secret@m:81/a?b=c") == "https://m:81/a?b=c"


def test_the_password_of_a_mirror_is_in_no_message(tmp_path, capsys):
    with serving() as server, using((Mirror("", server.root.replace("//", "//me:secret@")),)):
        remote = Remote("a", (server.url(status(404), path="gone"),), md5="0" * 32)
        with pytest.raises(RequestError, match="404") as error:
            ensure([remote], tmp_path, download=True, what="Letters")
    assert "secret" not in str(error.value) + "".join(capsys.readouterr())


def test_a_data_set_comes_from_a_mirror_and_wrong_bytes_do_not(tmp_path, monkeypatch):
    """The official files of MNIST: one server has another file for one of them, a second serves its data_dir."""
    write_idx(tmp_path / "official")
    packed = {f.name: gzip.compress(f.read_bytes()) for f in (tmp_path / "official").iterdir()}
    with serving() as wrong, serving() as right:
        for k, (name, raw) in enumerate(packed.items()):
            wrong.url(whole(raw if k else raw[::-1]), path=f"MNIST/raw/{name}.gz")
            right.url(whole(raw), path=f"m/{name}.gz")
        remotes = [
            Remote(f"MNIST/raw/{name}.gz", ("http://127.0.0.1:9/x",), md5=hashlib.md5(packed[name]).hexdigest())
            for name in mnist._MD5
        ]
        monkeypatch.setattr(mnist, "_PACKED", remotes)
        monkeypatch.setenv("FEDBENCH_MIRRORS", f"MNIST/raw={right.root}/m")
        with using((Mirror("", wrong.root),)):
            got = mnist.load(tmp_path / "data")
        assert (len(wrong.requests), len(right.requests)) == (4, 1)
    write_idx(tmp_path / "there" / "MNIST" / "raw")
    assert np.array_equal(got.x, mnist.load(tmp_path / "there", download=False).x)
