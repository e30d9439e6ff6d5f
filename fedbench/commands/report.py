"""``fedbench report``: write a report or a front page of published reports, or print a table."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from fedbench.analysis.build_tables import summary_tables
from fedbench.analysis.compare import compare as compare_runs
from fedbench.commands.result import CommandResult
from fedbench.core.errors import RequestError
from fedbench.core.files import existing_directory, user_path
from fedbench.core.validation import choice
from fedbench.papers.registry import papers
from fedbench.reports.manuscript import METRICS, write_manuscript
from fedbench.reports.overview import is_collection, write_overview
from fedbench.reports.page import PAGE
from fedbench.reports.summary_table import summary_text
from fedbench.reports.write import runs_below, selected, write_report
from fedbench.runs.bundle import is_bundle


def report(
    folder: str | Path = "results",
    *,
    into: str | Path | None = None,
    paper: str | None = None,
    compare: str | None = None,
    latex: bool = False,
    metric: str | None = None,
    baseline: str | None = None,
    alpha: float | None = None,
    where: Sequence[str] = (),
) -> CommandResult:
    """Write a report, a manuscript or a front page, or print one table, like ``fedbench report``.

    Args:
        folder: Directory of runs, a published report, or a directory of published reports.
        into: Directory in which the report is published.
        paper: The only paper whose runs are reported.
        compare: Key whose values are compared by tests, such as ``"algo"``.
        latex: Whether to write the files of a manuscript.
        metric: The metric. Manuscripts and tables accept several, separated by commas.
        baseline: The value with which all others are compared. If None, all pairs are compared.
        alpha: Significance level of the tests.
        where: Filters ``KEY=VALUE``; only runs with these values are reported.

    Returns:
        The result. Its ``page`` is the report, or ``main.tex`` for a manuscript; its ``status`` is
        1 if runs were left out.

    Raises:
        RequestError: If there are no runs or an argument is invalid.
    """
    folder = existing_directory("DIR", folder)
    target = user_path("--into", into) if into else None
    if target and folder.resolve().is_relative_to(target.resolve()) and not is_bundle(target):
        raise RequestError(f"--into {target} contains the runs; it must be another directory")
    if latex and paper:
        raise RequestError("--latex and --paper cannot be combined; type one of them")
    if not (compare or latex) and (baseline is not None or alpha is not None):
        flag = "alpha" if baseline is None else "baseline"
        raise RequestError(f"--{flag} is for --compare or --latex; add that or remove it")
    columns = metric if metric and not (compare or latex) else None
    if columns and (target or paper):
        raise RequestError(
            "--metric alone prints a table and writes no report; remove --into and --paper"
        )

    page: Path | None = None
    left_out: Sequence[str] = ()
    test = partial(compare_runs, baseline=baseline, alpha=0.05 if alpha is None else alpha)
    if latex:
        runs, left_out = runs_below(folder)
        runs = selected(runs, where)
        metrics = METRICS if metric is None else dict.fromkeys(metric.split(","))
        place = target or folder / "paper"
        comparisons = [test(runs, compare or "algo", name) for name in metrics]
        files = write_manuscript(runs, place, comparisons)
        text = "\n".join(f"written: {place / name}" for name in files)
        page = place / files[0]
    elif columns:
        runs, left_out = runs_below(folder)
        text = summary_text(summary_tables(selected(runs, where)), columns.split(","))
    elif not (target or paper or compare or where) and is_collection(folder):
        text = write_overview(folder)
        page = folder / PAGE
    else:
        if paper is not None:
            choice("--paper", paper, papers())
        comparison = None
        if compare:
            comparison = partial(test, key=compare, metric=metric or "accuracy_mean")
        text, left_out = write_report(folder, target, paper, compare=comparison, where=where)
        page = (target or folder / "report") / PAGE
    print(text)
    return CommandResult(1 if left_out else 0, page)


execute = report
