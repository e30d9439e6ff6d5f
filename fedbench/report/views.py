"""The content of a report as plain values: texts are ready to print and verdicts are words.

The modules that make these views decide what is compared and how; Markdown, LaTeX and the page only lay them out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from fedbench.analysis.coverage import Coverage
from fedbench.papers.schema import Tuning


@dataclass(frozen=True)
class CellView:
    """A ``fedbench.analysis.tables.Cell`` as text; numbers that are missing are empty.

    Attributes:
        verdict: Its ``agreement``.
        number: Sort key of ``measured``.
        note: Basis of the verdict, or the reason why the number is impossible.
        best: Whether it is the best of its column; only in tables without numbers of a paper.
    """

    measured: str
    paper: str
    difference: str
    verdict: str
    number: float | None
    note: str
    best: bool = False


@dataclass(frozen=True)
class LineView:
    """A ``fedbench.analysis.tables.Line`` as text.

    Attributes:
        settings: Keys that distinguish it from other rows, as typed on the command line.
        seeds: Number of seeds that count.
        reduced: Departures from the paper.
        runs: Folders of the runs, or of the published reports that they are part of, as hrefs relative to the page.
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
    """A setup of a table: rows that are compared with one another.

    Attributes:
        splits: Whether the seeds share a split of the data; empty without runs.
    """

    title: str
    lines: tuple[LineView, ...]
    splits: str = ""


@dataclass(frozen=True)
class TwinView:
    """The other weighting of a printed column, shown next to it.

    Attributes:
        own: Weighting of the printed column, ``weighted`` or ``unweighted``.
        other: Weighting of the twin.
        further: Index of the twin among the table's further columns.
    """

    own: str
    other: str
    further: int


@dataclass(frozen=True)
class TableView:
    """A table, of a paper or of any runs.

    Attributes:
        name: ``<paper>/<table>``, or the experiment or data set.
        caption: Line below the heading.
        further: Headings of columns that the paper does not print.
        with_paper: Whether the columns have numbers of a paper next to them.
        twins: The other weighting of each column, or None; empty if no column has one.
        tuning: Which methods were tuned, as (by whom, sentence).
    """

    name: str
    title: str
    caption: str
    columns: tuple[str, ...]
    blocks: tuple[BlockView, ...]
    notes: tuple[str, ...]
    further: tuple[str, ...] = ()
    with_paper: bool = True
    twins: tuple[TwinView | None, ...] = ()
    tuning: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class ComparisonView:
    """A comparison of a claim (``fedbench.analysis.claims.comparison``) as text; parts that are missing are empty.

    Attributes:
        group: Title of the setup that it belongs to.
        direction: One of ``significantly for``, ``for``, ``level``, ``against``, ``significantly against``, ``not run``
            and ``not comparable``.
        lead: Mean lead in the claimed direction.
        interval: The 95 % interval of the mean.
        pairs: Number of pairs, with what they are.
        for_p: One-sided p-value that the lead is above 0, of this comparison by itself, like ``direction``.
        against_p: One-sided p-value that it is below 0, likewise.
        adjusted_p: ``against_p`` adjusted for the comparisons of the claim, by which a claim fails.
        differences: Lead of each pair, or of each part that it consists of, as (name, text).
    """

    label: str
    group: str
    direction: str
    lead: str = ""
    interval: str = ""
    pairs: str = ""
    for_p: str = ""
    against_p: str = ""
    adjusted_p: str = ""
    differences: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class GroupView:
    """The verdict on the comparisons of a claim within one setup, with the headline of its readings."""

    title: str
    verdict: str
    counts: str
    headline: str = ""


@dataclass(frozen=True)
class ReadingView:
    """The verdict on a claim under one reading of the paper.

    Attributes:
        choices: The choice along each of ``MultiverseView.axes``.
        verdict: The verdict; ``too few seeds`` or ``too few splits`` if these cannot decide.
        counts: Numbers of comparisons by direction, as text.
        blocks: Number of seeds or splits, as text.
        adopted: Whether it is the reading that all other numbers of the page use.
    """

    choices: tuple[str, ...]
    verdict: str
    counts: str
    blocks: str = ""
    adopted: bool = False


@dataclass(frozen=True)
class MultiverseView:
    """The verdicts on a claim under every defensible reading.

    Attributes:
        headline: One of ``robust``, ``robust over``, ``depends on``, ``few blocks``, ``one reading``, ``undecided``,
            ``partly measured`` and ``not run``.
        details: What follows it: the axes, and those that have not been measured.
        axes: Names of the axes along which the readings differ.
        readings: The readings, the adopted one first; empty if it is the only one.
    """

    headline: str
    details: str = ""
    axes: tuple[str, ...] = ()
    readings: tuple[ReadingView, ...] = ()


@dataclass(frozen=True)
class ClaimView:
    """A claim of a paper (``fedbench.papers.schema.Claim``), with its verdict (``fedbench.analysis.claims.judge``).

    Attributes:
        basis: ``runs``, ``proof`` or ``print``.
        tested: What is tested, in words.
        beyond: What of the claim is not tested.
        refuted: What would refute it.
        needs: What a decision needs that two cores do not have; empty if the claim is decided.
        counts: Numbers of comparisons by direction, as text.
        groups: Verdict per setup; empty if there is only one.
        comparisons: All comparisons.
        multiverse: The verdicts under every reading; None for claims that no run decides.
    """

    id: str
    text: str
    where: str
    verdict: str
    evidence: str
    reduced: bool
    printed: str
    basis: str = "runs"
    tested: str = ""
    beyond: str = ""
    refuted: str = ""
    needs: str = ""
    counts: str = ""
    groups: tuple[GroupView, ...] = ()
    comparisons: tuple[ComparisonView, ...] = ()
    multiverse: MultiverseView | None = None


