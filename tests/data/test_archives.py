"""Unpacking: what comes out of good archives, and that nothing comes out of bad ones."""

import bz2
import gzip
import io
import lzma
import os
import random
import stat
import tarfile
import threading
import zipfile
import zlib

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


@pytest.mark.parametrize(("module", "ending"), [(gzip, "gz"), (bz2, "bz2"), (lzma, "xz")])
def test_a_single_compressed_file(tmp_path, module, ending):
    path = tmp_path / f"train-images-idx3-ubyte.{ending}"
    path.write_bytes(module.compress(b"\0\0\x08\x03" * 300))
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


def test_directories_odd_names_and_windows_names(tmp_path):
    members = [("./a/./b//c", b"1"), ("x/../d", b"2"), ("e\\f", b"3"), ("ü 字/..x", b"4"), ("empty/", b"")]
    expected = {"a/b/c": b"1", "d": b"2", "e/f": b"3", "ü 字/..x": b"4"}
    unpack(zipped(tmp_path / "a.zip", *members), tmp_path / "zip", most_bytes=4)
    unpack(tar(tmp_path / "a.tar", *members[:4], entry("empty", tarfile.DIRTYPE)), tmp_path / "tar", most_bytes=4)
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


def test_links_inside_become_copies(tmp_path):
    members = [
        ("set/a", b"alpha"),
        entry("set/sub/up", tarfile.SYMTYPE, target="../a"),
        entry("hard", tarfile.LNKTYPE, target="set/a"),
        entry("again", tarfile.SYMTYPE, target="hard"),
    ]
    expected = dict.fromkeys(("set/a", "set/sub/up", "hard", "again"), b"alpha")
    unpack(tar(tmp_path / "a.tar", *members), tmp_path / "tar", most_bytes=20)
    assert tree(tmp_path / "tar") == expected
    links = [("set/a", b"alpha"), ("set/sub/up", b"../a", stat.S_IFLNK)]
    unpack(zipped(tmp_path / "a.zip", *links), tmp_path / "zip", most_bytes=10)
    assert tree(tmp_path / "zip") == {"set/a": b"alpha", "set/sub/up": b"alpha"}
    assert not any(p.is_symlink() for p in tmp_path.rglob("*"))


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
    """The directory appears between looking and renaming: then files replace files."""
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
    "name", ["../x", "a/../../x", "/etc/x", "..", "\\x", "..\\x", "C:\\x", "c:x", "//host/x", "a/b/../../../x"]
)
def test_names_that_lead_out(tmp_path, refused, name):
    refused(
        zipped(tmp_path / "a.zip", ("good", b"1"), (name, b"2")), "leads out of the directory; nothing was unpacked"
    )
    refused(tar(tmp_path / "a.tar", ("good", b"1"), (name, b"2")), "leads out of the directory; nothing was unpacked")
    refused(tar(tmp_path / "b.tar", entry(name, tarfile.DIRTYPE)), "leads out of the directory; nothing was unpacked")


@pytest.mark.parametrize("target", ["../../x", "/etc/passwd", "../../out/../x", "\\\\host\\x"])
def test_links_that_lead_out(tmp_path, refused, target):
    message = "'set/link -> .*' leads out of the directory"
    refused(tar(tmp_path / "a.tar", entry("set/link", tarfile.SYMTYPE, target=target)), message)
    refused(zipped(tmp_path / "a.zip", ("set/link", target, stat.S_IFLNK)), message)
    refused(tar(tmp_path / "b.tar", entry("set/link", tarfile.LNKTYPE, target="../x")), message)


def test_nothing_is_written_through_a_link(tmp_path, refused):
    """The classic: a link to a directory, then a file below it."""
    (tmp_path / "victim").mkdir()
    members = [entry("set", tarfile.SYMTYPE, target="../victim"), ("set/x", b"1")]
    refused(tar(tmp_path / "a.tar", *members), "leads out")
    inside = [("real/y", b"2"), entry("set", tarfile.SYMTYPE, target="real"), ("set/x", b"1")]
    refused(tar(tmp_path / "b.tar", *inside), "link set leads to no file in it")
    assert list((tmp_path / "victim").iterdir()) == []


def test_a_link_in_the_target_is_the_users_own_affair(tmp_path):
    (tmp_path / "disk2").mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "set").symlink_to(tmp_path / "disk2")
    unpack(archive(tmp_path, "zip"), tmp_path / "out", most_bytes=MOST)
    assert (tmp_path / "disk2" / "b.bin").read_bytes() == FILES["set/b.bin"]


@pytest.mark.parametrize("target", ["missing", "set/link", "."])
def test_links_to_nothing(tmp_path, refused, target):
    refused(tar(tmp_path / "a.tar", entry("set/link", tarfile.LNKTYPE, target=target)), "leads to no file in it")


@pytest.mark.parametrize("kind", [tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE])
def test_devices_and_pipes(tmp_path, refused, kind):
    refused(tar(tmp_path / "a.tar", entry("dev", kind)), "'dev' in it is neither a file nor a directory")


@pytest.mark.parametrize("kind", [stat.S_IFCHR, stat.S_IFBLK, stat.S_IFIFO, stat.S_IFSOCK])
def test_devices_in_a_zip(tmp_path, refused, kind):
    refused(zipped(tmp_path / "a.zip", ("dev", b"", kind)), "'dev' in it is neither a file nor a directory")


# ---- too much


@pytest.mark.parametrize("kind", KINDS)
def test_bombs(tmp_path, refused, kind):
    path = archive(tmp_path, kind, {"bomb": bytes(3 * 10**6)})
    refused(path, "unpacked it takes more than the 2999999 bytes expected", most_bytes=2_999_999)
    unpack(path, tmp_path / "out", most_bytes=3 * 10**6)


