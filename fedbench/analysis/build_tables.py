"""Tables of runs as unformatted values: the rows of a paper's table, and rows for any other runs.

``fedbench.analysis.matching`` finds the runs that match a row of a paper. Runs that match no row of
a paper are shown in separate rows, one per setting. Both kinds of rows have the same columns, cells
and statistics.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedbench.analysis.attacks import attack_success
from fedbench.analysis.data_text import content_of, title_of
from fedbench.analysis.departures import (
    SPLIT,
    by_block,
    counted_and_others,
    data_departures,
    departures,
    seed_departures,
)
from fedbench.analysis.matching import Evidence, MatchedRuns
from fedbench.analysis.settings import by_setting, distinguishing, rank
from fedbench.analysis.table_model import (
    Cell,
    Column,
    Line,
    RowGroup,
    TableData,
)
from fedbench.core.config_values import Tree
from fedbench.core.metrics import metric_info
from fedbench.papers.registry import Home, home_of
from fedbench.papers.schema import (
    Paper,
    PrintedMetric,
    Row,
    Table,
)
from fedbench.runs.run import Run


def _columns(*names: str) -> tuple[Column, ...]:
    columns = []
    for name in names:
        metric = metric_info(name)
        printed = PrintedMetric(
            id=name,
            label=metric.heading,
            direction=metric.direction,
            field=name,
            factor=metric.factor,
        )
        columns.append(Column(printed))
    return tuple(columns)


# columns of every table, even if the paper does not print them
_COMMON_COLUMNS = _columns(
    "accuracy_mean_weighted",
    "accuracy_std_weighted",
    "accuracy_worst30_weighted",
    "accuracy_mean",
    "accuracy_std",
    "accuracy_worst30",
    "angle_degrees",
    "kl_uniform",
)
# columns for runs with scenarios, shown if they were measured
_FURTHER_COLUMNS = _columns("epsilon", "attackers_accuracy", "attack_success")


# ---- a paper's table


def paper_table(
    table: Table,
    evidence: Evidence,
    setups: Sequence[str] = (),
) -> TableData:
    """Return a table of a paper with every printed row, in the printed order.

    Args:
        table: One of the paper's tables.
        evidence: The paper and the runs.
        setups: Setups of the table to show; all of them if empty.
    """
    paper = evidence.paper
    columns = columns_of(paper, table)
    blocks = []
    for setup in setups or table.setups:
        rows = [row for row in table.rows if row.setup == setup]
        lines = tuple(_line(columns, row, evidence) for row in rows)
        blocks.append(RowGroup(paper.setups[setup], lines))
    number = table.id.removeprefix("table").replace("_", "").upper()
    return TableData(
        name=f"{paper.id}/{table.id}",
        title=f"{paper.name}, Table {number}",
        columns=columns,
        blocks=tuple(blocks),
        paper=paper,
        table=table,
    )


def columns_of(paper: Paper, table: Table) -> tuple[Column, ...]:
    """Return the columns of a paper's table, followed by the common columns that it lacks."""
    printed = []
    for name in table.columns:
        column = Column(paper.metrics[name], printed=True, round=table.round)
        printed.append(column)
    names = {column.name for column in printed}
    others = [column for column in _COMMON_COLUMNS if column.name not in names]
    return (*printed, *others)


def _values(column: Column, runs: MatchedRuns) -> tuple[float, ...]:
    values = runs.values(column.metric, column.round)
    if runs.row is None:
        return tuple(values.values())
    # the unit of a paper's numbers is the split
    return tuple(by_block(values, by_split=True).values())


def _line(
    columns: Sequence[Column],
    row: Row,
    evidence: Evidence,
) -> Line:
    paper = evidence.paper
    method = paper.methods[row.algo]
    runs = evidence.find(row)
    keys = {key: value for key, value in row.hyperparameters.items() if value is not None}
    impossible = None
    if row.impossible and any(column.printed and _weighted(column) for column in columns):
        impossible = row.impossible.why
    return Line(
        algo=method.algo,
        label=method.label,
        keys=keys,
        matched=runs,
        cells=tuple(_paper_cell(column, _values(column, runs), row) for column in columns),
        row=row,
        wanted=paper.overrides(row),
        impossible=impossible,
    )


def _paper_cell(
    column: Column,
    values: tuple[float, ...],
    row: Row,
) -> Cell:
    if not column.printed:
        return Cell(values)
    name = column.metric.id
    impossible = None
    # contradictions are derived for unweighted clients and do not apply to weighted statistics
    if row.impossible and name in row.impossible.columns and not _weighted(column):
        impossible = row.impossible.why
    return Cell(values, row.values.get(name), impossible)


def _weighted(column: Column) -> bool:
    return column.metric.field.endswith("_weighted")


# ---- rows of any runs


