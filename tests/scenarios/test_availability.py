"""Availability: who takes part, what a lost result costs, and what a round without results leaves."""

import json
from dataclasses import replace
from functools import partial
from itertools import product

import numpy as np
import pandas as pd
import pytest
import torch
import yaml
from tools import ALGORITHMS, federation, make, population_of, round_plan, snapshots

import fedbench
from fedbench.config.compose import compose_run
from fedbench.config.targets import Component, call
from fedbench.core.algorithm import Algorithm, Stage
from fedbench.core.errors import RequestError
from fedbench.core.randomness import Purpose, data_generator, key, sample_cohort
from fedbench.core.types import nbytes
from fedbench.scenarios import availability
from fedbench.scenarios.availability import Availability, bernoulli, clients, cyclic, stragglers
from fedbench.scenarios.layers import shown
from fedbench.scenarios.scenario_stack import ScenarioStack
from fedbench.simulation.local_work import LocalWork
from fedbench.simulation.loop import Observer

DATA = federation()  # 7 clients with 1, 3, 1, 1, 4, 1, 1 steps an epoch
TAU = np.array([1, 3, 1, 1, 4, 1, 1])
WORK = LocalWork(lr=0.1, batch_size=10)
ALL = np.arange(7)
AWAY = [n for n in ALGORITHMS if n not in ("fedcorr", "stem", "fafed", "afl")]
METHODS = [(n, {}) for n in AWAY] + [
    ("afl", {"partial": True}),
    ("fafed", {"variant": "stateless"}),
]
IDS = [n for n, _ in METHODS]


def population(data=DATA, seed=0, work=WORK):
    return population_of(data, seed, work=work)


def around(part, data=DATA, seed=0, work=WORK):
    """What surrounds a method, from a part or from a function of all clients that makes it."""
    everybody = population(data, seed, work)
    return ScenarioStack(
        everybody, [part if isinstance(part, Availability) else part(population=everybody)]
    )


def u(purpose, *coordinates, seed=0):
    """The uniform number of a draw, from the hash of plain integers."""
    return ((key(seed, purpose, *coordinates) >> 1) + 0.5) / 2**63


def run(method, part=None, data=DATA, seed=0, work=WORK, **options):
    scenario = None if part is None else around(part, data, seed, work)
    return snapshots(method, data, seed=seed, work=work, scenario=scenario, **options)


def same(a, b, costs=True):
    """Whether two snapshots are the same bit for bit, but for what belongs to the scenario."""
    states = [(shown(a.server), shown(b.server)), (a.clients, b.clients)]
    bits = all(x.keys() == y.keys() and all(torch.equal(x[k], y[k]) for k in x) for x, y in states)
    found = [(s.client_steps, s.bytes_up, s.bytes_down) for s in (a, b)]
    return bits and np.array_equal(a.cohort, b.cohort) and (not costs or found[0] == found[1])


def plan_of(part, round=0, seed=0, participation=1.0, data=DATA, work=WORK, algo=None):
    """One round as it is carried out."""
    scenario = around(part, data, seed, work)
    n, algo = data.train.counts, algo or Algorithm()
    server = scenario.lasting(algo).server_init(torch.zeros(2), len(n))
    able = scenario.reachable(round, n)
    ids = sample_cohort(participation)(round, able, seed)
    tau = work.tau(ids, n[ids], seed, round)
    return scenario.plan(
        round_plan(ids, algo, seed=seed, round=round, server=server, able=able, tau=tau)
    )


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


def compare(method, part, **options):
    with_it, without = (run(method, p, participation=4, **options) for p in (part, None))
    assert all(same(a, b) for a, b in zip(with_it, without, strict=True))


@pytest.mark.parametrize("method", METHODS, ids=IDS)
def test_without_losses_every_method_is_bit_identical(method):
    compare(make(method[0], **method[1]), bernoulli(p=0))


