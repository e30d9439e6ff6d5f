"""Pages as self-contained HTML files: templates in ``assets`` read the values of the analysis."""

from __future__ import annotations

import base64
import hashlib
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from fedbench.analysis.departures import departure_texts
from fedbench.analysis.settings import keys_text
from fedbench.analysis.table import Coverage, Line, TableData, splits
from fedbench.papers.readings import ADOPTED
from fedbench.report import claims_text, format, tables
from fedbench.report.paper import PaperReport
from fedbench.report.plots import DrawnFigure
from fedbench.report.table import Table
from fedbench.report.tables import further_columns, is_reduced, main_columns, measured, twin_of

_ASSETS = Path(__file__).parent / "assets"
_PANEL = 3.3  # inches
Values = dict[str, Any]  # by the names that a template uses


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
        title: Title of the page.
        papers: Papers that have runs or a plan.
        tables: Tables of runs that match no row of a paper.
        figures: Figures of runs that belong to no paper.
        environment: Versions, devices and commits, as (name, value).
        notes: Notes about the whole page.
        chapters: Further chapters, shown first.
        footer: Text at the end of the page.
    """

    title: str = "fedbench report"
    papers: tuple[PaperReport, ...] = ()
    tables: tuple[TableData, ...] = ()
    figures: tuple[DrawnFigure, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()
    chapters: tuple[Chapter, ...] = ()
    footer: str = ""


class _Anchors:
    """Ids made from names: readable, stable and unique."""

    def __init__(self, *taken: str) -> None:
        self._taken = set(taken)

    def __call__(self, *words: str) -> str:
        base = re.sub(r"[^a-z0-9]+", "-", " ".join(words).lower()).strip("-") or "part"
        name, count = base, 1
        while name in self._taken:
            count += 1
            name = f"{base}-{count}"
        self._taken.add(name)
        return name


def page(content: Content, place: Path | None = None) -> str:
    """Return the page of a report as one HTML document.

    Args:
        content: What it shows.
        place: Directory of the page, from which it links to the runs; None for no links.
    """
    ids = _Anchors("main", "summary", "others", "environment", "notes", "legend")
    papers = [_paper(p, ids) for p in content.papers]
    others = [_table(t, ids) for t in content.tables]
    return render(
        "page.html",
        title=content.title,
        content=content,
        papers=papers,
        tables=others,
        chapters=[_chapter(c, ids) for c in content.chapters],
        figures=[(ids("figure", f.name), f) for f in content.figures],
        rows=sum(t["rows"] for t in [*others, *(t for p in papers for t in p["tables"])]),
        judged=[c for p in papers for c in p["judged"]],
        coverage=sum((p["coverage"] for p in papers), Coverage()),
        links=lambda line: [] if place is None else run_links(line, place),
    )


def _paper(report: PaperReport, ids: _Anchors) -> Values:
    """Return a paper with the ids of its parts."""
    chapter = ids("paper", report.paper.id)
    return {
        "id": chapter,
        "paper": report.paper,
        "title": report.paper.name,
        "claims": [(ids(chapter, "claim", claim.id), claim, found) for claim, found in report.claims],
        "tables": [_table(t, ids) for t in report.tables],
        "figures": [(ids("figure", f.name), f) for f in report.figures],
        "judged": report.judged,
        "coverage": report.coverage,
    }


def _chapter(chapter: Chapter, ids: _Anchors) -> Values:
    """Return a further chapter with the ids of its parts."""
    name = ids("chapter", chapter.title)
    return {
        "id": name,
        "chapter": chapter,
        "tables": [(ids(name, t.title), t) for t in chapter.tables],
        "figures": [(ids("figure", f.name), f) for f in chapter.figures],
    }


def _table(table: TableData, ids: _Anchors) -> Values:
    """Return a table with its id and layout: where each column starts, and whether a paper has numbers in it."""
    lines = table.lines
    settings = any(line.keys for line in lines)
    columns: list[Values] = []
    width = 3 if settings else 2  # number of cells of a row
    for i in main_columns(table):
        with_paper = any(line.cells[i].printed for line in lines)
        twin = twin_of(table, i) if with_paper else None
        if twin is not None and all(_text(table, line, twin) == _text(table, line, i) for line in lines):
            twin = None  # clients of one size, or no runs
        weightings = ("weighted", "unweighted")[:: 1 if table.columns[i].name.endswith("_weighted") else -1]
        best = {b: tables.best_lines(table, block, i) for b, block in enumerate(table.blocks)}
        column = {"place": i, "column": table.columns[i], "label": table.columns[i].metric.label, "best": best}
        columns.append(column | {"with_paper": with_paper, "start": width, "twin": twin, "weightings": weightings})
        width += 1 + 2 * with_paper + (twin is not None)
    cells = [line.cells[c["place"]] for line in lines for c in columns]
    return {
        "id": ids("table", table.name),
        "table": table,
        "title": tables.title_of(table),
        "columns": columns,
        "further": further_columns(table),
        "settings": settings,
        "width": width,
        "agreement": [cell.agreement for cell in cells],
        "printed": sum(cell.printed is not None for cell in cells),
        "measured": sum(cell.printed is not None and cell.mean is not None for cell in cells),
        "rows": len(lines),
        "reduced": sum(map(is_reduced, lines)),
    }


def _text(table: TableData, line: Line, place: int) -> str:
    return measured(line.cells[place], table.columns[place])


def differs(columns: Sequence[Values], line: Line) -> bool:
    """Whether a number of a row differs from the paper's."""
    return any(line.cells[c["place"]].agreement in ("outside", "impossible") for c in columns)


