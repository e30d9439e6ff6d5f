"""One table of any content and its forms: Markdown, LaTeX and CSV here, HTML in ``assets/parts.html``."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_LATEX = {
    **{c: f"\\{c}" for c in "%_&#${}"},
    **{"^": r"\^{}", "~": r"\~{}", "\\": r"\textbackslash{}", "±": r"$\pm$", "–": "--", "Σ": r"$\Sigma$"},
    **{"<": "$<$", ">": "$>$", "|": r"$\vert$", "≤": r"$\leq$"},  # other signs in the encoding that LaTeX has
    **{"\N{ASTERISK OPERATOR}": r"$^{\ast}$", "†": r"$^{\dagger}$", "↑": r"$\uparrow$", "↓": r"$\downarrow$"},
    "ε": r"$\varepsilon$",
}
_P = re.compile(r"\bp \$(\\leq|<|>)\$ ([\d.]*\d)")  # a p-value in the signs of mathematics
_FORMULA = re.compile(r"[=@\t\r]|[+-](?![\d.]+(e[+-]?\d+)?$)")  # a signed number in a text is none
_TAG = re.compile(r"<(?=[A-Za-z/!?])")  # any other < is a sign, as in p < 0.01
_ENTITY = re.compile(r"&(?=#?\w+;)")


@dataclass(frozen=True)
class Cell:
    """A cell of a table.

    Attributes:
        text: What is shown.
        number: The number that is shown, which is the sort key on the page; None for a text or a missing number.
        best: Whether it is the best number of its column.
        tone: ``good`` or ``bad`` for a verdict; empty otherwise.
        std: The sample STD that is shown with the number, or None.
    """

    text: str
    number: float | None = None
    best: bool = False
    tone: str = ""
    std: float | None = None


@dataclass(frozen=True)
class Table:
    """A table, whose first column names its rows.

    Attributes:
        title: Heading; empty for a table that continues the one before.
        columns: Headings.
        rows: Rows with a cell per column.
        caption: What the numbers are.
        notes: Sentences below the table.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    caption: str = ""
    notes: tuple[str, ...] = ()

    @property
    def numeric(self) -> list[bool]:
        """Whether a column has numbers."""
        return [any(row[i].number is not None for row in self.rows) for i in range(len(self.columns))]


Values = tuple[Cell | str | int, ...]  # of a row


def table_of(
    title: str, columns: Sequence[str], rows: Iterable[Values], caption: str = "", notes: Iterable[str] = ()
) -> Table:
    """Return a table of cells, texts and counts."""
    cells = (tuple(v if isinstance(v, Cell) else Cell(v) if isinstance(v, str) else count(v) for v in r) for r in rows)
    return Table(title, tuple(columns), tuple(cells), caption, tuple(notes))


def count(number: int) -> Cell:
    """Return the cell of a number of things."""
    return Cell(str(number), number)


def markdown(tables: Sequence[Table], title: str = "", lead: str = "", notes: Sequence[str] = ()) -> str:
    """Return tables as Markdown that is also aligned as plain text.

    Args:
        tables: The tables.
        title: Heading of all of them.
        lead: Paragraph below it.
        notes: Sentences at the end.
    """
    parts = [f"## {markdown_text(title)}\n" if title else "", f"{markdown_text(lead)}\n" if lead else ""]
    for table in tables:
        parts.append(f"### {markdown_text(table.title)}\n" if table.title else "")
        parts.append(f"{markdown_text(table.caption)}\n" if table.caption else "")
        parts += [_markdown_rows(table), _markdown_list(table.notes)]
    return "\n".join(part for part in [*parts, _markdown_list(notes)] if part)


def _markdown_rows(table: Table) -> str:
    texts = [list(table.columns), *([cell.text for cell in row] for row in table.rows)]
    # no text begins a cell, code or a formula
    rows = [[re.sub(r"[|`$]", r"\\\g<0>", markdown_text(text)) for text in row] for row in texts]
    widths = [max(3, *(len(row[i]) for row in rows)) for i in range(len(table.columns))]
    numeric = table.numeric
    rule = ["-" * (w - n) + ":" * n for w, n in zip(widths, numeric, strict=True)]

    def line(cells: Sequence[str]) -> str:
        padded = [c.rjust(w) if n else c.ljust(w) for c, w, n in zip(cells, widths, numeric, strict=True)]
        return f"| {' | '.join(padded)} |"

    return "\n".join(map(line, [rows[0], rule, *rows[1:]])) + "\n"


def _markdown_list(notes: Sequence[str]) -> str:
    return "".join(f"- {markdown_text(note)}\n" for note in notes)


def markdown_text(text: str) -> str:
    """Return text as one line of Markdown in which nothing is read as HTML."""
    return _TAG.sub("&lt;", _ENTITY.sub("&amp;", one_line(text)))


def one_line(text: str) -> str:
    """Return text without line breaks, at which a comment in LaTeX or a paragraph in Markdown would end."""
    return " ".join(text.splitlines())


def latex(table: Table) -> str:
    """Return a table as LaTeX for the package booktabs: a tabular below comments, then its notes in small print."""
    comments = "".join(f"% {one_line(text)}\n" for text in (table.title, table.caption) if text)
    notes = "".join(f"\\par{{\\footnotesize {latex_text(note)}}}\n" for note in table.notes)
    return comments + tabular(table) + notes


def tabular(table: Table) -> str:
    """Return the tabular of a table, in which the best numbers are bold."""
    columns = "".join("r" if numbers else "l" for numbers in table.numeric)
    rows = [[rf"\textbf{{{latex_text(c.text)}}}" if c.best else latex_text(c.text) for c in row] for row in table.rows]
    lines = [
        rf"\begin{{tabular}}{{{columns}}}",
        r"\toprule",
        " & ".join(map(latex_text, table.columns)) + r" \\",
        r"\midrule",
        *(" & ".join(row) + r" \\" for row in rows),
        r"\bottomrule",
        r"\end{tabular}",
    ]
    return "\n".join(lines) + "\n"


def latex_text(text: str) -> str:
    """Return text as one line with the reserved characters of LaTeX escaped."""
    escaped = "".join(_LATEX.get(c, c) for c in one_line(text))
    return _P.sub(r"$p \1 \2$", escaped)


def table_rows(tables: Sequence[Table]) -> list[dict[str, Any]]:
    """Return the rows of tables for CSV: numbers in full precision, their STD in columns of their own, and texts."""
    rows: list[dict[str, Any]] = []
    for table in tables:
        for cells in table.rows:
            row: dict[str, Any] = {"table": table.title} if table.title else {}
            for heading, cell in zip(table.columns, cells, strict=True):
                row[heading] = cell.text if cell.number is None else cell.number
                row |= {} if cell.std is None else {f"{heading} STD": cell.std}
            rows.append(row)
    return rows


def csv_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return CSV with the columns of all rows, in the order of their first appearance."""
    out = io.StringIO()
    writer = csv.DictWriter(out, list(dict.fromkeys(k for r in rows for k in r)), lineterminator="\n")
    writer.writeheader()
    writer.writerows({k: _inert(v) for k, v in row.items()} for row in rows)
    return out.getvalue()


def _inert(value: Any) -> Any:
    """Return a value; a text that is a formula in a spreadsheet follows an apostrophe (OWASP)."""
    return f"'{value}" if isinstance(value, str) and _FORMULA.match(value) else value
