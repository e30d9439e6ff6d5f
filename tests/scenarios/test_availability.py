"""Availability: who takes part, the cost of a lost result, and rounds without results."""

import json
from dataclasses import replace
from fractions import Fraction
from functools import partial
from itertools import product

import numpy as np
import pandas as pd
import pytest
import torch
from snapshot_checks import costs, method_states, model_bytes, round_rows
from tools import ALGORITHMS, close, federation, make, population_of, round_plan, snapshots

import fedbench
from fedbench.config.compose import compose_run
from fedbench.core.algorithm import Algorithm, Stage
from fedbench.core.errors import RequestError
from fedbench.core.randomness import Purpose, data_generator, key, sample_cohort
from fedbench.core.types import nbytes
from fedbench.scenarios import availability
from fedbench.scenarios.availability import Availability, bernoulli, clients, cyclic, stragglers
from fedbench.scenarios.scenario_stack import ScenarioStack
from fedbench.simulation.local_work import LocalWork

DATA = federation()
N = DATA.train.counts
TAU = np.array([1, 3, 1, 1, 4, 1, 1])  # steps of an epoch, 12 in all
WORK = LocalWork(lr=0.1, batch_size=10)
ALL = np.arange(7)
NEED_ALL = ("fedcorr", "stem", "fafed", "afl", "fedamp")
METHODS = {
    **{name: {} for name in ALGORITHMS if name not in NEED_ALL},
    "afl": {"partial": True},
    "fafed": {"variant": "stateless"},
}


def around(part, data=DATA, seed=0, work=WORK):
    """What surrounds a method, from a part or from a function of all clients that makes it."""
    everybody = population_of(data, seed, work=work)
    if not isinstance(part, Availability):
        part = part(population=everybody)
    return ScenarioStack(everybody, [part])


def run(method, part=None, data=DATA, work=WORK, **options):
    """Snapshots of a method, given by itself or by its name."""
    scenario = None if part is None else around(part, data, work=work)
    method = make(method) if isinstance(method, str) else method
    return snapshots(
        method,
        data,
        work=work,
        scenario=scenario,
        **options,
    )


def step(*given, **options):
    """What the first round takes from the model."""
    before, after = run(*given, rounds=1, **options)
    return before.server["w"] - after.server["w"]


def u(purpose, *coordinates, seed=0):
    """The uniform number of a draw, from the hash of plain integers."""
    return (order_of(purpose, *coordinates, seed=seed) + 0.5) / 2**63


def order_of(purpose, *coordinates, seed=0):
    return key(seed, purpose, *coordinates) >> 1


def plan_of(part, round=0, seed=0, participation=1.0, work=WORK):
    """One round as it is carried out."""
    scenario = around(part, seed=seed, work=work)
    algo = Algorithm()
    server = scenario.with_states(algo).server_init(torch.zeros(2), 7)
    able = scenario.reachable(round, N)
    ids = sample_cohort(participation)(round, able, seed)
    tau = work.tau(
        ids,
        N[ids],
        seed,
        round,
    )
    planned = {"seed": seed, "round": round, "server": server, "able": able, "tau": tau}
    return scenario.plan(round_plan(ids, algo, **planned))


# ---- nothing is lost

NOTHING = {
    "bernoulli": bernoulli(p=0),
    "clients": partial(clients, by="size", mean=1.0),
    "floor": partial(clients, floor=1),
    "cyclic": partial(cyclic, groups=1),
    "deadline": partial(stragglers, deadline=1e9),
    "share": partial(stragglers, kind="share", share=0),
    "one epoch": partial(stragglers, kind="share", late="partial"),
}
NEUTRAL = [
    *((name, "bernoulli", "stacked") for name in METHODS),
    *(("scaffold", part, mode) for part in NOTHING for mode in ("loop", "compiled")),
]


@pytest.mark.parametrize(("name", "part", "mode"), NEUTRAL)
def test_without_losses_a_run_is_bit_identical(name, part, mode):
    method = make(name, **METHODS[name])
    ours = run(
        method,
        NOTHING[part],
        participation=4,
        mode=mode,
    )
    plain = run(method, participation=4, mode=mode)
    for a, b in zip(ours, plain, strict=True):
        assert method_states(a) == method_states(b)
        assert costs(a) == costs(b)


# ---- a lost result is as if the client had not been sampled


