"""Tables of any content as Markdown, LaTeX and CSV; ``assets/parts.html`` renders them as HTML."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from fedbench.reports.templates import ENVIRONMENT, render, yaml_asset

_LATEX = str.maketrans(yaml_asset("latex.yaml"))
_FORMULA = re.compile(r"[=@\t\r]|[+-](?![\d.]+(e[+-]?\d+)?$)")  # signed numbers are not formulas
_TAG = re.compile(r"<(?=[A-Za-z/!?])")  # any other < is an operator, as in p < 0.01
_ENTITY = re.compile(r"&(?=#?\w+;)")


@dataclass(frozen=True)
class Cell:
    """A cell of a table.

    Attributes:
        text: The displayed text.
        number: The displayed number, which is the sort key on the page; None for text or a missing
            number.
        best: Whether the number is the best in its column.
        tone: ``good``, ``bad`` or ``warn`` for a verdict; empty otherwise.
        std: The sample STD displayed with the number, or None.
    """

    text: str
    number: float | None = None
    best: bool = False
    tone: str = ""
    std: float | None = None


@dataclass(frozen=True)
class Table:
    """A table whose first column names the rows.

    Attributes:
        title: Heading; empty for a table that continues the previous one.
        columns: Column headings.
        rows: Rows with a cell per column.
        caption: Description of the numbers.
        notes: Sentences below the table.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    caption: str = ""
    notes: tuple[str, ...] = ()

    @property
    def numeric(self) -> list[bool]:
        """Whether each column contains numbers."""
        numeric = []
        for i in range(len(self.columns)):
            numbers = [row[i].number for row in self.rows]
            numeric.append(any(number is not None for number in numbers))
        return numeric


Values = tuple[Cell | str | int, ...]  # the values of a row


def table_of(
    title: str,
    columns: Sequence[str],
    rows: Iterable[Values],
    caption: str = "",
    notes: Iterable[str] = (),
) -> Table:
    """Return a table built from cells, strings and counts."""
    cells = tuple(tuple(map(_cell, row)) for row in rows)
    return Table(
        title,
        tuple(columns),
        cells,
        caption,
        tuple(notes),
    )


def _cell(value: Cell | str | int) -> Cell:
    if isinstance(value, Cell):
        return value
    return Cell(value) if isinstance(value, str) else Cell(str(value), value)


def one_line(text: str) -> str:
    """Return text without line breaks; in LaTeX, a line break would end a comment."""
    return " ".join(text.splitlines())


# ---- Markdown


def markdown(
    tables: Sequence[Table],
    title: str = "",
    lead: str = "",
    notes: Sequence[str] = (),
) -> str:
    """Return tables as Markdown that is also aligned as plain text.

    Args:
        tables: The tables.
        title: Heading above all tables.
        lead: Paragraph below the heading.
        notes: Sentences at the end.
    """
    return render(
        "tables.md",
        tables=tables,
        title=title,
        lead=lead,
        notes=notes,
    )


def markdown_rows(table: Table) -> str:
    """Return the rows of a table as Markdown, aligned as plain text."""
    columns = []
    for i, numbers in enumerate(table.numeric):
        texts = [_markdown_cell(Cell(table.columns[i]))]
        texts += [_markdown_cell(row[i]) for row in table.rows]
        width = max(3, *map(len, texts))
        texts.insert(1, "-" * (width - 1) + (":" if numbers else "-"))
        aligned = str.rjust if numbers else str.ljust
        columns.append([aligned(text, width) for text in texts])
    rows = zip(*columns, strict=True)
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _markdown_cell(cell: Cell) -> str:
    """Return the text of a cell, escaping characters that would begin a cell, code or a formula.

    An asterisk marks the best number.
    """
    text = re.sub(r"[|`$]", r"\\\g<0>", markdown_text(cell.text))
    return f"*{text}" if cell.best else text


def markdown_text(text: str) -> str:
    """Return text as one line of Markdown that contains no HTML."""
    return _TAG.sub("&lt;", _ENTITY.sub("&amp;", one_line(text)))


# ---- LaTeX


def latex(
    tables: Sequence[Table],
    title: str = "",
    notes: Sequence[str] = (),
) -> str:
    """Return tables as LaTeX for the package booktabs: tabulars with their notes.

    All other text becomes comments.

    Args:
        tables: The tables.
        title: Comment at the beginning.
        notes: Comments at the end.
    """
    return render(
        "tables.tex",
        tables=tables,
        title=title,
        notes=notes,
    )


def latex_text(text: str) -> str:
    """Return text on one line with the reserved characters of LaTeX escaped."""
    return one_line(text).translate(_LATEX)


ENVIRONMENT.filters |= {
    "latex": latex_text,
    "markdown": markdown_text,
    "markdown_rows": markdown_rows,
    "one_line": one_line,
}


# ---- CSV


def table_rows(tables: Sequence[Table]) -> list[dict[str, Any]]:
    """Return the rows of tables for CSV, with numbers in full precision and columns for the STD."""
    rows: list[dict[str, Any]] = []
    for table in tables:
        for cells in table.rows:
            row: dict[str, Any] = {"table": table.title}
            for heading, cell in zip(table.columns, cells, strict=True):
                row[heading] = cell.text if cell.number is None else cell.number
                if cell.std is not None:
                    row[f"{heading} STD"] = cell.std
            rows.append(row)
    return rows


def csv_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return CSV with the columns of all rows in order of first appearance."""
    table = pd.DataFrame(rows, dtype=object).map(_inert)
    return str(table.to_csv(index=False, lineterminator="\n"))


def _inert(value: Any) -> Any:
    """Return a value; text that spreadsheets read as a formula gets an apostrophe (OWASP)."""
    return f"'{value}" if isinstance(value, str) and _FORMULA.match(value) else value
