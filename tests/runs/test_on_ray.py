"""Runs on a Ray cluster: the bytes of the local pool, whatever becomes of the nodes; Ray itself runs in processes."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from tools import ROOT

from fedbench.config.compose import compose_run
from fedbench.runs.pool import Runs
from fedbench.runs.ray_task import Mailbox, packed, sent, unpack, work

NODES = Path(__file__).with_name("ray_nodes.py")
ENVIRONMENT = {
    **os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}", "FEDBENCH_OFFLINE": "1", "RAY_USAGE_STATS_ENABLED": "0",
}  # fmt: skip


def models(folder):
    return {p.relative_to(folder): p.read_bytes() for p in folder.rglob("model.safetensors")}


def test_files_travel_without_the_lock_and_what_they_replace_goes(tmp_path):
    here, there = tmp_path / "here", tmp_path / "there"
    for name in ("meta.json", ".lock", "checkpoint/manifest.json", "checkpoint/round_2", "checkpoint/client_states/x"):
        (here / name).parent.mkdir(parents=True, exist_ok=True)
        (here / name).write_text(name)
    (there / "checkpoint").mkdir(parents=True)
    (there / "checkpoint" / "round_1").write_text("old")
    files = packed(here)
    assert sorted(files) == ["checkpoint/manifest.json", "checkpoint/round_2", "meta.json"]
    unpack(files, there)
    assert packed(there) == files
    unpack({"meta.json": b"{}", "DONE": b"1"}, there)
    assert packed(there) == {"meta.json": b"{}", "DONE": b"1"}  # no checkpoint beside DONE


def test_what_vouches_for_other_files_is_written_last(tmp_path, monkeypatch):
    """Cut off after any file, the manifest never names a checkpoint that is not there."""
    written = []
    monkeypatch.setattr("fedbench.runs.ray_task.replace_file", lambda path, *_, **__: written.append(path.name))
    unpack({"DONE": b"", "checkpoint/manifest.json": b"", "checkpoint/round_2": b"", "rounds.jsonl": b""}, tmp_path)
    assert written == ["round_2", "rounds.jsonl", "manifest.json", "DONE"]


def test_the_mailbox_keeps_the_last_message_and_the_last_files():
    box = Mailbox()
    box.send((0, 1), 3, "a", {"x": b"3"})
    box.send((0, 1), 4, "a")
    box.send((1, 1), 0, "b")
    assert box.take() == ({(0, 1): (4, "a"), (1, 1): (0, "b")}, {(0, 1): {"x": b"3"}})
    assert box.take() == ({}, {})


class Box:
    """A mailbox in this process: what was sent of every round."""

    def __init__(self):
        self.kept = []
        self.send = SimpleNamespace(remote=lambda key, round, node, files=None: self.kept.append((round, files)))


def test_a_run_goes_on_elsewhere_from_the_checkpoint_that_came(tmp_path, monkeypatch):
    """A checkpoint after every round; another attempt begins with that of round 4 and leaves the bytes of one go."""
    monkeypatch.setattr("fedbench.runs.training._CHECKPOINT_EVERY", 0.0)
    typed = ["data=synthetic_leaf", "data.clients=8", "algo=scaffold", "rounds=7", f"results_dir={tmp_path}"]
    config = compose_run(typed)
    facts, first, second = sent(Runs([], compose_run, quiet=True), 1), Box(), Box()
    ended, whole = work(facts, config, typed, (0, 1), {}, first)
    assert ended.status == "done"
    assert list(dict.fromkeys(round for round, _ in first.kept)) == list(range(8))
    begun = next(files for round, files in first.kept if round == 5 and files is not None)  # what round 4 has left
    ended, resumed = work(facts, config, typed, (0, 2), begun, second)
    assert list(dict.fromkeys(round for round, _ in second.kept)) == [0, 5, 6, 7]
    for name in ("model.safetensors", "clients.parquet", "config.yaml"):
        assert resumed[name] == whole[name]
    assert not any(tmp_path.iterdir())  # only the process that started it writes there


def test_a_node_with_other_versions_refuses_in_one_line(tmp_path):
    typed = ["data=synthetic_leaf", "rounds=1", f"results_dir={tmp_path}"]
    facts = replace(sent(Runs([], compose_run), 1), versions=("fedbench 9", "Python 3.11", "torch 2"))
    ended, files = work(facts, compose_run(typed), typed, (0, 1), {}, Box())
    assert (ended.status, files) == ("refused", {})
    assert "instead of fedbench 9" in ended.error
    assert "\n" not in ended.error


@pytest.fixture(scope="module")
def local(tmp_path_factory):
    """The models of the local pool by the number of rounds."""
    pytest.importorskip("ray")
    folder = tmp_path_factory.mktemp("local")
    sweep = ["-m", "--jobs", "2", "data=synthetic_leaf", "data.clients=30", "algo=scaffold", "seed=range(0,6)"]
    command = [sys.executable, "-m", "fedbench", *sweep, "rounds=1500", "eval_every=500", f"results_dir={folder}"]
    subprocess.run(command, env=ENVIRONMENT, check=True, capture_output=True)
    return models(folder)


@pytest.mark.slow
@pytest.mark.parametrize("event", ["kill", "freeze", "add"])
def test_the_models_are_those_of_the_local_pool_whatever_becomes_of_a_node(local, tmp_path, event):
    """Of two nodes with a core each, one is killed or freezes in the middle, or a third one comes."""
    command = [sys.executable, str(NODES), str(tmp_path / "ray"), "1500", event]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-2:] == ["states done done done done done done", f"happened {event}"]
    assert models(tmp_path / "ray") == local
