"""Choices in the user's cache: one file for each case, written in one step, and measured again where it is corrupt."""

import json

import pytest
from filelock import FileLock, Timeout

from fedbench.runs.choice_cache import ChoiceCache

CASE = {"device": "a GPU", "clients": 3, "parameters": [["w", 2, 3]]}
KEPT = {"form": {"mode": "loop"}, "measured": {"loop": 0.25}}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "fedbench" / "forms"


def test_what_is_kept_is_found_again_for_the_same_case_only(folder):
    assert ChoiceCache(CASE).read() is None
    ChoiceCache(CASE).write(KEPT)
    assert ChoiceCache(dict(reversed(CASE.items()))).read() == KEPT
    assert ChoiceCache({**CASE, "clients": 4}).read() is None
    assert len(list(folder.iterdir())) == 1  # and no unfinished file
    assert folder.stat().st_mode & 0o777 == 0o700


def test_a_second_measurement_replaces_the_first():
    ChoiceCache(CASE).write(KEPT)
    ChoiceCache(CASE).write({"form": {}})
    assert ChoiceCache(CASE).read() == {"form": {}}


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"case": {}, "kept": {}}', '{"kept": {"form": {}}}'])
def test_a_corrupt_file_counts_as_missing(folder, text, capsys):
    ChoiceCache(CASE).write(KEPT)
    (file,) = folder.iterdir()
    file.write_text(text)
    assert ChoiceCache(CASE).read() is None
    assert ("is corrupt; measuring again" in capsys.readouterr().err) == (text in ("", "{"))
    ChoiceCache(CASE).write(KEPT)
    assert ChoiceCache(CASE).read() == KEPT


def test_what_is_kept_must_be_a_mapping(folder):
    ChoiceCache(CASE).write(KEPT)
    (file,) = folder.iterdir()
    file.write_text(json.dumps({"case": CASE, "kept": 3}))
    assert ChoiceCache(CASE).read() is None


def test_without_a_cache_nothing_is_kept_and_it_is_said(folder, capsys):
    folder.parent.write_text("a file in the place of the directory")
    cache = ChoiceCache(CASE)
    assert "cannot be kept" in capsys.readouterr().err
    with cache.held("GPU-1"):
        cache.write(KEPT)
        assert cache.read() is None


def test_one_case_at_a_time_is_measured_on_a_device(folder):
    """Whatever the case; the other GPUs of a machine are not waited for."""
    with ChoiceCache(CASE).held("GPU-1"):
        (first,) = folder.iterdir()
        with pytest.raises(Timeout):
            FileLock(first).acquire(timeout=0)
        with ChoiceCache({**CASE, "clients": 4}).held("GPU-2"):
            assert len(list(folder.iterdir())) == 2
    FileLock(first).acquire(timeout=0).lock.release()
    with ChoiceCache({**CASE, "clients": 4}).held("GPU-1"), pytest.raises(Timeout):
        FileLock(first).acquire(timeout=0)
