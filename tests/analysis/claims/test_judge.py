"""Verdicts on claims about tables: numbers made up here, p-values by hand (all of n signs alike: 2^-n)."""

import math
from dataclasses import dataclass, field, fields, replace

import pytest
from example_paper import example_paper
from hypothesis import given, settings
from hypothesis import strategies as st
from units import by_unit, unit

from fedbench.analysis.claims.comparison import Comparison, above, contest, joined, leads
from fedbench.analysis.claims.judge import judge
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
GAMMAS = (0.5, 1.0, 2.0, 10.0)
UP = tuple(range(1, 11))  # ten seeds, no two alike
FULL = MatchedRuns({})


def table(name, rows, which="last"):
    return Table(
        name, "", tuple(dict.fromkeys(r.setup for r in rows)), ("avg", "std"), tuple(rows), which
    )


PAPER = example_paper(
    metrics={
        "avg": PrintedMetric("avg", "average %", "higher", "f"), "std": PrintedMetric("std", "STD %", "lower", "g"),
    },
    methods={m: Method(m, m.title(), m) for m in METHODS},
    setups={s: Setup(s, s.upper(), f"made_up/{s}", 10, 3, 1) for s in SETUPS},
    tables={
        "t1": table("t1", [Row(m, s) for s in SETUPS for m in METHODS]),
        "t2": table("t2", [Row("new", "a", {"gamma": g, "kind": "k"}) for g in (2.0, 10.0, 0.5, 1.0)]),
        "t3": table("t3", [Row(m, s, {"epochs": 2}) for s in SETUPS for m in METHODS], "best"),
    },
)  # fmt: skip


@dataclass(frozen=True)
class Numbers(MatchedRuns):
    """A stand-in for the runs of a row: numbers by metric and round."""

    given: dict = field(default_factory=dict)

    def values(self, metric, which=""):
        return self.given.get((metric.id, which or self.round), {})


class Given(Evidence):
    """Numbers by (setup, method, hyperparameter or None): a list is the last average of each seed."""

    def __init__(self, paper, numbers, metric="avg", which="last", **found):
        super().__init__(paper, [])
        self.numbers, self.key, self.made = numbers, (metric, which), found

    def choices(self, row):
        hyper = row.hyperparameters.get("gamma", row.hyperparameters.get("epochs"))
        (empty,) = super().choices(row)
        facts = {f.name: getattr(empty, f.name) for f in fields(empty)}
        none = Numbers(**facts)
        values = self.numbers.get((row.setup, row.algo, hyper))
        if values is None:
            return [none]
        by_seed = by_unit(values)
        made = self.made.get(f"{row.setup}_{row.algo}", {})
        given = {self.key: by_seed}
        return [replace(none, runs=dict.fromkeys(by_seed), given=given, **made), none]


def claim_of(check, paper=PAPER):
    """A claim whose check is read as in a paper's file."""
    sections = ("metrics", "methods", "setups", "tables", "figures")
    return Claim(
        "c01",
        "",
        "",
        parse(AnyCheck, check, "c01", {k: getattr(paper, k) for k in sections}),
        "supports",
    )


def verdict(numbers, check, column="avg", which="last", paper=PAPER, **made):
    return judge(claim_of(check), Given(paper, numbers, column, which, **made))


def word(*given, **more):
    return verdict(*given, **more).word


def tally(v):
    """Comparisons in all, run, shown and refuted."""
    return len(v.comparisons), len(v.run), v.count("shown"), v.count("refuted")


def of(setup="a", **values):
    return {(setup, m, None): v for m, v in values.items()}


BEST = {"kind": "compare", "table": "t1", "setups": ["a"], "metrics": ["avg"], "better": "new"}
MARGIN = {"table": "t1", "setups": ["a"], "metrics": ["avg"]}
LOW = (0.0,) * 10
HIGHER = [u + 1 for u in UP]
# five of ten seeds are 1 above UP, five 1 below
ALTERNATING = [u + (1 if u % 2 else -1) for u in UP]
AHEAD, BEHIND = of(new=UP, x=LOW, y=LOW, z=LOW), of(new=LOW, x=UP, y=UP, z=UP)


# ---- a verdict of each kind


@pytest.mark.parametrize(
    ("numbers", "kind", "counts"),
    [
        (AHEAD, "holds", (3, 3, 3, 0)),
        (BEHIND, "fails", (3, 3, 0, 3)),
        # one is refuted, and none is shown
        (of(new=UP, x=HIGHER, y=UP, z=ALTERNATING), "fails", (3, 3, 0, 1)),
        (of(new=UP, x=LOW, y=LOW, z=HIGHER), "mixed", (3, 3, 2, 1)),
        # the other two do not help
        (of(new=UP, x=LOW, y=LOW, z=ALTERNATING), "undecided", (3, 3, 2, 0)),
        (of(new=UP, x=LOW, y=LOW, z=UP), "undecided", (3, 3, 2, 0)),  # a tie is never ahead
        (of(new=UP, x=LOW, y=LOW), "not run", (3, 2, 2, 0)),
        # nor do counterexamples decide before all have been run
        (of(new=UP, x=HIGHER), "not run", (3, 1, 0, 1)),
        ({}, "not run", (3, 0, 0, 0)),
    ],
)  # fmt: skip
def test_a_verdict_is_a_word_and_its_counts(numbers, kind, counts):
    v = verdict(numbers, BEST)
    assert (v.word, tally(v), v.counts) == (kind, counts, kind != "not run")
    assert (v.scaled, v.basis) == (None, "runs")


