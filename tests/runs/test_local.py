"""Several runs at a time: the same runs, and what becomes of killed and interrupted ones."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from types import SimpleNamespace

import psutil
import pytest
from command_line import FAST, meta_of, models, write_files

from fedbench.config.compose import compose_run
from fedbench.runs import progress, training
from fedbench.runs.executors import local
from fedbench.runs.executors.local import LocalExecutor
from fedbench.runs.progress import BatchDisplay, RunProgress, run_progress

pytestmark = pytest.mark.processes


def table_rows(lines):
    return [line for line in lines if line.startswith("| fed")]


def test_processes_leave_the_runs_that_one_leaves(fed, tmp_path):
    """The same bits; the two lines of a run stay together, and one table follows."""
    sweep = ["-m", *FAST, "engine.mode=loop", "algo=fedavg,fedprox", "seed=0,1"]
    status, alone, err = fed(*sweep, "--jobs", "1", "results_dir=one")
    assert status == 0
    first, *begun = err.splitlines()
    assert first == "fedbench: 4 runs, one at a time (jobs=1)"
    assert len(begun) == 4
    assert all(line.endswith("round 0 of 4, evaluating the initial model") for line in begun)
    status, together, err = fed(*sweep, "--jobs", "3", "results_dir=two")
    assert status == 0
    assert err == "fedbench: 4 runs, 3 at a time (jobs=3)\n"
    assert len(models(tmp_path / "one")) == 4
    assert models(tmp_path / "one") == models(tmp_path / "two")
    for result, path in zip(together[:8:2], together[1:8:2], strict=True):
        assert path.startswith(f"two/synthetic_leaf/{result.split()[1]}/")
        assert path[-1] == result.split(": ")[0][-1]  # the seed
    assert len(table_rows(alone)) == 2
    assert table_rows(alone) == table_rows(together)


DEADLY = {
    "algo/deadly.yaml": "_target_: deadly.deadly\nlr: 1.0\n",
    "deadly.py": """
        import os, signal
        from fedbench import Algorithm, server_descent

        def deadly(local=None, lr=1.0):
            def direction(up, cohort):
                if lr == 0.5 and not os.path.exists('harmless'):
                    os.kill(os.getpid(), signal.SIGKILL)
                return cohort.p @ up['delta']
            return Algorithm(**server_descent(lr=lr, direction=direction))
    """,
}


def test_a_process_that_dies_costs_its_run_alone(fed, tmp_path):
    """The other runs are finished, and the next command trains the missing one."""
    write_files(tmp_path / "own", DEADLY)
    run = ["--config-dir", "own", *FAST, "algo=deadly"]
    sweep = ["-m", "--jobs", "2", *run, "algo.lr=1,0.5,0.25"]
    status, out, err = fed(*sweep)
    assert status == 1
    assert sum("accuracy" in line and "seed 0" in line for line in out) == 2
    killed = "its process was killed; if memory was short, run fewer at a time (--jobs)"
    assert f"algo=deadly algo.lr=0.5: {killed}" in err
    assert f"to repeat it: fedbench {' '.join(run)} algo.lr=0.5" in err
    (tmp_path / "harmless").touch()
    status, out, _ = fed(*sweep)
    assert status == 0
    again = [line.partition(":")[0] for line in out if "done already" in line]
    named = [f"synthetic_leaf deadly seed 0 algo.lr={lr}" for lr in ("1", "0.25")]
    assert sorted(again) == sorted(named)


def test_runs_that_another_process_works_on_come_last(monkeypatch):
    """Whether a run is held is asked at its turn, not at the start."""
    held = {1, 2}
    monkeypatch.setattr(local, "is_held", held.__contains__)
    runs = [SimpleNamespace(path=i) for i in range(5)]
    order = local._held_last(runs)
    assert next(order).path == 0
    held.add(4)
    held.remove(2)
    assert [run.path for run in order] == [2, 3, 1, 4]


@pytest.fixture
def sweep(tmp_path):
    """A sweep of two endless runs in its own process, with both at work."""
    long = "data.clients=8 rounds=1000000 eval_every=1000000"
    command = f"-m fedbench -m --jobs 2 {long} seed=0,1"
    process = subprocess.Popen(
        [sys.executable, *command.split()],
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
    below = psutil.Process(process.pid).children(recursive=True)
    assert len(below) >= 2
    yield process
    assert psutil.wait_procs(below, timeout=20)[1] == []


def with_a_checkpoint(folder):
    """The runs that could be resumed."""
    return list(folder.rglob("checkpoint/manifest.json"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kill", "sent", "status"),
    [
        (os.killpg, signal.SIGINT, 130),
        (os.kill, signal.SIGTERM, 143),
    ],
)
def test_an_interrupted_sweep_ends_all_runs_so_that_they_can_be_resumed(
    sweep, tmp_path, kill, sent, status
):
    """A terminal interrupts the whole group, all processes; a scheduler the first one."""
    kill(sweep.pid, sent)
    _, err = sweep.communicate(timeout=60)
    assert sweep.returncode == status
    assert err.splitlines()[-1] == "fedbench: interrupted; run the same command again to resume"
    assert "Traceback" not in err
    states = [meta_of(p.parent)["status"] for p in tmp_path.rglob("meta.json")]
    assert states == ["interrupted"] * 2
    assert len(with_a_checkpoint(tmp_path)) == 2


@pytest.mark.slow
def test_runs_end_with_the_process_that_is_killed(sweep, tmp_path):
    sweep.kill()
    sweep.communicate(timeout=60)
    assert len(with_a_checkpoint(tmp_path)) == 2


def test_estimates_reach_the_process_that_shows_the_sweep(fed, tmp_path, monkeypatch):
    """The user's file is read in every process; here it announces long runs."""
    announce = """
        from fedbench.runs import training
        training.estimate = lambda run, rounds: (7200.0, "")
    """
    # this process reads the file as well; the stub ends with the test
    monkeypatch.setattr(training, "estimate", training.estimate)
    own = announce + DEADLY["deadly.py"]
    write_files(tmp_path / "own", DEADLY | {"deadly.py": own})
    (tmp_path / "harmless").touch()
    seen = {}
    real = local.run_progress

    def run_progress(config, estimated):
        seen.update(estimated)
        return real(config, estimated)

    monkeypatch.setattr(local, "run_progress", run_progress)
    sweep = ["-m", "--jobs", "2", "--config-dir", "own", *FAST, "algo=deadly", "seed=0,1,2,3"]
    status, _, err = fed(*sweep)
    assert status == 0, err
    assert set(seen.values()) == {7200.0}
    folders = {path.relative_to("results").parts[-1] for path in seen}
    assert folders <= {"seed_0", "seed_1", "seed_2", "seed_3"}


