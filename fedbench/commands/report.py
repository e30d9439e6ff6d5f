"""``fedbench report``: its arguments."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from fedbench.analysis.best_values import best_values
from fedbench.analysis.compare import compare
from fedbench.core.errors import Parser, RequestError, choice
from fedbench.core.paths import user_path
from fedbench.papers.registry import papers
from fedbench.report.best import best_text
from fedbench.report.compared import compared_text
from fedbench.report.write import name_left_out, write_report
from fedbench.runs.bundle import stored


def _parser() -> Parser:
    p = Parser(prog="fedbench report", description="Write tables, figures and a page from the runs in a directory.")
    p.add_argument(
        "folder",
        nargs="?",
        default="results",
        metavar="DIR",
        help="directory that contains the runs, or a report that was published with --into (default: results)",
    )
    p.add_argument(
        "--into",
        metavar="OUT",
        help="directory to publish the report in, without links to the runs, and with what it needs of them "
        "(default: DIR/report, without)",
    )
    p.add_argument("--paper", metavar="ID", help="report the runs of one paper only")
    p.add_argument(
        "--compare",
        metavar="KEY",
        help="print tests of the differences between algorithms (algo), or between values of a key",
    )
    p.add_argument(
        "--best",
        metavar="KEY",
        help="print, for every setting, the value of a key that is best on validation examples (data.validation)",
    )
    p.add_argument(
        "--by", metavar="METRIC", help="with --best: validation (default, val_accuracy_mean) or another val_ metric"
    )
    p.add_argument(
        "--metric", help="key of rounds.jsonl to compare or report, at the last round (default: accuracy_mean)"
    )
    p.add_argument("--baseline", metavar="VALUE", help="compare with this algorithm or value only")
    p.add_argument("--alpha", type=float, help="significance level of the tests (default: 0.05)")
    return p


def report(args: Sequence[str]) -> str:
    """Return what ``fedbench report`` prints: tables and where the report was written, or a comparison.

    Raises:
        RequestError: If an argument is wrong.
    """
    if {"-h", "--help"} & set(args):
        return _parser().format_help().rstrip()
    asked = _parser().parse_args(list(args))
    folder = user_path("DIR", asked.folder)
    if not folder.is_dir():
        raise RequestError(f"{folder} is not a directory; it must be a directory that contains runs, such as results")
    if asked.best is not None:
        return _best(folder, asked)
    if asked.by is not None:
        raise RequestError(f"--by {asked.by} works with --best only; add --best local.lr, for example")
    if asked.compare is None:
        for name in ("metric", "baseline", "alpha"):
            if getattr(asked, name) is not None:
                raise RequestError(
                    f"--{name} works with --compare only; add --compare algo, or a key such as --compare local.lr"
                )
        if asked.paper is not None:
            choice("--paper", asked.paper, tuple(papers()))
        return write_report(folder, user_path("--into", asked.into) if asked.into else None, asked.paper)
    if asked.into or asked.paper:
        raise RequestError("--into and --paper cannot be combined with --compare, which prints and writes no report")
    alpha = 0.05 if asked.alpha is None else asked.alpha
    store = stored(folder)
    runs = list(store)
    name_left_out(store.damaged)
    if not runs:
        raise RequestError(f"{folder} contains no runs to compare; it must be a results_dir of earlier runs")
    return compared_text(compare(runs, asked.compare, asked.metric or "accuracy_mean", asked.baseline, alpha))


def _best(folder: Path, asked: Namespace) -> str:
    """Return the best values of a key."""
    for name in ("compare", "into", "paper", "baseline", "alpha"):
        if getattr(asked, name) is not None:
            raise RequestError(f"--{name} cannot be combined with --best, which prints one table")
    store = stored(folder)
    runs = list(store)
    name_left_out(store.damaged)
    if not runs:
        raise RequestError(f"{folder} contains no runs; it must be a results_dir of earlier runs")
    return best_text(best_values(runs, asked.best, asked.metric or "accuracy_mean", asked.by or "validation"))