def test_a_claim_that_compares_nothing_is_not_testable():
    v = judge(Claim("c", "", "", None, "supports"), Evidence(PAPER, []))
    assert (v.word, v.counts, v.comparisons) == ("not testable", False, ())
    assert decide([]).word == "not testable"


def test_p_values_of_a_claim_that_holds():
    worst = verdict(AHEAD, BEST).worst
    assert (worst.label, worst.mean, worst.n) == ("average % of New against X on A", 5.5, 10)
    assert (worst.greater, worst.for_p, worst.less, worst.against_p) == (
        1 / 1024,
        1 / 1024,
        1.0,
        1.0,
    )
    assert (worst.low, worst.high) == (
        pytest.approx(3.334, abs=5e-4),
        pytest.approx(7.666, abs=5e-4),
    )


def test_both_directions_are_adjusted_alike():
    """Behind z by 1 with all ten seeds. The two that are ahead have Σd / √Σd² = 55 / √385 if all signs turn, below
    √10, so that z is as extreme as observed under that assignment alone; but z then is more extreme
    than they are.
    """
    x, y, z = verdict(of(new=UP, x=LOW, y=LOW, z=HIGHER), BEST).comparisons
    assert (z.against_p, z.for_p, z.less) == (1 / 1024, 1.0, 1 / 1024)
    assert [(c.for_p, c.greater) for c in (x, y)] == [(2 / 1024, 1 / 1024)] * 2
    assert [c.state for c in (x, y, z)] == ["shown", "shown", "refuted"]


def test_mixed_signs_by_hand():
    """x lies ahead in five of ten seeds by 1: all sums but those below 0, (2^10 + C(10, 5)) / 2^11."""
    v = verdict(of(new=UP, x=ALTERNATING, y=LOW, z=LOW), BEST)
    assert (v.worst.label, v.worst.mean) == ("average % of New against X on A", 0)
    assert v.worst.greater == (1024 + 252) / 2048


@pytest.mark.parametrize(("for_p", "against_p", "state"), [
    (0.05, 1.0, "shown"), (0.0501, 1.0, "open"), (1.0, 0.05, "refuted"), (1.0, 0.0501, "open"), (None, None, "not run"),
])  # fmt: skip
def test_five_percent_is_enough(for_p, against_p, state):
    assert Comparison("x", 1.0, 0.01, 1.0, 10, for_p=for_p, against_p=against_p).state == state


def test_holding_takes_no_adjustment_and_failing_does():
    """Five comparisons over six seeds, each with the smallest lead on another seed the other way: the sum is as large
    as observed under two of 64 assignments, 0.031. Each has its own second one: adjusted, six of 64
    are as extreme.
    """
    given = [[-0.1 if i == k else 1.0 for i in range(6)] for k in range(5)]
    ahead, behind = (
        decide([above("x", by_unit([s * d for d in ds]), [FULL]) for ds in given]) for s in (1, -1)
    )
    assert (
        [c.greater for c in ahead.comparisons]
        == [c.less for c in behind.comparisons]
        == [2 / 64] * 5
    )
    assert (
        [c.for_p for c in ahead.comparisons]
        == [c.against_p for c in behind.comparisons]
        == [6 / 64] * 5
    )
    assert (ahead.word, behind.word) == ("holds", "undecided")


def test_a_counterexample_among_many_needs_more_only_where_they_differ():
    """With 5 seeds. Comparisons that are ahead in every seed by as much are as extreme when all signs are turned:
    2 / 32. Those that have other signs are so under assignments of their own: one more each.
    """
    behind = above("behind", by_unit([-1.0] * 5), [FULL])
    ahead = above("ahead", by_unit([1.0] * 5), [FULL])
    less = above("less", by_unit([1.0, 1.0, 1.0, 1.0, 2.0]), [FULL])  # Σd / √Σd² = 6 / √8 < √5
    assert decide([behind]).comparisons[0].against_p == 1 / 32
    assert decide([*[ahead] * 50, behind]).comparisons[-1].against_p == 2 / 32
    assert decide([*[less] * 50, behind]).comparisons[-1].against_p == 1 / 32
    others = [
        above("x", by_unit([-1.0 if i == k else 1.0 for i in range(5)]), [FULL]) for k in range(4)
    ]
    v = decide([*others, behind])
    assert (v.word, v.comparisons[-1].against_p) == ("undecided", 5 / 32)


SIGNS = st.lists(st.integers(-3, 3), min_size=6, max_size=6)


@settings(deadline=None)  # the first call imports scipy
@given(st.lists(SIGNS, min_size=1, max_size=4), st.lists(SIGNS, max_size=3), st.booleans())
def test_exchanging_the_sides_exchanges_the_verdicts(differences, parts, every):
    """All but the word of the intersection-union rule, which asks less of a claim that holds than of one that fails."""

    def judged(sign):
        found = [above("x", by_unit([float(sign * d) for d in ds]), [FULL]) for ds in differences]
        of = [above("p", by_unit([float(sign * d) for d in ds]), [FULL]) for ds in parts]
        return decide(
            [*found, joined("j", of, every if sign > 0 else not every)] if parts else found
        )

    one, other = judged(1), judged(-1)
    assert [(c.for_p, c.against_p) for c in one.comparisons] == [
        (c.against_p, c.for_p) for c in other.comparisons
    ]
    turned = {"shown": "refuted", "refuted": "shown", "open": "open"}
    assert [turned[c.state] for c in one.comparisons] == [c.state for c in other.comparisons]
    allowed = {
        "mixed": ("mixed",),
        "holds": ("fails", "undecided"),
        "fails": ("holds", "undecided"),
    }
    assert other.word in allowed.get(one.word, ("holds", "fails", "undecided"))
    assert one.word != "fails" or one.count("refuted")
    if one.word == "undecided" and one.count("shown"):
        assert other.word == "fails"


