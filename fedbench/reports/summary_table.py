"""The tables that a sweep prints at its end, no wider than a terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from textwrap import fill

from fedbench.analysis.table_model import RowGroup, TableData
from fedbench.core.config_values import keys_text
from fedbench.core.validation import choice
from fedbench.reports import table_pages as pages
from fedbench.reports.filters import plural
from fedbench.reports.text_table import Cell, markdown, table_of

WIDTH = 100  # columns of a terminal
# of a table that no paper orders
_FIRST = ("accuracy_mean", "accuracy_std", "accuracy_worst30", "epsilon", "attackers_accuracy", "attack_success")
_SIGNS = {"inside": "≈", "outside": "≠"}
_LEGEND = "Mean±sample STD over {}, then the paper's number: ≈ if in the 95 % interval of ours widened by its ±, else ≠"


def summary_text(tables: Sequence[TableData], metrics: Sequence[str] = ()) -> str:
    """Return tables as Markdown of at most 100 columns; metrics for which there is no room are named below them.

    Args:
        tables: The tables.
        metrics: The columns in their order; by default those that the paper prints, or all.
    """
    return "\n\n".join(_block_text(table, block, metrics) for table in tables for block in table.blocks)


def _block_text(table: TableData, block: RowGroup, metrics: Sequence[str]) -> str:
    lines = block.lines
    seeds = {len(line.found.runs) for line in lines}
    statuses = {line.status for line in lines}
    places = _places(table, metrics)
    heads: dict[str, Sequence[Cell | str]] = {"method": [line.label for line in lines]}
    if any(line.keys for line in lines):
        heads["settings"] = [keys_text(line.keys) for line in lines]
    if table.table is None or len(seeds) > 1:
        heads["seeds"] = [str(len(line.found.runs)) for line in lines]
    if len(statuses) > 1:
        heads["status"] = [line.status for line in lines]
    for shown in range(len(places), 0, -1):
        columns = heads | {table.columns[i].metric.label: _cells(table, block, i) for i in places[:shown]}
        rows = markdown([table_of("", list(columns), zip(*columns.values(), strict=True))])
        if rows.index("\n") <= WIDTH:
            break
    title = table.title
    lead = pages.OWN_CAPTION
    if block.setup and table.table:
        over = plural(seeds.pop(), "seed") if len(seeds) == 1 else "seeds"
        title = f"{title}: {block.setup.title}"
        lead = f"{table.table.caption}. {_LEGEND.format(over)}"
    if statuses == {"reduced"}:
        title += " (reduced)"
    notes = [*pages.row_notes(table, block), *pages.notes_of(table)]
    if more := [table.columns[i].metric.label for i in places[shown:]]:
        notes.append(f"also on the page: {', '.join(more)}")
    below = [fill(note, WIDTH, initial_indent="- ", subsequent_indent="  ") for note in notes]
    parts = [f"## {title}", fill(f"{lead}; *: best mean", WIDTH), rows.rstrip(), "\n".join(below)]
    return "\n\n".join(filter(None, [*parts, _agreement_text(block, places[:shown])]))


def _places(table: TableData, metrics: Sequence[str]) -> list[int]:
    """Return the places of the chosen columns, by default of the main ones in the order of their importance."""
    names = [column.name for column in table.columns]
    if metrics:
        return [names.index(choice("metric", metric, names)) for metric in metrics]
    places = pages.main_columns(table)
    if table.table is not None:
        return places
    return sorted(places, key=lambda place: names[place] not in _FIRST)


def _cells(table: TableData, block: RowGroup, place: int) -> list[Cell]:
    """Return the cells of a column, with the paper's numbers if it prints any."""
    column = table.columns[place]
    cells = []
    for line, best in zip(block.lines, pages.best_columns(table, block), strict=True):
        cell = line.cells[place]
        text = (pages.measured_text(cell, column) or "–") + ("*" if place in best else " ")
        if table.table is not None:
            printed = pages.printed_text(cell, column) or "–"
            text = f"{text} {_SIGNS.get(cell.agreement, ' ')} {printed}".replace(" ± ", "±")
        cells.append(Cell(text, cell.mean))
    return cells


def _agreement_text(block: RowGroup, places: Sequence[int]) -> str:
    """Return how many of the paper's numbers agree with those of rows at full setting; empty if there are none."""
    counts = Counter(line.cells[i].agreement for line in block.lines if line.status == "full" for i in places)
    compared = counts["inside"] + counts["outside"]
    return f"{counts['inside']} of {compared} numbers of the paper agree with ours (≈)." if compared else ""
