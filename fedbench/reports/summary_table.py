"""The tables that a sweep prints at its end, limited to the width of a terminal."""

from collections.abc import Sequence
from dataclasses import replace
from textwrap import fill

from fedbench.analysis.table_model import RowGroup, TableData
from fedbench.core.validation import choice
from fedbench.reports.table_pages import caption_of, main_columns, notes_of, text_table
from fedbench.reports.text_table import markdown, markdown_rows

WIDTH = 100  # columns of a terminal
_FEW = 5  # with fewer seeds, a prediction interval reaches over three STDs to each side
# leading columns of tables that no paper orders
_FIRST = (
    "accuracy_mean",
    "accuracy_std",
    "accuracy_worst30",
    "epsilon",
    "attackers_accuracy",
    "attack_success",
)


def summary_text(tables: Sequence[TableData], metrics: Sequence[str] = ()) -> str:
    """Return tables as Markdown of at most 100 columns.

    Metrics that do not fit are named below the table.

    Args:
        tables: The tables.
        metrics: Columns to show, in this order; by default the paper's columns, or all columns.
    """
    return "\n\n".join(
        _block_text(table, block, metrics) for table in tables for block in table.blocks
    )


def wrapped(text: str) -> str:
    """Return Markdown with paragraphs and notes wrapped at 100 columns; tables are unchanged."""
    lines = []
    for line in text.splitlines():
        if not line.startswith(("|", "#")):
            indent = "  " if line.startswith("- ") else ""
            line = fill(line, WIDTH, subsequent_indent=indent, break_long_words=False)
        lines.append(line)
    return "\n".join(lines)


def _block_text(
    table: TableData,
    block: RowGroup,
    metrics: Sequence[str],
) -> str:
    """Return the rows of a setup as Markdown, with as many columns as fit."""
    places = _places(table, metrics)
    for shown in range(len(places), 0, -1):
        rows = text_table(
            table,
            block,
            places[:shown],
            brief=True,
        )
        if markdown_rows(rows).index("\n") <= WIDTH:
            break
    title = f"{table.title}: {rows.title}" if rows.title else table.title
    if {line.status for line in block.lines} == {"reduced"}:
        title += " (reduced)"
    notes = [*rows.notes, *notes_of(table)]
    more = [table.columns[place] for place in places[shown:]]
    if more:
        note = f"also on the page: {', '.join(column.metric.label for column in more)}"
        if table.table is None:
            names = ",".join(column.name for column in more)
            note += f"; fedbench report DIR --metric {names} prints them"
        notes.append(note)
    if agreement := _agreement(block, places[:shown]):
        notes.append(agreement)
    table_text = replace(rows, title="", notes=tuple(notes))
    return wrapped(markdown([table_text], title, f"{caption_of(table)}; *: best mean"))


def _places(table: TableData, metrics: Sequence[str]) -> list[int]:
    """Return the indices of the chosen columns, by default of the main columns."""
    names = [column.name for column in table.columns]
    if metrics:
        return [names.index(choice("metric", metric, names)) for metric in metrics]
    places = main_columns(table)
    return places if table.table else sorted(places, key=lambda place: names[place] not in _FIRST)


def _agreement(block: RowGroup, places: Sequence[int]) -> str:
    """Return a sentence on how many of the paper's numbers are inside the intervals of full rows.

    The text is empty if nothing is compared.
    """
    full = [line.cells[place] for line in block.lines if line.status == "full" for place in places]
    compared = [cell for cell in full if cell.agreement in ("inside", "outside")]
    if not compared:
        return ""
    inside = sum(cell.agreement == "inside" for cell in compared)
    text = f"{inside} of {len(compared)} numbers of the paper are inside our 95 % interval (≈)"
    least = min(cell.n for cell in compared)
    return f"{text}, which is wide with {least} seeds" if least < _FEW else text
