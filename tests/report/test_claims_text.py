"""Claims as text: what is said of verdicts and comparisons that are made up here, and how claims are counted."""

import csv
import io
from collections import Counter
from dataclasses import replace

import pytest

from fedbench.analysis.claims.comparison import Comparison, above
from fedbench.analysis.claims.verdict import Verdict, decide
from fedbench.analysis.departures import Unit
from fedbench.analysis.matching import MatchedRuns
from fedbench.analysis.table_model import Coverage
from fedbench.papers.readings import ADOPTED, Reading
from fedbench.papers.registry import papers
from fedbench.reports.claim_texts import (
    Judged,
    blocks_text,
    counts_text,
    interval_text,
    judged,
    lead_text,
    needs_text,
    one_way_text,
    pairs_text,
    readings_text,
    reason_text,
    reductions_text,
    scaled_word,
    state_of,
)
from fedbench.reports.paper import (
    PaperReport,
    PaperSummary,
    claims_rows,
    comparisons_csv,
    readings_csv,
)
from fedbench.reports.templates import BADGES

PAPER = papers()["adafedadam"]
CLAIM = next(iter(PAPER.claims.values()))
FULL, CUT = (
    MatchedRuns({}),
    MatchedRuns({}, departs=("rounds 2 (paper 9)", "model linear (paper VGG11)")),
)


def lead(size, n=10, found=FULL, label="x"):
    """A comparison whose leads are all alike."""
    return above(label, {Unit(0, seed): float(size) for seed in range(n)}, [found])


AHEAD, BEHIND, LEVEL = decide([lead(1)]), decide([lead(-1)]), decide([lead(0)])


# ---- the word, the counts and the reason


@pytest.mark.parametrize(
    ("comparisons", "text"),
    [
        ([], ""),
        ([Comparison("a")], "1 comparison, none run"),
        ([lead(1), lead(1), lead(-1), lead(0)], "2 of 4 shown, 1 refuted"),
        ([lead(1), Comparison("a"), Comparison("b")], "1 of 3 run: 1 of 1 shown, 0 refuted"),
    ],
)
def test_counts_stand_beside_the_word(comparisons, text):
    assert counts_text(decide(comparisons)) == text


def test_the_reason_is_what_is_most_against_the_claim():
    assert (
        reason_text(decide([lead(1, 6)]))
        == "the weakest: x: +1 over 6 seeds, p = 0.0156 for it, 1.0000 against it"
    )
    several = decide([lead(1, 5), lead(1, 5), Comparison("z", uneven=True)])
    assert reason_text(several).startswith("the worst: x: +1 over 5 seeds, ")
    assert reason_text(several).endswith(
        "; not compared, since the two sides are reduced in different ways: 1"
    )
    assert reason_text(decide([replace(lead(1, 1), reduced=("rounds",))])).endswith(
        "; could not hold with 1 seed (5 needed)"
    )
    assert reason_text(decide([Comparison("x")])) == ""
    assert (
        reason_text(Verdict("holds", "all 9 printed numbers agree", basis="print"))
        == "all 9 printed numbers agree"
    )
    untuned = decide([replace(lead(1), untuned=True)])
    assert (untuned.word, reason_text(untuned).partition("; ")[2].partition(":")[0]) == (
        "undecided",
        "not tuned alike",
    )


@pytest.mark.parametrize(
    ("comparisons", "text"),
    [
        ([lead(1, 6)], ""),
        ([lead(0, 4)], "could not hold with 4 seeds (5 needed)"),
        ([lead(1, 5)] * 4, "not sure to fail with 5 seeds (7 needed)"),
        ([lead(-1, 5)] * 4, "not sure to fail with 5 seeds (7 needed)"),
        ([lead(-1, 7)] * 4, ""),
        ([lead(-1, 5), lead(-1, 4)], "could not hold with 4 seeds (5 needed)"),
        ([replace(lead(1, 2), blocks="split")], "could not hold with 2 splits (5 needed)"),
    ],
)
def test_what_could_only_come_out_one_way_says_so(comparisons, text):
    verdict = decide(comparisons)
    assert (one_way_text(verdict), verdict.counts) == (text, not text)


