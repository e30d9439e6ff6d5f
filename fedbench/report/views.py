"""The content of a report as plain values: texts are ready to print and verdicts are words.

The modules that make these views decide what is compared and how; Markdown, LaTeX and the page only lay them out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class CellView:
    """A ``fedbench.analysis.tables.Cell`` as text; numbers that are missing are empty.

    Attributes:
        verdict: Its ``agreement``.
        number: Sort key of ``measured``.
        note: Basis of the verdict, or the reason why the number is impossible.
    """

    measured: str
    paper: str
    difference: str
    verdict: str
    number: float | None
    note: str


@dataclass(frozen=True)
class LineView:
    """A ``fedbench.analysis.tables.Line`` as text.

    Attributes:
        settings: Keys that distinguish it from other rows, as typed on the command line.
        seeds: Number of seeds that count.
        reduced: Departures from the paper.
        runs: Folders of the runs, as hrefs relative to the page.
        command: The shell command that reproduces the row.
        note: Further information.
        further: Texts of the table's further columns.
    """

    label: str
    settings: str
    seeds: int
    status: str
    reduced: tuple[str, ...]
    cells: tuple[CellView, ...]
    runs: tuple[str, ...]
    command: str
    note: str
    further: tuple[str, ...] = ()


@dataclass(frozen=True)
class BlockView:
    """A setup of a table: rows that are compared with one another."""

    title: str
    lines: tuple[LineView, ...]


@dataclass(frozen=True)
class TableView:
    """A table, of a paper or of any runs.

    Attributes:
        name: ``<paper>/<table>``, or the experiment or data set.
        caption: Line below the heading.
        further: Headings of columns that the paper does not print.
        with_paper: Whether the columns have numbers of a paper next to them.
    """

    name: str
    title: str
    caption: str
    columns: tuple[str, ...]
    blocks: tuple[BlockView, ...]
    notes: tuple[str, ...]
    further: tuple[str, ...] = ()
    with_paper: bool = True


@dataclass(frozen=True)
class ClaimView:
    """A claim of a paper (``fedbench.papers.registry.Claim``), with its verdict (``fedbench.analysis.claims``)."""

    id: str
    text: str
    where: str
    verdict: str
    evidence: str
    reduced: bool
    printed: str
    basis: str = "runs"


@dataclass(frozen=True)
class FigureView:
    """A figure; ``svg`` is the text of an SVG file, or '' if there is nothing to draw yet."""

    name: str
    title: str
    caption: str
    svg: str
    reduced: tuple[str, ...]
    note: str


@dataclass(frozen=True)
class PaperView:
    """The content of a report about a paper.

    Attributes:
        title: Title of the chapter.
        assumptions: Gaps of the paper, as (id, missing information, adopted value, reason).
        contradictions: Contradictions within the paper, as (id, text).
    """

    id: str
    title: str
    citation: str
    tables: tuple[TableView, ...]
    figures: tuple[FigureView, ...]
    claims: tuple[ClaimView, ...]
    assumptions: tuple[tuple[str, str, str, str], ...]
    contradictions: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class PageView:
    """The whole page.

    Attributes:
        papers: Papers that have runs or a plan.
        tables: Tables of runs that match no row of a paper.
        figures: Figures of runs that belong to no paper.
        environment: Versions, devices and commits, as (name, value).
        notes: Notes about the whole page.
    """

    title: str
    papers: tuple[PaperView, ...]
    tables: tuple[TableView, ...]
    figures: tuple[FigureView, ...]
    environment: tuple[tuple[str, str], ...]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Tally:
    """Numbers of verdicts on claims and on cells, of rows, of reduced rows, and of claims decided without runs."""

    claims: Counter[str]
    cells: Counter[str]
    rows: int
    reduced: int
    without_runs: int


def tally(tables: Iterable[TableView], claims: Iterable[ClaimView] = ()) -> Tally:
    """Return what tables and claims amount to."""
    lines = [line for table in tables for block in table.blocks for line in block.lines]
    given = list(claims)
    return Tally(
        Counter(c.verdict for c in given),
        Counter(cell.verdict for line in lines for cell in line.cells),
        len(lines),
        sum(is_reduced(line) for line in lines),
        sum(c.basis != "runs" for c in given),
    )


def is_reduced(line: LineView) -> bool:
    """Return whether a row is marked as reduced."""
    return line.status == "reduced" or bool(line.reduced)
