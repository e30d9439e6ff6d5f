"""Tables of runs as values: the rows of a paper's table, and the rows of any runs. Nothing is formatted here.

``fedbench.analysis.matching`` finds the runs that match a row of a paper. Runs that match no row of a paper have rows
of their own, one per setting. Both kinds of rows have the same columns, cells and statistics.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedbench.analysis.data_text import content_of, title_of
from fedbench.analysis.departures import (
    SPLIT,
    counted_and_others,
    data_departures,
    departures,
    rate_of,
    seed_departures,
)
from fedbench.analysis.matching import Evidence, MatchedRuns
from fedbench.analysis.settings import Key, by_setting, distinguishing, in_order
from fedbench.analysis.table_model import Cell, Column, Line, RowGroup, TableData
from fedbench.config.identity import setting
from fedbench.core.config_values import Tree, config_value, keys_text
from fedbench.core.metrics import metric_info
from fedbench.papers.registry import Home, home_of
from fedbench.papers.schema import Paper, PrintedMetric, Row, Table
from fedbench.runs.run import Run

# keys of the attackers, and the values of others with which they do not attack
_WHO = ("attack.clients", "attack.ids")
_HONEST = {"attack.data": "none", "attack.message": "none", "attack.loss_scale": 1.0}


def _common_column(name: str) -> Column:
    m = metric_info(name)
    return Column(PrintedMetric(m.name, m.heading, m.direction, m.name, m.factor))


# columns of every table, whether or not a paper prints them
_COMMON_COLUMNS = tuple(
    _common_column(name)
    for name in (
        *(f"accuracy_{what}{end}" for end in ("_weighted", "") for what in ("mean", "std", "worst30")),
        "angle_degrees",
        "kl_uniform",
    )
)

# columns of runs with scenarios, where they have been measured
_SUCCESS = _common_column("attack_success")
_FURTHER_COLUMNS = (_common_column("epsilon"), _common_column("attackers_accuracy"), _SUCCESS)


# ---- a paper's table


def paper_table(paper: Paper, table: Table, evidence: Evidence) -> TableData:
    """Return a table of a paper: every row that it prints, in its order.

    Args:
        paper: The paper.
        table: One of its tables.
        evidence: The runs.
    """
    blocks = tuple(_block(paper, table, setup, evidence) for setup in table.setups)
    title = f"{paper.name}, Table {table.id.removeprefix('table').replace('_', '').upper()}"
    return TableData(
        f"{paper.id}/{table.id}",
        title,
        columns_of(paper, table),
        blocks,
        paper,
        table,
    )


def _block(paper: Paper, table: Table, setup: str, evidence: Evidence) -> RowGroup:
    columns, rows = columns_of(paper, table), [row for row in table.rows if row.setup == setup]
    return RowGroup(paper.setups[setup], tuple(_line(paper, columns, row, evidence) for row in rows))


def columns_of(paper: Paper, table: Table) -> tuple[Column, ...]:
    """Return the columns of a paper's table, then the common columns that the paper does not print."""
    printed = [Column(paper.metrics[c], True, table.round) for c in table.columns]
    names = {c.name for c in printed}
    return (*printed, *(c for c in _COMMON_COLUMNS if c.name not in names))


def _values(column: Column, found: MatchedRuns) -> tuple[float, ...]:
    return tuple(found.values(column.metric, column.round).values())


def _line(paper: Paper, columns: Sequence[Column], row: Row, evidence: Evidence) -> Line:
    method, wanted = paper.methods[row.algo], paper.overrides(row)
    found = evidence.find(paper, row)
    weighted = any(c.printed and _weighted(c) for c in columns)
    return Line(
        algo=method.algo,
        label=method.label,
        keys={k: v for k, v in row.hyperparameters.items() if v is not None},
        found=found if found.runs else replace(found, reduced=(), cuts=()),
        cells=tuple(_paper_cell(c, _values(c, found), row) for c in columns),
        status=_status(found),
        row=row,
        wanted=wanted,
        impossible=row.impossible.why if row.impossible and weighted else None,
    )


def _paper_cell(column: Column, values: tuple[float, ...], row: Row) -> Cell:
    if not column.printed:
        return Cell(values)
    # a contradiction for unweighted clients does not apply to weighted statistics
    odd = None if _weighted(column) else row.impossible
    why = odd.why if odd is not None and column.metric.id in odd.columns else None
    return Cell(values, row.values.get(column.metric.id), why)


def _weighted(column: Column) -> bool:
    return column.metric.field.endswith("_weighted")


def _status(found: MatchedRuns) -> str:
    if found.runs:
        return "reduced" if found.reduced else "full"
    return "failed" if any(what != "not finished" for _, what in found.others) else "not run"


# ---- rows of any runs


def run_tables(runs: Iterable[Run], already_shown: Iterable[TableData] = ()) -> list[TableData]:
    """Return tables with a row per setting of any runs, one table per experiment or data set, by name.

    Args:
        runs: The runs.
        already_shown: Tables that show some of the runs already. A method with all its settings in these tables is left
            out; a method with only some of them has all its rows, so that a swept key has all its values in one table.
    """
    shown = {run.path for table in already_shown for line in table.lines for run in line.found.every}
    found = []
    for name, members in _by_data(runs):
        rest = {run.meta["algo"] for run in members if run.path not in shown}
        if kept := [run for run in members if run.meta["algo"] in rest]:
            found.append(_of_runs(name, kept))
    return found