def test_runs_one_after_another_know_how_many_follow(fed, monkeypatch):
    monkeypatch.setattr(
        "fedbench.runs.training.estimate", lambda run, rounds: (3600.0, "about 60 min")
    )
    sweep = ["-m", *FAST, "--jobs", "1"]
    assert fed(*sweep, "seed=2")[0] == 0
    _, _, err = fed(*sweep, "seed=0,1,2")
    announced = [line.partition(": ")[2] for line in err.splitlines() if "about" in line]
    assert announced == [
        "fedavg seed 0 synthetic_leaf: about 60 min, about 2.0 h with the runs after it (1)",
        "fedavg seed 1 synthetic_leaf: about 60 min",
    ]
    assert progress.AFTER.get() == 0


DENSE = compose_run([])
CNN = compose_run(["data=mnist_iid", "model=cnn"])


@pytest.fixture
def machine(monkeypatch):
    """Set the free memory in GiB and the visible GPUs of a machine with four cores."""

    def has(free, gpus=()):
        memory = SimpleNamespace(available=free * 2**30)
        monkeypatch.setattr(local.psutil, "virtual_memory", lambda: memory)
        monkeypatch.setattr(local, "visible_gpus", lambda: list(gpus))

    monkeypatch.setattr(local, "available_cores", lambda: 4)
    return has


@pytest.mark.parametrize(
    ("free", "configs", "jobs"),
    [
        (16, [DENSE] * 9, 4),
        (16, [DENSE] * 3, 3),
        (16, [], 1),
        (3.5, [DENSE] * 9, 3),  # 1 GiB each
        (3.5, [DENSE, CNN] * 5, 1),  # 4 GiB each
    ],
)
def test_there_are_as_many_jobs_as_cores_runs_and_memory_allow(machine, free, configs, jobs):
    machine(free)
    assert LocalExecutor().jobs_for(configs) == jobs


def test_there_is_one_job_for_each_gpu_that_runs_may_use(machine):
    gpus = ["0", "1"]
    machine(16, gpus)
    assert LocalExecutor().jobs_for([DENSE] * 9) == 2
    assert LocalExecutor(3).jobs_for([DENSE] * 9) == 3
    assert LocalExecutor(3).jobs_for([DENSE]) == 1
    assert local.shared_gpus([DENSE]) == gpus
    for device in ("cuda:1", "cpu"):
        assert local.shared_gpus([compose_run([f"device={device}"])]) == []


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
    display = BatchDisplay(3)
    line = display.line([], [run_progress(one, {}), run_progress(other, {})])
    assert line == "0 of 3 runs are over: 2 running (rounds 0/9, 0/9)"
    line = display.line(["done"], [run_progress(other, {})])
    assert line == "1 of 3 runs are over: 1 done, 1 running (rounds 0/9); about 80 s left"
    line = display.line([], [run_progress(one, {one.path: 20.0}), run_progress(other, {})])
    assert line == "0 of 3 runs are over: 2 running (rounds 0/9, 0/9); about 30 s left"
    other.path.mkdir(parents=True)
    row = '{"round": 3, "seconds_train": 8.0, "seconds_eval": 2.0}'
    (other.path / "rounds.jsonl").write_text(f"{row}\n{row[:5]}")
    line = display.line(["done"], [run_progress(other, {other.path: 20.0})])
    assert line == "1 of 3 runs are over: 1 done, 1 running (rounds 3/9); about 50 s left"
    (other.path / "rounds.jsonl").write_text("garbage\n")  # the run itself reports it
    assert run_progress(other, {}).round == 0
    line = display.line(
        [],
        [RunProgress(3, 9, "a"), RunProgress(0, 9, "b")],
    )
    assert "(rounds 3/9 on a, 0/9 on b)" in line
