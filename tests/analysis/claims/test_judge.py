"""Verdicts on claims about tables: numbers made up here, p-values by hand (all of n signs alike:
2^-n).
"""

import math
import runpy
from dataclasses import dataclass, field, replace

import pytest
from example_paper import example_paper
from hypothesis import given, settings
from hypothesis import strategies as st
from units import by_unit, diverged

from fedbench.analysis.claims import judge as judge_module
from fedbench.analysis.claims.comparison import Comparison, above, contest, joined, leads
from fedbench.analysis.claims.judge import code_digest, judge
from fedbench.analysis.claims.verdict import decide
from fedbench.analysis.matching import Evidence, MatchedRuns
from fedbench.core.errors import RequestError
from fedbench.papers.checks import AnyCheck, EqualRows, PropertyTest
from fedbench.papers.parsing import parse
from fedbench.papers.readings import Values
from fedbench.papers.registry import papers
from fedbench.papers.schema import Claim, Method, PrintedMetric, Reported, Row, Setup, Table

METHODS = ("new", "x", "y", "z")
SETUPS = ("a", "b", "c")
FULL = MatchedRuns({})


def table(name, rows, which="last"):
    setups = dict.fromkeys(row.setup for row in rows)
    return Table(
        name,
        "",
        tuple(setups),
        ("avg", "std"),
        tuple(rows),
        which,
    )


CELLS = [(m, s) for s in SETUPS for m in METHODS]
SWEEP = [{"gamma": gamma, "kind": "k"} for gamma in (2.0, 10.0, 0.5, 1.0)]
PAPER = example_paper(
    metrics={
        "avg": PrintedMetric("avg", "average %", "higher", "f"),
        "std": PrintedMetric("std", "STD %", "lower", "g"),
    },
    methods={m: Method(m, m.title(), m) for m in METHODS},
    setups={s: Setup(s, s.upper(), f"made_up/{s}", 10, 3, 1) for s in SETUPS},
    tables={
        "t1": table("t1", [Row(*cell) for cell in CELLS]),
        "t2": table("t2", [Row("new", "a", hyper) for hyper in SWEEP]),
        "t3": table("t3", [Row(*cell, {"epochs": 2}) for cell in CELLS], "best"),
    },
)


@dataclass(frozen=True)
class Numbers(MatchedRuns):
    """A stand-in for the runs of a row: numbers by metric and round."""

    given: dict = field(default_factory=dict)

    def values(self, metric, which=""):
        return self.given.get((metric.id, which or self.round), {})


class Given(Evidence):
    """Numbers by (setup, method, hyperparameter or None): a list has one per seed.

    Args:
        metric: The metric that they belong to.
        which: The round that they belong to.
        facts: Fields of the runs of a row, by setup and method: ``a_new``.
    """

    def __init__(self, paper, numbers, metric="avg", which="last", **facts):
        super().__init__(paper, [])
        self.numbers = numbers
        self.key = (metric, which)
        self.facts = facts

    def choices(self, row):
        (empty,) = super().choices(row)
        none = Numbers(**vars(empty))
        hyper = row.hyperparameters.get("gamma", row.hyperparameters.get("epochs"))
        numbers = self.numbers.get((row.setup, row.algo, hyper))
        if numbers is None:
            return [none]
        by_seed = by_unit(numbers)
        runs = dict.fromkeys(by_seed)
        facts = self.facts.get(f"{row.setup}_{row.algo}", {})
        given = {self.key: by_seed}
        run = replace(none, runs=runs, given=given, **facts)
        return [run, none]


def claim_of(check, paper=PAPER):
    """A claim whose check is read as in a paper's file."""
    sections = ("metrics", "methods", "setups", "tables", "figures")
    known = {name: getattr(paper, name) for name in sections}
    parsed = parse(AnyCheck, check, "c01", known)
    return Claim("c01", "", "", parsed, "supports")


def verdict(numbers, check, metric="avg", paper=PAPER, **more):
    evidence = Given(paper, numbers, metric, **more)
    return judge(claim_of(check, paper), evidence)


def word(*given, **more):
    return verdict(*given, **more).word


def tally(v):
    """How many comparisons have been run, and come to what: "2 of 3 run, 1 shown, 0 refuted"."""
    shown = v.count("shown")
    refuted = v.count("refuted")
    return f"{len(v.run)} of {len(v.comparisons)} run, {shown} shown, {refuted} refuted"


def measured(new, x=None, y=None, z=None, setup="a"):
    """The numbers of each method; a method without numbers has not been run."""
    numbers = {}
    for method, values in zip(METHODS, (new, x, y, z), strict=True):
        if values is not None:
            numbers[setup, method, None] = values
    return numbers