@pytest.mark.parametrize("name", METHODS)
def test_a_run_with_losses_is_the_run_whose_sampler_draws_those_who_report(name):
    method = make(name, **METHODS[name])
    lossy = run(
        method,
        bernoulli(p=0.4),
        participation=5,
        rounds=4,
    )
    reported = [s.cohort for s in lossy[1:]]
    assert 0 < sum(map(len, reported)) < 20
    other = run(
        method,
        rounds=4,
        sampler=lambda round, n, seed: reported[round],
    )
    for a, b in zip(lossy, other, strict=True):
        assert method_states(a) == method_states(b)
        assert np.array_equal(a.cohort, b.cohort)


@pytest.mark.parametrize(
    ("method", "phases", "numbers"),
    [
        (make("fedavg"), 1, 0),
        (make("gifair", form="local"), 1, 1),
        (make("ditto", personal_epochs=2), 3, 0),
    ],
)
def test_costs_of_lost_results(method, phases, numbers):
    """All that were sampled receive the broadcast and make their steps; numbers for the clients are
    part of it.
    """
    before, after = run(
        method,
        bernoulli(p=0.5),
        participation=6,
        rounds=1,
    )
    assert 0 < len(after.cohort) < 6
    size = before.server["w"].nbytes + 8 * numbers
    assert after.bytes_down == 6 * size
    assert after.bytes_up == len(after.cohort) * size
    sampled = sample_cohort(6)(0, N, 0)
    assert after.client_steps == TAU[sampled].sum() * phases


# ---- weights


@pytest.mark.parametrize("by", ["size", "uniform"])
def test_the_weights_over_all_patterns_of_losses(by, monkeypatch):
    """Exact means over the 2^4 patterns, p = 0.3: of the step Σ ω_k Δ_k."""
    data, p = federation((1, 23, 4, 9)), 0.3
    method = make("fedavg", weights=by)
    n = data.train.counts if by == "size" else np.ones(4)
    mean = dict.fromkeys(("zero", "inverse", "renormalise"), 0)
    for pattern in product([0.0, 1.0], repeat=4):
        arrived = np.array(pattern)
        monkeypatch.setattr(
            availability,
            "uniform",
            lambda h, arrived=arrived: arrived,
        )
        chance = np.where(arrived, 1 - p, p).prod()
        steps = {
            w: step(
                method,
                bernoulli(p=p, weights=w),
                data,
            )
            for w in mean
        }
        torch.testing.assert_close(steps["zero"], steps["inverse"] * (1 - p))
        share = arrived @ n / n.sum()
        torch.testing.assert_close(steps["zero"], steps["renormalise"] * share)
        for weights, of_pattern in steps.items():
            mean[weights] = mean[weights] + chance * of_pattern
    full = step(method, data=data)
    torch.testing.assert_close(mean["inverse"], full)
    torch.testing.assert_close(mean["zero"], (1 - p) * full)
    given_any = mean["renormalise"] / (1 - p**4)
    assert torch.allclose(given_any, full) == (by == "uniform")


# ---- rounds without results


@pytest.mark.parametrize(
    "name", ["fedadam", "fedavgm", "scaffold", "ditto", "adafedadam", "local_adam"]
)
def test_a_round_without_results_changes_nothing(name):
    found = run(
        name,
        bernoulli(p=0.5),
        participation=1,
        rounds=8,
    )
    empty = [t for t in range(1, 9) if not len(found[t].cohort)]
    assert 0 < len(empty) < 8
    for t in empty:
        before, after = found[t - 1], found[t]
        assert method_states(before) == method_states(after)
        assert after.bytes_up == before.bytes_up
        assert after.bytes_down > before.bytes_down
        assert after.client_steps > before.client_steps
    assert found[-1].server["~empty_rounds"] == len(empty)
    reports = [sum(k in s.cohort for s in found[1:]) for k in ALL]
    assert found[-1].server["~reports"].tolist() == reports


def test_a_round_in_which_nobody_can_be_reached():
    found = run(
        "fedavg",
        Availability(chances=lambda round: np.zeros(7)),
        rounds=2,
    )
    assert method_states(found[0]) == method_states(found[2])
    assert costs(found[0]) == costs(found[2])
    server = found[2].server
    assert [server[f"~{name}"] for name in ("sampled", "reported", "reachable")] == [0, 0, 0]
    assert server["~empty_rounds"] == 2


