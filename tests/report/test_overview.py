"""The front page of published reports: counts by hand that are the same wherever they stand."""

import re
import shutil
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from fake_runs import change_last_round, fake_row
from report_runs import call_report, files, text_of
from units import by_unit

from fedbench.analysis.build_tables import paper_table
from fedbench.analysis.claims.comparison import Comparison, above
from fedbench.analysis.claims.verdict import Verdict, decide
from fedbench.analysis.matching import Evidence, MatchedRuns
from fedbench.analysis.planned import PlannedEvidence
from fedbench.papers.readings import ADOPTED
from fedbench.papers.registry import papers
from fedbench.reports import write
from fedbench.reports.canvas import method_look
from fedbench.reports.overview import is_collection, write_overview
from fedbench.reports.page import Content, page
from fedbench.reports.panels import Panel, Series
from fedbench.reports.paper import SUMMARY, PaperReport
from fedbench.reports.plots import DrawnFigure, curves, drawn
from fedbench.reports.write import write_report
from fedbench.runs.results import Results

PAPER = papers()["fedcada"]
CLAIMS = len(PAPER.claims)
ROWS = [row for row in PAPER.tables["table1"].rows if row.setup == "silo_cifar10_iid"]
NUMBERS = sum(len(row.values) for row in ROWS)


def lead(size, n=10, cut=()):
    leads = [float(size)] * n
    return above("x", by_unit(leads), [MatchedRuns({}, departs=cut)])


def reduced(size, n=10):
    return decide([lead(size, n, ("rounds 2",))])


# the verdicts of the claims by the words of their counts; all other claims are not testable
GIVEN = {
    "hold": [decide([lead(1)])] * 3,
    "fail": [decide([lead(-1)])] * 2,
    "mixed": [decide([lead(1), lead(-1)])],
    "undecided": [decide([lead(0)])],
    "cannot hold as worded": [decide([lead(-1), Comparison("x")])],
    "not counted": [decide([lead(1, 3)]), decide([lead(-1), lead(-1, 4)])],
    "not or partly run": [decide([Comparison("x")]), *map(reduced, (1, 1, -1, 0)), reduced(1, 2)],
    "shown by a test of the code": [Verdict("holds", "", "test")],
    "refuted by a test of the code": [Verdict("fails", "", "test")],
    "supported by printed numbers": [Verdict("holds", "", "print")],
    "contradicted by printed numbers": [Verdict("fails", "", "print")],
}
for word, confirmed in (("hold", 2), ("fail", 1), ("not counted", 1)):
    for place in range(confirmed):
        GIVEN[word][place] = replace(GIVEN[word][place], confirmed="p1", explored="undecided")
VERDICTS = [verdict for verdicts in GIVEN.values() for verdict in verdicts]
COUNTS = {word: len(verdicts) for word, verdicts in GIVEN.items()}
COUNTS["not testable"] = CLAIMS - len(VERDICTS)
LINE = (
    f"{CLAIMS} claims: {', '.join(f'{number} {word}' for word, number in COUNTS.items())}; "
    "scaled-down checks of those not run: 2 same direction, 1 opposite direction, 2 unclear"
)


def fill(root):
    """Six rows with a printed number each, the last one reduced; a run takes an hour and a half."""
    for row in ROWS:
        cut = {"rounds": [200, 100]} if row is ROWS[-1] else {}
        for path in fake_row(root, PAPER, row, seeds=range(2), cut=cut):
            change_last_round(path, seconds_train=3600.0, seconds_eval=1800.0)


def draw(evidence, folder):
    """Draw one figure, which needs no runs."""
    line = Series("a", np.arange(3), np.ones((1, 3)), method_look("fedavg"))
    figure = DrawnFigure(f"{PAPER.id}/figure3", f"{PAPER.name}, Figure 3")
    return drawn(figure, folder, [("", curves, [Panel("", [line], "x", "y")])])


@pytest.fixture(scope="module")
def shelf(tmp_path_factory):
    """A report whose claims have the verdicts above, and one that belongs to no paper."""
    place = tmp_path_factory.mktemp("shelf") / "published"
    root = tmp_path_factory.mktemp("runs")
    fill(root)
    verdicts = iter([*VERDICTS, *[decide([])] * CLAIMS])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(write, "paper_figures", draw)
        patch.setattr(PlannedEvidence, "judge", lambda *_: {ADOPTED: next(verdicts)})
        said, _ = write_report(root, place / PAPER.id)
    other = place / "contest" / "index.html"
    other.parent.mkdir()
    other.write_text("<!DOCTYPE html><title>A contest &amp; its ranks</title>")
    whole = write_overview(place)
    return SimpleNamespace(
        place=place,
        said=said,
        whole=whole,
        front=(place / "index.html").read_text(),
        page=(place / PAPER.id / "index.html").read_text(),
    )


def numbers(html, heading):
    """The rows of the table below a heading: name and numbers."""
    table = html.partition(heading)[2].partition("</table>")[0]
    return [text_of(row) for row in re.findall(r'<tr class="counts">.*?</tr>', table, re.S)]


def part(html, start, end):
    return html.partition(start)[2].partition(end)[0]


# ---- counts


