"""Runs of a sweep in worker processes: the same runs, whole lines, and what becomes of killed and interrupted ones."""

import json
import os
import signal
import struct
import subprocess
import sys
import time
from multiprocessing import Pipe
from types import SimpleNamespace

import psutil
import pytest
from command_line import FAST

from fedbench.commands import gpus, side_by_side, workers
from fedbench.commands.gpus import gpu_of, placement, visible_gpus
from fedbench.commands.side_by_side import jobs_by_default
from fedbench.commands.workers import core_shares
from fedbench.config.compose import compose_run
from fedbench.runs.cores import available_cores
from fedbench.runs.sweep_notes import Note, leave, notes

LONG = [
    "data.clients=8",
    "rounds=1000000",
    "eval_every=1000000",
]  # a checkpoint after every round that took long enough


def models(folder):
    return {p.relative_to(folder): p.read_bytes() for p in folder.rglob("model.safetensors")}


@pytest.fixture
def machine_with(tmp_path_factory, monkeypatch):
    """A machine with these files of drivers in /dev, and with this CUDA_VISIBLE_DEVICES."""

    def pretend(*nodes, visible=None):
        folder = tmp_path_factory.mktemp("dev")
        for node in nodes:
            (folder / node).touch()
        monkeypatch.setattr(gpus, "_NODES", folder)
        monkeypatch.delenv(gpus.VISIBLE, raising=False)
        if visible is not None:
            monkeypatch.setenv(gpus.VISIBLE, visible)

    return pretend


@pytest.fixture
def more_cores(monkeypatch, machine_with):
    """A machine of four cores and 16 GB without a GPU."""
    machine_with()
    monkeypatch.setattr(side_by_side, "available_cores", lambda: 4)
    monkeypatch.setattr(side_by_side.psutil, "virtual_memory", lambda: type("", (), {"available": 16 * 2**30}))


def test_workers_leave_the_runs_that_one_process_leaves(fed, tmp_path):
    """Bit for bit, of two methods and two seeds; every run has its two lines together, then comes one table."""
    asked = ["-m", *FAST, "engine.mode=loop", "algo=fedavg,fedprox", "seed=0,1"]
    status, alone, err = fed(*asked, "--jobs", "1", "results_dir=one")
    assert (status, err) == (0, "fedbench: 4 runs, one at a time (jobs=1)\n")
    status, out, err = fed(*asked, "--jobs", "3", "results_dir=two")
    assert (status, err) == (0, "fedbench: 4 runs, 3 at a time (jobs=3)\n")
    assert models(tmp_path / "one") == models(tmp_path / "two")
    assert len(models(tmp_path / "two")) == 4
    for lines, folder in ((alone, "one/"), (out, "two/")):
        assert [line.startswith(folder) for line in lines[:8]] == [False, True] * 4
        pairs = list(zip(lines[:8:2], lines[1:8:2], strict=True))
        assert all(line.split()[1] in path and path.endswith(line.split(": ")[0][-1]) for line, path in pairs)
    rows = [[line for line in lines if line.startswith("| fed")] for lines in (alone, out)]
    assert len(rows[0]) == 2
    assert rows[0] == rows[1]
    facts = [json.loads(p.read_text()) for p in (tmp_path / "two").rglob("meta.json")]
    assert sorted(f["engine"]["workers"] for f in facts) == sorted(core_shares(4, 3, available_cores()))


def test_a_single_run_that_is_left_has_no_worker(fed, tmp_path):
    fed(*FAST, "seed=0")
    status, out, err = fed("-m", *FAST, "seed=0,1")
    assert (status, err) == (0, "")
    assert ["done already" in line for line in out[:4:2]] == [True, False]


def test_a_worker_that_dies_costs_its_run_alone(fed, tmp_path):
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
    assert "algo=deadly algo.lr=0.5: the process of the run was ended by SIGKILL; if memory was short" in err
    (tmp_path / "harmless").touch()
    status, out, _ = fed(*asked)
    assert status == 0
    assert sum("done already" in line for line in out) == 2


