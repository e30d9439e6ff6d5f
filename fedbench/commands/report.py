"""The word ``fedbench report``: its arguments."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fedbench.analysis.compare import compare
from fedbench.core.errors import Parser, RequestError, choice
from fedbench.papers.registry import papers
from fedbench.report.compared import compared_text
from fedbench.report.write import write_report
from fedbench.runs.store import ResultStore


def _parser() -> Parser:
    p = Parser(prog="fedbench report", description="Tables, figures and a page of the runs below a directory.")
    p.add_argument("folder", nargs="?", default="results", metavar="DIR", help="with runs below it (results)")
    p.add_argument("--into", metavar="OUT", help="where the report goes, without links to runs")
    p.add_argument("--paper", metavar="ID", help="report the runs of one paper alone")
    p.add_argument("--compare", metavar="KEY", help="test the differences between algorithms (algo) or values of a key")
    p.add_argument("--metric", help="of rounds.jsonl, at the last round (accuracy_mean)")
    p.add_argument("--baseline", metavar="VALUE", help="compare with this one alone")
    p.add_argument("--alpha", type=float, help="level of the tests (0.05)")
    return p


def report(args: Sequence[str]) -> str:
    """Return what ``fedbench report`` prints: tables and where the report was written, or a comparison.

    Raises:
        RequestError: for arguments that cannot be carried out.
    """
    if {"-h", "--help"} & set(args):
        return _parser().format_help().rstrip()
    asked = _parser().parse_args(list(args))
    folder = Path(asked.folder).expanduser()
    if not folder.is_dir():
        raise RequestError(f"{folder} is not a directory; give one with runs below it")
    if asked.compare is None:
        for name in ("metric", "baseline", "alpha"):
            if getattr(asked, name) is not None:
                raise RequestError(f"--{name} is of a comparison; add --compare algo, or a key such as local.lr")
        if asked.paper is not None:
            choice("--paper", asked.paper, tuple(papers()))
        return write_report(folder, Path(asked.into).expanduser() if asked.into else None, asked.paper)
    if asked.into or asked.paper:
        raise RequestError("--into and --paper are for the whole report; a comparison is printed")
    alpha = 0.05 if asked.alpha is None else asked.alpha
    runs = list(ResultStore(folder))
    return compared_text(compare(runs, asked.compare, asked.metric or "accuracy_mean", asked.baseline, alpha))
