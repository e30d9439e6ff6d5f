"""The whole report of a results directory: page, tables, figures, claims, and a row per run."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from textwrap import fill

import pandas as pd

from fedbench.analysis.build_tables import paper_table, run_tables
from fedbench.analysis.claims.judge import judge_readings
from fedbench.analysis.compare import ComparedRuns
from fedbench.analysis.matching import Evidence
from fedbench.analysis.run_rows import kept_of, run_rows
from fedbench.core.atomic_files import move_files, replace_file, replaced_folder, replacing
from fedbench.core.errors import RequestError
from fedbench.papers.registry import LABELS, home_of
from fedbench.papers.registry import papers as known_papers
from fedbench.papers.schema import Paper
from fedbench.reports.comparison import compared_chapter, compared_files, compared_text
from fedbench.reports.figures import paper_figures, run_figures
from fedbench.reports.format import coverage_text, environment_items, environment_of
from fedbench.reports.manuscript import manuscript_tables
from fedbench.reports.methods import described, listed, printed_names, title_of_runs
from fedbench.reports.page import PAGE, Chapter, Content, page
from fedbench.reports.paper import SUMMARY, PaperReport, Summary, claims_files, judged
from fedbench.reports.summary_table import WIDTH, summary_text
from fedbench.reports.table_pages import table_files
from fedbench.runs.bundle import as_published, is_bundle, write_bundle
from fedbench.runs.results import Results
from fedbench.runs.run import Run

SUMMARY_FILE = "summary.json"
COMPARED = "compared"  # folder of a comparison in a report


def write_report(
    folder: Path,
    into: Path | None = None,
    only: str | None = None,
    papers: Sequence[str] = (),
    parts: Sequence[str] = (),
    compare: Callable[[Sequence[Run]], ComparedRuns] | None = None,
    chapters: tuple[Chapter, ...] = (),
    footer: str = "",
) -> tuple[str, list[str]]:
    """Write the report of all runs in a directory, and name the runs that are left out on the standard error.

    Args:
        folder: Directory that contains the runs, to which those of published reports of the same papers are added
            (``fedbench.runs.results``), or a report that was published with its bundle.
        into: Directory of the report, which then has no links to its runs, can be moved, and has a bundle of what it
            needs of the runs (``fedbench.runs.bundle``); None for ``folder/report``.
        only: Id of a paper, to report only its runs; None for all runs.
        papers: Ids of papers that it is about, even if it has no runs of them; the text is then on these alone.
        parts: Names of tables and figures, as ``paper/table``, whose numbers and claims are part of the text.
        compare: Compares runs of the report, and the text is this comparison; None for none.
        chapters: Further chapters of the page.
        footer: Text at the end of the page.

    Returns:
        Its tables and where it is, and messages about runs that are left out, since their files cannot be read or have
        changed.

    Raises:
        RequestError: If the folder has no runs, its bundle is damaged, or ``into`` has a page that is none of a report.
        NotWritten: If the report cannot be written.
    """
    if into is not None and (into / PAGE).exists() and not (into / SUMMARY_FILE).exists():
        raise RequestError(f"{into / PAGE} is not the page of a report; name another directory with --into")
    store = Results(folder, [*papers, *_begun_in(folder)] if only is None else [only])
    runs = [r for r in store if only is None or only == _paper_of(r.meta["experiment"])]
    damaged = [why for why in store.damaged if only is None or f"{only}/" in why]
    if not runs and not papers:
        text = f"{folder} contains no runs; it must be a results_dir of earlier runs, such as results"
        raise RequestError("\n".join([text, *(f"left out: {why}" for why in damaged)]))
    target = into or folder / "report"
    linked = into is None and store.bundle is None
    with replaced_folder(target) as new:
        if into is not None:
            runs = [as_published(run) for run in runs]
        fresh = new / ".fresh"
        content = _write(runs, papers, store.place, fresh)
        if (compared := None if compare is None else compare(runs)) is not None:
            chapters = (compared_chapter(compared), *chapters)
            (fresh / COMPARED).mkdir()
            latex = manuscript_tables([compared], printed_names(runs))
            for name, text in (compared_files(compared) | latex).items():
                replace_file(fresh / COMPARED / name, text)
        names = move_files(fresh, new, _earlier(new / SUMMARY_FILE))
        summary = Summary(tuple(r.summary for r in content.papers), environment_of(runs), tuple(names))
        replace_file(new / SUMMARY_FILE, SUMMARY.dump_json(summary, indent=1) + b"\n")
        content = replace(content, notes=tuple(damaged), chapters=chapters, footer=footer)
        replace_file(new / PAGE, page(content, target if linked else None))
        with replacing(new / "runs.parquet") as part:
            pd.DataFrame(run_rows(runs, store.root)).to_parquet(part, index=False)
        if into is not None:
            _write_bundle(runs, store, damaged, new)
    name_left_out(damaged)
    written = f"written: {target / PAGE}"
    if compared is not None:
        return f"{compared_text(compared)}\n\n{written}", damaged
    own = [summary_text([table]) + "\n" for table in content.tables if table.paper is None and not papers]
    own += [text for report in content.papers for text in _of_paper(report, parts)]
    summaries = [report.summary for report in content.papers]
    totals = [f"{s.title}: {coverage_text(s.coverage)}; {s.counts.text}" for s in summaries]
    totals = [fill(text, WIDTH) for text in totals] if parts else totals
    return "\n".join([*own, *totals, written]), damaged


def _of_paper(report: PaperReport, parts: Sequence[str]) -> list[str]:
    """Return tables of a paper as text, their setups that have runs, and the claims that are tested on chosen parts."""
    ids = [part.partition("/")[2] for part in parts if part.startswith(f"{report.paper.id}/")]
    tables = [replace(t, blocks=tuple(b for b in t.blocks if any(line.found.every for line in b.lines)))
              for t in report.tables if t.name in parts]  # fmt: skip
    said = [summary_text([table]) + "\n" for table in tables if table.blocks]
    for claim, found in report.claims:
        if any(f"'{id}'" in repr(claim.check) for id in ids):
            one = judged(claim, found)
            word = f"{one.word}, scaled-down check: {one.scaled}" if one.scaled else one.word
            counts = f" ({one.counts})" if one.counts else ""
            said.append(fill(f"- {word}{counts}: {claim.text}", WIDTH, subsequent_indent="  "))
    return [*said, *([""] * bool(said))]


def _begun_in(folder: Path) -> list[str]:
    """Return the papers that a results directory has runs of, whose published runs belong to its report."""
    if is_bundle(folder):
        return []
    return [paper for paper in known_papers() if (folder / paper).is_dir()]


def runs_below(folder: Path) -> tuple[list[Run], list[str]]:
    """Return the runs of a directory, and messages about runs that are left out, which are also printed.

    Raises:
        RequestError: If there are none.
    """
    store = Results(folder)
    runs = list(store)
    name_left_out(store.damaged)
    if not runs:
        raise RequestError(f"{folder} contains no runs; it must be a results_dir of earlier runs, such as results")
    return runs, store.damaged


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


def _write(runs: Sequence[Run], papers: Sequence[str], place: Path, new: Path) -> Content:
    """Write tables, figures and claims of a report, and return what its page shows.

    Args:
        runs: The runs.
        papers: Papers that it is about, even if there are no runs of them.
        place: Directory of the label counts.
        new: Directory to write into, which does not exist.
    """
    (new / "tables").mkdir(parents=True)
    evidence, reports = Evidence(runs), []
    for paper in _begun(runs, papers):
        tables = tuple(paper_table(paper, t, evidence) for t in paper.tables.values())
        figures = tuple(paper_figures(paper, evidence, place, new / "figures"))
        claims = tuple((claim, judge_readings(paper, claim, evidence)) for claim in paper.claims.values())
        mine = tuple(run for run in runs if _paper_of(run.meta["experiment"]) == paper.id)
        reports.append(PaperReport(paper, tables, figures, claims, mine))
    printed = [table for report in reports for table in report.tables]
    others = run_tables(runs, printed)
    for files in [*map(table_files, [*printed, *others]), *map(claims_files, reports)]:
        for name, text in files.items():
            replace_file(new / "tables" / name, text)
    own = [run for table in others for line in table.lines for run in line.found.runs.values()]
    names = [report.paper.name for report in reports]
    return Content(
        f"{listed(names, 'papers')}: printed and measured" if names else title_of_runs(own),
        methods=tuple(described(own)),
        papers=tuple(reports),
        tables=tuple(others),
        figures=tuple(f for table in others if table.paper is None for f in run_figures(table, new / "figures")),
        environment=environment_items(environment_of(runs)),
    )


def _earlier(summary: Path) -> tuple[str, ...]:
    """Return the files that an earlier report has written, which this one replaces; none if it does not name them."""
    try:
        return SUMMARY.validate_json(summary.read_bytes()).files
    except (OSError, ValueError):
        return ()


def _write_bundle(runs: Sequence[Run], store: Results, damaged: Sequence[str], into: Path) -> None:
    """Write the bundle from which the report in ``into`` can be written again."""
    found = [path for paper in _begun(runs) for path in sorted((store.place / LABELS / paper.id).rglob("*.json"))]
    files = {path.relative_to(store.place).as_posix(): path.read_bytes() for path in found}
    write_bundle(into, {run.path.relative_to(store.root).as_posix(): run for run in runs}, kept_of, damaged, files)
