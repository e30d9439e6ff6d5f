"""``fedbench report``: its arguments."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import fedbench
from fedbench.analysis.best_values import best_values
from fedbench.analysis.compare import ComparedRuns, compare
from fedbench.commands.paper_bundle import unpacked, write_paper_bundle
from fedbench.core.errors import RequestError, choice
from fedbench.core.files import NotWritten
from fedbench.core.paths import user_path
from fedbench.data.citations import citation
from fedbench.papers.registry import papers
from fedbench.report.best import best_text
from fedbench.report.compared import compared_text
from fedbench.report.for_paper import METRICS, PaperOptions, write_for_paper
from fedbench.report.front import is_collection, write_front
from fedbench.report.write import Extras, name_left_out, write_report
from fedbench.runs.results import Results
from fedbench.runs.run import Run


def carry_out(asked: Namespace) -> int:
    """Print tables and where the report was written, or a comparison.

    Raises:
        RequestError: If an argument is wrong.
    """
    print(_written(asked, asked.config_dir))
    return 0


def _written(asked: Namespace, own: Path | None) -> str:
    """Return what is printed; ``--bundle`` reads data again with the user's own config tree."""
    folder = user_path("DIR", asked.folder)
    if folder.suffix == ".zip" and folder.is_file():
        into = user_path("--into", asked.into) if asked.into else folder.with_suffix("")
        with unpacked(folder) as place:
            return _report(place, asked, own, into)
    if not folder.is_dir():
        raise RequestError(f"{folder} is not a directory; it must be a directory that contains runs, such as results")
    return _report(folder, asked, own, user_path("--into", asked.into) if asked.into else None)


def _report(folder: Path, asked: Namespace, own: Path | None, into: Path | None) -> str:
    """Return what is printed.

    Args:
        folder: Directory of the runs, or of a bundle.
        asked: The arguments.
        own: A config tree of the user's own.
        into: Directory of what is written; None for one below ``folder``.
    """
    if asked.latex or asked.bundle is not None:
        return _for_paper(folder, asked, own, into)
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
        if is_collection(folder):
            if into is not None or asked.paper is not None or asked.dated:
                raise RequestError(
                    f"{folder} contains published reports; --into, --paper and --dated are for one of them, such as "
                    f"fedbench report {folder}/NAME"
                )
            return write_front(folder)
        if asked.paper is not None:
            choice("--paper", asked.paper, papers())
        return write_report(folder, into, asked.paper, Extras(footer=_footer(asked.dated)))
    if asked.paper:
        raise RequestError("--paper cannot be combined with --compare, which compares all runs")
    return _compared(folder, asked, into)


def _compared(folder: Path, asked: Namespace, into: Path | None) -> str:
    """Write a report with a comparison, and return the comparison and where the report is."""
    alpha = 0.05 if asked.alpha is None else asked.alpha
    found: list[ComparedRuns] = []

    def work(runs: Sequence[Run]) -> ComparedRuns:
        if not runs:
            raise RequestError(f"{folder} contains no runs to compare; it must be a results_dir of earlier runs")
        found.append(compare(runs, asked.compare, asked.metric or "accuracy_mean", asked.baseline, alpha))
        return found[-1]

    said = write_report(folder, into, extras=Extras(compare=work, footer=_footer(asked.dated)))
    return "\n".join([compared_text(found[-1]), "", said.splitlines()[-1]])


def _footer(dated: bool) -> str:
    """Return the text at the end of the page: none by default, so that equal runs give equal bytes."""
    return f"Written on {datetime.now(UTC):%Y-%m-%d} by fedbench {fedbench.__version__}" if dated else ""


def _for_paper(folder: Path, asked: Namespace, own: Path | None, into: Path | None) -> str:
    """Write what a paper takes, or its bundle, and return what was written."""
    for name in ("best", "by", "paper", "dated"):
        if getattr(asked, name) not in (None, False):
            raise RequestError(f"--{name} cannot be combined with --latex and --bundle")
    metrics = METRICS if asked.metric is None else tuple(dict.fromkeys(asked.metric.split(",")))
    options = PaperOptions(
        asked.compare or "algo", metrics, asked.baseline, 0.05 if asked.alpha is None else asked.alpha
    )
    lines = []
    if asked.latex:
        target = into or folder / "paper"
        store = Results(folder)

        def work(runs: list[Run], damaged: list[str]) -> list[str]:
            if not runs:
                raise RequestError(f"{folder} contains no runs; it must be a results_dir of earlier runs")
            return write_for_paper(runs, target, options, citation)

        try:
            names = work(list(store), store.damaged)
        except NotWritten as error:
            raise RequestError(str(error)) from error
        name_left_out(store.damaged)
        lines += [f"written: {target / name}" for name in names]
    if asked.bundle is not None:
        lines += write_paper_bundle(folder, user_path("--bundle", asked.bundle), options, citation, own)
    return "\n".join(lines)


def _best(folder: Path, asked: Namespace) -> str:
    """Return the best values of a key."""
    for name in ("compare", "into", "paper", "baseline", "alpha", "dated"):
        if getattr(asked, name) not in (None, False):
            raise RequestError(f"--{name} cannot be combined with --best, which prints one table")
    store = Results(folder)
    runs = list(store)
    name_left_out(store.damaged)
    if not runs:
        raise RequestError(f"{folder} contains no runs; it must be a results_dir of earlier runs")
    return best_text(best_values(runs, asked.best, asked.metric or "accuracy_mean", asked.by or "validation"))
