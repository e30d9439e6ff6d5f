"""From runs to tables: one per experiment or data set, mean ± sample STD over seeds beside the paper's numbers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from fedbench.analysis.matching import reductions
from fedbench.core.trees import Tree, leaves
from fedbench.papers.known import Known, find_known, printed_settings
from fedbench.papers.registry import Reported
from fedbench.runs.store import Run

# (metric of rounds.jsonl, heading, factor to what is printed)
COLUMNS = (
    ("accuracy_mean_weighted", "mean (w)", 100.0),
    ("accuracy_std_weighted", "STD (w)", 100.0),
    ("accuracy_worst30_weighted", "worst 30% (w)", 100.0),
    ("accuracy_mean", "mean", 100.0),
    ("accuracy_std", "STD", 100.0),
    ("accuracy_worst30", "worst 30%", 100.0),
    ("angle_degrees", "angle", 1.0),
    ("kl_uniform", "KL", 1.0),
)
# what tells no settings apart
_ASIDE = (
    "seed",
    "device",
    "data_dir",
    "results_dir",
    "force",
    "engine.mode",
    "engine.cohort",
    "engine.work",
    "tracker",
)


@dataclass(frozen=True)
class Cell:
    """A measured number over seeds, in the unit that is printed.

    Attributes:
        values: one per seed.
        paper: what the paper prints, or None.
    """

    values: tuple[float, ...]
    paper: Reported | None = None

    @property
    def mean(self) -> float | None:
        """Mean over seeds."""
        return mean(self.values) if self.values else None

    @property
    def std(self) -> float | None:
        """Sample standard deviation over seeds; None for fewer than two."""
        return stdev(self.values) if len(self.values) > 1 else None

    @property
    def difference(self) -> float | None:
        """Measured minus reported."""
        return self.mean - self.paper.mean if self.paper and self.mean is not None else None


@dataclass(frozen=True)
class Line:
    """One row of a table: an algorithm with its settings, over seeds.

    Attributes:
        algo: its name.
        settings: what tells it from other rows of the same algorithm.
        seeds: those that are done.
        cells: by metric.
        reduced: what is not as in the paper; empty if everything is, or if nothing is known of a paper.
        paths: of the runs that are done.
    """

    algo: str
    settings: str
    seeds: tuple[int, ...]
    cells: dict[str, Cell]
    reduced: tuple[str, ...] = ()
    paths: tuple[Path, ...] = ()

    @property
    def status(self) -> str:
        """One word for ``reduced``."""
        return "reduced" if self.reduced else "full"


@dataclass(frozen=True)
class Table:
    """All runs of one experiment or data set.

    Attributes:
        name: of the experiment or the data set.
        lines: the rows.
        known: what a paper reports of it, or None.
        notes: below the table.
    """

    name: str
    lines: list[Line]
    known: Known | None
    notes: list[str] = field(default_factory=list)


def tabulate(runs: Iterable[Run]) -> list[Table]:
    """Return the tables of the runs, by name; runs that are not done are named in the notes."""
    by_name: dict[str, list[Run]] = {}
    for run in runs:
        by_name.setdefault(run.meta["experiment"] or run.meta["data"], []).append(run)
    return [_table(name, members) for name, members in sorted(by_name.items())]


def _table(name: str, runs: list[Run]) -> Table:
    known = find_known(name)
    groups: dict[tuple[str, str], list[Run]] = {}
    for run in runs:
        groups.setdefault((run.meta["algo"], run.meta["hash"]), []).append(run)
    order = known.algorithms if known else []
    keys = sorted(groups, key=lambda k: (order.index(k[0]) if k[0] in order else len(order), k))
    lines = [_line(groups[k], settings_of(groups, k), known) for k in keys]
    notes = [
        f"{r.meta['algo']} seed {r.meta['seed']}: {r.meta['status'] if r.meta['status'] != 'done' else 'not finished'}"
        for r in sorted(runs, key=lambda r: (r.meta["algo"], r.meta["seed"]))
        if not _counts(r)
    ]
    sources = [] if known else _unofficial(runs)  # beside a paper's numbers the rows say it
    return Table(name, [line for line in lines if line.seeds], known, notes + sources)


def _counts(run: Run) -> bool:
    return run.done and run.meta["status"] == "done"


def _line(runs: list[Run], settings: str, known: Known | None) -> Line:
    done = sorted((r for r in runs if _counts(r)), key=lambda r: r.meta["seed"])
    algo, last = runs[0].meta["algo"], [r.last_round() for r in done]
    departures, named = runs[0].meta["departures"], _printed(runs[0])
    # a row of its own in the paper, which this table's numbers are not those of
    other = {k for k in departures if k in named and not (known and known.settings.get(algo, {}).get(k) == named[k])}
    cells = {
        metric: Cell(
            tuple(row[metric] * factor for row in last if row[metric] is not None),
            known.cells.get((algo, metric)) if known and not other else None,
        )
        for metric, _, factor in COLUMNS
    }
    departures = {k: v for k, v in departures.items() if k not in named}
    reduced = [f"{k} {_show(here)} (paper {_show(there)})" for k, (there, here) in departures.items()]
    if known:
        reduced += known.departs
        reduced += [f"seeds {len(done)} (paper {known.seeds})"] if len(done) < known.seeds else []
        reduced += [f"data: {s}" for s in _unofficial(done)]
    return Line(algo, settings, tuple(r.meta["seed"] for r in done), cells, tuple(reduced), tuple(r.path for r in done))


def _printed(run: Run) -> Tree:
    """Return the settings that a row of the paper has just as the run has them: they are no departure from it."""
    config = leaves(run.config)
    rows = printed_settings(run.meta["experiment"], run.meta["algo"])
    return {k: v for row in rows if all(config.get(key) == x for key, x in row.items()) for k, v in row.items()}


def marks(run: Run, but: str = "") -> list[str]:
    """Return what of a run is not as a paper, or its data's publisher, has it.

    Args:
        run: done or not.
        but: a key of the configuration that is not counted.
    """
    named = {*_printed(run), but}
    departures = {k: v for k, v in run.meta["departures"].items() if k not in named}
    known = find_known(run.meta["experiment"])
    data = [f"data: {s}" for s in _unofficial([run])]
    return [*reductions(departures, run.meta["model"]), *(known.departs if known else ()), *data]


def _unofficial(runs: Iterable[Run]) -> list[str]:
    return sorted({s for r in runs for s in r.meta.get("sources", []) if "not the official" in s})


def settings_of(groups: dict[tuple[str, str], list[Run]], key: tuple[str, str]) -> str:
    """Return the values in which this setting differs from others of the same algorithm."""
    flat = {k: leaves(runs[0].config) for k, runs in groups.items() if k[0] == key[0]}
    mine = flat[key]
    differing = [k for k in mine if not k.startswith(_ASIDE) and any(f.get(k) != mine[k] for f in flat.values())]
    return " ".join(f"{k}={_show(mine[k])}" for k in differing)


def _show(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
