"""Text from environment variables is in the run and in its identity, and in no file of it."""

import json

import pytest

from fedbench.config.masking import MASK, from_environment, harmless, masked
from fedbench.runs.start import run

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
