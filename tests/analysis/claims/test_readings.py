"""Readings: each flips the verdict on accuracies made up here, and whether they agree."""

from dataclasses import replace
from functools import partial

import pytest
from one_claim import FIELD, NEW, SLOW, claim, paper, write_runs
from units import unit

from fedbench.analysis.claims.comparison import above
from fedbench.analysis.claims.judge import differing, judge, judge_readings
from fedbench.analysis.claims.verdict import decide
from fedbench.analysis.departures import Unit
from fedbench.analysis.matching import Evidence, MatchedRuns
from fedbench.core.errors import RequestError
from fedbench.papers.checks import Curves, Selection
from fedbench.papers.parsing import parse
from fedbench.papers.readings import ADOPTED, Reading, Readings, Variant
from fedbench.papers.schema import Claim
from fedbench.runs.results import Results

KEPT = Variant("kept", "", "", algos={"new": "kept_new", "old": "kept_old"})
EVERY = Readings(
    weighting={"unweighted": ""},
    round={"best": ""},
    splits={"fixed": ""},
    variants={"kept": KEPT, "slow": SLOW},
)
AS_ADOPTED = replace(EVERY, variants={})
UNWEIGHTED = Reading(weighting="unweighted")
BEST = Reading(round="best")
FIXED = Reading(splits="fixed")


@pytest.fixture(scope="module", autouse=True)
def readings():
    """All of them."""


@pytest.fixture
def write(tmp_path):
    return partial(write_runs, tmp_path)


@pytest.fixture
def under(tmp_path):
    """The evidence under a reading."""

    def evidence(reading=ADOPTED, readings=EVERY):
        return Evidence(paper(readings), Results(tmp_path)).under(reading)

    return evidence


@pytest.fixture
def verdict(under):
    def judged(*reading, setup="one"):
        return judge(claim(setup), under(*reading))

    return judged


# ---- each reading flips the verdict


@pytest.mark.parametrize(
    ("new", "old", "adopted", "other"),
    [
        # ahead with weights, as the paper's columns have them, and behind without
        ({"unweighted": -0.1}, {}, Reading(weighting="weighted"), UNWEIGHTED),
        # ahead at the end and behind in the best round, which comes earlier
        ({"best": 0.2}, {"best": 0.3}, Reading(round="last"), BEST),
    ],
)
def test_weighting_and_round(write, under, verdict, new, old, adopted, other):
    write("new", 0.1, **new)
    write("old", **old)
    assert verdict(ADOPTED).word == "holds"
    assert verdict(adopted).word == "holds"
    v = verdict(other)
    assert v.word == "fails"
    assert v.worst.mean == pytest.approx(-10)
    assert differing(judge_readings(claim(), under(readings=AS_ADOPTED))) == [other]


def test_splits(write, under, verdict):
    """Ahead by 1 on the split of data seed 0, with all seeds, and behind by 2 on five others.

    The sums of ±1 ± 2 ± 2 ± 2 ± 2 ± 2 that are at most 1 - 10 are -9 and -11: 2 of 64.
    """
    for split in range(6):
        write("new", -0.02 if split else 0.01, split=split)
        write("old", split=split)
    fixed = verdict(FIXED)
    assert fixed.word == "holds"
    assert fixed.worst.n == 6
    assert fixed.worst.blocks == "seed"
    drawn = verdict(ADOPTED)
    assert drawn.word == "fails"
    assert drawn.worst.n == 6
    assert drawn.worst.blocks == "split"
    assert drawn.worst.less == 2 / 64
    leads = list(drawn.worst.differences.values())
    assert leads == pytest.approx([1, *[-2] * 5])
    assert differing(judge_readings(claim(), under(readings=AS_ADOPTED))) == [FIXED]


def test_variant(write, under, verdict):
    """Ahead as adopted; behind where both methods are replaced or have another rate."""
    write("new", 0.1)
    write("old", 0.0)
    write("kept_new", 0.0)
    write("kept_old", 0.1)
    write("new", 0.0, lr=0.5)
    write("old", 0.1, lr=0.5)
    assert verdict(ADOPTED).word == "holds"
    variants = [Reading(variant="kept"), Reading(variant="slow")]
    for reading in variants:
        v = verdict(reading)
        assert v.word == "fails"
        assert v.scaled is None  # it is a reading, not a reduction
    assert differing(judge_readings(claim(), under())) == variants


