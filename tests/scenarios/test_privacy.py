"""Central differential privacy: what is clipped, what is added, and what it costs."""

import math
import sys
from dataclasses import replace
from math import log

import numpy as np
import pytest
import torch
from snapshot_checks import costs, random_rows, round_rows
from tools import federation, make, population_of, round_plan, snapshots

import fedbench
from fedbench.config.targets import function_of
from fedbench.core.algorithm import Algorithm, server_descent
from fedbench.core.errors import RequestError
from fedbench.core.optim import adam
from fedbench.core.randomness import Purpose, fold_in, key
from fedbench.core.types import ClientInfo
from fedbench.scenarios.compression import compression
from fedbench.scenarios.population import normal
from fedbench.scenarios.privacy import central
from fedbench.scenarios.scenario_stack import ScenarioStack
from fedbench.simulation.scenario import round_columns

DOUBLE = torch.float64
UNIFORM = make("fedavg", weights="uniform")
SIZES = (4, 9, 12, 5, 7, 6, 8, 10, 11, 3)
FREE = {"noise": 0, "clip": math.inf}
ADAPTIVE = {"noise": 0, "clip": "adaptive", "count_noise": 0}


def private(sizes=SIZES, participation=1.0, rounds=3, **options):
    """The layer for clients with these numbers of examples."""
    everybody = population_of(sizes, participation=participation, rounds=rounds)
    return central(population=everybody, **options)


def around(participation=1.0, up=None, **options):
    """The layer after compression of the uploads."""
    everybody = population_of(
        SIZES,
        participation=participation,
        rounds=3,
        shapes=((3, 4),),
    )
    sent = compression(
        up=up or {},
        down={"feedback": "none"},
        population=everybody,
    )
    return ScenarioStack(everybody, [sent, central(population=everybody, **options)])


def run(algo=UNIFORM, options=None, participation=1.0, data=None, **given):
    """Snapshots of a method with a layer of these options; None is without privacy."""
    scenario = None if options is None else around(participation, **options)
    data = data or federation(SIZES)
    return snapshots(
        algo,
        data,
        participation=participation,
        scenario=scenario,
        **given,
    )


def step(*given, **options):
    """The change of the model in all rounds."""
    seen = run(*given, **options)
    return seen[-1].server["w"] - seen[0].server["w"]


def round_of(deltas, algo=UNIFORM, server=None, number=0, **options):
    """The server's state after the clients have sent ``deltas`` [C, P], of ten clients with q = 1,
    and the uploads.
    """
    rows = torch.as_tensor(deltas, dtype=DOUBLE)
    count, size = rows.shape
    w = torch.zeros(size, dtype=DOUBLE)
    scenario = around(**options)
    server = scenario.with_states(algo).server_init(w, len(SIZES)) | (server or {})
    ids = torch.arange(count)
    ones = torch.ones(count, dtype=DOUBLE)
    info = ClientInfo(
        ids,
        ones,
        ones / count,
        ones,
        ones,
        ones,
        ids,
    )
    algo = scenario._wrapped(
        round_plan(
            range(count),
            algo,
            round=number,
            server=server,
        )
    )
    states = {k: v.expand(count, -1) for k, v in algo.client_init(w).items()}
    uploads, _ = algo.finish(
        {"w": w},
        states,
        {"w": w - rows},
        info.columns(),
    )
    return algo.update(server, uploads, info), uploads


def noise(size, number=0):
    """The standard normal noise of a round."""
    return normal(fold_in(key(0, Purpose.NOISE, number), torch.arange(size)))


# ---- the mechanism


@pytest.mark.parametrize(
    ("sampling", "mode"),
    [("poisson", "compiled"), ("fixed", "stacked")],
)
def test_without_noise_and_bound_it_is_the_method(sampling, mode):
    how = {"data": federation(SIZES, dtype=torch.float32), "mode": mode}
    assert torch.equal(
        step(
            options={**FREE, "sampling": sampling},
            **how,
        ),
        step(**how),
    )


def test_poisson_divides_by_the_expected_cohort():
    sampler = around(0.3, **FREE).sampler(None)
    present = len(sampler(0, np.array(SIZES), 0))
    assert present != 3
    ours = step(options=FREE, participation=0.3, rounds=1)
    plain = step(sampler=sampler, rounds=1)
    torch.testing.assert_close(
        ours,
        present / 3 * plain,
        rtol=1e-12,
        atol=0,
    )