def run_tables(
    runs: Iterable[Run],
    already_shown: Iterable[TableData] = (),
) -> list[TableData]:
    """Return tables of any runs, one per experiment or data set, with a row per setting.

    Args:
        runs: The runs.
        already_shown: Tables that already show some of the runs. Methods whose settings are all in
            these tables are left out. Other methods get rows for all their settings, so that all
            values of a swept key appear in one table.
    """
    lines = [line for table in already_shown for line in table.lines]
    shown = {run.path for line in lines for run in line.matched.every}
    tables = []
    for name, members in _by_data(runs):
        methods = {run.meta["algo"] for run in members if run.path not in shown}
        if methods:
            shown_here = [run for run in members if run.meta["algo"] in methods]
            tables.append(_of_runs(name, shown_here))
    return tables


def _by_data(runs: Iterable[Run]) -> list[tuple[str, list[Run]]]:
    """Return each table's runs by name: those of a paper's experiment, or of equal content.

    The first table of an experiment or data set is named after it; further tables are named after
    their content.
    """
    by_content: dict[str, list[Run]] = {}
    for run in runs:
        content = content_of(run, run.meta["experiment"])
        by_content.setdefault(content, []).append(run)
    by_name: dict[str, list[Run]] = {}
    for content, members in sorted(by_content.items()):
        meta = members[0].meta
        name = meta["experiment"] or meta["data"]
        if name in by_name:
            name = re.sub(r"[^\w.-]+", "_", content)[-150:]  # file names allow 255 characters
        by_name.setdefault(name, []).extend(members)
    return sorted(by_name.items())


def _of_runs(name: str, runs: Sequence[Run]) -> TableData:
    """Return a table of runs, with methods in the paper's order or, without a paper, by name."""
    home = home_of(runs[0].meta["experiment"])
    measured: set[str] = set()
    for run in runs:
        if run.counts:
            for key, value in run.last_round().items():
                if value is not None:
                    measured.add(key)
    success = attack_success(runs)
    if success:
        measured.add("attack_success")
    further = [column for column in _FURTHER_COLUMNS if column.name in measured]
    columns = (*_COMMON_COLUMNS, *further)
    groups = by_setting(runs)
    keys = distinguishing(groups)
    lines = []
    for (algo, digest), members in groups.items():
        lines.append(
            _line_of_runs(
                algo,
                members,
                keys[algo, digest],
                home,
                columns,
                success,
            )
        )
    paper = home.paper if home else None
    methods = [method.algo for method in paper.methods.values()] if paper else []
    methods += sorted({line.algo for line in lines})

    def order(line: Line) -> tuple[int, list[tuple[str, Any]]]:
        values = [(key, rank(value)) for key, value in line.keys.items()]
        return methods.index(line.algo), values

    notes: set[str] = set()
    for run in runs:
        notes |= {*run.sampled}
        if home is None:
            notes |= {*run.unofficial}
    block = RowGroup(None, tuple(sorted(lines, key=order)))
    return TableData(
        name=name,
        title=title_of(runs),
        columns=columns,
        blocks=(block,),
        paper=paper,
        unofficial=tuple(sorted(notes)),
    )


def _line_of_runs(
    algo: str,
    members: Sequence[Run],
    keys: Tree,
    home: Home | None,
    columns: Sequence[Column],
    success: Mapping[Path, float],
) -> Line:
    done, others = counted_and_others(members)
    reduced = departures(members[0])
    label = algo
    if home:
        reduced += data_departures(done.values())
        reduced += seed_departures(done, others, home.setup.seeds)
        methods = [method for method in home.paper.methods.values() if method.algo == algo]
        methods.sort(key=lambda method: bool(method.set))
        label = methods[0].label if methods else algo
    runs = MatchedRuns(
        done,
        others,
        tuple(reduced),
        every=tuple(members),
    )
    cells = []
    for column in columns:
        values = _values(column, runs)
        if column.name == "attack_success" and not values:  # runs record it only for "pair"
            shares = (success[run.path] for run in done.values() if run.path in success)
            values = tuple(column.metric.factor * share for share in shares)
        cells.append(Cell(values))
    return Line(
        algo=algo,
        label=label,
        keys=keys,
        matched=runs,
        cells=tuple(cells),
    )


# ---- after a sweep


def summary_tables(runs: Sequence[Run]) -> list[TableData]:
    """Return the tables of runs to print at the end of a sweep.

    Executed rows of papers' setups come first, followed by other settings. Runs on a split other
    than the experiment's get separate rows.
    """
    same_split = [run for run in runs if SPLIT not in run.meta["departures"]]
    printed = []
    for experiment in sorted({str(run.meta["experiment"]) for run in runs}):
        home = home_of(experiment)
        if home is None or home.table is None:
            continue
        evidence = Evidence(home.paper, same_split)
        table = paper_table(home.table, evidence, [home.setup.id])
        lines = [line for line in table.lines if line.matched.every]
        if lines:
            block = RowGroup(home.setup, tuple(lines))
            printed.append(replace(table, blocks=(block,)))
    return [*printed, *run_tables(runs, printed)]
