"""A process without the lock of its run writes nothing; locks of ended processes are free."""

import os
import signal
import subprocess
import sys
from contextlib import closing

import pytest
import torch
from command_line import FAST
from filelock import Timeout
from tools import ROOT

from fedbench.core.atomic_files import NotWritten
from fedbench.runs import training
from fedbench.runs.recorder import Recorder, open_recorder
from fedbench.runs.run import DamagedRun, read_run

pytestmark = pytest.mark.processes

META = {
    "status": "running",
    "algo": "fedavg",
    "hash": "abc",
    "seed": 0,
    "data": "d",
    "model": "m",
    "experiment": None,
}


@pytest.fixture
def begun(tmp_path):
    """A recorder of a run with one round, and its lock, which is held."""
    with closing(open_recorder(tmp_path)) as recorder:
        recorder.begin({"rounds": 9}, META)
        recorder.append({"round": 0})
        yield recorder


WRITES = {
    "begin": lambda r: r.begin({"rounds": 9}, META),
    "append": lambda r: r.append({"round": 1}),
    "meta": lambda r: r.write_meta(META),
    "clients": lambda r: r.keep_clients(1, {"client": [0]}),
    "checkpoint": lambda r: r.save({"w": torch.zeros(1)}, {"round": 1}),
    "finish": lambda r: r.finish({"model": {"w": torch.zeros(1)}}, {}, META | {"status": "done"}),
    "clear": lambda r: r.clear(),
}


def contents(folder):
    return {p.name: p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("lock", ["removed", "replaced"])
def test_nothing_is_written_without_the_lock(begun, write, lock):
    file = begun.path / ".lock"
    file.unlink()
    if lock == "replaced":
        file.touch()
    before = contents(begun.path)
    with pytest.raises(NotWritten, match=r"its \.lock was removed, and another process may have"):
        WRITES[write](begun)
    assert contents(begun.path) == before


def test_a_round_follows_the_one_before_it_alone(begun):
    """A server of files that restarts forgets locks and keeps their files."""
    begun.append({"round": 1})
    with begun.rounds.open("a") as other:
        other.write('{"round": 1}\n')
    for write in ("append", "finish"):
        with pytest.raises(NotWritten, match=r"another process has written to rounds\.jsonl; wait"):
            WRITES[write](begun)
    run = read_run(begun.path)
    assert not run.done
    with pytest.raises(DamagedRun, match="its rounds do not ascend: two processes have written"):
        run.rounds()


def test_two_recorders_of_a_run_are_not_open_at_once(tmp_path):
    """The second one waits, or is refused; a run that is done keeps no lock file."""
    lock = tmp_path / ".lock"
    with closing(open_recorder(tmp_path)):
        with pytest.raises(Timeout):
            open_recorder(tmp_path, wait=False)
        open_recorder(tmp_path, rank=1)  # of the same run, and writes nothing
    with closing(open_recorder(tmp_path, wait=False)):
        (tmp_path / "DONE").touch()
    assert not lock.exists()


def test_what_a_killed_process_was_writing_is_removed(tmp_path):
    recorder = Recorder(tmp_path)
    recorder.checkpoint.mkdir()
    for name in ("model.safetensors.part", ".tmpAbCdEf", "checkpoint/.tmpAbCdEf", ".lock"):
        (tmp_path / name).touch()
    recorder.lock()
    assert {p.name for p in tmp_path.rglob("*")} == {"checkpoint", ".lock"}


ENVIRONMENT = os.environ | {"PYTHONPATH": str(ROOT)}


def test_a_process_that_wakes_after_another_one_has_finished_its_run_changes_nothing(
    fed, train, tmp_path, monkeypatch
):
    """It is frozen while round 2 is evaluated; its lock is removed, and the same command runs."""
    calls = []
    finished = {}
    real = training.evaluate

    def frozen(*given):
        calls.append(1)
        if len(calls) == 3:
            (lock,) = tmp_path.rglob(".lock")
            lock.unlink()
            command = [sys.executable, "-m", "fedbench", *FAST]
            subprocess.run(command, check=True, capture_output=True, env=ENVIRONMENT)
            finished.update(contents(lock.parent))
        return real(*given)

    monkeypatch.setattr(training, "evaluate", frozen)
    status, _, err = fed(*FAST)
    assert status == 1, err
    assert "its .lock was removed" in err
    path = train(*FAST)
    assert contents(path) == finished
    assert read_run(path).rounds()["round"].tolist() == [0, 1, 2, 3, 4]


WITHOUT_FLOCK = """
import errno, fcntl, os, signal, sys

def missing(*_):
    raise OSError(errno.ENOSYS, "Function not implemented")

fcntl.flock = missing
if sys.argv.pop(1) == "killed":
    from fedbench.runs.recorder import Recorder
    Recorder.keep_clients = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
from fedbench.cli import main
sys.exit(main())
"""


def test_a_run_that_was_killed_resumes_on_a_file_system_without_flock(tmp_path):
    def run(how):
        return subprocess.run(
            [sys.executable, "-W", "ignore", "-c", WITHOUT_FLOCK, how, *FAST],
            cwd=tmp_path,
            env=ENVIRONMENT | {"XDG_CACHE_HOME": str(tmp_path), "CXX": "none"},
            capture_output=True,
            text=True,
            timeout=120,
        )

    assert run("killed").returncode == -signal.SIGKILL
    (lock,) = tmp_path.rglob(".lock")
    assert lock.read_text().split()[0].isdigit()  # the process that held it
    again = run("resumed")
    assert again.returncode == 0, again.stderr
    assert "after 4 rounds" in again.stdout
    assert not lock.exists()
