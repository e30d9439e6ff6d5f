"""What a report shows, as plain values: texts are ready to print and verdicts are words.

What is compared, and how, is decided where they are made; Markdown, LaTeX and the page only lay them out.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class CellView:
    """A number of a table next to the paper's.

    Attributes:
        own: What was measured, as it is printed; empty if it was not.
        paper: What the paper prints; empty if it prints nothing.
        difference: Own minus paper, with its sign; empty if one of them is missing.
        verdict: inside, outside, single, impossible, none or missing.
        number: What ``own`` is sorted by.
        note: How the verdict was made, or why the number is impossible.
    """

    own: str
    paper: str
    difference: str
    verdict: str
    number: float | None
    note: str


@dataclass(frozen=True)
class LineView:
    """A row of a table: a method with its settings, over seeds.

    Attributes:
        label: The method as the paper calls it.
        settings: What tells it from other rows.
        seeds: Number of seeds that count.
        status: full, reduced, not run, failed or no data.
        reduced: What is not as in the paper.
        cells: One for each column of the table.
        runs: Folders of the runs, as hrefs relative to the page.
        command: The shell command that reproduces the row.
        note: Anything else that a reader has to know.
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
        title: Its heading.
        caption: A line below the heading.
        columns: Headings.
        blocks: The rows.
        notes: Lines below the table.
        further: Headings of numbers that the paper does not print.
        beside: Whether the columns have numbers of a paper next to them.
    """

    name: str
    title: str
    caption: str
    columns: tuple[str, ...]
    blocks: tuple[BlockView, ...]
    notes: tuple[str, ...]
    further: tuple[str, ...] = ()
    beside: bool = True


@dataclass(frozen=True)
class ClaimView:
    """A claim of a paper.

    Attributes:
        id: its name within the paper.
        text: the claim.
        where: the place in the paper.
        verdict: holds, fails, undecided, not run or not testable.
        evidence: what the verdict rests on.
        reduced: whether a run behind it is not as in the paper.
        printed: what the paper's own numbers say: supports, contradicts, mixed or not tabulated.
        basis: what the verdict rests on: runs, test (of the code) or print (the paper's own numbers).
    """

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
    """A figure; ``svg`` is the text of an SVG file, '' if there is nothing to draw yet."""

    name: str
    title: str
    caption: str
    svg: str
    reduced: tuple[str, ...]
    note: str


@dataclass(frozen=True)
class PaperView:
    """All of a paper.

    Attributes:
        id: its short name.
        title: of the paper.
        citation: authors, venue and year.
        tables: in the paper's order.
        figures: in the paper's order.
        claims: in the paper's order.
        assumptions: id, what the paper does not say, what is adopted, why.
        contradictions: where in the paper, and what contradicts what.
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
        title: Title of the page.
        papers: Papers that have runs or a plan.
        tables: Tables of runs that stand for no row of a paper.
        figures: Figures of runs of no paper.
        environment: Names and values.
        notes: Notes on the page as a whole.
    """

    title: str
    papers: tuple[PaperView, ...]
    tables: tuple[TableView, ...]
    figures: tuple[FigureView, ...]
    environment: tuple[tuple[str, str], ...]
    notes: tuple[str, ...]
