"""Pages as self-contained HTML files: templates in ``assets`` read the values of the analysis."""

import base64
import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from markupsafe import Markup

from fedbench.analysis.table_model import Line, TableData, coverage
from fedbench.papers.readings import ADOPTED
from fedbench.reports import claim_texts, filters, table_pages
from fedbench.reports.paper import PaperReport, all_papers
from fedbench.reports.plots import DrawnFigure
from fedbench.reports.templates import ASSETS, ENVIRONMENT
from fedbench.reports.text_table import Table

PAGE = "index.html"


@dataclass(frozen=True)
class Chapter:
    """A chapter of the page besides papers and runs, such as a comparison.

    Attributes:
        title: Heading.
        lead: Line below the heading.
        tables: Its tables.
        figures: Its figures.
        facts: Facts that hold for the whole chapter, as (name, value).
    """

    title: str
    lead: str = ""
    tables: tuple[Table, ...] = ()
    figures: tuple[DrawnFigure, ...] = ()
    facts: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Content:
    """The content of a report.

    Attributes:
        title: Title of the page: methods and data, or papers.
        papers: Papers that have runs or a plan.
        tables: Tables of runs that match no row of a paper.
        figures: Figures of runs that belong to no paper.
        environment: Versions, devices and commits, each with the number of runs per value.
        notes: Notes about the whole page.
        chapters: Further chapters, shown first.
        footer: Text at the end of the page.
        methods: How runs outside of papers were made, as sentences.
    """

    title: str
    papers: tuple[PaperReport, ...] = ()
    tables: tuple[TableData, ...] = ()
    figures: tuple[DrawnFigure, ...] = ()
    environment: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    chapters: tuple[Chapter, ...] = ()
    footer: str = ""
    methods: tuple[str, ...] = ()


_FUNCTIONS = (  # that pages call by their names
    coverage,
    filters.coverage_text,
    filters.p_text,
    claim_texts.axes_of,
    claim_texts.blocks_text,
    claim_texts.choice_text,
    claim_texts.counts_text,
    claim_texts.interval_text,
    claim_texts.judged,
    claim_texts.lead_text,
    claim_texts.needs_text,
    claim_texts.pairs_text,
    claim_texts.reason_text,
    claim_texts.reductions_text,
    claim_texts.scaled_word,
    claim_texts.state_of,
    table_pages.agreements,
    table_pages.basis_text,
    table_pages.best_columns,
    table_pages.command_text,
    table_pages.difference_text,
    table_pages.differs,
    table_pages.further_columns,
    table_pages.impossible_columns,
    table_pages.main_columns,
    table_pages.measured_text,
    table_pages.notes_of,
    table_pages.printed_text,
    table_pages.row_note,
    table_pages.values_text,
)
ENVIRONMENT.tests["reduced"] = table_pages.is_reduced
ENVIRONMENT.globals |= {function.__name__: function for function in _FUNCTIONS}
ENVIRONMENT.globals |= {
    "ADOPTED": ADOPTED,
    "AXIS_WORDS": claim_texts.AXIS_WORDS,
    "OWN_CAPTION": table_pages.OWN_CAPTION,
    "SCALED": claim_texts.SCALED,
}


def page(content: Content, place: Path | None = None) -> str:
    """Return the page of a report as one HTML document.

    Args:
        content: The content.
        place: Directory of the page, from which it links to the runs; None for no links.
    """
    summaries = [report.summary for report in content.papers]
    tables = [*(table for report in content.papers for table in report.tables), *content.tables]
    return render_page(
        "page.html",
        **vars(content),
        lines=[line for table in tables for line in table.lines],
        total=all_papers(summaries),
        links_to=[(f"#{filters.anchor('paper', summary.id)}", summary) for summary in summaries],
        links=lambda line: {} if place is None else run_links(line, place),
    )


def run_links(line: Line, place: Path) -> dict[str, str]:
    """Return the folders of a row's runs, or of the reports with these runs, and their names.

    Args:
        line: The row.
        place: Directory of the page, to which the folders are relative.
    """
    links = {}
    for unit, run in line.matched.runs.items():
        folder = Path(os.path.relpath(run.place, place)).as_posix()
        links[f"{folder}/"] = (
            str(unit.seed) if run.place == run.path else "/".join(run.place.parts[-2:])
        )
    return links


def render_page(template: str, **values: Any) -> str:
    """Return a page from a template, with style sheet, script and security policy."""
    css = (ASSETS / "page.css").read_text(encoding="utf-8")
    js = (ASSETS / "page.js").read_text(encoding="utf-8")
    policy = (
        f"default-src 'none'; style-src {_hash(css)}; script-src {_hash(js)}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    return ENVIRONMENT.get_template(template).render(
        css=Markup(css), js=Markup(js), policy=policy, **values
    )


def _hash(text: str) -> str:
    """Return the source of a security policy that allows a text."""
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode('ascii')}'"
