"""Pages as self-contained HTML files: templates in ``assets`` read the values of the analysis."""

from __future__ import annotations

import base64
import hashlib
import os
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape
from markupsafe import Markup

from fedbench.analysis.table_model import Line, TableData, coverage, splits
from fedbench.core.config_values import config_value, keys_text
from fedbench.papers.readings import ADOPTED
from fedbench.reports import format, paper, table_pages
from fedbench.reports.paper import PaperReport, all_papers
from fedbench.reports.plots import DrawnFigure
from fedbench.reports.text_table import Table

PAGE = "index.html"
_PANEL = 3.3  # inches


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
    """What a report shows.

    Attributes:
        title: Title of the page: what was run.
        papers: Papers that have runs or a plan.
        tables: Tables of runs that match no row of a paper.
        figures: Figures of runs that belong to no paper.
        environment: Versions, devices and commits, as (name, value).
        notes: Notes about the whole page.
        chapters: Further chapters, shown first.
        footer: Text at the end of the page.
        methods: How runs outside of papers were made, as sentences.
    """

    title: str
    papers: tuple[PaperReport, ...] = ()
    tables: tuple[TableData, ...] = ()
    figures: tuple[DrawnFigure, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()
    chapters: tuple[Chapter, ...] = ()
    footer: str = ""
    methods: tuple[str, ...] = ()


def anchor(*words: str) -> str:
    """Return the id of a part of a page: the same for the same words."""
    return re.sub(r"[^a-z0-9]+", "-", " ".join(words).lower()).strip("-") or "part"


def page(content: Content, place: Path | None = None) -> str:
    """Return the page of a report as one HTML document.

    Args:
        content: What it shows.
        place: Directory of the page, from which it links to the runs; None for no links.
    """
    summaries = [report.summary for report in content.papers]
    tables = [*(table for report in content.papers for table in report.tables), *content.tables]
    return render(
        "page.html",
        content=content,
        **vars(content),
        lines=[line for table in tables for line in table.lines],
        total=all_papers(summaries),
        links_to=[(f"#{anchor('paper', summary.id)}", summary) for summary in summaries],
        links=lambda line: [] if place is None else run_links(line, place),
    )


def run_links(line: Line, place: Path) -> list[str]:
    """Return the folders of a row's runs, or of the reports that they are part of, relative to the page's directory."""
    runs = line.found.runs.values()
    return list(dict.fromkeys(Path(os.path.relpath(run.place, place)).as_posix() + "/" for run in runs))


def href(path: str) -> str:
    """Return a path as an href that can only point to a file relative to the page."""
    safe = quote(path, safe="/%=,+@()~!;$*&'")  # no scheme, no fragment, no backslash; existing quotes stay
    return f"./{safe}" if safe.startswith("//") else safe


def unbroken(number: str) -> str:
    """Return a mean with its spread such that a line break is possible between them, but not after the ± sign."""
    return number.replace("± ", "±\N{NO-BREAK SPACE}")


def run_name(path: str) -> str:
    """Return the seed in the name of a run's folder, else the end of its path: ``published/<paper>`` of a report."""
    seeds: list[str] = re.findall(r"seed[_=](\d+)", path)
    return seeds[-1] if seeds else "/".join(path.rstrip("/").split("/")[-2:]) or path


def image(svg: str) -> str:
    """Return an SVG file as a data URI: as an image it cannot run scripts, and its ids cannot clash with others."""
    return "data:image/svg+xml;base64," + base64.b64encode(svg.encode()).decode("ascii")


def panels(svg: str) -> int:
    """Return how many panels lie next to one another in a picture, from 1 to 3, by its width."""
    found = re.search(r'<svg[^>]*?\swidth="([\d.]+)(pt)?"', svg)
    inches = float(found[1]) / (72 if found[2] else 96) if found else _PANEL
    return max(1, min(3, round(inches / _PANEL)))


def render(template: str, **values: Any) -> str:
    """Return a page from a template of ``assets``, with style sheet, script and security policy."""
    css, js = ((format.ASSETS / f"page.{kind}").read_text(encoding="utf-8") for kind in ("css", "js"))
    style, script = (base64.b64encode(hashlib.sha256(t.encode()).digest()).decode("ascii") for t in (css, js))
    policy = (
        f"default-src 'none'; style-src 'sha256-{style}'; script-src 'sha256-{script}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    return _environment().get_template(template).render(css=Markup(css), js=Markup(js), policy=policy, **values)


def render_text(template: str, **values: Any) -> str:
    """Return a text from a template of ``assets``, with a line break at its end."""
    return _environment().get_template(template).render(values) + "\n"


@cache
def _environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(format.ASSETS),
        autoescape=select_autoescape(["html"]),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "anchor": anchor, "href": href, "image": image, "panels": panels, "run_name": run_name, "typed": keys_text,
        "unbroken": unbroken, "value": lambda value: " ".join(config_value(value).split()),
    }  # fmt: skip
    made.tests["reduced"] = table_pages.is_reduced
    made.globals |= {"claims": paper, "format": format, "numbers": table_pages, "badges": format.BADGES, "zip": zip}
    made.globals |= {"ADOPTED": ADOPTED, "coverage": coverage, "splits": splits}
    return made
