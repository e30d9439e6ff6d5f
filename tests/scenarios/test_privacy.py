"""Central differential privacy: what is clipped, what is added, and what it costs."""

import json
import math
import re
import sys
from dataclasses import replace
from math import log

import dp_accounting as dp
import numpy as np
import pytest
import torch
from tools import federation, make, population_of, round_plan, snapshots

import fedbench
from fedbench.config.targets import Component, call, function_of
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


def population(sizes=SIZES, participation=1.0, rounds=3, **given):
    return population_of(sizes, participation=participation, rounds=rounds, **given)


def around(sizes=SIZES, participation=1.0, up=None, **options):
    everybody = population(sizes, participation, shapes=((3, 4),))
    part = central(population=everybody, **options)
    sent = compression(up=up or {}, down={"feedback": "none"}, population=everybody)
    return ScenarioStack(everybody, [sent, part])


def run(
    algo=UNIFORM,
    participation=1.0,
    sizes=SIZES,
    rounds=3,
    data=None,
    resume=None,
    options=None,
    **given,
):
    scenario = None if options is None else around(sizes, participation, **options)
    data = data or federation(sizes)
    return snapshots(
        algo,
        data,
        rounds=rounds,
        participation=participation,
        scenario=scenario,
        resume=resume,
        **given,
    )


def round_of(deltas, algo=UNIFORM, server=None, number=0, **options):
    """The server's state after the clients have sent ``deltas`` [C, P], of ten clients with q = 1."""
    scenario, rows = around(**options), torch.as_tensor(deltas, dtype=DOUBLE)
    w = torch.zeros(rows.shape[1], dtype=DOUBLE)
    server = scenario.lasting(algo).server_init(w, len(SIZES)) | (server or {})
    ids = torch.arange(len(rows))
    ones = torch.ones(len(rows), dtype=DOUBLE)
    info = ClientInfo(ids, ones, ones / len(rows), ones, ones, ones, ids)
    algo = scenario._wrapped(round_plan(ids.numpy(), algo, round=number, server=server))
    states = {k: v.expand(len(rows), -1) for k, v in algo.client_init(w).items()}
    uploads, _ = algo.finish({"w": w}, states, {"w": w - rows}, info.columns())
    return algo.update(server, uploads, info), uploads


# ---- the mechanism


@pytest.mark.parametrize(("sampling", "mode"), [("poisson", "compiled"), ("fixed", "stacked")])
def test_without_noise_and_bound_it_is_the_method(sampling, mode):
    data = federation(SIZES, dtype=torch.float32)
    options = {"noise": 0, "clip": math.inf, "sampling": sampling}
    runs = [run(data=data, mode=mode, options=o)[-1].server["w"] for o in (None, options)]
    assert torch.equal(*runs)


def test_poisson_divides_by_the_expected_cohort():
    options = {"noise": 0, "clip": math.inf}
    scenario = around(SIZES, 0.3, **options)
    ours, plain = (
        run(participation=0.3, rounds=1, options=options),
        run(sampler=scenario.sampler(None), rounds=1),
    )
    steps = [(s[1].server["w"] - s[0].server["w"]) for s in (ours, plain)]
    present = len(ours[1].cohort)
    assert present != 3
    assert np.array_equal(ours[1].cohort, plain[1].cohort)
    torch.testing.assert_close(steps[0], present / 3 * steps[1], rtol=1e-12, atol=0)


def test_poisson_cohorts_are_independent_coins():
    draw = central(population=population((1,) * 50 + (0,), 0.2), noise=0).sampler(None)
    n = np.array((1,) * 50 + (0,))
    sizes = np.array([len(draw(t, n, 0)) for t in range(2000)])
    assert abs(sizes.mean() - 10) < 4 * math.sqrt(8 / 2000)
    assert abs(sizes.var() / 8 - 1) < 0.15
    assert 50 not in np.concatenate([draw(t, n, 0) for t in range(20)])  # has no examples
    few = n * (np.arange(51) < 30)
    # others' coins stay as they are
    assert np.array_equal(draw(3, few, 0), [k for k in draw(3, n, 0) if k < 30])


