"""Carry out a request: answer from disk if the run is done, resume it if it was begun, train it otherwise."""

from __future__ import annotations

import shutil
import sys
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from fedbench.config.schema import RunConfig
from fedbench.core.errors import RequestError
from fedbench.runs.interrupts import at_once
from fedbench.runs.store import Recorder, Run, is_done, read_run


@dataclass(frozen=True)
class Outcome:
    """The result of a config.

    Attributes:
        run: The run on disk.
        fresh: Whether it was trained just now.
    """

    run: Run
    fresh: bool

    @property
    def status(self) -> str:
        """Status of the run: done or diverged."""
        return str(self.run.meta["status"])

    def line(self) -> str:
        """Return a summary of one line."""
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

    If another process is working on the same run, wait for it and answer from disk.

    Raises:
        RequestError: If the request cannot be carried out; nothing is left on disk.
        DamagedRun: If the run is done but its files cannot be read.
        Exception: Any error that ended the training; the run's ``meta.json`` has the status failed.
    """
    from filelock import FileLock, Timeout

    if not config.force and (done := _from_disk(config.path) or _made_before_contents(config)):
        return done
    with at_once():
        from fedbench.runs.build import build  # imports torch
        from fedbench.runs.train import run

    experiment = build(config)
    try:
        recorder = Recorder(config.path)
        lock = FileLock(config.path / ".lock")
        try:
            lock.acquire(timeout=0)
        except Timeout:
            print(f"fedbench: waiting for another process that is working in {config.path}", file=sys.stderr)
            lock.acquire()
    except OSError as error:
        raise RequestError(
            f"results_dir={config.results_dir} cannot be written to ({error.strerror or error}); change results_dir"
        ) from error
    try:
        if config.force:
            recorder.clear()
        elif done := _from_disk(config.path):  # the other process finished it
            return done
        run(experiment, recorder, config.tree)
        return Outcome(read_run(config.path), fresh=True)
    finally:
        if is_done(config.path):  # a process that waits holds this very file, and finds DONE
            Path(lock.lock_file).unlink(missing_ok=True)
        lock.release()


def _from_disk(path: Path) -> Outcome | None:
    if not is_done(path):
        return None
    shutil.rmtree(path / "checkpoint", ignore_errors=True)  # killed between writing DONE and this
    run = read_run(path)
    run.last_round()
    return Outcome(run, fresh=False)


def _made_before_contents(config: RunConfig) -> Outcome | None:
    """Return a finished run whose digest does not cover all user files and user code, if none changed since its start.

    Such runs were made before ``meta.json`` had an ``identity_format``. The times of the files stand for their content.
    """
    identity = config.identity
    if identity.before_contents is None:
        return None
    done = _from_disk(config.path.parent.with_name(identity.before_contents) / config.path.name)
    if done is None or "identity_format" in done.run.meta:
        return None
    if identity.changed() > datetime.fromisoformat(done.run.meta["started"]).timestamp():
        return None
    print(
        f"fedbench: {done.run.path} is of fedbench 0.1.0, which did not record the content of your files and code; "
        "they are older than the run and count as the same. force=true trains it again",
        file=sys.stderr,
    )
    return done
