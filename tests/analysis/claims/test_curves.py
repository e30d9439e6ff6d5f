"""Claims about figures: numbers of curves by hand, and what runs, made up here, come to."""

import math

import pandas as pd
import pytest
from claim_runs import SEEDS, Given, Run, every_seed, losses
from claim_runs import curve as run_with
from example_paper import example_paper
from hypothesis import given
from hypothesis import strategies as st
from units import diverged

from fedbench.analysis.claims.comparison import RATIO
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
from fedbench.core.errors import RequestError
from fedbench.papers.checks import AnyCheck
from fedbench.papers.parsing import parse
from fedbench.papers.readings import Reading
from fedbench.papers.schema import Claim, Figure, Method, Row, Setup


def curve(values, every=1):
    rounds = [every * i for i in range(len(values))]
    return pd.Series(list(values), index=rounds, dtype=float)


# ---- numbers of curves


def test_area_is_the_mean_height():
    assert area(curve([1, 3])) == 2
    assert area(curve([2, 2, 2], every=7)) == 2
    assert area(pd.Series([0.4], index=[3])) == 0.4
    unequal_steps = pd.Series([0.0, 1.0, 1.0], index=[0, 1, 5])
    assert area(unequal_steps) == pytest.approx((0.5 + 4) / 5)


@given(
    st.lists(
        st.floats(0, 1),
        min_size=2,
        max_size=8,
    ),
    st.floats(-2, 2),
    st.floats(-2, 2),
)
def test_area_is_linear(values, scale, shift):
    mean_height = area(curve(values))
    turned = curve([scale * value + shift for value in values])
    assert area(turned) == pytest.approx(scale * mean_height + shift, abs=1e-9)


def test_roughness_is_the_variance_of_the_changes():
    # changes 1, -1, 1: mean 1/3, squares 1
    assert roughness(curve([0, 1, 0, 1])) == pytest.approx(8 / 9)
    assert roughness(curve([0, 2, 4, 6])) == 0  # a straight line does not swing
    assert roughness(curve([5, 6, 8])) == pytest.approx(0.25)  # changes 1 and 2
    assert math.isnan(roughness(curve([1, 2])))  # one change has no variance


def test_setbacks_by_hand():
    """Changes 1, -1, 3, -2: falls 0, 1, 0, 2, and 1, 0, 3, 0 of the negative curve (a loss)."""
    values = curve([0, 1, 0, 3, 1])
    assert setbacks(values) == 0.75
    assert setbacks(-values) == 1.0
    assert setbacks(curve([0, 8, 9, 9])) == 0  # however fast it rises
    assert math.isnan(setbacks(curve([1, 2])))


def test_early_is_the_first_tenth():
    assert list(early(curve(range(40)))) == [0, 1, 2, 3]
    assert list(early(curve(range(12)))) == [0, 1, 2]  # three points at least


def test_tail_and_decline():
    assert tail(curve(range(30))) == 28  # of 27, 28, 29
    assert tail(curve([4, 6])) == 6
    assert decline(curve([8, 4, 2])) == 0.25
    assert decline(curve([8, *[1.0] * 18, 3])) == 0.25  # of 1 and 3


def test_rounds_to_a_target():
    falling = curve([3.0, 1.0, 2.0, 0.5], every=10)
    assert rounds_to(falling, 1.0, lower=True) == 10  # reached, though left again
    assert rounds_to(falling, 0.4, lower=True) == math.inf
    assert rounds_to(falling, 3.0, lower=False) == 0
    assert rounds_to(falling, 3.1, lower=False) == math.inf


def test_low_and_high_are_those_of_the_first_round():
    clients = losses(
        (2.0, 0.1, 0.1),
        (1.0, 3.0, 3.0),
        (3.0, 2.0, 0.5),
        (math.nan, 9.0, 9.0),
    )
    low, high = low_and_high(pd.DataFrame(clients))
    assert list(low) == [1.0, 3.0, 3.0]
    assert list(high) == [3.0, 2.0, 0.5]
    assert list(low.index) == [0, 5, 9]


# ---- figures that are made up


def swelling(*values, field="accuracy_mean"):
    """Runs with a curve, a hundredth higher from seed to seed."""
    return every_seed(lambda e: run_with([e * v for v in values], field))


def alike(*values, field="accuracy_mean"):
    """Runs with the same curve for every seed."""
    return dict.fromkeys(range(SEEDS), run_with(values, field))


def constant(value, field="accuracy_mean"):
    return swelling(value, value, value, value, field=field)


METHODS = ("new", "x", "y")
THREE = [Row(m) for m in METHODS]