def test_poisson_cohorts_are_independent_coins():
    n = np.array((1,) * 50 + (0,))
    draw = private(n, 0.2, noise=0).sampler(None)
    cohorts = [draw(t, n, 0) for t in range(2000)]
    sizes = np.array([len(cohort) for cohort in cohorts])
    assert abs(sizes.mean() - 10) < 4 * math.sqrt(8 / 2000)
    assert abs(sizes.var() / 8 - 1) < 0.15
    assert 50 not in np.concatenate(cohorts)  # has no examples
    few = n * (np.arange(51) < 30)  # others' coins stay as they are
    assert draw(3, few, 0).tolist() == [k for k in cohorts[3] if k < 30]


def test_poisson_sampling_has_one_rate():
    everybody = population_of(SIZES, by_size=True)
    with pytest.raises(RequestError, match="Poisson sampling at one rate"):
        central(population=everybody)


def test_clipping():
    rows = torch.tensor(
        [[3.0, 4.0], [0.3, 0.4], [0.0, 0.0], [-6.0, 8.0]],
        dtype=DOUBLE,
    )
    after, uploads = round_of(rows, noise=0, clip=2)
    sent = uploads["delta"]
    short = [[1.2, 1.6], [0.3, 0.4], [0.0, 0.0], [-1.2, 1.6]]
    torch.testing.assert_close(sent, torch.tensor(short, dtype=DOUBLE))
    assert torch.equal(sent[1:3], rows[1:3])  # below the bound: bit for bit
    # over m̃ = 10, not over 4
    torch.testing.assert_close(after["w"], -sent.sum(0) / 10)


@pytest.mark.parametrize("kind", ["none", "top_k", "random_k", "qsgd", "sign", "power"])
def test_a_client_moves_the_sum_by_the_bound(kind):
    def total(rows):
        return (
            10
            * round_of(
                rows,
                noise=0,
                clip=2,
                up={"kind": kind, "rank": 1},
            )[0]["w"]
        )

    rows = 10 * random_rows(6, 12)
    others, last = rows[:5], rows[5:]
    opposite = torch.cat([others, -last])
    removed = total(rows) - total(others)
    replaced = total(rows) - total(opposite)
    assert removed.norm().item() == pytest.approx(2)  # C
    assert replaced.norm().item() == pytest.approx(4)  # 2C


def test_noise_has_its_size_and_comes_before_the_servers_optimizer():
    size = 20_000
    options = {"noise": 0.7, "clip": 2, "number": 4}
    w = round_of(torch.zeros(3, size), **options)[0]["w"]
    torch.testing.assert_close(
        w,
        -0.7 * 2 / 10 * noise(size, 4),
        rtol=1e-12,
        atol=0,
    )
    assert w.std().item() == pytest.approx(0.14, rel=0.02)
    assert abs(w.mean().item()) < 4 * 0.14 / math.sqrt(size)
    descent = server_descent(
        adam(0.0, 0.0, 1e-12),
        lr=0.5,
    )
    adaptive = Algorithm(**descent, weights="uniform")
    w = round_of(
        torch.zeros(3, size),
        adaptive,
        **options,
    )[0]["w"]
    # m/√v of one gradient is its sign
    torch.testing.assert_close(
        w,
        -0.5 * noise(size, 4).sign(),
        rtol=1e-6,
        atol=0,
    )


def still(algo):
    """The method whose clients do not move."""

    def finish(msg, client, local, info):
        return {"delta": torch.zeros_like(local["w"])}, client

    return replace(algo, finish=finish)


@pytest.mark.parametrize(
    ("algo", "how"),
    [
        (UNIFORM, {"cohort_size": 2, "workers": 2}),
        (make("fedsps"), {}),
    ],
)
def test_noise_does_not_depend_on_who_is_there(algo, how):
    options = {"noise": 1.0, "clip": 0.5, "sampling": "fixed"}
    plain = step(still(UNIFORM), options)
    assert plain.abs().min() > 0
    other = step(still(algo), options, **how)
    torch.testing.assert_close(
        other,
        plain,
        rtol=0,
        atol=1e-14,
    )


