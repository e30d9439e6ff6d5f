"""The site is built without a warning, its links lead somewhere, and its pages load no others."""

import os
import subprocess
import sys
from html.parser import HTMLParser
from urllib.parse import unquote, urlsplit

import pytest
from tools import ROOT

pytestmark = pytest.mark.processes

LOADED = {
    ("script", "src"),
    ("img", "src"),
    ("link", "href"),
    ("iframe", "src"),
    ("source", "src"),
}


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
    wrong = []
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            part = unquote(parts.fragment)
            missing = part and target in pages and part not in pages[target].ids
            if missing or not target.is_file():
                wrong.append(f"{path.name}: {link}")
    return sorted(wrong)


LINKS = """<p id="x"><a href="a.html#y">1</a><a href="#x">2</a><a href="b.html">3</a>
<a href="https://e.org/c">4</a><script src="https://e.org/s.js"></script>"""


def test_a_broken_link_is_found(tmp_path):
    (tmp_path / "a.html").touch()
    (tmp_path / "p.html").touch()
    page = Page(LINKS)
    pages = {tmp_path / "p.html": page, tmp_path / "a.html": Page("")}
    assert broken(pages) == ["p.html: a.html#y", "p.html: b.html"]
    assert page.loaded == {"https://e.org/s.js"}


def read(path):
    return Page(path.read_text(encoding="utf-8"))


@pytest.mark.slow
def test_the_site(tmp_path):
    docs = ROOT / "docs"
    site = tmp_path / "site"
    options = ["-q", "-W", "--keep-going", "-d", str(tmp_path / "trees")]
    built = subprocess.run(
        [
            sys.executable,
            "-m",
            "sphinx",
            *options,
            str(docs),
            str(site),
        ],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert built.returncode == 0, built.stderr
    sources = [path for path in docs.rglob("*") if path.suffix in (".md", ".ipynb")]
    written = [site / path.relative_to(docs).with_suffix(".html") for path in sources]
    pages = {path: read(path) for path in written}
    assert broken(pages) == []
    loaded = [url for page in pages.values() for url in page.loaded]
    assert [url for url in loaded if urlsplit(url).netloc] == []
    reports = {path: read(path) for path in (site / "published").rglob("index.html")}
    assert {path.parent.name for path in reports} >= {"published", "known", "adafedadam"}
    assert broken(reports) == []  # among them the links of the front page to claims
    assert not list((site / "published").rglob("evidence"))
