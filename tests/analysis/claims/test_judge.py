"""Verdicts on claims about tables: numbers made up here, p-values by hand (all of n signs alike: 2^-n)."""

import math
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_up import made_up
from units import by_unit, unit

from fedbench.analysis.claims.comparison import Comparison, above, contest, joined, leads
from fedbench.analysis.claims.judge import judge
from fedbench.analysis.claims.verdict import Counts, decide
from fedbench.analysis.matching import Evidence, MatchedRuns
from fedbench.core.errors import RequestError
from fedbench.papers.checks import AnyCheck, EqualRows, PropertyTest
from fedbench.papers.parsing import parse
from fedbench.papers.registry import papers
from fedbench.papers.schema import Claim, Method, PrintedMetric, Reported, Row, Setup, Table

METHODS = ("new", "x", "y", "z")
SETUPS = ("a", "b", "c")
GAMMAS = (0.5, 1.0, 2.0, 10.0)
UP = tuple(range(1, 11))  # ten seeds, no two alike
FULL = MatchedRuns({})


def table(name, rows, which="last"):
    return Table(name, "", tuple(dict.fromkeys(r.setup for r in rows)), ("avg", "std"), tuple(rows), which)


PAPER = made_up(
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

    def values(self, metric, which="last"):
        return self.given.get((metric.id, which), {})


class Given(Evidence):
    """Numbers by (setup, method, hyperparameter or None): a list is the last average of each seed."""

    def __init__(self, numbers, metric="avg", which="last", **found):
        super().__init__([])
        self.numbers, self.key, self.made = numbers, (metric, which), found

    def choices(self, paper, row):
        hyper = row.hyperparameters.get("gamma", row.hyperparameters.get("epochs"))
        values = self.numbers.get((row.setup, row.algo, hyper))
        if values is None:
            return []
        by_seed = by_unit(values)
        return [
            Numbers(dict.fromkeys(by_seed), given={self.key: by_seed}, **self.made.get(f"{row.setup}_{row.algo}", {}))
        ]


def claim_of(check, paper=PAPER):
    """A claim whose check is read as in a paper's file."""
    sections = ("metrics", "methods", "setups", "tables", "figures")
    return Claim("c01", "", "", parse(AnyCheck, check, "c01", {k: getattr(paper, k) for k in sections}), "supports")


def verdict(numbers, check, column="avg", which="last", **made):
    return judge(PAPER, claim_of(check), Given(numbers, column, which, **made))


def of(setup="a", **values):
    return {(setup, m, None): v for m, v in values.items()}


BEST = {"kind": "compare", "table": "t1", "setups": ["a"], "metrics": ["avg"], "better": "new"}
LOW = (0.0,) * 10


# ---- holds, fails, undecided


def test_ten_seeds_all_ahead_hold():
    v = verdict(of(new=UP, x=LOW, y=LOW, z=LOW), BEST)
    assert v.verdict == "holds"
    assert v.counts == Counts(3, 3, 3, 0, 3, 0)
    worst = v.worst
    assert (worst.label, worst.mean, worst.n, worst.greater) == ("average % of New against X on A", 5.5, 10, 1 / 1024)
    assert (worst.low, worst.high) == (pytest.approx(3.334, abs=5e-4), pytest.approx(7.666, abs=5e-4))
    assert not v.reduced


def test_level_is_enough_within_a_margin():
    """A tie is never ahead; a claim of at least level states how far behind is still level."""
    close = {**BEST, "by": -0.5}
    level, behind = of(new=UP, x=UP, y=LOW, z=LOW), of(new=UP, x=[u + 0.5 for u in UP], y=LOW, z=LOW)
    assert verdict(level, BEST).verdict == "undecided"
    v = verdict(level, close)
    assert v.verdict == "holds"
    assert v.comparisons[0].label.endswith("New plus 0.5 against X on A")
    assert v.comparisons[0].mean == 0.5
    assert verdict(behind, close).verdict == "undecided"
    assert verdict(of(new=UP, x=[u + 0.6 for u in UP], y=LOW, z=LOW), close).verdict == "fails"
    worse = of(new=[u + 0.4 for u in UP], x=UP, y=UP, z=UP)  # of a deviation, more is behind
    assert verdict(worse, {**close, "metrics": ["std"]}, "std").verdict == "holds"
    assert verdict(worse, {**BEST, "metrics": ["std"]}, "std").verdict == "fails"


@pytest.mark.parametrize(
    ("seeds", "word"), [(1, "undecided"), (3, "undecided"), (4, "undecided"), (5, "holds"), (10, "holds")]
)
def test_few_seeds_cannot_decide_and_say_so(seeds, word):
    v = verdict(of(new=UP[:seeds], x=LOW[:seeds], y=LOW[:seeds], z=LOW[:seeds]), BEST)
    assert v.verdict == word
    assert v.worst.greater == 2.0**-seeds
    assert (v.lacking == ("hold", 5)) == (word == "undecided")


def test_one_clear_counterexample_fails():
    """Behind z with all ten seeds alike: 1 of 1024 signs. The two that are ahead have T = 55 / √385 when all signs are
    turned, below √10, so that no other assignment counts."""
    v = verdict(of(new=UP, x=LOW, y=LOW, z=[u + 1 for u in UP]), BEST)
    assert v.verdict == "fails"
    assert v.counts == Counts(3, 3, 2, 1, 2, 1)
    worst = v.worst
    assert (worst.label, worst.mean, worst.low, worst.high) == ("average % of New against Z on A", -1, -1, -1)
    assert (worst.greater, worst.against_p) == (1.0, 1 / 1024)


def test_a_counterexample_among_many_needs_more_only_where_they_differ():
    """With 5 seeds. Comparisons that are ahead in every seed by as much are as extreme when all signs are turned:
    2 / 32. Those that have other signs are so under assignments of their own: one more each."""
    behind = above("behind", by_unit([-1.0] * 5), [FULL])
    ahead = above("ahead", by_unit([1.0] * 5), [FULL])
    less = above("less", by_unit([1.0, 1.0, 1.0, 1.0, 2.0]), [FULL])  # Σd / √Σd² = 6 / √8 < √5
    assert decide([behind]).comparisons[0].against_p == 1 / 32
    assert decide([*[ahead] * 50, behind]).comparisons[-1].against_p == 2 / 32
    assert decide([*[less] * 50, behind]).comparisons[-1].against_p == 1 / 32
    others = [above("x", by_unit([-1.0 if i == k else 1.0 for i in range(5)]), [FULL]) for k in range(4)]
    v = decide([*others, behind])
    assert v.comparisons[-1].against_p == 5 / 32
    assert v.verdict == "undecided"
    assert v.lacking == ("fail", 7)  # 5 / 128 < 0.05


def test_counts_and_the_comparison_that_is_most_against():
    """Ahead of x in all ten seeds, behind y by 0.2 in the mean of mixed signs, behind z in all."""
    mixed = [u + (1.4 if u % 2 else -1) for u in UP]
    v = verdict(of(new=UP, x=LOW, y=mixed, z=[u + 1 for u in UP]), BEST)
    assert v.counts == Counts(total=3, run=3, ahead=1, behind=2, significantly_ahead=1, significantly_behind=1)
    assert (v.worst.label, v.worst.mean, v.worst.low, v.worst.high) == ("average % of New against Z on A", -1, -1, -1)
    assert [c.label[-6:] for c in v.comparisons] == ["X on A", "Y on A", "Z on A"]
    missing = verdict(of(new=UP, x=LOW, z=[u + 1 for u in UP[:3]] + [0.0] * 7), BEST)
    assert missing.counts == Counts(3, 2, 2, 0, 2, 0)
    assert verdict({}, BEST).worst is None


def test_of_shown_comparisons_the_least_consistent_is_the_weakest():
    """All ten seeds are ahead of each; 1 to 10 is less consistent than 101 to 110."""
    assert verdict(of(new=UP, x=[-100.0] * 10, y=LOW, z=[-100.0] * 10), BEST).worst.label.endswith("Y on A")


def test_each_setup_has_a_verdict():
    numbers = {**of(new=UP, x=LOW, y=LOW, z=LOW), **of("b", new=UP, x=UP, y=LOW, z=LOW)}
    v = verdict(numbers, {**BEST, "setups": ["a", "b", "c"]})
    assert v.verdict == "partly measured"
    assert {title: part.verdict for title, part in v.by_group.items()} == {
        "A": "holds", "B": "undecided", "C": "not run",
    }  # fmt: skip
    assert [part.counts.total for part in v.by_group.values()] == [3, 3, 3]
    assert not verdict(numbers, BEST).by_group


def test_all_of_several_checks_are_judged_together():
    other = {"kind": "compare", "table": "t1", "setups": ["b"], "metrics": "avg", "better": "x", "worse": "y"}
    both = {"kind": "all", "checks": [BEST, other]}
    numbers = {**of(new=UP, x=LOW, y=LOW, z=LOW), **of("b", x=UP, y=LOW)}
    v = verdict(numbers, both)
    assert (v.verdict, v.counts.total) == ("holds", 4)
    assert verdict({**numbers, **of("b", x=LOW, y=UP)}, both).verdict == "fails"
    with pytest.raises(RequestError, match="claims: c01: test is not decided by comparisons"):
        verdict({}, {"kind": "all", "checks": [{"kind": "test", "test": "a::b"}]})


def test_everything_must_be_shown():
    """x lies ahead in five of ten seeds: the other comparisons do not help."""
    mixed = [u + (1 if u % 2 else -1) for u in UP]
    v = verdict(of(new=UP, x=mixed, y=LOW, z=LOW), BEST)
    assert v.verdict == "undecided"
    assert (v.worst.label, v.worst.mean) == ("average % of New against X on A", 0)
    assert v.worst.greater == (1024 + 252) / 2048  # all but those whose sum is below 0: (2^10 + C(10, 5)) / 2^11


def test_means_alone_decide_nothing():
    """Twice the same means, 1 apart; once with equal differences and once with one seed that makes all of it."""
    base = dict.fromkeys(("y", "z"), [-100.0] * 10)
    assert verdict(of(new=[1.0] * 10, x=LOW, **base), BEST).verdict == "holds"
    noisy = [10.0] + [0.0] * 9
    v = verdict(of(new=noisy, x=LOW, **base), BEST)
    assert v.verdict == "undecided"
    assert (v.worst.mean, v.worst.greater) == (1, 0.5)
    assert (v.worst.low, v.worst.high) == (pytest.approx(-1.262, abs=5e-4), pytest.approx(3.262, abs=5e-4))


def test_seeds_are_paired():
    """Effects of the seed that are far larger than the difference drop out; unpaired seeds are left out."""
    wild = [(-1) ** s * 100.0 * s for s in range(10)]
    assert verdict(of(new=[w + 0.1 for w in wild], x=wild, y=wild, z=wild), BEST).verdict == "holds"
    shifted = {s + 4: w for s, w in enumerate(wild)}
    v = verdict(of(new={s: w + 0.1 for s, w in enumerate(wild)}, x=shifted, y=shifted, z=shifted), BEST)
    assert v.worst.n == 6
    apart = {s + 10: w for s, w in enumerate(wild)}
    v = verdict(of(new=wild, x=apart, y=apart, z=apart), BEST)
    assert (v.verdict, v.counts) == ("not run", Counts(total=3))


@settings(deadline=None)  # the first call imports scipy
@given(st.lists(st.integers(-20, 20), min_size=1, max_size=10), st.integers(-50, 50))
def test_exchanging_the_sides_exchanges_the_verdicts(differences, shift):
    there = [d + shift for d in differences]
    back = [shift] * len(differences)
    check = {"kind": "compare", "table": "t1", "setups": ["a"], "metrics": "avg", "better": "new", "worse": "x"}
    turned = {**check, "better": "x", "worse": "new"}
    one, other = (verdict(of(new=there, x=back), c).verdict for c in (check, turned))
    assert {one, other} in ({"holds", "fails"}, {"undecided"})
    assert verdict(of(new=differences, x=[0] * len(differences)), check).verdict == one  # what is common drops out
    assert verdict(of(new=there, x=back), {**turned, "metrics": "std"}, "std").verdict == one


# ---- what is missing


def test_missing_rows_are_not_run():
    v = verdict({}, BEST)
    assert (v.verdict, v.counts) == ("not run", Counts(total=3))
    v = verdict(of(new=UP, x=LOW), BEST)
    assert v.verdict == "partly measured"
    assert v.counts == Counts(3, 1, 1, 0, 1, 0)
    v = verdict(of(new=UP, x=[u + 1 for u in UP]), BEST)
    assert v.verdict == "fails"  # one counterexample is enough
    assert (v.worst.greater, v.worst.against_p) == (1.0, 1 / 1024)  # not adjusted for what has not been run


def test_numbers_that_are_none_are_left_out():
    ahead = above("x", by_unit([1.0, math.nan, math.inf, 2.0]), [FULL])
    assert (ahead.n, ahead.mean, ahead.greater) == (2, 1.5, 0.25)
    assert above("x", by_unit([math.nan]), [FULL]).greater is None


def test_no_comparison_no_verdict():
    assert judge(PAPER, Claim("c", "", "", None, "supports"), Evidence([])).verdict == "not testable"
    v = verdict({}, {"kind": "test", "test": "tests/test_x.py::test_y"})
    assert (v.verdict, v.evidence) == ("holds", "a property of the method, shown by tests/test_x.py::test_y")


# ---- cut down


def test_a_reduced_side_is_passed_on():
    numbers = of(new=UP, x=LOW, y=LOW, z=LOW)
    cut = {"reduced": ("rounds 2 (paper 9)",), "cuts": (("rounds", "2"),)}
    alike = {f"a_{m}": cut for m in METHODS}
    assert (verdict(numbers, BEST, **alike).reduced, verdict(numbers, BEST).reduced) == (True, False)
    assert verdict(numbers, BEST, **alike).counts == verdict(numbers, BEST).counts
    seeds = {"a_x": {"reduced": ("seeds 10 (paper 20)",)}}
    assert verdict(numbers, BEST, **seeds).reduced
    assert verdict(of(new=LOW, x=UP, y=UP, z=UP), BEST, **alike).reduced  # a failure too
    assert verdict(of(new=UP, x=UP, y=UP, z=UP), BEST, **alike).reduced


def test_sides_that_are_cut_down_differently_are_not_compared():
    """A method at full length against one after two rounds says nothing of the methods."""
    numbers = of(new=UP, x=LOW, y=LOW, z=LOW)
    v = verdict(numbers, BEST, a_x={"reduced": ("rounds 2 (paper 9)",), "cuts": (("rounds", "2"),)})
    assert v.verdict == "partly measured"
    assert (v.counts.run, v.counts.ahead, sum(c.uneven for c in v.comparisons)) == (2, 2, 1)
    alone = verdict(numbers, BEST, a_new={"cuts": (("rounds", "2"),)})
    assert (alone.verdict, alone.counts, sum(c.uneven for c in alone.comparisons)) == ("not run", Counts(total=3), 3)


SUPPORTED, REFUTED = of(new=UP, x=LOW, y=LOW, z=LOW), of(new=LOW, x=UP, y=UP, z=UP)


@pytest.mark.parametrize(
    ("can", "words"),
    [
        ("decide", ("holds", "fails")),
        ("support", ("holds", "undecided")),
        ("refute", ("undecided", "fails")),
        ("neither", ("undecided", "undecided")),
    ],
)
def test_a_claim_says_what_runs_at_reduced_settings_can_do(can, words):
    claim = replace(claim_of(BEST), reduced=can)
    cut = {f"a_{m}": {"reduced": ("rounds 2 (paper 9)",), "cuts": (("rounds", "2"),)} for m in METHODS}
    reduced = [judge(PAPER, claim, Given(n, **cut)) for n in (SUPPORTED, REFUTED)]
    assert tuple(v.verdict for v in reduced) == words
    for v, barred in zip(reduced, ("holds", "fails"), strict=True):
        assert v.barred == (barred if v.verdict == "undecided" else "")
    full = [judge(PAPER, claim, Given(n)).verdict for n in (SUPPORTED, REFUTED)]
    assert full == ["holds", "fails"]  # runs at the paper's settings can do both


def test_what_reduced_runs_cannot_do_they_cannot_do_for_a_single_setup():
    claim = replace(claim_of({**BEST, "setups": ["a", "b"]}), reduced="support")
    numbers = {**SUPPORTED, **of("b", new=LOW, x=UP, y=UP, z=UP)}
    cut = {f"b_{m}": {"reduced": ("rounds 2 (paper 9)",), "cuts": (("rounds", "2"),)} for m in METHODS}
    found = judge(PAPER, claim, Given(numbers, **cut))
    assert (found.verdict, {k: v.verdict for k, v in found.by_group.items()}) == (
        "undecided",
        {"A": "holds", "B": "undecided"},
    )


def test_a_claim_that_a_setup_refutes_at_full_settings_fails_whatever_others_are_reduced():
    claim = replace(claim_of({**BEST, "setups": ["a", "b"]}), reduced="support")
    numbers = {**REFUTED, **of("b", new=UP, x=LOW, y=LOW, z=LOW)}
    cut = {f"b_{m}": {"reduced": ("rounds 2 (paper 9)",), "cuts": (("rounds", "2"),)} for m in METHODS}
    found = judge(PAPER, claim, Given(numbers, **cut))
    assert (found.verdict, found.by_group["A"].verdict, found.by_group["B"].verdict) == ("fails", "fails", "holds")
    assert judge(PAPER, replace(claim, reduced="refute"), Given(numbers, **cut)).by_group["B"].verdict == "undecided"


# ---- kinds of checks


def test_best_takes_every_setup_metric_and_rival():
    v = verdict({}, {**BEST, "setups": ["a", "b"], "metrics": ["avg", "std"]})
    assert v.counts == Counts(total=12)
    v = verdict(of(new=LOW, x=UP, y=UP, z=UP), {**BEST, "metrics": ["std"]}, "std")
    assert v.verdict == "holds"  # less deviation is better
    assert (v.worst.label, v.worst.mean) == ("STD % of New against X on A", 5.5)


def beaten(*setups):
    """In each setup some row is ahead of the method."""
    rivals = {"kind": "compare", "table": "t1", "metrics": "avg", "better": ["x", "y", "z"], "worse": "new"}
    some = {"kind": "some", "label": "New beaten"}
    return {"kind": "all", "checks": [{**some, "checks": [{**rivals, "setups": setup}]} for setup in setups]}


NOT_BEST = beaten("a", "b")


def test_not_best_needs_a_better_one_in_every_setup():
    """Any of three is enough, so the p-value of the best is multiplied by three: 3 / 1024."""
    above_x, equal = [u + 1 for u in UP], UP
    in_a = of(new=UP, x=above_x, y=LOW, z=LOW)
    assert verdict({**in_a, **of("b", new=UP, x=LOW, y=LOW, z=above_x)}, NOT_BEST).verdict == "holds"
    v = verdict(in_a, beaten("a"))
    assert v.verdict == "holds"
    assert v.worst.label == "New beaten (average % of X against New on A)"
    assert (v.worst.mean, v.worst.low, v.worst.high, v.worst.greater) == (1, 1, 1, 3 / 1024)
    assert verdict({**in_a, **of("b", new=UP, x=equal, y=LOW, z=LOW)}, NOT_BEST).verdict == "undecided"
    v = verdict({**in_a, **of("b", new=UP, x=LOW, y=LOW, z=LOW)}, NOT_BEST)
    assert v.verdict == "fails"  # it is the best in b
    # all three are behind: any of their extremes counts, which is one assignment, the observed one; and that in which
    # x is ahead of the method in a is the opposite one
    assert v.worst.against_p == 2 / 1024


def test_not_best_with_missing_rivals():
    """Whichever way those at hand point, the others are missing; they are never counted only where they support it."""
    one = beaten("a")
    for x in ([u + 1 for u in UP], LOW):
        v = verdict(of(new=UP, x=x), one)
        assert (v.verdict, v.counts.run, v.counts.total, v.worst) == ("partly measured", 0, 1, None)
    assert verdict(of(new=UP, x=LOW, y=LOW, z=LOW), one).verdict == "fails"


def test_compare_takes_every_pair():
    check = {"kind": "compare", "table": "t1", "setups": ["a", "c"], "metrics": "avg", "better": ["new", "x"]}
    high, numbers = [u + 20 for u in UP], {}
    for s in ("a", "c"):
        numbers |= of(s, new=high, x=high, y=UP, z=UP)
    v = verdict(numbers, {**check, "worse": ["y", "z"]})
    assert v.verdict == "holds"
    assert (v.counts.total, v.counts.ahead) == (8, 8)
    assert verdict({**numbers, **of("c", z=[h + 1 for h in high])}, {**check, "worse": ["y", "z"]}).verdict == "fails"
    assert verdict({**numbers, **of("c", z=[h + 1 for h in high])}, {**check, "worse": "y"}).verdict == "holds"


TREND = {"kind": "trend", "table": "t2", "setup": "a", "algo": "new", "over": "gamma"}


def steps(*heights, seeds=10):
    return {("a", "new", g): [h * u for u in UP[:seeds]] for g, h in zip(GAMMAS, heights, strict=True)}


@pytest.mark.parametrize(("trend", "metric"), [("increasing", "avg"), ("increasing", "std")])
def test_a_trend_allows_for_a_step_the_other_way(trend, metric):
    """1, 2, 1.5, 4: five of six pairs rise, one falls, 4/6; the ends are 3 times the seed's number apart."""
    check = {**TREND, "metric": metric, "trend": trend}
    v = verdict(steps(1, 2, 1.5, 4), check, metric)
    assert v.verdict == "holds"
    ranks, ends = v.comparisons
    assert (ranks.mean, ends.mean) == (pytest.approx(4 / 6), pytest.approx(3 * 5.5))
    assert ranks.label.endswith("of New with gamma on A, rising")
    assert verdict(steps(1, 2, 1.5, 4), {**check, "trend": "decreasing"}, metric).verdict == "fails"
    assert verdict(steps(1, 2, 1.5, 4, seeds=4), check, metric).verdict == "undecided"


def test_a_trend_that_turns_back_behind_its_start_fails():
    """2, 3, 4, 1: three pairs rise and three fall, so that only the ends decide."""
    check = {**TREND, "metric": "avg", "trend": "increasing"}
    v = verdict(steps(2, 3, 4, 1), check)
    assert (v.verdict, v.comparisons[0].mean) == ("fails", 0.0)


def test_a_trend_over_setups_needs_every_step():
    check = {"kind": "trend", "table": "t1", "algo": ["new", "x"], "metric": "avg", "over": "setups"}
    check |= {"order": ["a", "b", "c"], "trend": "decreasing"}
    numbers = {(s, m, None): [h * u for u in UP] for s, h in (("a", 3), ("b", 1), ("c", 2)) for m in ("new", "x")}
    v = verdict(numbers, check)
    assert (v.verdict, len(v.comparisons)) == ("holds", 4)
    del numbers["b", "x", None]
    ranks = verdict(numbers, check).comparisons[2]
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
        def choices(self, paper, row):
            numbers = {("avg", "best"): by_unit(UP), ("avg", "last"): by_unit(LOW)}
            return [Numbers(dict.fromkeys(by_unit(UP)), given=numbers)]

    assert judge(PAPER, claim_of(ahead), Both({})).verdict == "holds"
    turned = {**check, "table": "t1", "setups": "a", "at": {"table": "t3", "setup": "b"}}
    assert judge(PAPER, claim_of(turned), Both({})).verdict == "fails"
    v = verdict({}, {**BEST, "table": "t3"})
    assert v.verdict == "not run"
    best = verdict({("a", m, 2): UP if m == "new" else LOW for m in METHODS}, {**BEST, "table": "t3"}, which="best")
    assert best.verdict == "holds"


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
    assert joined("reduced", [part(0.1, 0.9), part(0.1, 0.9, reduced=True)], True).reduced


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
    assert (other.mean, other.label) == (-0.75, "x (diverged, so counted as behind: the first with seed 3)")
    assert contest("x", a, b, -1.0, FULL, lost(3)).mean == (-1 + 3 - 2 + 3) / 4  # diverged is worse in either direction


def test_two_that_diverged_say_nothing():
    c = contest("x", by_unit([2.0]), by_unit([1.0]), 1.0, lost(1), lost(1))
    assert (c.mean, c.n) == (1.0, 1)
    both = contest("x", {}, {}, 1.0, lost(0), lost(0))
    assert (both.greater, both.less) == (1.0, 1.0)
    assert both.label == "x (diverged, so counted as behind: the first with seed 0; the second with seed 0)"
    gone = {"others": lost(*range(10)).others}
    v = verdict(of(new={}, x={}, y=LOW, z=LOW), {**BEST, "by": -1.0}, a_new=gone, a_x=gone)
    assert v.verdict == "fails"  # against y and z; level with x is nothing


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
    assert (c.label, decide([c]).verdict) == ("x (undecided: a run diverged with seed 7)", "undecided")


def test_divergence_cannot_make_a_method_win():
    """Ahead with four seeds and diverged with six: left out, it would be undecided in its favour."""
    there = dict(enumerate(UP[:4]))
    numbers = of(new=there, x=LOW, y=LOW, z=LOW)
    v = verdict(numbers, BEST, a_new={"others": lost(*range(4, 10)).others})
    assert (v.verdict, "diverged, so counted as behind" in v.worst.label) == ("undecided", True)
    v = verdict(of(new={}, x=LOW, y=LOW, z=LOW), BEST, a_new={"others": lost(*range(10)).others})
    assert v.verdict == "fails"


def test_what_has_not_run_is_not_open_and_what_is_cut_differently_is_uneven():
    gone, cut = lost(0), MatchedRuns({}, ((unit(0), "diverged"),), ("rounds 2",), (("rounds", "2"),))
    assert decide([above("x", {}, [gone, MatchedRuns({})])]).verdict == "not run"
    assert contest("x", {}, {}, 1.0, gone, cut).uneven
    assert above("x", {}, [gone, cut]).uneven


# ---- the papers' own numbers


def claims(*kinds):
    return [(p, c) for p in papers().values() for c in p.claims.values() if isinstance(c.check, kinds)]


@pytest.mark.parametrize(("paper", "claim"), claims(EqualRows), ids=lambda v: getattr(v, "id", ""))
def test_claims_on_printed_numbers_come_out_as_transcribed(paper, claim):
    v = judge(paper, claim, Evidence([]))
    assert v.verdict == {"supports": "holds", "contradicts": "fails"}[claim.printed]
    assert not v.reduced


def of_paper(paper, claim):
    p = papers()[paper]
    return judge(p, p.claims[claim], Evidence([]))


def test_the_numbers_that_differ_are_named():
    """AdaFedAdam, Dirichlet 0.1 in Tables 3 and 6; AdaFed's best 5 % in Tables 1 and 10."""
    v = of_paper("adafedadam", "c19")
    assert v.verdict == "fails"
    assert v.evidence == (
        "printed numbers differ: STD % 6.58 and 8.59 on cifar10_dir01; worst 30 % 55.26 and 56.48 on cifar10_dir01"
    )
    assert of_paper("adafedadam", "c20").evidence == "all 9 printed numbers agree"
    assert of_paper("adafed", "c41").evidence == "printed numbers differ: best 5 % 69.41 and 67.73 on cifar10_s1"
    assert of_paper("adafed", "c40").evidence == "all 8 printed numbers agree"
    assert of_paper("fedcada", "c23").evidence == "all 6 printed numbers agree"


def test_a_spread_that_differs_is_a_number_that_differs():
    row = {"avg": Reported(1.0, 0.1), "std": Reported(2.0, None)}
    one, two = (table(n, [Row("new", "a", {}, v)]) for n, v in (("p", row), ("q", row | {"avg": Reported(1.0, 0.2)})))
    paper = replace(PAPER, tables={"p": one, "q": two})
    check = {"kind": "equal_rows", "tables": ["p", "q"], "algo": "new", "setups": ["a"], "metrics": ["avg", "std"]}
    v = judge(paper, claim_of(check, paper), Evidence([]))
    assert (v.verdict, v.evidence) == ("fails", "printed numbers differ: average % 1 with ± 0.1 and ± 0.2 on a")
    same = {**check, "tables": ["p", "p"]}
    assert judge(paper, claim_of(same, paper), Evidence([])).evidence == "all 2 printed numbers agree"


def test_without_runs_nothing_is_decided_but_what_needs_none():
    for p in papers().values():
        for c in p.claims.values():
            v = judge(p, c, Evidence([]))
            if c.check is None:
                assert v.verdict == "not testable"
            elif not isinstance(c.check, PropertyTest | EqualRows):
                assert v.verdict == "not run"
                assert v.counts.run == 0
    assert of_paper("adafedadam", "c02").counts.total == 16  # 4 setups, 4 rivals
    assert of_paper("adafed", "c19").counts.total == 22  # 11 setups: rank correlation, last value
    assert of_paper("fedcada", "c24").counts.total == 2  # one of 5 rivals in each of 2 setups
    assert of_paper("fedcada", "c10").counts.total == 60  # each of 6 methods with 5 others, 2 setups
    assert of_paper("fafed", "c08").counts.total == 15  # 5 others, 3 levels


# ---- margins


def across(**numbers):
    """Ten seeds of each method, level up to what is common to all."""
    return of(**{m: [u + shift for u in UP] for m, shift in numbers.items()})


MARGIN = {"table": "t1", "setups": ["a"], "metrics": ["avg"]}


@pytest.mark.parametrize(
    ("lead", "word"), [(2.5, "holds"), (2.0, "undecided"), (1.5, "fails"), (-1.0, "fails")]
)  # fmt: skip
def test_a_lead_that_must_be_exceeded(lead, word):
    """By more than 2: a lead of exactly 2 is a tie with every seed."""
    check = {
        "kind": "compare",
        "table": "t1",
        "setups": ["a"],
        "metrics": "avg",
        "better": "new",
        "worse": "x",
        "by": 2,
    }
    v = verdict(across(new=lead, x=0.0), check)
    assert v.verdict == word
    assert v.worst.label == "average % of New less 2 against X on A"


def test_a_lead_where_less_is_better():
    """An STD that is 3 lower is lower by more than 2, not by more than 4."""
    check = {"kind": "compare", "table": "t1", "setups": ["a"], "metrics": "std", "better": "new", "worse": "x"}
    v = verdict(across(new=-3.0, x=0.0), {**check, "by": 2}, "std")
    assert (v.verdict, v.comparisons[0].label) == ("holds", "STD % of New plus 2 against X on A")
    assert verdict(across(new=-3.0, x=0.0), {**check, "by": 4}, "std").verdict == "fails"


def test_a_lag_that_must_not_be_reached():
    """Not behind by 1: half a point behind is enough, one and a half refutes, exactly 1 is a tie."""
    check = {"kind": "compare", **MARGIN, "better": "new", "by": -1}
    for own, word in ((-0.5, "holds"), (3.0, "holds"), (-1.5, "fails"), (-1.0, "undecided")):
        assert verdict(across(new=own, x=0.0, y=-5.0, z=-5.0), check).verdict == word
    noisy = [u + (4 if u % 2 else -4) for u in UP]
    assert verdict(across(x=0.0, y=-9.0, z=-9.0) | of(new=noisy), check).verdict == "undecided"


def test_a_lag_behind_some_methods_only():
    """z is far ahead of both, and is not asked for."""
    check = {"kind": "compare", **MARGIN, "better": ["new", "x"], "worse": ["x", "y"], "by": -1}
    v = verdict(across(new=0.2, x=0.0, y=0.5, z=50.0), check)
    assert (v.verdict, v.counts.total) == ("holds", 3)  # new-x, new-y, x-y
    assert "plus 1 against" in v.worst.label
    assert verdict(across(new=0.2, x=0.0, y=1.5, z=50.0), check).verdict == "fails"


def test_differences_within_a_margin():
    """Two one-sided tests for each of three pairs."""
    check = {"kind": "compare", **MARGIN, "better": ["new", "x", "y"], "worse": ["new", "x", "y"], "by": -1}
    v = verdict(across(new=0.0, x=0.4, y=0.9), check)
    assert (v.verdict, v.counts.total) == ("holds", 6)
    assert verdict(across(new=0.0, x=0.4, y=1.2), check).verdict == "fails"
    noisy = [u + (4 if u % 2 else -4) for u in UP]
    assert verdict(across(new=0.0, x=0.4) | of(y=noisy), check).verdict == "undecided"
    assert verdict(across(new=0.0, x=0.4), check).verdict == "partly measured"


def test_tables_apart_by_a_margin():
    """Rises by 3 from b to a: by more than 2, not by more than 4, and less than 4 behind the other way."""
    numbers = across(new=3.0) | {("b", "new", None): UP}
    check = {"kind": "compare", "table": "t1", "metrics": "avg", "better": "new"}
    up = {**check, "setups": "a", "at": {"table": "t1", "setup": "b"}}
    down = {**check, "setups": "b", "at": {"table": "t1", "setup": "a"}}
    assert verdict(numbers, {**up, "by": 2}).verdict == "holds"
    assert verdict(numbers, {**up, "by": 4}).verdict == "fails"
    assert verdict(numbers, {**down, "by": -4}).verdict == "holds"
    assert verdict(numbers, {**down, "by": -2}).verdict == "fails"


def test_a_test_of_the_code_can_refute_a_claim():
    proof = {"kind": "test", "test": "tests/a.py::test_b"}
    assert verdict({}, proof).verdict == "holds"
    v = verdict({}, {**proof, "shows": "fails"})
    assert (v.verdict, v.evidence) == ("fails", "a property of the method, refuted by tests/a.py::test_b")
