"""Runs that are killed or have no space end cleanly, and end with the bytes of one left alone;
damage is found.
"""

import itertools
import json
import signal
import subprocess
import sys
from collections import defaultdict

import pytest
from command_line import FAST, run_dir
from net import kills
from tools import ROOT

pytestmark = pytest.mark.processes


def outcomes(folder, *suites):
    """What became of the runs of suites of tests/net/kills.py."""
    command = [sys.executable, str(ROOT / "tests" / "net" / "kills.py"), str(folder), *suites]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def resumed(runs):
    for run in runs:
        assert (run["first"], run["again"], run["same"]) == (-signal.SIGKILL, 0, True), run


@pytest.fixture(scope="module")
def few(tmp_path_factory):
    return outcomes(tmp_path_factory.mktemp("few"), "rounds", "some_operations", "full")


def test_a_run_that_is_killed_at_operations_on_files_resumes(few):
    resumed(few["some_operations"])
    assert len(few["some_operations"]) > 3


@pytest.mark.slow
def test_a_run_that_is_killed_at_any_operation_on_files_resumes(tmp_path):
    found = outcomes(tmp_path, "operations")["operations"]
    resumed(found)
    assert len(found) > 20


def test_a_run_that_is_killed_in_any_round_ends_with_the_bytes_of_one_left_alone(few):
    reached = defaultdict(list)
    for run in few["rounds"]:
        reached[run["method"], run["signal"]].append(run["rounds"])
        ended = 0 if run["rounds"] == kills.ROUNDS else 143
        if run["signal"] == "SIGKILL":
            ended = -9
        assert (run["first"], run["again"], run["same"]) == (ended, 0, True), run
        assert run["saved"] == (ended != 0), run
    signals = [number.name for number in kills.SIGNALS]
    assert reached.keys() == set(itertools.product(kills.METHODS, signals))
    for (_, name), rounds in reached.items():  # SIGTERM waits for the end of the round
        assert rounds == [n + (name == "SIGTERM") for n in range(kills.ROUNDS)]


def test_a_full_disk_is_one_line_and_the_run_resumes_later(few):
    for run in few["full"]:
        assert (run["first"], run["done"], run["again"], run["same"]) == (1, False, 0, True), run
        *begun, said = run["said"].splitlines()
        assert said.startswith("fedbench: "), run
        assert all(line.endswith("evaluating the initial model") for line in begun), run


@pytest.mark.parametrize(
    "name", ["rounds.jsonl", "clients.parquet", "model.safetensors", "meta.json", "config.yaml"]
)
def test_a_flipped_bit_in_a_finished_run_is_found_when_the_run_is_asked_for(fed, tmp_path, name):
    run = run_dir(tmp_path, fed(*FAST)[1])
    content = bytearray((run / name).read_bytes())
    content[len(content) // 2] ^= 1
    (run / name).write_bytes(content)
    status, _, err = fed(*FAST)
    assert (status, run.parent.name in err, "force=true" in err) == (1, True, True), err
    assert fed(*FAST, "force=true")[0] == 0
