"""Pages as self-contained HTML files, rendered from templates in ``assets`` and analysis values."""

import base64
import hashlib
import os
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from markupsafe import Markup

from fedbench.analysis import table_model
from fedbench.analysis.table_model import Line, TableData
from fedbench.papers.readings import ADOPTED
from fedbench.reports import claim_texts, filters, table_pages
from fedbench.reports.charts import dumbbells, library
from fedbench.reports.paper import PaperReport, all_papers
from fedbench.reports.plots import DrawnFigure
from fedbench.reports.templates import ASSETS, ENVIRONMENT
from fedbench.reports.text_table import Table

PAGE = "index.html"


@dataclass(frozen=True)
class Chapter:
    """A chapter of the page that is not about papers or runs, such as a comparison.

    Attributes:
        title: Heading.
        lead: Line below the heading.
        tables: Tables of the chapter.
        figures: Figures of the chapter.
        facts: Facts about the whole chapter, as (name, value).
        notes: Notes below the tables.
    """

    title: str
    lead: str = ""
    tables: tuple[Table, ...] = ()
    figures: tuple[DrawnFigure, ...] = ()
    facts: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Content:
    """The content of a report.

    Attributes:
        title: Title of the page: methods and data, or papers.
        papers: Reports about papers that have runs or were requested by name.
        tables: Tables of runs that match no row of a paper.
        figures: Figures of runs that belong to no paper.
        environment: Versions, devices and commits, each with the number of runs per value.
        notes: Notes about the whole page.
        chapters: Further chapters, shown first.
        methods: Sentences on the settings of runs that belong to no paper.
    """

    title: str
    papers: tuple[PaperReport, ...] = ()
    tables: tuple[TableData, ...] = ()
    figures: tuple[DrawnFigure, ...] = ()
    environment: dict[str, dict[str, int]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    chapters: tuple[Chapter, ...] = ()
    methods: tuple[str, ...] = ()

    @property
    def every_table(self) -> list[TableData]:
        """The tables of the papers, followed by those of other runs."""
        return [*(table for report in self.papers for table in report.tables), *self.tables]

    @property
    def every_figure(self) -> list[DrawnFigure]:
        """The figures of the papers, of other runs, and of further chapters."""
        figures = list(self.figures)
        for report in self.papers:
            figures += report.figures
        for chapter in self.chapters:
            figures += chapter.figures
        return figures


# modules whose functions the templates call, as in ``claim_texts.counts_text(verdict)``
ENVIRONMENT.globals |= {
    "ADOPTED": ADOPTED,
    "charts_of": dumbbells,
    "claim_texts": claim_texts,
    "table_model": table_model,
    "table_pages": table_pages,
}
ENVIRONMENT.tests["reduced"] = table_pages.is_reduced


def page(content: Content, place: Path | None = None) -> str:
    """Return the page of a report as one HTML document.

    Args:
        content: The content.
        place: Directory of the page, to which links to runs are relative; None for no links.
    """
    summaries = [report.summary for report in content.papers]
    return render_page(
        "page.html",
        **vars(content),
        lines=[line for table in content.every_table for line in table.lines],
        total=all_papers(summaries),
        links_to=[(f"#{filters.anchor('paper', summary.id)}", summary) for summary in summaries],
        links=partial(run_links, place=place),
        charts=bool(content.papers) or any(figure.charts for figure in content.every_figure),
    )


def run_links(line: Line, place: Path | None) -> dict[str, str]:
    """Return link texts for a row's runs, by folder of the run or of the report that contains it.

    Args:
        line: The row.
        place: Directory of the page, to which the folders are relative; None for no links.
    """
    links: dict[str, str] = {}
    if place is None:
        return links
    for unit, run in line.matched.runs.items():
        folder = Path(os.path.relpath(run.place, place)).as_posix()
        name = str(unit.seed)
        if run.place != run.path:  # in a published report
            name = "/".join(run.place.parts[-2:])
        links[f"{folder}/"] = name
    return links


def render_page(template: str, charts: bool = False, script: str = "", **values: Any) -> str:
    """Return a page rendered from a template, with style sheet, scripts and security policy.

    Args:
        template: Name of the template.
        charts: Whether the page has interactive charts, which need a library of 0.9 MB.
        script: Name of another script in ``assets``, which may fetch from the page's server.
        values: Values for the template.
    """
    css = (ASSETS / "page.css").read_text(encoding="utf-8")
    js = (ASSETS / "page.js").read_text(encoding="utf-8")
    charting = library() if charts else ""
    fetching = (ASSETS / script).read_text(encoding="utf-8") if script else ""
    scripts = " ".join(_hash(text) for text in (js, charting, fetching) if text)
    policy = (
        f"default-src 'none'; style-src {_hash(css)}; script-src {scripts}; "
        "img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    if script:
        policy += "; connect-src 'self'"
    return ENVIRONMENT.get_template(template).render(
        css=Markup(css),
        js=Markup(js),
        library=Markup(charting),
        script=Markup(fetching),
        policy=policy,
        **values,
    )


def _hash(text: str) -> str:
    """Return the source expression that allows a string in a security policy."""
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode('ascii')}'"
