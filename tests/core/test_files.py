"""What cannot be written is one line and leaves everything as it was, and what has changed is
found.
"""

import errno
import os
import re
import shutil
from pathlib import Path

import pytest

from fedbench.core.atomic_files import NotWritten, replace_file, replaced_folder, replacing, writing
from fedbench.core.checksums import check_files, file_checksum, read_with_checksum, with_checksum

FULL = OSError(errno.ENOSPC, "No space left on device")


def tree(folder):
    return {
        p.relative_to(folder).as_posix(): p.read_text() for p in folder.rglob("*") if p.is_file()
    }


@pytest.mark.parametrize(
    ("code", "remedy"),
    [
        (errno.ENOSPC, "free some space, then run the command again"),
        (errno.EROFS, "choose a directory on another file system"),
        (errno.ENOENT, "its directory was removed meanwhile"),
    ],
)
def test_the_message_has_path_fault_and_remedy(tmp_path, code, remedy):
    path = tmp_path / "not" / "there"
    fault = os.strerror(code)
    text = str(NotWritten(path, OSError(code, fault)))
    assert text.startswith(f"{path} cannot be written: {fault}; {remedy}")


def test_a_file_that_cannot_be_replaced_is_as_it_was(tmp_path, monkeypatch):
    path = tmp_path / "meta.json"
    replace_file(path, "old", lasting=True)

    def half(self, content):
        with self.open("wb") as file:
            file.write(content[:1])
        raise FULL

    monkeypatch.setattr(Path, "write_bytes", half)
    with pytest.raises(NotWritten, match="meta.json cannot be written: No space left"):
        replace_file(path, "new")
    assert tree(tmp_path) == {"meta.json": "old"}
    with pytest.raises(KeyError), replacing(tmp_path / "a") as part:  # other errors pass
        part.touch()
        raise KeyError
    assert tree(tmp_path) == {"meta.json": "old"}


def test_a_directory_is_replaced_as_a_whole(tmp_path):
    target = tmp_path / "report"
    (target / "tables").mkdir(parents=True)
    (target / "tables" / "old.md").write_text("old")
    (target / "own.txt").write_text("own")
    before = tree(target)

    def change(new):
        assert tree(new) == before
        (new / "tables" / "old.md").unlink()
        (new / "figures").mkdir()
        replace_file(new / "figures" / "new.svg", "new")
        assert tree(target) == before  # until the end

    with pytest.raises(KeyError), replaced_folder(target) as new:
        change(new)
        raise KeyError
    assert tree(target) == before
    with replaced_folder(target) as new:
        change(new)
    assert tree(target) == {"figures/new.svg": "new", "own.txt": "own"}
    assert [p.name for p in tmp_path.iterdir()] == ["report"]


def test_the_old_directory_comes_back_if_the_new_one_cannot_take_its_place(tmp_path, monkeypatch):
    target, real = tmp_path / "report", Path.replace
    target.mkdir()
    (target / "a").write_text("old")

    def replace(self, other):
        if self.name == "new":
            raise OSError(errno.EIO, "Input/output error")
        return real(self, other)

    monkeypatch.setattr(Path, "replace", replace)
    with (
        pytest.raises(NotWritten, match="report cannot be written: Input/output error"),
        replaced_folder(target),
    ):
        pass
    assert tree(tmp_path) == {"report/a": "old"}


def test_a_file_in_a_new_directory_is_named_by_its_place(tmp_path):
    words = f"^{re.escape(str(tmp_path))}/report/a/b cannot be written"
    with (
        pytest.raises(NotWritten, match=words),
        replaced_folder(tmp_path / "report") as new,
        writing(new / "a" / "b"),
    ):
        raise FULL
    assert tree(tmp_path) == {}


def test_a_file_that_has_changed_does_not_have_its_checksum(tmp_path):
    path = tmp_path / "f"
    path.write_text("one\n")
    assert file_checksum(path) == [
        4,
        "2c8b08da5ce60398e1f19af0e5dccc744df274b826abe585eaba68c525434806",
    ]
    known = {"f": file_checksum(path)}
    check_files(tmp_path, known)
    for content in ("onE\n", "one", ""):
        path.write_text(content)
        with pytest.raises(ValueError, match="f has changed since it was written"):
            check_files(tmp_path, known)


def test_every_bit_of_a_document_with_its_checksum_counts(tmp_path):
    path = tmp_path / "f.json"
    path.write_text(with_checksum({"a": [1.5, None]}))
    assert read_with_checksum(path) == {"a": [1.5, None]}
    content = path.read_bytes()
    for bit in range(8 * len(content) - 8):  # the last byte is the end of the line
        changed = bytearray(content)
        changed[bit // 8] ^= 1 << bit % 8
        path.write_bytes(changed)
        with pytest.raises(ValueError, match=r"f\.json has changed"):
            read_with_checksum(path)
    for text in ("", "{}", "[]", '{"sha256": "0", "content": 3}'):
        path.write_text(text)
        with pytest.raises(ValueError, match=r"f\.json has changed"):
            read_with_checksum(path)


def test_a_full_disk_is_one_short_line_however_many_files_a_directory_has(tmp_path, monkeypatch):
    target = tmp_path / "report"
    target.mkdir()
    for number in range(50):
        (target / f"table_{number}.csv").touch()

    def full(source, copy):
        raise OSError(errno.ENOSPC, "No space left on device", copy)

    monkeypatch.setattr(
        shutil.copytree,
        "__defaults__",
        (False, None, full, False, False),
    )
    with pytest.raises(NotWritten) as caught, replaced_folder(target):
        pass
    assert str(caught.value) == (
        f"{target} cannot be written: No space left on device; free some space, "
        "then run the command again"
    )
    assert len(list(target.iterdir())) == 50
    assert [p.name for p in tmp_path.iterdir()] == ["report"]