# ---- what is counted


@pytest.mark.parametrize(("seeds", "kind", "lacking"), [
    (1, "undecided", ("hold", 5)), (4, "undecided", ("hold", 5)), (5, "holds", ("fail", 6)), (6, "holds", None),
])  # fmt: skip
def test_a_claim_counts_only_if_its_seeds_allowed_either_outcome(seeds, kind, lacking):
    """Three comparisons: 5 seeds can show them (1 / 32 each), 6 are sure to refute one of them (3 / 64)."""
    v = verdict({key: values[:seeds] for key, values in AHEAD.items()}, BEST)
    assert (v.word, v.worst.greater) == (kind, 2.0**-seeds)
    assert (v.lacking and (v.lacking[0], v.lacking[2]), v.counts) == (lacking, lacking is None)


def test_what_fails_counts_only_if_it_could_have_held_and_was_sure_to_fail():
    few = {**BEHIND, ("a", "y", None): UP[:4]}  # 4 seeds cannot show that it is ahead of y
    v = verdict(few, BEST)
    assert (v.word, v.lacking[::2], v.lacking[1].label[-6:], v.counts) == (
        "fails",
        ("hold", 5),
        "Y on A",
        False,
    )
    v = verdict({**of(new=UP, x=LOW, z=HIGHER), ("a", "y", None): LOW[:4]}, BEST)
    assert (v.word, v.counts) == ("mixed", False)
    v = verdict({key: values[:5] for key, values in BEHIND.items()}, BEST)
    assert (v.word, v.lacking[0], v.counts) == ("fails", "fail", False)  # as what holds with as few
    v = verdict(BEHIND, BEST)
    assert (v.word, v.lacking, v.counts) == ("fails", None, True)


@pytest.mark.parametrize(
    ("every", "seeds", "lacking"),
    [
        (False, 6, ("hold", 7)),
        (False, 7, None),
        (True, 4, ("hold", 5)),
        (True, 6, ("fail", 7)),
        (True, 7, None),
    ],
)
def test_one_of_several_parts_takes_more_seeds_to_show_and_all_take_more_to_refute(
    every, seeds, lacking
):
    """Four parts: 4 / 64 is above 5 %, 4 / 128 is not."""
    parts = [above("p", by_unit([(-1.0) ** s for s in range(seeds)]), [FULL])] * 4
    v = decide([joined("j", parts, every)])
    assert (v.word, v.lacking and v.lacking[::2], v.counts) == (
        "undecided",
        lacking,
        lacking is None,
    )


def test_what_diverged_everywhere_has_no_blocks_and_does_not_count():
    opened = Comparison("open", 0.0, 1.0, 1.0, 0)
    some = [above("x", by_unit([1.0] * 10), [FULL])]
    assert (decide(some).counts, decide([*some, opened]).counts, decide([*some, opened]).word) == (
        True, False, "undecided",
    )  # fmt: skip


# ---- which comparison is named


def test_the_comparison_that_is_most_against():
    """Ahead of x in all ten seeds, behind y by 0.2 in the mean of mixed signs, behind z in all."""
    mixed = [u + (1.4 if u % 2 else -1) for u in UP]
    v = verdict(of(new=UP, x=LOW, y=mixed, z=HIGHER), BEST)
    assert (v.word, tally(v)) == ("mixed", (3, 3, 1, 1))
    assert (v.worst.label, v.worst.mean, v.worst.low, v.worst.high) == (
        "average % of New against Z on A",
        -1,
        -1,
        -1,
    )
    assert [c.label[-6:] for c in v.comparisons] == ["X on A", "Y on A", "Z on A"]
    assert verdict({}, BEST).worst is None


def test_of_shown_comparisons_the_least_consistent_is_the_weakest():
    """All ten seeds are ahead of each; 1 to 10 is less consistent than 101 to 110."""
    assert verdict(of(new=UP, x=[-100.0] * 10, y=LOW, z=[-100.0] * 10), BEST).worst.label.endswith(
        "Y on A"
    )


def test_each_setup_has_a_verdict():
    numbers = {**AHEAD, **of("b", new=UP, x=UP, y=LOW, z=LOW)}
    v = verdict(numbers, {**BEST, "setups": ["a", "b", "c"]})
    assert (v.word, tally(v)) == ("not run", (9, 6, 5, 0))
    assert {title: (part.word, len(part.comparisons)) for title, part in v.by_group.items()} == {
        "A": ("holds", 3), "B": ("undecided", 3), "C": ("not run", 3),
    }  # fmt: skip
    assert not verdict(numbers, BEST).by_group


def test_all_of_several_checks_are_judged_together():
    other = {
        "kind": "compare",
        "table": "t1",
        "setups": ["b"],
        "metrics": "avg",
        "better": "x",
        "worse": "y",
    }
    both = {"kind": "all", "checks": [BEST, other]}
    v = verdict({**AHEAD, **of("b", x=UP, y=LOW)}, both)
    assert (v.word, tally(v)) == ("holds", (4, 4, 4, 0))
    assert word({**AHEAD, **of("b", x=LOW, y=UP)}, both) == "mixed"
    with pytest.raises(RequestError, match="claims: c01: test is not decided by comparisons"):
        verdict({}, {"kind": "all", "checks": [{"kind": "test", "test": "a::b"}]})


