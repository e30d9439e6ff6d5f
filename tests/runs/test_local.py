"""Several runs at a time: the same runs, and what becomes of killed and interrupted ones."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from types import SimpleNamespace

import psutil
import pytest
from command_line import FAST, models

from fedbench.config.compose import compose_run
from fedbench.runs import progress
from fedbench.runs.executors import local
from fedbench.runs.executors.local import LocalExecutor
from fedbench.runs.progress import BatchDisplay, RunProgress, run_progress

pytestmark = pytest.mark.processes

LONG = ["data.clients=8", "rounds=1000000", "eval_every=1000000"]


def test_processes_leave_the_runs_that_one_leaves(fed, tmp_path):
    """Bit for bit, of two methods and two seeds; every run has its two lines together, then comes one table."""
    asked = ["-m", *FAST, "engine.mode=loop", "algo=fedavg,fedprox", "seed=0,1"]
    status, alone, err = fed(*asked, "--jobs", "1", "results_dir=one")
    first, *begun = err.splitlines()
    assert status == 0
    assert first == "fedbench: 4 runs, one at a time (jobs=1)"
    assert len(begun) == 4
    assert all(line.endswith("round 0 of 4, evaluating the initial model") for line in begun)
    status, out, err = fed(*asked, "--jobs", "3", "results_dir=two")
    assert status == 0
    assert err == "fedbench: 4 runs, 3 at a time (jobs=3)\n"
    assert models(tmp_path / "one") == models(tmp_path / "two")
    assert len(models(tmp_path / "two")) == 4
    for lines, folder in ((alone, "one/"), (out, "two/")):
        assert [line.startswith(folder) for line in lines[:8]] == [False, True] * 4
        pairs = list(zip(lines[:8:2], lines[1:8:2], strict=True))
        assert all(
            line.split()[1] in path and path.endswith(line.split(": ")[0][-1])
            for line, path in pairs
        )
    rows = [[line for line in lines if line.startswith("| fed")] for lines in (alone, out)]
    assert len(rows[0]) == 2
    assert rows[0] == rows[1]


def test_a_process_that_dies_costs_its_run_alone(fed, tmp_path):
    """A method of one's own kills its process; the other runs are done, and the next command trains what is left."""
    (tmp_path / "own" / "algo").mkdir(parents=True)
    (tmp_path / "own" / "algo" / "deadly.yaml").write_text("_target_: deadly.deadly\nlr: 1.0\n")
    (tmp_path / "own" / "deadly.py").write_text(
        "import os, signal\nfrom fedbench import Algorithm, server_descent\n\n"
        "def deadly(local=None, lr=1.0):\n"
        "    def direction(up, cohort):\n"
        "        if lr == 0.5 and not os.path.exists('harmless'):\n"
        "            os.kill(os.getpid(), signal.SIGKILL)\n"
        "        return cohort.p @ up['delta']\n"
        "    return Algorithm(**server_descent(lr=lr, direction=direction))\n"
    )
    asked = ["-m", "--jobs", "2", "--config-dir", "own", *FAST, "algo=deadly", "algo.lr=1,0.5,0.25"]
    status, out, err = fed(*asked)
    assert status == 1
    assert sum("accuracy" in line and "seed 0" in line for line in out) == 2
    assert (
        "algo=deadly algo.lr=0.5: its process was killed; if memory was short, run fewer at a time (--jobs)"
        in err
    )
    assert (
        "to repeat it: fedbench --config-dir own data.clients=8 rounds=4 algo=deadly algo.lr=0.5"
        in err
    )
    (tmp_path / "harmless").touch()
    status, out, _ = fed(*asked)
    assert status == 0
    assert sum("done already" in line for line in out) == 2


