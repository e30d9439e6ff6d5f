"""Tables of runs as text: numbers formatted for the page, Markdown, LaTeX and CSV."""

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from fedbench.analysis import table_model as data
from fedbench.analysis.departures import rate_of
from fedbench.analysis.table_model import Column, Line, RowGroup, TableData
from fedbench.core.config_values import config_value, keys_text
from fedbench.core.metrics import MetricInfo, metric_info
from fedbench.papers.readings import Values
from fedbench.papers.schema import Paper, Row
from fedbench.reports.filters import K, reduced_texts, with_spread
from fedbench.reports.templates import BADGES, note_lines, render
from fedbench.reports.text_table import Cell, Table, csv_text, latex, markdown, table_of

Fields = dict[str, Any]
OWN_CAPTION = (
    "percent at the last round, mean ± sample STD over seeds; "
    "(w): clients weighted by their test examples"
)
_MACHINE_KEYS = (  # omitted from commands for other users
    "seed",
    "results_dir",
    "data_dir",
    "device",
    "tracker",
    "force",
)
_LEGEND = (
    "Mean ± sample STD over splits, then the paper's number: ≈ if it lies in the 95 % prediction "
    "interval of another run, ≠ if not, ? if it is impossible, / without a verdict"
)


# ---- the numbers of a table


def main_columns(table: TableData) -> list[int]:
    """Return the indices of the paper's columns, or of all columns if the paper prints none."""
    printed = [i for i, column in enumerate(table.columns) if column.printed]
    return printed or list(range(len(table.columns)))


def main_table(tables: Sequence[TableData]) -> TableData:
    """Return the table with the most numbers at the paper's settings, then measured at all."""

    def measured(table: TableData) -> tuple[int, int]:
        coverage = data.coverage([table])
        return coverage.full, coverage.measured

    return max(tables, key=measured)


def is_reduced(line: Line) -> bool:
    """Return whether a row is marked as reduced."""
    return line.status == "reduced" or bool(line.matched.reduced)


def best_names(means: Mapping[K, float], metric: MetricInfo) -> set[K]:
    """Return the keys whose printed means equal the best one.

    The set is empty if neither direction of the metric is better. It is also empty for spreads over
    clients, because these are low wherever accuracies are low.
    """
    if metric.direction is None or metric.spread or not means:
        return set()
    best = max(means.values(), key=lambda mean: metric.sign * mean)
    printed = metric.text(best)
    return {key for key, mean in means.items() if metric.text(mean) == printed}


def best_columns(table: TableData, block: RowGroup) -> list[set[int]]:
    """Return for each row the columns in which it has the best of several means.

    Rows with unsuccessful runs are never the best, because their means may leave out the worst run.
    """
    best: list[set[int]] = [set() for _ in block.lines]
    for place, column in enumerate(table.columns):
        means: dict[int, float] = {}
        for row, line in enumerate(block.lines):
            mean = line.cells[place].mean
            if mean is not None and not line.matched.others:
                means[row] = mean
        metric = replace(
            metric_info(column.metric.field),
            direction=column.metric.direction,
            digits=column.digits,
        )
        winners = best_names(means, metric)
        if len(winners) < len(means):  # if all are equal, none is the best
            for row in winners:
                best[row].add(place)
    return best


def _digits(cell: data.Cell, column: Column) -> int:
    """Return the number of decimals to show: the column's, or the paper's if it prints more."""
    if cell.printed is None:
        return column.digits
    _, _, decimals = repr(cell.printed.mean).partition(".")
    return max(column.digits, len(decimals))


def measured_text(cell: data.Cell, column: Column) -> str:
    """Return the measured mean ± STD as text; empty if there is none."""
    return with_spread(cell.mean, cell.std, _digits(cell, column))


def printed_text(cell: data.Cell, column: Column) -> str:
    """Return the paper's number as text; empty if there is none."""
    if cell.printed is None:
        return ""
    digits = _digits(cell, column)
    return with_spread(cell.printed.mean, cell.printed.std, digits)


def difference_text(cell: data.Cell, column: Column) -> str:
    """Return the measured minus the printed number as text; empty if either is missing."""
    return "" if cell.difference is None else f"{cell.difference:+.{_digits(cell, column)}f}"


def basis_text(
    cell: data.Cell,
    column: Column,
) -> str:
    """Return the numbers behind the agreement of a cell."""
    digits = _digits(cell, column)
    return render("basis.txt", cell=cell, digits=digits).strip()