@pytest.mark.parametrize("part", NOTHING.values(), ids=NOTHING)
@pytest.mark.parametrize("mode", ["loop", "compiled"])
def test_parts_that_lose_nothing_are_bit_identical(part, mode):
    compare(make("scaffold"), part, mode=mode)


# ---- a lost result is as if the client had not been sampled


@pytest.mark.parametrize("method", METHODS, ids=IDS)
def test_a_run_with_losses_is_the_run_whose_sampler_draws_those_who_report(method):
    made = make(method[0], **method[1])
    lossy = run(made, bernoulli(p=0.4), participation=5, rounds=4)
    reported = [s.cohort for s in lossy[1:]]
    assert 0 < sum(map(len, reported)) < 20
    other = run(made, rounds=4, sampler=lambda round, n, seed: reported[round])
    assert all(same(a, b, costs=False) for a, b in zip(lossy, other, strict=True))
    assert lossy[-1].bytes_down > other[-1].bytes_down
    assert lossy[-1].bytes_up == other[-1].bytes_up


def test_what_lost_results_cost():
    """All that were sampled receive the broadcast and make their steps; numbers for the clients are part of it."""
    sampled = sample_cohort(6)(0, DATA.train.counts, 0)
    for name, options in (
        ("fedavg", {}),
        ("gifair", {"form": "local"}),
        ("ditto", {"personal_epochs": 2}),
    ):
        before, after = run(make(name, **options), bernoulli(p=0.5), participation=6, rounds=1)
        assert 0 < len(after.cohort) < 6
        size = before.server["w"].nbytes + (8 if name == "gifair" else 0)
        assert (after.bytes_down, after.bytes_up) == (6 * size, len(after.cohort) * size)
        assert after.client_steps == TAU[sampled].sum() * (3 if name == "ditto" else 1)


# ---- weights


@pytest.mark.parametrize("by", ["size", "uniform"])
def test_the_weights_over_all_patterns_of_losses(by, monkeypatch):
    """Exact means over the 2^4 patterns, p = 0.3: of the step Σ ω_k Δ_k."""
    data, p = federation((1, 23, 4, 9)), 0.3
    n = data.train.counts if by == "size" else np.ones(4)
    full = run(make("fedavg", weights=by), data=data, rounds=1)
    step = full[0].server["w"] - full[1].server["w"]
    mean = {"zero": 0, "inverse": 0, "renormalise": 0}
    for pattern in product([False, True], repeat=4):
        arrived = np.array(pattern)
        monkeypatch.setattr(
            availability, "uniform", lambda h, arrived=arrived: np.where(arrived, 1.0, 0.0)
        )
        chance = (1 - p) ** arrived.sum() * p ** (4 - arrived.sum())
        found = {}
        for weights in mean:
            before, after = run(
                make("fedavg", weights=by), bernoulli(p=p, weights=weights), data=data, rounds=1
            )
            found[weights] = before.server["w"] - after.server["w"]
            given_any = chance / (1 - p**4) if weights == "renormalise" else chance
            mean[weights] = mean[weights] + given_any * found[weights]
        torch.testing.assert_close(found["zero"], found["inverse"] * (1 - p))
        torch.testing.assert_close(found["zero"], found["renormalise"] * n[arrived].sum() / n.sum())
    torch.testing.assert_close(mean["inverse"], step)
    torch.testing.assert_close(mean["zero"], (1 - p) * step)
    assert torch.allclose(mean["renormalise"], step) == (by == "uniform")


@pytest.mark.parametrize("part", [clients, stragglers])
def test_other_parts_count_absent_clients_as_no_change(part):
    made = partial(part, **({"p": 0.5} if part is clients else {"sigma": 0}))
    zero, plain = (
        run(make("fedavg"), partial(made, weights=of), rounds=1) for of in ("zero", "renormalise")
    )
    n, plan = DATA.train.counts, plan_of(made)
    assert 0 < len(plan.ids) < len(plan.receivers)
    steps = [s[0].server["w"] - s[1].server["w"] for s in (zero, plain)]
    torch.testing.assert_close(steps[0], steps[1] * n[plan.ids].sum() / n[plan.receivers].sum())


