"""Units of runs, counted runs, and departures from the paper and from the published data."""

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from statistics import mean
from typing import Any, NamedTuple, TypeAlias

from fedbench.core.config_values import Tree, keys_text
from fedbench.papers.registry import home_of
from fedbench.papers.schema import Setup
from fedbench.runs.run import Run

SPLIT = "data.seed"  # another value means another split of the data, not a departure from a paper


class Unit(NamedTuple):
    """The split and the seed of a run, by which the runs of two settings are paired.

    Attributes:
        split: Seed of the data: ``data.seed``, or the run's seed if every run draws its own data.
        seed: Seed of the run, which fixes the initial model, the cohorts and the batches.
    """

    split: int
    seed: int


PerUnit: TypeAlias = dict[Unit, float]


def by_block(numbers: PerUnit, by_split: bool) -> dict[int, float]:
    """Return numbers by training seed, or their means over the training seeds of each split.

    Runs on the same split depend on each other, so only the split as a whole may be flipped.
    """
    members: dict[int, list[float]] = {}
    for unit, number in sorted(numbers.items()):
        block = unit.split if by_split else unit.seed
        members.setdefault(block, []).append(number)
    return {block: mean(values) for block, values in members.items()}


def unit_of(run: Run) -> Unit:
    """Return the unit of a run."""
    seed = int(run.meta["seed"])
    split = run.flat.get(SPLIT)
    return Unit(seed if split is None else int(split), seed)


Others: TypeAlias = tuple[tuple[Unit, str], ...]  # uncounted runs, as (unit, outcome)


def counted_and_others(runs: Iterable[Run]) -> tuple[dict[Unit, Run], Others]:
    """Return the counted runs of a setting (the first of each unit) and the uncounted runs."""
    done: dict[Unit, Run] = {}
    others = []
    for run in sorted(runs, key=unit_of):
        unit = unit_of(run)
        if run.counts:
            done.setdefault(unit, run)
        else:
            others.append((unit, run.outcome))
    return done, tuple(others)


def changed_keys(run: Run) -> dict[str, list[Any]]:
    """Return the keys in which a run differs from its experiment, as [experiment, run].

    A run records them when it begins. If the experiment has changed since, its setup's ``settings``
    list the new values.
    """
    changed = dict(run.meta["departures"])
    home = home_of(run.meta["experiment"])
    for key, value in (home.setup.settings if home else {}).items():
        if run.flat.get(key) != value:
            changed[key] = [value, run.flat.get(key)]
    return changed


def departures(run: Run, ignoring: str = "") -> list[str]:
    """Return the departures of a run's setting from the paper.

    Neither a value that a row of the paper sets nor another split of the data is a departure.

    Args:
        run: The run.
        ignoring: A configuration key to ignore.
    """
    experiment = run.meta["experiment"]
    changed = changed_keys(run)
    changed.pop(ignoring, None)
    home = home_of(experiment)
    if home is None:
        return config_departures(changed, run.meta["model"])
    changed.pop(SPLIT, None)
    for keys in _printed_keys(experiment, run.meta["algo"]):
        if keys.items() <= run.flat.items():
            changed = {key: change for key, change in changed.items() if key not in keys}
    return config_departures(changed, run.meta["model"], home.setup)


def config_departures(
    changed: Mapping[str, Sequence[Any]],
    model: str,
    setup: Setup | None = None,
    origin: str = "experiment",
) -> list[str]:
    """Return the departures of a run from its experiment or paper, then those of its setup.

    Args:
        changed: The keys that differ, as [other value, value of the run].
        model: Name of the run's model.
        setup: The run's setup, or None.
        origin: Origin of the other values.
    """
    texts = []
    model_differs = "model._target_" in changed
    if model_differs:
        printed = str(changed["model._target_"][0]).rpartition(".")[2]
        texts.append(f"model {model} ({origin} {printed})")
    for key, (printed_value, run_value) in changed.items():
        if not (model_differs and key.startswith("model.")):
            name, _, value = keys_text({key: run_value}).partition("=")
            _, _, printed = keys_text({key: printed_value}).partition("=")
            texts.append(f"{name} {value} ({origin} {printed})")
    return [*texts, *(setup.departs if setup else ())]


def seed_departures(
    done: Mapping[Unit, Run],
    others: Iterable[tuple[Unit, str]],
    wanted: int,
) -> list[str]:
    """Return the departures in the seeds of a row: too few seeds, and seeds whose runs diverged."""
    if not done:
        return []
    texts = []
    seeds = {unit.seed for unit in done}
    if len(seeds) < wanted:
        texts.append(f"seeds {len(seeds)} (paper {wanted})")
    diverged = [unit for unit, outcome in others if outcome == "diverged"]
    lost = dict.fromkeys(str(unit.seed) for unit in diverged)
    if lost:
        first = next(iter(done.values()))
        texts.append(f"without seed {', '.join(lost)}{rate_of(first)}, which diverged")
    return texts


def rate_of(run: Run) -> str:
    """Return the local learning rate of a run in parentheses; empty if it has none."""
    if "local.lr" not in run.flat:
        return ""
    return f" ({keys_text({'local.lr': run.flat['local.lr']})})"


def data_departures(runs: Iterable[Run]) -> list[str]:
    """Return a departure for each kind of data that was not read from its publisher's files."""
    texts = {text for run in runs for text in run.unofficial}
    return [f"data: {text}" for text in sorted(texts)]


@cache
def _printed_keys(experiment: str, algo: str) -> list[Tree]:
    """Return the keys set by each row of the paper for an experiment and an algorithm."""
    home = home_of(experiment)
    assert home is not None
    paper = home.paper
    printed = []
    for part in (*paper.tables, *paper.figures):
        for row in paper.rows(part):
            method = paper.methods[row.algo]
            if row.setup == home.setup.id and method.algo == algo:
                printed.append(paper.overrides(row))
    return printed
