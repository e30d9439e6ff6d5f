"""Units of runs, which of them count, and what they have in another way than the paper."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from fedbench.core.files import config_value
from fedbench.runs.run import Run

if TYPE_CHECKING:  # a plan does without it
    pass


class Unit(NamedTuple):
    """What distinguishes runs of one setting, and by what runs of two settings are paired.

    Attributes:
        split: Seed of the data: ``data.seed``, or the seed of the run where every run draws its own data.
        seed: Seed of the run, which fixes the initial model, the cohorts and the batches.
    """

    split: int
    seed: int


def unit_of(run: Run) -> Unit:
    """Return the unit of a run."""
    seed, split = int(run.meta["seed"]), run.flat.get("data.seed")
    return Unit(seed if split is None else int(split), seed)


@dataclass(frozen=True)
class Departure:
    """One difference between runs and the paper's setting, or between their data and the publisher's files.

    Attributes:
        key: A configuration key, or one of ``model``, ``seeds``, ``round`` (the best of only some rounds), ``diverged``
            (seeds), ``setup`` (a sentence on all runs of the setup) and ``data`` (a sentence on the files read).
        here: Value of the runs.
        paper: Value of the paper; None for ``diverged``, ``setup`` and ``data``.
    """

    key: str
    here: Any
    paper: Any = None

    @property
    def text(self) -> str:
        """The departure as text."""
        if self.key == "setup":
            return str(self.here)
        if self.key == "data":
            return f"data: {self.here}"
        if self.key == "round":
            return f"best of the evaluated rounds, one in {self.here} (paper {self.paper})"
        if self.key == "diverged":
            return f"without seed {', '.join(map(str, self.here))}, which diverged"
        return f"{self.key} {config_value(self.here)} (paper {config_value(self.paper)})"


def departure_texts(departures: Iterable[Departure]) -> tuple[str, ...]:
    """Return departures as text."""
    return tuple(d.text for d in departures)


def counted_and_others(runs: Iterable[Run]) -> tuple[dict[Unit, Run], tuple[tuple[Unit, str], ...]]:
    """Return the runs of a setting that count, by unit (the first of each), and the others as (unit, outcome)."""
    done: dict[Unit, Run] = {}
    others = []
    for unit, run in sorted(((unit_of(r), r) for r in runs), key=lambda pair: pair[0]):
        if run.counts:
            done.setdefault(unit, run)
        else:
            others.append((unit, run.outcome))
    return done, tuple(others)


def seed_departures(done: Mapping[Unit, Run], others: Iterable[tuple[Unit, str]], wanted: int) -> list[Departure]:
    """Return the departures in the seeds of a row: fewer than the paper averages over, and seeds that diverged."""
    if not done:
        return []
    seeds = len({unit.seed for unit in done})
    found = [Departure("seeds", seeds, wanted)] if seeds < wanted else []
    lost = tuple(dict.fromkeys(unit.seed for unit, what in others if what == "diverged"))
    return found + ([Departure("diverged", lost)] if lost else [])


def data_departures(runs: Iterable[Run]) -> list[Departure]:
    """Return a departure for each kind of data that was not read from its publisher's files."""
    return [Departure("data", sentence) for sentence in sorted({s for r in runs for s in r.unofficial})]


def config_departures(departures: Mapping[str, Any], model: str) -> list[Departure]:
    """Return the departures of a run with a model, given its keys that differ as [value of the experiment, its own]."""
    found = []
    other = "model._target_" in departures
    if other:
        there = str(departures["model._target_"][0]).rsplit(".", 1)[-1]
        found.append(Departure("model", model, there))
    return found + [
        Departure(key, here, there)
        for key, (there, here) in departures.items()
        if not (other and key.startswith("model."))
    ]
