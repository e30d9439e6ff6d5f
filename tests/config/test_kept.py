"""Compositions in the user's cache."""

import pytest

from fedbench.config import kept
from fedbench.config.experiment_composer import ExperimentComposer
from fedbench.config.kept import KeptCompositions
from fedbench.config.schema import Choices
from fedbench.core.errors import RequestError

NAMES = Choices("fedavg", "mnist_iid", "linear", None)
ASKED = ["experiment=a/b"]


@pytest.fixture(autouse=True)
def tree(tmp_path, monkeypatch):
    """A config tree and an empty cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(kept, "config_dir", lambda: tmp_path / "conf")
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "a.yaml").write_text("rounds: 3\n")
    return tmp_path / "conf"


def composed(value):
    """Return what the cache gives where Hydra would give a value."""
    return KeptCompositions().of(ASKED, lambda: ({"rounds": value}, NAMES))


def test_a_composition_is_kept_while_the_files_stay(tree):
    assert composed(3) == composed(4) == ({"rounds": 3}, NAMES)
    (tree / "a.yaml").write_text("rounds: 5\n")
    assert composed(5) == composed(6) == ({"rounds": 5}, NAMES)
    (tree / "b.yaml").write_text("")
    assert composed(7) == ({"rounds": 7}, NAMES)


def test_other_overrides_have_another_composition():
    composed(3)
    assert KeptCompositions().of(["tracker=csv"], lambda: ({}, NAMES)) == ({}, NAMES)


@pytest.mark.parametrize("content", ["", "[]", "{", '{"state": 1}', "null"])
def test_a_corrupt_file_is_replaced(tmp_path, content, capsys):
    composed(3)
    (file,) = (tmp_path / "cache").rglob("*.json")
    file.write_text(content)
    assert composed(4) == ({"rounds": 4}, NAMES)
    assert composed(5) == ({"rounds": 4}, NAMES)


@pytest.mark.parametrize(("old", "new"), [('"rounds": 3', '"rounds": 9'), ('"model": "linear"', '"model": "mlp"')])
def test_a_changed_value_is_not_believed(tmp_path, old, new, capsys):
    composed(3)
    (file,) = (tmp_path / "cache").rglob("*.json")
    text = file.read_text()
    assert text.count(old) == 1
    file.write_text(text.replace(old, new))
    assert composed(4) == ({"rounds": 4}, NAMES)
    assert f"{file} is corrupt and is replaced (its checksum is wrong)" in capsys.readouterr().err


def test_the_file_of_other_overrides_is_not_believed(tmp_path):
    """A copy under the name of another file, such as a synchronised directory may leave."""
    composed(3)
    (mine,) = (tmp_path / "cache").rglob("*.json")
    others = ["experiment=c/d"]
    KeptCompositions().of(others, lambda: ({"rounds": 5}, NAMES))
    (theirs,) = {*(tmp_path / "cache").rglob("*.json")} - {mine}
    theirs.write_bytes(mine.read_bytes())
    assert KeptCompositions().of(others, lambda: ({"rounds": 6}, NAMES)) == ({"rounds": 6}, NAMES)


def test_what_json_cannot_hold_is_not_kept(tmp_path):
    """JSON would turn the key 3 into text."""
    assert KeptCompositions().of(ASKED, lambda: ({3: 1}, NAMES))[0] == {3: 1}
    assert not list((tmp_path / "cache").rglob("*.json"))


def test_without_a_cache_it_is_said_and_nothing_is_lost(tmp_path, monkeypatch, capsys):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert composed(3) == ({"rounds": 3}, NAMES)
    assert "compositions of config files cannot be kept" in capsys.readouterr().err


def test_overrides_for_all_settings_are_no_part_of_what_is_kept(tmp_path, monkeypatch):
    """Two results directories share one composition; an unknown choice is refused as Hydra's errors are explained."""
    monkeypatch.undo()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for where in ("one", "two"):
        found = ExperimentComposer([f"results_dir={tmp_path / where}"]).without
        assert found.results_dir == tmp_path / where
    assert len(list((tmp_path / "cache").rglob("*.json"))) == 1
    with pytest.raises(RequestError, match="csv"):
        _ = ExperimentComposer(["tracker=csv"]).without


def test_values_of_the_environment_are_those_of_now_and_are_not_kept(tmp_path, monkeypatch):
    monkeypatch.undo()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for where in ("one", "two"):
        monkeypatch.setenv("RUNS", str(tmp_path / where))
        common = ["results_dir=${oc.env:RUNS}/results", "data_dir=${results_dir}/data"]
        composer = ExperimentComposer(common)
        run = composer.config("adafedadam/table5_synthetic", "fedavg", {"rounds": 3})
        for found in (composer.without, run):
            assert found.results_dir == tmp_path / where / "results"
            assert found.data_dir == tmp_path / where / "results" / "data"
        assert run.rounds == 3
    kept_files = [file.read_text() for file in (tmp_path / "cache").rglob("*.json")]
    assert any("${oc.env:RUNS}/results" in text for text in kept_files)
    assert not any(str(tmp_path) in text for text in kept_files)
