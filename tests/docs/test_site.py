"""The site is built without a warning, its links lead somewhere, and reading it loads nothing from elsewhere."""

import os
import subprocess
import sys
from html.parser import HTMLParser
from urllib.parse import unquote, urlsplit

import pytest
from tools import ROOT

pytestmark = pytest.mark.processes

LOADED = {("script", "src"), ("img", "src"), ("link", "href"), ("iframe", "src"), ("source", "src")}


class Page(HTMLParser):
    """The ids of a page, and what it links to or loads."""

    def __init__(self, text):
        super().__init__()
        self.ids, self.links, self.loaded = set(), set(), set()
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        for key, value in attributes:
            if key == "id":
                self.ids.add(value)
            elif key in ("href", "src"):
                self.links.add(value)
                if (tag, key) in LOADED:
                    self.loaded.add(value)


def broken(pages):
    """Links of pages, by their paths, that lead to no file or to no part of a page."""
    found = []
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            part = unquote(parts.fragment)
            if not target.is_file() or (part and target in pages and part not in pages[target].ids):
                found.append(f"{path.name}: {link}")
    return sorted(found)


def test_a_broken_link_is_found(tmp_path):
    (tmp_path / "a.html").write_text("")
    text = '<p id="x"><a href="a.html#y">1</a><a href="#x">2</a><a href="b.html">3</a><a href="https://e.org/c">4</a>'
    text += '<script src="https://e.org/s.js"></script>'
    (tmp_path / "p.html").write_text(text)
    page = {tmp_path / "p.html": Page(text)}
    assert broken(page) == ["p.html: b.html"]
    assert broken(page | {tmp_path / "a.html": Page("")}) == ["p.html: a.html#y", "p.html: b.html"]
    assert page[tmp_path / "p.html"].loaded == {"https://e.org/s.js"}


@pytest.mark.slow
def test_the_site(tmp_path):
    site = tmp_path / "site"
    command = [
        sys.executable,
        "-m",
        "sphinx",
        "-q",
        "-W",
        "--keep-going",
        "-d",
        str(tmp_path / "trees"),
    ]
    built = subprocess.run(
        [*command, str(ROOT / "docs"), str(site)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert built.returncode == 0, built.stderr
    sources = [p for p in (ROOT / "docs").rglob("*") if p.suffix in (".md", ".ipynb")]
    written = [site / p.relative_to(ROOT / "docs").with_suffix(".html") for p in sources]
    pages = {p: Page(p.read_text(encoding="utf-8")) for p in written}
    assert broken(pages) == []
    assert [x for page in pages.values() for x in page.loaded if urlsplit(x).netloc] == []
    reports = {
        p: Page(p.read_text(encoding="utf-8")) for p in (site / "published").rglob("index.html")
    }
    assert {p.parent.name for p in reports} >= {"published", "known", "adafedadam"}
    assert broken(reports) == []  # among them the links of the front page to claims
    assert not list((site / "published").rglob("evidence"))