def test_the_exchange_before_the_first_round_reaches_all():
    """They receive it even if no client reports then; its cost is counted once."""
    method = make("fafed", variant="stateless")
    before, first, second = run(
        method,
        Availability(lost=1.0),
        rounds=2,
    )
    assert first.client_steps == 7 + TAU.sum()
    assert second.client_steps == 7 + 2 * TAU.sum()
    assert first.bytes_up == 7 * before.server["w"].nbytes
    assert first.server["m"].any()
    assert torch.equal(first.server["m"], second.server["m"])


# ---- who can be reached


@pytest.mark.parametrize("t", range(3))
def test_draws_are_hashes_of_purpose_round_and_client(t):
    lossy = plan_of(
        bernoulli(p=0.5),
        round=t,
        seed=5,
    )
    lost = [u(Purpose.LOST, t, k, seed=5) < 0.5 for k in range(7)]
    assert lossy.ids.tolist() == np.flatnonzero(np.invert(lost)).tolist()
    uniform = plan_of(
        partial(clients, a=1, b=1),
        round=t,
        seed=5,
    )  # Beta(1, 1)
    reached = [u(Purpose.REACHED, t, k, seed=5) for k in range(7)]
    shares = [u(Purpose.TRAITS, k, 0, seed=5) for k in range(7)]
    assert uniform.ids.tolist() == np.flatnonzero(np.less(reached, shares)).tolist()


def chances(data=DATA, **options):
    """The probabilities π_k of clients."""
    return clients(population=population_of(data), **options).chances(0)


def test_quantiles_of_beta_and_the_floor():
    """I(x; 2, 1) = x² and I(x; 1, 2) = 1 - (1-x)²."""
    drawn = np.array([u(Purpose.TRAITS, k, 0) for k in range(7)])
    np.testing.assert_allclose(
        chances(a=2, b=1),
        drawn**0.5,
        rtol=1e-9,
    )
    np.testing.assert_allclose(
        chances(a=1, b=2),
        1 - (1 - drawn) ** 0.5,
        rtol=1e-9,
    )
    np.testing.assert_allclose(
        chances(a=1, b=1, floor=0.9),
        drawn.clip(0.9),
        rtol=1e-9,
    )


# s | mean | floor | clip(c s, floor, 1)
SCALED = """
1 2 4    | 0.5 | 0    | 3/14 6/14 12/14
1 2 4    | 0.8 | 0    | 7/15 14/15 1
1 2 4    | 0.5 | 0.3  | 0.3 0.4 0.8
1 2 4    | 1   | 0    | 1 1 1
1 2 4    | 0.3 | 0.3  | 0.3 0.3 0.3
1e-300 1 1 | 0.7 | 0.02 | 0.1 1 1
0 1 3    | 0.5 | 0.02 | 0.02 0.48 1
0 0 0    | 0.4 | 0.02 | 0.4 0.4 0.4
"""


@pytest.mark.parametrize("row", SCALED.strip().splitlines())
def test_probabilities_are_clipped_to_the_mean(row):
    columns = [[float(Fraction(v)) for v in column.split()] for column in row.split("|")]
    s, (mean,), (floor,), wanted = columns
    with np.errstate(divide="ignore"):
        found = availability._scaled(
            np.log(s),
            mean,
            floor,
        )
    np.testing.assert_allclose(found, wanted, atol=1e-9)


def test_probabilities_by_size():
    found = chances(
        federation((1, 4, 0, 9)),
        by="size",
        power=0.5,
        mean=0.4,
    )
    # a client without examples does not count
    np.testing.assert_allclose(
        found,
        [0.2, 0.4, 1, 0.6],
        atol=1e-9,
    )


def test_probabilities_by_labels():
    found = chances(by="labels", mean=0.3, concentration=0.5)
    degrees = data_generator(0, 13).dirichlet([0.5] * 3)
    s = [np.mean(degrees[DATA.y[rows].numpy()]) for rows in DATA.train.split()]
    np.testing.assert_allclose(
        found,
        availability._scaled(np.log(s), 0.3, 0.02),
        atol=1e-9,
    )


def test_labels_are_needed_and_have_to_reach_the_mean():
    tokens = population_of(
        replace(
            DATA,
            y=DATA.y[:, None].expand(-1, 4),
        )
    )
    for part in (partial(clients, by="labels"), partial(cyclic, assign="label")):
        with pytest.raises(RequestError, match="need examples with a class each"):
            part(population=tokens)
    with pytest.raises(RequestError, match=r"mean must be at most 0.51 for these labels, got 0.6"):
        availability._scaled(
            np.array([0.0, -np.inf]),
            0.6,
            0.02,
        )


EIGHT = federation((5, 0, 7, 9, 11, 4, 6, 8))


