"""Sweeps through launchers of Hydra: the same runs, and a job that is requeued goes on."""

import os
import signal
import subprocess
import sys
import time
import warnings

import psutil
import pytest
from command_line import FAST
from tools import ROOT

from fedbench.commands.launch import sweep_plan
from fedbench.commands.sweep import loky_silent
from fedbench.config.compose import Composer

SIX = ["algo=fedavg,fedadam", "seed=0,1,2"]
LAUNCHERS = {
    "own": ["--jobs", "2"],
    "joblib": ["hydra/launcher=joblib", "hydra.launcher.n_jobs=2"],
    "submitit": ["hydra/launcher=submitit_local"],
}


def command(*args):
    return [sys.executable, "-m", "fedbench", *args]


def environment():
    """Without what a job of this machine's own scheduler would say of itself."""
    return {**os.environ, "PYTHONPATH": str(ROOT), "FEDBENCH_OFFLINE": "1"}


def models(folder):
    return {p.relative_to(folder): p.read_bytes() for p in folder.rglob("model.safetensors")}


@pytest.mark.parametrize("name", ["slurm", "slurm_gpu"])
def test_presets_leave_the_runs_to_a_launcher(name, tmp_path):
    plan = sweep_plan(Composer(None), "config", [f"hydra/launcher={name}", f"results_dir={tmp_path}", "seed=0,1"])
    assert (plan.enumerates, plan.basic) == (True, False)


def test_a_preset_without_its_package_says_what_to_install(fed, tmp_path):
    """A default that no package brings stands for submitit's."""
    (tmp_path / "own" / "hydra" / "launcher").mkdir(parents=True)
    (tmp_path / "own" / "hydra" / "launcher" / "ours.yaml").write_text("defaults:\n  - submitit_missing\n")
    status, _, err = fed("-m", "--config-dir", "own", "hydra/launcher=ours", "seed=0,1", *FAST)
    assert (status, "pip install 'fedbench-harness[slurm]'" in err) == (2, True)


@pytest.mark.slow
def test_six_runs_are_the_same_with_every_launcher(tmp_path):
    """Own workers, joblib and submitit: equal models, bit for bit, and one table at the end."""
    found = {}
    for name, how in LAUNCHERS.items():
        done = subprocess.run(
            command("-m", *how, *FAST, *SIX, "results_dir=results"),
            cwd=(tmp_path / name).mkdir() or tmp_path / name, env=environment(), capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert next(line for line in done.stdout.splitlines() if line.startswith("| fed")).split()[3] == "3"
        found[name] = models(tmp_path / name)
    assert len(found["own"]) == 6
    assert found["own"] == found["joblib"] == found["submitit"]


@pytest.mark.slow
def test_a_job_that_is_preempted_is_requeued_and_resumes(tmp_path):
    """SIGUSR2 is what submitit has the scheduler send; the model is that of a run in one go."""
    long = ["data.clients=30", "rounds=1500", "eval_every=50"]
    whole = subprocess.run(command(*long, "results_dir=whole"), cwd=tmp_path, env=environment(), capture_output=True)
    assert whole.returncode == 0
    sweep = command("-m", "hydra/launcher=submitit_local", *long, "seed=0", "results_dir=cut")
    with subprocess.Popen(sweep, cwd=tmp_path, env=environment(), stderr=subprocess.PIPE, text=True) as process:
        while not list(tmp_path.glob("cut/**/checkpoint/state_*")):
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


LOKY = "A worker stopped while some jobs were given to the executor. This can be caused by a too short worker timeout"
TRACKER = "resource_tracker: There appear to be 2 leaked folder objects to clean up at shutdown"


@pytest.mark.parametrize("before", [None, "ignore:other:UserWarning"])
def test_warnings_of_loky_stay_inside_and_no_others(monkeypatch, before):
    if before is None:
        monkeypatch.delenv("PYTHONWARNINGS", raising=False)
    else:
        monkeypatch.setenv("PYTHONWARNINGS", before)
    said = f"import warnings; warnings.warn({TRACKER!r}); warnings.warn('mine')"
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        with loky_silent():
            warnings.warn(LOKY, UserWarning, stacklevel=1)
            done = subprocess.run([sys.executable, "-c", said], capture_output=True, text=True, check=True)
        warnings.warn("after", UserWarning, stacklevel=1)
    assert [str(w.message) for w in seen] == ["after"]
    assert "mine" in done.stderr
    assert "resource_tracker" not in done.stderr
    assert os.environ.get("PYTHONWARNINGS") == before
