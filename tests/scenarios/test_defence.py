"""Robust rules on given vectors, and in the place of a method's mean."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from tools import close, federation, final, make, population_of, scenario_of, snapshots

from fedbench.core.errors import RequestError
from fedbench.core.randomness import Purpose, fold_in, key, sample_cohort
from fedbench.core.validation import checked
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
ROUND = torch.linalg.qr(
    torch.randn(6, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
).Q


def vectors(count=11, size=6, seed=0):
    return torch.randn(
        count, size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
    )


def defence(rule, count, **options):
    return Defence(population=population_of([1] * count), attackers=0, rule=rule, **options)


def apply(rule, rows, p=None, order=None, centre=None, **options):
    rows = torch.as_tensor(rows, dtype=torch.float64)
    p = (
        torch.full((len(rows),), 1 / len(rows), dtype=torch.float64)
        if p is None
        else torch.as_tensor(p)
    )
    order = np.arange(len(rows)) if order is None else order
    centre = torch.zeros(rows.shape[1], dtype=torch.float64) if centre is None else centre
    made = defence(rule, max(len(rows), 30), **options)
    if rule == "norm_clip":
        return p @ made._clipped({"w": centre}, {"delta": rows}, {}, None)[0]["delta"], None, {}
    return made.aggregate(rows, p, np.argsort(order), centre)


def result(*args, **options):
    return apply(*args, **options)[0]


def line(*values):
    return torch.tensor(values, dtype=torch.float64)[:, None]


def test_values_by_hand():
    assert result("median", line(4.0, 1.0, 8.0, 2.0)).item() == 3.0
    assert result("median", line(4.0, 1.0, 8.0)).item() == 4.0
    assert result("trimmed_mean", line(9.0, 1.0, 2.0, 6.0, -7.0), f=1).item() == 3.0
    # f = 1 of 5: two neighbours; scores 1+4, 1+1, 1+4, 64+81, 100+121
    assert result("krum", line(0.0, 1.0, 2.0, 10.0, -10.0), f=1).item() == 1.0
    # scores of 0, 1, 2 are the least three, of 0 and 2 equal
    assert result("multi_krum", line(0.0, 1.0, 2.0, 10.0, -10.0), f=1, m=2).item() == 0.5
    # from 0 with radius 2: (1 + 2 - 2 + 2) / 4; from there (1/4 + 2 - 2 + 2) / 4
    assert result("centered_clipping", line(1.0, 3.0, -9.0, 8.0), radius=2.0).item() == 0.75
    assert (
        result("centered_clipping", line(1.0, 3.0, -9.0, 8.0), radius=2.0, steps=2).item()
        == 0.75 + 2.25 / 4
    )
    # 5.5
    assert result(
        "centered_clipping", line(1.0, 3.0, -9.0, 8.0), radius="median"
    ).item() == pytest.approx(1.0)
    # chosen are 2 (tied with 3), 3, 1 (tied with 4), 4 (with 5), 0 (with 5); of 0 to 4 the three
    # nearest to 2
    assert result("bulyan", line(0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 100.0), f=1).item() == 2.0


@pytest.mark.parametrize("count", [3, 7])
def test_of_a_nearest_pair_krum_takes_the_smaller_id(count):
    """One neighbour: both have the same score, bit for bit."""
    rows = vectors(count, 10**4)
    squared = squared_distances(rows)
    assert torch.equal(squared, squared.T)
    f = (count - 3) // 2
    _, chosen, _ = apply("krum", rows, f=f)
    if count == 3:
        pair = sorted(divmod(int((squared + torch.eye(3) * 1e9).argmin()), 3))
        assert chosen.nonzero()[0].item() == pair[0]
    score = (
        (squared + torch.diag(torch.full((count,), torch.inf)))
        .sort(1)
        .values[:, : count - f - 2]
        .sum(1)
    )
    assert score[chosen].item() == score.min()


def test_bulyan_is_the_definition():
    rows, f = vectors(11), 2
    left, chosen = list(range(11)), []
    while len(chosen) < 11 - 2 * f:
        apart = {
            i: sorted(float((rows[i] - rows[j]).square().sum()) for j in left if j != i)
            for i in left
        }
        best = min(left, key=lambda i: (sum(apart[i][: max(1, len(left) - f - 2)]), i))
        chosen.append(best)
        left.remove(best)
    vector, found, _ = apply("bulyan", rows, f=f)
    assert found.nonzero()[:, 0].tolist() == sorted(chosen)
    kept = rows[sorted(chosen)].numpy()
    for j in range(6):
        column = sorted(kept[:, j], key=lambda v, j=j: (abs(v - np.median(kept[:, j])), v))
        assert vector[j].item() == pytest.approx(np.mean(column[: len(chosen) - 2 * f]))


def test_reductions():
    """Settings with which a rule is the mean or another rule."""
    rows = vectors()
    mean = rows.mean(0)
    for found in (
        result("trimmed_mean", rows, f=0),
        result("multi_krum", rows, f=3, m=11),
        result("multi_krum", rows, f=0),
        result("bulyan", rows, f=0),
        result("centered_clipping", rows, centre=vectors(1)[0] * 5, radius=1e9),
        *(result(rule, rows, before="nnm", f=0) for rule in RULES),
        *(result(rule, rows, before="bucketing", bucket=11, f=0) for rule in RULES),
        result("mean", rows, before="bucketing", bucket=1),
    ):
        assert close(found, mean, 1e-12)
    assert close(result("trimmed_mean", rows, f=5), result("median", rows), 1e-12)
    assert torch.equal(result("multi_krum", rows, f=2, m=1), result("krum", rows, f=2))


@pytest.mark.parametrize("rule", [*RULES, "norm_clip"])
def test_shifts_scales_orders_and_equal_rows(rule):
    rows, b, options = vectors(), vectors(1, seed=5)[0] * 100, {"f": 2}
    of = result(rule, rows, **options)
    assert close(result(rule, rows + b, centre=b, **options), of + b, 1e-9) == (rule != "norm_clip")
    for scale in (3.0, -2.0):
        assert close(result(rule, scale * rows, **options), scale * of, 1e-9)
    turned = torch.randperm(11, generator=torch.Generator().manual_seed(3))
    assert close(result(rule, rows[turned], **options), of, 1e-9)
    equal = rows[:1].expand(11, -1)
    assert close(result(rule, equal, centre=rows[0], **options), rows[0], 1e-12)
    assert torch.equal(result(rule, rows[:1], **options), rows[0])  # one row, which is that row


@pytest.mark.parametrize("before", ["none", "bucketing", "nnm", "both"])
@pytest.mark.parametrize("rule", RULES)
def test_clients_with_equal_rows_may_change_places(rule, before):
    """With their weights and draws; of equal rows it does not matter which one a tie goes to."""
    rows, p = vectors(30)[torch.arange(30) % 25], torch.arange(1, 31, dtype=torch.float64) / 465
    order, turned = (
        np.random.default_rng(2).permutation(30),
        np.random.default_rng(3).permutation(30),
    )
    there = np.argsort(np.argsort(order)[turned])  # the clients in the order of the same draws
    options = {"before": before, "f": 3}  # for which no two scores are equal otherwise
    of = result(rule, rows, p, order, **options)
    assert close(result(rule, rows[turned], p[turned], there, **options), of, 1e-9)


def test_rules_of_distances_do_not_know_the_axes_and_the_others_do():
    rows = vectors()
    for rule in [*RULES, "norm_clip"]:
        turned, of = result(rule, rows @ ROUND, f=2), result(rule, rows, f=2) @ ROUND
        assert close(turned, of, 1e-9) == (rule not in ("median", "trimmed_mean", "bulyan")), rule
    assert close(
        result("mean", rows @ ROUND, before="nnm", f=3),
        result("mean", rows, before="nnm", f=3) @ ROUND,
        1e-9,
    )


@pytest.mark.parametrize("bad", [1e9, -1e9, 1e30])
def test_with_f_rows_replaced_results_stay_with_the_honest(bad):
    rows, f = vectors(), 2
    honest = rows[f:]
    rows = torch.cat([torch.full((f, 6), bad, dtype=torch.float64), honest])
    for rule in ("median", "trimmed_mean", "krum", "multi_krum", "bulyan"):
        found = result(rule, rows, f=f)
        assert (found >= honest.min(0).values).all(), rule
        assert (found <= honest.max(0).values).all(), rule
    _, chosen, _ = apply("krum", rows, f=f)
    squared = squared_distances(rows).fill_diagonal_(torch.inf)
    score = squared.sort(1).values[:, : 11 - f - 2].sum(1)
    assert score[chosen] <= score[f:].min()
    far = result(
        "geometric_median", torch.cat([torch.full((f, 6), 1e5, dtype=torch.float64), honest])
    )
    assert torch.linalg.vector_norm(far) < 3


def test_geometric_median():
    rows, p = vectors(), torch.arange(1, 12, dtype=torch.float64) / 66
    z = result("geometric_median", rows, p)
    slope = (p[:, None] * (z - rows) / torch.linalg.vector_norm(z - rows, dim=1, keepdim=True)).sum(
        0
    )
    assert torch.linalg.vector_norm(slope) < 1e-5
    heavy = torch.full((11,), 0.04, dtype=torch.float64)
    heavy[3] = 0.6
    assert close(result("geometric_median", rows, heavy), rows[3], 1e-5)
    on_line = torch.stack([rows[0], rows[0] + rows[1], rows[0] + 3 * rows[1]])
    assert close(result("geometric_median", on_line), on_line[1], 1e-4)
    # one step from the mean 0 of -1, -1, 2: weights 1, 1, 1/2
    assert result("geometric_median", line(-1.0, -1.0, 2.0), iterations=1).item() == pytest.approx(
        -0.4
    )


def test_before():
    rows = line(0.0, 10.0, 20.0, 30.0, 40.0)
    # buckets {4, 0}, {3, 2}, {1}: of 20, 25, 10, in the order 0, 1, 2
    order = np.array([4, 0, 3, 2, 1])
    assert result("median", rows, before="bucketing", order=order).item() == 20.0
    order = np.array([3, 2, 4, 0, 1])
    # 20 and 25 are the nearest; ids 0, 2
    found, chosen, _ = apply("krum", rows, before="bucketing", order=order, f=0)
    assert (found.item(), chosen.tolist()) == (20.0, [True, False, False, False, True])
    # means of the 3 nearest of 0, 1, 2, 3, 100 with ties to smaller ids: 1, 1, 2, 2, 35
    assert result("median", line(0.0, 1.0, 2.0, 3.0, 100.0), before="nnm", f=2).item() == 2.0
    assert result(
        "mean", line(0.0, 1.0, 2.0, 3.0, 100.0), before="nnm", f=2
    ).item() == pytest.approx(41 / 5)
    # buckets 20, 25, 10, then of each the mean of 2: 22.5, 22.5, 15
    assert result("median", rows, before="both", order=order, f=1).item() == 22.5


def test_values_that_are_not_finite_are_left_out_and_f_is_lowered():
    rows = torch.cat([line(1.0, 2.0, 6.0), line(torch.nan, torch.inf)])
    vector, _, counts = apply("trimmed_mean", rows, f=2)
    assert (vector.item(), counts) == (2.0, {"~lowered": 1, "~nonfinite": 2})  # f = 1 of 3
    assert not apply("trimmed_mean", vectors(5), f=2)[2]["~lowered"]
    assert apply("bulyan", vectors(6), f=1)[2]["~lowered"]  # 4 + 3 > 6
    one_step = result("geometric_median", line(torch.nan, -1.0, -1.0, 2.0), iterations=1)
    assert one_step.item() == pytest.approx(-0.4)  # as without the first
    gone, _, counts = apply("krum", line(torch.nan, torch.nan))
    assert gone.isnan().all() and counts["~nonfinite"] == 2
    # a tie of two
    assert result("krum", torch.cat([line(5.0, 3.0), line(torch.nan)])).item() == 5.0


def test_norm_clip():
    data = federation()
    run = {"rounds": 2, "seed": 1}
    plain = final(make("fedavg"), data, **run)
    wide = scenario_of(data, defence={"rule": "norm_clip", "radius": 1e9})
    assert torch.equal(final(make("fedavg"), data, scenario=wide, **run), plain)
    narrow = scenario_of(data, defence={"rule": "norm_clip", "radius": 0.01})
    before, after = snapshots(make("fedavg"), data, rounds=1, scenario=narrow)
    assert torch.linalg.vector_norm(after.server["w"] - before.server["w"]) <= 0.01 + 1e-12
    rows = torch.diag(torch.tensor([1.0, 2.0, 3.0, 4.0]))
    of_median = defence("norm_clip", 4)._clipped(
        {"w": rows[0]}, {"delta": rows, "a": rows[:, :1]}, {}, None
    )[0]
    assert of_median["delta"].diagonal().tolist() == [1.0, 2.0, 2.5, 2.5]
    assert torch.equal(of_median["a"], rows[:, :1])


@pytest.mark.parametrize(
    ("name", "mode"),
    [
        ("fedadam", "stacked"),
        ("fednova", "compiled"),
        ("ditto", "stacked"),
        ("fedavgm", "compiled"),
    ],
)
def test_a_rule_takes_the_place_of_the_mean_and_of_nothing_else(name, mode):
    """With f = 0 the trimmed mean is the mean, whatever the method does with it."""
    data, algo = federation(), make(name, weights="uniform")
    how = {"rounds": 3, "participation": 4, "mode": mode}
    rule = scenario_of(data, planned=4, defence={"rule": "trimmed_mean"})
    assert close(final(algo, data, scenario=rule, **how), final(algo, data, **how), 1e-9)


@pytest.mark.parametrize(
    ("ids", "options"),
    [([1, 2, 4], {"rule": "krum"}), ([0, 1, 3, 4, 6], {"rule": "median", "before": "bucketing"})],
)
def test_rows_have_the_order_of_ids_and_buckets_are_of_clients(ids, options):
    """Whoever works longest; of a nearest pair Krum takes the smaller id."""
    data, algo = federation(), make("fedavg", weights="uniform")
    start = final(algo, data, rounds=0)
    rows = torch.stack(
        [start - final(algo, data, rounds=1, sampler=lambda *_, k=k: np.array([k])) for k in ids]
    )
    drawn = fold_in(key(0, Purpose.BUCKETS, 0), np.array(ids))
    rule = scenario_of(data, len(ids), defence=options)
    found = final(algo, data, rounds=1, sampler=lambda *_: np.array(ids), scenario=rule)
    assert close(start - found, result(rows=rows, order=np.argsort(drawn), **options), 1e-9)


def test_centre_and_counts_are_states_of_the_server_and_resume():
    data = federation(dtype=torch.float32)
    algo, how = make("fedavg", weights="uniform"), {"rounds": 4, "participation": 4}
    rule = scenario_of(data, 4, defence={"rule": "centered_clipping", "radius": 0.05})
    whole = snapshots(algo, data, scenario=rule, **how)
    rest = snapshots(algo, data, scenario=rule, resume=whole[2], **how)
    assert all(torch.equal(rest[-1].server[k], v) for k, v in whole[-1].server.items())
    steps = [a.server["w"] - b.server["w"] for a, b in pairwise(whole)]
    for step, after in zip(steps, whole[1:], strict=True):
        assert close(step, after.server["~centre"], 1e-4)
    few = scenario_of(data, 7, defence={"rule": "krum", "f": 2})
    counts = snapshots(algo, data, scenario=few, sampler=sample_cohort(3), rounds=2)[-1].server
    assert (counts["~lowered"].item(), counts["~nonfinite"].item()) == (2, 0)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"rule": "krum", "f": 4}, "f must be at most 3 for krum of 10 vectors, got 4; lower it"),
        ({"rule": "bulyan", "f": 2}, "f must be at most 1 for bulyan of 10 vectors, got 2"),
        ({"rule": "trimmed_mean", "f": 5}, "f must be at most 4 for trimmed_mean of 10 vectors"),
        ({"rule": "median", "f": 10, "before": "nnm"}, "f must be at most 9 for nnm and median of 10 vectors"),
        ({"rule": "krum", "f": 2, "before": "bucketing"}, "f must be at most 1 for bucketing and krum of 5 vectors"),
        ({"rule": "multi_krum", "m": 11}, "m must be at most the number of vectors in a round, 10, got 11"),
        ({"rule": "norm_clip", "radius": 0}, "radius must be median or > 0, got 0"),
        ({"rule": "norm_clip", "before": "nnm"}, "before must be none for rule=norm_clip, got nnm"),
        ({"rule": "medain"}, "rule must be .*median"),
    ],
)  # fmt: skip
def test_refused(options, text):
    with pytest.raises(RequestError, match=text):
        defence(count=10, **checked(Defence, options))


def test_f_is_the_mean_number_of_attackers_rounded_up():
    some = [population_of([1] * 30 + [0] * 10, participation=c) for c in (10, 11, 50)]
    of = [Defence(population=p, attackers=6, rule="median").assumed for p in some]
    assert of == [2, 3, 6]  # 6 · 10 / 30, 2.2 and, since 30 can take part, all