# ---- rounds without results


@pytest.mark.parametrize(
    "name", ["fedadam", "fedavgm", "scaffold", "ditto", "adafedadam", "local_adam"]
)
def test_a_round_without_results_changes_nothing(name):
    found = run(make(name), bernoulli(p=0.5), participation=1, rounds=8)
    empty = [t for t in range(1, 9) if not len(found[t].cohort)]
    assert 0 < len(empty) < 8
    for t in empty:
        before, after = found[t - 1], found[t]
        assert same(before._replace(cohort=after.cohort), after, costs=False)
        assert (after.round, after.bytes_up) == (before.round + 1, before.bytes_up)
        assert after.bytes_down > before.bytes_down and after.client_steps > before.client_steps
    assert found[-1].server["~empty_rounds"] == len(empty)
    assert found[-1].server["~reports"].tolist() == [
        sum(k in s.cohort for s in found[1:]) for k in ALL
    ]


def test_a_round_in_which_nobody_can_be_reached():
    found = run(make("fedavg"), Availability(chances=lambda round: np.zeros(7)), rounds=2)
    assert same(found[0], found[2])
    assert {k: float(v) for k, v in found[2].server.items() if k.startswith("~") and v.dim() == 0} == {
        "~sampled": 0, "~reported": 0, "~reachable": 0, "~empty_rounds": 2,
    }  # fmt: skip


def test_the_exchange_before_the_first_round_reaches_all():
    """Even if nobody reports then, and its cost is counted once."""
    before, first, second = run(
        make("fafed", variant="stateless"), Availability(lost=1.0), rounds=2
    )
    assert (first.client_steps, second.client_steps) == (7 + TAU.sum(), 7 + 2 * TAU.sum())
    assert first.bytes_up == 7 * before.server["w"].nbytes
    assert first.server["m"].abs().sum() > 0
    assert torch.equal(first.server["m"], second.server["m"])


# ---- who can be reached


def test_draws_are_hashes_of_purpose_round_and_client():
    for t in range(3):
        plan = plan_of(bernoulli(p=0.5), round=t, seed=5)
        assert plan.ids.tolist() == [k for k in range(7) if u(Purpose.LOST, t, k, seed=5) >= 0.5]
        able = plan_of(partial(clients, a=1, b=1), round=t, seed=5).ids  # Beta(1, 1) is uniform
        shares = [u(Purpose.TRAITS, k, 0, seed=5) for k in range(7)]
        assert able.tolist() == [
            k for k in range(7) if u(Purpose.REACHED, t, k, seed=5) < shares[k]
        ]


def shares(data=DATA, **options):
    """The probabilities π_k of clients."""
    return clients(population=population(data), **options).chances(0)


def test_quantiles_of_beta_and_the_floor():
    """I(x; 2, 1) = x² and I(x; 1, 2) = 1 - (1-x)²."""
    drawn = np.array([u(Purpose.TRAITS, k, 0) for k in range(7)])
    np.testing.assert_allclose(shares(a=2, b=1), drawn**0.5, rtol=1e-9)
    np.testing.assert_allclose(shares(a=1, b=2), 1 - (1 - drawn) ** 0.5, rtol=1e-9)
    np.testing.assert_allclose(shares(a=1, b=1, floor=0.9), np.maximum(drawn, 0.9), rtol=1e-9)