# ---- numbers and pairs


def test_means_alone_decide_nothing():
    """Twice the same means, 1 apart; once with equal differences and once with one seed that makes all of it."""
    base = dict.fromkeys(("y", "z"), [-100.0] * 10)
    assert word(of(new=[1.0] * 10, x=LOW, **base), BEST) == "holds"
    v = verdict(of(new=[10.0] + [0.0] * 9, x=LOW, **base), BEST)
    assert (v.word, v.worst.mean, v.worst.greater) == ("undecided", 1, 0.5)
    assert (v.worst.low, v.worst.high) == (
        pytest.approx(-1.262, abs=5e-4),
        pytest.approx(3.262, abs=5e-4),
    )


def test_seeds_are_paired():
    """Effects of the seed that are far larger than the difference drop out; unpaired seeds are left out."""
    wild = [(-1) ** s * 100.0 * s for s in range(10)]
    assert word(of(new=[w + 0.1 for w in wild], x=wild, y=wild, z=wild), BEST) == "holds"
    shifted = {s + 4: w for s, w in enumerate(wild)}
    assert (
        verdict(of(new=[w + 0.1 for w in wild], x=shifted, y=shifted, z=shifted), BEST).worst.n == 6
    )
    apart = {s + 10: w for s, w in enumerate(wild)}
    v = verdict(of(new=wild, x=apart, y=apart, z=apart), BEST)
    assert (v.word, tally(v)) == ("not run", (3, 0, 0, 0))


def test_numbers_that_are_none_are_left_out():
    ahead = above("x", by_unit([1.0, math.nan, 2.0]), [FULL])
    assert (ahead.n, ahead.mean, ahead.greater) == (2, 1.5, 0.25)
    assert above("x", by_unit([math.nan]), [FULL]).greater is None


# ---- runs at reduced settings give no verdict


CUT = {
    "departs": ("rounds 2 (paper 9)",),
    "reduced": ("rounds 2 (paper 9)",),
    "cuts": (("rounds", "2"),),
}


@pytest.mark.parametrize(("numbers", "kind"), [
    (AHEAD, "holds"), (BEHIND, "fails"), (of(new=UP, x=LOW, y=LOW, z=HIGHER), "mixed"),
    (of(new=UP, x=LOW, y=LOW, z=UP), "undecided"),
])  # fmt: skip
def test_a_reduced_run_must_not_count(numbers, kind):
    v = verdict(numbers, BEST, **{f"a_{m}": CUT for m in METHODS})
    assert (v.word, tally(v), v.counts, v.worst) == ("not run", (3, 0, 0, 0), False, None)
    assert (v.scaled.word, tally(v.scaled)) == (kind, tally(verdict(numbers, BEST)))
    assert v.outcome is v.scaled
    assert [c.reduced for c in v.scaled.comparisons] == [("rounds 2 (paper 9)",)] * 3


def test_one_reduced_comparison_keeps_a_claim_from_its_verdict():
    """Setup a is shown at the paper's settings, and setup b refuted at reduced ones."""
    numbers = {**AHEAD, **of("b", new=LOW, x=UP, y=UP, z=UP)}
    v = verdict(numbers, {**BEST, "setups": ["a", "b"]}, **{f"b_{m}": CUT for m in METHODS})
    assert (v.word, tally(v), v.scaled.word, tally(v.scaled)) == (
        "not run",
        (6, 3, 3, 0),
        "mixed",
        (6, 6, 3, 3),
    )
    assert {k: (g.word, g.scaled and g.scaled.word) for k, g in v.by_group.items()} == {
        "A": ("holds", None), "B": ("not run", "fails"),
    }  # fmt: skip


def test_fewer_seeds_than_the_paper_are_no_other_setting():
    v = verdict(AHEAD, BEST, a_x={"reduced": ("seeds 10 (paper 20)",)})
    assert (v.word, v.scaled) == ("holds", None)


def test_a_comparison_of_parts_is_reduced_if_one_of_them_is():
    part = above("p", by_unit([1.0] * 10), [FULL])
    cut = above("q", by_unit([1.0] * 10), [MatchedRuns({}, **CUT)])
    for every in (True, False):
        v = decide([joined("j", [part, cut], every)])
        assert (v.word, v.scaled.word, v.comparisons[0].parts) == ("not run", "holds", ())
    assert decide([joined("j", [part, part], False)]).word == "holds"


def test_sides_that_are_cut_down_differently_are_not_compared():
    """A method at full length against one after two rounds says nothing of the methods."""
    v = verdict(AHEAD, BEST, a_x=CUT)
    assert (v.word, tally(v), [c.uneven for c in v.comparisons]) == (
        "not run",
        (3, 2, 2, 0),
        [True, False, False],
    )
    alone = verdict(AHEAD, BEST, a_new=CUT)
    assert (alone.word, tally(alone), sum(c.uneven for c in alone.comparisons)) == (
        "not run",
        (3, 0, 0, 0),
        3,
    )


# ---- rows that are not tuned alike


def tuned(*methods, setups=(), origin="searched"):
    return replace(PAPER, values={"v": Values("v", origin, methods, "six rates", setups)})


