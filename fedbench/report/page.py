"""The report as one self-contained HTML file. The same views give the same bytes."""

from __future__ import annotations

import base64
import hashlib
import math
import re
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from fedbench.analysis.coverage import Coverage
from fedbench.report.canvas import WIDTH
from fedbench.report.views import ChapterView, LineView, PageView, PaperView, TableView, claim_tally, is_reduced, tally
from fedbench.report.words import BASES, CELLS, CLAIMS, claim_mark, claims_text, coverage_text, mark

_ASSETS = Path(__file__).parent / "assets"
Context = dict[str, Any]  # values by the names that the template uses


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


def page(view: PageView) -> str:
    """Return the page as one HTML document.

    Raises:
        ValueError: If a verdict or status is not one of those in ``words``, or a row does not have one cell per column.
    """
    ids = _Anchors("main", "summary", "others", "environment", "notes", "legend")
    papers = [_paper(p, ids) for p in view.papers]
    tables = [_table(t, ids) for t in view.tables]
    of_papers = [t for p in view.papers for t in p.tables]
    chapters = [_chapter(c, ids) for c in view.chapters]
    return environment().get_template("page.html").render(
        title=view.title,
        view=view,
        papers=papers,
        tables=tables,
        chapters=chapters,
        figures=[(ids("figure", f.name), f) for f in view.figures],
        rows=tally([*of_papers, *view.tables]).rows,
        claims=claim_tally(c for p in view.papers for c in p.claims),
        coverage=sum((p.coverage for p in view.papers), Coverage()),
        **assets(),
    )  # fmt: skip


def _paper(view: PaperView, ids: _Anchors) -> Context:
    """Return what the template needs of a paper: its view, and its parts with their ids."""
    for claim in view.claims:
        claim_mark(claim.basis, claim.verdict)  # before they are counted
    chapter = ids("paper", view.id)
    return {
        "id": chapter,
        "view": view,
        "claims": [(ids(chapter, "claim", c.id), c) for c in view.claims],
        "tables": [_table(t, ids) for t in view.tables],
        "figures": [(ids("figure", f.name), f) for f in view.figures],
        "tally": claim_tally(view.claims),
        "coverage": view.coverage,
    }


def _chapter(view: ChapterView, ids: _Anchors) -> Context:
    """Return what the template needs of a further chapter: its view, and its parts with their ids."""
    if any(len(row) != len(grid.columns) for grid in view.grids for row in grid.rows):
        raise ValueError(f"{view.title}: a row does not have one cell for each column")
    chapter = ids("chapter", view.title)
    return {
        "id": chapter,
        "view": view,
        "grids": [(ids(chapter, g.title), g) for g in view.grids],
        "figures": [(ids("figure", f.name), f) for f in view.figures],
    }


def _table(view: TableView, ids: _Anchors) -> Context:
    """Return what the template needs of a table: its view, and per column whether a paper has numbers in it."""
    lines = [line for block in view.blocks for line in block.lines]
    if any(len(line.cells) != len(view.columns) for line in lines):
        raise ValueError(f"{view.name}: a row does not have one cell for each of the {len(view.columns)} columns")
    settings = any(line.settings for line in lines)
    columns: list[Context] = []
    width = 3 if settings else 2  # number of cells of a row
    for i, label in enumerate(view.columns):
        with_paper = any(line.cells[i].paper or line.cells[i].difference for line in lines)
        twin = view.twins[i] if view.twins and with_paper else None
        if twin is not None and all(line.further[twin.further] == line.cells[i].measured for line in lines):
            twin = None  # clients of one size, or no runs
        columns.append({"label": label, "with_paper": with_paper, "start": width, "twin": twin})
        width += 1 + 2 * with_paper + (twin is not None)
    return {
        "id": ids("table", view.name),
        "view": view,
        "columns": columns,
        "settings": settings,
        "width": width,
        "tally": tally([view]),
    }


def differs(line: LineView) -> bool:
    """Return whether a number of the row differs from the paper's."""
    return any(cell.verdict in ("outside", "impossible") for cell in line.cells)