def test_a_single_file_bomb(tmp_path, refused):
    (tmp_path / "a.gz").write_bytes(gzip.compress(bytes(3 * 10**6)))
    refused(tmp_path / "a.gz", "more than the 1000000 bytes expected")


def test_many_files_are_counted_together(tmp_path, refused):
    refused(archive(tmp_path, "zip"), "more than the 5255 bytes", most_bytes=5255)
    links = [entry(f"copy{i}", tarfile.LNKTYPE, target="a") for i in range(10)]
    refused(tar(tmp_path / "a.tar", ("a", bytes(10**5)), *links), "more than the 1000000 bytes")


def test_a_zip_whose_header_lies(tmp_path, refused):
    """The directory says 10 bytes; the data are three millions."""
    path = zipped(tmp_path / "a.zip", ("bomb", bytes(3 * 10**6)))
    raw = path.read_bytes()
    assert raw.count((3 * 10**6).to_bytes(4, "little")) == 2
    path.write_bytes(raw.replace((3 * 10**6).to_bytes(4, "little"), (10).to_bytes(4, "little")))
    refused(path, "is damaged or no archive")


@pytest.mark.parametrize("kind", ["zip", "tar.gz"])
def test_the_number_of_entries(tmp_path, refused, monkeypatch, kind):
    path = archive(tmp_path, kind, {f"{i}": b"" for i in range(11)})
    monkeypatch.setattr(archives, "_MOST_ENTRIES", 10)
    refused(path, "it holds more than 10 entries")
    monkeypatch.setattr(archives, "_MOST_ENTRIES", 11)
    unpack(path, tmp_path / "out", most_bytes=0)


def test_a_header_that_would_fill_the_memory(tmp_path, refused):
    """A name of three megabytes."""
    refused(tar(tmp_path / "a.tar.gz", ("n" * 3 * 10**6, b""), mode="w:gz"), "more than 1048576 bytes where a header")


def test_zeros_behind_the_end(tmp_path, refused):
    path = tar(tmp_path / "a.tar", ("a", b"1"))
    (tmp_path / "a.tar.gz").write_bytes(gzip.compress(path.read_bytes() + bytes(3 * 10**6)))
    refused(tmp_path / "a.tar.gz", "more than 1048576 bytes where a header or the end should be")


# ---- damaged and locked


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
    refused(path, "remove it and fetch it again")


def test_a_tar_that_ends_between_two_files(tmp_path, refused):
    path = tar(tmp_path / "a.tar", ("a", bytes(512)), ("b", bytes(512)))
    path.write_bytes(path.read_bytes()[: 2 * 512])  # the first file, whole
    refused(path, "its end is missing")


@pytest.mark.parametrize("kind", ["zip", "tar.gz", "tar.xz"])
def test_a_changed_byte_is_noticed(tmp_path, refused, kind):
    path = archive(tmp_path, kind, {"noise": random.Random(0).randbytes(50_000)})
    raw = bytearray(path.read_bytes())
    raw[25_000] ^= 1
    path.write_bytes(raw)
    refused(path, "is damaged")


def test_a_wrong_checksum_at_the_end_of_a_tar_gz(tmp_path, refused):
    path = archive(tmp_path, "tar.gz")
    raw = path.read_bytes()
    assert int.from_bytes(raw[-8:-4], "little") == zlib.crc32(gzip.decompress(raw))
    path.write_bytes(raw[:-8] + bytes(4) + raw[-4:])
    refused(path, "CRC check failed")


@pytest.mark.parametrize("content", [b"", b"<html>Not found</html>", bytes(2000), b"PK\3\4 no zip", b"BZh no bzip"])
def test_not_an_archive(tmp_path, refused, content):
    (tmp_path / "a.zip").write_bytes(content)
    refused(tmp_path / "a.zip", "no archive|cannot be unpacked")


def test_an_encrypted_zip(tmp_path, refused):
    path = zipped(tmp_path / "a.zip", ("secret", b"text"))
    raw = bytearray(path.read_bytes())
    raw[6] |= 1  # the flags of the file, and of its entry in the directory
    raw[raw.index(b"PK\1\2") + 8] |= 1
    path.write_bytes(raw)
    refused(path, "'secret' in it is encrypted")


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
    refused(archive(tmp_path, "zip"), "set/train is a file already")
    (tmp_path / "taken").write_bytes(b"a file")
    refused(archive(tmp_path, "zip"), "taken is a file already", target="taken")
    refused(archive(tmp_path, "zip"), "cannot be unpacked into", target="taken/below")


def test_no_such_archive(tmp_path, refused):
    refused(tmp_path / "none.zip", "cannot be unpacked into .*No such file")


def test_a_full_disk_leaves_nothing(tmp_path, refused, monkeypatch):
    def full(self, path, content):
        (self.root / path.name).write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(archives._Tree, "write", full)
    refused(archive(tmp_path, "tar.gz"), "No space left on device")


def test_an_interruption_leaves_nothing(tmp_path, monkeypatch):
    def interrupt(self, path, content):
        (self.root / path.name).write_bytes(b"half")
        raise KeyboardInterrupt

    path = archive(tmp_path, "zip")
    monkeypatch.setattr(archives._Tree, "write", interrupt)
    with pytest.raises(KeyboardInterrupt):
        unpack(path, tmp_path / "deep" / "out", most_bytes=MOST)
    assert os.listdir(tmp_path) == [path.name]  # noqa: PTH208
