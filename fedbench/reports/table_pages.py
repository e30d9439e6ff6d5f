"""The texts of tables of runs: what the page, Markdown, LaTeX and CSV show of their numbers."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Sequence
from typing import Any

from fedbench.analysis import table_model as data
from fedbench.analysis.departures import rate_of
from fedbench.analysis.table_model import Column, Line, RowGroup, TableData
from fedbench.core.config_values import config_value, keys_text
from fedbench.core.metrics import metric_info
from fedbench.papers.schema import Paper, Row
from fedbench.reports.format import CELLS, best_names, with_spread
from fedbench.reports.text_table import Cell, Table, Values, count, csv_text, latex, markdown, one_line, table_of

Fields = dict[str, Any]
_OF_MACHINE = ("seed", "results_dir", "data_dir", "device", "tracker", "force")  # not part of a command for others
ORIGINS = {"searched": "searched here", "default": "defaults"}
OWN_CAPTION = "percent at the last round, mean ± sample STD over seeds; (w): clients weighted by their test examples"
_LEGEND = (
    "Mean ± sample STD over seeds; in or OUT: whether the paper's number lies in the 95 % interval of the mean, "
    "widened by its ±."
)


# ---- the numbers of a table


def main_columns(table: TableData) -> list[int]:
    """Return the places of the columns that the paper prints; of all columns for other tables."""
    printed = [i for i, c in enumerate(table.columns) if c.printed]
    return printed or list(range(len(table.columns)))


def further_columns(table: TableData) -> list[int]:
    """Return the places of the columns that the paper does not print."""
    main = main_columns(table)
    return [i for i in range(len(table.columns)) if i not in main]


def is_reduced(line: Line) -> bool:
    """Whether a row is marked as reduced."""
    return line.status == "reduced" or bool(line.found.reduced)


def best_columns(table: TableData, block: RowGroup) -> list[set[int]]:
    """Return for each row the columns in which it has the best mean of several.

    Rows with a seed that did not end well are never the best: their mean may leave out their worst run.
    """
    found: list[set[int]] = [set() for _ in block.lines]
    if len(block.lines) > 1:
        whole = {str(i): line for i, line in enumerate(block.lines) if not line.found.others}
        for place, column in enumerate(table.columns):
            means = {i: m for i, line in whole.items() if (m := line.cells[place].mean) is not None}
            for i in best_names(means, metric_info(column.metric.field)):
                found[int(i)].add(place)
    return found


def _digits(cell: data.Cell, column: Column) -> int:
    printed = 0 if cell.printed is None else len(repr(cell.printed.mean).partition(".")[2])
    return max(column.digits, printed)


def measured(cell: data.Cell, column: Column) -> str:
    """Return a measured mean ± STD as text; empty if there is none."""
    return with_spread(cell.mean, cell.std, _digits(cell, column))


def printed(cell: data.Cell, column: Column) -> str:
    """Return the paper's number as text; empty if there is none."""
    return "" if cell.printed is None else with_spread(cell.printed.mean, cell.printed.std, _digits(cell, column))


def difference(cell: data.Cell, column: Column) -> str:
    """Return measured minus printed as text; empty if one is missing."""
    return "" if cell.difference is None else f"{cell.difference:+.{_digits(cell, column)}f}"


def basis_of(cell: data.Cell, column: Column, runs: int = 0) -> str:
    """Return what the agreement of a cell rests on.

    The fair range for a printed number that is the mean of a single run is the prediction interval.

    Args:
        cell: The cell.
        column: Its column.
        runs: Number of runs that the paper's number is a mean of; 0 for a table of no paper.
    """
    texts, digits = [], _digits(cell, column)
    if cell.mean is not None and cell.printed is None:
        texts.append(f"n = {cell.n}")
    elif cell.bounds is not None and cell.prediction is not None and cell.printed is not None:
        (low, high), wide = cell.bounds, cell.printed.std
        by = f", widened by the paper's {wide:.{digits}f} on both sides" if wide else ""
        texts.append(
            f"n = {cell.n}, 95 % interval of the mean {low:.{digits}f} to {high:.{digits}f}{by}: "
            f"{cell.printed.mean:.{digits}f} lies {cell.place}"
        )
        if runs == 1 and wide is None:
            low, high = cell.prediction
            interval = f"the 95 % prediction interval of a further run is {low:.{digits}f} to {high:.{digits}f}"
            texts.append(f"The paper reports one run; {interval}")
    elif cell.mean is not None:
        texts.append("one seed gives no interval")
    if cell.printed is not None and cell.impossible:
        texts.append(f"No accuracies of unweighted clients have the printed numbers of this row: {cell.impossible}")
    return ". ".join(texts)