@pytest.mark.parametrize(
    ("s", "mean", "floor", "wanted"),
    [
        ((1, 2, 4), 0.5, 0.0, (3 / 14, 6 / 14, 12 / 14)),
        ((1, 2, 4), 0.8, 0.0, (1.4 / 3, 2.8 / 3, 1)),  # 1 + 3c = 2.4
        ((1, 2, 4), 0.5, 0.3, (0.3, 0.4, 0.8)),  # 0.3 + 6c = 1.5
        ((1, 2, 4), 1.0, 0.0, (1, 1, 1)),
        ((1, 2, 4), 0.3, 0.3, (0.3, 0.3, 0.3)),
        ((1e-300, 1, 1), 0.7, 0.02, (0.1, 1, 1)),
        ((0, 1, 3), 0.5, 0.02, (0.02, 0.48, 1)),
        ((0, 0, 0), 0.4, 0.02, (0.4, 0.4, 0.4)),
    ],
)
def test_probabilities_are_clipped_to_the_mean(s, mean, floor, wanted):
    with np.errstate(divide="ignore"):
        found = availability._scaled(np.log(np.array(s)), mean, floor)
    np.testing.assert_allclose(found, wanted, atol=1e-9)
    assert found.mean() == pytest.approx(mean, abs=1e-9)


def test_probabilities_by_size():
    found = shares(federation((1, 4, 0, 9)), by="size", power=0.5, mean=0.4)
    # a client without examples does not count
    np.testing.assert_allclose(found, [0.2, 0.4, 1, 0.6], atol=1e-9)
    large = shares(by="size", power=1e6, mean=0.2)  # no overflow; 1.4 = 1 + 0.3 + 5 · 0.02
    np.testing.assert_allclose(large, [0.02, 0.3, 0.02, 0.02, 1, 0.02, 0.02], atol=1e-9)
    assert large.mean() == pytest.approx(0.2, abs=1e-9)
    assert (np.diff(shares(by="size", power=-1)[[0, 6, 2, 3, 5, 1, 4]]) <= 0).all()


def test_probabilities_by_labels():
    found = shares(by="labels", mean=0.3, concentration=0.5)
    degrees = data_generator(0, 13).dirichlet([0.5] * 3)
    s = np.array([np.mean(degrees[DATA.y[rows].numpy()]) for rows in DATA.train.split()])
    np.testing.assert_allclose(found, availability._scaled(np.log(s), 0.3, 0.02), atol=1e-9)
    assert found.mean() == pytest.approx(0.3, abs=1e-9)
    assert found.min() >= 0.02


@pytest.mark.parametrize("assign", ["random", "id", "label"])
def test_groups_take_turns_and_cover_all(assign):
    data = federation((5, 0, 7, 9, 11, 4, 6, 8))
    part = cyclic(groups=3, block=2, assign=assign, population=population(data))
    found = np.array([part.chances(t) for t in range(12)]) == 1
    able = data.train.counts > 0
    assert not found[:, ~able].any()
    assert (found[:6, able].sum(0) == 2).all()
    assert (found[0:6:2] == found[1:6:2]).all()
    assert (found[:6] == found[6:]).all()
    assert found[0:6:2].sum(1).tolist() == [2, 3, 2]  # 7 clients, cut at 7/3 = 2.3 and 4.7
    order = np.flatnonzero(able)
    if assign == "random":
        order = np.array(sorted(order, key=lambda k: key(0, Purpose.TRAITS, int(k)) >> 1))
    elif assign == "label":
        of = [
            np.bincount(data.y[rows].numpy(), minlength=3).argmax() for rows in data.train.split()
        ]
        order = np.array(sorted(order, key=lambda k: (of[k], k)))
    groups = [np.flatnonzero(g).tolist() for g in found[0:6:2]]
    assert groups == [sorted(part.tolist()) for part in np.split(order, [2, 5])]


@pytest.mark.parametrize("spread", [0, 0.5])
def test_day_and_night(spread):
    part = cyclic(
        pattern="sine", mean=0.8, amplitude=0.25, period=8, spread=spread, population=population()
    )
    phase = np.array([spread * 8 * u(Purpose.TRAITS, k, 1) for k in range(7)])
    for t in range(16):
        share = 0.8 * (0.75 + 0.25 * np.sin(2 * np.pi * (t + phase) / 8))
        assert ((share >= 0.4 - 1e-12) & (share <= 0.8 + 1e-12)).all()
        np.testing.assert_allclose(part.chances(t), share, rtol=1e-12)


