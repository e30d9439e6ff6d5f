"""What the papers report: numbers as data (a YAML file per paper), and what reads them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml


@dataclass(frozen=True)
class Reported:
    """A cell of a paper's table, as printed, in percent.

    Attributes:
        mean: the number.
        std: the ± beside it, or None.
    """

    mean: float
    std: float | None


@dataclass(frozen=True)
class Known:
    """One setup of one table.

    Attributes:
        experiment: its name in the config tree, ``<paper>/<table>_<setup>``.
        title: of the paper.
        table: of the table.
        seeds: over how many the paper averages.
        cells: (algorithm, metric of ``rounds.jsonl``) -> what the paper prints.
    """

    experiment: str
    title: str
    table: str
    seeds: int
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
    folder = Path(__file__).parent
    return tuple(k for path in sorted(folder.glob("*.yaml")) for k in _read(yaml.safe_load(path.read_text("utf-8"))))


def find_known(experiment: str | None) -> Known | None:
    """Return the setup that an experiment reproduces, or None."""
    return next((k for k in known_experiments() if k.experiment == experiment), None)


def _read(content: dict[str, Any]) -> Iterator[Known]:
    metric = {m["id"]: m["metric"] for m in content["metrics"]}
    paper = content["paper"]
    for table in content["tables"]:
        for setup in content["setups"]:
            cells = {
                (row["algo"], metric[k]): Reported(v["mean"], v["std"])
                for row in table["rows"]
                if row["setup"] == setup["id"]
                for k, v in row["values"].items()
            }
            if cells:
                name = f"{paper['id']}/{table['id']}_{setup['id']}"
                yield Known(name, paper["title"], table["title"], setup["seeds"], cells)
