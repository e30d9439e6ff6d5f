"""What a plan says of its tables: how many printed numbers are measured in full, reduced, or not yet."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from fedbench.analysis.coverage import coverage
from fedbench.analysis.matching import Evidence
from fedbench.analysis.tables import paper_table
from fedbench.commands.readable_runs import ReadableRuns
from fedbench.papers.ledger import read_ledger
from fedbench.papers.plan import chosen
from fedbench.papers.registry import Paper
from fedbench.runs.run import Run


def cell_notes(names: Sequence[str], found_runs: ReadableRuns) -> dict[str, str]:
    """Return, for each chosen table by its name, its distinct printed numbers by what has been measured.

    Args:
        names: Names of the tables and figures, as typed.
        found_runs: The finished runs.
    """
    found: dict[str, str] = {}
    for paper in dict.fromkeys(paper for paper, _ in chosen(names)):
        tables = [part for p, part in chosen(names) if p is paper and part in paper.tables]
        found |= found_runs.computed(paper, partial(_of_runs, paper, tables, found_runs.results))
    return found


def _of_runs(paper: Paper, tables: Sequence[str], results: Path, runs: Sequence[Run]) -> dict[str, str]:
    """Return the notes of a paper's tables."""
    evidence, ledger, notes = Evidence(runs), read_ledger(results), {}
    for name in tables:
        table = paper_table(paper, paper.tables[name], evidence, ledger, only_coverage=True)
        c = coverage([table], agreement=False)
        notes[f"{paper.id}/{name}"] = f"numbers: {c.full} full, {c.reduced} reduced, {c.not_run} not run"
    return notes
