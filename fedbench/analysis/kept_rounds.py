"""Which rounds of a run a bundle keeps, so that every reading of its numbers can be computed from the bundle."""

from __future__ import annotations

from fedbench.analysis.matching import best_round, best_rounds
from fedbench.analysis.run_rows import of_best_rounds
from fedbench.core.metrics import CATALOGUE
from fedbench.runs.bundle_writing import Entry
from fedbench.runs.store import Run


def published(run: Run, path: str) -> Entry:
    """Return what a bundle keeps of a run: the best rounds of every metric, and the clients of those that are printed.

    Args:
        run: The run.
        path: Its path below the directory of runs.
    """
    if not run.done:
        return Entry(run, path)
    printed = (best_round(run, metric) for metric in of_best_rounds(run.meta["experiment"]))
    return Entry(run, path, _rounds(run), frozenset(found[0] for found in printed if found is not None))


def _rounds(run: Run) -> frozenset[int]:
    """Return the first round, and the first best round of every metric of the catalogue, measured or derived."""
    first = int(run.table()["round"].iloc[0])
    return frozenset({first, *(number for number, _ in best_rounds(run, CATALOGUE).values())})
