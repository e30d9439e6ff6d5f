"""Unpacking: what comes out of good archives, and that nothing comes out of bad ones."""

import gzip
import io
import random
import stat
import tarfile
import threading
import zipfile
from pathlib import Path

import pytest

from fedbench.core.errors import RequestError
from fedbench.data.files import archives
from fedbench.data.files.archives import unpack

FILES = {"set/train/a.txt": b"alpha" * 1000, "set/b.bin": bytes(range(256)), "set/empty": b""}
MOST = 10**6  # bytes
KINDS = ["zip", "tar", "tar.gz", "tar.bz2", "tar.xz"]


def entry(name, kind=tarfile.REGTYPE, *, target="", size=0):
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size = kind, target, size
    return info


def tar(path, *members, mode="w"):
    """``members``: a name and a content, or an entry without one."""
    with tarfile.open(path, mode) as archive:
        for member in members:
            if isinstance(member, tarfile.TarInfo):
                archive.addfile(member)
            else:
                archive.addfile(entry(member[0], size=len(member[1])), io.BytesIO(member[1]))
    return path


def zipped(path, *members):
    """``members``: a name, a content and, for what is no file, its kind."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content, *kind in members:
            info = zipfile.ZipInfo(name)
            info.compress_type = zipfile.ZIP_DEFLATED
            info.create_system, info.external_attr = 3, (kind[0] if kind else stat.S_IFREG) << 16
            archive.writestr(info, content)
    return path


def archive(folder, kind, files=FILES):
    path = folder / f"archive.{kind}"
    if kind == "zip":
        return zipped(path, *files.items())
    return tar(path, *files.items(), mode="w:" + kind.removeprefix("tar").removeprefix("."))


def tree(folder):
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.fixture
def refused(tmp_path):
    """Unpacking ends with an error of one line, and everything is as it was."""

    def check(path, message, target="out", most_bytes=MOST):
        before = sorted(tmp_path.rglob("*"))
        with pytest.raises(RequestError, match=message) as error:
            unpack(path, tmp_path / target, most_bytes=most_bytes)
        assert str(path) in str(error.value)
        assert "\n" not in str(error.value)
        assert sorted(tmp_path.rglob("*")) == before

    return check


# ---- good archives


@pytest.mark.parametrize("kind", KINDS)
def test_all_forms(tmp_path, kind):
    path = archive(tmp_path, kind)
    path = path.rename(tmp_path / "name.says-nothing")
    unpack(path, tmp_path / "new" / "out", most_bytes=5256)
    assert tree(tmp_path / "new" / "out") == FILES
    assert sorted(p.name for p in tmp_path.iterdir()) == ["name.says-nothing", "new"]
    assert [p.name for p in (tmp_path / "new").iterdir()] == ["out"]


def test_a_single_compressed_file(tmp_path):
    path = tmp_path / "train-images-idx3-ubyte.gz"
    path.write_bytes(gzip.compress(b"\0\0\x08\x03" * 300))
    unpack(path, tmp_path, most_bytes=1200)
    assert (tmp_path / "train-images-idx3-ubyte").read_bytes() == b"\0\0\x08\x03" * 300
    assert len(list(tmp_path.iterdir())) == 2


def test_rights_are_those_of_new_files(tmp_path):
    """Neither those in the archive nor those of the private temporary directory."""
    strange = entry("set/secret", size=0)
    strange.mode = 0o4000
    unpack(tar(tmp_path / "a.tar", strange), tmp_path / "out", most_bytes=0)
    (tmp_path / "dir").mkdir()
    (tmp_path / "file").touch()
    assert (tmp_path / "out").stat().st_mode == (tmp_path / "dir").stat().st_mode
    assert (tmp_path / "out" / "set" / "secret").stat().st_mode == (tmp_path / "file").stat().st_mode


def test_directories_and_odd_names(tmp_path):
    members = [("./a/./b//c", b"1"), ("ü 字/..x", b"2"), ("empty/", b"")]
    expected = {"a/b/c": b"1", "ü 字/..x": b"2"}
    unpack(zipped(tmp_path / "a.zip", *members), tmp_path / "zip", most_bytes=2)
    unpack(tar(tmp_path / "a.tar", *members[:2], entry("empty", tarfile.DIRTYPE)), tmp_path / "tar", most_bytes=2)
    for folder in ("zip", "tar"):
        assert tree(tmp_path / folder) == expected
        assert (tmp_path / folder / "empty").is_dir()


def test_into_a_directory_that_is_there(tmp_path):
    out = tmp_path / "out"
    (out / "set" / "train").mkdir(parents=True)
    (out / "set" / "b.bin").write_bytes(b"old")
    (out / "set" / "train" / "own.txt").write_bytes(b"stays")
    (out / "other").write_bytes(b"stays")
    unpack(archive(tmp_path, "zip"), out, most_bytes=MOST)
    assert tree(out) == {**FILES, "set/train/own.txt": b"stays", "other": b"stays"}


def test_two_at_the_same_time(tmp_path):
    path, errors = archive(tmp_path, "tar.gz", {f"set/{i % 7}/{i}": b"%d" % i for i in range(100)}), []

    def work():
        try:
            unpack(path, tmp_path / "out", most_bytes=MOST)
        except RequestError as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not errors
    assert tree(tmp_path / "out") == {f"set/{i % 7}/{i}": b"%d" % i for i in range(100)}


def test_another_process_was_faster(tmp_path, monkeypatch):
    """The directory appears between listing and renaming: then files replace files."""
    look, path = archives._moves, archive(tmp_path, "zip")

    def slow(source, target):
        moves = look(source, target)
        monkeypatch.setattr(archives, "_moves", look)
        unpack(path, target, most_bytes=MOST)
        return moves

    monkeypatch.setattr(archives, "_moves", slow)
    unpack(path, tmp_path / "out", most_bytes=MOST)
    assert tree(tmp_path / "out") == FILES


# ---- what leads out


@pytest.mark.parametrize(
    "name", ["../x", "x/../d", "a/../../x", "/etc/x", "..", "\\x", "..\\x", "C:\\x", "c:x", "//host/x"]
)
def test_names_that_lead_out(tmp_path, refused, name):
    refused(
        zipped(tmp_path / "a.zip", ("good", b"1"), (name, b"2")), "leads out of the directory; nothing was unpacked"
    )
    refused(tar(tmp_path / "a.tar", ("good", b"1"), (name, b"2")), "leads out of the directory; nothing was unpacked")
    refused(tar(tmp_path / "b.tar", entry(name, tarfile.DIRTYPE)), "leads out of the directory; nothing was unpacked")


@pytest.mark.parametrize("target", ["good", "../../x", "/etc/passwd", "\\\\host\\x", "missing", "."])
def test_links(tmp_path, refused, target):
    """No official archive contains one."""
    message = "'set/link' is neither a file nor a directory; nothing was unpacked"
    for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE):
        refused(tar(tmp_path / "a.tar", ("good", b"1"), entry("set/link", kind, target=target)), message)
    refused(zipped(tmp_path / "a.zip", ("good", b"1"), ("set/link", target, stat.S_IFLNK)), message)


def test_nothing_is_written_through_a_link(tmp_path, refused):
    """The classic: a link to a directory, then a file below it."""
    (tmp_path / "victim").mkdir()
    for target in ("../victim", str(tmp_path / "victim")):
        members = [entry("set", tarfile.SYMTYPE, target=target), ("set/x", b"1")]
        refused(tar(tmp_path / "a.tar", *members), "'set' is neither")
    assert list((tmp_path / "victim").iterdir()) == []


def test_a_link_in_the_target_is_the_users_own_affair(tmp_path):
    (tmp_path / "disk2").mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "set").symlink_to(tmp_path / "disk2")
    unpack(archive(tmp_path, "zip"), tmp_path / "out", most_bytes=MOST)
    assert (tmp_path / "disk2" / "b.bin").read_bytes() == FILES["set/b.bin"]


@pytest.mark.parametrize("kind", [tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE])
def test_devices_and_pipes(tmp_path, refused, kind):
    refused(tar(tmp_path / "a.tar", entry("dev", kind)), "'dev' is neither a file nor a directory")


@pytest.mark.parametrize("kind", [stat.S_IFCHR, stat.S_IFBLK, stat.S_IFIFO, stat.S_IFSOCK])
def test_devices_in_a_zip(tmp_path, refused, kind):
    refused(zipped(tmp_path / "a.zip", ("dev", b"", kind)), "'dev' is neither a file nor a directory")


# ---- too much


@pytest.mark.parametrize("kind", KINDS)
def test_bombs(tmp_path, refused, kind):
    path = archive(tmp_path, kind, {"bomb": bytes(3 * 10**6)})
    refused(path, "it unpacks to more than the expected 2999999 bytes", most_bytes=2_999_999)
    unpack(path, tmp_path / "out", most_bytes=3 * 10**6)


def test_a_single_file_bomb(tmp_path, refused):
    (tmp_path / "a.gz").write_bytes(gzip.compress(b"1" * 3 * 10**6))
    refused(tmp_path / "a.gz", "more than the expected 1000000 bytes")


def test_many_files_are_counted_together(tmp_path, refused):
    for kind in KINDS:
        refused(archive(tmp_path, kind), "more than the expected 5255 bytes", most_bytes=5255)


def test_a_zip_whose_header_lies(tmp_path, refused):
    """The directory says 10 bytes; the data are three millions."""
    path = zipped(tmp_path / "a.zip", ("bomb", bytes(3 * 10**6)))
    raw = path.read_bytes()
    assert raw.count((3 * 10**6).to_bytes(4, "little")) == 2
    path.write_bytes(raw.replace((3 * 10**6).to_bytes(4, "little"), (10).to_bytes(4, "little")))
    refused(path, "is corrupt or not an archive")


# ---- corrupt and locked


@pytest.mark.parametrize("kind", [*KINDS, "gz"])
@pytest.mark.parametrize("share", [0.02, 0.3, 0.6, 0.8])
def test_truncated(tmp_path, refused, kind, share):
    noise = random.Random(0).randbytes(50_000)
    if kind == "gz":
        path = tmp_path / "a.gz"
        path.write_bytes(gzip.compress(noise))
    else:
        path = archive(tmp_path, kind, {"set/noise": noise[:30_000], "set/more": noise[30_000:]})
    path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])
    refused(path, "remove it to download it again")


def test_a_changed_byte_in_a_zip_is_noticed(tmp_path, refused):
    """For other archives it is the checksum that does, before anything is unpacked."""
    path = archive(tmp_path, "zip", {"noise": random.Random(0).randbytes(50_000)})
    raw = bytearray(path.read_bytes())
    raw[25_000] ^= 1
    path.write_bytes(raw)
    refused(path, "is corrupt")


@pytest.mark.parametrize("content", [b"", b"<html>Not found</html>", bytes(2000), b"PK\3\4 no zip", b"BZh no bzip"])
def test_not_an_archive(tmp_path, refused, content):
    (tmp_path / "a.zip").write_bytes(content)
    refused(tmp_path / "a.zip", "is corrupt or not an archive")


def test_an_encrypted_zip(tmp_path, refused):
    path = zipped(tmp_path / "a.zip", ("secret", b"text"))
    raw = bytearray(path.read_bytes())
    raw[6] |= 1  # the flags of the file, and of its entry in the directory
    raw[raw.index(b"PK\1\2") + 8] |= 1
    path.write_bytes(raw)
    refused(path, "'secret' is encrypted")


@pytest.mark.parametrize("seed", range(60))
def test_any_damage_is_an_error_of_one_kind(tmp_path, seed):
    """Bytes overwritten anywhere: RequestError or files inside, and nothing else left."""
    rng = random.Random(seed)
    path = archive(tmp_path, KINDS[seed % len(KINDS)])
    raw = bytearray(path.read_bytes())
    for _ in range(rng.randint(1, 8)):
        raw[rng.randrange(len(raw))] = rng.randrange(256)
    path.write_bytes(raw)
    try:
        unpack(path, tmp_path / "out", most_bytes=MOST)
    except RequestError:
        assert list(tmp_path.iterdir()) == [path]
    else:
        assert {p.name for p in tmp_path.iterdir()} == {path.name, "out"}


# ---- the target


def test_a_file_where_a_directory_belongs(tmp_path, refused):
    (tmp_path / "out" / "set").mkdir(parents=True)
    (tmp_path / "out" / "set" / "train").write_bytes(b"a file")
    refused(archive(tmp_path, "zip"), "set/train exists and is a file")
    (tmp_path / "taken").write_bytes(b"a file")
    refused(archive(tmp_path, "zip"), "taken exists and is a file", target="taken")
    refused(archive(tmp_path, "zip"), "cannot be unpacked into", target="taken/below")


def test_no_such_archive(tmp_path, refused):
    refused(tmp_path / "none.zip", "cannot be unpacked into .*No such file")


def fails_half_way(error):
    def extract(packed, path, **options):
        (Path(path) / "half").write_bytes(b"half")
        raise error

    return extract


def test_a_full_disk_leaves_nothing(tmp_path, refused, monkeypatch):
    monkeypatch.setattr(tarfile.TarFile, "extractall", fails_half_way(OSError(28, "No space left on device")))
    refused(archive(tmp_path, "tar.gz"), "No space left on device")


def test_an_interruption_leaves_nothing(tmp_path, monkeypatch):
    path = archive(tmp_path, "zip")
    monkeypatch.setattr(zipfile.ZipFile, "extractall", fails_half_way(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        unpack(path, tmp_path / "deep" / "out", most_bytes=MOST)
    assert [p.name for p in tmp_path.iterdir()] == [path.name]