def has_notes(line: LineView) -> bool:
    """Return whether a measured number of the row has a note."""
    return any(cell.note and cell.measured for cell in line.cells)


def reasons(columns: Sequence[Context], line: LineView) -> list[tuple[str, str]]:
    """Return why numbers of a row are impossible, with their columns; columns whose notes end alike share one entry.

    If the entry applies to the whole row, its columns are not named.
    """
    found = [
        (c["label"], cell.note) for c, cell in zip(columns, line.cells, strict=True) if cell.verdict == "impossible"
    ]
    sentences = [note.split(". ") for _, note in found]
    shared: list[str] = []
    while len(found) > 1 and all(sentences) and len({s[-1] for s in sentences}) == 1:
        shared.insert(0, sentences[0][-1])
        sentences = [s[:-1] for s in sentences]
    if not any(shared):
        return found
    labels = ", ".join(label for label, _ in found) if len(found) < len(columns) else ""
    return [(labels, ". ".join(shared))]


def href(path: str) -> str:
    """Return a path as an href that can only point to a file relative to the page."""
    safe = quote(path, safe="/%=,+@()~!;$*&'")  # no scheme, no fragment, no backslash; existing quotes stay
    return f"./{safe}" if safe.startswith("//") else safe


def spread(number: str) -> str:
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
    inches = float(found[1]) / (72 if found[2] else 96) if found else WIDTH
    return max(1, min(3, round(inches / WIDTH)))


def cover_parts(coverage: Coverage) -> list[tuple[str, str, str]]:
    """Return the coverage as a stacked bar of width 100: tone, start and width of each part."""
    return bar_parts((("full", coverage.full), ("warn", coverage.reduced)), coverage.total)


def bar_parts(shares: Iterable[tuple[str, int]], total: int) -> list[tuple[str, str, str]]:
    """Return counts of a total, each with its tone, as a stacked bar of width 100: tone, start and width of each."""
    bars: list[tuple[str, str, str]] = []
    start = 0.0
    for tone, count in shares:
        width = 100 * count / max(1, total)
        bars += [(tone, f"{start:.3f}", f"{width:.3f}")] if count else []
        start += width
    return bars


def _policy(css: str, js: str) -> str:
    """Return a content security policy that allows only this style, this script and images from data URIs."""
    style, script = (base64.b64encode(hashlib.sha256(t.encode()).digest()).decode("ascii") for t in (css, js))
    rest = "img-src data:; base-uri 'none'; form-action 'none'"
    return f"default-src 'none'; style-src 'sha256-{style}'; script-src 'sha256-{script}'; {rest}"


def claim_anchor(paper: str, claim: str) -> str:
    """Return the id of a claim on the page of its paper."""
    ids = _Anchors()
    return ids(ids("paper", paper), "claim", claim)


def assets(more: str = "") -> Context:
    """Return style sheet, script and security policy of a page, by the names that the templates use.

    Args:
        more: Name of a style sheet that it has in addition to that of all pages; empty for none.
    """
    css, js = _asset("page.css") + (_asset(more) if more else ""), _asset("page.js")
    return {"css": Markup(css), "js": Markup(js), "policy": _policy(css, js)}


def _asset(name: str) -> str:
    return (_ASSETS / name).read_text(encoding="utf-8")


@cache
def environment() -> Environment:
    """Return the environment of the templates."""
    made = Environment(
        loader=FileSystemLoader(_ASSETS),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(
        spread=spread,
        href=href,
        run_name=run_name,
        image=image,
        panels=panels,
        cover_parts=cover_parts,
        bar_parts=bar_parts,
    )
    made.tests.update(reduced=is_reduced, differing=differs, noted=has_notes)
    made.globals.update(mark=mark, claim_mark=claim_mark, claims_text=claims_text, coverage_text=coverage_text)
    made.globals.update(reasons=reasons, zip=zip, inf=math.inf, BASES=BASES, CELLS=CELLS, CLAIMS=CLAIMS)
    return made
