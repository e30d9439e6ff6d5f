"""Rows of text as Markdown, LaTeX and CSV."""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedbench.core.metrics import MetricInfo

_LATEX = {
    **{c: f"\\{c}" for c in "%_&#${}"},
    **{"^": r"\^{}", "~": r"\~{}", "\\": r"\textbackslash{}", "±": r"$\pm$", "–": "--", "Σ": r"$\Sigma$"},
    **{"<": "$<$", ">": "$>$", "|": r"$\vert$"},  # other signs in the encoding that LaTeX has by default
}

_FORMULA = ("=", "+", "-", "@", "\t")  # first characters of what spreadsheets carry out
_NUMBERS = re.compile(r"[-+]?[\d.]+(e[-+]?\d+)?( to [-+]?[\d.]+(e[-+]?\d+)?)?")  # a number, or an interval
_BREAK = re.compile(r"[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]")
_TAG = re.compile(r"<(?=[A-Za-z/!?])")  # any other < is a sign, as in p < 0.01
_ENTITY = re.compile(r"&(?=#?\w+;)")

# headings of left-aligned columns
_TEXTS = (
    *("method", "settings", "status", "claim", "verdict", "readings", "printed numbers", "text", "where"),
    *("comparisons", "evidence"),
)


def markdown(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table that is also aligned as plain text; the first column is left-aligned."""
    rows = [[in_markdown(c).replace("|", r"\|") for c in r] for r in rows]
    table = [list(headings), *rows]
    widths = [max(3, *(len(r[i]) for r in table)) for i in range(len(headings))]
    left = {i for i, h in enumerate(headings) if h in _TEXTS}

    def line(cells: Sequence[str]) -> str:
        padded = (c.ljust(w) if i in left else c.rjust(w) for i, (c, w) in enumerate(zip(cells, widths, strict=True)))
        return f"| {' | '.join(padded)} |"

    rule = [("-" * w) if i in left else "-" * (w - 1) + ":" for i, w in enumerate(widths)]
    return "\n".join(map(line, [headings, rule, *rows])) + "\n"


def in_markdown(text: str) -> str:
    """Return text as one line of Markdown in which nothing is read as HTML, whatever it contains."""
    return _TAG.sub("&lt;", _ENTITY.sub("&amp;", one_line(text)))


def best_names(means: Mapping[str, float], metric: MetricInfo) -> set[str]:
    """Return the names whose mean is printed as the best one; none if neither direction of the metric is better."""
    if metric.direction is None or not means:
        return set()
    top = metric.text(metric.sign * max(metric.sign * v for v in means.values()))
    return {name for name, v in means.items() if metric.text(v) == top}


def one_line(text: str) -> str:
    """Return text without line breaks, at which a comment in LaTeX or a paragraph in Markdown would end."""
    return " ".join(text.splitlines()) if _BREAK.search(text) else text


def latex(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a LaTeX tabular for the package booktabs."""

    def line(cells: Sequence[str]) -> str:
        return " & ".join(escape(c) for c in cells) + r" \\"

    columns = "".join("l" if h in _TEXTS else "r" for h in headings)
    above = [rf"\begin{{tabular}}{{{columns}}}", r"\toprule", line(headings), r"\midrule"]
    return "\n".join([*above, *map(line, rows), r"\bottomrule", r"\end{tabular}", ""])


def escape(text: str) -> str:
    """Return text with the reserved characters of LaTeX escaped."""
    return "".join(_LATEX.get(c, c) for c in one_line(text))


def csv_text(rows: Sequence[dict[str, Any]]) -> str:
    """Return CSV with the columns of all rows, in the order of their first appearance.

    Text that a spreadsheet would carry out as a formula begins with an apostrophe; numbers stay as they are.
    """
    out = io.StringIO()
    writer = csv.DictWriter(out, list(dict.fromkeys(k for r in rows for k in r)), lineterminator="\n")
    writer.writeheader()
    writer.writerows({k: _inert(v) for k, v in row.items()} for row in rows)
    return out.getvalue()


def _inert(value: Any) -> Any:
    """Return a cell that no spreadsheet takes for a formula."""
    if isinstance(value, str):
        value = value.replace("\r", " ")  # which ends a row for some readers, and which the writer does not quote
    risky = isinstance(value, str) and value.startswith(_FORMULA) and not _NUMBERS.fullmatch(value)
    return f"'{value}" if risky else value


def href(run: Path, page: Path) -> str:
    """Return the relative path from a page's directory to a run's."""
    return Path(os.path.relpath(run, page)).as_posix() + "/"
