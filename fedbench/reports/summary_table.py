"""What a sweep prints at its end: its tables, no wider than a terminal, and what they show in a sentence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from textwrap import fill

from fedbench.analysis.table_model import RowGroup, TableData
from fedbench.core.config_values import keys_text
from fedbench.core.validation import choice
from fedbench.reports import table_pages as numbers
from fedbench.reports.format import plural
from fedbench.reports.methods import listed
from fedbench.reports.text_table import markdown, table_of

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
    return "\n".join(_text(table, block, metrics) for table in tables for block in table.blocks).rstrip()


def _text(table: TableData, block: RowGroup, metrics: Sequence[str]) -> str:
    lines, best, setup = block.lines, numbers.best_columns(table, block), block.setup
    places = sorted(numbers.main_columns(table), key=lambda i: not setup and table.columns[i].name not in _FIRST)
    names = [column.name for column in table.columns]
    places = [names.index(choice("metric", metric, names)) for metric in metrics] or places
    seeds, status = [len(line.found.runs) for line in lines], [line.status for line in lines]
    same, settings = len({*seeds}) == 1, [keys_text(line.keys) for line in lines]
    heads: dict[str, Sequence[str]] = {"method": [line.label for line in lines]}
    heads |= {"settings": settings} if any(settings) else {}
    heads |= {"seeds": [*map(str, seeds)]} if not setup or not same else {}
    heads |= {"status": status} if len({*status}) > 1 else {}
    for shown in range(len(places), 0, -1):
        columns = heads | {table.columns[i].metric.label: _cells(table, block, i, best) for i in places[:shown]}
        text = markdown([table_of("", [*columns], zip(*columns.values(), strict=True))])
        if text.index("\n") <= WIDTH:
            break
    title, lead = table.title, numbers.OWN_CAPTION
    if setup and table.table:
        over = plural(seeds[0], "seed") if same else "seeds"
        title, lead = f"{title}: {setup.title}", f"{table.table.caption}. {_LEGEND.format(over)}"
    title += f" ({status[0]})" if {*status} == {"reduced"} else ""
    more = [table.columns[i].metric.label for i in places[shown:]]
    notes = [*numbers.row_notes(table, block), *numbers.notes_of(table)]
    notes += [f"also on the page: {', '.join(more)}"] if more else []
    below = [fill(note, WIDTH, initial_indent="- ", subsequent_indent="  ") for note in notes]
    said = [f"\n{fill(text, WIDTH)}" for text in _said(table, block, places[:shown], best)]
    return "\n".join([f"## {title}\n", f"{fill(f'{lead}; *: best mean', WIDTH)}\n", text, *below, *said, ""])


def _cells(table: TableData, block: RowGroup, place: int, best: Sequence[set[int]]) -> list[str]:
    """Return the texts of a column, with the paper's numbers if it prints any."""
    column, cells = table.columns[place], [line.cells[place] for line in block.lines]
    marks = ["*" if place in columns else " " for columns in best]
    ours = [f"{numbers.measured(cell, column) or '–'}{mark}" for cell, mark in zip(cells, marks, strict=True)]
    theirs = [numbers.printed(cell, column) or "–" for cell in cells] if table.table else []
    wide, high = (max(map(len, texts), default=0) for texts in (ours, theirs))
    if not table.table:
        return [text.rjust(wide) for text in ours]
    signs = [_SIGNS.get(cell.agreement, " ") for cell in cells]
    return [f"{o:>{wide}} {s} {t:>{high}}".replace(" ± ", "±") for o, s, t in zip(ours, signs, theirs, strict=True)]


def _said(table: TableData, block: RowGroup, places: Sequence[int], best: Sequence[set[int]]) -> list[str]:
    """Return which methods are best in which columns and how many of the paper's numbers agree, if there is any."""
    won: dict[tuple[str, ...], list[str]] = {}
    for i in places:
        if first := [line for line, marked in zip(block.lines, best, strict=True) if i in marked]:
            mean = numbers.measured(first[0].cells[i], table.columns[i]).split()[0]
            won.setdefault(tuple(line.name for line in first), []).append(f"{table.columns[i].metric.label} ({mean})")
    said = []
    for names, texts in won.items():
        who = "all rows" if len(names) == len(block.lines) else listed(names, "rows")
        said.append(f"{who} {'has' if len(names) == 1 else 'share'} the best {listed(texts, 'columns')}")
    found = Counter(line.cells[i].agreement for line in block.lines if line.status == "full" for i in places)
    if compared := found["inside"] + found["outside"]:
        said.append(f"{found['inside']} of {compared} numbers of the paper agree with ours (≈)")
    return [f"{'; '.join(said)}."] if said else []
