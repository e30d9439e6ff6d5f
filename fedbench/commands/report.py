"""``fedbench report``: the report of a directory of runs, the front page of published reports, or one of its tables."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import fedbench
from fedbench.analysis.best_values import best_values
from fedbench.analysis.compare import ComparedRuns, compare
from fedbench.commands.paper_bundle import unpacked, write_paper_bundle
from fedbench.config.groups import citation
from fedbench.core.errors import RequestError, choice
from fedbench.core.files import NotWritten, user_path
from fedbench.papers.registry import papers
from fedbench.report.comparison import best_text, compared_text
from fedbench.report.manuscript import METRICS, ManuscriptOptions, write_manuscript
from fedbench.report.overview import is_collection, write_overview
from fedbench.report.write import Extras, name_left_out, write_report
from fedbench.runs.results import Results
from fedbench.runs.run import Run

_FLAGS = ("into", "paper", "compare", "latex", "bundle", "best", "by", "metric", "baseline", "dated", "alpha")
_TAKES = {  # what is asked for, and the flags that go with it
    "a manuscript": ("latex", "bundle", "into", "compare", "metric", "baseline", "alpha"),
    "--best": ("best", "by", "metric"),
    "--compare": ("compare", "into", "metric", "baseline", "alpha", "dated"),
    "a directory of published reports": (),
    "a report": ("into", "paper", "dated"),
}


def carry_out(asked: Namespace) -> int:
    """Print tables and where the report was written, or a comparison.

    Raises:
        RequestError: If an argument is wrong.
    """
    folder = user_path("DIR", asked.folder)
    into = user_path("--into", asked.into) if asked.into else None
    if folder.suffix == ".zip" and folder.is_file():
        with unpacked(folder) as place:
            print(_report(place, asked, into or folder.with_suffix("")))
    elif folder.is_dir():
        print(_report(folder, asked, into))
    else:
        raise RequestError(f"{folder} is not a directory; it must be a directory that contains runs, such as results")
    return 0


def _report(folder: Path, asked: Namespace, into: Path | None) -> str:
    """Write what is asked for and return what is printed; ``into`` is None for a directory below ``folder``."""
    if asked.latex or asked.bundle is not None:
        _refuse_others(asked, "a manuscript")
        return _manuscript(folder, asked, into)
    if asked.best is not None:
        _refuse_others(asked, "--best")
        return best_text(
            best_values(_runs(folder), asked.best, asked.metric or "accuracy_mean", asked.by or "validation")
        )
    if asked.compare is not None:
        _refuse_others(asked, "--compare")
        return _compared(folder, asked, into)
    if is_collection(folder):
        _refuse_others(asked, "a directory of published reports")
        return write_overview(folder)
    _refuse_others(asked, "a report")
    if asked.paper is not None:
        choice("--paper", asked.paper, papers())
    return write_report(folder, into, asked.paper, Extras(footer=_footer(asked.dated)))


def _refuse_others(asked: Namespace, mode: str) -> None:
    """Refuse flags that do not go with what is asked for."""
    given = [name for name in _FLAGS if getattr(asked, name) not in (None, False)]
    if others := [f"--{name}" for name in given if name not in _TAKES[mode]]:
        takes = ", ".join(f"--{name}" for name in _TAKES[mode]) or "no flags"
        raise RequestError(f"{' and '.join(others)} cannot be combined with {mode}, which takes {takes}")


def _runs(folder: Path) -> list[Run]:
    """Return the runs of a directory, of which there must be some."""
    store = Results(folder)
    runs = list(store)
    name_left_out(store.damaged)
    if not runs:
        raise RequestError(f"{folder} contains no runs; it must be a results_dir of earlier runs")
    return runs


def _alpha(asked: Namespace) -> float:
    return 0.05 if asked.alpha is None else float(asked.alpha)


def _compared(folder: Path, asked: Namespace, into: Path | None) -> str:
    """Write a report with a comparison, and return the comparison and where the report is."""
    found: list[ComparedRuns] = []

    def work(runs: Sequence[Run]) -> ComparedRuns:
        found.append(compare(runs, asked.compare, asked.metric or "accuracy_mean", asked.baseline, _alpha(asked)))
        return found[-1]

    said = write_report(folder, into, extras=Extras(compare=work, footer=_footer(asked.dated)))
    return "\n".join([compared_text(found[-1]), "", said.splitlines()[-1]])


def _footer(dated: bool) -> str:
    """Return the text at the end of the page: none by default, so that equal runs give equal bytes."""
    return f"Written on {datetime.now(UTC):%Y-%m-%d} by fedbench {fedbench.__version__}" if dated else ""


def _manuscript(folder: Path, asked: Namespace, into: Path | None) -> str:
    """Write what a manuscript takes, or its bundle, and return what was written."""
    metrics = METRICS if asked.metric is None else tuple(dict.fromkeys(asked.metric.split(",")))
    options = ManuscriptOptions(asked.compare or "algo", metrics, asked.baseline, _alpha(asked))
    lines = []
    if asked.latex:
        target = into or folder / "paper"
        try:
            names = write_manuscript(_runs(folder), target, options, citation)
        except NotWritten as error:
            raise RequestError(str(error)) from error
        lines += [f"written: {target / name}" for name in names]
    if asked.bundle is not None:
        file = user_path("--bundle", asked.bundle)
        lines += write_paper_bundle(folder, file, options, citation, asked.config_dir)
    return "\n".join(lines)
