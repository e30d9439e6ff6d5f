"""Execution of a configuration, with results cached on disk.

A finished run is loaded from disk, an unfinished run is resumed, and any other run is trained.
A longer run can continue from the kept state of a shorter one. This state is the checkpoint of the
second-to-last round, so that the longer run records the last round of the shorter run itself: some
values are measured only in the last round of a run.
"""

from __future__ import annotations

import inspect
import shutil
import sys
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fedbench.config.descriptions import earlier_name
from fedbench.config.identity import identify
from fedbench.config.schema import RunConfig
from fedbench.config.targets import checked_options, function_of
from fedbench.core.errors import RequestError
from fedbench.runs.process import end_at_once, on_signal
from fedbench.runs.run import (
    CHECKPOINT,
    CLIENT_STATES,
    MANIFEST,
    STATE,
    DamagedRun,
    Run,
    checked_checkpoint,
    is_done,
    read_run,
)

if TYPE_CHECKING:
    from fedbench.runs.recorder import Recorder

# passed to a method that accepts them (ADR 0002)
METHOD_ARGUMENTS = ("local", "rounds", "clients", "examples", "tensors", "layout", "epochs")


@dataclass(frozen=True)
class Outcome:
    """The result of executing a configuration.

    Attributes:
        run: The run on disk, which is done or has diverged.
        fresh: Whether the run was trained just now.
        signal: A signal to end this process, if one was received in the last round, else None.
    """

    run: Run
    fresh: bool
    signal: int | None = None

    def say(self, overrides: Iterable[str] = ()) -> None:
        """Print a one-line summary, the method's remarks and, on the last line, the directory.

        Args:
            overrides: Overrides that distinguish this run from the others of a sweep; the line
                begins with them.
        """
        meta = self.run.meta
        name = [meta["experiment"] or meta["data"], meta["algo"], "seed", str(meta["seed"])]
        named = ("experiment=", "data=", "algo=", "seed=")
        name += [text for text in overrides if not text.startswith(named)]
        print(f"{' '.join(name)}: {self._summary()}")
        for remark in meta.get("remarks", []):
            print(f"fedbench: {remark}", file=sys.stderr)
        print(self.run.path, flush=True)

    def _summary(self) -> str:
        rounds = self.run.meta["rounds"]
        if self.run.meta["status"] == "diverged":
            return f"diverged at round {rounds}"
        last = self.run.last_round()
        accuracy = "no test data"
        if last["accuracy_mean"] is not None:
            weighted = f"{100 * last['accuracy_mean_weighted']:.2f} % by samples"
            accuracy = f"accuracy {100 * last['accuracy_mean']:.2f} % ({weighted})"
        work = f"{last['seconds_train']:.1f} s of training" if self.fresh else "done already"
        return f"{accuracy} after {rounds} round{'' if rounds == 1 else 's'}, {work}"


def check_method(config: RunConfig) -> None:
    """Check the options of the method against the signature of its function.

    Raises:
        RequestError: If an option is invalid.
    """
    with on_signal(end_at_once):  # imports torch, which takes seconds
        checked_options(config.algo, "algo", METHOD_ARGUMENTS)


def announce_earlier_names(configs: Iterable[RunConfig]) -> None:
    """Tell the user which of the data sets chosen by name have better names by now."""
    for data in dict.fromkeys(c.names.data for c in configs if c.names.experiment is None):
        if remark := earlier_name(data):
            print(f"fedbench: data={data}: {remark}", file=sys.stderr)


def is_cached(config: RunConfig) -> bool:
    """Return whether the run of a configuration can be loaded from disk."""
    path = config.path
    # a process killed after writing DONE may have left a checkpoint that must be kept or removed
    return is_done(path) and not config.force and not (path / CHECKPOINT).exists()


def cached_run(config: RunConfig, cores: int | None = None) -> Outcome:
    """Return the outcome of a configuration, training the run if it is not on disk.

    If another process is working on the same run, wait for it and load its result. If several
    processes share a run, only the first one writes files.

    Args:
        config: The configuration.
        cores: Number of cores that the run may use. If None, all cores available to this process.

    Raises:
        RequestError: If the request is invalid; nothing is left on disk.
        DamagedRun: If the run is done but its files cannot be read.
        NotWritten: If files cannot be written during the run, for example on a full disk.
        Interrupted: If a signal ended the training after a round; the run can be resumed.
        Exception: Any error that ended the training; ``meta.json`` then has the status "failed".
    """
    if is_cached(config):
        return _from_disk(config)

    check_method(config)  # before the data are read, which takes longer
    with on_signal(end_at_once):
        from fedbench.runs.build import build
        from fedbench.runs.recorder import open_recorder
        from fedbench.runs.training import train

    prepared = build(config, cores)
    ranks = prepared.engine.ranks
    with writing_results(config.results_dir):
        # waits for a process that is working on the run
        recorder = open_recorder(config.path, ranks.rank)

    with closing(recorder):
        if config.force:
            recorder.clear()
        # only the first process checks, so that all agree
        done = ranks.from_first(lambda: is_done(config.path))
        signal = None
        if not done:
            ranks.from_first(lambda: continue_shorter(config, recorder))
            signal = train(prepared, recorder)
        return ranks.from_first(lambda: _finished(config, fresh=not done, signal=signal))


