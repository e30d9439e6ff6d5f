"""Claims as text: counts by hand, and what a comparison points to."""

import pytest

from fedbench.analysis.claims import Counts, Verdict, decide
from fedbench.analysis.comparison import Comparison
from fedbench.analysis.matching import Evidence
from fedbench.analysis.readings import Multiverse, headline
from fedbench.papers.readings import ADOPTED, Reading
from fedbench.papers.registry import papers
from fedbench.report.claim_views import claim_views, comparison_view, counts_text, reading_views


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
        (Comparison("a", -1.0, 0.98, 0.03, 5, against_p=0.06), "against"),  # the adjusted p-value decides
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
    """Data that point against a claim are counted as such, whatever its verdict."""
    found = decide([Comparison("a", -1.0, 0.9, 0.2, 5), Comparison("b")])
    assert "1 against it" in counts_text(found)
    assert "none against" not in found.evidence


def test_what_has_not_been_measured_stands_beside_the_headline(monkeypatch):
    """Six splits of four comparisons: the reading says that it may not have been able to fail, and its axis is named."""
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
