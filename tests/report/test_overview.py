"""The front page of published reports: counts by hand that are the same wherever they stand, and equal bytes."""

import json
import re
import shutil
from types import SimpleNamespace

import numpy as np
import pytest
from fake_runs import fake_row, seal
from report_runs import call, files

from fedbench.analysis.build_tables import paper_table
from fedbench.analysis.claims.comparison import Comparison, above
from fedbench.analysis.claims.verdict import Verdict, decide
from fedbench.analysis.departures import Unit
from fedbench.analysis.matching import Evidence, MatchedRuns
from fedbench.papers.readings import ADOPTED
from fedbench.papers.registry import papers
from fedbench.reports import write
from fedbench.reports.canvas import method_look
from fedbench.reports.overview import is_collection, write_overview
from fedbench.reports.page import Content
from fedbench.reports.page import page as whole_page
from fedbench.reports.paper import SUMMARY, PaperReport
from fedbench.reports.plots import DrawnFigure, Panel, Series, curves, drawn
from fedbench.reports.write import write_report
from fedbench.runs.results import Results

PAPER = papers()["fedcada"]
ROWS = [row for row in PAPER.tables["table1"].rows if row.setup == "silo_cifar10_iid"]
SEEDS = 2


def lead(size, n=10, cut=()):
    return above(
        "x", {Unit(0, seed): float(size) for seed in range(n)}, [MatchedRuns({}, departs=cut)]
    )


CUT = ("rounds 2",)
NOT_RUN = (
    decide([Comparison("x")]),
    *(decide([lead(s, cut=CUT)]) for s in (1, 1, -1, 0)),
    decide([lead(1, 2, CUT)]),
)
# numbers of claims by verdict; several verdicts may count alike, and all other claims are not
# testable
GIVEN = {
    "hold": (3, [decide([lead(1)])]),
    "fail": (2, [decide([lead(-1)])]),
    "mixed": (1, [decide([lead(1), lead(-1)])]),
    "undecided": (1, [decide([lead(0)])]),
    "not counted": (2, [decide([lead(1, 3)]), decide([lead(-1), lead(-1, 4)])]),
    "not run": (6, NOT_RUN),
    "shown by a test of the code": (1, [Verdict("holds", "", "test")]),
    "checked in print": (2, [Verdict("holds", "", "print"), Verdict("fails", "", "print")]),
}