@pytest.mark.parametrize(
    ("decided", "shown"),
    [("holds", ""), ("fails", ""), ("mixed", ""), ("undecided", "a GPU"), ("not run", "a GPU")],
)
def test_what_a_decision_needs_is_said_of_open_claims_only(decided, shown):
    assert needs_text(replace(CLAIM, needs="a GPU"), Verdict(decided, "")) == shown


# ---- runs at reduced settings


@pytest.mark.parametrize(
    ("leads", "n", "word"),
    [
        ((1, 1), 10, "same direction"), ((-1, -1), 10, "opposite direction"), ((1, -1), 10, "mixed"),
        ((1, 0), 10, "unclear"), ((1, 1), 4, "unclear"), ((-1, None), 10, ""),
    ],
)  # fmt: skip
def test_a_scaled_down_check_has_words_of_its_own(leads, n, word):
    verdict = decide([Comparison("y") if size is None else lead(size, n, CUT) for size in leads])
    one = judged(CLAIM, {ADOPTED: verdict})
    assert (one.word, one.state, one.scaled, one.counts) == (
        "not run",
        "not run",
        word,
        "2 comparisons, none run",
    )
    assert reductions_text(verdict) == "rounds 2 (paper 9); model linear (paper VGG11)"


def test_a_check_of_rows_that_are_not_tuned_alike_is_unclear():
    assert scaled_word(decide([replace(lead(1, 10, CUT), untuned=True)])) == "unclear"
    assert scaled_word(AHEAD) == ""


# ---- comparisons


@pytest.mark.parametrize(
    ("comparison", "word"),
    [
        (Comparison("a"), "not run"),
        (Comparison("a", uneven=True), "not comparable"),
        *zip(
            decide([lead(1), lead(-1), lead(0)]).comparisons,
            ("shown", "refuted", "open"),
            strict=True,
        ),
    ],
)
def test_what_a_comparison_is(comparison, word):
    assert state_of(comparison) == word
    assert BADGES["comparison"][word]["word"] == word


def test_a_comparison_shows_its_lead_and_interval():
    c = Comparison(
        "a", 1.5, 0.25, 1.0, 2, low=-1.0, high=4.0, blocks="split", differences={3: 2.0, 0: 1.0}
    )
    assert (lead_text(c), interval_text(c), pairs_text(c)) == ("+1.5", "-1 to +4", "2 splits")
    assert (lead_text(Comparison("a")), pairs_text(Comparison("a"))) == ("", "")


# ---- readings


def test_one_sentence_says_whether_readings_agree():
    other, third = Reading("unweighted"), Reading(round="best")
    assert readings_text({ADOPTED: AHEAD}) == ""
    # four seeds decide nothing
    assert readings_text({ADOPTED: AHEAD, other: decide([lead(-1, 4)])}) == ""
    agree = {ADOPTED: AHEAD, other: decide([lead(2)]), third: decide([lead(1, 3)])}
    assert readings_text(agree) == "the same under all 2 readings that were run"
    assert readings_text({**agree, third: LEVEL}) == "differs: best round"
    assert (
        readings_text({ADOPTED: AHEAD, other: BEHIND, third: LEVEL})
        == "differs: unweighted; best round"
    )
    assert (
        readings_text({ADOPTED: AHEAD, Reading(splits="drawn", variant="v"): BEHIND})
        == "differs: other splits, v"
    )


# ---- files


def report_of(found):
    return PaperReport(PAPER, (), (), ((CLAIM, found),))


def rows(text):
    return list(csv.DictReader(io.StringIO(text)))