@pytest.mark.parametrize("numbers", [AHEAD, BEHIND])
@pytest.mark.parametrize("methods", [("new",), ("x", "y", "z"), ("x",)])
def test_a_claim_that_compares_searched_rows_with_others_is_undecided(numbers, methods):
    v = verdict(numbers, BEST, paper=tuned(*methods))
    assert (v.word, v.untuned, v.counts) == ("undecided", True, True)
    assert tally(v) == tally(verdict(numbers, BEST))  # what was measured stays in sight


def test_rows_that_are_tuned_alike_are_compared():
    assert word(AHEAD, BEST, paper=tuned(*METHODS)) == "holds"
    assert word(BEHIND, BEST, paper=tuned("new", origin="default")) == "fails"
    assert word(BEHIND, BEST, paper=tuned("new", setups=("b",))) == "fails"
    other = {"kind": "compare", **MARGIN, "better": "y", "worse": "z"}
    assert word(of(y=UP, z=LOW), other, paper=tuned("new", "x")) == "holds"


def test_without_runs_tuning_decides_nothing():
    assert word(of(new=UP, x=LOW), BEST, paper=tuned("new")) == "not run"
    scaled = verdict(AHEAD, BEST, paper=tuned("new"), **{f"a_{m}": CUT for m in METHODS}).scaled
    assert (scaled.word, scaled.untuned) == ("undecided", True)


# ---- kinds of checks


def test_best_takes_every_setup_metric_and_rival():
    v = verdict({}, {**BEST, "setups": ["a", "b"], "metrics": ["avg", "std"]})
    assert tally(v) == (12, 0, 0, 0)
    v = verdict(of(new=LOW, x=UP, y=UP, z=UP), {**BEST, "metrics": ["std"]}, "std")
    assert v.word == "holds"  # less deviation is better
    assert (v.worst.label, v.worst.mean) == ("STD % of New against X on A", 5.5)


def beaten(*setups):
    """In each setup some row is ahead of the method."""
    rivals = {
        "kind": "compare",
        "table": "t1",
        "metrics": "avg",
        "better": ["x", "y", "z"],
        "worse": "new",
    }
    some = {"kind": "some", "label": "New beaten"}
    return {
        "kind": "all",
        "checks": [{**some, "checks": [{**rivals, "setups": setup}]} for setup in setups],
    }


NOT_BEST = beaten("a", "b")


def test_not_best_needs_a_better_one_in_every_setup():
    """Any of three is enough, so the p-value of the best is multiplied by three: 3 / 1024."""
    above_x, equal = HIGHER, UP
    in_a = of(new=UP, x=above_x, y=LOW, z=LOW)
    assert word({**in_a, **of("b", new=UP, x=LOW, y=LOW, z=above_x)}, NOT_BEST) == "holds"
    v = verdict(in_a, beaten("a"))
    assert v.word == "holds"
    assert v.worst.label == "New beaten (average % of X against New on A)"
    assert (v.worst.mean, v.worst.low, v.worst.high, v.worst.greater) == (1, 1, 1, 3 / 1024)
    assert word({**in_a, **of("b", new=UP, x=equal, y=LOW, z=LOW)}, NOT_BEST) == "undecided"
    v = verdict({**in_a, **of("b", new=UP, x=LOW, y=LOW, z=LOW)}, NOT_BEST)
    assert (v.word, tally(v)) == ("mixed", (2, 2, 1, 1))  # it is the best in b
    # all three are behind: any of their extremes counts, which is one assignment, the observed one;
    # and that in which x is ahead of the method in a is the opposite one
    assert v.worst.against_p == 2 / 1024


def test_not_best_with_missing_rivals():
    """Whichever way those at hand point, the others are missing; they are never counted only where they support it."""
    one = beaten("a")
    for x in (HIGHER, LOW):
        v = verdict(of(new=UP, x=x), one)
        assert (v.word, tally(v), v.worst) == ("not run", (1, 0, 0, 0), None)
    assert word(of(new=UP, x=LOW, y=LOW, z=LOW), one) == "fails"


def test_compare_takes_every_pair():
    check = {
        "kind": "compare",
        "table": "t1",
        "setups": ["a", "c"],
        "metrics": "avg",
        "better": ["new", "x"],
    }
    high, numbers = [u + 20 for u in UP], {}
    for s in ("a", "c"):
        numbers |= of(s, new=high, x=high, y=UP, z=UP)
    v = verdict(numbers, {**check, "worse": ["y", "z"]})
    assert v.word == "holds"
    assert tally(v) == (8, 8, 8, 0)
    assert (
        word({**numbers, **of("c", z=[h + 1 for h in high])}, {**check, "worse": ["y", "z"]})
        == "mixed"
    )
    assert word({**numbers, **of("c", z=[h + 1 for h in high])}, {**check, "worse": "y"}) == "holds"


TREND = {"kind": "trend", "table": "t2", "setup": "a", "algo": "new", "over": "gamma"}


def steps(*heights, seeds=10):
    return {
        ("a", "new", g): [h * u for u in UP[:seeds]] for g, h in zip(GAMMAS, heights, strict=True)
    }


@pytest.mark.parametrize(("trend", "metric"), [("increasing", "avg"), ("increasing", "std")])
def test_a_trend_allows_for_a_step_the_other_way(trend, metric):
    """1, 2, 1.5, 4: five of six pairs rise, one falls, 4/6."""
    check = {**TREND, "metric": metric, "trend": trend}
    v = verdict(steps(1, 2, 1.5, 4), check, metric)
    assert v.word == "holds"
    (ranks,) = v.comparisons
    assert ranks.mean == pytest.approx(4 / 6)
    assert ranks.label.endswith("of New with gamma on A, rising")
    assert word(steps(1, 2, 1.5, 4), {**check, "trend": "decreasing"}, metric) == "fails"
    assert word(steps(1, 2, 1.5, 4, seeds=4), check, metric) == "undecided"