def test_the_cohort_is_sampled_from_those_who_can_be_reached():
    part = Availability(chances=lambda round: np.isin(ALL, [1, 2, 4, 6]).astype(float))
    assert plan_of(part).ids.tolist() == [1, 2, 4, 6]
    assert len(plan_of(part, participation=0.4).ids) == 3  # a fraction of all 7
    plan = plan_of(part, participation=6)
    assert plan.ids.tolist() == [1, 2, 4, 6]
    assert plan.notes == {"sampled": 4, "reported": 4, "reachable": 4}


# ---- stragglers


def test_speeds_and_the_deadline():
    """Without spread all speeds are 1, and the deadline is 12/7 steps."""
    plan = plan_of(partial(stragglers, sigma=0))
    assert plan.ids.tolist() == [0, 2, 3, 5, 6]
    assert plan.steps == 5 * 1 + 2 * 1  # the late two make one step each until then
    assert plan.notes["time"] == 12 / 7
    plan = plan_of(partial(stragglers, sigma=0, deadline=2, late="partial"))
    assert plan.ids.tolist() == [*range(7)]
    assert plan.tau.tolist() == [1, 3, 1, 1, 3, 1, 1]
    assert plan.steps == plan.tau.sum()
    plan = plan_of(partial(stragglers, sigma=0, deadline=7))
    assert (plan.notes["time"], plan.steps) == (4, 12)
    tiny = partial(stragglers, sigma=0, deadline=0.01, late="partial")
    assert plan_of(tiny).tau.tolist() == [1] * 7  # a step at least
    ranged = replace(WORK, epochs=(1, 4))  # 2.5 epochs on average
    plan = plan_of(partial(stragglers, sigma=0, deadline=1e-9), work=ranged)
    assert plan.notes["time"] == pytest.approx(1e-9 * 2.5 * 12 / 7)


def test_speeds_are_log_normal_with_a_part_of_the_round():
    from scipy.stats import norm

    part = stragglers(sigma=0.5, jitter=0.25, population=population())
    for t in range(3):
        z = np.array(
            [norm.ppf([u(Purpose.TRAITS, k, 2), u(Purpose.JITTER, t, k)]) for k in range(7)]
        )
        speed = np.exp(0.5 * z[:, 0] - 0.125 + 0.25 * z[:, 1] - 0.03125)
        late, steps, columns = part.late(t, ALL, TAU)
        done = np.minimum(np.floor(12 / 7 * speed + 1e-9), TAU)
        assert (late.tolist(), steps.tolist()) == ((done < TAU).tolist(), done.tolist())
        assert columns == {"time": pytest.approx(np.minimum(TAU / speed, 12 / 7).max())}


@pytest.mark.parametrize(
    "work", [replace(WORK, epochs=(3, 3)), replace(WORK, epochs=(1, 1), steps=6)]
)
def test_a_share_of_stragglers(work):
    """Half of 7 is 4, rounded up: those of smallest hash, with 1 to 3 epochs or 1 to 6 steps."""
    planned = work.tau(ALL, DATA.train.counts, 0, 0)
    for late in ("drop", "partial"):
        plan = plan_of(partial(stragglers, kind="share", late=late), work=work)
        slow = sorted(range(7), key=lambda k: key(0, Purpose.STRAGGLERS, 0, k) >> 1)[:4]
        most = 6 if work.steps else 3
        drawn = np.array([1 + (key(0, Purpose.JITTER, 0, k) >> 1) % most for k in range(7)])
        done = np.where(np.isin(ALL, slow), drawn * (1 if work.steps else TAU), planned)
        assert plan.steps == done.sum()
        assert plan.ids.tolist() == [k for k in range(7) if late == "partial" or k not in slow]
        assert plan.tau.tolist() == done[plan.ids].tolist()
        assert "time" not in plan.notes