def impossible_columns(table: TableData, line: Line) -> dict[str, list[str]]:
    """Return the column labels of a row's impossible numbers, by explanation."""
    labels: dict[str, list[str]] = {}
    for column, cell in zip(table.columns, line.cells, strict=True):
        if cell.agreement == "impossible":
            labels.setdefault(str(cell.impossible), []).append(column.metric.label)
    return labels


def differs(table: TableData, line: Line) -> bool:
    """Return whether any number in a row differs from the paper's."""
    return any(line.cells[i].agreement in ("outside", "impossible") for i in main_columns(table))


def agreements(table: TableData) -> Counter[str]:
    """Return the number of cells of full rows for each kind of agreement with the paper."""
    counts: Counter[str] = Counter()
    for line in table.lines:
        if line.status == "reduced":
            continue
        for i in main_columns(table):
            counts[line.cells[i].agreement] += 1
    return counts


# ---- notes


def row_note(line: Line) -> str:
    """Return the faults of a row: unsuccessful runs and impossible numbers."""
    notes = []
    if line.impossible:
        notes.append(
            f"impossible as statistics of unweighted clients ({line.impossible}); "
            "compared with weighted ones"
        )
    for unit, outcome in line.matched.others:
        rate = rate_of(line.matched.every[0]) if outcome == "diverged" else ""
        notes.append(f"seed {unit.seed}{rate} {outcome}")
    return "; ".join([*notes, *line.matched.errors])


def row_notes(table: TableData, block: RowGroup) -> list[str]:
    """Return each reduction once, with the affected rows, followed by the notes on rows."""
    reductions = reduced_texts((line.name, line.matched.reduced) for line in block.lines)
    notes = [f"reduced, {text}" for text in reductions]
    for line in block.lines:
        faults = [row_note(line), *impossible_columns(table, line)]
        notes += [f"{line.name}: {fault}" for fault in faults if fault]
    return notes


def values_text(paper: Paper | None, row: Row | None) -> str:
    """Return the origin of a row's hyperparameters, such as ``the paper`` or ``searched``."""
    if paper is None or row is None:
        return ""
    values = paper.values_of(row)
    origins: list[str] = list(dict.fromkeys(value.origin for value in values))
    if any(row.algo in value.edge for value in values):
        origins.append("at the edge of the range")
    return ", ".join(origins) or "the paper"


def notes_of(table: TableData) -> list[str]:
    """Return the notes below a table."""
    notes = note_lines(
        "notes.txt",
        table=table,
        places=main_columns(table),
        origins=_origins(table),
    )
    return [*notes, *table.unofficial]


def _origins(table: TableData) -> list[tuple[Values, dict[str, str]]]:
    """Return the searches and defaults behind a table, with their methods' labels by id."""
    if table.paper is None:
        return []
    origins = []
    for values in table.paper.values.values():
        labels = {}
        for line in table.lines:
            row = line.row
            if row is not None and values.concerns(row.algo, row.setup):
                labels[row.algo] = line.label
        if labels:
            origins.append((values, labels))
    return origins


def command_text(line: Line, block: RowGroup) -> str:
    """Return the command for a paper's row: as typed or, if not run, at the paper's setting."""
    if block.setup is None or line.row is None:
        return ""
    runs = line.matched.runs
    if runs:
        run = next(iter(runs.values()))
        overrides = run.meta["overrides"]
        typed = [text for text in overrides if text.partition("=")[0] not in _MACHINE_KEYS]
        seeds = list(dict.fromkeys(unit.seed for unit in runs))
    else:
        keys = {
            "experiment": block.setup.experiment,
            "algo": line.algo,
            **line.wanted,
        }
        typed = [f"{key}={config_value(value)}" for key, value in keys.items()]
        seeds = list(range(block.setup.seeds))
    seed = ",".join(map(str, seeds))
    return shlex.join(["fedbench", "-m", *typed, f"seed={seed}"])


# ---- tables as text