@dataclass(frozen=True)
class FigureView:
    """A figure.

    Attributes:
        svg: Text of an SVG file; empty if there is nothing to draw yet.
        reduced: Departures from the paper.
        note: Further information.
        alt: What is seen in it, in words.
        tuning: Which methods were tuned, as (by whom, sentence).
    """

    name: str
    title: str
    caption: str
    svg: str
    reduced: tuple[str, ...]
    note: str
    alt: str = ""
    tuning: tuple[tuple[str, str], ...] = ()


def tuning_of(tuning: Tuning | None) -> tuple[tuple[str, str], ...]:
    """Return which methods of a table or figure were tuned, as (by whom, sentence)."""
    return (("in the paper", tuning.paper), ("here", tuning.here)) if tuning else ()


@dataclass(frozen=True)
class PaperView:
    """The content of a report about a paper.

    Attributes:
        title: Title of the chapter.
        assumptions: Gaps of the paper, as (id, missing information, adopted value, reason).
        contradictions: Contradictions within the paper, as (id, text).
        coverage: How many of its printed numbers have been measured.
        readings: Alternatives to the adopted reading, as (axis, value, why it is defensible).
    """

    id: str
    title: str
    citation: str
    tables: tuple[TableView, ...]
    figures: tuple[FigureView, ...]
    claims: tuple[ClaimView, ...]
    assumptions: tuple[tuple[str, str, str, str], ...]
    contradictions: tuple[tuple[str, str], ...]
    coverage: Coverage = field(default_factory=Coverage)
    readings: tuple[tuple[str, str, str], ...] = ()


@dataclass(frozen=True)
class GridCell:
    """A cell of a table of any content.

    Attributes:
        number: Sort key; None for a text or a missing number.
        best: Whether it is the best number of its column.
        tone: ``good`` or ``bad`` for a verdict; empty otherwise.
    """

    text: str
    number: float | None = None
    best: bool = False
    tone: str = ""


@dataclass(frozen=True)
class GridView:
    """A table of any content, whose first column names its rows.

    Attributes:
        columns: Headings, and whether the column has numbers.
        rows: Rows with a cell per column.
    """

    title: str
    caption: str
    columns: tuple[tuple[str, bool], ...]
    rows: tuple[tuple[GridCell, ...], ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class ChapterView:
    """A chapter of the page besides papers and runs, such as a comparison.

    Attributes:
        lead: Line below the heading.
        facts: Facts that hold for the whole chapter, as (name, value).
    """

    title: str
    lead: str
    grids: tuple[GridView, ...]
    figures: tuple[FigureView, ...] = ()
    facts: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class PageView:
    """The whole page.

    Attributes:
        papers: Papers that have runs or a plan.
        tables: Tables of runs that match no row of a paper.
        figures: Figures of runs that belong to no paper.
        environment: Versions, devices and commits, as (name, value).
        notes: Notes about the whole page.
        chapters: Further chapters, shown first.
        footer: Text at the end of the page.
    """

    title: str
    papers: tuple[PaperView, ...]
    tables: tuple[TableView, ...]
    figures: tuple[FigureView, ...]
    environment: tuple[tuple[str, str], ...]
    notes: tuple[str, ...]
    chapters: tuple[ChapterView, ...] = ()
    footer: str = ""


@dataclass(frozen=True)
class ClaimTally:
    """Numbers of claims.

    Attributes:
        verdicts: By basis and verdict.
        headlines: Decided ones by the headline of their readings.
    """

    verdicts: Counter[tuple[str, str]]
    headlines: Counter[str]

    @property
    def total(self) -> int:
        """All claims."""
        return self.verdicts.total()

    def of(self, basis: str, *verdicts: str) -> int:
        """Return the number of claims with a basis, and with one of the verdicts if any is given."""
        return sum(n for (b, v), n in self.verdicts.items() if b == basis and v in (verdicts or (v,)))


def claim_tally(claims: Iterable[ClaimView]) -> ClaimTally:
    """Return what claims amount to."""
    given = list(claims)
    decided = [c for c in given if c.basis == "runs" and c.verdict in ("holds", "fails")]
    return ClaimTally(
        Counter((c.basis, c.verdict) for c in given), Counter(c.multiverse.headline for c in decided if c.multiverse)
    )


@dataclass(frozen=True)
class Tally:
    """Numbers of a table: cells by verdict, printed and measured cells, rows and reduced rows."""

    cells: Counter[str]
    printed: int
    measured: int
    rows: int
    reduced: int


def tally(tables: Iterable[TableView]) -> Tally:
    """Return what tables amount to, without regard to numbers that occur twice."""
    lines = [line for table in tables for block in table.blocks for line in block.lines]
    cells = [cell for line in lines for cell in line.cells]
    return Tally(
        Counter(cell.verdict for cell in cells),
        sum(bool(cell.paper) for cell in cells),
        sum(bool(cell.paper and cell.measured) for cell in cells),
        len(lines),
        sum(is_reduced(line) for line in lines),
    )


def is_reduced(line: LineView) -> bool:
    """Return whether a row is marked as reduced."""
    return line.status == "reduced" or bool(line.reduced)
