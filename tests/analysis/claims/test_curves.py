"""Claims about figures: numbers of curves by hand, and what runs, made up here, come to."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from claim_runs import SEEDS, Run, every_seed, losses
from claim_runs import curve as of_curve
from example_paper import example_paper
from hypothesis import given
from hypothesis import strategies as st
from units import by_unit, unit

from fedbench.analysis.claims.curve_claims import (
    area,
    curve_comparisons,
    decline,
    early,
    limit_comparisons,
    roughness,
    rounds_to,
    setbacks,
    tail,
)
from fedbench.analysis.claims.judge import judge
from fedbench.analysis.curves import low_and_high
from fedbench.analysis.matching import Evidence
from fedbench.core.errors import RequestError
from fedbench.papers.checks import AnyCheck
from fedbench.papers.parsing import parse
from fedbench.papers.readings import Reading
from fedbench.papers.schema import Claim, Figure, Method, Row, Setup


def curve(values, every=1):
    return pd.Series(list(values), index=[every * i for i in range(len(values))], dtype=float)


# ---- numbers of curves


def test_area_is_the_mean_height():
    assert area(curve([1, 3])) == 2
    # unequal steps
    assert area(pd.Series([0.0, 1.0, 1.0], index=[0, 1, 5])) == pytest.approx((0.5 + 4) / 5)
    assert area(curve([2, 2, 2], every=7)) == 2
    assert area(pd.Series([0.4], index=[3])) == 0.4


@given(st.lists(st.floats(0, 1), min_size=2, max_size=8), st.floats(-2, 2), st.floats(-2, 2))
def test_area_is_linear(values, scale, shift):
    there = area(curve([scale * v + shift for v in values]))
    assert there == pytest.approx(scale * area(curve(values)) + shift, abs=1e-9)


def test_roughness_is_the_variance_of_the_changes():
    # changes 1, -1, 1: mean 1/3, squares 1
    assert roughness(curve([0, 1, 0, 1])) == pytest.approx(8 / 9)
    assert roughness(curve([0, 2, 4, 6])) == 0  # a straight line does not swing
    assert roughness(curve([5, 6, 8])) == pytest.approx(0.25)  # changes 1 and 2
    assert math.isnan(roughness(curve([1, 2])))  # one change has no variance
    assert math.isnan(roughness(curve([1])))


def test_early_is_the_first_tenth():
    assert list(early(curve(range(40)))) == [0, 1, 2, 3]
    assert list(early(curve(range(12)))) == [0, 1, 2]  # three points at least
    assert list(early(curve([7, 8]))) == [7, 8]


def test_tail_and_decline():
    assert tail(curve(range(30))) == 28  # of 27, 28, 29
    assert tail(curve([4, 6])) == 6
    assert decline(curve([8, 4, 2])) == 0.25
    assert decline(curve([8, *[1.0] * 18, 3])) == 0.25  # of 1 and 3


def test_rounds_to_a_target():
    falling = pd.Series([3.0, 1.0, 2.0, 0.5], index=[0, 10, 20, 30])
    assert rounds_to(falling, 1.0, lower=True) == 10  # reached, though left again
    assert rounds_to(falling, 0.4, lower=True) == math.inf
    assert rounds_to(falling, 3.0, lower=False) == 0
    assert rounds_to(falling, 3.1, lower=False) == math.inf


# ---- figures that are made up


def constant(value, field="accuracy_mean"):
    return every_seed(lambda e: of_curve([e * value] * 4, field))


class Given(Evidence):
    """Runs by (setup, method, value of the hyperparameter p)."""

    def __init__(self, paper, runs, **found):
        super().__init__(paper, [])
        self.given, self.made = runs, found

    def choices(self, row):
        key = (row.setup, row.algo, row.hyperparameters.get("p"))
        (empty,) = super().choices(row)
        runs = by_unit(self.given.get(key, {}))
        return [replace(empty, runs=runs, **self.made.get(row.algo, {})), empty]


def paper(rows, setups=("a",)):
    return example_paper(
        methods={m: Method(m, m.title(), m) for m in ("new", "x", "y")},
        setups={s: Setup(s, s.upper(), s, 10, 3, 1) for s in ("a", "b", "c")},
        figures={"f": Figure("f", "", "curves", tuple(setups), runs=tuple(rows))},
    )


THREE = [Row(m) for m in ("new", "x", "y")]
SWEEP = [*(Row("new", hyperparameters={"p": p}) for p in (0.0, 0.5, 1.0)), Row("x"), Row("y")]


def read(check, of):
    """A check as it is read from a paper's file."""
    sections = ("metrics", "methods", "setups", "tables", "figures")
    return parse(AnyCheck, {"figure": "f", **check}, "c", {k: getattr(of, k) for k in sections})


