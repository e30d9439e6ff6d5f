"""Sweeps through launchers of Hydra: the same runs, and a job that is requeued goes on."""

import os
import re
import signal
import subprocess
import sys
import time

import psutil
import pytest
from command_line import FAST, models, write_files
from tools import ROOT

pytestmark = pytest.mark.processes

FOUR = ["algo=fedavg,fedadam", "seed=0,1"]
LAUNCHERS = {
    "own": ["--jobs", "2"],
    "submitit": ["hydra/launcher=submitit_local"],
    "joblib": [
        "hydra/launcher=joblib",
        "hydra.launcher.n_jobs=2",
        "hydra.sweeper.max_batch_size=3",
    ],
}


def command(*args):
    return [sys.executable, "-m", "fedbench", *args]


def environment():
    """Without what a job of this machine's own scheduler would say of itself."""
    return {**os.environ, "PYTHONPATH": str(ROOT), "FEDBENCH_OFFLINE": "1"}


def test_a_preset_without_its_package_says_what_to_install(refuse, tmp_path):
    """A default that no package brings stands for submitit's."""
    write_files(tmp_path, {"own/hydra/launcher/ours.yaml": "defaults:\n  - submitit_missing\n"})
    err = refuse("-m", "--config-dir", "own", "hydra/launcher=ours", "seed=0,1", *FAST)
    assert "pip install 'fedbench-harness[slurm]'" in err


@pytest.mark.slow
def test_four_runs_are_the_same_with_every_launcher(tmp_path):
    """Own workers, submitit, and joblib with three runs and then one: equal models, one table."""
    found = {}
    for name, how in LAUNCHERS.items():
        folder = tmp_path / name
        folder.mkdir()
        done = subprocess.run(
            command("-m", *how, *FAST, *FOUR, "results_dir=results"),
            cwd=folder,
            env=environment(),
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        assert re.search(r"^\| fedavg +\| +2 ", done.stdout, re.M)
        found[name] = models(folder)
    assert len(found["own"]) == 4
    assert found["own"] == found["submitit"] == found["joblib"]


@pytest.mark.slow
def test_a_job_that_is_preempted_is_requeued_and_ends(tmp_path):
    """SIGUSR2 is what submitit has the scheduler send; the model is that of a run in one go."""
    long = ["data.clients=30", "rounds=800", "eval_every=50"]
    whole = subprocess.run(
        command(*long, "results_dir=whole"), cwd=tmp_path, env=environment(), capture_output=True
    )
    assert whole.returncode == 0
    sweep = command("-m", "hydra/launcher=submitit_local", *long, "seed=0", "results_dir=cut")
    with subprocess.Popen(
        sweep, cwd=tmp_path, env=environment(), stderr=subprocess.PIPE, text=True
    ) as process:
        while not any(p.read_text().count("\n") > 2 for p in tmp_path.glob("cut/**/rounds.jsonl")):
            assert process.poll() is None, process.communicate()
            time.sleep(0.01)
        below = psutil.Process(process.pid).children(recursive=True)
        (job,) = (p for p in below if "submitit.core._submit" in p.cmdline())
        job.send_signal(signal.SIGUSR2)
        _, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    log = "".join(p.read_text() for p in tmp_path.glob("cut/sweeps/*/.submitit/**/*_log.*"))
    assert "Requeued job" in log
    assert list(models(tmp_path / "cut").values()) == list(models(tmp_path / "whole").values())
