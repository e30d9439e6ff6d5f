"""Tables and claims of a paper as Markdown, CSV and LaTeX."""

from __future__ import annotations

from collections.abc import Sequence

from fedbench.report.render import csv_text, escape, latex, markdown
from fedbench.report.views import ClaimView, Line, TableView
from fedbench.runs.store import Fields

_LEGEND = (
    "Mean ± sample STD over seeds; in or OUT: whether the paper's number lies in the 95 % interval of the mean, "
    "widened by its ±."
)
_SIGNS = {"inside": "in", "outside": "OUT", "impossible": "impossible", "single": "", "none": "", "missing": ""}


def table_markdown(view: TableView) -> str:
    """Return a table as Markdown: per column what was measured, what is printed, the difference and the verdict."""
    parts = [f"## {view.title}\n", f"{view.caption}. {_LEGEND}\n"]
    for block in view.blocks:
        heads, rows = _rows(view, block.lines)
        parts += [f"### {block.title}\n", markdown(heads, rows)]
        parts += ["".join(f"- {text}\n" for text in _reduced(block.lines)), ""]
    parts.append("".join(f"- {n}\n" for n in [*view.notes, *_impossible(view)]))
    return "\n".join(p for p in parts if p) + "\n"


def table_latex(view: TableView) -> str:
    """Return a table as LaTeX (booktabs): per setup a tabular, below it what was reduced; other notes as comments."""
    parts = [f"% {view.title}: {view.caption}\n"]
    for block in view.blocks:
        heads, rows = _rows(view, block.lines)
        cuts = _reduced(block.lines)
        parts += [f"% {block.title}\n", *(f"% {text}\n" for text in cuts), latex(heads, rows)]
        parts += [*(f"\\par{{\\footnotesize {escape(text)}}}\n" for text in cuts), "\n"]
    return "".join(parts) + "".join(f"% {n}\n" for n in view.notes)


def table_csv(view: TableView) -> str:
    """Return a table as CSV, a row per method and setup."""
    rows: list[Fields] = []
    for block in view.blocks:
        for line in block.lines:
            row: Fields = {"setup": block.title, "method": line.label, "settings": line.settings, "seeds": line.seeds}
            for label, cell in zip(view.columns, line.cells, strict=True):
                row |= {label: cell.own, f"{label} paper": cell.paper, f"{label} difference": cell.difference}
                row[f"{label} verdict"] = cell.verdict
            rows.append(
                row
                | {
                    "status": line.status,
                    "reduced": "; ".join(line.reduced),
                    "note": line.note,
                    "command": line.command,
                }
            )
    return csv_text(rows)


def claims_markdown(views: Sequence[ClaimView], title: str) -> str:
    """Return claims as Markdown, the verdict first."""
    heads = ["claim", "verdict", "printed numbers", "text", "where", "evidence"]
    rows = [[c.id, _verdict(c), c.printed, c.text, c.where, c.evidence] for c in views]
    return f"## {title}: claims\n\n" + markdown(heads, [[cell.replace("|", "/") for cell in r] for r in rows])


def _verdict(c: ClaimView) -> str:
    return (
        c.verdict + {"runs": "", "test": " (by a test)", "print": " (as printed)"}[c.basis] + " (reduced)" * c.reduced
    )


def claims_csv(views: Sequence[ClaimView]) -> str:
    """Return claims as CSV."""
    return csv_text([vars(c) for c in views])


def _rows(view: TableView, lines: Sequence[Line]) -> tuple[list[str], list[list[str]]]:
    settings = any(line.settings for line in lines)
    heads = ["method", *(["settings"] if settings else []), "seeds"]
    for label in view.columns:
        heads += [label, "paper", "diff.", ""]
    rows = []
    for line in lines:
        row = [line.label, *([line.settings] if settings else []), str(line.seeds)]
        for cell in line.cells:
            row += [cell.own or "–", cell.paper or "–", cell.difference or "–", _SIGNS[cell.verdict]]
        rows.append([*row, line.status])
    return [*heads, "status"], rows


def _reduced(lines: Sequence[Line]) -> list[str]:
    reasons: dict[tuple[str, ...], list[str]] = {}
    for line in lines:
        if line.reduced:
            reasons.setdefault(line.reduced, []).append(f"{line.label} {line.settings}".rstrip())
    texts = [f"reduced ({', '.join(names)}): {', '.join(why)}" for why, names in reasons.items()]
    return texts + [f"{line.label}: {line.note}" for line in lines if line.note]


def _impossible(view: TableView) -> list[str]:
    return [
        f"{block.title}, {line.label} {line.settings}".rstrip() + f": {notes[0].split('. ')[-1]}"
        for block in view.blocks
        for line in block.lines
        if (notes := [c.note for c in line.cells if c.verdict == "impossible"])
    ]
