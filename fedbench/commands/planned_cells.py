"""What a plan says of its tables: how many printed numbers are measured in full, reduced, or not yet."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from fedbench.analysis.coverage import coverage
from fedbench.analysis.matching import Evidence
from fedbench.analysis.tables import paper_table
from fedbench.papers.ledger import read_ledger
from fedbench.papers.plan import chosen
from fedbench.papers.registry import Paper
from fedbench.runs.store import ResultStore, Run, with_readable


def cell_notes(names: Sequence[str], results: Path) -> dict[str, str]:
    """Return, for each chosen table by its name, its distinct printed numbers by what has been measured.

    Runs that cannot be read are named on the standard error and left out.

    Args:
        names: Names of the tables and figures, as typed.
        results: Directory of the finished runs.
    """
    found: dict[str, str] = {}
    for paper in dict.fromkeys(paper for paper, _ in chosen(names)):
        tables = [part for p, part in chosen(names) if p is paper and part in paper.tables]
        store = ResultStore(results / paper.id)
        work = partial(_of_runs, paper, tables, results)
        notes, damaged = with_readable(work, list(store), store.damaged, store.root)
        for why in damaged:
            print(f"fedbench: left out: {paper.id}/{why}", file=sys.stderr)
        found |= notes
    return found


def _of_runs(
    paper: Paper, tables: Sequence[str], results: Path, runs: Sequence[Run], damaged: Sequence[str]
) -> dict[str, str]:
    """Return the notes of a paper's tables; ``damaged`` has the runs that are left out."""
    evidence, ledger, notes = Evidence(runs), read_ledger(results), {}
    for name in tables:
        c = coverage([paper_table(paper, paper.tables[name], evidence, ledger)])
        notes[f"{paper.id}/{name}"] = f"numbers: {c.full} full, {c.reduced} reduced, {c.not_run} not run"
    return notes
