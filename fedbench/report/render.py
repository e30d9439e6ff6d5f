"""Rows of text as Markdown, LaTeX and CSV."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_LATEX = {
    **{c: f"\\{c}" for c in "%_&#${}"},
    **{"^": r"\^{}", "~": r"\~{}", "\\": r"\textbackslash{}", "±": r"$\pm$", "–": "--", "Σ": r"$\Sigma$"},
}

# headings of left-aligned columns
_TEXTS = (
    *("method", "settings", "status", "claim", "verdict", "readings", "printed numbers", "text", "where"),
    *("comparisons", "evidence"),
)


def markdown(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table that is also aligned as plain text; the first column is left-aligned."""
    table = [list(headings), *(list(r) for r in rows)]
    widths = [max(3, *(len(r[i]) for r in table)) for i in range(len(headings))]
    left = {i for i, h in enumerate(headings) if h in _TEXTS}

    def line(cells: Sequence[str]) -> str:
        padded = (c.ljust(w) if i in left else c.rjust(w) for i, (c, w) in enumerate(zip(cells, widths, strict=True)))
        return f"| {' | '.join(padded)} |"

    rule = [("-" * w) if i in left else "-" * (w - 1) + ":" for i, w in enumerate(widths)]
    return "\n".join(map(line, [headings, rule, *rows])) + "\n"


def latex(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a LaTeX tabular for the package booktabs."""

    def line(cells: Sequence[str]) -> str:
        return " & ".join(escape(c) for c in cells) + r" \\"

    columns = "".join("l" if h in _TEXTS else "r" for h in headings)
    above = [rf"\begin{{tabular}}{{{columns}}}", r"\toprule", line(headings), r"\midrule"]
    return "\n".join([*above, *map(line, rows), r"\bottomrule", r"\end{tabular}", ""])


def escape(text: str) -> str:
    """Return text with the reserved characters of LaTeX escaped."""
    return "".join(_LATEX.get(c, c) for c in text)


def csv_text(rows: Sequence[dict[str, Any]]) -> str:
    """Return CSV with the columns of all rows, in the order of their first appearance."""
    out = io.StringIO()
    writer = csv.DictWriter(out, list(dict.fromkeys(k for r in rows for k in r)), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def href(run: Path, page: Path) -> str:
    """Return the relative path from a page's directory to a run's."""
    return Path(os.path.relpath(run, page)).as_posix() + "/"