@contextmanager
def writing_results(results: Path) -> Iterator[None]:
    """Turn an OSError in this block, where files are first written, into a RequestError."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or error
        raise RequestError(
            f"results_dir={results} cannot be written to ({reason}); change results_dir"
        ) from error


def _finished(
    config: RunConfig,
    fresh: bool,
    signal: int | None,
) -> Outcome:
    """Remove the checkpoint of a finished run, or keep it as ``state``, and return the outcome."""
    checkpoint = config.path / CHECKPOINT
    if config.keep_state and (checkpoint / MANIFEST).exists():
        state = config.path / STATE
        shutil.rmtree(state, ignore_errors=True)
        # the checkpoint also contains a copy of these states
        shutil.rmtree(checkpoint / CLIENT_STATES, ignore_errors=True)
        sealed = checked_checkpoint(checkpoint)["sealed"]
        for table in checkpoint.glob("clients_*.parquet"):
            if table.name not in sealed:  # a table of the last round
                table.unlink()
        checkpoint.replace(state)
    shutil.rmtree(checkpoint, ignore_errors=True)
    if fresh:
        return Outcome(read_run(config.path), fresh, signal)
    return _from_disk(config)


def _from_disk(config: RunConfig) -> Outcome:
    """Return the outcome of a finished run, after checking its files against their checksums."""
    path = config.path
    run = read_run(path)
    run.verify()
    faults = []
    if config.keep_state and not (path / STATE).exists():
        faults.append("kept no state to continue from")
    every = run.config.get("eval_train_every", 1)
    if config.eval_train_every % every:
        wanted = config.eval_train_every
        faults.append(f"training losses with eval_train_every={every}, not {wanted}")
    for fault in faults:
        print(f"fedbench: {path} has {fault}; force=true trains again", file=sys.stderr)
    return Outcome(run, fresh=False)


def continue_shorter(config: RunConfig, recorder: Recorder) -> None:
    """Start a run from the kept state of the longest shorter run with its setting and seed."""
    if config.force or recorder.checkpoint.exists():  # trained from scratch, or already begun
        return
    runs = _shorter_runs(config)
    shorter = max(runs, key=lambda run: int(run.config["rounds"]), default=None)
    if shorter is None:
        return

    path = shorter.path
    rounds = shorter.config["rounds"]
    place = f"{path} (rounds={rounds})"
    if cause := depends_on_rounds(config):
        fault = f"{cause} depends on the total number of rounds and cannot continue {place}"
        print(f"fedbench: starting over: {fault}", file=sys.stderr)
        return
    continues = {"hash": path.parent.name, "rounds": rounds}
    try:
        reached = recorder.adopt(path, {"continues": continues})
    except (OSError, ValueError) as error:
        fault = f"the state in {path / STATE} cannot be used: {error}"
        print(f"fedbench: starting over: {fault}", file=sys.stderr)
        recorder.clear()
    else:
        print(f"fedbench: continuing from round {reached} of {place}", file=sys.stderr)


def _shorter_runs(config: RunConfig) -> Iterator[Run]:
    """Yield runs with a kept state whose configuration is the same except for fewer rounds."""
    for state in config.path.parent.parent.glob(f"*/{config.path.name}/{STATE}"):
        try:
            run = read_run(state.parent)
        except DamagedRun as error:
            print(f"fedbench: it is not continued: {error}", file=sys.stderr)
            continue
        rounds = run.config["rounds"]
        if not run.counts or rounds >= config.rounds:
            continue
        if run.config["eval_train_every"] != config.eval_train_every:
            continue
        same_but_rounds = identify({**config.tree, "rounds": rounds})
        if same_but_rounds.digest == run.path.parent.name:
            yield run


def depends_on_rounds(config: RunConfig) -> str:
    """Return the name of the setting or method that depends on the total number of rounds.

    The name is empty if nothing depends on this number.
    """
    if config.local.schedule.depends_on_rounds:
        return "local.schedule=cosine"
    privacy = config.scenarios.get("privacy")
    if privacy is not None and privacy.options.get("epsilon") is not None:
        return "privacy.epsilon"  # the noise is scaled to spend epsilon over the planned rounds
    if 0 < (config.parts.fix_after or 0) < 1:
        return "parts.fix_after"
    for part in (config.algo, *config.algo.inner("algo").values()):
        function = function_of(part.target, "algo")
        if "rounds" in inspect.signature(function).parameters:
            return config.names.algo
    return ""
