"""Finished runs that a longer one goes on from: the same setting and seed with fewer rounds, if it has kept its state.

The kept state is the checkpoint of the round before the last, so that the longer run records the last round of the
shorter one itself: what is measured in a last round is measured in no other.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedbench.config.identity import identify
from fedbench.config.schema import RunConfig
from fedbench.config.targets import function_of
from fedbench.core.trees import Tree, from_json
from fedbench.runs.checkpoints import Checkpoints
from fedbench.runs.recorder import STATE, Recorder
from fedbench.runs.run import is_done

_NUMBERS = ("rounds", "eval_every", "eval_train_every")


@dataclass(frozen=True)
class Donor:
    """A finished run with a state.

    Attributes:
        path: Its directory.
        rounds: Its number of rounds.
        eval_every: Number of rounds between its evaluations.
        eval_train_every: Number of rounds between its evaluations of the training examples.
    """

    path: Path
    rounds: int
    eval_every: int
    eval_train_every: int

    def facts(self) -> Tree:
        """Return what ``meta.json`` records of it in the longer run."""
        return {"continues": {"hash": self.path.parent.name, "rounds": self.rounds}}


def go_on_from_shorter(config: RunConfig, recorder: Recorder) -> Tree:
    """Begin a run with the state of a shorter one, if there is one, and return facts for its ``meta.json``.

    A run may go on from one that was evaluated in more rounds, whose other rows are left out.

    Args:
        config: The configuration.
        recorder: Recorder of the run's directory; where the run has begun already, nothing is done.
    """
    if recorder.begun:
        return _earlier_facts(recorder.path)
    donor = _longest(config)
    if donor is None:
        return {}
    if depends_on_rounds(config):
        what = "local.schedule=cosine" if config.local.schedule.depends_on_rounds else config.names.algo
        print(
            f"fedbench: starting over: {what} depends on the total number of rounds and cannot go on from "
            f"{donor.path} (rounds={donor.rounds})",
            file=sys.stderr,
        )
        return {}
    source = Checkpoints(donor.path / STATE, donor.path / "rounds.jsonl")
    try:
        reached = recorder.adopt(source, lambda row: row["round"] % config.eval_every == 0)
    except (OSError, ValueError) as error:
        print(f"fedbench: starting over: the state in {donor.path / STATE} cannot be used: {error}", file=sys.stderr)
        recorder.clear()
        return {}
    print(f"fedbench: going on from round {reached} of {donor.path} (rounds={donor.rounds})", file=sys.stderr)
    return donor.facts()


def evaluated_more_often(config: RunConfig) -> Iterator[RunConfig]:
    """Yield the configuration at every cadence whose evaluated rounds include those of the given one, nearest first.

    Evaluating more often changes no number of a round, so that a run with such a cadence answers for the given one.
    """
    for every in range(config.eval_every // 2, 0, -1):
        if config.eval_every % every == 0:
            yield replace(config, eval_every=every, identity=identify({**config.tree, "eval_every": every}))


def depends_on_rounds(config: RunConfig) -> bool:
    """Return whether a run is made for its number of rounds: its method, or a part of it, or its schedule takes it."""
    if config.local.schedule.depends_on_rounds:
        return True
    targets = [(config.algo.target, "algo")]
    targets += [
        (value["_target_"], f"algo.{key}")
        for key, value in config.algo.options.items()
        if isinstance(value, dict) and "_target_" in value
    ]
    return any("rounds" in inspect.signature(function_of(target, what)).parameters for target, what in targets)


def _longest(config: RunConfig) -> Donor | None:
    """Return the longest finished run that this one can go on from."""
    digests: dict[tuple[int, int], str] = {}
    found: list[Donor] = []
    for state in config.path.parent.parent.glob(f"*/{config.path.name}/{STATE}"):
        donor = _read(state.parent)
        if donor is None or not _serves(donor, config):
            continue
        pair = donor.rounds, donor.eval_every
        if pair not in digests:
            digests[pair] = identify({**config.tree, "rounds": pair[0], "eval_every": pair[1]}).digest
        if digests[pair] == donor.path.parent.name:
            found.append(donor)
    return max(found, key=lambda d: (d.rounds, d.path.name), default=None)


def _serves(donor: Donor, config: RunConfig) -> bool:
    measured = config.eval_every % donor.eval_every == 0 and config.eval_train_every % donor.eval_train_every == 0
    return donor.rounds <= config.rounds and measured and donor.path != config.path


def _read(path: Path) -> Donor | None:
    """Return a finished run with a state; None if it is not done or did not end well."""
    try:
        text, meta = (path / "config.yaml").read_text(encoding="utf-8"), (path / "meta.json").read_text("utf-8")
        if not is_done(path) or from_json(meta)["status"] != "done":
            return None
        numbers: dict[str, Any] = {name: int(_line(name, text)) for name in _NUMBERS}
    except (OSError, ValueError, KeyError):  # not a run of ours: one that is damaged is reported by those who read it
        return None
    return Donor(path, **numbers)


def _line(name: str, text: str) -> str:
    """Return the value of a key at the top of a configuration; parsing all of it takes a hundred times as long."""
    found = re.search(rf"^{name}: (\d+)$", text, re.M)
    return found[1] if found else ""


def _earlier_facts(path: Path) -> Tree:
    """Return what the run that is resumed here has recorded of the one that it goes on from."""
    try:
        meta = from_json((path / "meta.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):  # it is written again when the run starts
        return {}
    return {k: meta[k] for k in ("continues",) if k in meta}
