"""The whole report of a results directory: page, tables, figures, claims, and a row per run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from fedbench.analysis.claims import refuse_bad_checks
from fedbench.analysis.matching import Evidence
from fedbench.core.errors import RequestError
from fedbench.papers.claims import functions
from fedbench.papers.ledger import Ledger, read_ledger
from fedbench.papers.registry import Paper, papers
from fedbench.report.export import claims_csv, claims_markdown, table_csv, table_latex, table_markdown
from fedbench.report.figures import FigureMaker
from fedbench.report.own import own_figures
from fedbench.report.page import page
from fedbench.report.paper_view import PaperReport
from fedbench.report.present import own_view, summary, to_csv, to_latex, to_markdown
from fedbench.report.tables import marks, tabulate
from fedbench.report.views import FigureView, PageView, PaperView, TableView
from fedbench.runs.store import Fields, ResultStore, Run, replace_file

_IDENTITY = ("seed", "hash", "algo", "data", "model", "experiment", "status")


def write_report(folder: Path, into: Path | None = None, only: str | None = None) -> str:
    """Write the report of the runs below a directory, and return what is in its tables and where it is.

    Args:
        folder: of the runs.
        into: where the report goes, without links to its runs, so that it can be moved; None: ``folder/report``.
        only: the id of one paper, whose runs alone are reported.

    Raises:
        RequestError: if there is no run below the folder and no plan in it, or the report cannot be written.
    """
    store, ledger = ResultStore(folder), read_ledger(folder)
    runs = [r for r in store if only is None or str(r.meta["experiment"]).startswith(f"{only}/")]
    left_out = "".join(f"\nleft out: {why}" for why in store.damaged)
    if not runs and not ledger.entries:
        raise RequestError(f"{folder} holds no runs; give a directory that `fedbench` wrote results to{left_out}")
    target = into or folder / "report"
    try:
        shown = _papers(runs, ledger if only is None else Ledger(), folder, target, links=into is None)
        own = _write_own(runs, target / "tables", target if into is None else None)
        figures = _own_figures(runs, target / "figures")
        _write_papers(shown, target)
        view = PageView(
            "fedbench report", tuple(shown), tuple(own), tuple(figures), _environment(runs), tuple(store.damaged)
        )
        replace_file(target / "index.html", page(view))
        part = target / "runs.parquet.part"
        pd.DataFrame([_flat(r, folder) for r in runs]).to_parquet(part, index=False)
        part.replace(target / "runs.parquet")
    except OSError as error:
        raise RequestError(f"{target} cannot be written: {error}") from error
    text = summary([r for r in runs if not _of_a_paper(r)])
    return "\n".join(t for t in (text, *(_in_short(v) for v in shown), left_out, f"written: {target}") if t)


def _papers(runs: Sequence[Run], ledger: Ledger, folder: Path, target: Path, links: bool) -> list[PaperView]:
    evidence, shown = Evidence(runs), []
    planned = {e.experiment.split("/")[0] for e in ledger.entries}
    begun = planned | {str(r.meta["experiment"]).split("/")[0] for r in runs}
    for paper in papers().values():
        if paper.id in begun:
            refuse_bad_checks(paper, functions(paper.id))
            figures = FigureMaker(paper, evidence, folder, target / "figures").all()
            page = target if links else None
            shown.append(PaperReport(paper, evidence, ledger, folder, page).view(figures))
    return shown


def _of_a_paper(run: Run) -> bool:
    return str(run.meta["experiment"]) in _experiments(tuple(papers().values()))


def _experiments(known: tuple[Paper, ...]) -> set[str]:
    return {s.experiment for p in known for s in p.setups.values()}


def _write_own(runs: Sequence[Run], folder: Path, page: Path | None) -> list[TableView]:
    """Write a table per experiment or data set, and return those that belong to no paper for the page."""
    folder.mkdir(parents=True, exist_ok=True)
    views = []
    for table in tabulate(runs):
        name = table.name.replace("/", "_")
        for ending, content in (("md", to_markdown(table)), ("csv", to_csv(table)), ("tex", to_latex(table))):
            replace_file(folder / f"{name}.{ending}", content)
        if table.name not in _experiments(tuple(papers().values())):
            views.append(own_view(table, page))
    return views


def _own_figures(runs: Sequence[Run], folder: Path) -> list[FigureView]:
    named: dict[str, list[Run]] = {}
    for run in runs:
        if not _of_a_paper(run):
            named.setdefault(run.meta["experiment"] or run.meta["data"], []).append(run)
    return [view for name, members in sorted(named.items()) for view in own_figures(name, members, folder)]


def _write_papers(shown: Sequence[PaperView], target: Path) -> None:
    folder = target / "tables"
    for paper in shown:
        for table in paper.tables:
            base = folder / table.name.replace("/", "_")
            for ending, content in (
                ("md", table_markdown(table)),
                ("csv", table_csv(table)),
                ("tex", table_latex(table)),
            ):
                replace_file(base.with_suffix(f".{ending}"), content)
        replace_file(folder / f"{paper.id}_claims.md", claims_markdown(paper.claims, paper.title))
        replace_file(folder / f"{paper.id}_claims.csv", claims_csv(paper.claims))


def _in_short(view: PaperView) -> str:
    claims = Counter(c.verdict for c in view.claims)
    cells = Counter(c.verdict for t in view.tables for b in t.blocks for line in b.lines for c in line.cells)
    words = ", ".join(
        f"{claims[k]} {k}" for k in ("holds", "fails", "undecided", "not run", "not testable") if claims[k]
    )
    if without := sum(c.basis != "runs" for c in view.claims):
        words += f" ({without} of them without runs)"
    numbers = ", ".join(f"{cells[k]} {k}" for k in ("inside", "outside", "single", "impossible", "missing") if cells[k])
    lines = [line for t in view.tables for b in t.blocks for line in b.lines]
    rows = f"{sum(bool(line.reduced) for line in lines)} of {len(lines)} rows reduced"
    return f"{view.title}: claims: {words}; cells: {numbers}; {rows}"


def _environment(runs: Sequence[Run]) -> tuple[tuple[str, str], ...]:
    """Return versions, devices and commits that the runs were made with, each value with how many runs have it."""
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


def _flat(run: Run, folder: Path) -> Fields:
    facts = {k: run.meta.get(k) for k in _IDENTITY}
    facts["reduced"] = "; ".join(marks(run))
    measured = run.last_round() if run.done else {}
    return {"path": str(run.path.relative_to(folder)), **facts, **measured}