def test_claims_are_counted_alike_wherever_they_are_counted(shelf):
    """On both pages, in the summary, and where the commands print them."""
    summary = SUMMARY.validate_json((shelf.place / PAPER.id / "summary.json").read_bytes())
    assert summary.papers[0].claims_text == LINE
    assert LINE in shelf.said
    assert LINE in shelf.whole
    assert LINE in text_of(shelf.page)
    row = " ".join(map(str, ["FedCAda", CLAIMS, 3, *COUNTS.values()]))
    for html in (shelf.front, shelf.page):
        assert numbers(html, 'id="summary-head"') == [row]
        assert numbers(html, 'id="scaled-head"') == ["FedCAda 5 2 1 0 2"]
    tiles = text_of(part(shelf.front, '<dl class="tiles">', "</dl>"))
    planned = "from planned runs, for, against or undecided"
    assert f"{planned} 3 of {CLAIMS} claims 2 hold, 1 fail " in tiles
    exploratory = "1 hold, 1 fail, 1 mixed, 1 undecided, 1 cannot hold as worded"
    assert f"exploratory verdicts 5 of {CLAIMS} claims {exploratory} " in tiles
    claims = summary.papers[0].claims
    assert [claim.status for claim in claims[:4]] == [
        *["confirmed"] * 2,
        "exploratory",
        "confirmed",
    ]
    assert {claim.explored for claim in claims if claim.confirmed} == {"undecided"}


def test_the_word_of_a_confirmed_verdict_stands_with_that_of_the_exploratory_one(shelf):
    text = text_of(shelf.page)
    assert text.count("holds, confirmed, as printed: 1 of 1 shown") == 2
    assert text.count("; plan p1; exploratory before: undecided") == 4


def test_a_planned_verdict_that_is_not_counted_begins_with_these_words(shelf):
    text = text_of(part(shelf.front, 'id="words-head"', "</section>"))
    assert "5 further verdicts on FedCAda, and 1 not counted" in text
    beginning, _, end = text.partition("not counted (undecided, confirmed, as printed)")
    assert "FedAdam, FedAMS, FedSps and FAFED stay below FedAvg" in end
    assert "Not counted: could not hold with 3 splits (5 needed)." in end
    assert "(undecided, " not in beginning


@pytest.mark.parametrize("name", ["front", "page"])
def test_every_page_begins_with_a_square_per_claim(shelf, name):
    html = getattr(shelf, name)
    board = part(html, '<figure class="board">', "</figure>")
    assert board.count("<li ") == CLAIMS
    for word, number in COUNTS.items():
        assert f"{number} {word}" in text_of(board)
        assert len(re.findall(rf'title="\w+, {word}: ', board)) == number
    assert html.index('<figure class="board">') < html.index('id="summary-head"')


def test_every_measured_percentage_is_a_point_and_a_ring_if_it_is_reduced(shelf):
    scatter = part(shelf.page, '<figure class="scatter">', "</figure>")
    rings = re.findall(r'<circle class="\w+( ring)?"', scatter)
    assert len(rings) == NUMBERS
    assert sum(map(bool, rings)) == 1


def test_a_number_that_several_tables_share_is_one_point(tmp_path):
    fill(tmp_path)
    table = paper_table(PAPER.tables["table1"], Evidence(PAPER, list(Results(tmp_path))))
    html = page(Content("", (PaperReport(PAPER, (table,) * 3, (), ()),)))
    assert f">{NUMBERS} printed percentages and what was measured" in html


def test_the_note_of_a_paper_stands_before_its_counts():
    known = papers()["known"]
    text = text_of(page(Content("Known", (PaperReport(known, (), (), ()),))))
    assert 0 < text.index(known.paper.note) < text.index("distinct printed numbers")


def test_the_counts_of_a_small_bundle(shelf):
    """Table 1 prints 60 numbers; Table 2 has 6 others of its 12, and Table 3 five others."""
    distinct = 60 + 6 + 5
    measured = "0 as printed, 5 retuned and 1 reduced"  # rates of the paper's rows are searched
    assert f"6 of {distinct} distinct printed numbers measured, {measured}" in shelf.whole
    assert "12 runs, 18.0 hours" in text_of(shelf.front)
    (row,) = numbers(shelf.front, 'id="numbers-head"')
    assert row.startswith(f"FedCAda {distinct} 0 5 1 {distinct - 6} ")


def test_pages_of_no_paper_are_linked(shelf):
    assert '<a href="contest/index.html">contest</a>' in shelf.front
    assert "FedFa" not in shelf.front


# ---- the same again, and refusals


@pytest.fixture
def copy(shelf, tmp_path):
    return shutil.copytree(shelf.place, tmp_path / "published")


def test_a_report_without_a_summary_is_to_be_written_again(copy):
    (copy / PAPER.id / "summary.json").unlink()
    status, _, err = call_report(copy)
    report = copy / PAPER.id
    assert status == 2
    assert f"write the report again: fedbench report {report} --into {report}" in err


def test_the_same_reports_give_the_same_bytes_anywhere(shelf, copy):
    status, out, err = call_report(copy)
    assert (status, err) == (0, "")
    assert out.endswith(f"written: {copy / 'index.html'}\n")
    assert files(copy) == files(shelf.place)


def test_which_directories_have_a_front_page(shelf, tmp_path):
    assert is_collection(shelf.place)
    assert not is_collection(shelf.place / PAPER.id)
    fill(tmp_path)
    shutil.copytree(shelf.place / PAPER.id, tmp_path / "mine")  # published next to runs
    assert not is_collection(tmp_path)


@pytest.mark.parametrize("words", ["--into out", "--paper fedcada", "--compare algo"])
def test_options_of_a_single_report_are_refused(shelf, words):
    status, _, err = call_report(shelf.place, *words.split())
    assert status == 2
    assert "contains no runs" in err
