"""Claims as text: counts by hand, and what a comparison points to."""

from dataclasses import replace

import pytest

from fedbench.analysis.claims.comparison import Comparison, above
from fedbench.analysis.claims.multiverse import Multiverse, headline
from fedbench.analysis.claims.verdict import Counts, Verdict, decide
from fedbench.analysis.matching import Evidence, MatchedRuns, Unit
from fedbench.papers.readings import ADOPTED, Reading
from fedbench.papers.registry import papers
from fedbench.report.claim_views import _multiverse, claim_views, comparison_view, counts_text, reading_views
from fedbench.report.words import CLAIMS, mark


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
    assert counts_text(Verdict("undecided", "", counts=counts)) == text


@pytest.mark.parametrize(
    ("comparison", "direction"),
    [
        (Comparison("a"), "not run"),
        (Comparison("a", uneven=True), "not comparable"),
        (Comparison("a", 1.0, 0.03, 0.98, 5), "significantly for"),
        (Comparison("a", 1.0, 0.3, 0.8, 5), "for"),
        (Comparison("a", 0.0, 1.0, 1.0, 5), "level"),
        (Comparison("a", -1.0, 0.8, 0.3, 5), "against"),
        (Comparison("a", -1.0, 0.98, 0.03, 5), "significantly against"),
        (Comparison("a", 1.0, 0.03, 0.98, 5, complete=False), "incomplete"),
        (Comparison("a", 1.0, 0.03, 0.98, 5, against_p=1.0), "significantly for"),  # by itself, both ways
        (Comparison("a", -1.0, 0.98, 0.03, 5, against_p=0.06), "significantly against"),
    ],
)
def test_a_comparison_points_somewhere(comparison, direction):
    assert comparison_view(comparison).direction == direction


def test_a_comparison_shows_its_lead_per_block():
    c = Comparison("a", 1.5, 0.25, 1.0, 2, low=-1.0, high=4.0, blocks="split", differences={3: 2.0, 0: 1.0})
    view = comparison_view(c)
    assert (view.lead, view.interval, view.pairs) == ("+1.5", "-1 to +4", "2 splits")
    assert view.differences == (("split 0", "+1"), ("split 3", "+2"))


def test_nothing_is_said_to_be_without_opposition():
    """Data that point against a claim are counted as such where other data decide that it holds or is open."""
    behind = Comparison("a", -1.0, 0.9, 0.2, 3, differences={0: -2.0, 1: -2.0, 2: 1.0})
    ahead = Comparison("b", 1.0, 1 / 32, 1.0, 5, differences=dict.fromkeys(range(5), 1.0))
    open_, partly = decide([behind, ahead]), decide([behind, Comparison("c")])
    assert (open_.verdict, partly.verdict) == ("undecided", "partly measured")
    assert counts_text(open_) == (
        "2 comparisons: 1 point the paper's way (1 significant), 1 against it (0 significant)"
    )
    assert counts_text(partly) == (
        "2 comparisons, 1 run: 0 point the paper's way (0 significant), 1 against it (0 significant)"
    )
    for found in (open_, partly):  # and the evidence names it
        assert "the worst: a: behind by 1 on average" in found.evidence


def test_both_p_values_of_a_comparison_are_its_own_and_the_adjusted_one_stands_apart():
    view = comparison_view(Comparison("a", -1.0, 0.98, 0.03, 5, against_p=0.06))
    assert (view.for_p, view.against_p, view.adjusted_p) == ("0.9800", "0.0300", "0.0600")


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
    comparison = above("a", {unit(i): lead for i, lead in enumerate(leads)}, [found])
    every = {ADOPTED: decide([Comparison("a")]), Reading(splits="drawn"): decide([comparison])}
    shown = _multiverse(papers()["adafedadam"], Multiverse(every, headline(every)))
    assert [(r.verdict, r.blocks) for r in shown.readings] == [("not run", ""), (verdict, blocks)]
    assert mark("reading", verdict).tone == ("mute" if "too few" in verdict else CLAIMS[verdict].tone)
    assert shown.readings[1].choices == ("all splits that have been run",)


def test_what_has_not_been_measured_stands_beside_the_headline(monkeypatch):
    """Six splits of four comparisons: the reading may not have been able to fail, and its axis is named."""
    seeds, splits = (decide([Comparison(str(i), 1.0, 2**-n, 1.0, n) for i in range(4)]) for n in (10, 6))
    drawn = Reading(splits="drawn")
    found = Multiverse({ADOPTED: seeds, drawn: splits}, headline({ADOPTED: seeds, drawn: splits}))
    monkeypatch.setattr("fedbench.report.claim_views.multiverse", lambda *_: found)
    view = claim_views(papers()["adafedadam"], Evidence([]))[0].multiverse
    assert (view.headline, view.details) == ("one reading", "; not measured: data splits")
    assert [r.counts.partition("; ")[2] for r in view.readings] == ["", "not sure to fail with 6 seeds (7 needed)"]


def test_alternatives_of_a_paper_carry_their_reasons():
    found = reading_views(papers()["adafedadam"])
    assert ("weighting", "unweighted") in {(axis, value) for axis, value, _ in found}
    assert all(why for _, _, why in found)


@pytest.mark.parametrize(
    ("decided", "shown"), [("holds", ""), ("fails", ""), ("undecided", "a GPU"), ("not run", "a GPU")]
)
def test_what_a_decision_needs_is_said_of_open_claims_only(monkeypatch, decided, shown):
    paper = papers()["adafedadam"]
    claim = replace(next(c for c in paper.claims if c.check), needs="a GPU")
    verdict = Verdict(decided, "", basis="runs")
    monkeypatch.setattr("fedbench.report.claim_views.multiverse", lambda *_: Multiverse({ADOPTED: verdict}))
    (view,) = claim_views(replace(paper, claims=(claim,)), Evidence([]))
    assert view.needs == shown