def paper(rows, setups):
    figure = Figure(
        "f",
        "",
        "curves",
        tuple(setups),
        runs=tuple(rows),
    )
    return example_paper(
        methods={
            m: Method(
                m,
                m.title(),
                m,
            )
            for m in METHODS
        },
        setups={
            s: Setup(
                s,
                s.upper(),
                s,
                10,
                3,
                1,
            )
            for s in ("a", "b", "c")
        },
        figures={"f": figure},
    )


def read(check, of):
    """A check as it is read from a paper's file."""
    sections = ("metrics", "methods", "setups", "tables", "figures")
    known = {name: getattr(of, name) for name in sections}
    return parse(AnyCheck, {"figure": "f", **check}, "c", known)


def verdict(check, runs, rows=THREE, setups=("a",), **found):
    of = paper(rows, setups)
    claim = Claim("c", "", "", read(check, of), "")
    return judge(claim, Given(of, runs, **found))


def word(*given, **more):
    return verdict(*given, **more).word


def compare(check, runs, rows=THREE, setups=("a",), **found):
    compared = curve_comparisons if check["kind"] == "curves" else limit_comparisons
    of = paper(rows, setups)
    return list(
        compared(
            Given(
                of,
                runs,
                **found,
            ),
            read(check, of),
        )
    )


def curves(measure, field="accuracy_mean", worse="others", **keys):
    """A check: New is ahead in a measure of its curves."""
    sides = {"better": "new", "worse": worse}
    return {
        "kind": "curves",
        "measure": measure,
        "fields": [field],
        **sides,
        **keys,
    }


def limit(measure, field, **keys):
    """A check: a measure of New is within a limit."""
    return {
        "kind": "limit",
        "methods": "new",
        "measure": measure,
        "field": field,
        **keys,
    }


def of(*runs):
    """Runs of New, X and Y on A."""
    named = zip(METHODS, runs, strict=False)
    return {("a", method): found for method, found in named}


def test_curves_compare_everyone_with_everyone_else():
    x, y = compare(
        curves("area"),
        of(
            constant(0.8),
            constant(0.5),
            constant(0.6),
        ),
    )
    assert x.label == "mean over rounds of mean accuracy of New against X on A"
    assert y.label == "mean over rounds of mean accuracy of New against Y on A"
    assert x.mean == pytest.approx(30 * 1.045)  # points
    assert y.mean == pytest.approx(20 * 1.045)
    assert x.greater == 2.0**-SEEDS


def test_comparisons_of_two_measures_methods_fields_and_setups():
    check = curves(["final", "area"], worse="y")
    check |= {"better": METHODS[:2], "fields": ["train_loss", "test_loss"]}
    two = ("a", "b")
    assert len(compare(check, {}, setups=two)) == 2**4
    check["setups"] = ["b"]
    assert len(compare(check, {}, setups=two)) == 2**3


@pytest.mark.parametrize("measure", ["final", "area"])
def test_lower_is_better_for_losses(measure):
    runs = of(constant(0.8, "train_loss"), constant(0.5, "train_loss"))
    assert word(curves(measure, "train_loss", "x"), runs) == "fails"


STEEP = (9, 3, 1, 1)
FLAT = (9, 9, 9, 9)
SWINGS = (9, 9.1, 9, 9.1)
MORE = (9, 9.15, 9, 9.15)


@pytest.mark.parametrize(
    ("new", "x", "keys", "kind"),
    [
        (STEEP, SWINGS, {}, "holds"),  # a loss that falls steeply loses nothing by that
        (SWINGS, STEEP, {}, "fails"),
        (STEEP, FLAT, {}, "undecided"),  # neither has any
        (SWINGS, MORE, {"share": 0.5}, "fails"),  # 0.1 is not less than half of 0.15
    ],
)
def test_losses_with_setbacks_lose(new, x, keys, kind):
    runs = of(swelling(*new, field="train_loss"), swelling(*x, field="train_loss"))
    assert word(curves("setbacks", "train_loss", "x", **keys), runs) == kind


def test_early_setbacks_are_those_of_the_first_tenth():
    late = swelling(0, 0.02, 0.01, *[0, 1] * 13, 0)
    steady = swelling(0, 0.05, 0, *[0] * 27)
    assert word(curves("setbacks_early", worse="x"), of(late, steady)) == "holds"
    assert word(curves("setbacks", worse="x"), of(late, steady)) == "fails"


LATER = pytest.approx(math.log(21 / 11))  # 20 rounds against 10, with the initial model's: 21 / 11