def test_clipping():
    rows = torch.tensor([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0], [-6.0, 8.0]], dtype=DOUBLE)
    _, uploads = round_of(rows, noise=0, clip=2)
    v = uploads["delta"]
    torch.testing.assert_close(
        v, torch.tensor([[1.2, 1.6], [0.3, 0.4], [0.0, 0.0], [-1.2, 1.6]], dtype=DOUBLE)
    )
    assert torch.equal(v[1:3], rows[1:3])  # below the bound: bit for bit
    torch.testing.assert_close(round_of(v, noise=0, clip=2)[1]["delta"], v, rtol=1e-15, atol=0)
    after = round_of(rows, noise=0, clip=2)[0]["w"]
    # over m̃ = 10, not over 4
    torch.testing.assert_close(after, -torch.tensor([0.03, 0.36], dtype=DOUBLE))


@pytest.mark.parametrize("kind", ["none", "top_k", "random_k", "qsgd", "sign", "power"])
def test_a_client_moves_the_sum_by_the_bound(kind):
    rows = 10 * torch.randn(6, 12, dtype=DOUBLE, generator=torch.Generator().manual_seed(0))
    options = {"noise": 0, "clip": 2, "up": {"kind": kind, "rank": 1}}
    found = [
        10 * round_of(r, **options)[0]["w"]
        for r in (rows, rows[:5], torch.cat([rows[:5], -rows[5:]]))
    ]
    assert torch.linalg.vector_norm(found[0] - found[1]).item() == pytest.approx(2)  # removed: C
    assert torch.linalg.vector_norm(found[0] - found[2]).item() == pytest.approx(4)  # replaced: 2C


def test_noise_has_its_size_and_comes_before_the_servers_optimizer():
    many = 20_000
    after, _ = round_of(torch.zeros(3, many), noise=0.7, clip=2, number=4)
    xi = normal(fold_in(key(0, Purpose.NOISE, 4), torch.arange(many)))
    torch.testing.assert_close(after["w"], -0.7 * 2 / 10 * xi, rtol=1e-12, atol=0)
    assert after["w"].std().item() == pytest.approx(0.14, rel=0.02)
    assert abs(after["w"].mean().item()) < 4 * 0.14 / math.sqrt(many)
    opt = adam(0.0, 0.0, 1e-12)
    steps = Algorithm(**server_descent(opt, lr=0.5), weights="uniform")
    moved, _ = round_of(torch.zeros(3, many), steps, noise=0.7, clip=2, number=4)
    # m/√v of one gradient is its sign
    torch.testing.assert_close(moved["w"], -0.5 * xi.sign(), rtol=1e-6, atol=0)


def test_noise_does_not_depend_on_who_is_there():
    """Three coordinates of noise on an unmoved model, for cohorts, modes, parts, workers and methods."""
    still = lambda algo: replace(  # noqa: E731
        algo, finish=lambda msg, c, local, info: ({"delta": torch.zeros_like(local["w"])}, c)
    )
    options = {"noise": 1.0, "clip": 0.5, "sampling": "fixed"}
    cases = [
        {},
        {"cohort_size": 2, "workers": 2, "sizes": SIZES[::-1]},
        {"algo": still(make("fedsps"))},
    ]
    found = [run(**({"algo": still(UNIFORM)} | c), options=options) for c in cases]
    steps = [s[-1].server["w"] - s[0].server["w"] for s in found]
    for step in steps[1:]:
        torch.testing.assert_close(step, steps[0], rtol=0, atol=1e-14)
    assert steps[0].abs().min() > 0


