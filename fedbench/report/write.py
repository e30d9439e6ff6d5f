"""The whole report of a results directory: page, tables, figures, claims, and a row per run."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

import pandas as pd

from fedbench.analysis.claims.judge import refuse_bad_checks
from fedbench.analysis.compare import ComparedRuns
from fedbench.analysis.kept_rounds import kept_of
from fedbench.analysis.matching import Evidence
from fedbench.analysis.run_rows import run_rows
from fedbench.analysis.tables import TableData, paper_table, run_tables
from fedbench.core.errors import RequestError
from fedbench.core.files import NotWritten, replace_file, replaced_folder, replacing
from fedbench.papers.ledger import PLAN, Ledger, read_ledger
from fedbench.papers.registry import LABELS, home_of, papers
from fedbench.papers.schema import Paper
from fedbench.report.compared_chapter import compared_chapter
from fedbench.report.compared_files import write_compared
from fedbench.report.drawing import Drawing
from fedbench.report.export import (
    claims_csv,
    claims_markdown,
    comparisons_csv,
    readings_csv,
    table_csv,
    table_latex,
    table_markdown,
)
from fedbench.report.figures import FigureMaker, run_figures
from fedbench.report.page import page
from fedbench.report.present import as_text, paper_view, view
from fedbench.report.stale import earlier_runs, file_name, remove_stale
from fedbench.report.views import ChapterView, PageView, PaperView, TableView, claim_tally
from fedbench.report.words import claims_text, coverage_text
from fedbench.runs.bundle import as_published, is_bundle, write_bundle
from fedbench.runs.results import PUBLISHED, Results
from fedbench.runs.run import Run

More = Callable[[Sequence[Run], Path], None]


@dataclass(frozen=True)
class Extras:
    """What a report has besides tables, figures and claims.

    Attributes:
        also: Writes more files into the directory of the report.
        compare: Compares runs of the report; None for no comparison.
        chapters: Further chapters of the page.
        footer: Text at the end of the page.
    """

    also: More | None = None
    compare: Callable[[Sequence[Run]], ComparedRuns] | None = None
    chapters: tuple[ChapterView, ...] = ()
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
        RequestError: If the folder has neither runs nor a plan, its bundle is damaged, or the report cannot be written.
    """
    store = Results(folder, _begun_in(folder) if only is None else [only])
    ledger = Ledger() if only is not None else read_ledger(store.place)
    if into is not None and store.bundle is None and into.resolve() == folder.resolve():
        raise RequestError(f"--into {into} contains the runs; it must be another directory")
    runs = [r for r in store if only is None or only == _paper_of(r.meta["experiment"])]
    damaged = [why for why in store.damaged if only is None or _concerns(why, only)]
    target = into or folder / "report"

    def work(runs: list[Run], damaged: list[str]) -> tuple[str, list[PaperView]]:
        if not runs and not ledger.entries:
            raise RequestError("\n".join([_nothing(folder), *(f"left out: {why}" for why in damaged)]))
        return _written(runs, ledger, store, damaged, target, into is not None, extras or Extras())

    try:
        text, shown = work(runs, damaged)
    except NotWritten as error:
        raise RequestError(str(error)) from error
    name_left_out(damaged)
    return "\n".join(t for t in (text, *(_totals(v) for v in shown), f"written: {target}") if t)


def _begun_in(folder: Path) -> list[str]:
    """Return the papers that a results directory has runs or plans of, whose published runs belong to its report."""
    if is_bundle(folder):
        return []
    planned = {_paper_of(entry.experiment) for entry in read_ledger(folder).entries}
    return [paper for paper in papers() if paper in planned or (folder / paper).is_dir()]


def _concerns(why: str, paper: str) -> bool:
    """Return whether a message is about a damaged run of a paper, or about its published report."""
    return paper == _paper_of(experiment_of(why)) or why.startswith(f"{PUBLISHED}/{paper}/")


def name_left_out(damaged: Sequence[str]) -> None:
    """Name on the standard error the runs that are left out, with their reasons."""
    for why in damaged:
        print(f"fedbench: left out: {why}", file=sys.stderr)