def impossible_columns(table: TableData, line: Line) -> dict[str, list[str]]:
    """Return why numbers of a row are impossible, with the labels of their columns."""
    found: dict[str, list[str]] = {}
    for column, cell in zip(table.columns, line.cells, strict=True):
        if cell.agreement == "impossible":
            found.setdefault(str(cell.impossible), []).append(column.metric.label)
    return found


def differs(table: TableData, line: Line) -> bool:
    """Whether a number of a row differs from the paper's."""
    return any(line.cells[i].agreement in ("outside", "impossible") for i in main_columns(table))


def agreements(table: TableData) -> Counter[str]:
    """Return the numbers of cells by their agreement with the paper."""
    return Counter(line.cells[i].agreement for line in table.lines for i in main_columns(table))


def row_note(line: Line) -> str:
    """Return what went wrong in a row."""
    found = line.found
    notes = []
    for unit, what in found.others:
        rate = rate_of(found.every[0]) if what == "diverged" else ""
        notes.append(f"seed {unit.seed}{rate} {what}")
    notes += found.errors
    if line.impossible:
        why = f"impossible as statistics of unweighted clients ({line.impossible}); compared with weighted ones"
        notes.insert(0, why)
    return "; ".join(notes)


def values_of(paper: Paper | None, row: Row | None) -> str:
    """Return where the hyperparameters of a row are from: ``the paper``, ``searched``, at an edge, or ``default``."""
    if paper is None or row is None:
        return ""
    found = paper.values_of(row)
    words = list(dict.fromkeys(values.origin for values in found))
    edge = ["at the edge of the range"] if any(row.algo in values.edge for values in found) else []
    return ", ".join([*words, *edge]) or "the paper"


def _values_notes(paper: Paper, rows: Sequence[Row]) -> list[str]:
    """Return how the values that are not the paper's were found, a note per search or default."""
    notes = []
    for values in paper.values.values():
        mine = list(dict.fromkeys(row.algo for row in rows if values.concerns(row.algo, row.setup)))
        if not mine:
            continue
        labels = ", ".join(paper.methods[algo].label for algo in mine)
        edge = ", ".join(paper.methods[algo].label for algo in mine if algo in values.edge)
        said = f"; at the edge of the range: {edge}" if edge else ""
        notes.append(f"values of {labels} are {ORIGINS[values.origin]}: {values.how}{said}")
    return notes


def notes_of(table: TableData) -> list[str]:
    """Return the notes below a table."""
    definitions = [table.columns[i].metric for i in main_columns(table)]
    notes = [f"{metric.label}: {metric.definition}" for metric in definitions if metric.definition]
    gaps = sorted({gap for block in table.blocks if block.setup for gap in block.setup.gaps})
    if gaps:
        notes.append(f"gaps of the paper that concern this table: {', '.join(gaps)}; the page lists them under Gaps")
    if table.paper is not None:
        notes += _values_notes(table.paper, [line.row for line in table.lines if line.row is not None])
    if table.table is not None and table.table.round == "best":
        notes.append(
            "best round of each run, as we read the paper; metrics not in the paper are those of the last round"
        )
    if table.paper is not None and table.table is None:
        notes.append(f"settings of an experiment of {table.paper.name} that match no row of its tables")
    for block in table.blocks:
        if splits := sorted({split for line in block.lines for split in line.found.splits}):
            where = f"{block.setup.title}: " if block.setup and len(table.blocks) > 1 else ""
            notes.append(
                f"{where}the table has the runs on the split of the data that the experiment draws; runs on further "
                f"splits (data.seed {', '.join(map(str, splits))}) are a reading of the claims"
            )
    for outcome in dict.fromkeys(what for *_, what in table.unfinished):
        lost = ", ".join(f"{algo} seed {seed}" for algo, seed, what in table.unfinished if what == outcome)
        more = " (`fedbench status` says why, `fedbench clean` removes them)" if outcome == "failed" else ""
        notes.append(f"{outcome}: {lost}{more}")
    return [*notes, *table.unofficial]


def command(line: Line, block: RowGroup) -> str:
    """Return the command that produces the runs of a paper's row: as typed, or without runs at the paper's setting."""
    if block.setup is None or line.row is None:
        return ""
    keys = {"experiment": block.setup.experiment, "algo": line.algo, **line.wanted}
    typed, seeds = [f"{k}={config_value(v)}" for k, v in keys.items()], list(range(block.setup.seeds))
    if runs := line.found.runs:
        overrides = next(iter(runs.values())).meta["overrides"]
        typed = [text for text in overrides if text.partition("=")[0] not in _OF_MACHINE]
        seeds = list(dict.fromkeys(unit.seed for unit in runs))
    return shlex.join(["fedbench", "-m", *typed, f"seed={','.join(map(str, seeds))}"])


# ---- a table as text


def text_tables(table: TableData) -> list[Table]:
    """Return a table of text per setup, of a paper with the printed numbers next to the measured ones."""
    return [_text_table(table, block) for block in table.blocks]