def reasons(columns: Sequence[Values], line: Line) -> dict[str, list[str]]:
    """Return why numbers of a row are impossible, with the labels of their columns."""
    found: dict[str, list[str]] = {}
    for column in columns:
        cell = line.cells[column["place"]]
        if cell.agreement == "impossible":
            found.setdefault(str(cell.impossible), []).append(column["label"])
    return found


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


def bar_parts(shares: Iterable[tuple[str, int]], total: int) -> list[tuple[str, str, str]]:
    """Return counts of a total, each with its tone, as a stacked bar of width 100: tone, start and width of each."""
    bars: list[tuple[str, str, str]] = []
    start = 0.0
    for tone, count in shares:
        width = 100 * count / max(1, total)
        bars += [(tone, f"{start:.3f}", f"{width:.3f}")] if count else []
        start += width
    return bars


def claim_anchor(paper: str, claim: str) -> str:
    """Return the id of a claim on the page of its paper."""
    ids = _Anchors()
    return ids(ids("paper", paper), "claim", claim)


def render(template: str, **values: Any) -> str:
    """Return a page from a template of ``assets``, with style sheet, script and security policy."""
    css, js = ((_ASSETS / f"page.{kind}").read_text(encoding="utf-8") for kind in ("css", "js"))
    style, script = (base64.b64encode(hashlib.sha256(t.encode()).digest()).decode("ascii") for t in (css, js))
    policy = (
        f"default-src 'none'; style-src 'sha256-{style}'; script-src 'sha256-{script}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    return _environment().get_template(template).render(css=Markup(css), js=Markup(js), policy=policy, **values)


@cache
def _environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(_ASSETS),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters: Mapping[str, Any] = {
        "bar_parts": bar_parts,
        "departures": departure_texts,
        "href": href,
        "image": image,
        "panels": panels,
        "run_name": run_name,
        "typed": keys_text,
        "unbroken": unbroken,
    }
    made.filters.update(filters)
    made.tests["reduced"] = is_reduced
    made.globals.update(differs=differs, badge_of=format.badge_of, claims=claims_text, format=format, numbers=tables)
    made.globals.update(ADOPTED=ADOPTED, splits=splits, reasons=reasons, zip=zip)
    return made
