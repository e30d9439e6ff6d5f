"""The front page of published reports: counts by hand, sentences that must state their verdicts, and equal bytes."""

import json
import re
import shutil
from collections import Counter

import numpy as np
import pytest
from fake_runs import fake_row
from report_runs import call, files

from fedbench.core.errors import RequestError
from fedbench.papers.registry import papers
from fedbench.report import write
from fedbench.report.canvas import method_look
from fedbench.report.format import ClaimStates, Judged, claim_states
from fedbench.report.overview import is_collection, write_overview
from fedbench.report.plots import DrawnFigure, Panel, Series, curves, drawn
from fedbench.report.write import write_report

PAPER = papers()["fedcada"]
ROWS = [row for row in PAPER.tables["table1"].rows if row.setup == "silo_cifar10_iid"]
SEEDS = 2
LEARNT = "figure: null\nsentences:\n- {text: The rows of <two> tables agree., claim: c23, verdict: holds}\n"


def fill(root):
    """Six rows with a printed number each, the last one reduced; every run takes an hour and a half."""
    for row in ROWS:
        cut = {"rounds": [200, 100]} if row is ROWS[-1] else {}
        for path in fake_row(root, PAPER, row, seeds=range(SEEDS), cut=cut):
            rounds = [json.loads(line) for line in (path / "rounds.jsonl").read_text().splitlines()]
            rounds[-1] |= {"seconds_train": 3600.0, "seconds_eval": 1800.0}
            (path / "rounds.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rounds))


@pytest.fixture(scope="module")
def shelf(tmp_path_factory):
    """A report with a sentence, and one that belongs to no paper."""
    place = tmp_path_factory.mktemp("shelf") / "published"
    root = tmp_path_factory.mktemp("runs")
    fill(root)
    line = Panel("", [Series("a", np.arange(3), np.ones((1, 3)), method_look("fedavg"))], "x", "y")
    figure = DrawnFigure(f"{PAPER.id}/figure3", f"{PAPER.name}, Figure 3")
    with pytest.MonkeyPatch.context() as patch:  # one figure, which needs no runs
        patch.setattr(write, "paper_figures", lambda *given: drawn(figure, given[-1], [("", curves, [line])]))
        write_report(root, place / PAPER.id)
    (place / PAPER.id / "learnt.yaml").write_text(LEARNT)
    (place / "contest").mkdir()
    (place / "contest" / "index.html").write_text("<!DOCTYPE html><title>A contest &amp; its ranks</title>")
    write_overview(place)
    return place


def text(html):
    """What is read of a part of a page."""
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", html)).strip()


def chapter(page, name):
    return text(re.search(rf'<section class="chapter" id="{name}".*?</section>', page, re.S)[0])


# ---- counts


def claim(verdict, headline="", basis="runs", reduced=False):
    return Judged("c1", verdict, basis, headline, reduced=reduced)


def test_every_claim_has_one_state():
    found = claim_states(
        [
            claim("holds", "robust"),
            claim("holds", "robust over", reduced=True),
            claim("fails", "robust"),
            claim("fails", "depends on", reduced=True),
            claim("undecided", "depends on"),
            claim("undecided", "undecided", reduced=True),  # reduced, but not decided
            claim("partly measured", "partly measured"),
            claim("not run", "not run"),
            claim("not testable"),
            claim("holds", basis="proof"),
            claim("fails", basis="print"),
        ]
    )
    states = {
        "holds": 2, "fails": 1, "depends": 2, "undecided": 1, "partly measured": 1, "not run": 1, "not testable": 1,
        "without runs": 2,
    }  # fmt: skip
    assert found == ClaimStates(Counter(states), robust=2, reduced=2)
    assert (found.total, found.testable, found.settled) == (11, 8, 5)


def test_the_counts_of_a_small_bundle(shelf):
    """Table 1 prints 60 numbers; of the 12 of Table 2 it has 6, and of the 6 of Table 3 one."""
    page = (shelf / "index.html").read_text()
    distinct = 60 + 6 + 5
    assert f"6 of {distinct} distinct printed numbers measured, 5 in full and 1 reduced" in chapter(page, PAPER.id)
    assert "12 runs, 18.0 hours" in chapter(page, PAPER.id)  # of an hour of training and half an hour of evaluation
    rows = [text(row) for row in re.findall(r'<tr class="counts">.*?</tr>', page, re.S)]
    assert any(row.startswith(f"FedCAda {distinct} 5 1 {distinct - 6} ") for row in rows)
    claims = next(row for row in rows if row.startswith(f"FedCAda {len(PAPER.claims)} "))
    states = list(map(int, claims.split()[2:10]))
    assert sum(states) == len(PAPER.claims)
    assert states[:3] == [0, 0, 0]  # two seeds decide nothing
    assert states[6:] == [2, 1]  # c29 and c30 name no comparison; c23 is about the printed numbers


def test_pages_of_no_paper_are_linked(shelf):
    page = (shelf / "index.html").read_text()
    assert '<a href="contest/index.html">contest</a>' in page
    assert "FedFa" not in page


# ---- sentences


def test_a_sentence_links_to_its_claim(shelf):
    page = (shelf / "index.html").read_text()
    assert "The rows of &lt;two&gt; tables agree." in page
    (link,) = re.findall(r'href="fedcada/index\.html#([^"]*)">c23</a>', page)
    assert f'id="{link}"' in (shelf / PAPER.id / "index.html").read_text()
    assert "printed numbers agree" in chapter(page, PAPER.id)


@pytest.fixture
def copy(shelf, tmp_path):
    return shutil.copytree(shelf, tmp_path / "published")


@pytest.mark.parametrize(
    ("sentence", "message"),
    [
        ("claim: c23, verdict: fails", "c23 is stated as 'fails', and the runs give 'holds': Stale."),
        ("claim: c23, verdict: holds, readings: robust", "c23 is stated as 'holds; robust', and the runs give 'holds'"),
        ("claim: c2E, verdict: holds", "c2E is unknown; did you mean "),
        ("claim: c23", "lacks verdict"),
    ],
)
def test_a_stale_sentence_is_refused_and_the_page_stays(copy, sentence, message):
    before = (copy / "index.html").read_bytes()
    (copy / PAPER.id / "learnt.yaml").write_text(f"sentences:\n- {{text: Stale., {sentence}}}\n")
    status, _, err = call("report", str(copy))
    assert (status, message in err) == (2, True), err
    assert "learnt.yaml" in err
    assert "Traceback" not in err
    assert (copy / "index.html").read_bytes() == before


def test_the_figure_is_that_of_the_report_and_must_exist(copy):
    file = copy / PAPER.id / "learnt.yaml"
    file.write_text("figure: figure9\n")
    with pytest.raises(RequestError, match="figure9 has no picture; it must be one of figure3"):
        write_overview(copy)
    file.write_text("figure: figure3\n")
    write_overview(copy)
    assert f'<code class="name">{PAPER.id}/figure3</code>' in (copy / "index.html").read_text()


def test_a_report_without_a_summary_is_to_be_written_again(copy):
    (copy / PAPER.id / "summary.json").unlink()
    status, _, err = call("report", str(copy))
    assert status == 2
    assert f"write the report again: fedbench report {copy / PAPER.id} --into {copy / PAPER.id}" in err


# ---- the same again, and what is refused


def test_the_same_reports_give_the_same_bytes_anywhere(shelf, copy):
    status, out, err = call("report", str(copy))
    assert (status, err) == (0, "")
    assert out.splitlines()[-1] == f"written: {copy / 'index.html'}"
    assert files(copy) == files(shelf)
    assert str(copy).encode() not in (copy / "index.html").read_bytes()


def test_which_directories_have_a_front_page(shelf, tmp_path):
    assert is_collection(shelf)
    assert not is_collection(shelf / PAPER.id)
    fill(tmp_path / "results")
    assert not is_collection(tmp_path / "results")
    shutil.copytree(shelf / PAPER.id, tmp_path / "results" / "mine")  # published next to runs
    assert not is_collection(tmp_path / "results")


@pytest.mark.parametrize("more", [["--into", "out"], ["--paper", "fedcada"], ["--compare", "algo"]])
def test_what_is_meant_for_a_single_report_is_refused(shelf, more):
    status, _, err = call("report", str(shelf), *more)
    assert (status, "contains no runs" in err) == (2, True)
