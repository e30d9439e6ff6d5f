"""Claims as text: made-up verdicts and comparisons in words and files, and the counts of claims."""

import math
from dataclasses import replace

import pytest
from table_readers import read_csv
from units import by_unit

from fedbench.analysis.claims.comparison import RATIO, Comparison, above, joined
from fedbench.analysis.claims.verdict import Verdict, decide
from fedbench.analysis.matching import MatchedRuns
from fedbench.papers.readings import ADOPTED, Reading
from fedbench.papers.registry import papers
from fedbench.reports.claim_texts import (
    counts_text,
    effect_text,
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
    comparisons_csv,
)
from fedbench.reports.templates import BADGES

PAPER = papers()["adafedadam"]
CLAIM = next(iter(PAPER.claims.values()))
FULL = MatchedRuns({})
TUNED = MatchedRuns({}, searched=True)
CUT = MatchedRuns({}, departs=("rounds 2 (paper 9)", "model linear (paper VGG11)"))


def lead(size, n=10, runs=FULL):
    """A comparison whose leads are all alike."""
    leads = [float(size)] * n
    return above("x", by_unit(leads), [runs])


NOT_RUN = Comparison("a")
AHEAD = decide([lead(1)])
BEHIND = decide([lead(-1)])
LEVEL = decide([lead(0)])
MIXED = decide([lead(1), lead(-1)])


# ---- the word, the counts and the reason


@pytest.mark.parametrize(
    ("comparisons", "text"),
    [
        ([], ""),
        ([NOT_RUN], "1 comparison, none run"),
        ([lead(1), lead(1), lead(-1), lead(0)], "2 of 4 shown, 1 refuted"),
        ([lead(1), NOT_RUN, NOT_RUN], "1 of 3 run: 1 of 1 shown, 0 refuted"),
        ([lead(-1), NOT_RUN], "1 of 2 run: 0 of 1 shown, 1 refuted"),  # cannot hold
    ],
)
def test_counts_stand_beside_the_word(comparisons, text):
    assert counts_text(decide(comparisons)) == text


def test_the_reason_is_the_weakest_comparison():
    text = "the weakest: x: +1 over 6 splits, p = 0.0156 for it, 1.0000 against it"
    assert reason_text(decide([lead(1, 6)])) == text
    uneven = Comparison("z", uneven=True)
    several = reason_text(decide([lead(1, 5), lead(1, 5), uneven]))
    assert several.startswith("the worst: x: +1 over 5 splits, ")
    assert several.endswith("; not compared, since the two sides are reduced in different ways: 1")
    few = reason_text(decide([lead(1, 1, CUT)]))
    assert few.startswith("the worst (reduced): x: ")
    assert few.endswith("; could not hold with 1 split (5 needed)")
    assert reason_text(decide([NOT_RUN])) == ""
    assert reason_text(Verdict("holds", "all 9 agree", basis="print")) == "all 9 agree"


def test_rows_that_are_not_tuned_alike_leave_a_claim_undecided():
    verdict = decide([replace(lead(1), untuned=True)])
    assert verdict.word == "undecided"
    assert "; not tuned alike" in reason_text(verdict)
    reduced = decide([replace(lead(1, runs=CUT), untuned=True)])
    assert scaled_word(reduced) == "unclear"


@pytest.mark.parametrize(
    ("comparisons", "text"),
    [
        ([lead(1, 6)], ""),
        ([lead(0, 4)], "could not hold with 4 splits (5 needed)"),
        ([lead(1, 5)] * 4, "might have been unable to fail with 5 splits (7 needed)"),
        ([lead(-1, 5)] * 4, "might have been unable to fail with 5 splits (7 needed)"),
        ([lead(-1, 7)] * 4, ""),
        ([replace(lead(1, 2), blocks="seed")], "could not hold with 2 seeds (5 needed)"),
    ],
)
def test_a_claim_that_could_only_come_out_one_way_says_so_and_is_not_counted(comparisons, text):
    verdict = decide(comparisons)
    assert one_way_text(verdict) == text
    assert verdict.counts == (text == "")


def test_a_reading_that_has_not_been_run_says_so():
    """Before too few splits, which are named otherwise."""
    for lacking in (AHEAD, decide([lead(1, 2)]), decide([lead(-1), NOT_RUN])):
        verdict = replace(lacking, unread=("slow", "own"))
        assert one_way_text(verdict) == "without runs of the reading slow, own"
        assert judged(CLAIM, {ADOPTED: verdict}, PAPER).state == "not counted"
        assert not verdict.counts


