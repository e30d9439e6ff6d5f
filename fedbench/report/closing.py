"""What a sweep prints at its end: its tables, no wider than a terminal, and what they show in a sentence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from textwrap import fill

from fedbench.analysis.settings import keys_text
from fedbench.analysis.table import Block, TableData
from fedbench.report import tables as numbers
from fedbench.report.format import plural
from fedbench.report.methods import listed
from fedbench.report.table import markdown, table_of

WIDTH = 100  # columns of a terminal
_FIRST = ("accuracy_mean", "accuracy_std", "accuracy_worst30")  # of a table that no paper orders
_SIGNS = {"inside": "≈", "outside": "≠"}
_LEGEND = (
    "{}. Mean±sample STD over {}, then the paper's number: ≈ if it lies in the 95 % interval of our mean, widened by "
    "its ±, ≠ if not. *: best mean."
)


def closing_text(tables: Sequence[TableData]) -> str:
    """Return tables as Markdown of at most 100 columns; metrics for which there is no room are named below them."""
    return "\n".join(_text(table, block) for table in tables for block in table.blocks).rstrip()


def _text(table: TableData, block: Block) -> str:
    lines, best, setup = block.lines, numbers.best_columns(table, block), block.setup
    places = sorted(numbers.main_columns(table), key=lambda i: not setup and table.columns[i].name not in _FIRST)
    seeds, status = [str(len(line.found.runs)) for line in lines], [line.status for line in lines]
    columns = {"method": [line.label for line in lines]}
    columns |= {"settings": texts} if any(texts := [keys_text(line.keys) for line in lines]) else {}
    columns |= {"seeds": seeds} if not setup or len({*seeds}) > 1 else {}
    columns |= {"status": status} if len({*status}) > 1 else {}
    columns |= {table.columns[i].metric.label: _cells(table, block, i, best) for i in places}
    shown, more = [*places], list[str]()
    while (text := markdown([table_of("", [*columns], zip(*columns.values(), strict=True))])).index("\n") > WIDTH:
        if len(shown) == 1:
            break
        more.insert(0, columns.popitem()[0])
        shown.pop()
    title, lead = numbers.title_of(table), f"{numbers.OWN_CAPTION}; *: best mean"
    if setup and table.table:
        over = "seeds" if "seeds" in columns else plural(int(seeds[0]), "seed")
        title, lead = f"{title}: {setup.title}", _LEGEND.format(table.table.caption, over)
    title += f" ({status[0]})" if {*status} <= {"reduced"} else ""
    notes = [*numbers.row_notes(table, block), *numbers.notes_of(table)]
    notes += [f"also on the page: {', '.join(more)}"] if more else []
    below = [fill(note, WIDTH, initial_indent="- ", subsequent_indent="  ") for note in notes]
    said = [f"\n{fill(text, WIDTH)}" for text in _said(table, block, shown, best)]
    return "\n".join([f"## {title}\n", f"{fill(lead, WIDTH)}\n", text, *below, *said, ""])


def _cells(table: TableData, block: Block, place: int, best: Sequence[set[int]]) -> list[str]:
    """Return the texts of a column, with the paper's numbers if it prints any."""
    column, cells = table.columns[place], [line.cells[place] for line in block.lines]
    marks = ["*" if place in columns else " " for columns in best]
    ours = [f"{numbers.measured(cell, column) or '–'}{mark}" for cell, mark in zip(cells, marks, strict=True)]
    ours = [text.rjust(max(map(len, ours))) for text in ours]
    if table.table is None:
        return ours
    theirs, signs = [numbers.printed(c, column) or "–" for c in cells], [_SIGNS.get(c.agreement, " ") for c in cells]
    wide = max(map(len, theirs))
    return [f"{o} {s} {t:>{wide}}".replace(" ± ", "±") for o, s, t in zip(ours, signs, theirs, strict=True)]


def _said(table: TableData, block: Block, places: Sequence[int], best: Sequence[set[int]]) -> list[str]:
    """Return which methods are best in which columns and how many of the paper's numbers agree, if there is any."""
    said = []
    for line, marked in zip(block.lines, best, strict=True):
        won = [(table.columns[i], line.cells[i]) for i in places if i in marked]
        if texts := [f"{column.metric.label} ({numbers.measured(cell, column).split()[0]})" for column, cell in won]:
            said.append(f"{line.label} {keys_text(line.keys)}".rstrip() + f" has the best {listed(texts, 'columns')}")
    found = Counter(line.cells[i].agreement for line in block.lines if line.status == "full" for i in places)
    if compared := found["inside"] + found["outside"]:
        said.append(f"{found['inside']} of {compared} numbers of the paper agree with ours (≈)")
    return [f"{'; '.join(said)}."] if said else []