def text_table(
    table: TableData,
    block: RowGroup,
    places: Sequence[int],
    brief: bool = False,
) -> Table:
    """Return the rows of a setup as text, with the paper's numbers after the measured ones.

    Args:
        table: The table.
        block: The rows.
        places: Indices of the columns to show.
        brief: Whether to leave out seeds and statuses if they are the same in all rows of a paper.
    """
    lines = block.lines
    of_paper = table.table is not None
    seeds = [len(line.matched.runs) for line in lines]
    statuses = [line.status for line in lines]
    one_seeds = len(set(seeds)) <= 1
    one_status = len(set(statuses)) <= 1
    unmarked = brief or (not of_paper and "full" in statuses)

    heads = ["method"]
    columns: list[Sequence[Cell | str | int]] = [[line.label for line in lines]]
    if any(line.keys for line in lines):
        heads.append("settings")
        columns.append([keys_text(line.keys) for line in lines])
    if not (brief and of_paper and one_seeds):
        heads.append("seeds")
        columns.append(seeds)

    best = best_columns(table, block)
    for place in places:
        cells = []
        for line, marked in zip(lines, best, strict=True):
            text = _cell_text(table, line, place)
            if brief and of_paper:
                text = text.replace(" ± ", "±")
            cells.append(Cell(text, line.cells[place].mean, place in marked))
        heads.append(table.columns[place].metric.label)
        columns.append(cells)

    if not (one_status and unmarked):
        heads.append("status")
        columns.append(statuses)
    title = block.setup.title if block.setup else ""
    rows = zip(*columns, strict=True)
    return table_of(
        title,
        heads,
        rows,
        notes=row_notes(table, block),
    )


def _cell_text(
    table: TableData,
    line: Line,
    place: int,
) -> str:
    """Return a measured number, followed by the printed one in a table of a paper."""
    cell = line.cells[place]
    column = table.columns[place]
    measured = measured_text(cell, column) or "–"
    if table.table is None:
        return measured
    sign = BADGES["cell"][cell.agreement]["sign"]
    return f"{measured} {sign} {printed_text(cell, column) or '–'}"


def text_tables(table: TableData) -> list[Table]:
    """Return a text table per setup."""
    return [text_table(table, block, main_columns(table)) for block in table.blocks]


def caption_of(table: TableData) -> str:
    """Return the description of the numbers in a text table."""
    return OWN_CAPTION if table.table is None else f"{table.table.caption}. {_LEGEND}"


def table_markdown(table: TableData) -> str:
    """Return a table as Markdown, with the printed numbers after the measured ones."""
    caption = f"{caption_of(table)}; *: best mean"
    return markdown(
        text_tables(table),
        table.title,
        caption,
        notes_of(table),
    )


def table_latex(table: TableData) -> str:
    """Return a table as LaTeX: a tabular per setup with its reductions.

    The title and notes are comments.
    """
    return latex(text_tables(table), f"{table.title}: {caption_of(table)}", notes_of(table))


def table_csv(table: TableData) -> str:
    """Return a table as CSV with plain numbers, one row per method, settings and setup.

    A column named ``m`` becomes ``m_mean``, ``m_std`` (sample STD), ``m_n`` (seeds), ``m_lower``
    and ``m_upper`` (the 95 % interval of the mean); a column of the paper also has ``m_paper``,
    ``m_paper_std``, ``m_difference`` and ``m_agreement``. Numbers are in the table's printed unit;
    missing numbers are empty.
    """
    rows: list[Fields] = []
    for block in table.blocks:
        for line in block.lines:
            row: Fields = {}
            if table.table is not None:
                row["setup"] = block.setup.title if block.setup else ""
            row["method"] = line.label
            row["algo"] = line.algo
            row["settings"] = keys_text(line.keys)
            row["seeds"] = len(line.matched.runs)
            for column, cell in zip(table.columns, line.cells, strict=True):
                row |= _numbers(column, cell)
            row["status"] = line.status
            row["reduced"] = "; ".join(line.matched.reduced)
            row["values"] = values_text(table.paper, line.row)
            row["note"] = row_note(line)
            row["command"] = command_text(line, block)
            rows.append(row)
    return csv_text(rows)


def _numbers(column: Column, cell: data.Cell) -> Fields:
    """Return the numbers of a cell by the names of their CSV columns."""
    lower, upper = cell.bounds or (None, None)
    numbers: Fields = {
        "mean": cell.mean,
        "std": cell.std,
        "n": cell.n,
        "lower": lower,
        "upper": upper,
    }
    if column.printed:
        printed = cell.printed
        numbers["paper"] = None if printed is None else printed.mean
        numbers["paper_std"] = None if printed is None else printed.std
        numbers["difference"] = cell.difference
        numbers["agreement"] = cell.agreement
    return {f"{column.name}_{name}": value for name, value in numbers.items()}


def table_files(table: TableData) -> dict[str, str]:
    """Return the files of a table by name."""
    name = table.name.replace("/", "_")
    return {
        f"{name}.md": table_markdown(table),
        f"{name}.csv": table_csv(table),
        f"{name}.tex": table_latex(table),
    }