def test_an_empty_round_has_its_noise():
    clip = {"clip": "adaptive", "clip_start": 0.3, "count_noise": 2.0}
    found = run(participation=1e-9, rounds=2, options={"noise": 1.0, **clip}, algo=make("fedspeed"))
    assert [len(s.cohort) for s in found] == [0, 0, 0]
    deviation = (1 - 1 / 16) ** -0.5 * 0.3 / 1e-8
    xi = normal(fold_in(key(0, Purpose.NOISE, 0), torch.arange(found[0].server["w"].numel())))
    torch.testing.assert_close(found[1].server["w"], found[0].server["w"] - deviation * xi)
    zeta = normal(torch.tensor(key(0, Purpose.COUNT, 0) >> 1)).item()
    columns = round_columns(found[1].server)
    assert columns["unclipped"] == pytest.approx(0.5 + 2 * zeta / 1e-8)
    assert (columns["clip"], found[1].client_steps) == (0.3, 0)
    assert round_columns(found[2].server)["clip"] in (1e-20, 1e20)  # where it ends


def test_costs_are_those_of_the_method():
    runs = [run(options=o)[-1] for o in (None, {"noise": 0, "clip": "adaptive"})]
    assert len({(s.bytes_up, s.bytes_down, s.client_steps) for s in runs}) == 1


# ---- adaptive clipping


@pytest.mark.parametrize(("z", "sigma"), [(0.5, 0.5), (1.0, 0.6), (2.0, 5.0)])
def test_sum_and_count_share_the_noise(z, sigma):
    part = central(population=population(), noise=z, clip="adaptive", count_noise=sigma)
    assert 1 / part.of_sum**2 + 1 / (2 * sigma) ** 2 == pytest.approx(1 / z**2, rel=1e-12)
    assert central(
        population=population(), noise=z, clip="adaptive", count_noise=1e9
    ).of_sum == pytest.approx(z)


def adapted(norm, rounds, scale=1.0, **options):
    """Bounds over rounds in which all ten clients send updates of one norm, without noise."""
    options = {
        "noise": 0,
        "clip": "adaptive",
        "count_noise": 0,
        "clip_start": 0.1 * scale,
        **options,
    }
    server, bounds, steps = {}, [0.1 * scale], []
    for t in range(rounds):
        rows = torch.full((10, 1), norm * scale, dtype=DOUBLE)
        after, _ = round_of(rows, server=server, number=t, **options)
        steps.append(-after["w"].item())
        server = {"~bound": after["~bound"]}
        bounds.append(after["~bound"].item())
    return np.array(bounds), np.array(steps)


def test_the_bound_follows_the_quantile():
    bounds, steps = adapted(1.0, 60, quantile=0.8, clip_lr=0.1)
    change, below = np.diff(np.log(bounds)), bounds[:-1] < 1
    assert below.sum() > 20
    assert (~below).sum() > 5
    assert np.allclose(change, np.where(below, 0.08, -0.02))
    assert np.allclose(steps, np.minimum(bounds[:-1], 1))  # with the bound from before the round
    assert np.abs(np.log(bounds[np.argmax(~below) :])).max() <= 0.08 + 1e-9
    still, _ = adapted(1.0, 5, clip_lr=0.0)
    assert (still == 0.1).all()
    scaled, larger = adapted(1.0, 60, scale=8.0, quantile=0.8, clip_lr=0.1)  # in other units
    assert np.allclose(scaled, 8 * bounds) and np.allclose(larger, 8 * steps)


def test_the_count_is_of_norms_before_clipping_and_at_the_bound_counts():
    after, uploads = round_of(
        [[2.0], [2.5], [-2.0], [0.0]], noise=0, clip="adaptive", clip_start=2, count_noise=0
    )
    assert uploads["~unclipped"].tolist() == [1, 0, 1, 1]
    assert after["~unclipped"].item() == pytest.approx(0.5 + (3 * 0.5 - 0.5) / 10)


# ---- accounting


