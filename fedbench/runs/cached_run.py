"""Carry out a configuration: answer from disk if the run is done, resume it if it was begun, train it otherwise.

A run that has kept its state is continued with more rounds. What it has kept is the checkpoint of the round before the
last, so that the longer run records the last round of the shorter one itself: what is measured in a last round is
measured in no other.
"""

from __future__ import annotations

import inspect
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock

from fedbench.config.identity import identify
from fedbench.config.schema import RunConfig
from fedbench.config.targets import function_of
from fedbench.core.atomic_files import waiting_lock
from fedbench.core.errors import RequestError
from fedbench.runs.process import WORLD_SIZE, answered_by, end_at_once
from fedbench.runs.run import (
    CHECKPOINT,
    LOCK,
    MANIFEST,
    NODE,
    STATE,
    DamagedRun,
    Run,
    checked_checkpoint,
    is_done,
    read_run,
)

if TYPE_CHECKING:
    from fedbench.runs.recorder import Recorder
    from fedbench.runs.training import PreparedRun


@dataclass(frozen=True)
class Outcome:
    """The result of carrying out a configuration.

    Attributes:
        run: The run on disk, which is done or has diverged.
        fresh: Whether it was trained just now.
        signal: A signal that came in its last round and asks this process to end, or None.
    """

    run: Run
    fresh: bool
    signal: int | None = None

    def say(self) -> None:
        """Print a summary of one line, remarks of the method, and the run's directory as the last line."""
        meta, last = self.run.meta, self.run.last_round()
        mean, weighted = (last[f"accuracy_mean{k}"] for k in ("", "_weighted"))
        result = "no test data" if mean is None else f"accuracy {100 * mean:.2f} % ({100 * weighted:.2f} % by samples)"
        how = f"{last['seconds_train']:.1f} s of training" if self.fresh else "done already"
        said = f"{result} after {meta['rounds']} round{'' if meta['rounds'] == 1 else 's'}, {how}"
        if meta["status"] == "diverged":
            said = f"diverged at round {meta['rounds']}"
        print(f"{meta['experiment'] or meta['data']} {meta['algo']} seed {meta['seed']}: {said}")
        for remark in meta.get("remarks", []):
            print(f"fedbench: {remark}", file=sys.stderr)
        print(self.run.path, flush=True)


def cached_run(config: RunConfig, cores: int | None = None) -> Outcome:
    """Return the outcome of a configuration, training what is not on disk.

    If another process is working on the same run, wait for it and answer from disk.

    Args:
        config: The configuration.
        cores: Number of cores that the run may use; None is all of this process.

    Raises:
        RequestError: If the request cannot be carried out; nothing is left on disk.
        DamagedRun: If the run is done but its files cannot be read.
        NotWritten: If its files cannot be written later, such as on a full disk.
        Exception: Any error that ended the training; the run's ``meta.json`` has the status failed.
    """
    path = config.path
    if WORLD_SIZE == 1 and is_done(path) and not config.force and not (path / CHECKPOINT).exists():
        return _from_disk(config)
    with answered_by(end_at_once):
        from fedbench.runs.method import method_of  # imports torch, which takes seconds

        method_of(config)  # before the rest is imported and data are read, which take longer
        from fedbench.runs.build import build
        from fedbench.runs.recorder import Recorder
        from fedbench.runs.training import train

    prepared = build(config, cores)
    ranks = prepared.engine.ranks
    if ranks.rank:
        return _with_the_first(prepared)
    with writing_results(config.results_dir):
        recorder = Recorder(path)
        lock = _locked(path)
        recorder.guard(path / LOCK)
    try:
        if config.force:
            recorder.clear()
        fresh = not is_done(path)  # otherwise another process has finished it meanwhile
        if fresh:
            continue_shorter(config, recorder)
        ranks.broadcast(fresh)
        if fresh:
            late = train(prepared, recorder)
        _put_away(path, config.keep_state)
        outcome = Outcome(read_run(path), True, late) if fresh else _from_disk(config)
        return ranks.broadcast(outcome)
    finally:
        if is_done(path):  # a process that waits creates it again, and finds DONE
            (path / LOCK).unlink(missing_ok=True)
        lock.release()


