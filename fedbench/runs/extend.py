"""Continuing a finished run with more rounds, from the state that it has kept.

The kept state is the checkpoint of the round before the last, so that the longer run records the last round of the
shorter one itself: what is measured in a last round is measured in no other.
"""

from __future__ import annotations

import inspect
import json
import sys

from fedbench.config.identity import identify
from fedbench.config.schema import RunConfig
from fedbench.config.targets import function_of
from fedbench.core.files import Tree
from fedbench.runs.checkpoints import Checkpoints
from fedbench.runs.recorder import STATE, Recorder
from fedbench.runs.run import DamagedRun, Run, read_run


def continue_shorter(config: RunConfig, recorder: Recorder) -> Tree:
    """Begin a run with the state of a shorter one, if there is one, and return facts for its ``meta.json``.

    Args:
        config: The configuration.
        recorder: Recorder of the run's directory; where the run has begun already, nothing is done.
    """
    if recorder.checkpoints.exists:
        return _earlier_facts(recorder)
    shorter = _longest(config)
    if shorter is None:
        return {}
    path, rounds = shorter.path, shorter.config["rounds"]
    if depends_on_rounds(config):
        what = "local.schedule=cosine" if config.local.schedule.depends_on_rounds else config.names.algo
        print(
            f"fedbench: starting over: {what} depends on the total number of rounds and cannot continue {path} "
            f"(rounds={rounds})",
            file=sys.stderr,
        )
        return {}
    try:
        reached = recorder.checkpoints.adopt(Checkpoints(path / STATE, path / "rounds.jsonl"))
    except (OSError, ValueError) as error:
        print(f"fedbench: starting over: the state in {path / STATE} cannot be used: {error}", file=sys.stderr)
        recorder.clear()
        return {}
    print(f"fedbench: continuing from round {reached} of {path} (rounds={rounds})", file=sys.stderr)
    return {"continues": {"hash": path.parent.name, "rounds": rounds}}


def depends_on_rounds(config: RunConfig) -> bool:
    """Return whether a run is made for its number of rounds: its method, or a part of it, or its schedule takes it."""
    if config.local.schedule.depends_on_rounds:
        return True
    parts = {"algo": config.algo.target}
    for key, value in config.algo.options.items():
        if isinstance(value, dict) and "_target_" in value:
            parts[f"algo.{key}"] = value["_target_"]
    return any("rounds" in inspect.signature(function_of(target, what)).parameters for what, target in parts.items())


def _longest(config: RunConfig) -> Run | None:
    """Return the longest finished run of the same setting and seed with fewer rounds that has kept its state."""
    found = []
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
    return max(found, key=lambda run: int(run.config["rounds"]), default=None)


def _earlier_facts(recorder: Recorder) -> Tree:
    """Return what the run that is resumed here has recorded of the one that it continues."""
    meta = json.loads((recorder.path / "meta.json").read_text(encoding="utf-8"))
    return {key: meta[key] for key in ("continues",) if key in meta}
