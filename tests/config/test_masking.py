"""Text from environment variables is in the run and in its identity, and in no file of it."""

import json
import os

import pytest

from fedbench.cli import main
from fedbench.commands.launch import Job
from fedbench.config.compose import Composer
from fedbench.config.masking import MASK, from_environment, harmless, masked, secrets, without
from fedbench.runs.start import run
from fedbench.runs.train import Session

ALGO = """_target_: own_method.make
token: ${oc.env:FEDBENCH_TEST_TOKEN}
copy: ${algo.token}-x
near: ${.token}
lr: ${oc.decode:${oc.env:FEDBENCH_TEST_LR}}
"""
CODE = """from fedbench import Algorithm


def make(token, copy, near, lr):
    assert (token, copy, near) == ("hunter2", "hunter2-x", "hunter2")
    return Algorithm()
"""


def test_stored_files_have_a_mask(tmp_path, monkeypatch):
    own = tmp_path / "own"
    (own / "algo").mkdir(parents=True)
    (own / "algo/own_one.yaml").write_text(ALGO)
    (own / "own_method.py").write_text(CODE)
    monkeypatch.setenv("FEDBENCH_TEST_TOKEN", "hunter2")
    paths = []
    for lr in ("0.5", "0.5", "0.25"):
        monkeypatch.setenv("FEDBENCH_TEST_LR", lr)
        overrides = ["experiment=smoke", "algo=own_one", "rounds=1", f"results_dir={tmp_path / 'out'}"]
        paths.append(run(overrides, config_dir=own).path)
    assert paths[0] == paths[1] != paths[2]  # found again, and identity has the true values
    for file in (f for f in (tmp_path / "out").rglob("*") if f.is_file()):
        assert b"hunter2" not in file.read_bytes(), file
    text = (paths[0] / "config.yaml").read_text()
    assert text.count(MASK) == 3
    assert "lr: 0.5" in text
    assert json.loads((paths[0] / "meta.json").read_text())["status"] == "done"


@pytest.mark.parametrize("sweep", [False, True])
def test_the_error_of_a_failed_run_has_a_mask(tmp_path, monkeypatch, capsys, sweep):
    """In meta.json and in the note of a sweep; the terminal shows it."""
    own = tmp_path / "own"
    (own / "algo").mkdir(parents=True)
    (own / "algo/own_one.yaml").write_text(ALGO)
    (own / "own_method.py").write_text(CODE.replace('"hunter2"', "copy[:-2]").replace('"hunter2-x"', "copy"))
    monkeypatch.setenv("FEDBENCH_TEST_TOKEN", "hunter2\n\tand more")
    monkeypatch.setenv("FEDBENCH_TEST_LR", "0.5")

    def refused(self, *_):
        token = os.environ["FEDBENCH_TEST_TOKEN"]
        raise ValueError(f"401: {token!r} was refused, https://user:{token}-x@host\n{token}")

    monkeypatch.setattr(Session, "consume", refused)
    words = ["-m"] * sweep + ["--config-dir", str(own), "experiment=smoke", "algo=own_one", "rounds=1"]
    assert main([*words, f"results_dir={tmp_path / 'out'}"]) == 1
    files = [f for f in (tmp_path / "out").rglob("*") if f.is_file()]
    assert len([f for f in files if b"401" in f.read_bytes()]) == 1 + sweep
    for file in files:
        assert b"hunter2" not in file.read_bytes(), file
    (meta,) = (json.loads(f.read_text()) for f in files if f.name == "meta.json")
    assert meta["error"].startswith(f"ValueError: 401: '{MASK}' was refused, https://user:{MASK}@host\n{MASK}")


def test_the_note_of_a_refused_run_has_a_mask(tmp_path, monkeypatch):
    """Also where the configuration is refused, so that there is none that knows its secrets."""
    monkeypatch.setenv("FEDBENCH_TEST_TOKEN", "hunter2")
    job = Job(Composer(), loud=False)
    for number, texts in enumerate((["rounds=x${oc.env:FEDBENCH_TEST_TOKEN}"], ["algo.nothing=1"])):
        job.carry_out(number, texts, tmp_path)
    first, second = (json.loads(f.read_text()) for f in sorted((tmp_path / "runs").iterdir()))
    assert (first["status"], second["status"]) == ("refused", "refused")
    assert first["error"] == f"rounds must be an integer >= 0, got 'x{MASK}'"
    assert second["error"].startswith("unknown key algo.nothing")


def test_secrets_in_a_message():
    assert without("ab a 'a' a-b", ["a"]) == f"ab {MASK} '{MASK}' {MASK}-b"
    assert without("abcdef abcd", ["abcd", "abcdef"]) == f"{MASK} {MASK}"
    assert without("nothing", []) == "nothing"


def test_secrets_of_a_configuration(monkeypatch):
    """The value of a key, and that of the variable that is a part of it; numbers and harmless keys are none."""
    monkeypatch.setenv("FEDBENCH_TEST_TOKEN", "tok")
    written = {"algo": {"a": "x/${oc.env:FEDBENCH_TEST_TOKEN}", "b": ["${algo.a}", 1]}, "data_dir": "${oc.env:HOME}"}
    tree = {"algo": {"a": "x/tok", "b": ["x/tok", 1]}, "data_dir": "/home"}
    assert secrets(written, tree, from_environment(written)) == ("tok", "x/tok")


def test_keys_that_come_from_the_environment():
    written = {
        "data_dir": "${oc.env:D,x}",
        "results_dir": "out",
        "algo": {"a": "${oc.env:T}", "b": "${.a}", "c": "${algo.b}", "d": "plain", "e": ["x", "${..algo.a}"]},
        "model": {"f": "${algo}", "g": 3},
    }
    assert from_environment(written) == {"algo.a", "algo.b", "algo.c", "algo.e", "model.f"}
    assert from_environment({"algo": {"a": "${results_dir}"}, "results_dir": "x"}) == frozenset()


@pytest.mark.parametrize(
    "key", ["data_dir", "results_dir", "seed", "device", "data.file", "data.source.root", "local.lr"]
)
def test_harmless(key):
    assert harmless(key)
    assert not harmless(f"algo.{key}")


def test_only_text_is_masked():
    tree = {"algo": {"a": "t", "b": 1.5, "c": ["t", 2], "d": "t", "e": None}}
    keys = frozenset({"algo.a", "algo.b", "algo.c", "algo.e"})
    assert masked(tree, keys) == {"algo": {"a": MASK, "b": 1.5, "c": [MASK, 2], "d": "t", "e": None}}