def compares(**keys):
    """A check: New is ahead of all others in the average on A, unless keys say otherwise."""
    best = {
        "kind": "compare",
        "table": "t1",
        "setups": ["a"],
        "metrics": ["avg"],
        "better": "new",
    }
    return best | keys


def lead(differences, runs=FULL):
    """The comparison of differences with 0; a list has one per seed."""
    return above("x", by_unit(differences), [runs])


def on_every(facts, setup="a"):
    """The same facts of the runs of every method."""
    return {f"{setup}_{m}": facts for m in METHODS}


BEST = compares()
NOT_RUN = Comparison("not run")
UP = tuple(range(1, 11))  # ten seeds, no two alike
LOW = (0.0,) * 10
FAR = (-100.0,) * 10
HIGHER = [u + 1 for u in UP]
# five of ten seeds are 1 above UP, five 1 below
ALTERNATING = [u + (1 if u % 2 else -1) for u in UP]
AHEAD = measured(UP, LOW, LOW, LOW)
BEHIND = measured(LOW, UP, UP, UP)
MIXED = measured(UP, LOW, LOW, HIGHER)
TIED = measured(UP, LOW, LOW, UP)


# ---- a verdict of each kind


@pytest.mark.parametrize(
    ("numbers", "kind", "counts"),
    [
        (AHEAD, "holds", "3 of 3 run, 3 shown, 0 refuted"),
        (BEHIND, "fails", "3 of 3 run, 0 shown, 3 refuted"),
        # one is refuted, and none is shown
        (measured(UP, HIGHER, UP, ALTERNATING), "fails", "3 of 3 run, 0 shown, 1 refuted"),
        (MIXED, "mixed", "3 of 3 run, 2 shown, 1 refuted"),
        # the two that are shown do not help
        (measured(UP, LOW, LOW, ALTERNATING), "undecided", "3 of 3 run, 2 shown, 0 refuted"),
        (TIED, "undecided", "3 of 3 run, 2 shown, 0 refuted"),
        (measured(UP, LOW, LOW), "not run", "2 of 3 run, 2 shown, 0 refuted"),
        # whatever the others come to
        (measured(UP, HIGHER), "cannot hold", "1 of 3 run, 0 shown, 1 refuted"),
    ],
)
def test_a_verdict_is_a_word_and_its_counts(numbers, kind, counts):
    v = verdict(numbers, BEST)
    assert v.word == kind
    assert tally(v) == counts
    assert v.counts == (kind != "not run")
    assert v.basis == "runs"


@pytest.mark.parametrize(
    ("seeds", "alpha", "kind"),
    [
        (5, 0.05, "not run"),  # 3 / 32 = 0.094
        (6, 0.05, "cannot hold"),  # 3 / 64 = 0.047
        (6, 0.025, "not run"),
        (7, 0.025, "cannot hold"),  # 3 / 128 = 0.023
    ],
)
def test_a_claim_cannot_hold_if_one_of_all_comparisons_is_refuted(seeds, alpha, kind):
    """The p-value against is multiplied by the number of all three, of which one has been run."""
    behind = lead([-1.0] * seeds)
    v = decide([behind, NOT_RUN, NOT_RUN], alpha)
    assert v.word == kind
    assert v.counts == (kind == "cannot hold")
    untuned = replace(behind, untuned=True)
    assert decide([untuned, NOT_RUN, NOT_RUN], alpha).word == "not run"


def test_a_stricter_level_takes_more_seeds():
    """1 / 32 is at most 0.05, but not at most 0.025; in each setup as well."""
    comparisons = [replace(lead([1.0] * 5), group=group) for group in "ab"]
    assert decide(comparisons).word == "holds"
    v = decide(comparisons, 0.025)
    assert v.word == "undecided"
    assert lacking(v) == ("hold", 6)
    assert [part.word for part in v.by_group.values()] == ["undecided"] * 2
    assert [c.state for c in v.comparisons] == ["open"] * 2


def test_a_claim_that_compares_nothing_is_not_testable():
    claim = Claim("c", "", "", None, "supports")
    v = judge(claim, Evidence(PAPER, []))
    assert v.word == "not testable"
    assert not v.counts
    assert decide([]).word == "not testable"


@pytest.mark.parametrize(
    ("for_p", "against_p", "state"),
    [
        (0.05, 1.0, "shown"),
        (0.0501, 1.0, "open"),
        (1.0, 0.05, "refuted"),
        (1.0, 0.0501, "open"),
        (None, None, "not run"),
    ],
)
def test_five_percent_is_enough(for_p, against_p, state):
    assert Comparison("x", for_p=for_p, against_p=against_p).state == state