def spent(z, delta, participation, rounds, clients=100, **given):
    """ε of some rounds, of cohorts of a fraction of the clients or a number of them."""
    everybody = population((1,) * clients, participation)
    return central(population=everybody, noise=z, delta=delta, **given).spent(rounds)


def test_divergences():
    """Known values of 50 rounds: of the Gaussian mechanism with Poisson sampling."""
    part = central(population=population((1,) * 100, 0.01), noise=2.5)
    told = dp.rdp.RdpAccountant([5, 50, 100]).compose(part.event(2.5, 50))
    assert told.rdp == pytest.approx([2.18075656e-3, 2.38460375e-2, 1.67416308e2], rel=1e-8)


MNIST = (256 / 60_000, 1.12, 14063, 1e-5)


@pytest.mark.parametrize(
    ("q", "z", "rounds", "delta", "epsilon"),
    [(*MNIST, 2.5187), (0.1, 1.0, 100, 1e-3, 5.6551), (1.0, 4.530877117, 1, 1e-6, 1.0)],
)
def test_epsilons(q, z, rounds, delta, epsilon):
    assert spent(z, delta, q, rounds) == pytest.approx(epsilon, abs=5e-5)


def test_the_published_epsilon():
    """TensorFlow Privacy's example printed the least ε of integer orders, by the conversion from before 2020."""
    q, z, rounds, delta = MNIST
    once = central(population=population((1,) * 100, q), noise=z)._once
    found = {
        a: rounds * r + log(1 / delta) / (a - 1)
        for a, r in zip(once.orders, once.rdp, strict=True)
        if a % 1 == 0
    }
    assert (min(found, key=found.get), min(found.values())) == (9, pytest.approx(2.92, abs=5e-3))


def test_fixed_cohorts_cost_twice_the_sensitivity():
    assert spent(1.0, 1e-3, 10, 100, sampling="fixed") == pytest.approx(79.33, abs=5e-3)
    both = [
        spent(z, 1e-3, 100, 7, sampling=sampling)
        for z, sampling in ((2.0, "fixed"), (1.0, "poisson"))
    ]
    # all clients in every round: a Gaussian mechanism, 2C apart
    assert both[0] == pytest.approx(both[1], rel=1e-12)


def test_more_is_more():
    base = spent(1.0, 1e-5, 0.1, 20)
    less = [(1.0, 1e-5, 0.1, 10), (1.0, 1e-5, 0.01, 20), (2.0, 1e-5, 0.1, 20), (1.0, 1e-3, 0.1, 20)]
    assert all(spent(*case) < base for case in less)
    gauss = min(
        5 * a / 2 + log(1 - 1 / a) - log(1e-5 * a) / (a - 1) for a in np.arange(1.1, 11, 0.1)
    )
    assert spent(1.0, 1e-5, 1.0, 5) == pytest.approx(gauss)
    assert spent(0.0, 1e-5, 0.1, 1) == math.inf


def test_noise_for_an_epsilon():
    part = central(population=population((1,) * 50, 0.1, 20), epsilon=3.0, delta=1e-2)
    planned = part.facts["guarantee"]["planned_epsilon"]
    assert planned == pytest.approx(3.0, rel=1e-4)
    assert planned == part.spent(20) <= 3.0


def test_without_the_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    monkeypatch.delitem(sys.modules, "fedbench.scenarios.privacy")
    with pytest.raises(
        RequestError, match=r"the package dp_accounting, .* pip install 'fedbench-harness\[privacy"
    ):
        function_of("fedbench.scenarios.privacy.central", "privacy")


# ---- runs


