"""Runs on a Ray cluster: the bytes of the local pool, also if nodes are lost or added."""

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from command_line import models
from command_line import write_files as write_texts
from tools import ROOT

from fedbench.config.compose import compose_run
from fedbench.core.errors import RequestError
from fedbench.runs.executors.base import RunBatch
from fedbench.runs.executors.local import LocalExecutor
from fedbench.runs.executors.node import Shared, read_files, write_files
from fedbench.runs.executors.options import make_executor
from fedbench.runs.executors.ray import Mailbox, RayExecutor, _Run, run_task

pytestmark = pytest.mark.processes

NODES = Path(__file__).with_name("ray_nodes.py")
ENVIRONMENT = os.environ | {
    "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}",
    "FEDBENCH_OFFLINE": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
}


def test_files_travel_without_the_lock_and_what_they_replace_goes(tmp_path):
    here = tmp_path / "here"
    there = tmp_path / "there"
    sent = ["checkpoint/manifest.json", "checkpoint/round_2", "meta.json"]
    kept = [".lock", "checkpoint/client_states/x"]
    write_texts(here, {name: name for name in [*sent, *kept]})
    write_texts(there, {"checkpoint/round_1": "old"})
    files = read_files(here)
    assert sorted(files) == sent
    write_files(files, there)
    assert read_files(there) == files
    finished = {"meta.json": b"{}", "DONE": b"1"}
    write_files(finished, there)
    assert read_files(there) == finished  # no checkpoint beside DONE


def test_all_files_are_on_the_disk_before_what_vouches_for_them(tmp_path, file_calls):
    """The manifest and DONE are last, after all files and the names in their directories."""
    names = ["DONE", "checkpoint/manifest.json", "checkpoint/round_2", "rounds.jsonl"]
    write_files(dict.fromkeys(names, b"x"), tmp_path / "run")
    expected = []
    for folder, name in (
        ("checkpoint", "round_2"),
        ("run", "rounds.jsonl"),
        ("checkpoint", "manifest.json"),
        ("run", "DONE"),
    ):
        expected += [name, f"-> {name}", folder]
    assert file_calls == expected


def test_the_mailbox_keeps_the_last_message_and_the_last_files():
    box = Mailbox()
    box.send(0, 3, ("files of 3",))
    box.send(0, 4, ())
    box.send(1, 0, ())
    assert box.take() == {
        0: (4, ("files of 3",)),
        1: (0, ()),
    }
    box.send(0, 5, ())
    assert box.take() == {0: (5, ())}
    assert box.take() == {}


class Box:
    """A mailbox in this process: the files that were sent, by their round."""

    def __init__(self):
        self.saved = {}
        self.send = SimpleNamespace(remote=self.receive)

    def receive(self, key, round, saved):
        if saved:
            self.saved[round] = saved[0]


def same(files):
    return files


def test_a_run_goes_on_elsewhere_from_the_checkpoint_that_came(tmp_path, monkeypatch):
    """Another attempt begins with the checkpoint of round 4 and leaves the bytes of one go."""
    monkeypatch.setattr("fedbench.runs.training._CHECKPOINT_EVERY", 0.0)
    config = compose_run(["data.clients=8", "algo=scaffold", "rounds=7", f"results_dir={tmp_path}"])
    shared = Shared.of(RunBatch([], quiet=True), 1)
    first = Box()
    second = Box()
    result, whole = run_task(shared, config, 1, {}, first, same)
    assert result.status == "done"
    assert list(first.saved) == list(range(1, 8))
    begun = first.saved[5]  # the state after round 4
    _, resumed = run_task(shared, config, 2, begun, second, same)
    assert list(second.saved) == [6, 7]
    for name in ("model.safetensors", "clients.parquet", "config.yaml"):
        assert resumed[name] == whole[name]
    assert not any(tmp_path.iterdir())  # only the process that started it writes there


def test_a_node_with_other_versions_refuses_in_one_line(tmp_path):
    config = compose_run(["rounds=1", f"results_dir={tmp_path}"])
    shared = replace(
        Shared.of(RunBatch([]), 1),
        versions="fedbench 9, Python 3.11, torch 2",
    )
    with pytest.raises(RequestError, match=r"instead of fedbench 9.*\Z"):
        run_task(shared, config, 1, {}, Box(), same)


def test_options_choose_the_executor(monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", "head:6379")
    assert make_executor(jobs=3) == LocalExecutor(3)
    assert make_executor(on="ray", run_cpus=2.0) == RayExecutor("head:6379", 2.0, None)
    assert make_executor(on="ray://other:1", run_gpus=0.25) == RayExecutor("other:1", 1.0, 0.25)
    with pytest.raises(RequestError, match="add --on ray"):
        make_executor(run_cpus=2.0)
    with pytest.raises(RequestError, match="--jobs cannot be combined with --on"):
        make_executor(jobs=2, on="ray")


def test_a_task_is_given_up_when_it_is_silent():
    """For a minute, and longer at each attempt."""
    run = _Run(None, attempts=1)
    assert [run.silent(now) for now in (60.0, 61.0)] == [False, True]  # it has not started
    run.received_at = 70.0
    assert [run.silent(now) for now in (130.0, 131.0)] == [False, True]
    run.attempts = 2
    run.received_at = 200.0
    assert [run.silent(now) for now in (320.0, 321.0)] == [False, True]


SCAFFOLD = ["-m", "fedbench", "-m", "data.clients=30", "algo=scaffold"]


@pytest.fixture(scope="module")
def local(tmp_path_factory):
    """The models of the local pool."""
    pytest.importorskip("ray")
    folder = tmp_path_factory.mktemp("local")
    sweep = [*SCAFFOLD, "--jobs", "2", "seed=range(0,6)", "rounds=800", "eval_every=400"]
    command = [sys.executable, *sweep, f"results_dir={folder}"]
    subprocess.run(command, env=ENVIRONMENT, check=True, capture_output=True)
    return models(folder)


@pytest.mark.slow
@pytest.mark.parametrize("event", ["replace", "freeze"])
def test_the_models_are_those_of_the_local_pool_whatever_becomes_of_a_node(local, tmp_path, event):
    """Of two nodes with a core each, one is killed and another one added, or one freezes."""
    command = [
        sys.executable,
        str(NODES),
        str(tmp_path / "ray"),
        "800",
        event,
    ]
    done = subprocess.run(
        command,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    states = ["states done done done done done done", f"happened {event}"]
    assert done.stdout.splitlines()[-2:] == states, done.stderr
    assert models(tmp_path / "ray") == local


@pytest.mark.slow
def test_a_signal_ends_tasks_after_their_round_and_their_checkpoints_come(tmp_path):
    pytest.importorskip("ray")
    sweep = [*SCAFFOLD, "--on", "ray", "seed=0,1", "rounds=1000000", "eval_every=5000"]
    with subprocess.Popen(
        [sys.executable, *sweep, f"results_dir={tmp_path}"],
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        for line in process.stderr:  # one every ten seconds
            if " running (rounds 0/" not in line and " running (" in line:
                break
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate()
    assert process.returncode == 128 + signal.SIGTERM
    assert len(list(tmp_path.rglob("manifest.json"))) == 2
    assert "run the same command again to resume" in err
