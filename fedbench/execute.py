"""Carry out a request: answer from disk if the run is done, go on if it was begun, train otherwise."""

from __future__ import annotations

import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from fedbench.config import Request
from fedbench.errors import RequestError
from fedbench.store import Recorder, Run, read_run


@dataclass(frozen=True)
class Outcome:
    """What became of a request.

    Attributes:
        run: the run on disk.
        fresh: False if it was done already.
    """

    run: Run
    fresh: bool

    @property
    def status(self) -> str:
        """Status of the run: done or diverged."""
        return str(self.run.meta["status"])

    def line(self) -> str:
        """Return one line for people."""
        meta, last = self.run.meta, self.run.last_round()
        what = f"{meta['experiment'] or meta['data']} {meta['algo']} seed {meta['seed']}: "
        if self.status == "diverged":
            return what + f"diverged at round {meta['rounds']}"
        mean, weighted = (last[f"accuracy_mean{k}"] for k in ("", "_weighted"))
        result = "no test data" if mean is None else f"accuracy {100 * mean:.2f} % ({100 * weighted:.2f} % by samples)"
        how = f"{last['seconds_train']:.1f} s of training" if self.fresh else "done already"
        return what + f"{result} after {meta['rounds']} rounds, {how}"


def execute(request: Request) -> Outcome:
    """Return the outcome of a request, training what is not on disk.

    Raises:
        RequestError: for a request that cannot be carried out; nothing is left on disk.
        Exception: whatever ended the training; the run's ``meta.json`` says failed.
    """
    from filelock import FileLock, Timeout

    path = request.path
    if (path / "DONE").exists() and not request.config["force"]:
        shutil.rmtree(path / "checkpoint", ignore_errors=True)  # killed between writing DONE and this
        return Outcome(read_run(path), fresh=False)

    from fedbench.build import build  # torch comes in here
    from fedbench.runner import run

    experiment = build(request)
    recorder = Recorder(path)
    lock = FileLock(path / ".lock")
    try:
        with lock.acquire(timeout=0):
            if request.config["force"]:
                recorder.clear()
            run(experiment, recorder, request.config)
    except Timeout:
        raise RequestError(
            f"another process is at work in {path}; wait for it, or choose another results_dir"
        ) from None
    with suppress(FileNotFoundError):
        Path(lock.lock_file).unlink()
    return Outcome(read_run(path), fresh=True)