def _text_table(table: TableData, block: RowGroup) -> Table:
    places, of_paper = main_columns(table), table.table is not None
    settings = any(line.keys for line in block.lines)
    status = of_paper or any(line.status != "full" for line in block.lines)
    best = [set[int]() for _ in block.lines] if of_paper else best_columns(table, block)
    heads = ["method", "settings", "seeds"] if settings else ["method", "seeds"]
    for i in places:
        heads += [table.columns[i].metric.label, *(("paper", "diff.", "") if of_paper else ())]
    rows: list[Values] = []
    for line, marked in zip(block.lines, best, strict=True):
        cells = [Cell(line.label), *([Cell(keys_text(line.keys))] if settings else []), count(len(line.found.runs))]
        for i in places:
            cell, column = line.cells[i], table.columns[i]
            cells.append(Cell(measured(cell, column) or "–", cell.mean, i in marked))
            if of_paper:
                cells.append(Cell(printed(cell, column) or "–", None if cell.printed is None else cell.printed.mean))
                cells.append(Cell(difference(cell, column) or "–", cell.difference))
                cells.append(Cell(CELLS[cell.agreement].sign))
        rows.append((*cells, *([line.status] if status else [])))
    title = block.setup.title if block.setup else ""
    return table_of(title, [*heads, *(["status"] if status else [])], rows, "", row_notes(table, block))


def row_notes(table: TableData, block: RowGroup) -> list[str]:
    """Return each reduction once, with the rows it applies to, then the notes of the rows."""
    reasons: dict[tuple[str, ...], list[str]] = {}
    for line in block.lines:
        if texts := line.found.reduced:
            reasons.setdefault(texts, []).append(line.name)
    reduced = [
        "reduced" + ("" if len(names) == len(block.lines) else f" ({', '.join(names)})") + f": {', '.join(why)}"
        for why, names in reasons.items()
    ]
    notes = [(line.name, note) for line in block.lines for note in (row_note(line), *impossible_columns(table, line))]
    return reduced + [f"{name}: {note}" for name, note in notes if note]


def table_markdown(table: TableData) -> str:
    """Return a table as Markdown: per column the measured and the printed number, their difference and the verdict."""
    lead = OWN_CAPTION
    if table.table is not None:
        lead = f"{table.table.caption}. {_LEGEND}"
    return markdown(text_tables(table), table.title, lead, notes_of(table))


def table_latex(table: TableData) -> str:
    """Return a table as LaTeX: the tabulars of each setup with their reductions; title and notes are comments."""
    caption = table.table.caption if table.table else OWN_CAPTION
    parts = [f"% {one_line(f'{table.title}: {caption}')}\n", *map(latex, text_tables(table))]
    return "\n".join(parts) + "".join(f"% {one_line(note)}\n" for note in notes_of(table))


def table_csv(table: TableData) -> str:
    """Return a table as CSV with plain numbers in full precision, a row per method, settings and setup.

    A column named ``m`` becomes ``m_mean``, ``m_std`` (of the sample), ``m_n`` (seeds), ``m_lower`` and ``m_upper``
    (the 95 % interval of the mean); a column of the paper also has ``m_paper``, ``m_paper_std``, ``m_difference`` and
    ``m_agreement``. Numbers are in the unit that the table prints; a missing one is empty.
    """
    rows: list[Fields] = []
    for block in table.blocks:
        for line in block.lines:
            row: Fields = {"setup": block.setup.title if block.setup else ""} if table.table is not None else {}
            row |= {"method": line.label, "algo": line.algo, "settings": keys_text(line.keys)}
            row["seeds"] = len(line.found.runs)
            for column, cell in zip(table.columns, line.cells, strict=True):
                row |= {f"{column.name}_{name}": value for name, value in _numbers(column, cell).items()}
            row |= {"status": line.status, "reduced": "; ".join(line.found.reduced)}
            row |= {"values": values_of(table.paper, line.row), "note": row_note(line), "command": command(line, block)}
            rows.append(row)
    return csv_text(rows)


def _numbers(column: Column, cell: data.Cell) -> Fields:
    lower, upper = cell.bounds or (None, None)
    found: Fields = {"mean": cell.mean, "std": cell.std, "n": cell.n, "lower": lower, "upper": upper}
    if not column.printed:
        return found
    known = cell.printed
    found |= {"paper": known.mean if known else None, "paper_std": known.std if known else None}
    return found | {"difference": cell.difference, "agreement": cell.agreement}


def table_files(table: TableData) -> dict[str, str]:
    """Return the files of a table by name."""
    name = table.name.replace("/", "_")
    texts = {"md": table_markdown(table), "csv": table_csv(table), "tex": table_latex(table)}
    return {f"{name}.{kind}": text for kind, text in texts.items()}
