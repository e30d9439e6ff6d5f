"""The report page as text: what is on it, that it is well formed and that nothing in it can break out."""

import base64
import re
from collections import Counter
from dataclasses import fields, is_dataclass, replace
from html.parser import HTMLParser
from itertools import product
from urllib.parse import unquote

import pytest
from page_example import (
    EMPTY,
    HOSTILE,
    METRICS,
    example,
    example_claim,
    example_figure,
    example_line,
    example_table,
    own_page,
)

from fedbench.analysis.coverage import Coverage
from fedbench.report.page import href, page, panels, run_name
from fedbench.report.views import (
    BlockView,
    CellView,
    ChapterView,
    ClaimTally,
    ClaimView,
    ComparisonView,
    FigureView,
    GridCell,
    GridView,
    GroupView,
    LineView,
    MultiverseView,
    PageView,
    PaperView,
    ReadingView,
    TableView,
    TwinView,
)
from fedbench.report.words import CELLS, CLAIMS, OF_BASIS, claims_text, coverage_text

_VOID = {"br", "col", "hr", "img", "input", "link", "meta", "path", "rect", "use", "circle"}
_WORDS = ("verdict", "tone", "status", "printed", "basis", "direction", "headline")  # not texts, but one of a few words


# ---- reading it back


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


def lines(view: PageView) -> list[LineView]:
    tables = [*(t for p in view.papers for t in p.tables), *view.tables]
    return [line for table in tables for block in table.blocks for line in block.lines]


# ---- the tests


def test_the_same_views_give_the_same_bytes():
    assert page(example()) == page(example())


def test_it_is_well_formed_and_ids_are_unique():
    for view in (example(), EMPTY, replace(example(), papers=()), replace(example(), tables=(), figures=())):
        text = page(view)
        assert text.startswith("<!DOCTYPE html>\n")
        ids = Reader(text).values("id")
        assert len(ids) == len(set(ids))
        assert all(ids)


def test_links_within_the_page_lead_somewhere():
    read = Reader(page(example()))
    ids = set(read.values("id"))
    inner = [h for h in read.values("href") if h.startswith("#")]
    assert len(inner) > 60
    assert {h[1:] for h in inner} <= ids
    for name in ("aria-labelledby",):
        assert {word for value in read.values(name) for word in value.split()} <= ids