def _with_the_first(prepared: PreparedRun) -> Outcome:
    """Share the work on a run whose files the first process of a group writes, and return its outcome."""
    from fedbench.runs.recorder import Reader
    from fedbench.runs.training import train

    ranks: Any = prepared.engine.ranks
    if ranks.broadcast(None):  # whether it is not done
        train(replace(prepared, tracker=None), Reader(prepared.config.path, ranks.rank))
    of_the_first: Outcome = ranks.broadcast(None)
    return of_the_first


@contextmanager
def writing_results(results: Path) -> Iterator[None]:
    """Raise a RequestError for an OSError inside this block, where files are first written."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or error
        raise RequestError(f"results_dir={results} cannot be written to ({reason}); change results_dir") from error


def _locked(path: Path) -> FileLock:
    """Return the lock of a run's directory, once no other process holds it."""
    lock: FileLock = waiting_lock(path / LOCK, f"working in {path}").lock
    (path / NODE).unlink(missing_ok=True)  # of a cluster, from a process that was killed
    return lock


def _put_away(path: Path, keep_state: bool) -> None:
    """Remove the checkpoint of a finished run, or keep it as the state that a longer run continues from."""
    folder = path / CHECKPOINT
    if keep_state and (folder / MANIFEST).exists():
        kept = {MANIFEST, *checked_checkpoint(folder)["sealed"]}
        shutil.rmtree(path / STATE, ignore_errors=True)
        for file in folder.iterdir():
            if file.is_dir():  # the memory of the run, of which the checkpoint has a copy
                shutil.rmtree(file)
            elif file.name not in kept:  # a table of the last round
                file.unlink()
        folder.replace(path / STATE)
    shutil.rmtree(folder, ignore_errors=True)


def _from_disk(config: RunConfig) -> Outcome:
    """Return the outcome of a finished run whose files have their checksums."""
    path, run = config.path, read_run(config.path)
    run.verify()
    lacks = []
    if config.keep_state and not (path / STATE).exists():
        lacks.append("has kept no state to continue from")
    every = run.config.get("eval_train_every", 1)
    if config.eval_train_every % every:
        lacks.append(f"has training losses with eval_train_every={every}, not {config.eval_train_every}")
    for what in lacks:
        print(f"fedbench: {path} {what}; force=true trains again", file=sys.stderr)
    return Outcome(run, fresh=False)


def continue_shorter(config: RunConfig, recorder: Recorder) -> None:
    """Begin a run with the state of the longest shorter one of its setting and seed, if one has kept its state."""
    if config.force or recorder.folder.exists():  # from the start, or the run has begun
        return
    found: list[Run] = []
    for state in config.path.parent.parent.glob(f"*/{config.path.name}/{STATE}"):
        try:
            run = read_run(state.parent)
        except DamagedRun as error:
            print(f"fedbench: it is not continued: {error}", file=sys.stderr)
            continue
        rounds = run.config["rounds"]
        serves = rounds < config.rounds and run.config["eval_train_every"] == config.eval_train_every
        if run.counts and serves and identify({**config.tree, "rounds": rounds}).digest == run.path.parent.name:
            found.append(run)
    if not found:
        return
    shorter = max(found, key=lambda run: int(run.config["rounds"]))
    path, rounds = shorter.path, shorter.config["rounds"]
    where = f"{path} (rounds={rounds})"
    if what := depends_on_rounds(config):
        why = f"{what} depends on the total number of rounds and cannot continue {where}"
        print(f"fedbench: starting over: {why}", file=sys.stderr)
        return
    try:
        reached = recorder.adopt(path, {"continues": {"hash": path.parent.name, "rounds": rounds}})
    except (OSError, ValueError) as error:
        print(f"fedbench: starting over: the state in {path / STATE} cannot be used: {error}", file=sys.stderr)
        recorder.clear()
    else:
        print(f"fedbench: continuing from round {reached} of {where}", file=sys.stderr)


def depends_on_rounds(config: RunConfig) -> str:
    """Return what makes a run one for its number of rounds: its schedule, noise or method; empty if nothing does."""
    if config.local.schedule.depends_on_rounds:
        return "local.schedule=cosine"
    if "privacy" in config.scenarios and config.scenarios["privacy"].options.get("epsilon") is not None:
        return "privacy.epsilon"  # the noise is what spends it in the planned rounds
    parts = {"algo": config.algo.target}
    for key, value in config.algo.options.items():
        if isinstance(value, dict) and "_target_" in value:
            parts[f"algo.{key}"] = value["_target_"]
    made = any("rounds" in inspect.signature(function_of(target, what)).parameters for what, target in parts.items())
    return config.names.algo if made else ""
