"""Archives and pickles from elsewhere: nothing is written outside, nothing is called."""

import io
import pickle
import tarfile
import zipfile

import numpy as np
import pytest

from fedbench.core.errors import RequestError
from fedbench.data.files.fetch import unpack
from fedbench.data.files.readers import read_pickle


def tar(path, *members, mode="w:gz"):
    with tarfile.open(path, mode) as packed:
        for name, content in members:
            entry = tarfile.TarInfo(name)
            if isinstance(content, bytes):
                entry.size = len(content)
                packed.addfile(entry, io.BytesIO(content))
            else:
                entry.type, entry.linkname = tarfile.SYMTYPE, content
                packed.addfile(entry)


@pytest.mark.parametrize("form", ["w:gz", "w:bz2", "w:xz", "w", "zip"])
def test_files_join_those_that_are_there(tmp_path, form):
    packed, target = tmp_path / "a.any", tmp_path / "target"
    (target / "d").mkdir(parents=True)
    (target / "d" / "old").write_text("old")
    (target / "d" / "both").write_text("old")
    if form == "zip":
        with zipfile.ZipFile(packed, "w") as z:
            z.writestr("d/both", "new")
            z.writestr("e/new", "new")
    else:
        tar(packed, ("d/both", b"new"), ("e/new", b"new"), mode=form)
    unpack(packed, target)
    found = {p.relative_to(target).as_posix(): p.read_text() for p in target.rglob("*") if p.is_file()}
    assert found == {"d/old": "old", "d/both": "new", "e/new": "new"}


@pytest.mark.parametrize("member", [("../out", b"x"), ("/tmp/../../out", b"x"), ("link", "../../out")])
def test_members_that_lead_out_are_refused_and_nothing_is_unpacked(tmp_path, member):
    tar(tmp_path / "a.tgz", ("good", b"x"), member)
    with pytest.raises(RequestError, match="a.tgz cannot be unpacked into .*outside"):
        unpack(tmp_path / "a.tgz", tmp_path / "deep" / "target")
    assert [p.name for p in tmp_path.rglob("*")] == ["a.tgz", "deep", "target"] or not list(
        (tmp_path / "deep" / "target").iterdir()
    )


def test_names_in_a_zip_that_lead_out_stay_inside(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as z:
        z.writestr("../../out", "x")
    unpack(tmp_path / "a.zip", tmp_path / "deep" / "target")
    assert [p.relative_to(tmp_path).as_posix() for p in tmp_path.rglob("out")] == ["deep/target/out"]


@pytest.mark.parametrize("cut", [0, 40, 1500])
@pytest.mark.parametrize("form", ["w:gz", "zip"])
def test_corrupt_archives_leave_nothing(tmp_path, form, cut):
    packed, content = tmp_path / "a", np.random.default_rng(0).bytes(3000)
    if form == "zip":
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as z:
            z.writestr("x", content)
    else:
        tar(packed, ("x", content))
    packed.write_bytes(packed.read_bytes()[:cut])
    with pytest.raises(RequestError, match="cannot be unpacked into .*if it is corrupt, remove it"):
        unpack(packed, tmp_path / "target")
    assert not list((tmp_path / "target").iterdir())


@pytest.mark.parametrize("protocol", [2, 4])
def test_pickles_of_arrays_are_read(tmp_path, protocol):
    content = {"data": np.arange(6, dtype=np.uint8).reshape(2, 3), "labels": [1, 2], b"names": [b"x", None, (1.5,)]}
    (tmp_path / "p").write_bytes(pickle.dumps(content, protocol=protocol))
    found = read_pickle(tmp_path / "p")
    assert np.array_equal(found.pop("data"), content.pop("data"))
    assert found == content


class Calls:
    def __init__(self, function, *arguments):
        self.reduced = function, arguments

    def __reduce__(self):
        return self.reduced


@pytest.mark.parametrize("function", [exec, eval, open, np.save, np.load, pickle.loads])
def test_a_pickle_calls_nothing(tmp_path, function):
    (tmp_path / "p").write_bytes(pickle.dumps({"data": Calls(function, str(tmp_path / "made"), "w")}))
    with pytest.raises(pickle.UnpicklingError, match="it refers to "):
        read_pickle(tmp_path / "p")
    assert not (tmp_path / "made").exists()