@pytest.mark.parametrize(
    ("common", "lead"),
    [
        ({}, -5),
        ({"local.lr": 0.3}, -7),
    ],
)
def test_a_variant_sets_keys_of_one_method(write, under, common, lead):
    """The new method has another rate of its own; the old one keeps that of the row, or has that of
    all.
    """
    variant = Variant("own", "", "", set=common, methods={"new": {"local.lr": 0.5}})
    write("new", 0.1)
    write("new", -0.05, lr=0.5)
    write("old", 0.0)
    write("old", 0.02, lr=0.3)
    write("old", 0.4, lr=0.5)
    evidence = under(Reading(variant="own"), Readings(variants={"own": variant}))
    v = judge(claim(), evidence)
    assert v.worst.mean == pytest.approx(lead)
    assert variant.changes("old") == bool(common)


def test_a_variant_changes_only_its_setups(write, verdict):
    write("new", 0.1, setup="two")
    write("old", setup="two")
    assert verdict(Reading(variant="kept"), setup="two").word == "not run"
    assert verdict(Reading(variant="slow"), setup="two").word == "holds"


# ---- splits and seeds


def test_seeds_of_one_split_are_one_block(write, verdict):
    """Ten seeds on a split are no ten splits: their mean difference is one number."""
    for split in range(2):
        write("new", 0.1, seeds=range(10), split=split)
        write("old", seeds=range(10), split=split)
    v = verdict()
    assert v.word == "undecided"
    assert v.worst.n == 2
    assert v.worst.greater == 1 / 4
    assert v.lacking[::2] == ("hold", 5)


def test_a_split_has_the_seeds_that_both_methods_have(write, verdict):
    write("new", 0.1, seeds=(0, 1, 2), split=0)
    write("new", 0.3, seeds=(3,), split=1)
    write("old", seeds=(2, 5), split=0)
    write("old", seeds=(3,), split=1)
    (c,) = verdict().comparisons
    assert c.differences == pytest.approx({0: 10, 1: 30})
    (c,) = verdict(FIXED).comparisons
    assert c.differences == pytest.approx({2: 10})


def test_other_splits_are_the_same_setting(write, under):
    """Only the reading with one split leaves them out, and runs that draw their own."""
    write("new", 0.1, split=0, seeds=(0, 1))
    write("new", 0.1, split=3, seeds=(0,))
    write("new", 0.1, seeds=(7,))
    fixed = under(FIXED).find(NEW)
    of_split_0 = [Unit(0, 0), Unit(0, 1)]
    assert list(fixed.runs) == of_split_0
    assert len(fixed.every) == 4
    drawn = under().find(NEW)
    assert list(drawn.runs) == [*of_split_0, Unit(3, 0), Unit(7, 7)]
    assert fixed.cuts == drawn.cuts == ()


# ---- figures


@pytest.mark.parametrize(
    ("measure", "reading", "mean"),
    [
        ("final", ADOPTED, 10),
        ("final", UNWEIGHTED, -10),
        ("final", BEST, -10),
        # the mean of -10 and the last value
        ("area", ADOPTED, 0),
        ("area", UNWEIGHTED, -10),
    ],
)
def test_curves_are_read_too(write, under, measure, reading, mean):
    write("new", 0.1, unweighted=-0.1, best=0.3)
    write("old", best=0.4)
    check = Curves(
        "f",
        better=(Selection("new"),),
        worse=(Selection("old"),),
        measure=(measure,),
        fields=(FIELD,),
        setups=("one",),
    )
    v = judge(Claim("c", "", "", check, "supports"), under(reading))
    assert v.worst.mean == pytest.approx(mean)


@pytest.mark.parametrize(
    ("weighting", "field", "read"),
    [
        ("weighted", "accuracy_worst10", None),  # recorded without weights only
        ("weighted", "train_loss", "train_loss"),
        ("unweighted", "accuracy_worst30_weighted", "accuracy_worst30"),
        ("weighted", "accuracy_min", "accuracy_min"),
    ],
)
def test_the_field_of_a_weighting(weighting, field, read):
    assert Reading(weighting=weighting).field(field) == read
    assert Reading().field(field) == field


# ---- what they come to


def test_a_reading_that_changes_no_number_is_none(write, under):
    """With the same accuracies with and without weights, at both rounds, there is nothing else to
    read.
    """
    write("new", 0.1)
    write("old")
    readings = replace(AS_ADOPTED, splits={})
    found = judge_readings(claim(), under(readings=readings))
    assert list(found) == [ADOPTED]
    assert differing(found) is None