def _by_data(runs: Iterable[Run]) -> list[tuple[str, list[Run]]]:
    """Return the runs of each table by its name: those of a paper's experiment, or of one content.

    The name is that of the experiment or data; a further table of it is named by its content.
    """
    groups: dict[str, list[Run]] = {}
    for run in runs:
        groups.setdefault(content_of(run, run.meta["experiment"]), []).append(run)
    found: dict[str, list[Run]] = {}
    for content, members in sorted(groups.items()):
        meta = members[0].meta
        name = meta["experiment"] or meta["data"]
        if name in found:
            name = re.sub(r"[^\w.-]+", "_", content)[-150:]  # of at most 255 characters
        found.setdefault(name, []).extend(members)
    return sorted(found.items())


def _of_runs(name: str, runs: Sequence[Run]) -> TableData:
    """Return a table of runs; methods are in the paper's order, else sorted by name."""
    home = home_of(runs[0].meta["experiment"])
    groups = by_setting(runs)
    differing = distinguishing(groups)
    success = success_of(runs)
    lines = []
    unfinished = []
    for key, members in groups.items():
        keys = differing[key]
        rate = "" if "local.lr" in keys else rate_of(members[0])
        method = f"{key[0]}{rate} {keys_text(keys)}".rstrip()
        lost = [(method, run.meta["seed"], run.outcome) for run in members if not run.counts]
        unfinished += lost
        if len(lost) < len(members):
            lines.append(_line_of_runs(key, members, keys, home, success))
    columns = (*_COMMON_COLUMNS, *_FURTHER_COLUMNS)
    kept = [i for i, c in enumerate(columns) if c in _COMMON_COLUMNS or any(line.cells[i].values for line in lines)]
    lines = [replace(line, cells=tuple(line.cells[i] for i in kept)) for line in lines]
    methods = [m.algo for m in home.paper.methods.values()] if home else []
    ranks = in_order([line.keys for line in lines])
    places = [methods.index(line.algo) if line.algo in methods else len(methods) for line in lines]
    order = sorted(range(len(lines)), key=lambda i: (places[i], lines[i].algo, ranks[i]))
    return TableData(
        name,
        title_of(runs),
        tuple(columns[i] for i in kept),
        (RowGroup(None, tuple(lines[i] for i in order)),),
        paper=home.paper if home else None,
        unfinished=tuple(sorted(unfinished)),
        unofficial=tuple(sorted({s for run in runs for s in (*run.sampled, *(() if home else run.unofficial))})),
    )


def _line_of_runs(
    key: Key, members: Sequence[Run], differing: Tree, home: Home | None, success: Mapping[Path, float]
) -> Line:
    done, others = counted_and_others(members)
    reduced = departures(list(done.values()))
    if home:
        reduced += seed_departures(done, others, home.setup.seeds)
    else:  # below the table
        reduced = [text for text in reduced if text not in data_departures(done.values())]
    found = MatchedRuns(done, others, tuple(reduced), every=tuple(members))
    labels = [m.label for m in home.paper.methods.values() if m.algo == key[0] and not m.set] if home else []
    values = {c: _values(c, found) for c in (*_COMMON_COLUMNS, *_FURTHER_COLUMNS)}
    known = (success[run.path] for run in done.values() if run.path in success)
    values[_SUCCESS] = tuple(share * _SUCCESS.metric.factor for share in known)
    return Line(
        algo=key[0],
        label=labels[0] if labels else key[0],
        keys=differing,
        found=found,
        cells=tuple(map(Cell, values.values())),
        status="reduced" if reduced else "full",
    )


def success_of(runs: Iterable[Run]) -> dict[Path, float]:
    """Return the success of the attack in each run, by its directory, as a share.

    It is the one that the run has recorded, for attacks on a pair of classes; otherwise 1 - accuracy / accuracy of the
    run with the same seed and settings in which the same clients do not attack (``attack=clean``), if there is one.
    """
    honest: dict[Any, float] = {}
    attacked: dict[Path, tuple[Any, float]] = {}
    found: dict[Path, float] = {}
    for run in runs:
        keys = setting(run.config)
        if not run.counts or _WHO[0] not in keys:
            continue
        last, rest = run.last_round(), {k: v for k, v in keys.items() if k in _WHO or not k.startswith("attack.")}
        partner = run.meta["seed"], *sorted((k, config_value(v)) for k, v in rest.items())
        if all(keys.get(k) == v for k, v in _HONEST.items()):
            honest[partner] = last["accuracy_mean"]
        elif last.get("attack_success") is None:
            attacked[run.path] = partner, last["accuracy_mean"]
        if last.get("attack_success") is not None:
            found[run.path] = last["attack_success"]
    return found | {path: 1 - got / honest[key] for path, (key, got) in attacked.items() if honest.get(key)}


# ---- after a sweep


def summary_tables(runs: Sequence[Run]) -> list[TableData]:
    """Return the tables of runs at the end of a sweep: the rows of a paper's setup that were run, then other settings.

    Runs on another split of the data than that of the experiment have rows of their own.
    """
    evidence, printed = Evidence(run for run in runs if SPLIT not in run.meta["departures"]), []
    for experiment in sorted({str(run.meta["experiment"]) for run in runs}):
        home = home_of(experiment)
        if home is not None and home.table is not None:
            table = paper_table(home.paper, home.table, evidence)
            mine = (block for block in table.blocks if block.setup == home.setup)
            lines = tuple(line for block in mine for line in block.lines if line.found.every)
            if lines:
                printed.append(replace(table, blocks=(RowGroup(home.setup, lines),)))
    return [*printed, *run_tables(runs, printed)]
