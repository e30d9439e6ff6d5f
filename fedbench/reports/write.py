"""The full report on a results directory: page, tables, figures, claims, and a row per run."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from fedbench.analysis.build_tables import paper_table, run_tables
from fedbench.analysis.compare import ComparedRuns
from fedbench.analysis.matching import Evidence
from fedbench.analysis.planned import PlannedEvidence
from fedbench.analysis.run_rows import kept_of, run_rows
from fedbench.analysis.settings import GROUPS
from fedbench.analysis.table_model import TableData
from fedbench.config.overrides import by_hydra
from fedbench.config.plans import Plan, plans_of
from fedbench.core.atomic_files import move_files, replace_file, replaced_folder, replacing
from fedbench.core.config_values import config_value
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
from fedbench.reports.plots import DrawnFigure
from fedbench.reports.summary_table import summary_text, wrapped
from fedbench.reports.table_pages import table_files
from fedbench.reports.templates import render
from fedbench.runs.bundle import as_published, write_bundle
from fedbench.runs.results import Results
from fedbench.runs.run import Run

SUMMARY_FILE = "summary.json"
_NO_RUNS = "{} contains no runs; it must be a results_dir of earlier runs, such as results"


def write_report(
    folder: Path,
    into: Path | None = None,
    only: str | None = None,
    parts: Sequence[str] = (),
    compare: Callable[[Sequence[Run]], ComparedRuns] | None = None,
    chapters: tuple[Chapter, ...] = (),
    where: Sequence[str] = (),
) -> tuple[str, list[str]]:
    """Write the report on all runs in a directory, and print the runs that are left out.

    Files that only an earlier report contained are removed.

    Args:
        folder: Directory of runs, or a report published with its bundle. The runs of a directory
            are complemented by those of published reports on the same papers
            (``fedbench.runs.results``).
        into: Directory of a report to publish. Such a report has no links to its runs, can be
            moved, and contains a bundle with the parts of the runs that it needs
            (``fedbench.runs.bundle``). If None, the report is written to ``folder/report``.
        only: Id of a paper, to report only its runs. If None, all runs are reported.
        parts: Papers, tables and figures (as ``paper/table``) to report. Their papers are included
            even without runs, and the text covers only these parts.
        compare: Function that compares the runs; the text is then this comparison. None for no
            comparison.
        chapters: Further chapters of the page.
        where: Filters ``KEY=VALUE``; only runs with these values are reported.

    Returns:
        The text with the report's tables and path, and messages about runs that were left out
        because their files cannot be read or have changed.

    Raises:
        RequestError: If the folder contains no runs, its bundle is damaged, or ``into`` contains a
            page that does not belong to a report.
        NotWritten: If the report cannot be written.
    """
    publish = into is not None
    target = into or folder / "report"
    foreign = (target / PAGE).exists() and not (target / SUMMARY_FILE).exists()
    if publish and foreign:
        raise RequestError(
            f"{target / PAGE} is not the page of a report; name another directory with --into"
        )
    papers = list(dict.fromkeys(part.partition("/")[0] for part in parts))
    store, runs, damaged = _collect(folder, only, papers)
    runs = selected(runs, where)
    if publish:
        runs = [as_published(run) for run in runs]
    compared = None if compare is None else compare(runs)
    if compared is not None:
        chapters = (compared_chapter(compared), *chapters)
    content = _content(folder, runs, papers)
    notes = [*(f"Only runs with {text}" for text in where), *damaged]
    content = replace(content, notes=tuple(notes), chapters=chapters)

    with replaced_folder(target) as new:
        content = _write_parts(content, compared, new)
        linked = not publish and store.bundle is None
        replace_file(new / PAGE, page(content, target if linked else None))
        with replacing(new / "runs.parquet") as part:
            run_rows(runs, store.root).to_parquet(part, index=False)
        if publish:  # needed to write the report again
            published = {run.path.relative_to(store.root).as_posix(): run for run in runs}
            write_bundle(new, published, kept_of, damaged)

    text = _text(content, compared, parts)
    return f"{text}\nwritten: {target / PAGE}", damaged


def runs_below(folder: Path) -> tuple[list[Run], list[str]]:
    """Return the runs of a directory, and messages about runs that are left out.

    Raises:
        RequestError: If there are no runs.
    """
    store = Results(folder)
    runs = list(store)
    name_left_out(store.damaged)
    if not runs:
        raise RequestError(_NO_RUNS.format(folder))
    return runs, store.damaged


def selected(runs: Sequence[Run], where: Sequence[str]) -> list[Run]:
    """Return the runs in which all keys of ``where``, texts ``KEY=VALUE``, have their values.

    Raises:
        RequestError: If there are no such runs; the message lists the values of the key.
    """
    for text in where:
        runs = _with_value(runs, text)
    return list(runs)


def _with_value(runs: Sequence[Run], text: str) -> list[Run]:
    """Return the runs in which a key has a given value.

    Args:
        runs: The runs.
        text: The key and its value, ``KEY=VALUE``, or several values, ``KEY=A,B``.

    Raises:
        RequestError: If a value has no runs; the message lists the values of the key.
    """
    key, equals, wanted = text.partition("=")
    if not equals:
        raise RequestError(f"--where takes KEY=VALUE, such as algo=fedavg; got {text}")
    values = [_value(run, key) for run in runs]
    known = {
        value: run.flat.get(key, value)
        for run, value in zip(runs, values, strict=True)
        if value is not None
    }
    if not known:
        raise RequestError(
            f"--where {text}: none of {len(runs)} runs has the key {key}; see their config.yaml"
        )
    chosen = {wanted} & known.keys()
    for part in [] if chosen else wanted.split(","):
        parsed = by_hydra(f"value={part}").value()  # 1e-2 is 0.01
        alike = {value for value in known if value == part or known[value] == parsed}
        if not alike:
            raise RequestError(
                f"--where {text}: no run has {key}={part}; {key} is one of "
                f"{', '.join(sorted(known))}"
            )
        chosen |= alike
    return [run for run, value in zip(runs, values, strict=True) if value in chosen]


def _value(run: Run, key: str) -> str | None:
    """Return the value of a key as typed, or None if the run does not have the key."""
    if key in ("experiment", *GROUPS):
        return str(run.meta.get(key) or "none")
    return config_value(run.flat[key]) if key in run.flat else None


def name_left_out(damaged: Sequence[str]) -> None:
    """Print to standard error the runs that are left out, with the reasons."""
    for message in damaged:
        print(f"fedbench: left out: {message}", file=sys.stderr)


# ---- collect


def _collect(
    folder: Path, only: str | None, papers: Sequence[str]
) -> tuple[Results, list[Run], list[str]]:
    """Return the results of a directory, the runs to report, and messages about omitted runs.

    Args:
        folder: The directory.
        only: Id of a paper, to report only its runs. If None, all runs are reported.
        papers: Papers to report even if they have no runs.
    """
    if only is None:
        begun = [paper for paper in known_papers() if (folder / paper).is_dir()]
        store = Results(folder, [*papers, *begun])
        runs = list(store)
        damaged = store.damaged
    else:
        store = Results(folder, [only])
        runs = [run for run in store if _paper_of(run) == only]
        damaged = [message for message in store.damaged if f"{only}/" in message]
    name_left_out(damaged)
    if not runs and not papers:
        raise RequestError(_NO_RUNS.format(folder))
    return store, runs, damaged


def _paper_of(run: Run) -> str | None:
    home = home_of(run.meta["experiment"])
    return None if home is None else home.paper.id


def _content(
    folder: Path,
    runs: Sequence[Run],
    papers: Sequence[str],
) -> Content:
    """Return the content of the page on runs and papers in a directory, without figures."""
    ids = {*papers, *map(_paper_of, runs)}
    reports = []
    printed: list[TableData] = []
    for id, paper in known_papers().items():
        if id in ids:
            report = _paper_report(paper, runs, plans_of(folder, id))
            reports.append(report)
            printed += report.tables
    shown = [run for run in runs if _paper_of(run) is None]
    for report in reports:
        shown += report.shown
    tables = run_tables(shown, printed)
    other_runs: list[Run] = []
    for table in tables:
        for line in table.lines:
            other_runs += line.matched.runs.values()
    title = title_of_runs(other_runs)
    if reports:
        names = listed((report.paper.name for report in reports), "papers")
        title = f"{names}: printed and measured"
    return Content(
        title,
        papers=tuple(reports),
        tables=tuple(tables),
        environment=environment_of(runs),
        methods=tuple(described(other_runs)),
    )


def _paper_report(
    paper: Paper,
    runs: Sequence[Run],
    plans: Sequence[Plan],
) -> PaperReport:
    """Return the report on a paper, without figures."""
    mine = [run for run in runs if _paper_of(run) == paper.id]
    planned = PlannedEvidence(paper, mine, plans)
    evidence = Evidence(paper, planned.shown)
    tables = [paper_table(table, evidence) for table in paper.tables.values()]
    claims = [(claim, planned.judge(claim)) for claim in paper.claims.values()]
    return PaperReport(
        paper,
        tables=tuple(tables),
        figures=(),
        claims=tuple(claims),
        runs=tuple(mine),
        shown=tuple(planned.shown),
        progress=tuple(planned.progress),
    )


# ---- write


def _write_parts(
    content: Content,
    compared: ComparedRuns | None,
    folder: Path,
) -> Content:
    """Write figures, tables and the summary of a report, and return its content with the figures.

    Args:
        content: The content of the page, without figures.
        compared: The comparison of the runs, or None.
        folder: Directory of the report. The files of an earlier report are replaced.
    """
    fresh = folder / ".fresh"
    content = _draw(content, fresh / "figures")
    for name, text in _texts(content, compared).items():
        (fresh / name).parent.mkdir(parents=True, exist_ok=True)
        replace_file(fresh / name, text)
    summary_file = folder / SUMMARY_FILE
    names = move_files(fresh, folder, _earlier(summary_file))
    summaries = tuple(report.summary for report in content.papers)
    summary = Summary(summaries, tuple(names))
    replace_file(summary_file, SUMMARY.dump_json(summary, indent=1) + b"\n")
    return content


def _draw(content: Content, folder: Path) -> Content:
    """Draw the figures of a report into a directory, and return the content with the figures."""
    papers = []
    for report in content.papers:
        figures = paper_figures(Evidence(report.paper, report.shown), folder)
        papers.append(replace(report, figures=tuple(figures)))
    own: list[DrawnFigure] = []
    for table in content.tables:
        if table.paper is None:
            own += run_figures(table, folder)
    return replace(content, papers=tuple(papers), figures=tuple(own))


def _texts(content: Content, compared: ComparedRuns | None) -> dict[str, str]:
    """Return the files of tables, claims and comparisons by name."""
    tables: dict[str, str] = {}
    for table in content.every_table:
        tables |= table_files(table)
    for report in content.papers:
        tables |= claims_files(report)
    texts = {f"tables/{name}": text for name, text in tables.items()}
    if compared is not None:
        files = compared_files(compared) | manuscript_tables([compared])
        texts |= {f"compared/{name}": text for name, text in files.items()}
    return texts


def _earlier(summary: Path) -> tuple[str, ...]:
    """Return the files that an earlier report wrote and that this one replaces.

    The result is empty if no readable summary lists them.
    """
    try:
        return SUMMARY.validate_json(summary.read_bytes()).files
    except (OSError, ValueError):
        return ()


# ---- summarise


def _text(
    content: Content,
    compared: ComparedRuns | None,
    parts: Sequence[str],
) -> str:
    """Return a report as text: its comparison, or its tables and the counts of each paper.

    Args:
        content: Content of the report.
        compared: The comparison of the runs, or None.
        parts: Papers, tables and figures (as ``paper/table``) to include. If any are given, the
            text has no other tables.
    """
    if compared is not None:
        return compared_text(compared) + "\n"
    texts = []
    for table in content.every_table:
        wanted = table.name in parts if parts else table.paper is None
        blocks = []
        for block in table.blocks:
            if any(line.matched.every for line in block.lines):
                blocks.append(block)
        if wanted and blocks:
            texts.append(summary_text([replace(table, blocks=tuple(blocks))]) + "\n")

    claims = []
    counts = []
    for report in content.papers:
        claims += _claims_on(report, parts)
        summary = report.summary
        text = f"{summary.title}: {coverage_text(summary.coverage)}; {summary.claims_text}"
        counts.append(wrapped(text) if parts else text)
    if claims:
        claims.append("")
    return "\n".join([*texts, *claims, *counts])


def _claims_on(report: PaperReport, parts: Sequence[str]) -> list[str]:
    """Return the claims of a paper that are tested on the given parts, with their verdicts."""
    prefix = f"{report.paper.id}/"
    ids = [part.removeprefix(prefix) for part in parts if part.startswith(prefix)]
    texts = []
    for claim, readings in report.claims:
        check = repr(claim.check)
        if any(f"'{id}'" in check for id in ids):
            text = render(
                "claim.txt",
                claim=claim,
                counted=judged(claim, readings, report.paper),
            )
            texts.append(wrapped(text))
    return texts