def test_an_empty_round_has_its_noise():
    options = {"noise": 1.0, "clip": "adaptive", "clip_start": 0.3, "count_noise": 2.0}
    found = run(
        make("fedspeed"),
        options,
        participation=1e-9,
        rounds=2,
    )
    assert [len(s.cohort) for s in found] == [0, 0, 0]
    assert found[1].client_steps == 0
    before, after, last = (s.server for s in found)
    deviation = (1 - 1 / 16) ** -0.5 * 0.3 / 1e-8
    moved = before["w"] - deviation * noise(len(before["w"]))
    torch.testing.assert_close(after["w"], moved)
    zeta = normal(torch.tensor(key(0, Purpose.COUNT, 0) >> 1)).item()
    columns = round_columns(after)
    assert columns["unclipped"] == pytest.approx(0.5 + 2 * zeta / 1e-8)
    assert columns["clip"] == 0.3
    assert round_columns(last)["clip"] in (1e-20, 1e20)  # where it ends


def test_costs_are_those_of_the_method():
    assert costs(run(options=ADAPTIVE)[-1]) == costs(run()[-1])


def test_a_method_that_uploads_more_is_refused():
    def finish(msg, client, local, info):
        return {"delta": msg["w"] - local["w"], "n": info.n}, client

    with pytest.raises(RequestError, match="also uploads n"):
        run(
            replace(UNIFORM, finish=finish),
            options={},
        )


# ---- adaptive clipping


@pytest.mark.parametrize(
    ("z", "sigma"),
    [(0.5, 0.5), (2.0, 5.0)],
)
def test_sum_and_count_share_the_noise(z, sigma):
    part = private(noise=z, clip="adaptive", count_noise=sigma)
    assert 1 / part.of_sum**2 + 1 / (2 * sigma) ** 2 == pytest.approx(1 / z**2, rel=1e-12)


def adapted(rounds, scale=1.0, **options):
    """Bounds and steps over rounds in which all ten clients send updates of length ``scale``,
    without noise.
    """
    rows = torch.full(
        (10, 1),
        scale,
        dtype=DOUBLE,
    )
    bounds, steps = [0.1 * scale], []
    server = {}
    for t in range(rounds):
        start = {**ADAPTIVE, "clip_start": 0.1 * scale, **options}
        after, _ = round_of(
            rows,
            server=server,
            number=t,
            **start,
        )
        server = {"~bound": after["~bound"]}
        bounds.append(after["~bound"].item())
        steps.append(-after["w"].item())
    return np.array(bounds), np.array(steps)


def test_the_bound_follows_the_quantile():
    bounds, steps = adapted(60, quantile=0.8, clip_lr=0.1)
    below = bounds[:-1] < 1
    assert below.sum() > 20
    assert (~below).sum() > 5
    assert np.allclose(np.diff(np.log(bounds)), np.where(below, 0.08, -0.02))
    assert np.allclose(steps, np.minimum(bounds[:-1], 1))  # with the bound from before the round
    scaled, larger = adapted(
        60,
        scale=8.0,
        quantile=0.8,
        clip_lr=0.1,
    )  # in other units
    assert np.allclose(scaled, 8 * bounds)
    assert np.allclose(larger, 8 * steps)


def test_the_count_is_of_norms_before_clipping_and_at_the_bound_counts():
    rows = [[2.0], [2.5], [-2.0], [0.0]]
    after, uploads = round_of(rows, clip_start=2, **ADAPTIVE)
    assert uploads["~unclipped"].tolist() == [1, 0, 1, 1]
    assert after["~unclipped"].item() == pytest.approx(0.5 + (3 * 0.5 - 0.5) / 10)


# ---- accounting


def spent(z, delta, participation, rounds, **given):
    """ε of some rounds, of cohorts of a fraction of 100 clients or a number of them."""
    return private(
        (1,) * 100,
        participation,
        noise=z,
        delta=delta,
        **given,
    ).spent(rounds)


MNIST = (256 / 60_000, 1.12, 14063, 1e-5)


@pytest.mark.parametrize(
    ("q", "z", "rounds", "delta", "epsilon"),
    [
        (*MNIST, 2.5187),
        (1.0, 4.530877117, 1, 1e-6, 1.0),
    ],
)
def test_epsilons(q, z, rounds, delta, epsilon):
    assert spent(z, delta, q, rounds) == pytest.approx(epsilon, abs=5e-5)


def test_the_published_epsilon():
    """TensorFlow Privacy's example printed the least ε of integer orders, by the conversion from
    before 2020.
    """
    q, z, rounds, delta = MNIST
    once = private(
        (1,) * 100,
        q,
        noise=z,
    )._once
    epsilons = {
        order: rounds * divergence + log(1 / delta) / (order - 1)
        for order, divergence in zip(once.orders, once.rdp, strict=True)
        if order % 1 == 0
    }
    best = min(epsilons, key=epsilons.get)
    assert best == 9
    assert epsilons[best] == pytest.approx(2.92, abs=5e-3)