@pytest.mark.parametrize("confirmed", ["", "p1"])
@pytest.mark.parametrize(
    ("verdict", "has_status"),
    [
        (AHEAD, True),
        (decide([lead(-1), NOT_RUN]), True),  # cannot hold
        (decide([NOT_RUN]), False),
        (decide([]), False),
        (Verdict("holds", basis="test"), False),
        (Verdict("fails", basis="print"), False),
    ],
)
def test_a_verdict_from_runs_is_confirmed_or_exploratory(verdict, has_status, confirmed):
    """Confirmed by a plan, with the word of the exploratory verdict beside it."""
    planned = replace(verdict, confirmed=confirmed, explored="mixed" if confirmed else "")
    shown = judged(CLAIM, {ADOPTED: planned}, PAPER)
    status = "confirmed" if confirmed else "exploratory"
    assert shown.status == (status if has_status else "")
    assert (shown.confirmed, shown.explored) == (planned.confirmed, planned.explored)


@pytest.mark.parametrize(
    ("runs", "settings", "standing"),
    [
        ([FULL, FULL], "as printed", "holds, exploratory, as printed"),
        ([FULL, TUNED], "retuned", "holds, exploratory, retuned"),
        ([TUNED, CUT], "reduced", "partly run"),
        ([], "", "not run"),
    ],
)
def test_a_verdict_names_the_settings_of_its_runs(runs, settings, standing):
    verdict = decide([lead(1, runs=side) for side in runs] or [NOT_RUN])
    shown = judged(CLAIM, {ADOPTED: verdict}, PAPER)
    assert shown.settings == verdict.settings == settings
    assert shown.standing == standing


def test_a_partly_run_claim_says_whether_a_plan_asked_for_the_runs():
    partly = decide([lead(1), NOT_RUN])
    for plan, standing in (("", "partly run"), ("p1", "partly run, planned")):
        shown = judged(CLAIM, {ADOPTED: replace(partly, confirmed=plan)}, PAPER)
        assert shown.standing == standing


@pytest.mark.parametrize(
    ("size", "n", "end"),
    [(1, 10, "for the claim"), (-1, 10, "against the claim"), (1, 4, "open"), (-1, 4, "open")],
)
def test_an_effect_is_open_unless_it_is_shown_or_refuted(size, n, end):
    """On four splits p is at least 1/16, although all leads have the same sign."""
    assert effect_text(decide([lead(size, n)])).endswith(f", {end}")


def test_parts_share_their_settings():
    together = joined("both", [lead(1), lead(1, runs=TUNED)], every=True)
    assert decide([together]).settings == "retuned"
    assert Verdict("holds", basis="test").settings == ""


def test_a_level_below_the_usual_one_is_printed():
    """Also where the first comparison has not been run: its level decides for all."""
    some = decide([NOT_RUN, lead(-1, 6)], alpha=0.025)
    assert counts_text(some) == "1 of 2 run: 0 of 1 shown, 1 refuted, at level 0.025"
    assert some.word == "not run"  # 2 * 2^-6 = 0.031
    assert decide([NOT_RUN, lead(-1, 6)]).word == "cannot hold"


@pytest.mark.parametrize("word", ["holds", "fails", "mixed", "undecided", "not run"])
def test_the_needs_of_a_decision_are_shown_for_open_claims_only(word):
    shown = needs_text(replace(CLAIM, needs="a GPU"), Verdict(word, ""))
    assert shown == ("a GPU" if word in ("undecided", "not run") else "")


# ---- runs at reduced settings


@pytest.mark.parametrize(
    ("leads", "n", "word"),
    [
        ((1, 1), 10, "same direction"),
        ((-1, -1), 10, "opposite direction"),
        ((1, -1), 10, "mixed"),
        ((1, 0), 10, "unclear"),
        ((1, 1), 4, "unclear"),
        ((-1, None), 10, ""),
    ],
)
def test_a_scaled_down_check_has_words_of_its_own(leads, n, word):
    verdict = decide([NOT_RUN if size is None else lead(size, n, CUT) for size in leads])
    shown = judged(CLAIM, {ADOPTED: verdict}, PAPER)
    assert shown.word == shown.state == "not run"
    assert shown.scaled == word
    assert shown.counts == "2 comparisons, none run"
    assert reductions_text(verdict) == "rounds 2 (paper 9); model linear (paper VGG11)"


# ---- comparisons


