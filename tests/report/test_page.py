"""The report page as text: what is on it, that it is well formed and that nothing in it can break out."""

import base64
import re
from dataclasses import replace
from html.parser import HTMLParser
from itertools import product
from urllib.parse import unquote

import pytest
from fake_runs import fake
from page_example import HOSTILE, hostile_content, own_content

from fedbench.papers.registry import papers
from fedbench.reports.filters import href
from fedbench.reports.page import Chapter, Content, page
from fedbench.reports.paper import PaperReport
from fedbench.reports.plots import DrawnFigure
from fedbench.reports.templates import ASSETS, ENVIRONMENT
from fedbench.reports.text_table import Cell, table_of

_VOID = {"br", "col", "hr", "img", "input", "link", "meta", "path", "rect", "use", "circle"}
EMPTY = Content("Empty")


class Reader(HTMLParser):
    """Collects what a browser would see, and holds tags against one another."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        assert len({name for name, _ in attrs}) == len(attrs), (tag, attrs)
        if tag not in _VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        assert tag in _VOID
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, (tag, self.open, self.getpos())

    def handle_data(self, data):
        if self.open and self.open[-1] not in ("style", "script"):
            self.words.append(data)

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", "".join(self.words))

    def values(self, name: str) -> list[str]:
        return [attrs[name] or "" for _, attrs in self.tags if name in attrs]


@pytest.fixture(scope="module")
def shown(mixed):
    """The page of the report that the tests of this folder share."""
    return (mixed.report / "index.html").read_text()


def test_the_page_is_well_formed_and_every_link_within_it_leads_somewhere(shown):
    read = Reader(shown)
    ids = read.values("id")
    assert len(set(ids)) == len(ids)
    assert {link[1:] for link in read.values("href") if link.startswith("#")} <= set(ids)
    named = {name for names in read.values("aria-labelledby") for name in names.split()}
    assert named <= set(ids)
    assert {text.strip() for text in read.values("alt")} > {""} - {""}


def test_every_table_has_as_many_cells_as_columns(shown):
    for table in re.findall(r'<table class="data.*?</table>', shown, re.S):
        width = int(re.search(r'<tr class="more"><td colspan="(\d+)"', table)[1])
        for row in re.findall(r'<tr class="row".*?</tr>', table, re.S):
            assert len(re.findall(r"<t[dh][ >]", row)) == width


def test_what_a_claim_shows(shown):
    """Verdict, counts, readings with the adopted one marked, and comparisons with their p-values."""
    claims = re.findall(
        r'<li id="[^"]*" class="claim">.*?(?=<li id="[^"]*" class="claim">|</ol>)', shown, re.S
    )
    assert len(claims) > 30
    assert all("badge" in c for c in claims)
    assert any("(adopted)" in c for c in claims)
    assert any("p adjusted" in c for c in claims)
    proofs = [c for c in claims if "shown by a test of the code" in c]
    assert proofs
    assert all('class="badge proof"' in c for c in proofs)


def test_readings_of_a_paper_carry_their_reasons(shown):
    (section,) = re.findall(r"<h3 id=\"paper-adafedadam-readings\">.*?</section>", shown, re.S)
    entries = re.findall(r"<li>.*?</li>", section, re.S)
    assert any(">weighting</span>" in entry and ">unweighted</p>" in entry for entry in entries)
    assert all("<dt>why</dt><dd>" in entry for entry in entries)


def test_empty_parts_leave_no_heading():
    read = Reader(page(EMPTY))
    # the title and the legend
    assert [t for t, _ in read.tags if re.fullmatch(r"h\d", t)] == ["h1", "h2"]
    assert "nothing to show yet" in read.text


def test_a_figure_is_an_image_of_its_own():
    figures = (
        DrawnFigure("x/1", "One", svg="<svg/>", alt="what is seen"),
        DrawnFigure("x/2", "Two"),
    )
    read = Reader(page(replace(EMPTY, figures=figures)))
    (image,) = (attrs for tag, attrs in read.tags if tag == "img")
    head, data = image["src"].split(",")
    assert head == "data:image/svg+xml;base64"
    assert base64.b64decode(data).decode() == "<svg/>"
    assert image["alt"] == "what is seen"
    assert "nothing to draw yet" in read.text


@pytest.mark.parametrize(
    ("paper", "figure"),
    [
        ("fedcada", "Figure 2 (Similarity (linear CKA) of the clients' first moments)"),
        ("adafedadam", "Figure 6 (How many images of each class every client holds, "),
    ],
)
def test_figures_that_are_not_drawn_are_named(paper, figure):
    report = PaperReport(papers()[paper], (), (DrawnFigure("x/1", "One"),), ())
    _, _, named = Reader(page(replace(EMPTY, papers=(report,)))).text.partition("Not drawn: ")
    assert figure in named.partition(".")[0]


def test_hostile_text_stays_text_wherever_it_stands_and_nothing_is_left_out():
    count, content = hostile_content()
    plain = Reader(page(hostile_content("plain {0}")[1]))
    read = Reader(page(content))
    assert [t for t, _ in read.tags] == [t for t, _ in plain.tags]
    assert [sorted(a) for _, a in read.tags] == [sorted(a) for _, a in plain.tags]
    seen = [*read.values("alt"), *read.values("title"), read.text]
    seen += [base64.b64decode(s.split(",")[1]).decode() for s in read.values("src")]
    missing = [i for i in range(count) if not any(HOSTILE.format(i) in s for s in seen)]
    assert not missing
    assert read.text.count("{{ 7*7 }}") > 20


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
    made = href(path)
    assert not re.match(r"[a-z]+:|//|/[\t\\]", made, re.I)
    assert not set(made) & set(':\\\n\t"<> ')
    assert unquote(made).removeprefix("./") == path


def test_paths_are_quoted_once():
    assert href("../a/b=1,c=2/seed_0/") == "../a/b=1,c=2/seed_0/"
    assert href("../a%20b/ü") == "../a%20b/%C3%BC"


def test_the_colours_of_both_themes_can_be_read():
    """WCAG AA for every pair of text and ground that the style sheet makes."""
    css = re.search(r"<style>(.*?)</style>", page(EMPTY), re.S)[1]
    pairs = dict(re.findall(r"--([\w-]+): light-dark\((#\w+, #\w+)\)", css))
    colours = {name: value.split(", ") for name, value in pairs.items()}
    grounds = ("ground", "sheet", "hover")
    wanted = [*product(("ink", "soft", "link", "good", "bad", "warn", "odd", "faint"), grounds)]
    wanted += [(tone, f"{tone}-wash") for tone in ("good", "bad", "warn", "odd")]
    wanted += [("soft", "mute-wash"), ("ground", "ink")]

    def luminance(colour):
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    for theme, (front, back) in product((0, 1), wanted):
        light, dark = sorted(
            (luminance(colours[front][theme]), luminance(colours[back][theme])), reverse=True
        )
        assert (light + 0.05) / (dark + 0.05) >= 4.5, (front, back, theme)


def test_a_page_without_papers_has_no_word_of_them(tmp_path):
    read = Reader(page(own_content(tmp_path)))
    for word in ("paper", "claim", "printed", "inside", "verdict"):
        assert not re.search(rf"\b{word}", read.text, re.I), word
    assert not [v for v in read.values("data-filter") if v != "all"]


def test_the_best_of_a_column_is_marked_with_more_than_a_colour(tmp_path):
    """In every column of the table that has a better direction, once in the chapter, and in the legend."""
    fake(tmp_path, None, "fedavg")
    table = table_of("t", ("method", "loss"), [("a", Cell("1", 1.0, best=True))])
    read = Reader(page(replace(EMPTY, chapters=(Chapter("C", tables=(table,)),))))
    stars = [a for tag, a in read.tags if tag == "use" and a["href"] == "#i-star"]
    assert len(stars) == 1 + 1


@pytest.mark.parametrize(
    ("seeds", "words"),
    [
        (["null"], "every seed draws its own data split"),
        (["0"], "all seeds share one data split (data.seed=0)"),
        (["0", "null"], "data splits: data.seed=0, null"),
        ([], ""),
    ],
)
def test_a_setup_says_whether_seeds_share_a_split(seeds, words):
    (macro,) = re.findall(
        r"{%- macro splits_text.*?endmacro -%}", (ASSETS / "page.html").read_text(), re.DOTALL
    )
    template = ENVIRONMENT.from_string(macro + "{{ splits_text(seeds) }}")
    assert template.render(seeds=seeds).strip() == words