@pytest.mark.parametrize("sent", [b"", struct.pack("!i", 100) + b"half of a message"])
def test_a_worker_may_die_in_the_middle_of_a_message(tmp_path, sent):
    """What is left of the message is dropped, and the run is noted as failed."""
    ours, theirs = Pipe()
    os.write(theirs.fileno(), sent)
    theirs.close()
    worker = object.__new__(workers._Worker)
    worker.connection, worker.folder, worker.alive = ours, tmp_path, True
    worker.process = SimpleNamespace(join=lambda: None, exitcode=-signal.SIGKILL)
    worker.give(workers._Task(3, ["seed=3"], None, 1))
    assert not worker.listen()
    assert not worker.alive
    (note,) = notes(tmp_path)
    assert (note.job, note.status) == (3, "failed")
    assert "ended by SIGKILL" in note.error
    worker.dismiss()


def test_a_second_ctrl_c_ends_workers_that_do_not_stop():
    """The first worker does not stop, and Ctrl-C comes while it is waited for: all of them are killed."""
    done = []

    def interrupted(timeout):
        raise KeyboardInterrupt

    def process(number):
        names = ("terminate", "kill")
        return SimpleNamespace(**{n: lambda n=n: done.append((n, number)) for n in names}, join=interrupted)

    with pytest.raises(KeyboardInterrupt):
        workers._stop([SimpleNamespace(process=process(n)) for n in (0, 1)])
    assert done == [("terminate", 0), ("terminate", 1), ("kill", 0), ("kill", 1)]


def test_a_configuration_that_cannot_be_composed_here_is_left_to_the_worker():
    def compose(overrides):
        raise OSError("disk")

    assert workers._composed(SimpleNamespace(compose=compose), ["seed=0"]) is None


def started(tmp_path, *args):
    """Start a sweep of two endless runs in a process of its own, and wait until both are at work."""
    command = [sys.executable, "-m", "fedbench", "-m", "--jobs", "2", *LONG, "seed=0,1", *args]
    process = subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    for _ in range(6000):
        if len(with_a_checkpoint(tmp_path)) == 2:
            break
        time.sleep(0.01)
    assert process.poll() is None, process.communicate()
    return process


def with_a_checkpoint(folder):
    """The runs that could be resumed; for a moment a run has two states."""
    return {p.parent for p in folder.rglob("state_*.safetensors")}


