"""Carry out a request: answer from disk if the run is done, go on if it was begun, train otherwise."""

from __future__ import annotations

import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from fedbench.config.schema import RunConfig
from fedbench.core.errors import RequestError
from fedbench.runs.interrupts import at_once
from fedbench.runs.store import Recorder, Run, read_run


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


def execute(config: RunConfig) -> Outcome:
    """Return the outcome of a configuration, training what is not on disk.

    While another process is at work on the same run this one waits, and then answers from disk.

    Raises:
        RequestError: If the configuration cannot be carried out; nothing is left on disk.
        DamagedRun: if the run is done and its files cannot be read.
        Exception: whatever ended the training; the run's ``meta.json`` says failed.
    """
    from filelock import FileLock, Timeout

    if not config.force and (done := _from_disk(config.path)):
        return done
    with at_once():
        from fedbench.runs.build import build  # torch comes in here
        from fedbench.runs.train import run

    experiment = build(config)
    try:
        recorder = Recorder(config.path)
        lock = FileLock(config.path / ".lock")
        try:
            lock.acquire(timeout=0)
        except Timeout:
            print(f"fedbench: waiting for another process that is at work in {config.path}", file=sys.stderr)
            lock.acquire()
    except OSError as error:
        raise RequestError(f"results_dir={config.results_dir} cannot be written to: {error}") from error
    try:
        if config.force:
            recorder.clear()
        elif done := _from_disk(config.path):  # by the process that was waited for
            return done
        run(experiment, recorder, config.tree)
        return Outcome(read_run(config.path), fresh=True)
    finally:
        if (config.path / "DONE").exists():  # whoever waits holds on to this very file, and will find DONE
            Path(lock.lock_file).unlink(missing_ok=True)
        lock.release()


def _from_disk(path: Path) -> Outcome | None:
    if not (path / "DONE").exists():
        return None
    shutil.rmtree(path / "checkpoint", ignore_errors=True)  # killed between writing DONE and this
    run = read_run(path)
    run.last_round()
    return Outcome(run, fresh=False)
