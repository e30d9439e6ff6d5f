"""The report page as text: its contents, its form, and that nothing in it can break out."""

import base64
import re
from dataclasses import replace
from html.parser import HTMLParser
from itertools import product
from urllib.parse import unquote

import pytest
import yaml
from page_example import HOSTILE, hostile_content, own_content

from fedbench.papers.registry import papers
from fedbench.reports.filters import href
from fedbench.reports.page import Content, page
from fedbench.reports.paper import PaperReport
from fedbench.reports.plots import DrawnFigure
from fedbench.reports.templates import ASSETS, ENVIRONMENT

VOID = set("br col hr img input link meta".split())
EMPTY = Content("Empty")


class Reader(HTMLParser):
    """The tags and the text of a page; end tags match their start tags."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.open = []
        self.tags = []
        self.text = ""
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.handle_startendtag(tag, attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        attributes = dict(attrs)
        assert len(attributes) == len(attrs), (tag, attrs)
        self.tags.append((tag, attributes))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, (
            tag,
            self.open,
            self.getpos(),
        )

    def handle_data(self, data):
        if self.open and self.open[-1] not in ("style", "script"):
            self.text += data

    def values(self, name):
        """The values of an attribute."""
        return [attributes[name] or "" for _, attributes in self.tags if name in attributes]


@pytest.fixture(scope="module")
def shown(mixed):
    """The page of the report that the tests of this folder share."""
    return (mixed.report / "index.html").read_text()


def test_the_page_is_well_formed_and_every_link_within_it_leads_somewhere(shown):
    read = Reader(shown)
    ids = read.values("id")
    assert len(set(ids)) == len(ids)
    links = {link[1:] for link in read.values("href") if link.startswith("#")}
    labels = " ".join(read.values("aria-labelledby")).split()
    assert links.union(labels) <= set(ids)
    assert all(text.strip() for text in read.values("alt"))


def test_every_table_has_as_many_cells_as_columns(shown):
    for table in re.findall(r'<table class="data.*?</table>', shown, re.S):
        width = int(re.search(r'<tr class="more"><td colspan="(\d+)"', table)[1])
        for row in re.findall(r'<tr class="row".*?</tr>', table, re.S):
            assert len(re.findall(r"<t[dh][ >]", row)) == width


def test_empty_parts_leave_no_heading():
    read = Reader(page(EMPTY))
    headings = [tag for tag, _ in read.tags if re.fullmatch(r"h\d", tag)]
    assert headings == ["h1", "h2"]  # the title and the legend
    assert "nothing to show yet" in read.text


def test_a_figure_is_an_image_of_its_own():
    one = DrawnFigure("x/1", "One", svg="<svg/>", alt="a line")
    two = DrawnFigure("x/2", "Two")
    read = Reader(page(replace(EMPTY, figures=(one, two))))
    (image,) = [attributes for tag, attributes in read.tags if tag == "img"]
    svg = base64.b64encode(b"<svg/>").decode()
    assert image["src"] == f"data:image/svg+xml;base64,{svg}"
    assert image["alt"] == "a line"
    assert "nothing to draw yet" in read.text


def test_figures_that_are_not_drawn_are_named():
    report = PaperReport(
        papers()["fedcada"],
        (),
        (DrawnFigure("x/1", "One"),),
        (),
    )
    read = Reader(page(replace(EMPTY, papers=(report,))))
    _, _, named = read.text.partition("Not drawn: ")
    figure = "Figure 2 (Similarity (linear CKA) of the clients' first moments)"
    assert figure in named.partition(".")[0]


def test_hostile_text_stays_text_wherever_it_stands_and_nothing_is_left_out():
    count, content = hostile_content()
    _, harmless = hostile_content("plain {0}")
    read = Reader(page(content))
    plain = Reader(page(harmless))
    assert [(tag, sorted(x)) for tag, x in read.tags] == [
        (
            tag,
            sorted(x),
        )
        for tag, x in plain.tags
    ]
    images = [base64.b64decode(x.partition(",")[2]).decode() for x in read.values("src")]
    seen = "".join(
        [
            read.text,
            *read.values("alt"),
            *read.values("title"),
            *images,
        ]
    )
    assert [number for number in range(count) if HOSTILE.format(number) not in seen] == []


@pytest.mark.parametrize(
    "path",
    [
        "javascript:alert(1)",
        "java\nscript:x",
        "//host/x",
        "\\\\host\\x",
        "/\t/host",
        "https://host/x",
        "data:text/html,x",
    ],
)
def test_a_run_leads_to_a_file_and_nowhere_else(path):
    link = href(path)
    assert not re.match(r"[a-z]+:|//|/[\t\\]", link, re.I)
    assert not set(link) & set(':\\\n\t"<> ')
    assert unquote(link).removeprefix("./") == path


def test_paths_are_quoted_once():
    assert href("../a/b=1,c=2/seed_0/") == "../a/b=1,c=2/seed_0/"
    assert href("../a%20b/ü") == "../a%20b/%C3%BC"


def luminance(colour):
    """The relative luminance of a colour by WCAG 2."""
    parts = [
        int(
            colour[i : i + 2],
            16,
        )
        / 255
        for i in (1, 3, 5)
    ]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize(
    "theme",
    [0, 1],
    ids=["light", "dark"],
)
def test_the_colours_of_both_themes_can_be_read(theme):
    """WCAG AA for every pair of text and ground that the style sheet makes."""
    css = (ASSETS / "page.css").read_text()
    values = re.findall(r"--([\w-]+): light-dark\((#\w+), (#\w+)\)", css)
    colours = {name: luminance(both[theme]) for name, *both in values}
    texts = ("ink", "soft", "link", "good", "bad", "warn", "odd", "faint")
    pairs = [*product(texts, ("ground", "sheet", "hover"))]
    pairs += [(tone, f"{tone}-wash") for tone in ("good", "bad", "warn", "odd")]
    pairs += [("soft", "mute-wash"), ("ground", "ink")]
    for pair in pairs:
        dark, light = sorted(colours[name] for name in pair)
        assert (light + 0.05) / (dark + 0.05) >= 4.5, pair


def test_a_page_without_papers_has_no_word_of_them(tmp_path):
    read = Reader(page(own_content(tmp_path)))
    assert not re.findall(r"\b(?:paper|claim|printed|inside|verdict)", read.text, re.I)
    assert set(read.values("data-filter")) <= {"all"}


# values of data.seed, and the words
SPLITS = """
- [["null"], every seed draws its own data split]
- [["0"], all seeds share one data split (data.seed=0)]
- [["0", "null"], "data splits: data.seed=0, null"]
- [[], ""]
"""


@pytest.mark.parametrize(("seeds", "words"), yaml.safe_load(SPLITS))
def test_a_setup_says_whether_seeds_share_a_split(seeds, words):
    template = (ASSETS / "page.html").read_text()
    (macro,) = re.findall(r"{%- macro splits_text.*?endmacro -%}", template, re.S)
    text = ENVIRONMENT.from_string(macro + "{{ splits_text(seeds) }}").render(seeds=seeds)
    assert text.strip() == words
