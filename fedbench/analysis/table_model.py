"""The model of a table of runs: columns, cells, rows and blocks, and the coverage of numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from math import sqrt
from statistics import mean, stdev
from typing import Any

from fedbench.analysis.matching import MatchedRuns
from fedbench.analysis.stats import interval
from fedbench.core.config_values import Tree, config_value, keys_text
from fedbench.core.metrics import metric_info
from fedbench.papers.schema import (
    Paper,
    PrintedMetric,
    Reported,
    Row,
    Setup,
    Table,
)


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes:
        printed: Whether the paper's table contains the column.
        round: Round of a run from which the number is taken, ``last`` or ``best``.
    """

    metric: PrintedMetric
    printed: bool = False
    round: str = "last"

    @property
    def name(self) -> str:
        """Name in files: the key of ``rounds.jsonl``, prefixed with ``best_`` for best rounds."""
        if self.metric.target is not None or self.metric.rounds is not None:
            return self.metric.id
        return f"best_{self.metric.field}" if self.round == "best" else self.metric.field

    @property
    def digits(self) -> int:
        """Number of digits shown after the decimal point."""
        return 1 if self.metric.target is not None else metric_info(self.metric.field).digits


@dataclass(frozen=True)
class Cell:
    """A measured number and the paper's number, in the unit of the column.

    Attributes:
        values: Measured values, one per split in a paper's table, otherwise one per seed.
        printed: The paper's number, or None.
        impossible: Explanation of how the printed number contradicts others in its row, or None.
    """

    values: tuple[float, ...] = ()
    printed: Reported | None = None
    impossible: str | None = None

    @property
    def n(self) -> int:
        """Number of seeds."""
        return len(self.values)

    @property
    def mean(self) -> float | None:
        """Mean over seeds; None if there are no values."""
        return mean(self.values) if self.values else None

    @property
    def std(self) -> float | None:
        """Sample standard deviation over seeds; None for fewer than two seeds."""
        return stdev(self.values) if len(self.values) > 1 else None

    @property
    def bounds(self) -> tuple[float, float] | None:
        """The 95 % interval of the mean; None for fewer than two seeds."""
        return interval(self.values)

    @property
    def prediction(self) -> tuple[float, float] | None:
        """The 95 % prediction interval for another run; None for fewer than two seeds."""
        if self.bounds is None:
            return None
        low, high = self.bounds
        center = (low + high) / 2
        half = (high - low) / 2
        wider = half * sqrt(self.n + 1)
        return center - wider, center + wider

    @property
    def difference(self) -> float | None:
        """Measured minus printed number; None if either is missing."""
        if self.printed is None or self.mean is None:
            return None
        return self.mean - self.printed.mean

    @property
    def agreement(self) -> str:
        """Agreement between the measured and the printed number.

        ``inside`` or ``outside``: the printed number lies inside or outside the prediction interval
        for another run; ``single``: one split gives no interval; ``impossible``: see the attribute;
        ``missing``: not measured; ``none``: the paper prints no number.
        """
        if not self.values:
            return "impossible" if self.impossible and self.printed else "missing"
        if self.printed is None:
            return "none"
        return "impossible" if self.impossible else self.place

    @property
    def place(self) -> str:
        """Agreement of a cell that has both numbers, even if the printed one is impossible."""
        if self.prediction is None:
            return "single"
        assert self.printed is not None
        low, high = self.prediction
        inside = low <= self.printed.mean <= high
        return "inside" if inside else "outside"


@dataclass(frozen=True)
class Line:
    """A row of a table: a method with its settings, over seeds.

    Attributes:
        label: The paper's name for the method.
        keys: Keys that distinguish the row from others, with their values: the paper's
            hyperparameters, or dotted keys.
        matched: The runs, and their departures from the paper.
        row: The row of the paper; None for runs that match no row.
        wanted: Configuration keys that the row sets.
        impossible: If some columns are weighted, the reason why the row's printed numbers cannot be
            unweighted statistics over clients; otherwise None.
    """

    algo: str
    label: str
    keys: Tree
    matched: MatchedRuns
    cells: tuple[Cell, ...]
    row: Row | None = None
    wanted: Tree = field(default_factory=dict)
    impossible: str | None = None

    @property
    def name(self) -> str:
        """The method and the keys that distinguish its row."""
        return f"{self.label} {keys_text(self.keys)}".rstrip()

    @property
    def status(self) -> str:
        """One of ``full``, ``reduced``, ``not run`` and ``failed``."""
        if self.matched.runs:
            return "reduced" if self.matched.reduced else "full"
        ended = any(outcome != "not finished" for _, outcome in self.matched.others)
        return "failed" if ended else "not run"