def test_a_trend_that_turns_back_is_undecided():
    """2, 3, 4, 1: three pairs rise and three fall; the ends count no more than other steps."""
    check = {**TREND, "metric": "avg", "trend": "increasing"}
    v = verdict(steps(2, 3, 4, 1), check)
    assert (v.word, v.comparisons[0].mean) == ("undecided", 0.0)


def test_a_trend_over_setups_needs_every_step():
    check = {
        "kind": "trend",
        "table": "t1",
        "algo": ["new", "x"],
        "metric": "avg",
        "over": "setups",
    }
    check |= {"order": ["a", "b", "c"], "trend": "decreasing"}
    numbers = {
        (s, m, None): [h * u for u in UP]
        for s, h in (("a", 3), ("b", 1), ("c", 2))
        for m in ("new", "x")
    }
    v = verdict(numbers, check)
    assert (v.word, len(v.comparisons)) == ("holds", 2)
    del numbers["b", "x", None]
    ranks = verdict(numbers, check).comparisons[1]
    assert ranks.mean is None


def test_in_a_trend_a_run_that_diverged_is_the_worst_of_all():
    """With nine seeds all six pairs fall; with the tenth three fall and three rise: (9 + 0) / 10."""
    numbers = {k: dict(enumerate(v)) for k, v in steps(4, 3, 2, 1).items()}
    del numbers["a", "new", 10.0][9]
    v = verdict(
        numbers,
        {**TREND, "metric": "std", "trend": "decreasing"},
        "std",
        a_new={"others": ((unit(9), "diverged"),)},
    )
    assert v.comparisons[0].mean == pytest.approx(0.9)
    v = verdict(
        numbers,
        {**TREND, "metric": "avg", "trend": "decreasing"},
        a_new={"others": ((unit(9), "diverged"),)},
    )
    assert v.comparisons[0].mean == pytest.approx(1.0)  # the lowest accuracy of all


def test_each_table_has_its_own_round():
    """Table t3 prints the best round, with other hyperparameters; t1 the last."""
    check = {"kind": "compare", "metrics": "avg", "better": ["new", "x"]}
    ahead = {**check, "table": "t3", "setups": "b", "at": {"table": "t1", "setup": "a"}}

    class Both(Given):
        def choices(self, row):
            numbers = {("avg", "best"): by_unit(UP), ("avg", "last"): by_unit(LOW)}
            none = super().choices(row)[-1]
            return [replace(none, runs=dict.fromkeys(by_unit(UP)), given=numbers), none]

    assert judge(claim_of(ahead), Both(PAPER, {})).word == "holds"
    turned = {**check, "table": "t1", "setups": "a", "at": {"table": "t3", "setup": "b"}}
    assert judge(claim_of(turned), Both(PAPER, {})).word == "fails"
    v = verdict({}, {**BEST, "table": "t3"})
    assert v.word == "not run"
    best = verdict(
        {("a", m, 2): UP if m == "new" else LOW for m in METHODS},
        {**BEST, "table": "t3"},
        which="best",
    )
    assert best.word == "holds"


# ---- comparisons of comparisons


def part(greater, less, **more):
    return Comparison("part", 1.0, greater, less, 5, **more)


def test_the_worst_of_comparisons():
    """All must stand: the largest p; any refutes: the smallest one the other way, times their number."""
    both = joined("both", [part(0.01, 0.99), part(0.2, 0.1)], True)
    assert (both.greater, both.less) == (0.2, 0.2)
    assert joined("all", [part(0.01, 0.6)] * 3, True).less == 1.0
    assert joined("one missing", [part(0.01, 0.99), Comparison("x")], True).greater is None
    assert joined("uneven", [part(0.01, 0.99), Comparison("x", uneven=True)], True).uneven
    assert joined("none", [], True).greater is None
    assert joined("reduced", [part(0.1, 0.9), part(0.1, 0.9, reduced=("x",))], True).reduced == (
        "x",
    )


def test_the_best_of_comparisons():
    """One is enough: the smallest p, times their number; all refute: the largest one the other way."""
    one = joined("one", [part(0.01, 0.99), part(0.2, 0.1)], False)
    assert (one.greater, one.less, one.complete) == (0.02, 0.99, True)
    assert joined("all", [part(0.6, 0.01)] * 3, False).greater == 1.0
    lacking = joined("missing", [part(0.6, 0.01), Comparison("x")], False)
    assert (lacking.greater, lacking.less, lacking.complete) == (1.0, 1.0, False)
    assert joined("none", [Comparison("x", uneven=True)], False).uneven
    assert joined("none", [], False).greater is None


# ---- runs that diverge


def lost(*seeds):
    return MatchedRuns({}, tuple((unit(s), "diverged") for s in seeds))