def test_nothing_is_fetched():
    text = page(example())
    read = Reader(text)
    for name in ("src", "href", "srcset", "data", "action", "poster", "xlink:href"):
        assert not [
            v for v in read.values(name) if re.match(r"\s*([a-z+.-]+:|//)", v, re.I) and not v.startswith("data:")
        ]
    assert not re.findall(
        r"url\(|@import|https?://", "".join(re.findall(r"<style>.*?</style>|<script>.*?</script>", text, re.S))
    )
    assert not read.values("style")  # the policy would drop it
    assert not [n for _, attrs in read.tags for n in attrs if n.startswith("on")]
    (policy,) = (a["content"] for t, a in read.tags if t == "meta" and a.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy


def test_every_run_is_linked_and_every_command_is_there():
    view = example()
    text = page(view)
    read = Reader(text)
    hrefs, words = set(read.values("href")), read.text
    for line in lines(view):
        assert set(line.runs) <= hrefs
        assert line.command in words


def test_a_number_leads_to_the_runs_that_it_is_from():
    view = example()
    rows = re.findall(r'<tr class="row".*?</tr>\n<tr class="more">.*?</tr>', page(view), re.S)
    for line, row in zip(lines(view), rows, strict=True):
        places = re.findall(r'<span class="runs" id="([^"]+)"', row)
        assert len(places) == bool(line.runs)
        numbers = re.findall(r'<a class="to" href="#([^"]+)">([^<]+)</a>', row)
        shown = [(place, number.replace("\N{NO-BREAK SPACE}", " ")) for place, number in numbers]
        assert shown == [(place, cell.measured) for place in places for cell in line.cells if cell.measured]
        assert not any("± " in number for _, number in numbers)  # no line ends behind the sign


def test_a_reduced_number_is_marked_and_what_is_reduced_stands_below_it():
    view = example()
    rows = re.findall(r'<tr class="row".*?</tr>\n<tr class="more">.*?</tr>', page(view), re.S)
    assert len(rows) == len(lines(view))
    for line, row in zip(lines(view), rows, strict=True):
        seen = Reader(row.replace("data-differs", "").replace("data-reduced", "")).text
        assert ("reduced" in seen.split("runs")[0]) == (line.status == "reduced")
        assert ("data-reduced" in row) == bool(line.reduced)
        if line.reduced:
            assert f"{line.label} reduced" in seen
            assert "reduced: " + "; ".join(line.reduced) in seen


def test_a_row_that_is_called_full_but_lists_reductions_is_marked():
    line = replace(example_line(0, 1, "x"), reduced=("rounds 1 (paper 2)",))
    seen = Reader(
        page(replace(EMPTY, tables=(TableView("x", "X", "", ("mean",), (BlockView("", (line,)),), ()),)))
    ).text
    assert f"{line.label} reduced" in seen
    assert "reduced: rounds 1 (paper 2)" in seen


def test_a_row_that_failed_and_is_reduced_says_both():
    line = replace(example_line(6, 1, "x"), reduced=("rounds 1 (paper 2)",))
    seen = Reader(
        page(replace(EMPTY, tables=(TableView("x", "X", "", ("mean",), (BlockView("", (line,)),), ()),)))
    ).text
    assert f"{line.label} failed reduced" in seen


def odd_line(*notes: str) -> LineView:
    fine = CellView("1.00", "1.00", "0.00", "inside", 1.0, "")
    cells = (*(replace(fine, verdict="impossible", note=note) for note in notes), fine, fine)[:3]
    return replace(example_line(0, 0, "x"), cells=cells, status="full", reduced=())


def test_an_impossible_number_carries_its_reason_where_it_is_seen_and_once():
    heads = METRICS[:3]

    def seen(*notes):
        block = BlockView("", (odd_line(*notes),))
        table = TableView("x", "X", "", heads, (block,), ())
        read = Reader(page(replace(EMPTY, tables=(table,))))
        return read.text.split("runs 0")[0], read.values("title")

    text, titles = seen("n = 2, 1.0 to 1.2. the rows contradict", "n = 2, 3.0 to 3.2. the rows contradict")
    assert "impossible (mean (w), STD (w)): the rows contradict" in text
    assert "impossible: n = 2, 3.0 to 3.2. the rows contradict" in titles
    whole, _ = seen("1. the rows contradict", "2. the rows contradict", "3. the rows contradict")
    assert "impossible: the rows contradict" in whole
    text, _ = seen("n = 2. one", "n = 2. two")
    assert "impossible (mean (w)): n = 2. one" in text
    assert "impossible (STD (w)): n = 2. two" in text
    assert "impossible (mean (w)): n = 2. one" in seen("n = 2. one")[0]
    assert "impossible (mean (w)) " in seen("")[0]


def test_a_verdict_is_never_a_colour_alone():
    text = page(example())
    cells = re.findall(r'<td class="num diff (\w+)"[^>]*>(.*?)</td>', text, re.S)
    tones = {"good": "inside", "bad": "outside", "odd": "impossible", "warn": "one seed", "mute": "missing"}
    assert {tone for tone, _ in cells} == {*tones, "zero"}
    for tone, inside in cells:
        if tone != "zero":
            assert "<use" in inside
            assert tones[tone] in Reader(inside).text


def rows_of(text, heading):
    """The cells of the body of the summary table below a heading."""
    body = re.search(rf'id="{heading}".*?<tbody>(.*?)</tbody>', text, re.S)[1]
    rows = re.findall(r'<tr class="(?:counts|plain)">.*?</tr>', body, re.S)
    return [[Reader(c).text.strip() for c in re.findall(r"<td.*?</td>", row, re.S)] for row in rows]


def test_coverage_comes_first_and_counts_per_paper_and_in_all():
    view = example()
    text = page(view)
    assert text.index('id="summary"') < text.index('id="verdicts-head"') < text.index('class="chapter"')
    *papers, together = rows_of(text, "summary")
    for paper, numbers in zip(view.papers, papers, strict=True):
        c, claims = paper.coverage, [(x.basis, x.verdict) for x in paper.claims]
        measured = sum(basis == "runs" and v in ("holds", "fails", "undecided") for basis, v in claims)
        bases = [sum(basis == b for basis, _ in claims) for b in ("proof", "print")]
        rest = [claims.count(("runs", v)) for v in ("not run", "not testable")]
        partly = claims.count(("runs", "partly measured"))
        assert numbers == [
            str(n) for n in (c.total, c.full, c.reduced, c.not_run, len(claims), measured, partly, *bases, *rest)
        ]
        assert len(claims) == measured + partly + sum(bases) + sum(rest)
    assert together == [str(sum(int(row[i]) for row in papers)) for i in range(len(together))]


def test_verdicts_count_what_was_measured_alone():
    view = example()
    *papers, together = rows_of(page(view), "verdicts-head")
    words = [w for w, m in CELLS.items() if m.word and w != "missing"]
    for paper, numbers in zip(view.papers, papers, strict=True):
        own = [c for c in paper.claims if c.basis == "runs"]
        verdicts = [sum(c.verdict == v for c in own) for v in ("holds", "fails", "undecided", "partly measured")]
        decided = [c.multiverse.headline for c in own if c.verdict in ("holds", "fails")]
        heads = [decided.count(h) for h in ("robust", "depends on", "one reading")]
        cells = [paper.coverage.agreement[w] for w in words]
        assert numbers == [str(n) for n in (*verdicts, *heads, *cells)]
    assert together == [str(sum(int(row[i]) for row in papers)) for i in range(len(together))]


def test_the_three_bases_differ_in_word_and_colour():
    """No verdict that rests on no run looks like one that does."""
    marks = {basis: {(m.tone, m.word) for m in known.values()} for basis, known in OF_BASIS.items()}
    tones = {basis: {tone for tone, _ in found} for basis, found in marks.items()}
    assert tones["proof"] == {"proof"} and tones["print"] == {"print"}
    assert not {"proof", "print"} & tones["runs"]
    words = [word for found in marks.values() for _, word in found]
    assert len(set(words)) == len(words)
    view = example()
    for claim, item in zip(view.papers[0].claims, claim_items(page(view)), strict=False):
        assert f'<span class="badge {OF_BASIS[claim.basis][claim.verdict].tone}">' in item


def claim_items(text):
    return re.findall(r'<li id="[^"]+" class="claim">.*?\n</li>', text, re.S)


def test_every_comparison_and_every_reading_of_a_claim_is_on_the_page():
    view = example()
    claims = [c for p in view.papers for c in p.claims]
    for claim, item in zip(claims, claim_items(page(view)), strict=True):
        seen = Reader(item).text
        for said in (claim.text, claim.counts, claim.tested, claim.beyond, claim.refuted, claim.needs):
            assert said in seen
        tables = re.findall(r"<tbody>.*?</tbody>|<tr class=\"adopted\">", item, re.S)
        assert bool(tables) == bool(claim.comparisons or claim.multiverse)
        for c in claim.comparisons:
            assert c.label in seen and all(f"{name}: {lead}" in seen for name, lead in c.differences)
        if claim.multiverse:
            readings = re.search(r'class="small grid">.*?</table>', item, re.S)[0]
            rows = re.findall(r"<tr.*?</tr>", readings, re.S)[1:]
            assert len(rows) == len(claim.multiverse.readings)
            for row, reading in zip(rows, claim.multiverse.readings, strict=True):
                words = Reader(row).text
                assert all(choice in words for choice in reading.choices)
                assert CLAIMS[reading.verdict].word in words
                assert ("(adopted)" in words) == reading.adopted
        for group in claim.groups:
            assert group.title in seen and CLAIMS[group.verdict].word in seen


def test_a_dependent_verdict_says_on_what():
    view = example()
    items = claim_items(page(view))
    found = [
        Reader(item).text
        for claim, item in zip([c for p in view.papers for c in p.claims], items, strict=True)
        if claim.multiverse and claim.multiverse.headline == "depends on"
    ]
    assert found
    assert all("depends on: weighting, split" in text for text in found)


def test_both_weightings_stand_next_to_each_other_and_are_named():
    table = example_table("p", 1, 3)
    text = page(replace(EMPTY, tables=(table,)))
    heads = [Reader(h).text for h in re.findall(r'<th scope="col" class="num[^"]*">.*?</th>', text, re.S)]
    assert heads == [h for _ in range(3) for h in ("measuredweighted", "paper", "diff.", "measuredunweighted")]
    rows = re.findall(r'<tr class="row".*?</tr>', text, re.S)
    for line, row in zip(lines(replace(EMPTY, tables=(table,))), rows, strict=True):
        others = [Reader(c).text for c in re.findall(r'<td class="num twin.*?</td>', row, re.S)]
        assert others == [t or "–" for t in line.further]
    same = tuple(
        replace(b, lines=tuple(replace(x, further=tuple(c.measured for c in x.cells)) for x in b.lines))
        for b in table.blocks
    )
    assert 'class="num twin' not in page(replace(EMPTY, tables=(replace(table, blocks=same),)))  # nothing to add


def test_a_setup_says_whether_seeds_share_a_split_and_a_table_what_was_tuned():
    view = example()
    seen = Reader(page(view)).text
    blocks = [b for p in view.papers for t in p.tables for b in t.blocks if b.title and b.lines]
    assert seen.count("all seeds share one data split (data.seed=0)") == len(blocks)
    assert "Tuning in the paper: a grid for the rivals.; here: nothing." in seen


def test_badges_of_the_contents_count_what_was_measured():
    view = example()
    text = page(view)
    nav = re.search(r"<nav.*?</nav>", text, re.S)[0]
    for paper in view.papers:
        for table in paper.tables:
            cells = [c for b in table.blocks for x in b.lines for c in x.cells if c.paper]
            measured = sum(bool(c.measured) for c in cells)
            anchor = f'href="#table-{table.name.replace("/", "-")}"'
            entry = re.search(rf"<li><a {anchor}.*?</li>", nav, re.S)[0]
            assert (f">{measured}/{len(cells)}<" in entry) == bool(measured)
            assert "impossible" not in entry


def test_own_tables_have_no_column_of_a_paper():
    text = page(replace(EMPTY, tables=(example_table("own", 1, 3, with_paper=False),)))
    assert 'class="num paper' not in text
    assert "diff." not in Reader(text).text
    assert "Summary" not in Reader(text).text


def test_empty_parts_leave_no_heading():
    read = Reader(page(EMPTY))
    assert [t for t, _ in read.tags if re.fullmatch(r"h\d", t)] == ["h1", "h2"]  # the title and the legend
    assert "nothing to show yet" in read.text
    bare = PaperView("p", "A paper", "", (), (), (), (), ())
    read = Reader(page(replace(EMPTY, papers=(bare,))))
    assert [t for t, _ in read.tags if re.fullmatch(r"h\d", t)] == ["h1", "h2", "h3", "h2", "h2"]
    assert "claim" not in read.text.split("How to read this page")[0].replace("Claims", "")


def test_a_figure_is_an_image_of_its_own():
    view = replace(EMPTY, figures=(example_figure("x", 0), example_figure("x", 2)))
    read = Reader(page(view))
    (image,) = (attrs for tag, attrs in read.tags if tag == "img")
    head, data = image["src"].split(",")
    assert head == "data:image/svg+xml;base64"
    assert base64.b64decode(data).decode() == view.figures[0].svg
    assert image["alt"] == view.figures[0].alt
    assert "nothing to draw yet" in read.text


def test_names_that_look_alike_get_ids_of_their_own():
    tables = tuple(replace(example_table("own", 1, 1), name=n) for n in ("a/b", "a-b", "A B", "", "…"))
    ids = Reader(page(replace(EMPTY, tables=tables))).values("id")
    assert len(set(ids)) == len(ids)
    assert [i for i in ids if re.fullmatch(r"table(-[ab])*(-2|-3)?", i)] == [
        "table-a-b", "table-a-b-2", "table-a-b-3", "table", "table-2",
    ]  # fmt: skip


def texts(value, trail=()):
    """Every text in a view that is not one of a few words, with the way to it."""
    if isinstance(value, str):
        yield trail, value
    elif isinstance(value, tuple):
        for i, part in enumerate(value):
            yield from texts(part, (*trail, i))
    elif is_dataclass(value):
        for f in fields(value):
            if f.name not in _WORDS or (f.name == "verdict" and not hasattr(value, "verdict")):
                yield from texts(getattr(value, f.name), (*trail, f.name))


def put(value, trail, text):
    if not trail:
        return text
    first, *rest = trail
    if isinstance(value, tuple):
        return (*value[:first], put(value[first], rest, text), *value[first + 1 :])
    return replace(value, **{first: put(getattr(value, first), rest, text)})


def test_hostile_text_stays_text_wherever_it_stands_and_nothing_is_left_out():
    cell = CellView("d", "e", "f", "impossible", 1.0, "g")
    line = LineView("a", "b", 1, "reduced", ("c",), (cell,), ("h",), "i", "j", ("M",))
    twins, tuning = (TwinView("N", "O", 0),), (("P", "Q"),)
    table = TableView("k", "l", "m", ("n",), (BlockView("o", (line,), "R"),), ("p",), ("S",), True, twins, tuning)
    figure = FigureView("q", "r", "s", "<svg/>", ("t",), "u", "T")
    comparison = ComparisonView("U", "V", "for", "W", "X", "Y", "Z", "aa", "ba", (("ab", "ac"),))
    multiverse = MultiverseView("depends on", "ad", ("ae",), (ReadingView(("af",), "holds", "ag", "ao", True),))
    groups = (GroupView("al", "holds", "am", "an"),)
    words = ("v", "w", "x", "fails", "y", True, "contradicts", "runs", "ah", "ai", "aj", "bg", "ak")
    claim = ClaimView(*words, groups, (comparison,), multiverse)
    paper = PaperView(
        "z",
        "A",
        "B",
        (table,),
        (figure,),
        (claim,),
        (("C", "D", "E", "F"),),
        (("G", "H"),),
        readings=(("ao", "ap", "aq"),),
    )
    rows = ((GridCell("au"), GridCell("be", 1.0, True)), (GridCell("av"), GridCell("bf")))
    grid = GridView("ar", "as", (("at", False), ("ax", True)), rows, ("aw",))
    chapter = ChapterView("ay", "az", (grid,), (figure,), (("bb", "bc"),))
    view = PageView("I", (paper,), (table,), (figure,), (("J", "K"),), ("L",), (chapter,), "bd")
    plain = Reader(page(view))
    places = list(texts(view))
    assert len(places) > 50
    for i, (trail, _) in enumerate(places):
        view = put(view, trail, HOSTILE.format(i))
    text = page(view)
    read = Reader(text)
    assert [t for t, _ in read.tags] == [t for t, _ in plain.tags]
    assert [sorted(a) for _, a in read.tags] == [sorted(a) for _, a in plain.tags]
    seen = [*read.values("alt"), *read.values("title"), *map(unquote, read.values("href")), read.text]
    seen += [base64.b64decode(s.split(",")[1]).decode() for s in read.values("src")]
    for i, (trail, _) in enumerate(places):
        assert any(HOSTILE.format(i) in s for s in seen) or trail[-2] == "runs", trail
    assert read.text.count("{{ 7*7 }}") > 40


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


def test_paths_and_their_names():
    assert href("../a/b=1,c=2/seed_0/") == "../a/b=1,c=2/seed_0/"
    assert href("../a%20b/ü") == "../a%20b/%C3%BC"
    assert [run_name(p) for p in ("../x/seed_12/", "../x/seed_3/meta.json", "../some/run/", "x", "/")] == [
        "12", "3", "some/run", "x", "/",
    ]  # fmt: skip


def test_words_for_coverage_and_claims():
    assert (
        coverage_text(Coverage(60, 9, 132)) == "69 of 201 distinct printed numbers measured, 60 in full and 9 reduced"
    )
    verdicts = Counter({("runs", "holds"): 2, ("runs", "fails"): 1, ("runs", "undecided"): 3, ("proof", "holds"): 1})
    assert claims_text(ClaimTally(verdicts, Counter(robust=1))) == (
        "runs decide 3 of 7 claims (2 hold, 1 fail; robust: 1); 3 measured and undecided, 1 shown by a proof"
    )
    assert claims_text(ClaimTally(Counter({("runs", "not run"): 2}), Counter())) == (
        "runs decide 0 of 2 claims; 2 not run"
    )


def test_what_the_views_do_not_name_is_refused():
    line, claim = example_line(0, 1, "x"), example_claim(0)
    cell = replace(line.cells[0], verdict="perhaps")

    def of(one):
        return replace(EMPTY, tables=(TableView("x", "X", "", ("mean",), (BlockView("", (one,)),), ()),))

    for view in (of(replace(line, status="perhaps")), of(replace(line, cells=(cell,)))):
        with pytest.raises(ValueError, match="unknown (row|cell) verdict or status 'perhaps'; it must be one of "):
            page(view)
    for name in ("verdict", "printed"):
        paper = PaperView("p", "P", "", (), (), (replace(claim, **{name: "perhaps"}),), (), ())
        with pytest.raises(ValueError, match="unknown (claim|printed) verdict or status 'perhaps'"):
            page(replace(EMPTY, papers=(paper,)))
    with pytest.raises(ValueError, match="does not have one cell for each of the 1 columns"):
        page(of(replace(line, cells=())))


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
        light, dark = sorted((luminance(colours[front][theme]), luminance(colours[back][theme])), reverse=True)
        assert (light + 0.05) / (dark + 0.05) >= 4.5, (front, back, theme)


def test_further_numbers_of_a_row_are_in_its_fold():
    line = replace(example_line(0, 1, "x"), further=("5.00 ± 0.10", ""))
    table = TableView("x", "X", "", ("mean",), (BlockView("", (line,)),), (), ("further STD", "further KL"))
    seen = Reader(page(replace(EMPTY, tables=(table,)))).text
    assert "other metrics" in seen
    assert "further STD" in seen
    assert "further KL" not in seen


def test_a_page_without_papers_has_no_word_of_them():
    read = Reader(page(own_page()))
    for word in ("paper", "claim", "printed", "inside", "verdict"):
        assert not re.search(rf"\b{word}", read.text, re.I), word
    assert "Runs outside the papers" in Reader(page(example())).text
    assert not [v for v in read.values("data-filter") if v != "all"]


def test_the_best_of_a_column_is_marked_with_more_than_a_colour():
    view = own_page()
    read = Reader(page(view))
    own = sum(c.best for block in view.tables[0].blocks for line in block.lines for c in line.cells)
    assert own == len(view.tables[0].columns)
    stars = [a for tag, a in read.tags if tag == "use" and a["href"] == "#i-star"]
    assert len(stars) == own + 1 + 1  # in the table, in the comparison, in the legend


@pytest.mark.parametrize(("width", "columns"), [("237.6pt", 1), ("475.2pt", 2), ("712.8pt", 3), ("560", 2)])
def test_a_figure_is_as_wide_as_its_panels_need(width, columns):
    assert panels(f'<svg viewBox="0 0 1 1" width="{width}" height="9">') == columns