@pytest.mark.parametrize("whom", ["the process", "its group"])
def test_ctrl_c_ends_all_runs_so_that_they_can_be_resumed(tmp_path, whom):
    """A terminal interrupts the whole group, workers and all; `kill -INT` one process."""
    process = started(tmp_path)
    below = psutil.Process(process.pid).children(recursive=True)
    (os.kill if whom == "the process" else os.killpg)(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err.splitlines()[0] == "fedbench: 2 runs, 2 at a time (jobs=2)"
    assert err.splitlines()[-1] == "fedbench: interrupted; run the same command again to resume"
    assert "Traceback" not in err
    facts = [json.loads(p.read_text()) for p in tmp_path.rglob("meta.json")]
    assert [f["status"] for f in facts] == ["interrupted"] * 2
    assert len(with_a_checkpoint(tmp_path)) == 2
    assert psutil.wait_procs(below, timeout=20)[1] == []


def test_workers_end_with_the_process_that_is_killed(tmp_path):
    process = started(tmp_path)
    below = psutil.Process(process.pid).children(recursive=True)
    assert len(below) >= 2
    process.kill()
    process.communicate(timeout=60)
    assert psutil.wait_procs(below, timeout=20)[1] == []
    assert len(with_a_checkpoint(tmp_path)) == 2


def test_cores_are_shared_by_the_runs_that_are_left():
    assert core_shares(5, 2, cores=2) == [1, 1, 1, 1, 2]
    assert core_shares(6, 4, cores=4) == [1, 1, 1, 1, 2, 2]
    assert core_shares(3, 3, cores=2) == [1, 1, 1]
    assert core_shares(2, 2, cores=9) == [4, 4]


@pytest.mark.parametrize(
    ("model", "runs", "jobs"),
    [("linear", 9, 4), ("linear", 3, 3), ("mlp", 9, 4), ("cnn", 3, 3), ("cnn", 9, 4), ("linear", 0, 1)],
)
def test_there_are_as_many_jobs_as_cores_and_runs(more_cores, model, runs, jobs):
    data = "mnist_iid" if model == "cnn" else "synthetic_leaf"
    assert jobs_by_default([compose_run([f"data={data}", f"model={model}"])], runs) == jobs


def test_memory_and_gpus_limit_the_jobs(more_cores, monkeypatch, machine_with):
    """1 GiB for a dense model, 4 GiB for others; of runs that may be on a GPU, one for each."""
    dense, other = compose_run([]), compose_run(["data=mnist_iid", "model=cnn"])
    monkeypatch.setattr(side_by_side.psutil, "virtual_memory", lambda: type("", (), {"available": 3.5 * 2**30}))
    assert jobs_by_default([dense], 9) == 3
    assert jobs_by_default([other], 9) == 1
    assert jobs_by_default([dense, other], 9) == 1
    machine_with("nvidiactl", "nvidia0")
    assert jobs_by_default([dense], 9) == 1
    assert jobs_by_default([compose_run(["device=cpu"])], 9) == 3
    machine_with("nvidia0", "nvidia1")
    assert [jobs_by_default([dense], runs) for runs in (9, 1)] == [2, 1]
    assert jobs_by_default([other, compose_run(["device=cuda"])], 9) == 1  # of memory
    machine_with()
    assert jobs_by_default([compose_run(["device=cuda:1"])], 9) == 1


@pytest.mark.parametrize(
    ("nodes", "visible", "found"),
    [
        ((), None, []),
        ((), "0,1", []),
        (("nvidiactl", "nvidia-uvm", "nvidia-caps"), None, ["0"]),  # a driver whose GPUs have no files here
        (("nvidiactl", "nvidia0", "nvidia1", "nvidia10", "nvidia-uvm"), None, ["0", "1", "2"]),
        (("nvidia5",), None, ["0"]),  # of a container: CUDA counts from 0
        (("nvidia0", "nvidia1"), "1, 0", ["1", "0"]),
        (("nvidia0", "nvidia1", "nvidia2"), "2,-1,0", ["2"]),
        (("nvidia0",), "", []),
        (("nvidia0",), "NoDevFiles", []),
        (("nvidia0",), "GPU-8932f937-d72c,MIG-3f1c-5a", ["GPU-8932f937-d72c", "MIG-3f1c-5a"]),
        (("kfd",), None, ["0"]),
    ],
)
def test_which_gpus_there_are(machine_with, nodes, visible, found):
    machine_with(*nodes, visible=visible)
    assert visible_gpus() == found


def test_gpus_are_shared_out_where_there_is_a_choice(machine_with):
    auto, pinned, cpu = (compose_run([f"device={d}"]) for d in ("auto", "cuda:1", "cpu"))
    machine_with("nvidia0", "nvidia1", visible="1,0")
    assert placement([auto, cpu]) == ["1", "0"]
    assert placement([cpu]) == placement([auto, pinned]) == []
    machine_with("nvidia0")
    assert placement([auto]) == []
    assert [gpu_of(k, ["3", "MIG-a"]) for k in range(3)] == [{gpus.VISIBLE: g} for g in ("3", "MIG-a", "3")]
    assert gpu_of(1, []) == {}


def seeing(tmp_path):
    """A method of one's own that notes for its run which GPUs its process sees, before it has used CUDA."""
    (tmp_path / "own" / "algo").mkdir(parents=True)
    (tmp_path / "own" / "algo" / "seeing.yaml").write_text("_target_: seeing.seeing\nlr: 1.0\n")
    (tmp_path / "own" / "seeing.py").write_text(
        "import json, os, time, torch\nfrom pathlib import Path\nfrom fedbench import Algorithm, server_descent\n\n"
        "def seeing(local=None, lr=1.0):\n"
        "    def direction(up, cohort):\n"
        "        saw = [os.getpid(), os.environ.get('CUDA_VISIBLE_DEVICES'), torch.cuda.is_initialized()]\n"
        "        Path(f'saw_{lr}.json').write_text(json.dumps(saw))\n"
        "        while len(list(Path().glob('saw_*.json'))) < 3:\n"  # so that there are three workers at a time
        "            time.sleep(0.01)\n"
        "        return cohort.p @ up['delta']\n"
        "    return Algorithm(**server_descent(lr=lr, direction=direction))\n"
    )
    return ["-m", "--jobs", "3", "--config-dir", "own", *FAST, "algo=seeing"]


def test_workers_are_placed_on_the_gpus_that_are_visible(fed, tmp_path, machine_with):
    """Three workers on two GPUs, whose runs record them; the runs themselves are on the CPU of this machine."""
    machine_with("nvidia0", "nvidia1", "nvidia2", visible="2,GPU-8932f937")
    asked = seeing(tmp_path)
    status, _, err = fed(*asked, "algo.lr=1,0.5,0.25,0.125,0.0625")
    assert (status, err) == (0, "fedbench: 5 runs, 3 at a time (jobs=3) on 2 GPUs\n")
    saw = [json.loads(p.read_text()) for p in sorted(tmp_path.glob("saw_*.json"))]
    assert not any(initialised for _, _, initialised in saw)
    by_process = {pid: gpu for pid, gpu, _ in saw}
    assert sorted(by_process.values()) == ["2", "2", "GPU-8932f937"]
    assert all(by_process[pid] == gpu for pid, gpu, _ in saw)
    facts = [json.loads(p.read_text())["visible_devices"] for p in tmp_path.rglob("meta.json")]
    assert sorted(facts) == sorted(gpu for _, gpu, _ in saw)
    assert os.environ[gpus.VISIBLE] == "2,GPU-8932f937"


def test_workers_of_runs_on_the_cpu_are_left_alone(fed, tmp_path, machine_with):
    machine_with("nvidia0", "nvidia1")
    asked = seeing(tmp_path)
    status, _, err = fed(*asked, "algo.lr=1,0.5,0.25", "device=cpu")
    assert (status, err) == (0, "fedbench: 3 runs, 3 at a time (jobs=3)\n")
    assert [json.loads(p.read_text())[1] for p in tmp_path.glob("saw_*.json")] == [None] * 3


def test_the_worker_after_a_lost_one_has_its_gpu(monkeypatch, tmp_path):
    """The second of two workers dies with its first run: the third process gets number 1 again."""
    begun = []

    class Fake:
        def __init__(self, job, folder, number, changed):
            self.connection, self.number, self.alive = self, number, True
            begun.append((number, changed))

        def give(self, task):
            self.task = task
            leave(tmp_path, Note(task.number, [], "done", None, None))

        def listen(self):
            self.alive = not (self.number == 1 and len(begun) == 2)
            return False

        def dismiss(self):
            pass

    monkeypatch.setattr(workers, "_Worker", Fake)
    monkeypatch.setattr(workers, "wait", lambda connections: connections[::-1])
    job = SimpleNamespace(compose=lambda overrides: None)
    workers.work_through(job, [["seed=0"]] * 5, tmp_path, 2, ["0", "1"])
    assert begun == [(0, {gpus.VISIBLE: "0"}), (1, {gpus.VISIBLE: "1"}), (1, {gpus.VISIBLE: "1"})]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--jobs", "2", "seed=0"], "--jobs 2 sets how many runs of a sweep go on at a time; add -m, or remove it"),
        (["-m", "--jobs", "0", "seed=0,1"], "--jobs must be an integer >= 1, got 0"),
        (["-m", "--jobs=two", "seed=0,1"], "--jobs must be an integer >= 1, got two"),
        (["-m", "--jobs"], "--jobs needs a value"),
        (
            ["-m", "--jobs", "2", "hydra/launcher=basic", "seed=0,1"],
            "--jobs 2 cannot be combined with hydra/launcher=basic; remove one of them",
        ),
    ],
)
def test_wrong_jobs_are_refused(fed, tmp_path, args, message):
    status, _, err = fed(*args)
    assert (status, err) == (2, f"fedbench: {message}\n")
    assert list(tmp_path.iterdir()) == []


