"""How much of what papers print has been measured, every printed number counted once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from fedbench.analysis.tables import Block, Cell, Column, Line, TableData


@dataclass(frozen=True)
class Coverage:
    """Distinct printed numbers, by what has been measured.

    A number that several tables print, of the same metric under the same settings, is counted once.

    Attributes:
        full: Those measured at the paper's full setting.
        reduced: Those measured under a reduced setting.
        not_run: Those not measured.
        agreement: Measured ones by the agreement of ``fedbench.analysis.tables.Cell``.
    """

    full: int = 0
    reduced: int = 0
    not_run: int = 0
    agreement: Counter[str] = field(default_factory=Counter)

    @property
    def total(self) -> int:
        """All of them."""
        return self.measured + self.not_run

    @property
    def measured(self) -> int:
        """Those measured, at whatever setting."""
        return self.full + self.reduced

    def __add__(self, other: Coverage) -> Coverage:
        return Coverage(
            self.full + other.full,
            self.reduced + other.reduced,
            self.not_run + other.not_run,
            self.agreement + other.agreement,
        )


def coverage(tables: Iterable[TableData], agreement: bool = True) -> Coverage:
    """Return the coverage of tables of papers.

    Args:
        tables: The tables.
        agreement: Whether measured numbers are compared with the printed ones, which takes most of the time.
    """
    cells: dict[Any, tuple[Line, Cell]] = {}
    for table in tables:
        for block in table.blocks:
            for line in block.lines:
                for column, cell in zip(table.columns, line.cells, strict=True):
                    if cell.printed is not None:
                        cells.setdefault(_place(block, line, column, cell), (line, cell))
    measured = [(line, cell) for line, cell in cells.values() if cell.values]
    full = sum(line.status == "full" for line, _ in measured)
    return Coverage(
        full,
        len(measured) - full,
        len(cells) - len(measured),
        Counter(cell.agreement for _, cell in measured if agreement),
    )


def _place(block: Block, line: Line, column: Column, cell: Cell) -> tuple[Any, ...]:
    """Return what two cells that print the same number have in common."""
    experiment = block.setup.experiment if block.setup else ""
    return experiment, line.algo, repr(sorted(line.wanted.items())), column.name, cell.printed


def splits(block: Block) -> str:
    """Return whether the seeds of a block's runs share one split of the data, as text; empty without runs."""
    found = {run.flat.get("data.seed") for line in block.lines for run in line.found.runs.values()}
    if not found:
        return ""
    if found == {None}:
        return "every seed draws its own data split"
    numbers = ", ".join(str(seed) for seed in sorted(s for s in found if s is not None))
    if len(found) == 1:
        return f"all seeds share one data split (data.seed={numbers})"
    own = "; other runs draw their own" if None in found else ""
    return f"data splits: data.seed={numbers}{own}"
