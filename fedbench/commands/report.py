"""``fedbench report``: the report of a directory of runs, the front page of published reports, or one of its tables."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import fedbench
from fedbench.analysis.best import best_values
from fedbench.analysis.build_tables import summary_tables
from fedbench.analysis.compare import ComparedRuns, compare
from fedbench.core.errors import RequestError
from fedbench.core.files import user_path
from fedbench.core.validation import choice
from fedbench.papers.registry import papers
from fedbench.reports.comparison import best_text
from fedbench.reports.manuscript import METRICS, write_manuscript
from fedbench.reports.overview import is_collection, write_overview
from fedbench.reports.page import PAGE
from fedbench.reports.summary_table import summary_text
from fedbench.reports.write import name_left_out, write_report
from fedbench.runs.bundle import is_bundle
from fedbench.runs.results import Results
from fedbench.runs.run import Run

_ALPHA = 0.05
_NEEDS = {  # flags, and those that they go with
    "baseline": ("compare", "latex"),
    "alpha": ("compare", "latex"),
    "by": ("best",),
}


def execute(args: Namespace) -> int:
    """Print tables and where the report was written, or a comparison; the status is 1 if runs are left out.

    Raises:
        RequestError: If an argument is wrong.
    """
    folder: Path = args.folder
    into = user_path("--into", args.into) if args.into else None
    if into and folder.resolve().is_relative_to(into.resolve()) and not is_bundle(into):
        raise RequestError(f"--into {into} contains the runs; it must be another directory")
    if sum(map(bool, (args.latex, args.best, args.paper))) > 1:
        raise RequestError("--latex, --best and --paper cannot be combined; type one of them")
    for flag, needed in _NEEDS.items():
        if getattr(args, flag) is not None and not any(getattr(args, other) for other in needed):
            others = " or ".join(f"--{other}" for other in needed)
            raise RequestError(f"--{flag} is for {others}; add that or remove it")
    columns = args.metric and not (args.compare or args.latex or args.best)
    if columns and (into or args.paper or args.dated):
        raise RequestError("--metric alone prints a table and writes no report; remove --into, --paper and --dated")
    if args.alpha is None:
        args.alpha = _ALPHA
    left_out: Sequence[str] = ()
    if args.latex or args.best or columns:
        runs, left_out = runs_below(folder)
        if args.latex:
            text = _manuscript(runs, into or folder / "paper", args)
        elif args.best:
            text = best_text(best_values(runs, args.best, args.metric or "accuracy_mean", args.by or "validation"))
        else:
            text = summary_text(summary_tables(runs), args.metric.split(","))
    elif not (into or args.paper or args.compare) and is_collection(folder):
        text = write_overview(folder)
        args.page = folder / PAGE
    else:
        text, left_out = _report(folder, args, into)
    print(text)
    return 1 if left_out else 0


def runs_below(folder: Path) -> tuple[list[Run], list[str]]:
    """Return the runs of a directory, of which there must be some, and messages about those that are left out.

    Raises:
        RequestError: If there are none.
    """
    store = Results(folder)
    runs = list(store)
    name_left_out(store.damaged)
    if not runs:
        raise RequestError(f"{folder} contains no runs; it must be a results_dir of earlier runs, such as results")
    return runs, store.damaged


def _report(folder: Path, args: Namespace, into: Path | None) -> tuple[str, list[str]]:
    """Write a report and return its tables, or those of the comparison, with where it is, and what is left out."""
    if args.paper is not None:
        choice("--paper", args.paper, papers())

    def work(runs: Sequence[Run]) -> ComparedRuns:
        return compare(runs, args.compare, args.metric or "accuracy_mean", args.baseline, args.alpha)

    # no date by default, so that equal runs give equal bytes
    footer = f"Written on {datetime.now(UTC):%Y-%m-%d} by fedbench {fedbench.__version__}" if args.dated else ""
    args.page = (into or folder / "report") / PAGE
    return write_report(folder, into, args.paper, compare=work if args.compare else None, footer=footer)


def _manuscript(runs: Sequence[Run], target: Path, args: Namespace) -> str:
    """Write the files of a manuscript and return their names."""
    metrics = METRICS if args.metric is None else tuple(dict.fromkeys(args.metric.split(",")))
    compared = [compare(runs, args.compare or "algo", m, args.baseline, args.alpha) for m in metrics]
    names = write_manuscript(runs, target, compared)
    args.page = target / names[0]
    return "\n".join(f"written: {target / name}" for name in names)
