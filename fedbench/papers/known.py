"""What a paper reports of one experiment: the numbers beside which its runs are shown."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from fedbench.papers.registry import Paper, Reported, Table, papers


@dataclass(frozen=True)
class Known:
    """One setup of one table.

    Attributes:
        experiment: its name in the config tree, ``<paper>/<table>_<setup>``.
        title: of the paper.
        table: of the table.
        seeds: over how many the paper averages.
        departs: what no run of it has as in the paper.
        settings: config keys that the rows set, by algorithm.
        cells: (algorithm, metric of ``rounds.jsonl``) -> what the paper prints.
    """

    experiment: str
    title: str
    table: str
    seeds: int
    departs: tuple[str, ...]
    settings: dict[str, dict[str, Any]]
    cells: dict[tuple[str, str], Reported]

    @property
    def algorithms(self) -> list[str]:
        """The algorithms, in the order of the table."""
        return list(dict.fromkeys(algo for algo, _ in self.cells))

    @property
    def metrics(self) -> list[str]:
        """The metrics, in the order of the table."""
        return list(dict.fromkeys(metric for _, metric in self.cells))


@cache
def known_experiments() -> tuple[Known, ...]:
    """Return every setup of every table on record."""
    return tuple(
        known for paper in papers().values() for table in paper.tables.values() for known in _read(paper, table)
    )


def find_known(experiment: str | None) -> Known | None:
    """Return the setup that an experiment reproduces, or None."""
    return next((k for k in known_experiments() if k.experiment == experiment), None)


@cache
def printed_settings(experiment: str | None, algo: str) -> tuple[dict[str, Any], ...]:
    """Return the config keys that the rows of a paper's tables and figures set for a method of an experiment."""
    found = []
    for paper in papers().values():
        for part in (*paper.tables, *paper.figures):
            for r in paper.rows(part):
                if (paper.setups[r.setup].experiment, paper.methods[r.algo].algo) == (experiment, algo):
                    found.append(paper.overrides(r))
    return tuple(found)


def _read(paper: Paper, table: Table) -> Iterator[Known]:
    if table.round == "best":
        return  # its numbers do not stand beside those of the last round
    for setup in table.setups:
        rows = [r for r in table.rows if r.setup == setup and r.values]
        several = {r.algo for r in rows if sum(r.algo == other.algo for other in rows) > 1}  # a sweep has no one number
        cells = {
            (paper.methods[r.algo].algo, paper.metrics[k].field): v
            for r in rows
            if r.algo not in several and not paper.methods[r.algo].set
            for k, v in r.values.items()
        }
        settings = {paper.methods[r.algo].algo: paper.overrides(r) for r in rows}
        if cells:
            number = table.id.removeprefix("table")
            name = f"{paper.id}/{table.id}_{setup}"
            s = paper.setups[setup]
            yield Known(name, paper.name, f"Table {number}", s.seeds, s.departs, settings, cells)
