"""Units of runs, which of them count, and in what they differ from the paper or from the publisher's data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

from fedbench.core.config_values import Tree, config_value, keys_text
from fedbench.papers.registry import home_of
from fedbench.papers.schema import Setup
from fedbench.runs.run import Run

SPLIT = "data.seed"  # another value is no departure from a paper, but another split of its data


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
    seed, split = int(run.meta["seed"]), run.flat.get(SPLIT)
    return Unit(seed if split is None else int(split), seed)


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


def departures(runs: Sequence[Run], ignoring: str = "") -> list[str]:
    """Return the departures of runs of one setting from the paper and from the publisher's data, except for the seeds.

    A value that a row of the paper sets, and that the runs have, is not a departure, nor is another split of its data.

    Args:
        runs: The runs, at least one.
        ignoring: A configuration key that is not considered.
    """
    meta = runs[0].meta
    home = home_of(meta["experiment"])
    named = {*_as_printed(runs[0]), ignoring, *([SPLIT] if home else [])}
    changed = {k: v for k, v in meta["departures"].items() if k not in named}
    return [*config_departures(changed, meta["model"], home.setup if home else None), *data_departures(runs)]


def config_departures(changed: Mapping[str, Any], model: str, setup: Setup | None = None) -> list[str]:
    """Return the departures of a run from its experiment, and those of all runs of its setup.

    Args:
        changed: The keys that differ, as [value of the experiment, its own].
        model: Name of its model.
        setup: Its setup, or None.
    """
    other = "model._target_" in changed
    found = [f"model {model} (paper {str(changed['model._target_'][0]).rsplit('.', 1)[-1]})"] if other else []
    for key, (there, here) in changed.items():
        if not (other and key.startswith("model.")):
            new = keys_text({key: here}).replace("=", " ", 1)
            found.append(f"{new} (paper {keys_text({key: there}).partition('=')[2]})")
    return [*found, *(setup.departs if setup else ())]


def seed_departures(done: Mapping[Unit, Run], others: Iterable[tuple[Unit, str]], wanted: int) -> list[str]:
    """Return the departures in the seeds of a row: fewer than the paper averages over, and seeds that diverged."""
    if not done:
        return []
    seeds = len({unit.seed for unit in done})
    found = [f"seeds {seeds} (paper {wanted})"] if seeds < wanted else []
    lost = dict.fromkeys(str(unit.seed) for unit, what in others if what == "diverged")
    if lost:
        rate = rate_of(next(iter(done.values())))
        found.append(f"without seed {', '.join(lost)}{rate}, which diverged")
    return found


def rate_of(run: Run) -> str:
    """Return the local learning rate of a run in parentheses; empty if it has none."""
    return f" (local.lr={config_value(run.flat['local.lr'])})" if "local.lr" in run.flat else ""


def data_departures(runs: Iterable[Run]) -> list[str]:
    """Return a departure for each kind of data that was not read from its publisher's files."""
    return [f"data: {sentence}" for sentence in sorted({s for r in runs for s in r.unofficial})]


def _as_printed(run: Run) -> Tree:
    config = run.flat
    rows = _printed_keys(run.meta["experiment"], run.meta["algo"])
    return {k: v for row in rows if all(config.get(key) == x for key, x in row.items()) for k, v in row.items()}


@cache
def _printed_keys(experiment: str | None, algo: str) -> tuple[Mapping[str, Any], ...]:
    """Return the keys that the rows of a paper's tables and figures set for a method of an experiment."""
    if (home := home_of(experiment)) is None:
        return ()
    rows = (row for part in (*home.paper.tables, *home.paper.figures) for row in home.paper.rows(part))
    mine = (r for r in rows if (r.setup, home.paper.methods[r.algo].algo) == (home.setup.id, algo))
    return tuple(home.paper.overrides(row) for row in mine)