def test_jobs_are_refused_where_the_configuration_chooses_a_launcher(fed, tmp_path):
    """An experiment of one's own may do so; the runs would be left to that launcher whatever the number of jobs."""
    (tmp_path / "own" / "experiment").mkdir(parents=True)
    text = "# @package _global_\ndefaults:\n  - override /hydra/launcher: joblib\n"
    (tmp_path / "own" / "experiment" / "launched.yaml").write_text(text)
    status, _, err = fed("-m", "--jobs", "2", "--config-dir", "own", "experiment=launched", *FAST, "seed=0,1")
    assert (status, "--jobs 2 cannot be combined with the launcher" in err) == (2, True)
    assert {p.name for p in tmp_path.iterdir()} == {"own"}


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["basic", "joblib"])
def test_launchers_of_hydra_leave_the_same_runs(fed, tmp_path, launcher):
    """They are used where they are asked for, and say nothing of jobs; `glob` is listed by Hydra."""
    asked = ["-m", *FAST, "seed=0,1"]
    assert fed(*asked, "--jobs", "1", "results_dir=here")[0] == 0
    status, out, err = fed(*asked, f"hydra/launcher={launcher}", f"results_dir={tmp_path / 'there'}")
    assert (status, err) == (0, "")
    assert any(line.startswith("| fedavg |     2 |") for line in out)
    assert models(tmp_path / "here") == models(tmp_path / "there")
