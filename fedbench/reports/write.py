"""The whole report of a results directory: page, tables, figures, claims, and a row per run."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from textwrap import fill

from fedbench.analysis.build_tables import paper_table, run_tables
from fedbench.analysis.claims.judge import judge_readings
from fedbench.analysis.compare import ComparedRuns
from fedbench.analysis.matching import Evidence
from fedbench.analysis.run_rows import kept_of, run_rows
from fedbench.analysis.table_model import TableData
from fedbench.core.atomic_files import move_files, replace_file, replaced_folder, replacing
from fedbench.core.errors import RequestError
from fedbench.papers.registry import home_of
from fedbench.papers.registry import papers as known_papers
from fedbench.papers.schema import Paper
from fedbench.reports.claim_texts import judged
from fedbench.reports.comparison import compared_chapter, compared_files, compared_text
from fedbench.reports.figures import paper_figures, run_figures
from fedbench.reports.filters import coverage_text
from fedbench.reports.manuscript import manuscript_tables
from fedbench.reports.methods import described, environment_of, listed, title_of_runs
from fedbench.reports.page import PAGE, Chapter, Content, page
from fedbench.reports.paper import SUMMARY, PaperReport, Summary, claims_files
from fedbench.reports.summary_table import WIDTH, summary_text
from fedbench.reports.table_pages import table_files
from fedbench.runs.bundle import as_published, write_bundle
from fedbench.runs.results import Results
from fedbench.runs.run import Run

SUMMARY_FILE = "summary.json"
COMPARED = "compared"  # folder of a comparison in a report
_NO_RUNS = "{} contains no runs; it must be a results_dir of earlier runs, such as results"


@dataclass(frozen=True)
class Collected:
    """The values of a report, all but its figures.

    Attributes:
        store: The results directory.
        runs: The runs of the report.
        damaged: Messages about runs that are left out.
        papers: Reports about the papers, without figures.
        tables: Tables of runs that match no row of a paper.
        compared: The comparison of the runs, or None.
    """

    store: Results
    runs: Sequence[Run]
    damaged: list[str]
    papers: list[PaperReport]
    tables: list[TableData]
    compared: ComparedRuns | None


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
    """Write the report of all runs in a directory, and print which runs are left out.

    Args:
        folder: Directory that contains the runs, to which those of published reports of the same
            papers are added (``fedbench.runs.results``), or a report that was published with its
            bundle.
        into: Directory of the report, which then has no links to its runs, can be moved, and has a
            bundle of what it needs of the runs (``fedbench.runs.bundle``); None for
            ``folder/report``.
        only: Id of a paper, to report only its runs; None for all runs.
        papers: Ids of papers that it is about, even if it has no runs of them; the text is then on
            these alone.
        parts: Names of tables and figures, as ``paper/table``, whose numbers and claims are part of
            the text.
        compare: Compares runs of the report, and the text is this comparison; None for none.
        chapters: Further chapters of the page.
        footer: Text at the end of the page.

    Returns:
        Its tables and its path, and messages about runs that are left out, since their files cannot
        be read or have changed.

    Raises:
        RequestError: If the folder has no runs, its bundle is damaged, or ``into`` has a page that
            is none of a report.
        NotWritten: If the report cannot be written.
    """
    if into is not None and (into / PAGE).exists() and not (into / SUMMARY_FILE).exists():
        raise RequestError(
            f"{into / PAGE} is not the page of a report; name another directory with --into"
        )
    collected = _collect(folder, into is not None, only, papers, compare)
    _write(
        collected, folder / "report" if into is None else into, into is not None, chapters, footer
    )
    written = f"written: {(into or folder / 'report') / PAGE}"
    return f"{_summarise(collected, papers, parts)}\n{written}", collected.damaged


def runs_below(folder: Path) -> tuple[list[Run], list[str]]:
    """Return the runs of a directory, and messages about runs that are left out.

    Raises:
        RequestError: If there are none.
    """
    store = Results(folder)
    runs = list(store)
    name_left_out(store.damaged)
    if not runs:
        raise RequestError(_NO_RUNS.format(folder))
    return runs, store.damaged


def name_left_out(damaged: Sequence[str]) -> None:
    """Name on the standard error the runs that are left out, with their reasons."""
    for message in damaged:
        print(f"fedbench: left out: {message}", file=sys.stderr)


# ---- collect


def _collect(
    folder: Path,
    publish: bool,
    only: str | None,
    papers: Sequence[str],
    compare: Callable[[Sequence[Run]], ComparedRuns] | None,
) -> Collected:
    """Return the values of the report of a directory.

    Args:
        folder: The directory.
        publish: Whether the report is to have a bundle of its runs.
        only: Id of a paper, to report only its runs; None for all runs.
        papers: Papers that it is about, even if there are no runs of them.
        compare: Compares the runs, or None.
    """
    begun = [paper for paper in known_papers() if (folder / paper).is_dir()]
    store = Results(folder, [*papers, *begun] if only is None else [only])
    runs = [run for run in store if only in (None, _paper_of(run))]
    damaged = [message for message in store.damaged if only is None or f"{only}/" in message]
    name_left_out(damaged)
    if not runs and not papers:
        raise RequestError(_NO_RUNS.format(folder))
    if publish:
        runs = [as_published(run) for run in runs]
    ids = {*papers, *map(_paper_of, runs)}
    reports = [_paper_report(paper, runs) for id, paper in known_papers().items() if id in ids]
    tables = run_tables(runs, [table for report in reports for table in report.tables])
    compared = None if compare is None else compare(runs)
    return Collected(store, runs, damaged, reports, tables, compared)


def _paper_of(run: Run) -> str | None:
    home = home_of(run.meta["experiment"])
    return None if home is None else home.paper.id


def _paper_report(paper: Paper, runs: Sequence[Run]) -> PaperReport:
    """Return the report about a paper, without figures."""
    evidence = Evidence(paper, runs)
    return PaperReport(
        paper,
        tables=tuple(paper_table(table, evidence) for table in paper.tables.values()),
        figures=(),
        claims=tuple((claim, judge_readings(claim, evidence)) for claim in paper.claims.values()),
        runs=tuple(run for run in runs if _paper_of(run) == paper.id),
    )


# ---- write


def _write(
    collected: Collected, target: Path, publish: bool, chapters: tuple[Chapter, ...], footer: str
) -> None:
    """Write the files of a report.

    Files of an earlier report that this one does not have are removed.

    Args:
        collected: Its values.
        target: Its directory.
        publish: Whether it has a bundle of its runs, and no links to them.
        chapters: Further chapters of the page.
        footer: Text at the end of the page.
    """
    runs = collected.runs
    with replaced_folder(target) as new:
        fresh = new / ".fresh"
        content = _draw(collected, fresh / "figures")
        if collected.compared is not None:
            chapters = (compared_chapter(collected.compared), *chapters)
        for name, text in _texts(collected).items():
            (fresh / name).parent.mkdir(parents=True, exist_ok=True)
            replace_file(fresh / name, text)
        names = move_files(fresh, new, _earlier(new / SUMMARY_FILE))
        summary = Summary(
            tuple(report.summary for report in content.papers), environment_of(runs), tuple(names)
        )
        replace_file(new / SUMMARY_FILE, SUMMARY.dump_json(summary, indent=1) + b"\n")
        content = replace(content, chapters=chapters, footer=footer)
        linked = not publish and collected.store.bundle is None
        replace_file(new / PAGE, page(content, target if linked else None))
        with replacing(new / "runs.parquet") as part:
            run_rows(runs, collected.store.root).to_parquet(part, index=False)
        if publish:  # what is needed to write the report again
            published = {run.path.relative_to(collected.store.root).as_posix(): run for run in runs}
            write_bundle(new, published, kept_of, collected.damaged)


def _draw(collected: Collected, folder: Path) -> Content:
    """Draw the figures of a report into a directory, and return the content of its page."""
    papers = [
        replace(report, figures=tuple(paper_figures(Evidence(report.paper, report.runs), folder)))
        for report in collected.papers
    ]
    tables = collected.tables
    other_runs = [
        run for table in tables for line in table.lines for run in line.matched.runs.values()
    ]
    title = title_of_runs(other_runs)
    if papers:
        title = (
            f"{listed((report.paper.name for report in papers), 'papers')}: printed and measured"
        )
    return Content(
        title,
        papers=tuple(papers),
        tables=tuple(tables),
        figures=tuple(
            figure
            for table in tables
            if table.paper is None
            for figure in run_figures(table, folder)
        ),
        environment=environment_of(collected.runs),
        notes=tuple(collected.damaged),
        methods=tuple(described(other_runs)),
    )


def _texts(collected: Collected) -> dict[str, str]:
    """Return the files of tables, claims and comparisons by name."""
    texts: dict[str, str] = {}
    for table in [
        *(table for report in collected.papers for table in report.tables),
        *collected.tables,
    ]:
        texts |= {f"tables/{name}": text for name, text in table_files(table).items()}
    for report in collected.papers:
        texts |= {f"tables/{name}": text for name, text in claims_files(report).items()}
    if (compared := collected.compared) is not None:
        files = compared_files(compared) | manuscript_tables([compared])
        texts |= {f"{COMPARED}/{name}": text for name, text in files.items()}
    return texts


def _earlier(summary: Path) -> tuple[str, ...]:
    """Return the files that an earlier report has written, which this one replaces.

    There are none if its summary does not name them.
    """
    try:
        return SUMMARY.validate_json(summary.read_bytes()).files
    except (OSError, ValueError):
        return ()


# ---- summarise


def _summarise(collected: Collected, papers: Sequence[str], parts: Sequence[str]) -> str:
    """Return a report as text: its comparison, or its tables and the counts of each paper.

    Args:
        collected: Its values.
        papers: Papers that the text is about; if there are some, it has no other tables.
        parts: Names of tables and figures, as ``paper/table``, whose numbers and claims are part of
            the text.
    """
    if collected.compared is not None:
        return compared_text(collected.compared) + "\n"
    texts = []
    if not papers:
        texts += [summary_text([table]) + "\n" for table in collected.tables if table.paper is None]
    for report in collected.papers:
        texts += _part_texts(report, parts)
    for report in collected.papers:
        summary = report.summary
        text = f"{summary.title}: {coverage_text(summary.coverage)}; {summary.counts.text}"
        texts.append(fill(text, WIDTH) if parts else text)
    return "\n".join(texts)


def _part_texts(report: PaperReport, parts: Sequence[str]) -> list[str]:
    """Return the chosen tables of a paper, and the claims that are tested on them, as text."""
    texts = []
    for table in report.tables:
        blocks = [
            block for block in table.blocks if any(line.matched.every for line in block.lines)
        ]
        if table.name in parts and blocks:
            texts.append(summary_text([replace(table, blocks=tuple(blocks))]) + "\n")
    ids = [part.partition("/")[2] for part in parts if part.startswith(f"{report.paper.id}/")]
    for claim, readings in report.claims:
        if not any(f"'{id}'" in repr(claim.check) for id in ids):
            continue
        counted = judged(claim, readings)
        verdict = counted.word
        if counted.scaled:
            verdict += f", scaled-down check: {counted.scaled}"
        if counted.counts:
            verdict += f" ({counted.counts})"
        texts.append(fill(f"- {verdict}: {claim.text}", WIDTH, subsequent_indent="  "))
    return [*texts, ""] if texts else []