def test_a_run_tells_what_it_has_spent(tmp_path, capsys):
    common = [
        "rounds=4",
        "eval_every=2",
        "participation=0.1",
        f"results_dir={tmp_path}",
        "algo.weights=uniform",
    ]
    common += ["privacy=central"]
    done = fedbench.run(
        [*common, "privacy.clip=adaptive", "privacy.noise=0.2", "privacy.delta=0.01"]
    )
    rows = [json.loads(line) for line in (done.path / "rounds.jsonl").read_text().splitlines()]
    epsilons = [spent(0.2, 0.01, 0.1, rounds) for rounds in (2, 4)]
    assert [row["epsilon"] for row in rows] == pytest.approx([0, *epsilons])
    assert all(row["clip"] > 0 and row["unclipped"] is not None for row in rows[1:])
    (remark,) = done.meta["remarks"]
    assert "(client level, add/remove); δ is not below 1/N = 0.01" in remark
    assert f"ε = {epsilons[1]:.5g}, δ = 0.01" in remark
    assert done.meta["guarantee"]["noise"] == 0.2
    free = fedbench.run(
        [*common, "privacy.sampling=fixed", "privacy.noise=0", "privacy.clip=inf", "rounds=1"]
    )
    assert json.loads((free.path / "rounds.jsonl").read_text().splitlines()[-1])["epsilon"] is None
    assert "ε = inf" in free.meta["remarks"][0]
    assert "(client level, replace)" in free.meta["remarks"][0]


def test_a_budget_is_for_its_rounds(tmp_path, capsys):
    common = [
        "algo=fedsps",
        "privacy=central",
        "participation=0.1",
        "keep_state=true",
        f"results_dir={tmp_path}",
    ]
    for rounds, option in ((2, "epsilon=5"), (3, "epsilon=5"), (2, "noise=1"), (3, "noise=1")):
        longer = fedbench.run([*common, f"rounds={rounds}", f"privacy.{option}"])
        assert ("continues" in longer.meta) == ((rounds, option) == (3, "noise=1"))
        assert longer.meta["guarantee"]["planned_rounds"] == rounds
    assert "privacy.epsilon depends on the total number of rounds" in capsys.readouterr().err


# ---- what is refused


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"noise": -1}, "noise must be >= 0, got -1"),
        ({"clip": 0}, "clip must be adaptive or > 0, got 0"),
        ({"clip": "median"}, "clip must be"),
        ({"clip": math.inf}, "noise needs a finite clip, got 1"),
        (
            {"clip": "adaptive"},
            "noise must be below 2·count_noise = 1, got 1; raise privacy.count_noise",
        ),
        ({"epsilon": 1e20}, "epsilon must be <= 1000"),
        ({"epsilon": 1, "noise": 1}, "noise must be null with privacy.epsilon"),
        ({"sampling": "size"}, "sampling must be one of poisson, fixed"),
    ],
)
def test_wrong_values(options, message):
    with pytest.raises(RequestError, match=re.escape(f"privacy.{message}")):
        call(
            Component("fedbench.scenarios.privacy.central", options),
            "privacy",
            population=population(),
        )


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ("sampling=size", "Poisson sampling at one rate"),
        ("availability=clients", "a coin of known rate"),
        ("availability=stragglers", "a coin of known rate"),
        ("availability=bernoulli availability.weights=zero", "its weights are the same for all"),
    ],
)
def test_refused_combinations(overrides, message, tmp_path):
    with pytest.raises(RequestError, match=message):
        fedbench.run(
            [
                "algo=fedsps",
                *overrides.split(),
                "privacy=central",
                "rounds=1",
                f"results_dir={tmp_path}",
            ]
        )
    assert not list(tmp_path.iterdir())


def test_late_clients_that_do_less_are_allowed(tmp_path):
    given = [
        "algo=fedsps",
        "availability=stragglers",
        "availability.late=partial",
        "privacy=central",
        "rounds=1",
    ]
    assert fedbench.run([*given, f"results_dir={tmp_path}"]).meta["status"] == "done"


def test_a_method_that_uploads_more_is_refused():
    more = replace(
        UNIFORM,
        finish=lambda msg, c, local, info: ({"delta": msg["w"] - local["w"], "n": info.n}, c),
    )
    with pytest.raises(RequestError, match="also uploads n"):
        run(more, options={})