def verdict(check, runs, rows=THREE, setups=("a",), **found):
    of = paper(rows, setups)
    return judge(Claim("c", "", "", read(check, of), ""), Given(of, runs, **found))


def compare(check, runs, rows=THREE, setups=("a",), **found):
    compared = curve_comparisons if check["kind"] == "curves" else limit_comparisons
    of = paper(rows, setups)
    return list(compared(Given(of, runs, **found), read(check, of)))


CURVES = {"kind": "curves", "better": "new", "worse": "others", "fields": ["accuracy_mean"]}


def of(new=None, x=None, y=None, setup="a"):
    given = {(setup, "new", None): new, (setup, "x", None): x, (setup, "y", None): y}
    return {k: v for k, v in given.items() if v is not None}


def test_curves_compare_everyone_with_everyone_else():
    two = compare({**CURVES, "measure": "area"}, of(constant(0.8), constant(0.5), constant(0.6)))
    start = "mean over rounds of mean accuracy of New against"
    assert [c.label for c in two] == [f"{start} X on A", f"{start} Y on A"]
    assert [c.mean for c in two] == pytest.approx([30 * 1.045, 20 * 1.045])  # points
    assert [c.greater for c in two] == [2.0**-SEEDS] * 2
    # both directions, two fields, chosen setups
    check = {
        **CURVES,
        "measure": "final",
        "better": ["new", "x"],
        "worse": ["y"],
        "fields": ["train_loss", "test_loss"],
    }
    assert len(compare(check, {}, THREE, ("a", "b"))) == 8
    assert len(compare({**check, "setups": ["b"]}, {}, THREE, ("a", "b"))) == 4


def test_lower_is_better_for_losses_and_errors():
    for field, word in (
        ("train_loss", "fails"),
        ("test_loss", "fails"),
        ("accuracy_mean", "holds"),
    ):
        runs = of(constant(0.8, field), constant(0.5, field), constant(0.6, field))
        assert verdict({**CURVES, "measure": "final", "fields": [field]}, runs).word == word
        assert verdict({**CURVES, "measure": "area", "fields": [field]}, runs).word == word


def test_rough_curves_lose_whatever_the_field():
    smooth, rough = (
        every_seed(lambda e, d=d: of_curve([e * d * (i % 2) for i in range(8)])) for d in (0.1, 0.3)
    )
    assert verdict({**CURVES, "measure": "roughness"}, of(smooth, rough, rough)).word == "holds"
    assert verdict({**CURVES, "measure": "roughness"}, of(rough, smooth, rough)).word == "fails"


def test_setbacks_by_hand():
    """Changes 1, -1, 3, -2: falls 0, 1, 0, 2, and 1, 0, 3, 0 of the negative curve, as of a loss."""
    values = curve([0, 1, 0, 3, 1])
    assert (setbacks(values), setbacks(-values)) == (0.75, 1.0)
    for rise in ([0, 1, 2, 3], [0, 8, 9, 9]):  # however fast
        assert setbacks(curve(rise)) == 0
    assert math.isnan(setbacks(curve([1, 2])))


