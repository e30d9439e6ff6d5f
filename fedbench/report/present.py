"""Conversion of tables of values into tables of text, which Markdown, LaTeX and the page lay out."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedbench.analysis.coverage import coverage, splits
from fedbench.analysis.matching import Evidence, MatchedRuns, departure_texts
from fedbench.analysis.settings import keys_text
from fedbench.analysis.tables import Cell, Column, Line, TableData, closing_tables
from fedbench.config.identity import REPORTING_KEYS
from fedbench.core.metrics import metric_info
from fedbench.core.trees import config_value
from fedbench.papers.schema import Paper, Setup
from fedbench.report.claim_views import claim_views, reading_views
from fedbench.report.export import table_markdown
from fedbench.report.render import best_names, href
from fedbench.report.views import BlockView, CellView, FigureView, LineView, PaperView, TableView, TwinView, tuning_of
from fedbench.runs.run import Run

_LEGEND = "percent at the last round, mean ± sample STD over seeds; (w): clients weighted by their test examples"
_CONTRADICTED = "accuracies of unweighted clients have the printed numbers of this row"


def summary(runs: Sequence[Run]) -> str:
    """Return the tables of runs as Markdown text."""
    return as_text([view(table) for table in closing_tables(runs)])


def as_text(tables: Sequence[TableView]) -> str:
    """Return tables as Markdown text."""
    return "\n".join(map(table_markdown, tables)).rstrip()


def paper_view(
    paper: Paper, tables: Sequence[TableData], figures: Sequence[FigureView], evidence: Evidence, page: Path | None
) -> PaperView:
    """Return a paper as the page in a directory shows it; without links to runs if the directory is None."""
    return PaperView(
        id=paper.id,
        title=paper.name,
        citation=paper.citation,
        tables=tuple(view(table, page) for table in tables),
        figures=tuple(figures),
        claims=claim_views(paper, evidence),
        assumptions=tuple((g.id, g.field, g.adopted, f"{g.why} (confidence: {g.confidence})") for g in paper.gaps),
        contradictions=paper.contradictions,
        coverage=coverage(tables),
        readings=reading_views(paper),
    )


def view(table: TableData, page: Path | None = None) -> TableView:
    """Return a table as text, with links to its runs from the directory of the page if one is given."""
    columns = [c for c in table.columns if c.printed] or list(table.columns)
    further = [c for c in table.columns if c not in columns]
    blocks = []
    for b in table.blocks:
        lines = [_line(line, b.setup, table.columns, len(columns), page) for line in b.lines]
        if table.table is None:
            lines = _with_best(b.lines, columns, lines)
        blocks.append(BlockView(b.setup.title if b.setup else "", tuple(lines), splits(b) if b.setup else ""))
    return TableView(
        name=table.name,
        title=_title(table),
        caption=_LEGEND if table.table is None else table.table.caption,
        columns=tuple(c.metric.label for c in columns),
        blocks=tuple(blocks),
        notes=tuple(_notes(table, columns)),
        further=tuple(c.metric.label for c in further),
        with_paper=table.table is not None,
        twins=_twins(columns, further),
        tuning=tuning_of(table.table.tuning if table.table else None),
    )


def _with_best(lines: Sequence[Line], columns: Sequence[Column], shown: Sequence[LineView]) -> list[LineView]:
    """Return rows with the best mean of each column marked, where there are several.

    Rows with a seed that did not end well are never the best: their mean may leave out their worst run.
    """
    whole = {i for i, line in enumerate(lines) if not line.found.others and not line.errors}
    marked = list(shown)
    for c, column in enumerate(columns):
        means = {str(i): m for i, line in enumerate(lines) if i in whole and (m := line.cells[c].mean) is not None}
        best = best_names(means, metric_info(column.metric.field)) if len(shown) > 1 else set()
        for i in map(int, best):
            cells = list(marked[i].cells)
            cells[c] = replace(cells[c], best=True)
            marked[i] = replace(marked[i], cells=tuple(cells))
    return marked


_WEIGHTED = "_weighted"  # end of the names of metrics whose clients count by their test examples


def _twins(columns: Sequence[Column], further: Sequence[Column]) -> tuple[TwinView | None, ...]:
    """Return the other weighting of each printed column, if the table has it; empty if no column has one."""
    places = {c.name: i for i, c in enumerate(further)}
    found = []
    for c in columns:
        weighted = c.name.endswith(_WEIGHTED)
        other = c.name.removesuffix(_WEIGHTED) if weighted else c.name + _WEIGHTED
        words = ("weighted", "unweighted") if weighted else ("unweighted", "weighted")
        found.append(TwinView(*words, places[other]) if c.printed and other in places else None)
    return tuple(found) if any(found) else ()


def _title(table: TableData) -> str:
    if table.paper is None or table.table is None:
        return table.name
    return f"{table.paper.name}, Table {table.table.id.removeprefix('table').replace('_', '').upper()}"


def _notes(table: TableData, columns: Sequence[Column]) -> list[str]:
    notes = [f"{c.metric.label}: {c.metric.definition}" for c in columns if c.metric.definition]
    open_here = sorted({gap for block in table.blocks if block.setup for gap in block.setup.gaps})
    if open_here:
        notes.append(
            f"gaps of the paper that concern this table: {', '.join(open_here)}; they are listed with the paper"
        )
    if table.table is not None and table.table.round == "best":
        notes.append(
            "best round of each run, as we read the paper; metrics not in the paper are those of the last round"
        )
    if table.paper is not None and table.table is None:
        notes.append(f"settings of an experiment of {table.paper.name} that match no row of its tables")
    notes += _further_splits(table)
    notes += [f"{algo} seed {seed}: {what}" for algo, seed, what in table.unfinished]
    return notes + list(table.unofficial)


def _further_splits(table: TableData) -> list[str]:
    """Return a note for each setup with runs on other splits of the data, which do not enter the table."""
    notes = []
    for block in table.blocks:
        splits = sorted({split for line in block.lines for split in line.found.splits})
        if splits:
            where = f"{block.setup.title}: " if block.setup and len(table.blocks) > 1 else ""
            notes.append(
                f"{where}the table has the runs on the split of the data that the experiment draws; runs on further "
                f"splits (data.seed {', '.join(map(str, splits))}) are a reading of the claims"
            )
    return notes


def _line(line: Line, setup: Setup | None, columns: Sequence[Column], first: int, page: Path | None) -> LineView:
    """Return a row as text; ``first`` is the number of its main columns."""
    seeds = setup.seeds if setup else 0
    texts = [_cell(cell, column, seeds) for cell, column in zip(line.cells, columns, strict=True)]
    typed = command(setup.experiment, line.algo, line.wanted, line.found, seeds) if setup and line.row else ""
    runs = line.found.runs.values()
    return LineView(
        label=line.label,
        settings=keys_text(line.keys),
        seeds=len(line.found.runs),
        status=line.status,
        reduced=departure_texts(line.found.reduced),
        cells=tuple(texts[:first]),
        runs=() if page is None else tuple(dict.fromkeys(href(run.place, page) for run in runs)),
        command=typed,
        note=_note(line),
        further=tuple(text.measured for text in texts[first:]),
    )


def _note(line: Line) -> str:
    notes = [*(f"seed {unit.seed} {what}" for unit, what in line.found.others), *line.errors]
    if line.impossible:
        why = f"impossible as statistics of unweighted clients ({line.impossible}); compared with weighted ones"
        notes.insert(0, why)
    return "; ".join(notes)


def _cell(cell: Cell, column: Column, runs: int) -> CellView:
    digits = max(column.digits, 0 if cell.printed is None else len(repr(cell.printed.mean).partition(".")[2]))
    paper = "" if cell.printed is None else _with_spread(cell.printed.mean, cell.printed.std, digits)
    if cell.mean is None:
        why = cell.agreement == "impossible"
        note = (
            f"no accuracies of unweighted clients have the printed numbers of this row: {cell.impossible}"
            if why
            else ""
        )
        return CellView("", paper, "", cell.agreement, None, note)
    measured = _with_spread(cell.mean, cell.std, digits)
    if cell.printed is None:
        return CellView(measured, "", "", "none", cell.mean, f"n = {cell.n}")
    note = agreement_text(cell, digits, runs)
    if cell.impossible:
        note += f". No {_CONTRADICTED}: {cell.impossible}"
    return CellView(measured, paper, f"{cell.difference:+.{digits}f}", cell.agreement, cell.mean, note)


def agreement_text(cell: Cell, digits: int = 2, runs: int = 0) -> str:
    """Return how a printed number, the mean of ``runs`` runs, agrees with the measured ones.

    The fair range for the number of a single run is the prediction interval.
    """
    assert cell.printed is not None
    if cell.bounds is None or cell.prediction is None:
        return "one seed gives no interval"
    (low, high), wide = cell.bounds, cell.printed.std
    by = f", widened by the paper's {wide:.{digits}f} on both sides" if wide else ""
    text = (
        f"n = {cell.n}, 95 % interval of the mean {low:.{digits}f} to {high:.{digits}f}{by}: "
        f"{cell.printed.mean:.{digits}f} lies {cell.place}"
    )
    if runs != 1 or wide is not None:
        return text
    low, high = cell.prediction
    return text + (
        f". The paper reports one run; the 95 % prediction interval of a further run is {low:.{digits}f} to "
        f"{high:.{digits}f}"
    )


def _with_spread(value: float, spread: float | None, digits: int) -> str:
    return f"{value:.{digits}f}" + ("" if spread is None else f" ± {spread:.{digits}f}")


def command(experiment: str, algo: str, wanted: Mapping[str, Any], found: MatchedRuns, seeds: int) -> str:
    """Return the command that produces the runs of a row; for a row without runs, at the paper's setting."""
    parts = {**wanted}
    numbers = list(range(seeds))
    if found.runs:
        run = next(iter(found.runs.values()))
        numbers = list(dict.fromkeys(unit.seed for unit in found.runs))
        keys, typed = set(run.meta["departures"]), {o.split("=")[0] for o in run.meta["overrides"]}
        if "model._target_" in keys:  # with another model, only typed keys differ from its defaults
            parts["model"] = run.meta["model"]
            keys = {k for k in keys if not k.startswith("model.")} | {k for k in typed if k.startswith("model.")}
        keys |= (typed & REPORTING_KEYS) | (wanted.keys() & {"rounds"})
        flat = run.flat
        parts |= {k: flat[k] for k in sorted(keys) if k in flat}
    words = [f"experiment={experiment}", f"algo={algo}", *(f"{k}={config_value(v)}" for k, v in parts.items())]
    words.append("seed=" + ",".join(map(str, numbers)))
    return "fedbench -m " + " ".join(shlex.quote(w) for w in words)
