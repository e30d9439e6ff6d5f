"""Robust rules on given vectors, and in the place of a method's mean."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from snapshot_checks import random_rows
from tools import close, federation, final, make, population_of, scenario_of, snapshots

from fedbench.core.randomness import Purpose, fold_in, key, sample_cohort
from fedbench.scenarios.defence import Defence
from fedbench.scenarios.vectors import squared_distances

RULES = [
    "median",
    "trimmed_mean",
    "krum",
    "multi_krum",
    "geometric_median",
    "centered_clipping",
    "bulyan",
    "mean",
]
DATA = federation()
UNIFORM = make("fedavg", weights="uniform")
ROWS = random_rows(11, 6)
ROTATION = torch.linalg.qr(random_rows(6, 6, seed=1)).Q


def defence(rule, count=30, **options):
    return Defence(
        population=population_of([1] * count),
        attackers=0,
        rule=rule,
        **options,
    )


def line(*values):
    """Vectors of one dimension."""
    return torch.tensor(values, dtype=torch.float64)[:, None]


def apply(rule, rows, p=None, order=None, centre=None, **options):
    """The result of a rule, the clients that it chose, and its counts."""
    count, size = rows.shape
    if p is None:
        p = torch.full(
            (count,),
            1 / count,
            dtype=torch.float64,
        )
    if centre is None:
        centre = torch.zeros(size, dtype=torch.float64)
    draws = np.arange(count) if order is None else np.argsort(order)
    return defence(rule, **options).aggregate(
        rows,
        p,
        draws,
        centre,
    )


def result(rule, rows, **options):
    return apply(rule, rows, **options)[0]


def value(rule, *values, **options):
    """The result for vectors of one dimension."""
    return result(rule, line(*values), **options).item()


def clipped(rows, centre, **options):
    """What is left of the vectors by norm clipping, and of numbers."""
    uploads = {"delta": rows, "a": rows[:, :1]}
    return defence("norm_clip", **options)._clipped(
        {"w": centre},
        uploads,
        {},
        None,
    )[0]


def test_values_by_hand():
    assert value("median", 4.0, 1.0, 8.0, 2.0) == 3
    assert value("median", 4.0, 1.0, 8.0) == 4
    assert (
        value(
            "trimmed_mean",
            9.0,
            1.0,
            2.0,
            6.0,
            -7.0,
            f=1,
        )
        == 3
    )
    # f = 1 of 5: two neighbours; scores 1+4, 1+1, 1+4, 64+81, 100+121
    assert (
        value(
            "krum",
            0.0,
            1.0,
            2.0,
            10.0,
            -10.0,
            f=1,
        )
        == 1
    )
    # scores of 0, 1, 2 are the least three, of 0 and 2 equal
    assert (
        value(
            "multi_krum",
            0.0,
            1.0,
            2.0,
            10.0,
            -10.0,
            f=1,
            m=2,
        )
        == 0.5
    )


def test_centered_clipping_by_hand():
    rows = line(1.0, 3.0, -9.0, 8.0)
    # from 0 with radius 2: (1 + 2 - 2 + 2) / 4; from there (1/4 + 2 - 2 + 2) / 4
    once = result("centered_clipping", rows, radius=2.0)
    twice = result("centered_clipping", rows, radius=2.0, steps=2)
    of_median = result("centered_clipping", rows, radius="median")  # 5.5
    assert once.item() == 0.75
    assert twice.item() == 0.75 + 2.25 / 4
    assert of_median.item() == pytest.approx(1.0)


def test_of_a_nearest_pair_krum_takes_the_smaller_id():
    """One neighbour: both have the same score, bit for bit."""
    rows = random_rows(3, 10**4)
    squared = squared_distances(rows)
    assert torch.equal(squared, squared.T)
    nearest = (squared + torch.eye(3) * 1e9).argmin()
    chosen = apply("krum", rows, f=0)[1]
    assert chosen.nonzero().item() == min(divmod(int(nearest), 3))


def test_bulyan_is_the_definition():
    f = 2
    left, chosen = list(range(11)), []

    def score(i):
        others = [j for j in left if j != i]
        apart = sorted((ROWS[i] - ROWS[others]).square().sum(1).tolist())
        return sum(apart[: max(1, len(left) - f - 2)])

    while len(chosen) < 11 - 2 * f:
        best = min(left, key=score)
        chosen.append(best)
        left.remove(best)
    vector, found, _ = apply("bulyan", ROWS, f=f)
    assert found.nonzero()[:, 0].tolist() == sorted(chosen)
    for mine, column in zip(
        vector,
        ROWS[sorted(chosen)].T,
        strict=True,
    ):
        distance = (column - column.quantile(0.5)).abs()
        nearest = distance.argsort(stable=True)[: len(chosen) - 2 * f]
        assert mine.item() == pytest.approx(column[nearest].mean().item())


MEANS = [
    ("trimmed_mean", {}),
    ("multi_krum", {"f": 3, "m": 11}),
    ("multi_krum", {}),
    ("bulyan", {}),
    ("centered_clipping", {"centre": random_rows(1, 6)[0] * 5, "radius": 1e9}),
    ("mean", {"before": "bucketing", "bucket": 1}),
    *((rule, {"before": "nnm"}) for rule in RULES),
    *((rule, {"before": "bucketing", "bucket": 11}) for rule in RULES),
]


@pytest.mark.parametrize(("rule", "options"), MEANS)
def test_settings_with_which_a_rule_is_the_mean(rule, options):
    found = result(
        rule,
        ROWS,
        **{"f": 0, **options},
    )
    assert close(found, ROWS.mean(0), 1e-12)


@pytest.mark.parametrize("rule", RULES)
def test_shifts_scales_and_equal_rows(rule):
    plain = result(rule, ROWS, f=2)
    shift = random_rows(1, 6, seed=5)[0] * 100
    assert close(
        result(rule, ROWS + shift, centre=shift, f=2),
        plain + shift,
        1e-9,
    )
    for scale in (3.0, -2.0):
        assert close(
            result(rule, scale * ROWS, f=2),
            scale * plain,
            1e-9,
        )
    equal = ROWS[:1].expand(11, -1)
    assert close(
        result(rule, equal, centre=ROWS[0], f=2),
        ROWS[0],
        1e-12,
    )
    assert torch.equal(result(rule, ROWS[:1], f=2), ROWS[0])


@pytest.mark.parametrize("before", ["none", "bucketing", "nnm", "both"])
@pytest.mark.parametrize("rule", RULES)
def test_clients_with_equal_rows_may_change_places(rule, before):
    """With their weights and draws; of equal rows it does not matter which one a tie goes to."""
    rows = random_rows(30, 6)[torch.arange(30) % 25]
    p = torch.arange(1, 31, dtype=torch.float64) / 465
    order = np.random.default_rng(2).permutation(30)
    turned = np.random.default_rng(3).permutation(30)
    same_draws = np.argsort(np.argsort(order)[turned])
    options = {"before": before, "f": 3}  # for which no two scores are equal otherwise
    plain = result(
        rule,
        rows,
        p=p,
        order=order,
        **options,
    )
    other = result(
        rule,
        rows[turned],
        p=p[turned],
        order=same_draws,
        **options,
    )
    assert close(other, plain, 1e-9)


@pytest.mark.parametrize("rule", RULES)
def test_rules_of_distances_do_not_know_the_axes_and_the_others_do(rule):
    before = "nnm" if rule == "mean" else "none"
    rotated = result(
        rule,
        ROWS @ ROTATION,
        f=2,
        before=before,
    )
    plain = result(rule, ROWS, f=2, before=before)
    by_axis = rule in ("median", "trimmed_mean", "bulyan")
    assert close(rotated, plain @ ROTATION, 1e-9) != by_axis


@pytest.mark.parametrize("bad", [1e9, -1e9, 1e30])
def test_with_f_rows_replaced_results_stay_with_the_honest(bad):
    honest = ROWS[2:]
    rows = torch.cat(
        [
            torch.full(
                (2, 6),
                bad,
                dtype=torch.float64,
            ),
            honest,
        ]
    )
    for rule in ("median", "trimmed_mean", "krum", "multi_krum", "bulyan"):
        found = result(rule, rows, f=2)
        assert (found >= honest.min(0).values).all(), rule
        assert (found <= honest.max(0).values).all(), rule
    far = result("geometric_median", rows.clamp(-1e5, 1e5))
    assert far.norm() < 3


def test_geometric_median():
    p = torch.arange(1, 12, dtype=torch.float64) / 66
    z = result("geometric_median", ROWS, p=p)
    slope = p @ torch.nn.functional.normalize(z - ROWS)
    assert slope.norm() < 1e-5
    heavy = torch.full(
        (11,),
        0.04,
        dtype=torch.float64,
    )
    heavy[3] = 0.6
    assert close(
        result("geometric_median", ROWS, p=heavy),
        ROWS[3],
        1e-5,
    )
    # one step from the mean 0: weights 1, 1, 1/2
    once = value(
        "geometric_median",
        -1.0,
        -1.0,
        2.0,
        iterations=1,
    )
    assert once == pytest.approx(-0.4)


def test_bucketing_by_hand():
    rows = line(0.0, 10.0, 20.0, 30.0, 40.0)
    # buckets {4, 0}, {3, 2}, {1}: of 20, 25, 10, in the order 0, 1, 2
    order = np.array([4, 0, 3, 2, 1])
    assert result("median", rows, before="bucketing", order=order).item() == 20
    order = np.array([3, 2, 4, 0, 1])
    # 20 and 25 are the nearest; ids 0, 2
    found, chosen, _ = apply(
        "krum",
        rows,
        before="bucketing",
        order=order,
        f=0,
    )
    assert found.item() == 20
    assert chosen.nonzero()[:, 0].tolist() == [0, 4]
    # buckets 20, 25, 10, then of each the mean of 2: 22.5, 22.5, 15
    assert (
        result(
            "median",
            rows,
            before="both",
            order=order,
            f=1,
        ).item()
        == 22.5
    )


def test_nearest_neighbour_mixing_by_hand():
    """Means of the 3 nearest, with ties to smaller ids: 1, 1, 2, 2, 35."""
    values = (0.0, 1.0, 2.0, 3.0, 100.0)
    assert (
        value(
            "median",
            *values,
            before="nnm",
            f=2,
        )
        == 2
    )
    assert value(
        "mean",
        *values,
        before="nnm",
        f=2,
    ) == pytest.approx(41 / 5)


def test_values_that_are_not_finite_are_left_out_and_f_is_lowered():
    rows = line(
        1.0,
        2.0,
        6.0,
        torch.nan,
        torch.inf,
    )
    vector, _, counts = apply("trimmed_mean", rows, f=2)
    assert vector.item() == 2
    assert counts == {"~lowered": 1, "~nonfinite": 2}  # f = 1 of 3
    assert not apply("trimmed_mean", ROWS[:5], f=2)[2]["~lowered"]
    assert apply("bulyan", ROWS[:6], f=1)[2]["~lowered"]  # 4 + 3 > 6
    once = value(
        "geometric_median",
        torch.nan,
        -1.0,
        -1.0,
        2.0,
        iterations=1,
    )
    assert once == pytest.approx(-0.4)  # as without the first
    gone, _, counts = apply("krum", line(torch.nan, torch.nan))
    assert gone.isnan().all()
    assert counts["~nonfinite"] == 2
    assert value("krum", 5.0, 3.0, torch.nan) == 5  # a tie of two


def test_norm_clipping_of_given_vectors():
    rows = torch.diag(torch.tensor([1.0, 2.0, 3.0, 4.0]))
    of_median = clipped(rows, rows[0])
    assert of_median["delta"].diagonal().tolist() == [1.0, 2.0, 2.5, 2.5]
    assert torch.equal(of_median["a"], rows[:, :1])


@pytest.mark.parametrize(
    ("name", "mode"), [("fedadam", "stacked"), ("fednova", "compiled"), ("ditto", "stacked")]
)
def test_a_rule_takes_the_place_of_the_mean_and_of_nothing_else(name, mode):
    """With f = 0 the trimmed mean is the mean, whatever the method does with it."""
    algo = make(name, weights="uniform")
    how = {"participation": 4, "mode": mode}
    rule = scenario_of(
        DATA,
        planned=4,
        defence={"rule": "trimmed_mean"},
    )
    assert close(
        final(algo, DATA, scenario=rule, **how),
        final(algo, DATA, **how),
        1e-9,
    )


@pytest.mark.parametrize(
    ("ids", "options"),
    [
        ([1, 2, 4], {"rule": "krum"}),
        ([0, 1, 3, 4, 6], {"rule": "median", "before": "bucketing"}),
    ],
)
def test_rows_have_the_order_of_ids_and_buckets_are_of_clients(ids, options):
    """Whoever works longest; of a nearest pair Krum takes the smaller id."""

    def step(*ids, scenario=None):
        sampler = lambda *_: np.array(ids)  # noqa: E731
        run = snapshots(
            UNIFORM,
            DATA,
            rounds=1,
            sampler=sampler,
            scenario=scenario,
        )
        return run[0].server["w"] - run[1].server["w"]

    rows = torch.stack([step(k) for k in ids])
    drawn = fold_in(key(0, Purpose.BUCKETS, 0), np.array(ids))
    rule = scenario_of(DATA, len(ids), defence=options)
    expected = result(
        rows=rows,
        order=np.argsort(drawn),
        **options,
    )
    assert close(
        step(*ids, scenario=rule),
        expected,
        1e-9,
    )


def test_the_centre_is_a_state_of_the_server():
    data = federation(dtype=torch.float32)
    clipping = {"rule": "centered_clipping", "radius": 0.05}
    how = {"rounds": 4, "participation": 4, "scenario": scenario_of(data, 4, defence=clipping)}
    for before, after in pairwise(snapshots(UNIFORM, data, **how)):
        step = before.server["w"] - after.server["w"]
        assert close(step, after.server["~centre"], 1e-4)


def test_counts_are_sums_over_rounds():
    rule = scenario_of(
        DATA,
        7,
        defence={"rule": "krum", "f": 2},
    )
    run = snapshots(
        UNIFORM,
        DATA,
        scenario=rule,
        sampler=sample_cohort(3),
        rounds=2,
    )
    assert run[-1].server["~lowered"] == 2
    assert run[-1].server["~nonfinite"] == 0


@pytest.mark.parametrize(
    ("cohort", "f"),
    [(10, 2), (11, 3), (50, 6)],
)
def test_f_is_the_mean_number_of_attackers_rounded_up(cohort, f):
    """6 · 10 / 30, 2.2 and, since 30 can take part, all."""
    everybody = population_of(
        [1] * 30 + [0] * 10,
        participation=cohort,
    )
    assert Defence(population=everybody, attackers=6, rule="median").assumed == f