def test_curves_with_setbacks_lose():
    """A loss that falls steeply loses nothing by that; a share of 0.5 asks for less than half of the setbacks."""
    steep, flat = (
        every_seed(lambda e, v=v: of_curve([e * x for x in v], "train_loss"))
        for v in ([9, 3, 1, 1], [9] * 4)
    )
    swings = every_seed(lambda e: of_curve([9, 9 + 0.1 * e, 9, 9 + 0.1 * e], "train_loss"))
    more = every_seed(lambda e: of_curve([9, 9 + 0.15 * e, 9, 9 + 0.15 * e], "train_loss"))
    check = {**CURVES, "measure": "setbacks", "fields": ["train_loss"], "worse": "x"}
    assert verdict(check, of(steep, swings)).word == "holds"
    assert verdict(check, of(swings, steep)).word == "fails"
    assert verdict(check, of(steep, flat)).word == "undecided"  # neither has any
    assert verdict(check, of(swings, more)).word == "holds"
    assert verdict({**check, "share": 0.5}, of(swings, more)).word == "fails"  # 0.1 of 0.15
    rising = {**check, "fields": ["accuracy_mean"]}
    climbs = every_seed(lambda e: of_curve([0, e, 2 * e, 3 * e]))
    assert verdict(rising, of(climbs, every_seed(lambda e: of_curve([0, e, 0, e])))).word == "holds"


def test_early_setbacks_are_those_of_the_first_tenth():
    late = every_seed(lambda e: of_curve([0, 0.02, 0.01, *[e * (i % 2) for i in range(27)]]))
    steady = every_seed(lambda e: of_curve([0, 0.05 * e, 0, *[0] * 27]))
    assert (
        verdict({**CURVES, "measure": "setbacks_early"}, of(late, steady, steady)).word == "holds"
    )
    assert verdict({**CURVES, "measure": "setbacks"}, of(late, steady, steady)).word == "fails"


def test_two_points_show_no_roughness():
    short = every_seed(lambda e: of_curve([0.1, e]))
    v = verdict({**CURVES, "measure": "roughness"}, of(short, short, short))
    assert (v.word, len(v.run), len(v.comparisons)) == ("not run", 0, 2)


def test_rounds_to_the_best_that_all_reach():
    """0.5 is what the slowest gets to, with its last round; the others are there after 10 and after 20."""
    quick, slow, last = (
        every_seed(lambda e, v=v: of_curve(v))
        for v in ([0, 0.8, 0.9], [0, 0.3, 0.7], [0, 0.2, 0.5])
    )
    one, two = compare({**CURVES, "measure": "rounds"}, of(quick, slow, last))
    assert (one.mean, two.mean) == (10, 10)  # 20 - 10 each
    assert verdict({**CURVES, "measure": "rounds"}, of(quick, slow, last)).word == "holds"
    # all at round 20
    assert verdict({**CURVES, "measure": "rounds"}, of(last, slow, slow)).word == "undecided"
    assert verdict({**CURVES, "measure": "rounds"}, of(slow, quick, quick)).word == "fails"
    only = compare({**CURVES, "measure": "rounds"}, of(quick, slow))
    assert [c.n for c in only] == [0, 0]  # the target would change once the third was run


def test_rounds_to_a_common_loss_and_common_seeds():
    quick, slow = (
        every_seed(lambda e, v=v: of_curve(v, "train_loss")) for v in ([3, 1, 0.5], [3, 2, 1])
    )
    slow = {s: r for s, r in slow.items() if s > 3}
    check = {**CURVES, "measure": "rounds", "fields": ["train_loss"], "worse": "x"}
    (c,) = compare(check, of(quick, slow))
    assert (c.mean, c.n) == (10, SEEDS - 4)


def test_several_measures_are_comparisons_of_their_own():
    check = {**CURVES, "measure": ["final", "area"], "worse": "x"}
    labels = [c.label for c in compare(check, of(constant(0.8), constant(0.5)))]
    assert labels == [
        f"{m} of mean accuracy of New against X on A" for m in ("final value", "mean over rounds")
    ]


