"""The front page of a directory of published reports: ``fedbench report results/published``.

It shows the contents of every report's ``summary.json``.
"""

from pathlib import Path

from fedbench.core.atomic_files import replace_file
from fedbench.core.files import reading
from fedbench.reports.filters import coverage_text
from fedbench.reports.page import PAGE, render_page
from fedbench.reports.paper import SUMMARY, Summary, all_papers
from fedbench.reports.write import SUMMARY_FILE
from fedbench.runs.bundle import is_bundle
from fedbench.runs.run import run_folders


def is_collection(folder: Path) -> bool:
    """Return whether a directory contains published reports with a bundle, but no runs."""
    if is_bundle(folder) or not any(
        is_bundle(child) for child in folder.iterdir() if child.is_dir()
    ):
        return False
    return not run_folders(folder)


def write_overview(folder: Path) -> str:
    """Write the front page of published reports into their directory and return a summary.

    Raises:
        RequestError: If a summary is missing or invalid.
        NotWritten: If the page cannot be written.
    """
    reports = []
    others = []
    for page in sorted(folder.glob(f"*/{PAGE}")):
        place = page.parent
        summary = _read(place)
        mine = [paper for paper in summary.papers if paper.id == place.name]
        reports += mine
        if not mine:
            others.append((place.name, f"{place.name}/{PAGE}"))
    papers = [paper for paper in reports if not paper.benchmark]
    benchmarks = [paper for paper in reports if paper.benchmark]
    total = all_papers(papers)
    html = render_page(
        "front.html",
        title="fedbench: evidence",
        links_to=[(f"{paper.id}/{PAGE}", paper) for paper in papers],
        benchmarks=[(f"{paper.id}/{PAGE}", paper) for paper in benchmarks],
        total=total,
        others=others,
    )
    replace_file(folder / PAGE, html)
    return (
        f"{len(papers)} papers: {coverage_text(total.coverage)}; {total.claims_text}; "
        f"{total.runs} runs, {total.hours:.1f} hours\nwritten: {folder / PAGE}"
    )


def _read(place: Path) -> Summary:
    """Return the summary of a report; an empty one for a page without a summary."""
    file = place / SUMMARY_FILE
    if not file.exists() and not is_bundle(place):
        return Summary()
    with reading(file, remedy=f"write the report again: fedbench report {place} --into {place}"):
        return SUMMARY.validate_json(file.read_bytes())