def most_frequent_label(k):
    return np.bincount(
        EIGHT.y[EIGHT.train.split()[k]].numpy(),
        minlength=3,
    ).argmax()


@pytest.mark.parametrize(
    ("assign", "rank"),
    [
        ("id", lambda k: k),
        ("random", lambda k: order_of(Purpose.TRAITS, int(k))),
        ("label", lambda k: (most_frequent_label(k), k)),
    ],
)
def test_groups_take_turns_and_cover_all(assign, rank):
    """Of the 7 clients with examples, cut at 7/3 = 2.3 and 4.7."""
    population = population_of(EIGHT)
    part = cyclic(
        groups=3,
        block=2,
        assign=assign,
        population=population,
    )
    order = sorted(population.able, key=rank)
    groups = [sorted(group.tolist()) for group in np.split(order, [2, 5])]
    for t in range(12):
        assert np.flatnonzero(part.chances(t)).tolist() == groups[t // 2 % 3]


@pytest.mark.parametrize("spread", [0, 0.5])
def test_day_and_night(spread):
    sine = {"pattern": "sine", "mean": 0.8, "amplitude": 0.25, "period": 8, "spread": spread}
    part = cyclic(**sine, population=population_of(DATA))
    phase = np.array([spread * 8 * u(Purpose.TRAITS, k, 1) for k in range(7)])
    for t in range(16):
        share = 0.8 * (0.75 + 0.25 * np.sin(2 * np.pi * (t + phase) / 8))
        np.testing.assert_allclose(
            part.chances(t),
            share,
            rtol=1e-12,
        )


def test_the_cohort_is_sampled_from_those_who_can_be_reached():
    part = Availability(chances=lambda round: np.isin(ALL, [1, 2, 4, 6]).astype(float))
    assert len(plan_of(part, participation=0.4).ids) == 3  # a fraction of all 7
    plan = plan_of(part, participation=6)
    assert plan.ids.tolist() == [1, 2, 4, 6]
    assert plan.notes == {"sampled": 4, "reported": 4, "reachable": 4}


# ---- stragglers


def test_speeds_and_the_deadline():
    """Without spread all speeds are 1, and the deadline is 12/7 steps."""
    equal = partial(stragglers, sigma=0)
    plan = plan_of(equal)
    assert plan.ids.tolist() == [0, 2, 3, 5, 6]
    assert plan.steps == 5 * 1 + 2 * 1  # the late two make one step each until then
    assert plan.notes["time"] == 12 / 7
    plan = plan_of(partial(equal, deadline=2, late="partial"))
    assert plan.ids.tolist() == [*range(7)]
    assert plan.tau.tolist() == [1, 3, 1, 1, 3, 1, 1]
    assert plan.steps == plan.tau.sum()
    plan = plan_of(partial(equal, deadline=7))
    assert plan.notes["time"] == 4
    assert plan.steps == 12
    tiny = partial(equal, deadline=0.01, late="partial")
    assert plan_of(tiny).tau.tolist() == [1] * 7  # a step at least
    ranged = replace(WORK, epochs=(1, 4))  # 2.5 epochs on average
    plan = plan_of(partial(equal, deadline=1e-9), work=ranged)
    assert plan.notes["time"] == pytest.approx(1e-9 * 2.5 * 12 / 7)


@pytest.mark.parametrize("t", range(3))
def test_speeds_are_log_normal_with_a_part_of_the_round(t):
    from scipy.stats import norm

    part = stragglers(
        sigma=0.5,
        jitter=0.25,
        population=population_of(DATA),
    )
    lasting = norm.ppf([u(Purpose.TRAITS, k, 2) for k in range(7)])
    of_round = norm.ppf([u(Purpose.JITTER, t, k) for k in range(7)])
    speed = np.exp(0.5 * lasting - 0.125 + 0.25 * of_round - 0.03125)
    done = np.minimum(np.floor(12 / 7 * speed + 1e-9), TAU)
    late, steps, columns = part.late(t, ALL, TAU)
    assert late.tolist() == (done < TAU).tolist()
    assert steps.tolist() == done.tolist()
    time = np.minimum(TAU / speed, 12 / 7).max()
    assert columns == {"time": pytest.approx(time)}


@pytest.mark.parametrize("late", ["drop", "partial"])
@pytest.mark.parametrize(
    ("options", "unit", "most"),
    [
        ({"epochs": (3, 3)}, TAU, 3),
        ({"steps": 6}, np.ones(7), 6),
    ],
)
def test_a_share_of_stragglers(options, unit, most, late):
    """Half of 7 is 4, rounded up: those of smallest hash, with 1 to 3 epochs or 1 to 6 steps."""
    plan = plan_of(
        partial(stragglers, kind="share", late=late),
        work=replace(WORK, **options),
    )
    slow = sorted(
        range(7),
        key=lambda k: order_of(Purpose.STRAGGLERS, 0, k),
    )[:4]
    drawn = np.array([1 + order_of(Purpose.JITTER, 0, k) % most for k in range(7)])
    done = unit * np.where(
        np.isin(ALL, slow),
        drawn,
        most,
    )
    assert plan.steps == done.sum()
    assert plan.ids.tolist() == [k for k in range(7) if late == "partial" or k not in slow]
    assert plan.tau.tolist() == done[plan.ids].tolist()
    assert "time" not in plan.notes


ONE_STEP = partial(
    stragglers,
    sigma=0,
    deadline=1e-3,
    late="partial",
)


@pytest.mark.parametrize("name", ["fedprox", "fednova", "scaffold", "fedcm"])
def test_steps_are_true_steps(name):
    """Late work is the first step; FedNova's a_k and SCAFFOLD's divisor are those of one step."""
    late = run(name, ONE_STEP, rounds=2)[-1]
    single = run(
        name,
        work=replace(WORK, steps=1),
        rounds=2,
    )[-1]
    assert close(
        late.server["w"],
        single.server["w"],
        1e-9,
    )


def test_second_phases_are_whole():
    late = run("ditto", ONE_STEP, rounds=1)[1]
    whole = run("ditto", rounds=1)[1]
    assert torch.equal(late.clients["personal"], whole.clients["personal"])
    assert late.client_steps == 7 + TAU.sum()


# ---- several stages, states, files


def test_counts_go_on_over_stages_and_methods_never_see_them():
    seen = set()

    def update(server, uploads, cohort):
        seen.update(server)
        return {"w": server["w"] - uploads["delta"].mean(0)}  # drops what it does not know

    first = Algorithm(update=lambda s, u, c: {"w": s["w"]})
    one = Algorithm(
        update=update,
        broadcast=lambda server: server,
        setup=first,
    )
    found = run(
        lambda rounds, clients: [Stage(one, 2), Stage(one, 2)],
        bernoulli(p=0.6),
        participation=2,
        rounds=4,
    )
    assert seen == {"w"}
    empty_rounds = found[-1].server["~empty_rounds"]
    assert empty_rounds == sum(not len(s.cohort) for s in found[1:]) > 0
    model = nbytes({"w": found[0].server["w"]})
    assert found[-1].bytes_down == (2 * 7 + 4 * 2) * model


SMALL = (
    "algo=scaffold data=synthetic_leaf data.clients=6 participation=2 keep_clients=all "
    "availability=bernoulli availability.p=0.6 keep_state=true"
)


def results(path):
    """The rows of the rounds without times, and the bytes of the table of clients and the model."""
    rows = [
        {k: v for k, v in row.items() if not k.startswith("seconds")} for row in round_rows(path)
    ]
    return rows, (path / "clients.parquet").read_bytes(), model_bytes(path)


def test_a_resumed_run_is_the_same_run(tmp_path):
    fedbench.run(f"{SMALL} results_dir={tmp_path}/parts rounds=3")
    parts = fedbench.run(f"{SMALL} results_dir={tmp_path}/parts rounds=8").path
    whole = fedbench.run(f"{SMALL} results_dir={tmp_path}/whole rounds=8").path
    assert json.loads((parts / "meta.json").read_text())["continues"]
    assert results(parts) == results(whole)

    rows = round_rows(whole)
    clients = [row["clients"] for row in rows[1:]]
    assert 0 < rows[-1]["empty_rounds"] == clients.count(0)
    assert [row["reported"] for row in rows[1:]] == clients
    assert {row["sampled"] for row in rows[1:]} == {2}
    assert {row["reachable"] for row in rows[1:]} == {6}
    table = pd.read_parquet(whole / "clients.parquet")
    reports = table.groupby("round")["reports"].sum()
    assert reports[0] == 0
    assert reports[8] == sum(clients)


@pytest.mark.parametrize("group", ["availability", "attack", "privacy", "compression", "defence"])
def test_no_scenario_is_part_of_the_identity(group):
    assert compose_run([f"{group}=none"]).digest == compose_run([]).digest