def test_a_run_that_diverged_is_behind_by_the_widest_difference():
    """Seeds 0 to 2 give 1, -3 and 2; the second diverged with seed 3: 3 more, and the mean is (1 - 3 + 2 + 3) / 4."""
    a, b = by_unit([2.0, 0.0, 3.0, 9.0]), by_unit([1.0, 3.0, 1.0])
    c = contest("x", a, b, 1.0, FULL, lost(3))
    assert (c.mean, c.n) == (0.75, 4)
    assert c.label == "x (diverged, so counted as behind: the second with seed 3)"
    other = contest("x", b, a, 1.0, lost(3), FULL)
    assert (other.mean, other.label) == (
        -0.75,
        "x (diverged, so counted as behind: the first with seed 3)",
    )
    # diverged is worse in either direction
    assert contest("x", a, b, -1.0, FULL, lost(3)).mean == (-1 + 3 - 2 + 3) / 4


def test_two_that_diverged_say_nothing():
    c = contest("x", by_unit([2.0]), by_unit([1.0]), 1.0, lost(1), lost(1))
    assert (c.mean, c.n) == (1.0, 1)
    both = contest("x", {}, {}, 1.0, lost(0), lost(0))
    assert (both.greater, both.less) == (1.0, 1.0)
    assert (
        both.label
        == "x (diverged, so counted as behind: the first with seed 0; the second with seed 0)"
    )
    gone = {"others": lost(*range(10)).others}
    v = verdict(of(new={}, x={}, y=LOW, z=LOW), {**BEST, "by": -1.0}, a_new=gone, a_x=gone)
    assert v.word == "fails"  # against y and z; level with x is nothing


def test_where_one_method_always_diverges_the_other_is_ahead():
    c = contest("x", by_unit([1.0] * 5), {}, 1.0, FULL, lost(*range(5)))
    assert (c.mean, c.greater, c.less) == (math.inf, 2**-5, 1.0)
    assert c.label.endswith("with seed 0, 1, 2, 3, 4)")


def test_a_run_that_diverged_counts_only_against_one_that_is_there():
    assert contest("x", {}, {}, 1.0, lost(0), FULL).greater is None
    two, one = by_unit({1: 2.0}), by_unit({1: 1.0})
    assert contest("x", two, one, 1.0, lost(0), FULL) == above("x", leads(two, one, 1.0), [FULL])


def test_of_a_single_method_a_run_that_diverged_leaves_the_matter_open():
    c = above("x", by_unit([1.0] * 5), [lost(7)])
    assert (c.greater, c.less) == (1.0, 1.0)
    assert (c.label, decide([c]).word) == ("x (undecided: a run diverged with seed 7)", "undecided")


def test_divergence_cannot_make_a_method_win():
    """Ahead with four seeds and diverged with six: left out, it would be undecided in its favour."""
    there = dict(enumerate(UP[:4]))
    numbers = of(new=there, x=LOW, y=LOW, z=LOW)
    v = verdict(numbers, BEST, a_new={"others": lost(*range(4, 10)).others})
    assert (v.word, "diverged, so counted as behind" in v.worst.label) == ("undecided", True)
    v = verdict(of(new={}, x=LOW, y=LOW, z=LOW), BEST, a_new={"others": lost(*range(10)).others})
    assert v.word == "fails"


def test_what_has_not_run_is_not_open_and_what_is_cut_differently_is_uneven():
    gone, cut = (
        lost(0),
        MatchedRuns({}, ((unit(0), "diverged"),), ("rounds 2",), (("rounds", "2"),)),
    )
    assert decide([above("x", {}, [gone, MatchedRuns({})])]).word == "not run"
    assert contest("x", {}, {}, 1.0, gone, cut).uneven
    assert above("x", {}, [gone, cut]).uneven


# ---- the papers' own numbers


def claims(*kinds):
    return [
        (p, c) for p in papers().values() for c in p.claims.values() if isinstance(c.check, kinds)
    ]


@pytest.mark.parametrize(("paper", "claim"), claims(EqualRows), ids=lambda v: getattr(v, "id", ""))
def test_claims_on_printed_numbers_come_out_as_transcribed(paper, claim):
    v = judge(claim, Evidence(paper, []))
    assert v.word == {"supports": "holds", "contradicts": "fails"}[claim.printed]


def of_paper(paper, claim):
    p = papers()[paper]
    return judge(p.claims[claim], Evidence(p, []))


def test_the_numbers_that_differ_are_named():
    """AdaFedAdam, Dirichlet 0.1 in Tables 3 and 6; AdaFed's best 5 % in Tables 1 and 10."""
    v = of_paper("adafedadam", "c19")
    assert v.word == "fails"
    assert v.evidence == (
        "printed numbers differ: STD % 6.58 ± 0.77 and 8.59 ± 0.39 on cifar10_dir01; "
        "worst 30 % 55.26 ± 2.83 and 56.48 ± 1.45 on cifar10_dir01"
    )
    assert of_paper("adafedadam", "c20").evidence == "all 9 printed numbers agree"
    assert (
        of_paper("adafed", "c41").evidence
        == "printed numbers differ: best 5 % 69.41 and 67.73 on cifar10_s1"
    )
    assert of_paper("adafed", "c40").evidence == "all 8 printed numbers agree"
    assert of_paper("fedcada", "c23").evidence == "all 6 printed numbers agree"