@pytest.mark.parametrize(
    ("comparison", "word"),
    [
        (NOT_RUN, "not run"),
        (Comparison("a", uneven=True), "not comparable"),
        (AHEAD.comparisons[0], "shown"),
        (BEHIND.comparisons[0], "refuted"),
        (LEVEL.comparisons[0], "open"),
    ],
)
def test_the_state_of_a_comparison(comparison, word):
    assert state_of(comparison) == word
    assert BADGES["comparison"][word]["word"] == word


def test_a_comparison_shows_its_lead_and_interval():
    comparison = Comparison("a", 1.5, 0.25, 1.0, 2, low=-1.0, high=4.0)
    assert lead_text(comparison) == "+1.5"
    assert interval_text(comparison) == "-1 to +4"
    assert pairs_text(comparison) == "2 seeds"
    assert pairs_text(replace(comparison, blocks="split")) == "2 splits"
    assert lead_text(NOT_RUN) == pairs_text(NOT_RUN) == interval_text(NOT_RUN) == ""


def test_logarithms_of_ratios_are_shown_as_factors():
    """ln 2 is 2 times as fast; -ln 4 and ln 8.0096 are 0.25 and 8.01 times."""
    ends = {"low": -math.log(4), "high": math.log(8.0096)}
    comparison = Comparison("a", math.log(2), 0.25, 1.0, 2, unit=RATIO, **ends)
    assert lead_text(comparison) == "2 times as fast"
    assert interval_text(comparison) == "0.25 to 8.01"
    assert lead_text(replace(comparison, mean=math.inf)) == "diverged"
    assert lead_text(replace(comparison, unit="points")) == "+0.6931 points"


# ---- readings

UNWEIGHTED = Reading("unweighted")
BEST = Reading(round="best")


@pytest.mark.parametrize(
    ("others", "text"),
    [
        ({}, ""),
        ({UNWEIGHTED: decide([lead(-1, 4)])}, ""),  # four seeds decide nothing
        (
            {UNWEIGHTED: AHEAD, BEST: decide([lead(1, 3)])},
            "the same under all 2 readings that were run",
        ),
        (
            {UNWEIGHTED: BEHIND, BEST: LEVEL},
            "differs: fails (unweighted); undecided (best round)",
        ),
        (
            {Reading(splits="fixed", variant="code"): BEHIND},
            "differs: fails (one split, AdaFedAdam as released)",
        ),
    ],
)
def test_one_sentence_says_whether_readings_agree(others, text):
    assert readings_text({ADOPTED: AHEAD, **others}, PAPER) == text


def test_readings_of_a_partly_run_claim_compare_scaled_down_checks():
    """A reading that refutes another number of the comparisons at the paper's settings is named."""
    partly = replace(decide([lead(1), NOT_RUN]), scaled=AHEAD)
    readings = {ADOPTED: partly, UNWEIGHTED: partly, BEST: decide([lead(-1), NOT_RUN])}
    assert readings_text(readings, PAPER) == (
        "scaled-down check the same under all 2 readings that were run; "
        "1 of 2 run: 0 of 1 shown, 1 refuted (best round)"
    )
    readings = {ADOPTED: partly, UNWEIGHTED: replace(partly, scaled=BEHIND)}
    assert readings_text(readings, PAPER) == "scaled-down check differs: fails (unweighted)"


# ---- files


def report_of(readings):
    return PaperReport(PAPER, (), (), ((CLAIM, readings),))


def test_comparisons_are_plain_numbers_and_reduced_ones_are_marked():
    verdict = decide([lead(-1, 5), lead(1, 5, CUT)])
    full, cut = read_csv(comparisons_csv(report_of({ADOPTED: verdict})))
    words = {
        "claim": CLAIM.id,
        "label": "x",
        "state": "refuted",
        "reduced": "False",
        "untuned": "False",
        "unit": "",
        "blocks": "split",
    }
    assert {name: full[name] for name in words} == words
    assert cut["reduced"] == "True"
    # behind with all five: the reduced comparison does not enter the adjustment
    numbers = {
        "lead": -1,
        "lower": -1,
        "upper": -1,
        "pairs": 5,
        "for_p": 1,
        "against_p": 1 / 32,
        "adjusted_for_p": 1,
        "adjusted_against_p": 1 / 32,
    }
    assert {name: float(full[name]) for name in numbers} == numbers


# ---- counts


def test_every_word_on_the_page_has_an_icon():
    for badges in BADGES.values():
        assert all(badge["icon"] for badge in badges.values() if badge["word"])