@pytest.mark.parametrize(
    ("sign", "kind"),
    [
        (1, "holds"),
        (-1, "undecided"),
    ],
)
def test_holding_takes_no_adjustment_and_failing_does(sign, kind):
    """Five comparisons over six seeds, each with the smallest lead on another seed the other way:
    the sum is as large as observed under two of 64 assignments, 0.031. Each has its own second one:
    adjusted, six of 64 are as extreme.
    """
    comparisons = []
    for k in range(5):
        values = [1.0 * sign] * 6
        values[k] = -0.1 * sign
        comparisons.append(lead(values))
    v = decide(comparisons)
    assert v.word == kind
    for c in v.comparisons:
        assert min(c.greater, c.less) == 2 / 64
        assert min(c.for_p, c.against_p) == 6 / 64


SIGNS = st.lists(
    st.integers(-3, 3),
    min_size=6,
    max_size=6,
)
TURNED = {"shown": "refuted", "refuted": "shown", "open": "open"}
# A claim that holds takes no adjustment, and one that fails does.
OPPOSITE = {
    "mixed": ("mixed",),
    "holds": ("fails", "undecided"),
    "fails": ("holds", "undecided"),
    "undecided": ("holds", "fails", "undecided"),
}


@settings(deadline=None)  # the first call imports scipy
@given(
    st.lists(SIGNS, min_size=1, max_size=4),
    st.lists(SIGNS, max_size=3),
    st.booleans(),
)
def test_exchanging_the_sides_exchanges_the_verdicts(differences, parts, every):
    def judged(sign, every):
        def turned(values):
            return lead([float(sign * value) for value in values])

        comparisons = [turned(values) for values in differences]
        if parts:
            comparisons.append(
                joined(
                    "j",
                    [turned(values) for values in parts],
                    every,
                )
            )
        return decide(comparisons)

    one = judged(1, every)
    other = judged(-1, not every)
    for c, opposite in zip(one.comparisons, other.comparisons, strict=True):
        assert c.for_p == opposite.against_p
        assert c.against_p == opposite.for_p
        assert TURNED[c.state] == opposite.state
    assert other.word in OPPOSITE[one.word]


# ---- what is counted


def lacking(v):
    """The outcome that the blocks of a verdict do not allow, and how many allow it."""
    return v.lacking and v.lacking[::2]


def first_seeds(numbers, count):
    return {key: values[:count] for key, values in numbers.items()}


@pytest.mark.parametrize(
    ("seeds", "kind", "missing"),
    [
        (4, "undecided", ("hold", 5)),
        (5, "holds", ("fail", 6)),
        (6, "holds", None),
    ],
)
def test_a_claim_counts_only_if_its_seeds_allowed_either_outcome(seeds, kind, missing):
    """Three comparisons: 5 seeds can show them (1 / 32 each), 6 are sure to refute one of them (3 /
    64).
    """
    v = verdict(first_seeds(AHEAD, seeds), BEST)
    assert v.word == kind
    assert v.worst.greater == 2.0**-seeds
    assert lacking(v) == missing
    assert v.counts == (missing is None)


def test_what_fails_counts_only_if_it_could_have_held_and_was_sure_to_fail():
    v = verdict(BEHIND | {("a", "y", None): UP[:4]}, BEST)
    assert v.word == "fails"
    assert lacking(v) == ("hold", 5)
    assert not v.counts
    assert v.lacking[1].label.endswith("Y on A")
    v = verdict(first_seeds(BEHIND, 5), BEST)
    assert v.word == "fails"
    assert lacking(v) == ("fail", 6)
    assert not v.counts
    assert lacking(verdict(BEHIND, BEST)) is None


@pytest.mark.parametrize(
    ("every", "seeds", "missing"),
    [
        (False, 6, ("hold", 7)),
        (False, 7, None),
        (True, 6, ("fail", 7)),
        (True, 7, None),
    ],
)
def test_parts_take_more_seeds(every, seeds, missing):
    """Of four parts one is to be shown, or refuted: 4 / 64 is above 5 %, 4 / 128 is not."""
    part = lead([(-1.0) ** seed for seed in range(seeds)])
    v = decide([joined("j", [part] * 4, every)])
    assert v.word == "undecided"
    assert lacking(v) == missing


def test_what_diverged_everywhere_has_no_blocks_and_does_not_count():
    shown = lead([1.0] * 10)
    no_blocks = Comparison("open", mean=0.0, greater=1.0, less=1.0)
    assert decide([shown]).counts
    v = decide([shown, no_blocks])
    assert v.word == "undecided"
    assert not v.counts