def test_partial_work_is_a_prefix_of_the_whole():
    """A late client's upload is that of a run in which everyone makes as many steps; the deadline is at 3 steps."""

    def uploads(part, work, into):
        watch = Observer(
            lambda round: True, lambda e: into.update(delta=e.uploads["delta"].clone())
        )
        run(make("fedprox"), part, work=work, rounds=1, observers=[watch])
        return into["delta"]

    late = uploads(partial(stragglers, sigma=0, deadline=2, late="partial"), WORK, {})
    assert torch.equal(late[4], uploads(None, replace(WORK, steps=3), {})[4])
    assert not torch.equal(late[4], uploads(None, WORK, {})[4])
    assert torch.equal(late[1], uploads(None, WORK, {})[1])


def test_steps_are_true_steps_and_second_phases_whole():
    part = partial(stragglers, sigma=0, deadline=1e-3, late="partial")
    assert all(  # a step each: FedNova's a_k and SCAFFOLD's divisor are those of one step
        torch.allclose(
            run(make(name), part, rounds=2)[-1].server["w"],
            run(make(name), work=replace(WORK, steps=1), rounds=2)[-1].server["w"],
        )
        for name in ("fednova", "scaffold", "fedcm")
    )
    late, whole = (run(make("ditto"), p, rounds=1)[1] for p in (part, None))
    assert torch.equal(late.clients["personal"], whole.clients["personal"])
    assert late.client_steps == 7 + TAU.sum()


# ---- draws depend on no other setting


def test_who_reports_does_not_depend_on_the_cohort_or_the_method():
    everybody = run(make("fedavg"), bernoulli(p=0.5), rounds=5)
    some = run(
        make("scaffold"),
        bernoulli(p=0.5),
        rounds=5,
        participation=4,
        work=replace(WORK, epochs=(1, 3)),
    )
    for t in range(5):
        sampled = set(sample_cohort(4)(t, DATA.train.counts, 0))
        assert set(some[t + 1].cohort) == sampled & set(everybody[t + 1].cohort)


# ---- means over all clients


@pytest.mark.parametrize(("name", "state"), [("scaffold", "c"), ("feddyn", "drift")])
def test_control_variates_stay_the_mean_of_the_clients(name, state):
    """SCAFFOLD's c, and FedDyn's ū: N is all clients, whatever is lost."""
    for s in run(make(name), bernoulli(p=0.5), participation=5, rounds=5):
        torch.testing.assert_close(s.server[state], s.clients[state].mean(0), rtol=1e-9, atol=1e-12)
    assert s.server[state].any()


# ---- several stages, states, files


def test_counts_go_on_over_stages_and_methods_never_see_them():
    seen = []

    def update(server, uploads, cohort):
        seen.append(set(server))
        return {"w": server["w"] - uploads["delta"].mean(0)}  # drops what it does not know

    one = Algorithm(
        update=update,
        broadcast=lambda server: server,
        setup=Algorithm(update=lambda s, u, c: {"w": s["w"]}),
    )
    found = run(
        lambda rounds, clients: [Stage(one, 2), Stage(one, 2)],
        bernoulli(p=0.6),
        participation=2,
        rounds=4,
    )
    assert found[-1].server["~reports"].tolist() == [
        sum(k in s.cohort for s in found[1:]) for k in ALL
    ]
    assert found[-1].server["~empty_rounds"] == sum(not len(s.cohort) for s in found[1:]) > 0
    assert set().union(*seen) == {"w"}
    assert found[-1].bytes_down == (2 * 7 + 4 * 2) * nbytes({"w": found[0].server["w"]})


SMALL = "algo=scaffold data=synthetic_leaf data.clients=6 participation=2 keep_clients=all availability=bernoulli"


def files(path):
    rows = [json.loads(line) for line in (path / "rounds.jsonl").read_text().splitlines()]
    rows = [{k: v for k, v in row.items() if not k.startswith("seconds")} for row in rows]
    return rows, (path / "clients.parquet").read_bytes(), (path / "model.safetensors").read_bytes()