def _nothing(folder: Path) -> str:
    return f"{folder} contains no runs; it must be a results_dir of earlier runs, such as results"


def _written(
    runs: Sequence[Run],
    ledger: Ledger,
    store: Results,
    damaged: Sequence[str],
    target: Path,
    publish: bool,
    extras: Extras,
) -> tuple[str, list[PaperView]]:
    """Write the report and return the tables of runs of no paper as text, and the views of the papers.

    Args:
        runs: The runs.
        ledger: The plan.
        store: Where the runs come from.
        damaged: Messages about runs that are left out.
        target: Directory of the report.
        publish: Whether the report gets a bundle and no links to its runs.
        extras: What else the report has.

    Raises:
        DamagedRun: If a run cannot be read; nothing has changed then.
        NotWritten: If a file cannot be written.
    """
    if publish:
        runs = [as_published(run) for run in runs]
    page_at = None if publish or store.bundle is not None else target
    with replaced_folder(target) as new:
        shown, own = _write(runs, ledger, store.place, damaged, new, page_at, extras)
        with replacing(new / "runs.parquet") as part:
            pd.DataFrame(run_rows(runs, store.root)).to_parquet(part, index=False)
        if extras.also is not None:
            extras.also(runs, new)
        if publish:
            _publish(runs, ledger, store, damaged, new)
        return as_text(own), shown


def _publish(runs: Sequence[Run], ledger: Ledger, store: Results, damaged: Sequence[str], into: Path) -> None:
    """Write the bundle from which the report in ``into`` can be written again."""
    experiments = {
        paper.setups[setup].experiment
        for paper in _begun(runs, ledger)
        for figure in paper.figures.values()
        for setup in figure.setups
        if figure.kind == "labels"
    }
    names = [*([PLAN] if ledger.entries else []), *(f"{LABELS}/{e}.json" for e in sorted(experiments))]
    files = {name: (store.place / name).read_bytes() for name in names if (store.place / name).exists()}
    write_bundle(into, {run.path.relative_to(store.root).as_posix(): run for run in runs}, kept_of, damaged, files)


def _write(
    runs: Sequence[Run],
    ledger: Ledger,
    place: Path,
    damaged: Sequence[str],
    target: Path,
    page_at: Path | None,
    extras: Extras,
) -> tuple[list[PaperView], list[TableView]]:
    """Write tables, figures, claims and the page; return the views of the papers, and of tables of runs of no paper.

    Args:
        runs: The runs.
        ledger: The plan.
        place: Directory of the label counts.
        damaged: Messages about runs that are left out.
        target: Directory to write into.
        page_at: Directory of the page once it has its place, from which it links to the runs; None for no links.
        extras: What else the report has.

    Raises:
        NotWritten: If a file cannot be written.
    """
    earlier = earlier_runs(target)
    figures = target / "figures"
    with Drawing(_pictures(runs, ledger)) as drawing:
        chapters, printed, texts = _write_papers(runs, ledger, place, target, page_at, drawing)
        other_tables = run_tables(runs, printed)
        own = [table for table in other_tables if table.paper is None]
        begun = [f for table in own for f in run_figures(table, figures, drawing)]
        views = [view(table, page_at) for table in other_tables]
        _write_tables(other_tables, views, target / "tables")
        compared = None if extras.compare is None else extras.compare(runs)
        write_compared(compared, target)
        others = drawing.finished(begun)
        shown = [replace(chapter, figures=tuple(drawing.finished(chapter.figures))) for chapter in chapters]
    content = PageView(
        title="fedbench report",
        papers=tuple(shown),
        tables=tuple(views),
        figures=tuple(others),
        environment=environment_of(runs),
        notes=tuple(damaged),
        chapters=(*([compared_chapter(compared)] if compared else []), *extras.chapters),
        footer=extras.footer,
    )
    replace_file(target / "index.html", page(content))
    drawn = [f.name for f in (*others, *(f for chapter in shown for f in chapter.figures)) if f.svg]
    tables_written = [t.name for t in (*printed, *other_tables)]
    remove_stale(target, [*texts, *map(file_name, tables_written)], map(file_name, drawn), earlier)
    return shown, [v for v, table in zip(views, other_tables, strict=True) if table.paper is None]