def test_a_bound_with_a_diverged_run_has_its_blocks_and_cannot_hide_a_refutation():
    bound = lead([1.0] * 9, runs=lost(9))
    assert (bound.n, bound.state) == (10, "not run")
    v = decide([bound, lead([-1.0] * 10)])
    assert v.word == "fails"
    assert v.counts


# ---- which comparison is named


def test_the_comparison_that_is_most_against():
    """Ahead of x in all ten seeds, behind y by 0.2 in the mean of mixed signs, behind z in all."""
    noisy = [u + (1.4 if u % 2 else -1) for u in UP]
    v = verdict(measured(UP, LOW, noisy, HIGHER), BEST)
    assert v.worst.label == "average % of New against Z on A"
    assert v.worst.mean == -1
    assert verdict({}, BEST).worst is None


def test_of_shown_comparisons_the_least_consistent_is_the_weakest():
    """All ten seeds are ahead of each; 1 to 10 is less consistent than 101 to 110."""
    weakest = verdict(measured(UP, FAR, LOW, FAR), BEST).worst
    assert weakest.label.endswith("Y on A")


@pytest.mark.parametrize(("every", "mean"), [(True, 1.0), (False, 3.0)])
def test_of_parts_with_equal_p_values_the_weakest_or_the_best_is_named(every, mean):
    """All five seeds are ahead in each; the leads differ by 1 from seed to seed."""
    parts = [lead([m - 0.5, m + 0.5] * 5) for m in (2.0, 1.0, 3.0)]
    assert joined("x", parts, every=every).mean == pytest.approx(mean)


def test_each_setup_has_a_verdict():
    numbers = AHEAD | measured(UP, UP, LOW, LOW, setup="b")
    v = verdict(numbers, compares(setups=["a", "b", "c"]))
    assert v.word == "not run"
    assert tally(v) == "6 of 9 run, 5 shown, 0 refuted"
    words = {title: part.word for title, part in v.by_group.items()}
    assert words == {"A": "holds", "B": "undecided", "C": "not run"}
    assert not verdict(numbers, BEST).by_group


def test_all_of_several_checks_are_judged_together():
    other = compares(setups=["b"], better="x", worse="y")
    both = {"kind": "all", "checks": [BEST, other]}
    v = verdict(AHEAD | measured(None, UP, LOW, setup="b"), both)
    assert v.word == "holds"
    assert tally(v) == "4 of 4 run, 4 shown, 0 refuted"
    assert word(AHEAD | measured(None, LOW, UP, setup="b"), both) == "mixed"
    with pytest.raises(RequestError, match="claims: c01: test is not decided by comparisons"):
        verdict({}, {"kind": "all", "checks": [{"kind": "test", "test": "a::b"}]})


# ---- numbers and pairs


def test_seeds_are_paired():
    """Effects of the seed that are far larger than the difference drop out; unpaired seeds are left
    out.
    """
    wild = [(-1) ** seed * 100.0 * seed for seed in range(10)]
    above_it = [value + 0.1 for value in wild]
    assert word(measured(above_it, wild), compares(worse="x")) == "holds"
    later = {seed + 4: value for seed, value in enumerate(wild)}
    v = verdict(measured(above_it, later), compares(worse="x"))
    assert v.worst.n == 6


def test_numbers_that_are_none_are_left_out():
    ahead = lead([1.0, math.nan, 2.0])
    assert ahead.n == 2
    assert ahead.mean == 1.5
    assert ahead.greater == 0.25
    assert lead([math.nan]).greater is None


# ---- runs at reduced settings give no verdict


SHORT = ("rounds 2 (paper 9)",)
CUT = {
    "departs": SHORT,
    "reduced": SHORT,
    "cuts": (("rounds", "2"),),
}


@pytest.mark.parametrize(
    ("numbers", "kind"),
    [
        (AHEAD, "holds"),
        (BEHIND, "fails"),
        (MIXED, "mixed"),
        (TIED, "undecided"),
    ],
)
def test_a_reduced_run_must_not_count(numbers, kind):
    v = verdict(numbers, BEST, **on_every(CUT))
    assert v.word == "not run"
    assert tally(v) == "0 of 3 run, 0 shown, 0 refuted"
    assert not v.counts
    assert v.worst is None
    assert v.scaled.word == kind
    assert tally(v.scaled) == tally(verdict(numbers, BEST))
    assert v.outcome is v.scaled
    assert [c.reduced for c in v.scaled.comparisons] == [SHORT] * 3