def fill(root):
    """Six rows with a printed number each, the last one reduced; every run takes an hour and a half."""
    for row in ROWS:
        cut = {"rounds": [200, 100]} if row is ROWS[-1] else {}
        for path in fake_row(root, PAPER, row, seeds=range(SEEDS), cut=cut):
            rounds = [json.loads(line) for line in (path / "rounds.jsonl").read_text().splitlines()]
            rounds[-1] |= {"seconds_train": 3600.0, "seconds_eval": 1800.0}
            (path / "rounds.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rounds))
            seal(path)


@pytest.fixture(scope="module")
def shelf(tmp_path_factory):
    """A report whose claims have the verdicts above, and one that belongs to no paper."""
    verdicts = iter(
        [kinds[i % len(kinds)] for number, kinds in GIVEN.values() for i in range(number)]
    )
    place = tmp_path_factory.mktemp("shelf") / "published"
    root = tmp_path_factory.mktemp("runs")
    fill(root)
    line = Panel("", [Series("a", np.arange(3), np.ones((1, 3)), method_look("fedavg"))], "x", "y")
    figure = DrawnFigure(f"{PAPER.id}/figure3", f"{PAPER.name}, Figure 3")
    with pytest.MonkeyPatch.context() as patch:  # one figure, which needs no runs
        patch.setattr(
            write, "paper_figures", lambda *given: drawn(figure, given[-1], [("", curves, [line])])
        )
        patch.setattr(write, "judge_readings", lambda *_: {ADOPTED: next(verdicts, decide([]))})
        said = write_report(root, place / PAPER.id)[0]
    (place / "contest").mkdir()
    (place / "contest" / "index.html").write_text(
        "<!DOCTYPE html><title>A contest &amp; its ranks</title>"
    )
    return SimpleNamespace(place=place, said=said, whole=write_overview(place))


def text(html):
    """What is read of a part of a page."""
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", html)).strip()


def numbers(html, heading):
    """The rows of the table below a heading: name and numbers."""
    table = html.partition(heading)[2].partition("</table>")[0]
    return [text(row) for row in re.findall(r'<tr class="counts">.*?</tr>', table, re.S)]


# ---- counts


def test_claims_are_counted_alike_wherever_they_are_counted(shelf):
    """On the page of the paper, on the front page, in its summary, and where both commands print them."""
    states = {word: number for word, (number, _) in GIVEN.items()} | {
        "not testable": len(PAPER.claims) - 18
    }
    row = " ".join(map(str, ["FedCAda", len(PAPER.claims), *states.values()]))
    line = f"{len(PAPER.claims)} claims: {', '.join(f'{number} {word}' for word, number in states.items())}"
    line += (
        "; scaled-down checks of those not run: 2 same direction, 1 opposite direction, 2 unclear"
    )
    assert line in shelf.said
    assert line in shelf.whole
    for page in (shelf.place / "index.html", shelf.place / PAPER.id / "index.html"):
        html = page.read_text()
        assert numbers(html, 'id="summary-head"') == [row]
        assert numbers(html, 'id="scaled-head"') == ["FedCAda 5 2 1 0 2"]
    assert line in text((shelf.place / PAPER.id / "index.html").read_text())
    (summary,) = SUMMARY.validate_json(
        (shelf.place / PAPER.id / "summary.json").read_bytes()
    ).papers
    assert summary.claims_text == line
    tiles = text(
        (shelf.place / "index.html")
        .read_text()
        .partition('<dl class="tiles">')[2]
        .partition("</dl>")[0]
    )
    assert f"settings 7 of {len(PAPER.claims)} 3 hold, 2 fail, 1 mixed, 1 undecided" in tiles
    assert (
        "scaled-down checks of the others 5 2 same direction, 1 opposite direction, 0 mixed, 2 unclear"
        in tiles
    )


def test_every_page_begins_with_a_picture(shelf):
    """A square per claim; on the page of the paper also a point per measured percentage, a ring if it is reduced."""
    for file in (shelf.place / "index.html", shelf.place / PAPER.id / "index.html"):
        html = file.read_text()
        board = html.partition('<figure class="board">')[2].partition("</figure>")[0]
        assert board.count("<li ") == len(PAPER.claims)
        for word, (number, _) in GIVEN.items():
            assert f"{number} {word}" in text(board)
            assert len(re.findall(rf'title="\w+: {word}"', board)) == number
        assert html.index('<figure class="board">') < html.index('id="summary-head"')
    scatter = html.partition('<figure class="scatter">')[2].partition("</figure>")[0]
    points = re.findall(r'<circle class="(\w+)( ring)?"', scatter)
    shown = [
        line for t in PAPER.tables.values() for line in t.rows if line in ROWS for _ in line.values
    ]
    assert (len(points), sum(bool(ring) for _, ring in points)) == (len(shown), 1)


def test_a_number_that_several_tables_share_is_one_point(tmp_path):
    fill(tmp_path)
    table = paper_table(PAPER.tables["table1"], Evidence(PAPER, list(Results(tmp_path))))
    pages = [
        whole_page(Content("", (PaperReport(PAPER, tables, (), ()),)))
        for tables in ((table,), (table,) * 3)
    ]
    said = f">{sum(len(row.values) for row in ROWS)} printed percentages and what was measured"
    assert [page.count(said) for page in pages] == [1, 1]


def test_what_is_to_be_known_before_the_counts_stands_before_them():
    note = papers()["known"].paper.note
    assert "do not print" in note
    html = whole_page(Content("Known", (PaperReport(papers()["known"], (), (), ()),)))
    assert 0 < text(html).index(note) < text(html).index("distinct printed numbers")


def test_the_counts_of_a_small_bundle(shelf):
    """Table 1 prints 60 numbers; of the 12 of Table 2 it has 6, and of the 6 of Table 3 one."""
    page = (shelf.place / "index.html").read_text()
    distinct = 60 + 6 + 5
    assert (
        f"6 of {distinct} distinct printed numbers measured, 5 in full and 1 reduced" in shelf.whole
    )
    # of an hour of training and half an hour of evaluation
    assert "12 runs, 18.0 hours" in text(page)
    (row,) = numbers(page, 'id="numbers-head"')
    assert row.startswith(f"FedCAda {distinct} 5 1 {distinct - 6} ")


def test_pages_of_no_paper_are_linked(shelf):
    page = (shelf.place / "index.html").read_text()
    assert '<a href="contest/index.html">contest</a>' in page
    assert "FedFa" not in page


@pytest.fixture
def copy(shelf, tmp_path):
    return shutil.copytree(shelf.place, tmp_path / "published")


def test_a_report_without_a_summary_is_to_be_written_again(copy):
    (copy / PAPER.id / "summary.json").unlink()
    status, _, err = call("report", str(copy))
    assert status == 2
    assert (
        f"write the report again: fedbench report {copy / PAPER.id} --into {copy / PAPER.id}" in err
    )


# ---- the same again, and what is refused


def test_the_same_reports_give_the_same_bytes_anywhere(shelf, copy):
    status, out, err = call("report", str(copy))
    assert (status, err) == (0, "")
    assert out.splitlines()[-1] == f"written: {copy / 'index.html'}"
    assert files(copy) == files(shelf.place)
    assert str(copy).encode() not in (copy / "index.html").read_bytes()


def test_which_directories_have_a_front_page(shelf, tmp_path):
    assert is_collection(shelf.place)
    assert not is_collection(shelf.place / PAPER.id)
    fill(tmp_path / "results")
    assert not is_collection(tmp_path / "results")
    shutil.copytree(shelf.place / PAPER.id, tmp_path / "results" / "mine")  # published next to runs
    assert not is_collection(tmp_path / "results")


@pytest.mark.parametrize("more", [["--into", "out"], ["--paper", "fedcada"], ["--compare", "algo"]])
def test_what_is_meant_for_a_single_report_is_refused(shelf, more):
    status, _, err = call("report", str(shelf.place), *more)
    assert (status, "contains no runs" in err) == (2, True)
