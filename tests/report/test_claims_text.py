"""Claims as text: counts by hand, and what a comparison points to."""

import csv
import io
from dataclasses import replace
from types import SimpleNamespace

import pytest

from fedbench.analysis.claims.comparison import Comparison, above
from fedbench.analysis.claims.multiverse import Multiverse, headline
from fedbench.analysis.claims.verdict import Counts, Verdict, decide
from fedbench.analysis.departures import Unit
from fedbench.analysis.matching import MatchedRuns
from fedbench.papers.readings import ADOPTED, Reading
from fedbench.papers.registry import papers
from fedbench.report.format import BADGES, Judged, badge_of, claim_states
from fedbench.report.paper import (
    PaperReport,
    alternatives,
    blocks_text,
    claims_markdown,
    comparisons_csv,
    counts_text,
    differences,
    direction,
    interval_text,
    judged,
    lead_text,
    needs,
    pairs_text,
    read_as,
    reading_counts,
    readings_csv,
    reason,
)  # fmt: skip

PAPER = papers()["adafedadam"]
CLAIM = next(iter(PAPER.claims.values()))


@pytest.mark.parametrize(
    ("counts", "text"),
    [
        (Counts(), ""),
        (Counts(total=1), "1 comparison, none run"),
        (
            Counts(48, 12, 9, 2, 7, 1),
            "48 comparisons, 12 run: 9 point the paper's way (7 significant), 2 against it (1 significant), 1 level",
        ),
        (
            Counts(2, 2, 0, 2, 0, 2),
            "2 comparisons: 0 point the paper's way (0 significant), 2 against it (2 significant)",
        ),
    ],
)
def test_counts_say_what_points_against_a_claim(counts, text):
    assert counts_text(SimpleNamespace(counts=counts)) == text


def test_the_reason_is_what_is_most_against_the_claim():
    leads = {Unit(seed, seed): 1.0 for seed in range(5)}
    shown = above("x", leads, [MatchedRuns({})])
    holds = decide([shown])
    assert reason(holds) == "the weakest: x: +1 over 5 seeds, p = 0.0312 for it, 1.0000 against it"
    barred = replace(holds, verdict="undecided", barred="holds")
    assert reason(barred) == f"{reason(holds)}; runs at reduced settings cannot show it"
    several = decide([shown, above("y", leads, [MatchedRuns({})]), Comparison("z", uneven=True)])
    assert reason(several).startswith("the worst: x: +1 over 5 seeds, ")
    assert reason(several).endswith("; not compared, since the two sides are reduced in different ways: 1")
    few = decide([above("x", {Unit(0, 0): 1.0}, [MatchedRuns({})])])
    assert reason(few).endswith("; could not hold with 1 seed (5 needed)")
    assert reason(decide([Comparison("x")])) == ""
    assert reason(Verdict("holds", "all 9 printed numbers agree", basis="print")) == "all 9 printed numbers agree"


@pytest.mark.parametrize(
    ("comparison", "word"),
    [
        (Comparison("a"), "not run"),
        (Comparison("a", uneven=True), "not comparable"),
        (Comparison("a", 1.0, 0.03, 0.98, 5), "significantly for"),
        (Comparison("a", 1.0, 0.3, 0.8, 5), "for"),
        (Comparison("a", 0.0, 1.0, 1.0, 5), "level"),
        (Comparison("a", -1.0, 0.8, 0.3, 5), "against"),
        (Comparison("a", -1.0, 0.98, 0.03, 5), "significantly against"),
        (Comparison("a", 1.0, 0.03, 0.98, 5, parts=(Comparison("b"),)), "incomplete"),
        (Comparison("a", 1.0, 0.03, 0.98, 5, against_p=1.0), "significantly for"),  # by itself, both ways
        (Comparison("a", -1.0, 0.98, 0.03, 5, against_p=0.06), "significantly against"),
    ],
)
def test_a_comparison_points_somewhere(comparison, word):
    assert direction(comparison) == word
    assert badge_of("comparison", word).word


def test_a_comparison_shows_its_lead_per_block():
    c = Comparison("a", 1.5, 0.25, 1.0, 2, low=-1.0, high=4.0, blocks="split", differences={3: 2.0, 0: 1.0})
    assert (lead_text(c), interval_text(c), pairs_text(c)) == ("+1.5", "-1 to +4", "2 splits")
    assert differences(c) == [("split 0", "+1"), ("split 3", "+2")]
    assert (lead_text(Comparison("a")), pairs_text(Comparison("a")), differences(Comparison("a"))) == ("", "", [])


