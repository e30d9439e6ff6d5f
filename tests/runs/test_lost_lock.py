"""A process that has lost the lock of its run writes nothing more, and no lock waits for a process that is gone."""

import os
import signal
import subprocess
import sys
from contextlib import closing

import pytest
import torch
from command_line import FAST, run_dir
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


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("lock", ["held", "removed", "replaced"])
def test_nothing_is_written_without_the_lock(begun, write, lock):
    file = begun.path / ".lock"
    if lock != "held":
        file.unlink()
    if lock == "replaced":
        file.touch()
    before = {p.name: p.read_bytes() for p in begun.path.rglob("*") if p.is_file()}
    if lock == "held":
        WRITES[write](begun)
        return
    with pytest.raises(
        NotWritten, match=r"its \.lock was removed, and another process may have it; wait until"
    ):
        WRITES[write](begun)
    assert {p.name: p.read_bytes() for p in begun.path.rglob("*") if p.is_file()} == before


def test_a_round_follows_the_one_before_it_alone(begun):
    """A server of files that restarts forgets locks and keeps their files."""
    begun.append({"round": 1})
    with begun.rounds.open("a") as other:
        other.write('{"round": 1}\n')
    for write in ("append", "finish"):
        with pytest.raises(
            NotWritten, match=r"another process has written to rounds\.jsonl; wait until"
        ):
            WRITES[write](begun)
    assert not read_run(begun.path).done
    with pytest.raises(
        DamagedRun, match="its rounds do not ascend: two processes have written to it"
    ):
        read_run(begun.path).rounds()


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
    recorder.folder.mkdir()
    for name in ("model.safetensors.part", ".tmpAbCdEf", "checkpoint/.tmpAbCdEf", ".lock"):
        (tmp_path / name).touch()
    recorder.lock()
    assert {p.name for p in tmp_path.rglob("*")} == {"checkpoint", ".lock"}


def test_a_process_that_wakes_after_another_one_has_finished_its_run_changes_nothing(
    fed, tmp_path, monkeypatch
):
    """It is frozen while round 2 is evaluated; its lock is removed, and the same command runs to its end."""
    real, calls = training.evaluate, []
    command = [sys.executable, "-m", "fedbench", *FAST]

    def frozen(*given):
        calls.append(1)
        if len(calls) == 3:
            (lock,) = tmp_path.rglob(".lock")
            lock.unlink()
            subprocess.run(
                command, cwd=tmp_path, check=True, capture_output=True, env={**os.environ, **PATH}
            )
            calls.extend(p.read_bytes() for p in sorted(lock.parent.iterdir()))
        return real(*given)

    monkeypatch.setattr(training, "evaluate", frozen)
    status, _, err = fed(*FAST)
    assert status == 1, err
    assert "its .lock was removed" in err, err
    status, out, _ = fed(*FAST)
    assert status == 0
    assert "done already" in out[0]
    path = run_dir(tmp_path, out)
    assert calls[3:] == [p.read_bytes() for p in sorted(path.iterdir())]
    assert read_run(path).rounds()["round"].tolist() == [0, 1, 2, 3, 4]


PATH = {"PYTHONPATH": str(ROOT)}
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
        command = [sys.executable, "-W", "ignore", "-c", WITHOUT_FLOCK, how, *FAST]
        env = {**os.environ, **PATH, "XDG_CACHE_HOME": str(tmp_path), "CXX": "none"}
        return subprocess.run(
            command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120
        )

    assert run("killed").returncode == -signal.SIGKILL
    (lock,) = tmp_path.rglob(".lock")
    assert lock.read_text().split()[0].isdigit()  # the process that held it
    again = run("resumed")
    assert again.returncode == 0, again.stderr
    assert "after 4 rounds" in again.stdout
    assert not lock.exists()