@pytest.mark.parametrize("measure", ["area", "final", "rounds"])
def test_a_run_that_diverged_is_behind_in_every_measure(measure):
    """New is ahead with five seeds and diverged with three: p of 5 for and 3 against of one size is 93 / 256."""
    every = {s: of_curve([0, 0.5, 0.7]) for s in range(8)}
    new = {s: of_curve([0, 0.8, 0.9]) for s in range(5)}
    lost = {"others": tuple((unit(s), "diverged") for s in (5, 6, 7))}
    check = {**CURVES, "measure": measure, "worse": "x"}
    (c,) = compare(check, of(new, every), new=lost)
    assert (c.n, c.greater) == (8, 93 / 256)
    (other,) = compare({**check, "better": "x", "worse": "new"}, of(new, every), new=lost)
    assert (other.n, other.less) == (8, 93 / 256)
    none = {"others": tuple((unit(s), "diverged") for s in range(8))}
    assert verdict(check, of({}, every), new=none).word == "fails"


def test_the_target_is_what_all_reach_that_did_not_diverge():
    """With the third method in no seed, the target is 0.7, which X reaches at 20 and New at 10."""
    quick, slow = ({s: of_curve(v) for s in range(SEEDS)} for v in ([0, 0.8, 0.9], [0, 0.3, 0.7]))
    lost = {"others": tuple((unit(s), "diverged") for s in range(SEEDS))}
    one, two = compare({**CURVES, "measure": "rounds"}, of(quick, slow, {}), y=lost)
    assert (one.mean, two.mean) == (10, math.inf)


def test_what_concerns_one_method_is_open_where_it_diverged():
    check = {
        "kind": "limit",
        "methods": "new",
        "measure": "tail",
        "field": "accuracy_mean",
        "at_least": 0.1,
    }
    rows = [Row("new")]
    runs = {("a", "new", None): constant(0.5), ("b", "new", None): constant(0.7)}
    assert verdict(check, runs, rows, ("a", "b")).word == "holds"
    assert (
        verdict(check, runs, rows, ("a", "b"), new={"others": ((unit(9), "diverged"),)}).word
        == "undecided"
    )


def test_the_share_of_clients_below_a_threshold():
    """At the last kept round; clients without test examples are none of them."""

    def clients(last):
        return Run(
            clients={
                "round": [0] * len(last) + [9] * len(last),
                "accuracy": [0.0] * len(last) + last,
            }
        )

    good, bad = (
        {s: clients(v) for s in range(SEEDS)} for v in ([0.9, 0.5, math.nan], [0.9, 0.4, math.nan])
    )
    check = {**CURVES, "measure": "below", "threshold": 0.5, "fields": ["accuracy"]}
    one, _ = compare(check, of(good, bad, bad))
    assert (one.mean, one.n) == (50, SEEDS)  # points
    assert verdict(check, of(good, bad, bad)).word == "holds"
    assert verdict(check, of(bad, good, good)).word == "fails"


def test_the_share_of_clients_at_a_threshold_or_above():
    """More is better, and the threshold itself counts."""

    def clients(last):
        return Run(clients={"round": [9] * len(last), "accuracy": last})

    good, bad = (
        {s: clients(v) for s in range(SEEDS)} for v in ([0.9, 0.8, math.nan], [0.9, 0.7, math.nan])
    )
    check = {**CURVES, "measure": "at_least", "threshold": 0.8, "fields": ["accuracy"]}
    one, _ = compare(check, of(good, bad, bad))
    assert (one.mean, one.n) == (50.0, SEEDS)  # percent
    assert verdict(check, of(good, bad, bad)).word == "holds"
    assert verdict(check, of(bad, good, good)).word == "fails"
    assert verdict(check, of(good, good, good)).word == "undecided"


