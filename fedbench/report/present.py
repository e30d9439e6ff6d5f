"""Tables as text and files. Nothing here depends on when or where it runs: the same runs give the same bytes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fedbench.report.render import csv_text, href, latex, markdown
from fedbench.report.tables import COLUMNS, Cell, Line, Table, tabulate
from fedbench.report.views import Block, TableView
from fedbench.report.views import Cell as ViewedCell
from fedbench.report.views import Line as ViewedLine
from fedbench.runs.store import Fields, Run

_LEGEND = "percent at the last round, mean ± sample STD over seeds; (w): clients weighted by their test examples"
Part = tuple[list[str], list[list[str]]]  # headings, rows


def _blocks(table: Table) -> list[Part]:
    """Return what a paper reports beside its numbers first, then everything else; one block if no paper is known."""
    metrics = [metric for metric, _, _ in COLUMNS]
    if table.known is None:
        return [_block(table, metrics)]
    reported = [m for m in metrics if m in table.known.metrics]
    return [_block(table, reported), _block(table, [m for m in metrics if m not in reported])]


def _block(table: Table, metrics: Sequence[str]) -> Part:
    labels = {metric: label for metric, label, _ in COLUMNS}
    settings = any(line.settings for line in table.lines)
    status = table.known is not None or any(line.reduced for line in table.lines)
    heads = ["method", *(["settings"] if settings else []), "seeds"]
    for m in metrics:
        heads += [labels[m], *(["paper", "diff."] if table.known and m in table.known.metrics else [])]
    rows = []
    for line in table.lines:
        row = [line.algo, *([line.settings] if settings else []), str(len(line.seeds))]
        for m in metrics:
            row += _texts(line, m, beside=table.known is not None and m in table.known.metrics)
        rows.append(row + ([line.status] if status else []))
    return heads + (["status"] if status else []), rows


def _texts(line: Line, metric: str, beside: bool) -> list[str]:
    cell = line.cells[metric]
    own = _with_spread(cell.mean, cell.std, digits=4 if metric == "kl_uniform" else 2)
    if not beside:
        return [own]
    return [own, *_paper(cell)]


def _paper(cell: Cell) -> list[str]:
    if cell.paper is None:
        return ["–", "–"]
    return [_with_spread(cell.paper.mean, cell.paper.std), _number(cell.difference, sign="+")]


def _number(value: float | None, digits: int = 2, sign: str = "") -> str:
    return "–" if value is None else f"{value:{sign}.{digits}f}"


def _with_spread(value: float | None, spread: float | None, digits: int = 2) -> str:
    return _number(value, digits) + ("" if spread is None else f" ± {_number(spread, digits)}")


def _notes(table: Table) -> list[str]:
    reasons: dict[tuple[str, ...], list[str]] = {}
    for line in table.lines:
        if line.reduced:
            reasons.setdefault(line.reduced, []).append(f"{line.algo} {line.settings}".rstrip())
    return [
        "reduced" + ("" if len(names) == len(table.lines) else f" ({', '.join(names)})") + ": " + ", ".join(why)
        for why, names in reasons.items()
    ] + table.notes


def to_markdown(table: Table) -> str:
    """Return the table as Markdown that also reads as plain text."""
    title = table.name + (f" ({table.known.title}, {table.known.table})" if table.known else "")
    notes = "".join(f"- {n}\n" for n in _notes(table))
    return "\n".join([f"{title}: {_LEGEND}\n", *(markdown(*b) for b in _blocks(table)), *([notes] if notes else [])])


def to_latex(table: Table) -> str:
    """Return the table as LaTeX (booktabs), the notes as comments."""
    notes = [f"% {n}\n" for n in [_LEGEND, *_notes(table)]]
    return "".join(notes) + "\n".join(latex(*b) for b in _blocks(table))


def to_csv(table: Table) -> str:
    """Return the table as CSV with full numbers: per metric mean, sample STD, the paper's two and the difference."""
    rows: list[Fields] = []
    for line in table.lines:
        row: Fields = {"method": line.algo, "settings": line.settings, "seeds": len(line.seeds)}
        for metric, cell in line.cells.items():
            row |= {metric: cell.mean, f"{metric}_seed_std": cell.std}
            if cell.paper:
                row |= {f"{metric}_paper": cell.paper.mean, f"{metric}_paper_std": cell.paper.std}
                row[f"{metric}_difference"] = cell.difference
        rows.append(row | {"reduced": "; ".join(line.reduced)})
    return csv_text(rows)


def summary(runs: Sequence[Run]) -> str:
    """Return the tables of the runs as Markdown text."""
    return "\n".join(to_markdown(t) for t in tabulate(runs)).rstrip()


def own_view(table: Table, page: Path | None) -> TableView:
    """Return a table of runs that belong to no paper as a page shows it.

    Args:
        table: of the runs.
        page: its directory, from which links to runs lead; None: it is to stand without its runs.
    """
    settings = tuple(label for _, label, _ in COLUMNS)
    lines = tuple(
        ViewedLine(
            label=line.algo,
            settings=line.settings,
            seeds=len(line.seeds),
            status="reduced" if line.reduced else "full",
            reduced=line.reduced,
            cells=tuple(_own_cell(line, metric) for metric, _, _ in COLUMNS),
            runs=() if page is None else tuple(href(path, page) for path in line.paths),
            command="",
            note="",
        )
        for line in table.lines
    )
    return TableView(table.name, table.name, _LEGEND, settings, (Block("", lines),), tuple(table.notes))


def _own_cell(line: Line, metric: str) -> ViewedCell:
    cell = line.cells[metric]
    text = "" if cell.mean is None else _with_spread(cell.mean, cell.std, digits=4 if metric == "kl_uniform" else 2)
    return ViewedCell(text, "", "", "none" if text else "missing", cell.mean, f"n = {len(cell.values)}")