@dataclass(frozen=True)
class RowGroup:
    """Rows that are compared with each other; ``setup`` is the paper's setup, or None."""

    setup: Setup | None
    lines: tuple[Line, ...]

    @property
    def splits(self) -> list[str]:
        """Data seeds of the runs; ``null`` if every run draws its own data."""
        runs = [run for line in self.lines for run in line.matched.runs.values()]
        return sorted({config_value(run.flat.get("data.seed")) for run in runs})

    @property
    def measured(self) -> bool:
        """Whether a row has a run, including diverged and unfinished ones."""
        return any(line.matched.every for line in self.lines)


@dataclass(frozen=True)
class TableData:
    """A table of runs, as unformatted values.

    Attributes:
        name: Name in files: ``<paper>/<table>``, or the name of the runs' experiment or data.
        title: Heading: the paper and its table, a paper's experiment, or a description of the data.
        columns: Columns, with the paper's columns first.
        blocks: Blocks, one per setup of the paper; a single block for other runs.
        paper: The paper that the runs belong to, or None.
        table: The paper's table; None for rows of runs that belong to no table.
        unofficial: Sentences about samples of clients and, for runs that belong to no paper, about
            data that were not read from the publisher's files.
    """

    name: str
    title: str
    columns: tuple[Column, ...]
    blocks: tuple[RowGroup, ...]
    paper: Paper | None = None
    table: Table | None = None
    unofficial: tuple[str, ...] = ()

    @property
    def measured(self) -> bool:
        """Whether a row has a run."""
        return any(block.measured for block in self.blocks)

    @property
    def lines(self) -> list[Line]:
        """The rows of all blocks."""
        return [line for block in self.blocks for line in block.lines]


@dataclass(frozen=True)
class Coverage:
    """Counts of distinct printed numbers, by whether they have been measured.

    If several tables print the same metric under the same settings, the number is counted once.

    Attributes:
        as_printed: Numbers measured at the paper's full setting.
        retuned: Numbers measured at that setting, but with values found by a search with fedbench.
        reduced: Numbers measured under a reduced setting.
        not_run: Numbers not measured.
        agreement: Numbers measured in full, by their agreement (``Cell.agreement``).
    """

    as_printed: int = 0
    retuned: int = 0
    reduced: int = 0
    not_run: int = 0
    agreement: Counter[str] = field(default_factory=Counter)

    @property
    def full(self) -> int:
        """Count of numbers measured in full, as printed or retuned."""
        return self.as_printed + self.retuned

    @property
    def total(self) -> int:
        """Total count of distinct printed numbers."""
        return self.measured + self.not_run

    @property
    def measured(self) -> int:
        """Count of distinct printed numbers measured at any setting."""
        return self.full + self.reduced

    def __add__(self, other: Coverage) -> Coverage:
        return Coverage(
            self.as_printed + other.as_printed,
            self.retuned + other.retuned,
            self.reduced + other.reduced,
            self.not_run + other.not_run,
            self.agreement + other.agreement,
        )


def coverage(tables: Iterable[TableData]) -> Coverage:
    """Return the coverage of papers' tables."""
    known: set[tuple[Any, ...]] = set()
    statuses: Counter[str] = Counter()
    agreement: Counter[str] = Counter()
    for table in tables:
        for block in table.blocks:
            experiment = block.setup.experiment if block.setup else ""
            for line in block.lines:
                wanted = repr(sorted(line.wanted.items()))
                for column, cell in zip(table.columns, line.cells, strict=True):
                    number = experiment, line.algo, wanted, column.name, cell.printed
                    if cell.printed is None or number in known:
                        continue
                    known.add(number)
                    status = line.status if cell.values else "not run"
                    full = status == "full"
                    if full and line.matched.searched:
                        status = "retuned"
                    statuses[status] += 1
                    agreement[cell.agreement] += full
    return Coverage(
        statuses["full"],
        statuses["retuned"],
        statuses["reduced"],
        statuses["not run"],
        +agreement,
    )