def test_files_have_the_word_and_the_counts():
    """Six splits of four comparisons: not sure to fail, so that the reading is listed and not counted."""
    seeds, splits = (decide([lead(1, n, label=str(i)) for i in range(4)]) for n in (10, 6))
    splits = replace(
        splits, comparisons=tuple(replace(c, blocks="split") for c in splits.comparisons)
    )
    report = report_of({ADOPTED: seeds, Reading(splits="drawn"): splits})
    (claim,) = claims_rows(report)
    said = {
        "id": CLAIM.id,
        "verdict": "holds",
        "counts": "4 of 4 shown, 0 refuted",
        "basis": "runs",
        "counted": True,
    }
    assert {k: claim[k] for k in (*said, "scaled", "readings", "reduced")} == {
        **said, "scaled": "", "readings": "", "reduced": "",
    }  # fmt: skip
    first, second = rows(readings_csv(report))
    assert list(first) == [
        "claim", "weighting", "round", "data splits", "settings", "adopted", "verdict", "scaled", "counts",
        "scaled_counts", "blocks",
    ]  # fmt: skip
    assert [second[k] for k in ("data splits", "adopted", "verdict", "scaled", "counts", "blocks")] == [
        "all splits that have been run", "False", "holds", "", "4 of 4 shown, 0 refuted", "6 splits",
    ]  # fmt: skip
    assert blocks_text(seeds) == "10 seeds"


def test_comparisons_are_plain_numbers_and_reduced_ones_are_marked():
    full, cut = rows(comparisons_csv(report_of({ADOPTED: decide([lead(-1, 5), lead(1, 5, CUT)])})))
    words = ("claim", "label", "state", "reduced", "untuned", "unit", "blocks")
    assert [full[k] for k in words] == [CLAIM.id, "x", "open", "False", "False", "", "seed"]
    assert cut["reduced"] == "True"
    numbers = (
        "lead",
        "lower",
        "upper",
        "pairs",
        "for_p",
        "against_p",
        "adjusted_for_p",
        "adjusted_against_p",
    )
    # behind with all five, and under the opposite signs the other one is as extreme: 2 / 32
    assert [float(full[k]) for k in numbers] == [-1, -1, -1, 5, 1, 1 / 32, 1, 2 / 32]


# ---- counts


def summary(*claims):
    return PaperSummary("x", "X", "", Coverage(), claims, runs=0, hours=0.0)


def test_every_claim_is_counted_once():
    given = [
        AHEAD, AHEAD, BEHIND, decide([lead(1), lead(-1)]), LEVEL, decide([lead(1, 3)]), decide([lead(-1), lead(-1, 3)]),
        decide([Comparison("x")]), decide([lead(1, 10, CUT)]), decide([lead(-1, 10, CUT)]), decide([]),
        Verdict("holds", "", "test"), Verdict("fails", "", "print"), Verdict("holds", "", "print"),
    ]  # fmt: skip
    found = summary(*(judged(CLAIM, {ADOPTED: verdict}) for verdict in given))
    states = {
        "holds": 2, "fails": 1, "mixed": 1, "undecided": 1, "not counted": 2, "not run": 3, "not testable": 1,
        "test": 1, "print": 2,
    }  # fmt: skip
    assert (found.states, found.scaled) == (
        Counter(states),
        Counter({"same direction": 1, "opposite direction": 1}),
    )
    assert set(states) == set(BADGES["state"])
    assert found.claims_text == (
        "14 claims: 2 hold, 1 fail, 1 mixed, 1 undecided, 2 not counted, 3 not run, 1 shown by a test of the code, "
        "2 checked in print, 1 not testable; scaled-down checks of those not run: 1 same direction, "
        "1 opposite direction"
    )


def test_without_claims_there_is_nothing_to_count():
    assert summary().claims_text == "0 claims"
    assert summary(Judged("a", "holds")).claims_text == "1 claim: 1 hold"


def test_every_word_on_the_page_has_an_icon():
    for known in BADGES.values():
        assert all(badge["icon"] for badge in known.values() if badge["word"])