def test_rounds_to_the_best_that_all_reach():
    """0.5 is what the slowest gets to, with its last round; the others are there after 10 and after
    20.
    """
    quick = alike(0, 0.8, 0.9)
    slow = alike(0, 0.3, 0.7)
    last = alike(0, 0.2, 0.5)
    x, y = compare(curves("rounds"), of(quick, slow, last))
    assert x.mean == y.mean == LATER
    assert x.unit == RATIO
    x, y = compare(curves("rounds"), of(last, slow, quick))
    assert x.mean == 0
    assert -y.mean == LATER
    # the target would change once the third was run
    assert word(curves("rounds"), of(quick, slow)) == "not run"


def test_rounds_to_a_common_loss_and_common_seeds():
    quick = alike(3, 1, 0.5, field="train_loss")
    slow = alike(3, 2, 1, field="train_loss")
    for seed in range(4):
        del slow[seed]
    (c,) = compare(curves("rounds", "train_loss", "x"), of(quick, slow))
    assert c.mean == LATER
    assert c.n == SEEDS - 4


def reaching(last):
    """Runs that are evaluated in each of 16 rounds and reach 0.5 in one of them."""
    accuracies = [0.5 if number >= last else 0.1 for number in range(16)]
    run = run_with(accuracies, every=1)
    return dict.fromkeys(range(SEEDS), run)


@pytest.mark.parametrize(
    ("rounds", "kind"),
    [
        (10, "holds"),
        (11, "undecided"),
        (12, "fails"),
    ],
)
def test_a_share_of_the_rounds_of_the_other(rounds, kind):
    """With the initial model, 1 + r is to be less than 0.8 of 1 + 14 = 15, which is 12: 10 is
    fewer, 11 a tie, 12 too many.
    """
    new = reaching(rounds)
    v = verdict(curves("rounds", worse="x", share=0.8), of(new, reaching(14)))
    assert v.word == kind
    assert v.worst.label.endswith("against 0.8 times that of X on A")


@pytest.mark.parametrize(
    ("measure", "share", "words"),
    [
        ("rounds", 1.0, "share: must be < 1, got 1.0"),
        (
            "area",
            0.5,
            "share needs a measure for which lower is better.* got area of accuracy_mean",
        ),
    ],
)
def test_shares_that_mean_nothing_are_refused(measure, share, words):
    with pytest.raises(RequestError, match=words):
        compare(curves(measure, share=share), {})


@pytest.mark.parametrize("measure", ["rounds", "rounds_pairwise"])
def test_a_lead_in_rounds_is_refused(measure):
    """It would be a logarithm."""
    with pytest.raises(RequestError, match=f"{measure} has no by; use share"):
        compare(curves(measure, by=10), {})


def test_rounds_to_the_best_that_both_of_a_pair_reach():
    """X stops at 0.4 and Y at 0.2. All reach 0.2: New and X in round 20, Y in round 10. New and X
    reach 0.4 in rounds 60 and 40.
    """
    new = alike(0.0, 0.1, 0.2, 0.3, 0.3, 0.3, 0.5)
    x = alike(0.0, 0.1, 0.2, 0.3, 0.4)
    y = alike(0.0, 0.2)
    common = compare(curves("rounds"), of(new, x, y))
    assert [-c.mean for c in common] == [0.0, LATER]
    pairwise = compare(curves("rounds_pairwise"), of(new, x, y))
    assert [-c.mean for c in pairwise] == [pytest.approx(math.log(61 / 41)), LATER]
    label = "rounds to the best of both of mean accuracy of New against X on A"
    assert pairwise[0].label == label


# ---- runs that diverged


@pytest.mark.parametrize("measure", ["area", "final", "rounds"])
def test_a_run_that_diverged_is_behind_in_every_measure(measure):
    """New is ahead with five seeds and diverged with three: p of 5 for and 3 against of one size is
    93 / 256.
    """
    check = curves(measure, worse="x")
    x = dict.fromkeys(range(8), run_with([0, 0.5, 0.7]))
    new = dict.fromkeys(range(5), run_with([0, 0.8, 0.9]))
    some = {"others": diverged(5, 6, 7)}
    (c,) = compare(check, of(new, x), new=some)
    assert c.n == 8
    assert c.greater == 93 / 256
    every = {"others": diverged(*range(8))}
    assert word(check, of({}, x), new=every) == "fails"


def test_the_target_is_what_all_reach_that_did_not_diverge():
    """With the third method in no seed, the target is 0.7, which X reaches at 20 and New at 10."""
    runs = of(
        alike(0, 0.8, 0.9),
        alike(0, 0.3, 0.7),
        {},
    )
    lost = {"others": diverged(*range(SEEDS))}
    x, y = compare(curves("rounds"), runs, y=lost)
    assert x.mean == LATER
    assert y.mean == math.inf