def test_one_reduced_comparison_keeps_a_claim_from_its_verdict():
    """Setup a is shown at the paper's settings, and setup b refuted at reduced ones."""
    numbers = AHEAD | measured(LOW, UP, UP, UP, setup="b")
    v = verdict(
        numbers,
        compares(setups=["a", "b"]),
        **on_every(CUT, "b"),
    )
    assert v.word == "not run"
    assert tally(v) == "3 of 6 run, 3 shown, 0 refuted"
    assert v.scaled.word == "mixed"
    assert tally(v.scaled) == "6 of 6 run, 3 shown, 3 refuted"
    full, reduced = v.by_group.values()
    assert full.word == "holds"
    assert full.scaled is None
    assert reduced.word == "not run"
    assert reduced.scaled.word == "fails"


def test_reduced_comparisons_are_listed_with_p_values_of_their_own():
    """Behind with all five seeds: alone 1 / 32. Under the opposite signs a reduced lead is as
    extreme, so that among both it is 2 / 32.
    """
    full = lead([-1.0] * 5)
    cut = lead([1.0] * 5, MatchedRuns({}, **CUT))
    v = decide([full, cut, NOT_RUN])
    assert [c.against_p for c in v.listed] == [1 / 32, 1.0, None]
    assert [c.against_p for c in v.scaled.comparisons] == [2 / 32, 1.0, None]
    assert [bool(c.reduced) for c in v.listed] == [False, True, False]
    alone = decide([full])
    assert alone.listed == list(alone.comparisons)


@pytest.mark.parametrize("every", [True, False])
def test_a_comparison_of_parts_is_reduced_if_one_of_them_is(every):
    full = lead([1.0] * 10)
    cut = lead([1.0] * 10, MatchedRuns({}, **CUT))
    v = decide([joined("j", [full, cut], every)])
    assert v.word == "not run"
    assert v.scaled.word == "holds"
    assert v.comparisons[0].parts == ()
    assert decide([joined("j", [full, full], every)]).word == "holds"


def test_sides_that_are_cut_down_differently_are_not_compared():
    """A method at full length against one after two rounds says nothing of the methods."""
    v = verdict(AHEAD, BEST, a_x=CUT)
    assert v.word == "not run"
    assert tally(v) == "2 of 3 run, 2 shown, 0 refuted"
    assert [c.uneven for c in v.comparisons] == [True, False, False]


# ---- rows that are not tuned alike


def tuned(*methods, setups=(), origin="searched"):
    return replace(
        PAPER,
        values={
            "v": Values(
                "v",
                origin,
                methods,
                "six rates",
                setups,
            )
        },
    )


@pytest.mark.parametrize("numbers", [AHEAD, BEHIND])
@pytest.mark.parametrize(
    "methods",
    [
        ("new",),
        ("x", "y", "z"),
        ("x",),
    ],
)
def test_a_claim_that_compares_searched_rows_with_others_is_undecided(numbers, methods):
    v = verdict(numbers, BEST, paper=tuned(*methods))
    assert v.word == "undecided"
    assert v.untuned
    assert v.counts
    assert tally(v) == tally(verdict(numbers, BEST))  # what was measured stays in sight


def test_rows_that_are_tuned_alike_are_compared():
    assert word(AHEAD, BEST, paper=tuned(*METHODS)) == "holds"
    assert word(BEHIND, BEST, paper=tuned("new", setups=("b",))) == "fails"
    numbers = measured(None, None, UP, LOW)
    check = compares(better="y", worse="z")
    assert word(numbers, check, paper=tuned("new", "x")) == "holds"


def test_without_runs_tuning_decides_nothing():
    assert word(measured(UP, LOW), BEST, paper=tuned("new")) == "not run"
    scaled = verdict(
        AHEAD,
        BEST,
        paper=tuned("new"),
        **on_every(CUT),
    ).scaled
    assert scaled.word == "undecided"
    assert scaled.untuned


# ---- kinds of checks


def test_best_takes_every_setup_metric_and_rival():
    v = verdict(
        {},
        compares(
            setups=["a", "b"],
            metrics=["avg", "std"],
        ),
    )
    assert tally(v) == "0 of 12 run, 0 shown, 0 refuted"


def beaten(*setups):
    """In each setup some row is ahead of the method."""
    checks = []
    for setup in setups:
        rivals = compares(
            setups=setup,
            better=["x", "y", "z"],
            worse="new",
        )
        checks.append(
            {
                "kind": "some",
                "label": "New beaten",
                "checks": [rivals],
            }
        )
    return {"kind": "all", "checks": checks}


BEATEN = measured(UP, HIGHER, LOW, LOW)


