"""Carry out a configuration: answer from disk if the run is done, resume it if it was begun, train it otherwise."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path

from fedbench.config.schema import RunConfig
from fedbench.core.errors import RequestError
from fedbench.core.writing import fault, writing
from fedbench.runs.checkpoints import Checkpoints
from fedbench.runs.data_sets import DataSets
from fedbench.runs.donors import evaluated_more_often, go_on_from_shorter
from fedbench.runs.interrupts import at_once
from fedbench.runs.recorder import STATE, Recorder, put_away
from fedbench.runs.run import Run, damaged, is_done, read_run
from fedbench.runs.trackers.guarded import export


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
    from filelock import FileLock, Timeout

    if not config.force:
        _tidy(config)
        if done := _from_disk(config) or _from_denser(config):
            export(done.run, config.tracker, config.stored_tree)
            return done
    with at_once():
        from fedbench.runs.build import build  # imports torch
        from fedbench.runs.training import run

    prepared = build(config, load or DataSets(), cores)
    try:
        recorder = Recorder(config.path)
        lock = FileLock(config.path / ".lock")
        try:
            lock.acquire(timeout=0)
        except Timeout:
            print(f"fedbench: waiting for another process that is working in {config.path}", file=sys.stderr)
            lock.acquire()
    except OSError as error:
        raise not_writable(f"results_dir={config.results_dir}", config.path, error) from error
    try:
        if config.force:
            recorder.clear()
        elif done := _from_disk(config):  # the other process finished it
            return done
        facts = go_on_from_shorter(config, recorder)
        run(replace(prepared, facts=prepared.facts | facts), recorder, config.stored_tree)
        return Outcome(read_run(config.path), fresh=True)
    finally:
        if is_done(config.path):  # a process that waits holds this very file, and finds DONE
            with writing(config.path):
                Path(lock.lock_file).unlink(missing_ok=True)
        lock.release()


def not_writable(name: object, folder: Path, error: OSError) -> RequestError:
    """Return the error for a directory, by the name that the message gives it, that cannot be written to."""
    return RequestError(f"{name} cannot be written to ({fault(folder, error)}); change results_dir")


def _tidy(config: RunConfig) -> None:
    """Put away the checkpoint of a run that was killed right after it had written DONE."""
    path, checkpoints = config.path, Checkpoints(config.path / "checkpoint", config.path / "rounds.jsonl")
    if not (is_done(path) and checkpoints.folder.exists()):
        return
    from filelock import FileLock

    try:
        with FileLock(path / ".lock"):  # until another process has put it away itself
            put_away(path, config.keep_state and checkpoints.round == config.rounds - 1)
            (path / ".lock").unlink(missing_ok=True)
    except OSError as error:
        print(f"fedbench: {checkpoints.folder} is left over and cannot be put away: {error}", file=sys.stderr)


def _from_disk(config: RunConfig) -> Outcome | None:
    path, wanted = config.path, config.eval_train_every
    if not is_done(path):
        return None
    if config.keep_state and not (path / STATE).exists():
        print(f"fedbench: {path} has kept no state to go on from; force=true trains again", file=sys.stderr)
    run = read_run(path)
    if (f"seed_{run.meta['seed']}", run.meta["hash"]) != (path.name, path.parent.name):
        raise damaged(path, f"meta.json is of seed {run.meta['seed']} of {run.meta['hash']}: a copy of another run")
    run.verify()
    run.last_round()
    every = run.config.get("eval_train_every", 1)  # runs of fedbench 0.1.0 measured it in every round
    if wanted % every:
        print(
            f"fedbench: {path} has training losses with eval_train_every={every}, not {wanted}; force=true trains "
            "again",
            file=sys.stderr,
        )
    return Outcome(run, fresh=False)


def _from_denser(config: RunConfig) -> Outcome | None:
    """Return a finished run that was evaluated more often; its rounds include those that were asked for."""
    for other in evaluated_more_often(config):
        if is_done(other.path) and (found := _from_disk(other)) is not None and found.status == "done":
            print(
                f"fedbench: answered from {other.path}, evaluated more often (eval_every={other.eval_every}, not "
                f"{config.eval_every}); force=true trains again",
                file=sys.stderr,
            )
            return found
    return None
