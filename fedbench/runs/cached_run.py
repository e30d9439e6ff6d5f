"""Carry out a configuration: answer from disk if the run is done, resume it if it was begun, train it otherwise."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path

from filelock import FileLock, Timeout

from fedbench.config.schema import RunConfig
from fedbench.core.errors import RequestError
from fedbench.runs.data_sets import DataSets
from fedbench.runs.extend import continue_shorter
from fedbench.runs.interrupts import at_once
from fedbench.runs.recorder import STATE, Recorder, put_away
from fedbench.runs.run import Run, damaged, is_done, read_run


@dataclass(frozen=True)
class Outcome:
    """The result of carrying out a configuration.

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
        return what + f"{result} after {meta['rounds']} round{'' if meta['rounds'] == 1 else 's'}, {how}"


def cached_run(config: RunConfig, load: DataSets | None = None, cores: int | None = None) -> Outcome:
    """Return the outcome of a configuration, training what is not on disk.

    If another process is working on the same run, wait for it and answer from disk.

    Args:
        config: The configuration.
        load: The data sets that this process has read; None reads those of the run.
        cores: Number of cores that the run may use; None is all of this process.

    Raises:
        RequestError: If the request cannot be carried out; nothing is left on disk.
        DamagedRun: If the run is done but its files cannot be read.
        NotWritten: If its files cannot be written later, such as on a full disk.
        Exception: Any error that ended the training; the run's ``meta.json`` has the status failed.
    """
    path = config.path
    state_of = config.rounds - 1 if config.keep_state else None
    if is_done(path) and not config.force:
        if (path / "checkpoint").exists():  # of a process that was killed right after it had written DONE
            with _locked(path):
                put_away(path, state_of)
        return _from_disk(config)
    with at_once():
        from fedbench.runs.build import build  # imports torch, which takes seconds
        from fedbench.runs.training import run

    prepared = build(config, load or DataSets(), cores)
    try:
        recorder = Recorder(path)
        lock = _locked(path)
    except OSError as error:
        raise not_writable(f"results_dir={config.results_dir}", error) from error
    try:
        if config.force:
            recorder.clear()
        fresh = not is_done(path)  # otherwise another process has finished it meanwhile
        if fresh:
            facts = continue_shorter(config, recorder)
            run(replace(prepared, facts=prepared.facts | facts), recorder)
        put_away(path, state_of)
        return Outcome(read_run(path), fresh=True) if fresh else _from_disk(config)
    finally:
        if is_done(path):  # a process that waits holds this very file, and finds DONE
            Path(lock.lock_file).unlink(missing_ok=True)
        lock.release()


def not_writable(name: object, error: OSError) -> RequestError:
    """Return the error for a directory, by the name that the message gives it, that cannot be written to."""
    return RequestError(f"{name} cannot be written to ({error.strerror or error}); change results_dir")


def _locked(path: Path) -> FileLock:
    """Return the lock of a run's directory, once no other process holds it."""
    lock = FileLock(path / ".lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        print(f"fedbench: waiting for another process that is working in {path}", file=sys.stderr)
        lock.acquire()
    return lock


def _from_disk(config: RunConfig) -> Outcome:
    """Return the outcome of a finished run whose files have their checksums."""
    path, run = config.path, read_run(config.path)
    run.verify()
    if (f"seed_{run.meta['seed']}", run.meta["hash"]) != (path.name, path.parent.name):
        raise damaged(path, f"meta.json is of seed {run.meta['seed']} of {run.meta['hash']}: a copy of another run")
    if config.keep_state and not (path / STATE).exists():
        print(f"fedbench: {path} has kept no state to continue from; force=true trains again", file=sys.stderr)
    every = run.config.get("eval_train_every", 1)  # runs of fedbench 0.1.0 measured it in every round
    if config.eval_train_every % every:
        print(
            f"fedbench: {path} has training losses with eval_train_every={every}, not {config.eval_train_every}; "
            "force=true trains again",
            file=sys.stderr,
        )
    return Outcome(run, fresh=False)