def test_readings_that_agree_and_those_that_are_not_run(write, under):
    """No run has data seed 0; a variant of another setup is no reading of the claim."""
    write("new", 0.2, setup="two", unweighted=0.1, best=0.3)
    write("old", setup="two")
    readings = replace(EVERY, variants={"slow": SLOW})
    found = judge_readings(claim("two"), under(readings=readings))
    assert {v.word for v in found.values()} == {"holds", "not run"}
    holding = [reading for reading, v in found.items() if v.word == "holds"]
    assert holding == [ADOPTED, UNWEIGHTED, BEST]
    assert differing(found) == []
    assert found[ADOPTED].unread == ()
    assert found[ADOPTED].counts


def test_a_verdict_is_not_counted_before_its_variants_have_been_run(write, under):
    """The variant of a rate is missing until all methods have runs at that rate."""

    def adopted():
        readings = Readings(variants={"slow": SLOW}, weighting=EVERY.weighting)
        return judge_readings(claim(), under(readings=readings))[ADOPTED]

    assert adopted().unread == ()  # the adopted settings have no runs either
    write("new", 0.1, unweighted=0.2)
    write("old")
    write("new", lr=0.5)
    assert adopted().unread == ("slow",)
    assert adopted().word == "holds"
    assert not adopted().counts
    write("old", lr=0.5)
    assert adopted().unread == ()
    assert adopted().counts


def judged(lead, n=10, found=()):
    """A verdict on a comparison whose leads are all alike."""
    leads = dict.fromkeys(map(unit, range(n)), float(lead))
    return decide([above("c", leads, found)])


WEIGHTED = Reading("weighted")


@pytest.mark.parametrize(
    ("lead", "n", "others"),
    [
        (-1, 10, [WEIGHTED]),
        (0, 10, [WEIGHTED]),
        (2, 10, []),
        # four seeds decide nothing
        (-1, 4, None),
    ],
)
def test_a_reading_counts_if_its_seeds_could_decide_it(lead, n, others):
    one = judged(1)
    two = judged(lead, n)
    assert differing({ADOPTED: one, WEIGHTED: two}) == others
    assert differing({ADOPTED: two, WEIGHTED: one}) == others


def test_of_the_readings_that_differ_the_nearest_are_named():
    ahead = judged(1)
    behind = judged(-1)
    both = Reading("weighted", "best")
    found = {ADOPTED: ahead, WEIGHTED: ahead, BEST: ahead, both: behind}
    assert differing(found) == [both]
    assert differing(found | {WEIGHTED: behind}) == [WEIGHTED]


def test_a_reading_at_reduced_settings_does_not_count_beside_a_verdict():
    """It is a scaled-down check, which is compared with scaled-down checks alone."""
    cut = [MatchedRuns({}, departs=("rounds 2 (paper 9)",))]
    full = judged(1)
    ahead = judged(1, found=cut)
    behind = judged(-1, found=cut)
    assert differing({ADOPTED: full, WEIGHTED: behind}) is None
    assert differing({ADOPTED: behind, WEIGHTED: full}) is None
    assert differing({ADOPTED: behind, WEIGHTED: ahead, BEST: full}) == [WEIGHTED]


# ---- the section of a paper's file


def test_every_combination_and_the_adopted_one_first():
    every = EVERY.every()
    assert len(set(every)) == len(every) == 2 * 2 * 2 * 3
    nearest = [reading.differs_from(ADOPTED) for reading in every[:3]]
    assert nearest == [[], ["weighting"], ["round"]]
    assert Readings().every() == [ADOPTED]


def variants(*more):
    return {"variants": [{"id": "v", "title": "", "why": "", **keys} for keys in more]}


CHANGE = {"set": {"a": 1}}


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ({"weighting": {"half": "x"}}, "half: must be one of unweighted, weighted; got 'half'"),
        (variants({}), "v changes nothing"),
        (variants({"algos": {"x": "y"}}), "must be new, got 'x'"),
        (variants(CHANGE, CHANGE), "two entries have the id v"),
    ],
)
def test_faults_of_the_section(section, words):
    known = {"setups": {"one": None}, "methods": {"new": None}}
    with pytest.raises(RequestError, match=r"readings") as error:
        parse(Readings, section, "readings", known)
    assert words in str(error.value)