@pytest.mark.parametrize(
    ("leads", "kind", "verdict", "blocks"),
    [
        ([1.0, 1.0], "split", "too few splits", "2 splits"),
        ([1.0], "seed", "too few seeds", "1 seed"),
        ([1.0, -1.0] * 5, "seed", "undecided", "10 seeds"),
        ([1.0] * 5, "split", "holds", "5 splits"),
    ],
)
def test_too_few_splits_are_told_apart_from_what_is_measured_and_undecided(leads, kind, verdict, blocks):
    unit = (lambda i: Unit(i, 0)) if kind == "split" else (lambda i: Unit(0, i))
    found = MatchedRuns({}, reading=Reading(splits="drawn" if kind == "split" else "fixed"))
    one = decide([above("a", {unit(i): lead for i, lead in enumerate(leads)}, [found])])
    assert (read_as(one), blocks_text(one)) == (verdict, blocks)
    assert badge_of("reading", verdict).tone == ("mute" if "too few" in verdict else BADGES["runs"][verdict].tone)


def report_of(found):
    return PaperReport(PAPER, (), (), ((CLAIM, found),))


def rows(text):
    return list(csv.DictReader(io.StringIO(text)))


def test_what_has_not_been_measured_stands_beside_the_headline():
    """Six splits of four comparisons: the reading may not have been able to fail, and its axis is named."""
    seeds, splits = (decide([Comparison(str(i), 1.0, 2**-n, 1.0, n) for i in range(4)]) for n in (10, 6))
    drawn = Reading(splits="drawn")
    found = Multiverse({ADOPTED: seeds, drawn: splits}, headline({ADOPTED: seeds, drawn: splits}))
    one = judged(CLAIM, found)
    assert (one.verdict, one.headline, one.readings) == (
        "holds", "one reading", "one reading; not measured: data splits",
    )  # fmt: skip
    assert reading_counts(splits).partition("; ")[2] == "not sure to fail with 6 seeds (7 needed)"
    first, second = rows(readings_csv(report_of(found)))
    assert list(first) == [
        "claim", "weighting", "round", "data splits", "settings", "adopted", "verdict", "blocks", "counts",
    ]  # fmt: skip
    assert [second[k] for k in ("data splits", "adopted", "verdict", "blocks")] == [
        "all splits that have been run", "False", "holds", "6 seeds",
    ]  # fmt: skip
    assert "| holds   | runs  | one reading; not measured: data splits" in claims_markdown(report_of(found))


def test_comparisons_are_plain_numbers():
    found = Comparison("a", -1.0, 0.98, 1 / 3, 5, low=-2.0, high=0.5, unit="points", group="G")
    verdict = replace(decide([found]), verdict="undecided")
    (row,) = rows(comparisons_csv(report_of(Multiverse({ADOPTED: verdict}))))
    assert [row[k] for k in ("claim", "group", "label", "direction", "unit", "blocks")] == [
        CLAIM.id, "G", "a", "against", "points", "seed",
    ]  # fmt: skip
    assert [float(row[k]) for k in ("lead", "lower", "upper", "pairs", "for_p", "against_p")] == [
        -1, -2, 0.5, 5, 0.98, 1 / 3,
    ]  # fmt: skip


def test_alternatives_of_a_paper_carry_their_reasons():
    found = alternatives(PAPER)
    assert ("weighting", "unweighted") in {(axis, value) for axis, value, _ in found}
    assert all(why for _, _, why in found)


@pytest.mark.parametrize(
    ("decided", "shown"), [("holds", ""), ("fails", ""), ("undecided", "a GPU"), ("not run", "a GPU")]
)
def test_what_a_decision_needs_is_said_of_open_claims_only(decided, shown):
    assert needs(replace(CLAIM, needs="a GPU"), Verdict(decided, "")) == shown


def test_claims_are_counted_by_what_decides_them():
    claims = [
        Judged("a", "holds", headline="robust"),
        Judged("b", "fails", headline="depends on"),
        Judged("c", "undecided"),
        Judged("d", "holds", "proof"),
        Judged("e", "fails", "print"),
    ]
    assert claim_states(claims).text == (
        "2 of 3 claims about runs settled: 1 hold, 1 depend on the reading, 1 undecided, 2 proof or print"
    )
    assert [c.state for c in claims] == ["holds", "depends", "undecided", "without runs", "without runs"]


def test_every_word_on_the_page_has_an_icon():
    for known in BADGES.values():
        assert all(badge.icon for badge in known.values() if badge.word)