def test_not_best_needs_a_better_one_in_every_setup():
    """Any of three is enough, so the p-value of the best is multiplied by three: 3 / 1024."""
    v = verdict(BEATEN, beaten("a"))
    assert v.word == "holds"
    assert v.worst.label == "New beaten (average % of X against New on A)"
    assert v.worst.greater == 3 / 1024

    both = beaten("a", "b")
    assert word(BEATEN | measured(UP, UP, LOW, LOW, setup="b"), both) == "undecided"
    best_in_b = measured(UP, LOW, LOW, LOW, setup="b")
    v = verdict(BEATEN | best_in_b, both)
    assert v.word == "mixed"
    # all three are behind: any of their extremes counts, which is one assignment, the observed one;
    # and that in which x is ahead of the method in a is the opposite one
    assert v.worst.against_p == 2 / 1024


@pytest.mark.parametrize("x", [HIGHER, LOW])
def test_not_best_with_missing_rivals(x):
    """Whichever way those at hand point, the others are missing; they are never counted only where
    they support it.
    """
    v = verdict(measured(UP, x), beaten("a"))
    assert v.word == "not run"
    assert tally(v) == "0 of 1 run, 0 shown, 0 refuted"
    assert v.worst is None


def test_compare_takes_every_pair():
    high = [u + 20 for u in UP]
    numbers = measured(high, high, UP, UP) | measured(
        high,
        high,
        UP,
        high,
        setup="c",
    )
    pairs = compares(
        setups=["a", "c"],
        better=["new", "x"],
        worse=["y", "z"],
    )
    v = verdict(numbers, pairs)
    assert v.word == "undecided"
    assert tally(v) == "8 of 8 run, 6 shown, 0 refuted"
    assert word(numbers, pairs | {"worse": "y"}) == "holds"


def trends(direction, **keys):
    """A check: the average of New follows gamma on A, unless keys say otherwise."""
    over = {
        "table": "t2",
        "setup": "a",
        "algo": "new",
        "metric": "avg",
        "over": "gamma",
    }
    return {"kind": "trend", "trend": direction, **over, **keys}


def steps(*heights):
    """Numbers at gamma 0.5, 1, 2 and 10, in multiples of UP."""
    numbers = {}
    for gamma, height in zip((0.5, 1.0, 2.0, 10.0), heights, strict=True):
        numbers["a", "new", gamma] = [height * u for u in UP]
    return numbers


@pytest.mark.parametrize(
    ("direction", "kind", "mean"),
    [
        ("increasing", "holds", 4 / 6),
        ("decreasing", "fails", -4 / 6),
    ],
)
def test_a_trend_allows_for_a_step_the_other_way(direction, kind, mean):
    """1, 2, 1.5, 4: five of six pairs rise, one falls, 4/6."""
    v = verdict(steps(1, 2, 1.5, 4), trends(direction))
    assert v.word == kind
    (ranks,) = v.comparisons
    assert ranks.mean == pytest.approx(mean)


def test_a_trend_over_setups_needs_every_step():
    over_setups = {
        "over": "setups",
        "order": ["a", "b", "c"],
        "setup": None,
        "table": "t1",
    }
    falls = trends("decreasing", **over_setups)
    numbers = {}
    for setup, height in {"a": 3, "b": 1, "c": 2}.items():
        numbers |= measured([height * u for u in UP], setup=setup)
    assert word(numbers, falls) == "holds"
    del numbers["b", "new", None]
    assert word(numbers, falls) == "not run"


@pytest.mark.parametrize(
    ("metric", "mean"),
    [
        ("std", 0.9),
        ("avg", 1.0),
    ],
)
def test_in_a_trend_a_run_that_diverged_is_the_worst_of_all(metric, mean):
    """With nine seeds all six pairs fall; with the tenth the STD falls in three and rises in three:
    (9 + 0) / 10.

    The worst accuracy is the lowest of all.
    """
    numbers = {}
    for key, values in steps(4, 3, 2, 1).items():
        numbers[key] = dict(enumerate(values))
    del numbers["a", "new", 10.0][9]
    falls = trends("decreasing", metric=metric)
    v = verdict(numbers, falls, metric, a_new={"others": diverged(9)})
    assert v.comparisons[0].mean == pytest.approx(mean)


def test_each_table_has_its_own_round():
    """Table t3 prints the best round, with other hyperparameters; t1 the last."""
    best = {("a", m, 2): LOW for m in METHODS}
    best["a", "new", 2] = UP
    assert word(best, compares(table="t3"), which="best") == "holds"
    assert word(best, compares(table="t3")) == "not run"


def test_a_method_is_compared_with_itself_elsewhere():
    numbers = {("a", "new", 2): HIGHER, ("b", "new", 2): UP}
    elsewhere = compares(table="t3", at={"table": "t3", "setup": "b"})
    v = verdict(numbers, elsewhere, which="best")
    assert v.word == "holds"
    assert v.worst.label == "average % of New (A) against New (B)"