# ---- other measures


@pytest.mark.parametrize(
    ("measure", "threshold", "ahead", "behind"),
    [
        # the threshold itself is not below
        ("below", 0.5, 0.5, 0.4),
        ("at_least", 0.8, 0.8, 0.7),
    ],
)
def test_the_share_of_clients_on_a_side_of_a_threshold(measure, threshold, ahead, behind):
    """At the last kept round; clients without test examples are none of them."""

    def clients(last):
        rounds = [0, 0, 0, 9, 9, 9]
        accuracies = [0.6, 0.6, 0.6, 0.9, last, math.nan]
        run = Run(clients={"round": rounds, "accuracy": accuracies})
        return dict.fromkeys(range(SEEDS), run)

    check = curves(measure, "accuracy", "x", threshold=threshold)
    (c,) = compare(check, of(clients(ahead), clients(behind)))
    assert c.mean == 50  # percent
    assert c.n == SEEDS


def test_cka_is_averaged_over_different_clients():
    def measured(cka):
        return dict.fromkeys(range(SEEDS), Run(cka=cka))

    near = measured([[1.0, 0.9], [0.9, 1.0]])
    apart = measured([[1.0, 0.2], [0.2, 1.0]])
    some = measured(
        [
            [1.0, 0.9, None],
            [0.3, 1.0, None],
            [None, None, None],
        ]
    )
    check = curves("cka", "moments")
    x, y = compare(check, of(near, apart, some))
    assert x.mean == pytest.approx(0.7)
    assert y.mean == pytest.approx(0.3)  # 0.9 - (0.9 + 0.3) / 2
    unknown = [[None, None], [None, None]]
    for nothing in (None, [[1.0]], unknown):
        x, _ = compare(check, of(near, measured(nothing)))
        assert x.n == 0


# ---- limits


@pytest.mark.parametrize(
    ("measure", "bound", "value", "kind"),
    [
        ("tail", "at_least", 0.59, "holds"),
        ("tail", "at_least", 0.66, "fails"),
        ("decline", "at_most", 0.06, "fails"),
        ("area", "at_most", 1.1, "fails"),
    ],
)
def test_limits(measure, bound, value, kind):
    """The mean over the last tenth is from 0.6 to 0.65, 0.075 of the first value; the area is 1.16
    to 1.27.
    """
    runs = of(
        swelling(
            8.0,
            *[1.0] * 18,
            0.2,
            field="test_loss",
        )
    )
    assert word(limit(measure, "test_loss", **{bound: value}), runs) == kind


def test_limits_of_all_methods():
    check = limit("tail", "test_loss", at_least=0) | {"methods": "all"}
    new, *others = compare(check, of(constant(1.0, "test_loss")))
    assert new.label == "test loss (mean over the last tenth) of New above 0 on A"
    assert new.n == SEEDS
    assert [c.n for c in others] == [0, 0]


def test_the_time_of_one_method_over_that_of_another():
    runs = of(
        swelling(1.0, 1.05, field="seconds_train"),
        swelling(1.0, 1.0, field="seconds_train"),
    )
    check = limit("seconds_over", "seconds_train", reference="x", at_most=1.1)
    (c,) = compare(check, runs)
    assert c.mean == pytest.approx(1.1 - 1.05)
    cut = {"departs": ("rounds 2 (paper 9)",)}
    (c,) = compare(check, runs, x=cut)
    assert c.reduced  # the other side counts too
    best = {"reading": Reading(round="best")}
    (c,) = compare(check, runs, a=best)
    assert c.mean == pytest.approx(1.1 - 1.05)  # of all rounds, not of that with the fewest seconds


# ---- which rows


SWEEP = [
    Row("new", hyperparameters={"p": 0.0}),
    Row("new", hyperparameters={"p": 0.5}),
    Row("new", hyperparameters={"p": 1.0}),
    Row("x"),
    Row("y"),
]


@pytest.mark.parametrize(
    ("worse", "rivals"),
    [
        ("others", ["New p=0.0", "New p=1.0", "X", "Y"]),
        ("new", ["New p=0.0", "New p=1.0"]),
        (["x", {"algo": "new", "p": 1.0}], ["X", "New p=1.0"]),
    ],
)
def test_rows_are_named_by_method_hyperparameter_or_as_the_others(worse, rivals):
    check = curves(
        "final",
        "test_loss",
        worse,
    ) | {"better": {"algo": "new", "p": 0.5}}
    labels = [c.label for c in compare(check, {}, SWEEP)]
    start = "final value of test loss of New p=0.5 against "
    assert labels == [f"{start}{rival} on A" for rival in rivals]
