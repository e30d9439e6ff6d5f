"""``fedbench new``: every scaffold passes its own test and runs as it is."""

import os
import re
import subprocess
import sys

import pytest
from tools import ROOT

from fedbench.commands.new import KINDS

# of algorithm, model, data, partition, metric, attack, defence, compression and --parts
TESTS = 5 + 2 + 3 + 3 + 2 + 2 + 3 + 6 + 5


def written(fed, kind, *more):
    status, out, err = fed("new", kind, f"my_{kind}", *more)
    assert status == 0, err
    return out


@pytest.mark.slow
def test_their_own_tests_pass(fed, tmp_path):
    for kind in KINDS:
        out = written(fed, kind, "--into", "mine")
        assert out[:5] == [
            f"written: mine/my_{kind}.py",
            f"written: mine/{KINDS[kind][0]}/my_{kind}.yaml",
            f"written: mine/test_my_{kind}.py",
            "try next:",
            f"  python -m pytest mine/test_my_{kind}.py",
        ]
    status, _, err = fed("new", "algorithm", "my_parts", "--parts", "--into", "mine")
    assert status == 0, err
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "mine"]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "FEDBENCH_OFFLINE": "1"}
    done = subprocess.run(
        command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout
    assert re.search(rf"^{TESTS} passed", done.stdout, re.M)


def test_parts_are_of_algorithms(fed, tmp_path):
    status, _, err = fed("new", "model", "my_model", "--parts")
    assert status == 2
    assert "--parts is for an algorithm, got model" in err
    assert not (tmp_path / "own").exists()


# its own test has a run without a download
@pytest.mark.slow
@pytest.mark.parametrize(
    "kind",
    [k for k in KINDS if k != "partition"],
)
def test_the_command_that_is_printed_runs(fed, kind):
    out = written(fed, kind)
    words = out[5].split()
    assert words[:3] == ["fedbench", "--config-dir", "own"]
    words = [word for word in words if not word.startswith("rounds=")]
    status, lines, err = fed(*words[1:], "rounds=2")
    assert status == 0
    assert err.count("\n") == 1
    assert "after 2 rounds" in lines[-2]
    if kind == "algorithm":
        _, card, _ = fed("list", "algo", f"my_{kind}", "--config-dir", "own")
        assert card[-1] == f"use: {' '.join(words[:4])}"


def test_all_in_one_directory(fed, tmp_path):
    """They are choices of their groups, and go together."""
    for kind in KINDS:
        written(fed, kind)
    keys = "algo=my_algorithm data=my_data model=my_model +metrics=my_metric rounds=2"
    keys += " attack=my_attack"  # my_algorithm does not declare its kinds, which the others need
    status, out, err = fed("--config-dir", "own", *keys.split())
    assert status == 0, err
    assert "my_data my_algorithm" not in err
    assert out[-1].startswith("results/my_data/my_algorithm/")


def test_nothing_is_overwritten(fed, refuse, tmp_path):
    written(fed, "model")
    code = tmp_path / "own" / "my_model.py"
    file = tmp_path / "own" / "model" / "my_model.yaml"
    code.write_text("mine")
    file.unlink()
    err = refuse("new", "model", "my_model")
    assert "own/my_model.py exists already and is not overwritten; use another name" in err
    assert code.read_text() == "mine"
    assert not file.exists()