def started(tmp_path):
    """Start a sweep of two endless runs in a process of its own, and wait until both are at work."""
    command = [sys.executable, "-m", "fedbench", "-m", "--jobs", "2", *LONG, "seed=0,1"]
    process = subprocess.Popen(
        command,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    for _ in range(6000):
        if len([p for p in tmp_path.rglob("rounds.jsonl") if p.stat().st_size]) == 2:
            break
        time.sleep(0.01)
    assert process.poll() is None, process.communicate()
    return process


def with_a_checkpoint(folder):
    """The runs that could be resumed."""
    return list(folder.rglob("checkpoint/manifest.json"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kill", "sent", "status"), [(os.killpg, signal.SIGINT, 130), (os.kill, signal.SIGTERM, 143)]
)
def test_an_interrupted_sweep_ends_all_runs_so_that_they_can_be_resumed(
    tmp_path, kill, sent, status
):
    """A terminal interrupts the whole group, all processes; a scheduler the first one."""
    process = started(tmp_path)
    below = psutil.Process(process.pid).children(recursive=True)
    kill(process.pid, sent)
    _, err = process.communicate(timeout=60)
    assert process.returncode == status
    assert err.splitlines()[-1] == "fedbench: interrupted; run the same command again to resume"
    assert "Traceback" not in err
    facts = [json.loads(p.read_text()) for p in tmp_path.rglob("meta.json")]
    assert [f["status"] for f in facts] == ["interrupted"] * 2
    assert len(with_a_checkpoint(tmp_path)) == 2
    assert psutil.wait_procs(below, timeout=20)[1] == []


@pytest.mark.slow
def test_runs_end_with_the_process_that_is_killed(tmp_path):
    process = started(tmp_path)
    below = psutil.Process(process.pid).children(recursive=True)
    assert len(below) >= 2
    process.kill()
    process.communicate(timeout=60)
    assert psutil.wait_procs(below, timeout=20)[1] == []
    assert len(with_a_checkpoint(tmp_path)) == 2


def test_there_are_as_many_jobs_as_cores_runs_memory_and_gpus_allow(monkeypatch):
    """1 GiB for a dense model, 4 GiB for others; of runs that may be on a GPU, one for each."""
    dense, other, placed = (
        compose_run(texts) for texts in ([], ["data=mnist_iid", "model=cnn"], ["device=cuda:1"])
    )
    gpus = []
    monkeypatch.setattr(local, "available_cores", lambda: 4)
    monkeypatch.setattr(local, "visible_gpus", lambda: gpus)
    for free, configs, jobs in (
        (16, [dense] * 9, 4),
        (16, [dense] * 3, 3),
        (16, [], 1),
        (3.5, [dense] * 9, 3),
        (3.5, [dense, other] * 5, 1),
    ):
        monkeypatch.setattr(
            local.psutil,
            "virtual_memory",
            lambda free=free: type("", (), {"available": free * 2**30}),
        )
        assert LocalExecutor().jobs_for(configs) == jobs
    gpus += ["0", "1"]
    assert LocalExecutor().jobs_for([dense] * 9) == 2
    assert LocalExecutor(3).jobs_for([dense] * 9) == 3
    assert LocalExecutor(3).jobs_for([dense]) == 1
    assert [local.shared_gpus([c]) for c in (dense, placed, compose_run(["device=cpu"]))] == [
        gpus,
        [],
        [],
    ]


def test_gpus_are_those_that_the_environment_names(monkeypatch):
    installed = [local.Path("/dev/nvidia0"), local.Path("/dev/nvidia1")]
    monkeypatch.setattr(local.Path, "glob", lambda *_: iter(installed))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert local.visible_gpus() == ["0", "1"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,GPU-3e,-1")
    assert local.visible_gpus() == ["1", "GPU-3e"]


def test_how_far_they_are_is_told_in_one_line(tmp_path, monkeypatch):
    one = compose_run([f"results_dir={tmp_path}", "rounds=9"])
    other = replace(one, seed=1)
    clock = iter([0.0, 40.0])
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    view = BatchDisplay(3)
    assert (
        view.line([], [run_progress(one), run_progress(other)])
        == "0 of 3 runs are over: 2 running (rounds 0/9, 0/9)"
    )
    other.path.mkdir(parents=True)
    (other.path / "rounds.jsonl").write_text('{"round": 3}\n{"rou')
    assert view.line(["done"], [run_progress(other)]) == (
        "1 of 3 runs are over: 1 done, 1 running (rounds 3/9); about 80 s left"
    )
    assert "(rounds 3/9 on a, 0/9 on b)" in view.line(
        [], [RunProgress(3, 9, "a"), RunProgress(0, 9, "b")]
    )