def test_the_end_of_a_curve_is_its_last_tenth():
    """Twenty points: the mean of the last two, so that the last one alone does not decide."""
    calm, wild = (
        every_seed(lambda e, v=v: of_curve([e * x for x in [0.0] * 18 + v]))
        for v in ([5, 5], [1, 6])
    )
    check = {**CURVES, "measure": "tail"}
    assert verdict(check, of(calm, wild, wild)).word == "holds"
    assert verdict({**check, "measure": "final"}, of(calm, wild, wild)).word == "fails"
    assert verdict({**check, "fields": ["train_loss"]}, of(calm, wild, wild)).word == "not run"


def test_cka_is_averaged_over_different_clients():
    alike, apart = ({s: Run(cka=[[1.0, v], [v, 1.0]]) for s in range(SEEDS)} for v in (0.9, 0.2))
    some = {
        s: Run(cka=[[1.0, 0.9, None], [0.3, 1.0, None], [None, None, None]]) for s in range(SEEDS)
    }
    check = {**CURVES, "measure": "cka", "fields": ["moments"]}
    one, two = compare(check, of(alike, apart, some))
    assert (one.mean, two.mean) == (pytest.approx(0.7), pytest.approx(0.3))  # 0.9 - (0.9 + 0.3) / 2
    nothing = {s: Run(cka=c) for s, c in enumerate((None, [[1.0]], [[None, None], [None, None]]))}
    assert [c.n for c in compare(check, of(alike, nothing))] == [0, 0]


def test_reduced_and_unevenly_cut_runs():
    runs, cut = (
        of(constant(0.8), constant(0.5), constant(0.6)),
        {"departs": ("rounds 4 (paper 9)",), "cuts": (("rounds", "4"),)},
    )
    check = {**CURVES, "measure": "area"}
    assert verdict(check, runs).scaled is None
    assert verdict(check, runs, new=cut, x=cut, y=cut).scaled.word == "holds"
    assert verdict(check, runs, x=cut).word == "not run"
    assert sum(c.uneven for c in verdict(check, runs, x=cut).comparisons) == 1


# ---- limits


def test_limits():
    """The mean over the last tenth, and that as a share of the first value."""
    runs = of(
        every_seed(lambda e: of_curve([8.0 * e, *[1.0] * 18, 0.2 * e], "test_loss"))
    )  # tail about 0.6, decline about 0.07
    check = {"kind": "limit", "methods": ["new"], "field": "test_loss"}
    for more, word in (
        ({"measure": "tail", "at_least": 0.59}, "holds"), ({"measure": "tail", "at_least": 0.62}, "fails"),
        ({"measure": "tail", "at_most": 0.62}, "holds"), ({"measure": "decline", "at_most": 0.08}, "holds"),
        ({"measure": "decline", "at_most": 0.06}, "fails"), ({"measure": "decline", "at_least": 0.06}, "holds"),
        ({"measure": "area", "at_least": 1.1}, "holds"), ({"measure": "area", "at_least": 1.2}, "fails"),
    ):  # fmt: skip
        assert verdict({**check, **more}, runs).word == word, more
    both = compare({**check, "methods": "all", "measure": "tail", "at_least": 0}, runs)
    assert [c.n for c in both] == [SEEDS, 0, 0]
    assert both[0].label == "test loss (mean over the last tenth) of New at least 0 on A"


def test_the_time_of_one_method_over_that_of_another():
    seconds = [
        {s: of_curve([1.0 + s, t * (1.0 + s)], "seconds_train") for s in range(SEEDS)}
        for t in (1.05, 1.0)
    ]
    check = {
        "kind": "limit",
        "methods": ["new"],
        "measure": "seconds_over",
        "reference": "x",
        "field": "seconds_train",
    }
    (c,) = compare({**check, "at_most": 1.1}, of(*seconds))
    assert c.mean == pytest.approx(0.05)
    assert verdict({**check, "at_most": 1.1}, of(*seconds)).word == "holds"
    assert verdict({**check, "at_most": 1.04}, of(*seconds)).word == "fails"
    (c,) = compare({**check, "at_most": 1.1}, of(*seconds), x={"departs": ("rounds 2 (paper 9)",)})
    assert c.reduced  # the other side counts too
    best = {"reading": Reading(round="best")}
    (c,) = compare({**check, "at_most": 1.1}, of(*seconds), new=best, x=best)
    assert c.mean == pytest.approx(0.05)  # of all rounds, not of the one with the fewest seconds