# ---- comparisons of comparisons


def part(greater, less, **more):
    return Comparison("part", 1.0, greater, less, 5, **more)


UNEVEN = Comparison("uneven", uneven=True)


def test_the_worst_of_comparisons():
    """All must stand: the largest p; any refutes: the smallest one the other way, times their
    number.
    """
    parts = [part(0.01, 0.99), part(0.2, 0.1)]
    both = joined("both", parts, True)
    assert both.greater == 0.2
    assert both.less == 0.2
    assert joined("all", [part(0.01, 0.6)] * 3, True).less == 1.0
    assert joined("none", [], True).greater is None
    assert joined("uneven", [part(0.01, 0.99), UNEVEN], True).uneven


def test_the_best_of_comparisons():
    """One is enough: the smallest p, times their number; all refute: the largest the other way."""
    parts = [part(0.01, 0.99), part(0.2, 0.1)]
    one = joined("one", parts, False)
    assert one.greater == 0.02
    assert one.less == 0.99
    assert one.complete
    assert joined("all", [part(0.6, 0.01)] * 3, False).greater == 1.0
    lacks_one = joined("one missing", [part(0.6, 0.01), NOT_RUN], False)
    assert lacks_one.greater == 1.0
    assert lacks_one.less == 1.0
    assert not lacks_one.complete
    assert joined("uneven", [UNEVEN], False).uneven


# ---- runs that diverge


def lost(*seeds):
    return MatchedRuns({}, diverged(*seeds))


def contested(a, b, one=FULL, two=FULL, sign=1.0):
    return contest("x", by_unit(a), by_unit(b), sign, one, two)


@pytest.mark.parametrize(
    ("sign", "mean"),
    [
        (1.0, (1 - 3 + 2 + 3) / 4),
        (-1.0, (-1 + 3 - 2 + 3) / 4),
    ],
)
def test_a_run_that_diverged_is_behind_by_the_widest_difference(sign, mean):
    """Seeds 0 to 2 give 1, -3 and 2; the second diverged with seed 3: 3 more, either way."""
    a = [2.0, 0.0, 3.0, 9.0]
    b = [1.0, 3.0, 1.0]
    c = contested(a, b, two=lost(3), sign=sign)
    assert c.mean == mean
    assert c.n == 4
    assert c.label == "x (diverged, so counted as behind: the second with seed 3)"


def test_a_run_that_diverged_counts_only_against_one_that_is_there():
    assert contested({}, {}, one=lost(0)).greater is None
    a = by_unit({1: 2.0})
    b = by_unit({1: 1.0})
    without_it = leads(a, b, 1.0)
    assert contested(a, b, one=lost(0)) == lead(without_it)


def test_of_a_single_method_a_run_that_diverged_leaves_the_matter_open():
    c = lead([1.0] * 5, lost(7))
    assert c.greater == 1.0
    assert c.less == 1.0
    assert c.label == "x (undecided: a run diverged with seed 7)"
    assert decide([c]).word == "undecided"


def test_divergence_cannot_make_a_method_win():
    """Ahead with four seeds and diverged with six: left out, it would favour it."""
    numbers = measured(UP[:4], LOW, LOW, LOW)
    v = verdict(
        numbers,
        BEST,
        a_new={"others": diverged(*range(4, 10))},
    )
    assert v.word == "undecided"
    assert "diverged, so counted as behind" in v.worst.label


def test_what_has_not_run_is_not_open_and_what_is_cut_differently_is_uneven():
    not_run = above("x", {}, [lost(0), FULL])
    assert decide([not_run]).word == "not run"
    cut = MatchedRuns(
        {},
        diverged(0),
        **{**CUT, "departs": ()},
    )
    assert contested({}, {}, lost(0), cut).uneven


# ---- the papers' own numbers


PRINTED = [
    (paper, claim)
    for paper in papers().values()
    for claim in paper.claims.values()
    if isinstance(claim.check, EqualRows)
]


@pytest.mark.parametrize(
    ("paper", "claim"),
    PRINTED,
    ids=lambda v: v.id,
)
def test_claims_on_printed_numbers_come_out_as_transcribed(paper, claim):
    v = judge(claim, Evidence(paper, []))
    assert v.word == {"supports": "holds", "contradicts": "fails"}[claim.printed]