def test_a_resumed_run_is_the_same_run(tmp_path):
    typed = f"{SMALL} availability.p=0.6 keep_state=true results_dir={tmp_path}"
    fedbench.run(f"{typed}/parts rounds=3")
    parts = fedbench.run(f"{typed}/parts rounds=8")
    assert json.loads((parts.path / "meta.json").read_text())["continues"]
    whole = fedbench.run(f"{typed}/whole rounds=8")
    assert files(parts.path) == files(whole.path)
    rows, table = files(whole.path)[0], pd.read_parquet(whole.path / "clients.parquet")
    last = table[table["round"] == 8]
    assert 0 < rows[-1]["empty_rounds"] == sum(row["clients"] == 0 for row in rows[1:])
    assert [row["reported"] for row in rows[1:]] == [row["clients"] for row in rows[1:]]
    assert {row["sampled"] for row in rows[1:]} == {2}
    assert {row["reachable"] for row in rows[1:]} == {6}
    assert last["reports"].sum() == sum(row["clients"] for row in rows)
    assert table[table["round"] == 0]["reports"].sum() == 0


def test_identity_and_departures_name_the_scenario():
    more = ([], ["availability=none"], ["availability=bernoulli"])
    plain, none, lossy = (compose_run(["experiment=smoke", *typed]) for typed in more)
    assert plain.digest == none.digest != lossy.digest
    assert (plain.departures, none.departures) == ({}, {})
    assert {k: here for k, (there, here) in lossy.departures.items() if there is None} == {
        "availability._target_": "fedbench.scenarios.availability.bernoulli",
        "availability.p": 0.1,
        "availability.weights": "renormalise",
    }


def test_the_configuration_shows_groups_that_are_chosen(fed):
    assert not {"availability", "attack", "privacy"} & {
        line.split(":")[0] for line in fed("--cfg", "job")[1]
    }
    assert "  p: 0.1" in fed("-c", "job", "availability=bernoulli")[1]


WRONG = """
clients by=size mean=0.01: must be at least availability.floor, got 0.01 and 0.02; lower floor
clients floor=1.1: must be <= 1, got 1.1
clients by=lables: must be one of beta, size, labels; got 'lables'; did you mean labels?
cyclic groups=8: must be at most the number of clients, 7, got 8
"""


@pytest.mark.parametrize("row", WRONG.strip().splitlines())
def test_wrong_values_are_refused(row):
    typed, _, message = row.partition(": ")
    name, *given = typed.split()
    options = {k: yaml.safe_load(v) for k, v in (one.split("=") for one in given)}
    with pytest.raises(RequestError) as error:
        call(
            Component(f"fedbench.scenarios.availability.{name}", options),
            "availability",
            population=population(),
        )
    assert str(error.value) == f"availability.{given[-1].split('=')[0]} {message}"


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        (
            "availability=bernoulli algo=afl",
            "availability does not go with algo=afl: all clients must take part;",
        ),
        (
            "availability=bernoulli availability.weights=zero algo=fednova",
            "it needs weights of sum 1; remove it",
        ),
        ("availability=bernoulli availability.wieghts=zero", "did you mean availability.weights?"),
    ],
)
def test_what_cannot_be_is_explained(fed, typed, message):
    status, _, error = fed("data=synthetic_leaf", "data.clients=6", "rounds=1", *typed.split())
    assert (status, message in error) == (2, True), error


def test_labels_are_needed_and_have_to_reach_the_mean():
    tokens = population(replace(DATA, y=DATA.y[:, None].expand(-1, 4)))
    for part in (partial(clients, by="labels"), partial(cyclic, assign="label")):
        with pytest.raises(RequestError, match="need examples with a class each"):
            part(population=tokens)
    with pytest.raises(RequestError, match=r"mean must be at most 0.51 for these labels, got 0.6"):
        availability._scaled(np.array([0.0, -np.inf]), 0.6, 0.02)