def test_a_spread_that_differs_is_a_number_that_differs():
    row = {"avg": Reported(1.0, 0.1), "std": Reported(2.0, None)}
    one, two = (
        table(n, [Row("new", "a", {}, v)])
        for n, v in (("p", row), ("q", row | {"avg": Reported(1.0, 0.2)}))
    )
    paper = replace(PAPER, tables={"p": one, "q": two})
    check = {
        "kind": "equal_rows",
        "tables": ["p", "q"],
        "algo": "new",
        "setups": ["a"],
        "metrics": ["avg", "std"],
    }
    v = judge(claim_of(check, paper), Evidence(paper, []))
    assert (v.word, v.evidence) == (
        "fails",
        "printed numbers differ: average % 1 ± 0.1 and 1 ± 0.2 on a",
    )
    same = {**check, "tables": ["p", "p"]}
    assert (
        judge(claim_of(same, paper), Evidence(paper, [])).evidence == "all 2 printed numbers agree"
    )


def test_without_runs_nothing_is_decided_but_what_needs_none():
    for p in papers().values():
        for c in p.claims.values():
            v = judge(c, Evidence(p, []))
            if c.check is None:
                assert v.word == "not testable"
            elif not isinstance(c.check, PropertyTest | EqualRows):
                assert v.word == "not run"
                assert not v.run
    assert len(of_paper("adafedadam", "c02").comparisons) == 16  # 4 setups, 4 rivals
    # a rank correlation per measure of eleven setups
    assert len(of_paper("adafed", "c19").comparisons) == 34
    assert len(of_paper("fedcada", "c07").comparisons) == 2  # two methods, 2 setups
    # 15 pairs in 2 setups; two methods beaten in each
    assert len(of_paper("fedcada", "c10").comparisons) == 34
    assert len(of_paper("fafed", "c04").comparisons) == 90  # 5 others, 2 measures, 9 setups


# ---- margins


def across(**numbers):
    """Ten seeds of each method, level up to what is common to all."""
    return of(**{m: [u + shift for u in UP] for m, shift in numbers.items()})


NOISY = [u + (4 if u % 2 else -4) for u in UP]


@pytest.mark.parametrize(
    ("lead", "by", "metric", "kind"),
    [
        # 2 is a tie with every seed
        (2.5, 2, "avg", "holds"), (2.0, 2, "avg", "undecided"), (1.5, 2, "avg", "fails"),
        (-3.0, 2, "std", "holds"), (-3.0, 4, "std", "fails"),  # less is better
        # a lag
        (-0.5, -1, "avg", "holds"), (-1.0, -1, "avg", "undecided"), (-1.5, -1, "avg", "fails"),
        (0.4, -0.5, "std", "holds"), (0.6, -0.5, "std", "fails"),
    ],
)  # fmt: skip
def test_a_lead_to_be_exceeded_or_a_lag_not_to_be_reached(lead, by, metric, kind):
    check = {
        "kind": "compare",
        **MARGIN,
        "metrics": metric,
        "better": "new",
        "worse": "x",
        "by": by,
    }
    v = verdict(across(new=lead, x=0.0), check, metric)
    assert v.word == kind
    margin = f"{'less' if (by > 0) == (metric == 'avg') else 'plus'} {abs(by)}"
    assert (
        v.worst.label
        == f"{'average' if metric == 'avg' else 'STD'} % of New {margin} against X on A"
    )


def test_a_lag_behind_some_methods_only():
    """z is far ahead of both, and is not asked for."""
    check = {"kind": "compare", **MARGIN, "better": ["new", "x"], "worse": ["x", "y"], "by": -1}
    v = verdict(across(new=0.2, x=0.0, y=0.5, z=50.0), check)
    assert (v.word, len(v.comparisons)) == ("holds", 3)  # new-x, new-y, x-y
    v = verdict(across(new=0.2, x=0.0, y=1.5, z=50.0), check)
    assert (v.word, tally(v)) == ("mixed", (3, 3, 1, 2))  # both are behind y by more than 1


def test_differences_within_a_margin():
    """A comparison of two one-sided tests for each of three pairs; pairs that are all far apart refute it."""
    check = {
        "kind": "compare",
        **MARGIN,
        "better": ["new", "x", "y"],
        "worse": ["new", "x", "y"],
        "by": -1,
    }
    assert tally(verdict(across(new=0.0, x=0.4, y=0.9), check)) == (3, 3, 3, 0)
    assert tally(verdict(across(new=0.0, x=0.4, y=1.2), check)) == (3, 3, 2, 1)
    assert word(across(new=0.0, x=2.0, y=4.0), check) == "fails"
    assert word(across(new=0.0, x=0.4) | of(y=NOISY), check) == "undecided"
    assert word(across(new=0.0, x=0.4), check) == "not run"


def test_tables_apart_by_a_margin():
    """Rises by 3 from b to a: by more than 2, not by more than 4, and less than 4 behind the other way."""
    numbers = across(new=3.0) | {("b", "new", None): UP}
    check = {"kind": "compare", "table": "t1", "metrics": "avg", "better": "new"}
    up = {**check, "setups": "a", "at": {"table": "t1", "setup": "b"}}
    down = {**check, "setups": "b", "at": {"table": "t1", "setup": "a"}}
    assert [word(numbers, {**up, "by": by}) for by in (2, 4)] == ["holds", "fails"]
    assert [word(numbers, {**down, "by": by}) for by in (-4, -2)] == ["holds", "fails"]


@pytest.mark.parametrize(("shows", "how"), [("holds", "shown"), ("fails", "refuted")])
def test_a_test_of_the_code_shows_a_claim_or_refutes_it(shows, how):
    v = verdict({}, {"kind": "test", "test": "tests/a.py::test_b", "shows": shows})
    assert (v.word, v.basis, v.counts) == (shows, "test", False)
    assert v.evidence == f"a property of the method, {how} by tests/a.py::test_b"