def test_low_and_high_are_those_of_the_first_round():
    low, high = low_and_high(
        pd.DataFrame(
            losses((2.0, 0.1, 0.1), (1.0, 3.0, 3.0), (3.0, 2.0, 0.5), (math.nan, 9.0, 9.0))
        )
    )
    assert list(low) == [1.0, 3.0, 3.0]
    assert list(high) == [3.0, 2.0, 0.5]
    assert list(low.index) == [0, 5, 9]


def test_rows_are_named_by_method_hyperparameter_or_as_the_others():
    named = {
        "kind": "curves",
        "measure": "final",
        "fields": ["test_loss"],
        "better": {"algo": "new", "p": 0.5},
    }
    labels = [c.label for c in compare({**named, "worse": "others"}, {}, SWEEP)]
    assert len(labels) == 4
    assert not any("against New p=0.5" in label for label in labels)
    assert len(compare({**named, "worse": "new"}, {}, SWEEP)) == 2
    assert len(compare({**named, "worse": ["x", {"algo": "new", "p": 1.0}]}, {}, SWEEP)) == 2
    assert np.all(
        [label.startswith("final value of test loss of New p=0.5 against ") for label in labels]
    )


@pytest.mark.parametrize(("rounds", "word"), [(7, "holds"), (8, "undecided"), (9, "fails")])
def test_a_share_of_the_rounds_of_the_other(rounds, word):
    """Of 10 rounds, less than 0.8 times as many: 7 are fewer, 8 a tie, 9 too many."""
    arrives = {
        n: {s: of_curve([0.1] * n + [0.5] * (12 - n), every=1) for s in range(SEEDS)}
        for n in (rounds, 10)
    }
    check = {**CURVES, "worse": "x", "measure": "rounds", "share": 0.8}
    v = verdict(check, of(arrives[rounds], arrives[10]))
    assert v.word == word
    assert v.worst.label.endswith("against 0.8 times that of X on A")


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ({"measure": "rounds", "share": 1.0}, "share: must be < 1, got 1.0"),
        (
            {"measure": "area", "share": 0.5},
            "share needs numbers of which less is better.* got area of accuracy_mean",
        ),
    ],
)
def test_shares_that_mean_nothing_are_refused(key, words):
    with pytest.raises(RequestError, match=words):
        read({**CURVES, **key}, paper(THREE))


def test_rounds_to_the_best_that_both_of_a_pair_reach():
    """X stops at 0.4 and Y at 0.2. All reach 0.2: New and X in round 20 each. New and X reach 0.4: in 60 and in 40."""
    runs = of(
        *(
            {s: of_curve(values) for s in range(SEEDS)}
            for values in (
                (0.0, 0.1, 0.2, 0.3, 0.3, 0.3, 0.5),
                (0.0, 0.1, 0.2, 0.3, 0.4),
                (0.0, 0.2),
            )
        )
    )
    level = compare({**CURVES, "measure": "rounds"}, runs)
    assert [c.mean for c in level] == [0.0, -10.0]
    x, y = compare({**CURVES, "measure": "rounds_pairwise"}, runs)
    assert (x.mean, y.mean) == (-20.0, -10.0)
    assert x.label == "rounds to the best of both of mean accuracy of New against X on A"
    assert verdict({**CURVES, "worse": "x", "measure": "rounds_pairwise"}, runs).word == "fails"
    assert (
        verdict({**CURVES, "better": "x", "worse": "new", "measure": "rounds_pairwise"}, runs).word
        == "holds"
    )