def test_a_spread_that_differs_is_a_number_that_differs():
    tables = {}
    for name, spread in {"p": 0.1, "q": 0.2}.items():
        values = {"avg": Reported(1.0, spread)}
        tables[name] = table(name, [Row("new", "a", {}, values)])
    equal = {"kind": "equal_rows", "tables": list(tables)}
    check = equal | {
        "algo": "new",
        "setups": ["a"],
        "metrics": ["avg"],
    }
    assert word({}, check, paper=replace(PAPER, tables=tables)) == "fails"


def of_paper(paper, claim):
    p = papers()[paper]
    return judge(p.claims[claim], Evidence(p, []))


def test_the_numbers_that_differ_are_named():
    """AdaFedAdam, Dirichlet 0.1 in Tables 3 and 6."""
    assert of_paper("adafedadam", "c19").evidence == (
        "printed numbers differ: STD % 6.58 ± 0.77 and 8.59 ± 0.39 on cifar10_dir01; "
        "worst 30 % 55.26 ± 2.83 and 56.48 ± 1.45 on cifar10_dir01"
    )
    assert of_paper("adafedadam", "c20").evidence == "all 9 printed numbers agree"


@pytest.mark.parametrize("paper", papers())
def test_without_runs_nothing_is_decided_but_what_needs_none(paper):
    for claim in papers()[paper].claims.values():
        v = of_paper(paper, claim.id)
        if claim.check is None:
            assert v.word == "not testable"
        elif not isinstance(claim.check, PropertyTest | EqualRows):
            assert v.word == "not run"
            assert not v.run


# ---- the code of a check

CODE = '''
def c01_leads(evidence):
    """{doc}"""
    return {value}  # {comment}
'''


@pytest.fixture
def digest(tmp_path, monkeypatch):
    """The digest of a function that checks a claim."""

    def of(check=None, doc="Test.", value=1, comment="why"):
        file = tmp_path / f"{len(list(tmp_path.iterdir()))}.py"
        file.write_text(CODE.format(doc=doc, value=value, comment=comment))
        function = runpy.run_path(str(file))["c01_leads"]
        monkeypatch.setattr(judge_module, "claim_check", lambda *_: function)
        return code_digest(claim_of(check or {"kind": "function"}), "made_up")

    return of


def test_the_digest_of_a_check_is_that_of_its_code(digest):
    """Neither its docstring nor its comments."""
    before = digest()
    assert len(before) == 16
    assert digest(doc="Test it.", comment="because") == before
    assert digest(value=2) != before
    assert digest({"kind": "all", "checks": [BEST, {"kind": "function"}]}) == before
    assert digest(BEST) == digest({"kind": "all", "checks": [BEST]}) == ""
    no_check = Claim("c01", "", "", None, "supports")
    assert code_digest(no_check, "made_up") == ""


# ---- margins


def shifted(new=None, x=None, y=None, z=None):
    """Ten seeds of each method, level up to what is common to all."""
    rows = []
    for shift in (new, x, y, z):
        rows.append(None if shift is None else [u + shift for u in UP])
    return measured(*rows)


@pytest.mark.parametrize(
    ("ahead", "by", "metric", "kind"),
    [
        # a lead; 2 is a tie with every seed
        (2.5, 2, "avg", "holds"),
        (2.0, 2, "avg", "undecided"),
        (-3.0, 2, "std", "holds"),  # less is better
        # a lag
        (-0.5, -1, "avg", "holds"),
        (0.6, -0.5, "std", "fails"),
    ],
)
def test_a_lead_to_be_exceeded_or_a_lag_not_to_be_reached(ahead, by, metric, kind):
    v = verdict(
        shifted(ahead, 0.0),
        compares(metrics=metric, worse="x", by=by),
        metric,
    )
    assert v.word == kind
    taken = "less" if (by > 0) == (metric == "avg") else "plus"
    assert f" % of New {taken} {abs(by)} against X on A" in v.worst.label


def test_differences_within_a_margin():
    """A comparison of two one-sided tests for each of three pairs."""
    three = ["new", "x", "y"]
    check = compares(better=three, worse=three, by=-1)
    assert tally(verdict(shifted(0.0, 0.4, 0.9), check)) == "3 of 3 run, 3 shown, 0 refuted"
    assert tally(verdict(shifted(0.0, 0.4, 1.2), check)) == "3 of 3 run, 2 shown, 1 refuted"


@pytest.mark.parametrize(
    ("shows", "how"),
    [
        ("holds", "shown"),
        ("fails", "refuted"),
    ],
)
def test_a_test_of_the_code_shows_a_claim_or_refutes_it(shows, how):
    check = {"kind": "test", "test": "tests/a.py::test_b", "shows": shows}
    v = verdict({}, check)
    assert v.word == shows
    assert v.basis == "test"
    assert not v.counts
    assert v.evidence == f"a property of the method, {how} by tests/a.py::test_b"