def _pictures(runs: Sequence[Run], ledger: Ledger) -> int:
    """Return about how many pictures a report has."""
    own = {run.meta["data"] for run in runs if _paper_of(run.meta["experiment"]) is None}
    return sum(len(paper.figures) for paper in _begun(runs, ledger)) + 2 * len(own)


def _write_papers(
    runs: Sequence[Run], ledger: Ledger, place: Path, target: Path, page_at: Path | None, drawing: Drawing
) -> tuple[list[PaperView], list[TableData], list[str]]:
    """Write tables and claims of the papers and begin their figures; return their views, tables, and files of text."""
    chapters, printed, texts = [], [], []
    evidence = Evidence(runs)
    for paper in _begun(runs, ledger):
        refuse_bad_checks(paper)
        figures = FigureMaker(paper, evidence, place, target / "figures", drawing).all()
        tables = [paper_table(paper, t, evidence, ledger) for t in paper.tables.values()]
        chapter = paper_view(paper, tables, figures, evidence, page_at)
        _write_tables(tables, chapter.tables, target / "tables")
        texts += _write_claims(chapter, target / "tables")
        chapters.append(chapter)
        printed += tables
    return chapters, printed, texts


def _write_claims(chapter: PaperView, folder: Path) -> list[str]:
    """Write the claims of a paper as text and return the names of the files."""
    files = {
        f"{chapter.id}_claims.md": claims_markdown(chapter.claims, chapter.title),
        f"{chapter.id}_claims.csv": claims_csv(chapter.claims),
        f"{chapter.id}_comparisons.csv": comparisons_csv(chapter.claims),
        f"{chapter.id}_readings.csv": readings_csv(chapter.claims),
    }
    for name, text in files.items():
        replace_file(folder / name, text)
    return list(files)


def _begun(runs: Sequence[Run], ledger: Ledger) -> list[Paper]:
    """Return the papers with runs or a plan."""
    begun = {_paper_of(e.experiment) for e in ledger.entries} | {_paper_of(r.meta["experiment"]) for r in runs}
    return [paper for paper in papers().values() if paper.id in begun]


def _paper_of(experiment: str | None) -> str | None:
    return home.paper.id if (home := home_of(experiment)) else None


def experiment_of(message: str) -> str:
    """Return the experiment of a damaged run, by its path ``<experiment>/<algo>/<hash>/seed_<s>`` in the message."""
    return "/".join(PurePosixPath(message.partition(": ")[0]).parts[:-3][-2:])


def _write_tables(tables: Sequence[TableData], views: Sequence[TableView], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for table, shown in zip(tables, views, strict=True):
        base = folder / file_name(table.name)
        replace_file(base.with_name(f"{base.name}.md"), table_markdown(shown))
        replace_file(base.with_name(f"{base.name}.csv"), table_csv(table, shown))
        replace_file(base.with_name(f"{base.name}.tex"), table_latex(shown))


def _totals(view: PaperView) -> str:
    return f"{view.title}: {coverage_text(view.coverage)}; {claims_text(claim_tally(view.claims))}"


def environment_of(runs: Sequence[Run]) -> tuple[tuple[str, str], ...]:
    """Return the versions, devices and commits of the runs, with the number of runs per value if they differ."""
    facts: dict[str, Counter[str]] = {}
    for run in runs:
        meta = run.meta
        named = {**meta.get("versions", {}), "device": meta.get("device_name"), "platform": meta.get("platform")}
        commit = f"{meta.get('git_commit')}{' with changes' if meta.get('git_dirty') else ''}"
        for key, value in {**named, "commit": commit}.items():
            facts.setdefault(key, Counter())[str(value)] += 1
    return tuple(
        (key, "; ".join(v if len(counts) == 1 else f"{v} ({n} runs)" for v, n in sorted(counts.items())))
        for key, counts in facts.items()
    )
