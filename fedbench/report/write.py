"""The whole report of a results directory: page, tables, figures, claims, and a row per run."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import pandas as pd

from fedbench.analysis.claims.judge import refuse_bad_checks
from fedbench.analysis.claims.multiverse import multiverse
from fedbench.analysis.compare import ComparedRuns
from fedbench.analysis.kept_rounds import kept_of
from fedbench.analysis.matching import Evidence
from fedbench.analysis.run_rows import run_rows
from fedbench.analysis.table import TableData
from fedbench.analysis.tables import paper_table, run_tables
from fedbench.core.errors import RequestError
from fedbench.core.files import NotWritten, replace_file, replaced_folder, replacing
from fedbench.papers.registry import LABELS, home_of
from fedbench.papers.registry import papers as known_papers
from fedbench.papers.schema import Paper
from fedbench.report.comparison import (
    compared_tables,
    compared_text,
    difference_tables,
    lead_of,
    loose_ends,
    means_table,
)
from fedbench.report.figures import paper_figures, run_figures
from fedbench.report.format import coverage_text, environment_items, environment_of
from fedbench.report.manuscript import manuscript_tables
from fedbench.report.page import Chapter, Content, page
from fedbench.report.paper import (
    SUMMARY,
    PaperReport,
    Summary,
    claims_csv,
    claims_markdown,
    comparisons_csv,
    readings_csv,
)
from fedbench.report.table import csv_text, table_rows
from fedbench.report.tables import table_csv, table_latex, table_markdown
from fedbench.runs.bundle import as_published, is_bundle, write_bundle
from fedbench.runs.results import PUBLISHED, Results
from fedbench.runs.run import Run

SUMMARY_FILE = "summary.json"
COMPARED = "compared"  # folder of a comparison in a report
_GENERATED = ("tables", "figures", COMPARED)  # folders of a report, whose earlier files are removed


@dataclass(frozen=True)
class Extras:
    """What a report has besides tables, figures and claims.

    Attributes:
        papers: Papers that it is about, even if it has no runs of them.
        also: Writes more files into the directory of the report.
        compare: Compares runs of the report; None for no comparison.
        chapters: Further chapters of the page.
        footer: Text at the end of the page.
    """

    papers: tuple[str, ...] = ()
    also: Callable[[Sequence[Run], Path], None] | None = None
    compare: Callable[[Sequence[Run]], ComparedRuns] | None = None
    chapters: tuple[Chapter, ...] = ()
    footer: str = ""


def write_report(folder: Path, into: Path | None = None, only: str | None = None, extras: Extras | None = None) -> str:
    """Write the report of all runs in a directory and return its tables and location as text.

    Args:
        folder: Directory that contains the runs, to which those of published reports of the same papers are added
            (``fedbench.runs.results``), or a report that was published with its bundle.
        into: Directory of the report, which then has no links to its runs, can be moved, and has a bundle of what it
            needs of the runs (``fedbench.runs.bundle``); None for ``folder/report``.
        only: Id of a paper, to report only its runs; None for all runs.
        extras: What else the report has.

    Raises:
        RequestError: If the folder has no runs, its bundle is damaged, or the report cannot be written.
    """
    more = extras or Extras()
    store = Results(folder, [*more.papers, *_begun_in(folder)] if only is None else [only])
    if into is not None and store.bundle is None and into.resolve() == folder.resolve():
        raise RequestError(f"--into {into} contains the runs; it must be another directory")
    runs = [r for r in store if only is None or only == _paper_of(r.meta["experiment"])]
    damaged = [why for why in store.damaged if only is None or _concerns(why, only)]
    if not runs and not more.papers:
        text = f"{folder} contains no runs; it must be a results_dir of earlier runs, such as results"
        raise RequestError("\n".join([text, *(f"left out: {why}" for why in damaged)]))
    target = into or folder / "report"
    linked = into is None and store.bundle is None
    try:
        with replaced_folder(target) as new:
            if into is not None:
                runs = [as_published(run) for run in runs]
            content = _write(runs, store.place, damaged, new, more)
            replace_file(new / "index.html", page(content, target if linked else None))
            with replacing(new / "runs.parquet") as part:
                pd.DataFrame(run_rows(runs, store.root)).to_parquet(part, index=False)
            if more.also is not None:
                more.also(runs, new)
            if into is not None:
                _write_bundle(runs, store, damaged, new)
    except NotWritten as error:
        raise RequestError(str(error)) from error
    name_left_out(damaged)
    own = [table_markdown(table) for table in content.tables if table.paper is None]
    summaries = [report.summary for report in content.papers]
    totals = [f"{s.title}: {coverage_text(s.coverage)}; {s.states.text}" for s in summaries]
    return "\n".join([*own, *totals, f"written: {target}"])


def _begun_in(folder: Path) -> list[str]:
    """Return the papers that a results directory has runs of, whose published runs belong to its report."""
    if is_bundle(folder):
        return []
    return [paper for paper in known_papers() if (folder / paper).is_dir()]


def _concerns(why: str, paper: str) -> bool:
    """Return whether a message is about a damaged run of a paper, or about its published report."""
    return paper == _paper_of(experiment_of(why)) or why.startswith(f"{PUBLISHED}/{paper}/")


def experiment_of(message: str) -> str:
    """Return the experiment of a damaged run, by its path ``<experiment>/<algo>/<hash>/seed_<s>`` in the message."""
    return "/".join(PurePosixPath(message.partition(": ")[0]).parts[:-3][-2:])


def name_left_out(damaged: Sequence[str]) -> None:
    """Name on the standard error the runs that are left out, with their reasons."""
    for why in damaged:
        print(f"fedbench: left out: {why}", file=sys.stderr)


def _paper_of(experiment: str | None) -> str | None:
    return home.paper.id if (home := home_of(experiment)) else None


def _begun(runs: Sequence[Run], named: Sequence[str] = ()) -> list[Paper]:
    """Return the papers with runs, and those that are named."""
    begun = {*named, *(_paper_of(r.meta["experiment"]) for r in runs)}
    return [paper for paper in known_papers().values() if paper.id in begun]


def _write(runs: Sequence[Run], place: Path, damaged: Sequence[str], new: Path, extras: Extras) -> Content:
    """Write tables, figures, claims and summary of a report, and return what its page shows.

    Args:
        runs: The runs.
        place: Directory of the label counts.
        damaged: Messages about runs that are left out.
        new: Directory to write into.
        extras: What else the report has.
    """
    for part in _GENERATED:
        shutil.rmtree(new / part, ignore_errors=True)
    evidence, reports = Evidence(runs), []
    for paper in _begun(runs, extras.papers):
        refuse_bad_checks(paper)
        tables = tuple(paper_table(paper, t, evidence) for t in paper.tables.values())
        figures = tuple(paper_figures(paper, evidence, place, new / "figures"))
        claims = tuple((claim, multiverse(paper, claim, evidence)) for claim in paper.claims)
        mine = tuple(run for run in runs if _paper_of(run.meta["experiment"]) == paper.id)
        reports.append(PaperReport(paper, tables, figures, claims, mine))
        _write_claims(reports[-1], new / "tables")
    printed = [table for report in reports for table in report.tables]
    others = run_tables(runs, printed)
    _write_tables([*printed, *others], new / "tables")
    compared = None if extras.compare is None else extras.compare(runs)
    if compared is not None:
        _write_compared(compared, new / COMPARED)
    summary = Summary(tuple(report.summary for report in reports), environment_of(runs))
    replace_file(new / SUMMARY_FILE, SUMMARY.dump_json(summary, indent=1) + b"\n")
    return Content(
        papers=tuple(reports),
        tables=tuple(others),
        figures=tuple(f for table in others if table.paper is None for f in run_figures(table, new / "figures")),
        environment=environment_items(environment_of(runs)),
        notes=tuple(damaged),
        chapters=(*([_compared_chapter(compared)] if compared else []), *extras.chapters),
        footer=extras.footer,
    )


def _write_tables(tables: Sequence[TableData], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for table in tables:
        name = table.name.replace("/", "_")
        replace_file(folder / f"{name}.md", table_markdown(table))
        replace_file(folder / f"{name}.csv", table_csv(table))
        replace_file(folder / f"{name}.tex", table_latex(table))


def _write_claims(report: PaperReport, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    replace_file(folder / f"{report.paper.id}_claims.md", claims_markdown(report))
    replace_file(folder / f"{report.paper.id}_claims.csv", claims_csv(report))
    replace_file(folder / f"{report.paper.id}_comparisons.csv", comparisons_csv(report))
    replace_file(folder / f"{report.paper.id}_readings.csv", readings_csv(report))


def _write_compared(compared: ComparedRuns, folder: Path) -> None:
    folder.mkdir()
    replace_file(folder / "compared.md", compared_text(compared) + "\n")
    means = [means_table(compared, block) for block in compared.blocks]
    differences = [table for block in compared.blocks for table in difference_tables(compared, block)]
    replace_file(folder / "means.csv", csv_text(table_rows(means)))
    replace_file(folder / "differences.csv", csv_text(table_rows(differences)))
    for name, text in manuscript_tables([compared]).items():
        replace_file(folder / f"{name}.tex", text)


def _compared_chapter(compared: ComparedRuns) -> Chapter:
    notes = tuple(("note", text) for text in loose_ends(compared))
    return Chapter("Comparison", lead_of(compared), tuple(compared_tables(compared)), facts=notes)


def _write_bundle(runs: Sequence[Run], store: Results, damaged: Sequence[str], into: Path) -> None:
    """Write the bundle from which the report in ``into`` can be written again."""
    experiments = {
        paper.setups[setup].experiment
        for paper in _begun(runs)
        for figure in paper.figures.values()
        for setup in figure.setups
        if figure.kind == "labels"
    }
    names = [f"{LABELS}/{e}.json" for e in sorted(experiments)]
    files = {name: (store.place / name).read_bytes() for name in names if (store.place / name).exists()}
    write_bundle(into, {run.path.relative_to(store.root).as_posix(): run for run in runs}, kept_of, damaged, files)