def test_fixed_cohorts_cost_twice_the_sensitivity():
    assert spent(1.0, 1e-3, 10, 100, sampling="fixed") == pytest.approx(79.33, abs=5e-3)
    # all clients in every round: a Gaussian mechanism, 2C apart
    fixed = spent(2.0, 1e-3, 100, 7, sampling="fixed")
    assert fixed == pytest.approx(
        spent(1.0, 1e-3, 100, 7),
        rel=1e-12,
    )


def test_without_sampling_it_is_the_gaussian_mechanism():
    orders = np.arange(1.1, 11, 0.1)
    converted = np.log(1 - 1 / orders) - np.log(1e-5 * orders) / (orders - 1)
    gauss = 5 * orders / 2 + converted
    assert spent(1.0, 1e-5, 1.0, 5) == pytest.approx(gauss.min())
    assert spent(0.0, 1e-5, 0.1, 1) == math.inf


@pytest.mark.slow
def test_noise_for_an_epsilon():
    part = private(
        (1,) * 50,
        0.1,
        rounds=20,
        epsilon=3.0,
        delta=1e-2,
    )
    planned = part.facts["guarantee"]["planned_epsilon"]
    assert planned == pytest.approx(3.0, rel=1e-4)
    assert planned == part.spent(20) <= 3.0


def test_without_the_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    monkeypatch.delitem(sys.modules, "fedbench.scenarios.privacy")
    message = r"the package dp_accounting, .* pip install 'fedbench-harness\[privacy"
    with pytest.raises(RequestError, match=message):
        function_of("fedbench.scenarios.privacy.central", "privacy")


# ---- runs

BASE = "privacy=central participation=0.1 algo=fedsps"


def test_a_run_tells_what_it_has_spent(tmp_path):
    adaptive = "privacy.clip=adaptive privacy.noise=0.2 privacy.delta=0.01"
    done = fedbench.run(f"{BASE} {adaptive} rounds=4 eval_every=2 results_dir={tmp_path}")
    rows = round_rows(done.path)
    epsilons = [spent(0.2, 0.01, 0.1, rounds) for rounds in (2, 4)]
    assert [row["epsilon"] for row in rows] == pytest.approx([0, *epsilons])
    assert all(row["clip"] > 0 and row["unclipped"] is not None for row in rows[1:])
    (remark,) = done.meta["remarks"]
    assert "(client level, add/remove); this δ is too large: it should be far below " in remark
    assert remark.endswith("1/N = 0.01; set privacy.delta, such as 1e-05")
    assert f"ε = {epsilons[1]:.5g}, δ = 0.01" in remark
    assert done.meta["guarantee"]["noise"] == 0.2


@pytest.mark.parametrize(("clients", "warns"), [(3, True), (100, False)])
def test_the_default_delta_of_few_clients_is_no_protection(tmp_path, clients, warns):
    few = f"data.clients={clients} results_dir={tmp_path}"
    done = fedbench.run(f"privacy=central algo=fedsps rounds=1 {few}")
    (remark,) = done.meta["remarks"]
    assert f"δ = {clients**-1.1:.3g}" in remark
    assert ("this δ is too large" in remark) == warns


def test_a_run_without_noise_has_no_guarantee(tmp_path):
    free = "privacy.sampling=fixed privacy.noise=0 privacy.clip=inf"
    done = fedbench.run(f"{BASE} {free} rounds=1 results_dir={tmp_path}")
    assert round_rows(done.path)[-1]["epsilon"] is None
    (remark,) = done.meta["remarks"]
    assert "ε = inf" in remark
    assert "(client level, replace)" in remark


@pytest.mark.slow
@pytest.mark.parametrize(
    ("option", "continues"),
    [("epsilon=5", False), ("noise=1", True)],
)
def test_a_budget_is_for_its_rounds(option, continues, tmp_path, capsys):
    given = f"{BASE} privacy.{option} keep_state=true results_dir={tmp_path}"
    fedbench.run(f"{given} rounds=2")
    longer = fedbench.run(f"{given} rounds=3")
    assert ("continues" in longer.meta) == continues
    assert longer.meta["guarantee"]["planned_rounds"] == 3
    told = "privacy.epsilon depends on the total number of rounds" in capsys.readouterr().err
    assert told != continues
