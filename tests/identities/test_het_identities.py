"""Statements about the methods for heterogeneous clients and the personal ones: in float64."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from test_more_identities import FULL, QUADRATIC, Given, on_quadratics, run_on, start_of
from tools import close, deployed, factory, federation, final, make, simulated, snapshots

from fedbench.algorithms.shared.sharpness import uphill
from fedbench.core.algorithm import Stage
from fedbench.core.errors import RequestError
from fedbench.core.optim import Optimizer, sgd
from fedbench.core.randomness import sample_cohort
from fedbench.core.types import ClientInfo
from fedbench.data.dataset import FederatedDataset, Rows
from fedbench.simulation.client_states import StateAllocator
from fedbench.simulation.compiled.dense import DenseKernel
from fedbench.simulation.engine import Engine
from fedbench.simulation.local_work import LocalWork

D = torch.float64
UNIFORM = {"weights": "uniform"}
BATCHES = LocalWork(lr=0.1, batch_size=10, epochs=(2, 2))
DRAWN = LocalWork(lr=0.1, batch_size=10, epochs=(1, 3))  # unequal steps
ONE_STEP = LocalWork(lr=0.1, batch_size=None, steps=1)
# F = b · w, rows b
LINEAR = Given(lambda w, r: (w * r).sum(1, keepdim=True), lambda w, r: r.expand_as(w))


def facts(count, p=None, lr=1.0, steps=1.0):
    """Facts of a cohort for a server's update alone."""
    ones = torch.ones(count, dtype=D)
    lr, steps = (torch.as_tensor(v, dtype=D).expand(count) for v in (lr, steps))
    p = ones / count if p is None else torch.tensor(p, dtype=D)
    return ClientInfo(
        id=torch.arange(count),
        n=ones,
        p=p,
        steps=steps,
        lr=lr,
        per_epoch=ones,
        key=torch.arange(count),
    )


def models(run, key="w"):
    return [s.server[key].item() for s in run]


# ---- reductions


@pytest.mark.parametrize("participation", [1.0, 0.6])
@pytest.mark.parametrize(
    ("name", "options", "weights"),
    [
        ("fedexp", {"eps": 1e20, "average": False}, "size"),
        ("fedcm", {"alpha": 1.0}, "uniform"),
        ("fedcm", {"alpha": 1.0, "weights": "size"}, "size"),
        ("fedsam", {"rho": 0.0}, "uniform"),
        ("mofedsam", {"rho": 0.0, "alpha": 1.0}, "uniform"),
        ("mimelite", {"beta1": 0.0}, "uniform"),
        ("pfedme", {"inner": 1, "lam": 4.0, "personal_lr": 0.25, "start": "reset"}, "size"),
        ("apfl", {"alpha": 0.7}, "size"),
        ("apfl", {"alpha": 0.2, "adaptive": True, **UNIFORM}, "uniform"),
    ],
)
def test_reduces_to_fedavg(name, options, weights, participation):
    data, how = federation(), {"rounds": 5, "work": DRAWN, "participation": participation}
    plain = final(make("fedavg", weights=weights), data, **how)
    assert close(final(make(name, **options), data, **how), plain, 1e-10)


@pytest.mark.parametrize("participation", [1.0, 0.6])
@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("mofedsam", {"rho": 0.0, "alpha": 0.3}), ("fedcm", {"alpha": 0.3})),
        (("mofedsam", {"rho": 0.4, "alpha": 1.0}), ("fedsam", {"rho": 0.4})),
        (("fedspeed", {"rho": 0.0, "prox": 0.3, "server": "all"}), ("feddyn", {"alpha": 0.3})),
        (("fedspeed", {"alpha": 0.0, "prox": 0.3, "server": "all"}), ("feddyn", {"alpha": 0.3})),
    ],
)
def test_reduces_to_another_method(one, other, participation):
    data, how = federation(), {"rounds": 5, "work": DRAWN, "participation": participation}
    a, b = (final(make(name, **options), data, **how) for name, options in (one, other))
    assert close(a, b, 1e-10)
    assert not close(a, final(make("fedavg", **UNIFORM), data, **how), 1e-3)


@pytest.mark.parametrize("options", [{"rho": 0.0}, {"alpha": 0.0}, {"rho": 0.5, "alpha": 0.5}])
def test_the_two_servers_of_fedspeed_agree_if_every_client_takes_part(options):
    data = federation()
    runs = [
        final(make("fedspeed", server=s, **options), data, rounds=5, work=DRAWN)
        for s in ("cohort", "all")
    ]
    assert close(*runs, 1e-10)
    runs = [
        final(make("fedspeed", server=s, **options), data, rounds=5, work=DRAWN, participation=0.6)
        for s in ("cohort", "all")
    ]
    assert not close(*runs, 1e-3)


@pytest.mark.parametrize("solver", [sgd(momentum=0.9), sgd(weight_decay=0.1, clip_norm=0.5)])
def test_fedsam_and_fedexp_keep_the_local_solver(solver):
    data = federation()
    plain = final(make("fedavg", solver, **UNIFORM), data, rounds=4, work=BATCHES)
    assert close(final(make("fedsam", solver, rho=0.0), data, rounds=4, work=BATCHES), plain, 1e-10)
    ours = final(
        make("fedexp", solver, eps=1e20, average=False, **UNIFORM), data, rounds=4, work=BATCHES
    )
    assert close(ours, plain, 1e-10)


@pytest.mark.parametrize("participation", [1.0, 0.6])
def test_one_step_per_round_makes_four_methods_one(participation):
    data, how = federation(), {"rounds": 6, "participation": participation}
    methods = [
        ("fedcm", {"alpha": 0.3}),
        ("mimelite", {"beta1": 0.7}),
        ("mofedsam", {"rho": 0.0, "alpha": 0.3}),
        ("fedavgm", {"beta": 0.7, "server_lr": 0.3, **UNIFORM}),
    ]
    runs = [final(make(name, **options), data, work=ONE_STEP, **how) for name, options in methods]
    assert all(close(run, runs[-1], 1e-10) for run in runs)
    longer = [
        final(make(name, **o), data, work=LocalWork(0.1, None, steps=3), **how)
        for name, o in methods[:2]
    ]
    assert not close(*longer, 1e-4)  # MimeLite's c is measured at w^t, FedCM's m along the path


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("fedexp", {"average": False}),
        ("fedsam", {"rho": 0.0}),
        ("apfl", {}),
        ("fedcm", {"alpha": 1.0}),
    ],
)
def test_one_client_is_fedavg(name, options):
    data = federation(sizes=(23,))
    plain = final(make("fedavg"), data, rounds=4, work=BATCHES)
    assert close(final(make(name, **options), data, rounds=4, work=BATCHES), plain, 1e-10)


# ---- FedDyn


def test_feddyn_by_hand():
    """F = w²/2 and (w-4)²/2 from w = 1, one step of rate 1/2, α = 1/2."""
    run = on_quadratics(make("feddyn", alpha=0.5), [[1.0, 0.0], [1.0, 4.0]], 3, [1.0])
    assert models(run) == pytest.approx([1.0, 2.0, 2.25, 2.1875], abs=1e-14)


@pytest.mark.parametrize("alpha", [1e-3, 0.5, 5.0])
def test_the_first_step_of_feddyn_is_twice_the_mean_update(alpha):
    data = federation()
    first = snapshots(make("feddyn", alpha=alpha, deploy="mean"), data, rounds=1, work=DRAWN)[-1]
    start = start_of(data)
    assert close(first.server["w"] - start, 2 * (first.server["mean"] - start), 1e-12)


def test_feddyn_with_a_vanishing_alpha_adds_up_all_updates():
    """w^{t+1} = w^t - D_t - Σ_{s<=t} D_s, D_t the mean update of plain local training from w^t."""
    data = federation()
    w, total = start_of(data), 0.0
    for _ in range(4):
        d = w - final(make("fedavg", **UNIFORM), data, rounds=1, work=FULL, w=w)
        total = total + d
        w = w - d - total
    assert close(final(make("feddyn", alpha=1e-13), data, rounds=4, work=FULL), w, 1e-10)


ROWS, COUNTS = [[1.0, 0.0], [3.0, 4.0], [0.5, -2.0]], [4, 1, 2]


def quadratics_of_sizes(algo, rounds, participation=1.0):
    """The last model of a run on these functions, with COUNTS equal examples each and many local steps."""
    x = torch.tensor(ROWS, dtype=D).repeat_interleave(torch.tensor(COUNTS), 0)
    rows = np.split(np.arange(len(x)), np.cumsum(COUNTS)[:-1])
    data = FederatedDataset(
        x=x, y=torch.zeros(len(x), dtype=torch.int64), train=Rows.of(rows), test=Rows.of([np.arange(0)] * 3),
        names=("a", "b", "c"), classes=1, dtype=D,
    )  # fmt: skip
    work, start = LocalWork(lr=0.2, batch_size=None, steps=20), torch.tensor([9.0], dtype=D)
    engine, draw = Engine(QUADRATIC, "stacked", 100), sample_cohort(participation)
    return (
        list(simulated([Stage(algo, rounds)], None, data, work, engine, start, 0, draw))[-1]
        .server["w"]
        .item()
    )


@pytest.mark.parametrize(("participation", "rounds"), [(1.0, 100), (2, 150)])
@pytest.mark.parametrize(
    ("weights", "n"), [("uniform", [1, 1, 1]), ("size", COUNTS)], ids=["uniform", "size"]
)  # the minimum of Σ n_k F_k
def test_feddyn_finds_the_optimum_where_fedavg_does_not(weights, n, participation, rounds):
    a, b = np.array(ROWS).T
    best = (n * a * b).sum() / (n * a).sum()
    found = quadratics_of_sizes(
        make("feddyn", alpha=0.5, weights=weights, examples=COUNTS), rounds, participation
    )
    assert found == pytest.approx(best, abs=1e-8)
    assert abs(quadratics_of_sizes(make("fedavg", weights=weights), 100) - best) > 0.1


def test_feddyn_by_size_scales_alpha_and_averages_uniformly():
    """α_k = α/(N p_k): equal sizes are the uniform form; the mean of the cohort is the plain one."""
    data = federation(sizes=(9, 9, 9))
    runs = [
        final(make("feddyn", alpha=0.4, weights=w, examples=[9] * 3), data)
        for w in ("uniform", "size")
    ]
    assert close(*runs, 1e-12)
    data = federation(sizes=(4, 12))
    sized = snapshots(
        make("feddyn", alpha=1e-13, weights="size", examples=[4, 12], deploy="mean"), data, rounds=1
    )[-1]
    assert close(sized.server["mean"], final(make("fedavg", **UNIFORM), data, rounds=1), 1e-10)
    with pytest.raises(
        RequestError, match="weights=size needs the training examples of all clients"
    ):
        make("feddyn", weights="size")


@pytest.mark.parametrize(("name", "options"), [("feddyn", {}), ("fedspeed", {"server": "all"})])
def test_the_server_keeps_the_mean_of_all_drifts(name, options):
    """Also of clients that are absent, whose u_k stay."""
    data = federation()
    algo = make(name, **options)
    for before, after in pairwise(snapshots(algo, data, rounds=6, work=DRAWN, participation=0.6)):
        absent = np.setdiff1d(np.arange(data.num_clients), after.cohort)
        assert torch.equal(before.clients["drift"][absent], after.clients["drift"][absent])
        assert close(after.server["drift"], after.clients["drift"].mean(0), 1e-12)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("feddyn", {}), ("feddyn", {"weights": "size"}), ("fedspeed", {"server": "all"}), ("scaffold", {}),
        ("afl", {"lr_lambda": 0.5}),
    ],
)  # fmt: skip
def test_clients_without_training_examples_do_not_count(name, options):
    """Two of five have only test examples: the others train as if they were alone."""
    alone = federation(sizes=(4, 9, 6))
    rows = alone.train.split()
    with_others = replace(
        alone, train=Rows.of([rows[0], rows[0][:0], rows[1], rows[2], rows[0][:0]]),
        test=Rows.of([alone.test.split()[0]] * 5), names=tuple("abcde"),
    )  # fmt: skip
    made = [
        factory(name)(**options, examples=data.train.counts.tolist())
        for data in (alone, with_others)
    ]
    runs = [
        final(algo, data, rounds=4, work=FULL)
        for algo, data in zip(made, (alone, with_others), strict=True)
    ]
    assert close(*runs, 1e-12)


def test_feddyn_deploys_what_was_asked_for():
    data = federation()
    seen = snapshots(make("feddyn", deploy="mean"), data, rounds=3)
    assert torch.equal(deployed(make("feddyn", deploy="mean"), seen[0]), seen[0].server["w"])
    last = seen[-1]
    assert close(
        deployed(make("feddyn", deploy="mean"), last),
        last.server["w"] - last.server["drift"],
        1e-12,
    )
    assert torch.equal(deployed(make("feddyn"), last), last.server["w"])


# ---- FedSpeed, FedSAM, MoFedSAM


def test_fedspeed_by_hand():
    """F = w² from w = 1, one step of rate .1; ρ .1, α .5, prox .5: the mean of w_k + u_k."""
    algo = make("fedspeed", rho=0.1, alpha=0.5, prox=0.5)
    run = on_quadratics(algo, [[2.0, 0.0]], 2, [1.0], lr=0.1)
    assert models(run) == pytest.approx([1.0, 0.58, 0.139], abs=1e-14)


def test_fedsam_by_hand():
    """F = w²/2 from w = 1: ŵ = 1.1, and a step of rate 1/2 from 1."""
    assert models(on_quadratics(make("fedsam"), [[1.0, 0.0]], 1, [1.0]))[-1] == pytest.approx(
        0.45, abs=1e-15
    )
    # no gradient, no ascent
    assert models(on_quadratics(make("fedsam"), [[1.0, 0.0]], 1, [0.0]))[-1] == 0.0
    both = on_quadratics(make("fedsam", rho=5.0), [[1.0, 0.0]], 1, [3.0, 4.0])[-1].server["w"]
    # the whole vector has length 5: ŵ = 2w, w - ŵ/2
    assert both.tolist() == pytest.approx([0.0, 0.0], abs=1e-15)


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("fedsam", ("fedavg", UNIFORM)),
        ("mofedsam", ("fedcm", {})),
        ("fedspeed", ("feddyn", {"alpha": 0.1})),
    ],
)
def test_methods_with_an_ascent_leave_those_without_in_proportion_to_rho(name, plain):
    data, how = federation(), {"rounds": 3, "work": BATCHES}
    without = final(make(plain[0], **plain[1]), data, **how)
    apart = [(final(make(name, rho=r), data, **how) - without).norm().item() for r in (1e-4, 1e-5)]
    assert apart[0] / apart[1] == pytest.approx(10, rel=1e-2)


def test_both_gradients_are_of_one_batch():
    """The second is taken after a step of length ρ up the first; a client without a gradient stays."""
    asked = []

    class Watched:
        def grad(self, w, batch):
            asked.append((w, batch))
            return torch.tensor([[3.0, 4.0], [0.0, 0.0]], dtype=D)

    w, batch = torch.ones(2, 2, dtype=D), object()
    uphill(Watched(), w, batch, 0.5)
    assert [b is batch for _, b in asked] == [True, True]
    assert asked[0][0] is w
    assert asked[1][0].tolist() == [[1.3, 1.4], [1.0, 1.0]]


# ---- FedCM, MimeLite


@pytest.mark.parametrize("weights", ["uniform", "size"])
def test_fedcm_on_linear_losses_has_a_momentum_of_known_length(weights):
    """m^t = (1 - (1-α)^t) Σ p_k b_k, whatever the steps of the clients (here 1 to 4)."""
    rows = [[1.0, -2.0], [3.0, 0.5], [-1.0, 4.0]]
    work = LocalWork(lr=0.1, batch_size=None, epochs=(1, 4))
    run = run_on(LINEAR, rows, make("fedcm", alpha=0.3, weights=weights), work, 6, [0.0, 0.0])
    mean = torch.tensor(rows, dtype=D).mean(0)
    for t, snapshot in enumerate(run):
        assert (snapshot.server["m"] - (1 - 0.7**t) * mean).norm() < 1e-13


@pytest.mark.parametrize("name", ["fedcm", "mofedsam"])
def test_the_momentum_is_a_mean_of_gradients(name):
    """m = Σ p_k Δ_k / (η_l τ_k), each client with its own steps and rate; it replaces the one before."""
    algo, delta = make(name, server_lr=2.0), torch.tensor([[1.0, 0.0], [0.0, 6.0]], dtype=D)
    server = algo.server_init(torch.zeros(2, dtype=D), 2) | {"m": torch.full((2,), 9.0, dtype=D)}
    new = algo.update(server, {"delta": delta}, facts(2, p=[0.25, 0.75], lr=0.5, steps=[1.0, 3.0]))
    assert new["m"].tolist() == pytest.approx([0.5, 3.0])
    assert new["w"].tolist() == pytest.approx([-0.5, -9.0])


@pytest.mark.parametrize("name", ["fedcm", "mofedsam"])
def test_without_a_share_of_the_own_gradient_nothing_moves(name):
    data = federation()
    for mode in ("loop", "stacked", "compiled"):
        assert torch.equal(
            final(make(name, alpha=0.0), data, work=DRAWN, mode=mode), start_of(data)
        )


def test_fedcm_begins_as_fedavg_at_a_lower_rate():
    data = federation()
    plain = final(make("fedavg", **UNIFORM), data, rounds=1, work=LocalWork(0.03, 10, (2, 2)))
    assert close(final(make("fedcm", alpha=0.3), data, rounds=1, work=BATCHES), plain, 1e-12)


def test_mimelite_with_adam_by_hand():
    """F = w²/2 from w = 1, one step of rate .001.

    Round 1, v = 0: w = 1 - .001 · .1 · 1/.001 = .9, m = .1, v = .01. Round 2: w = .9 - .001 (.09 +
    .09)/(.1 + .001), m = .09 + .09, v = .0099 + .0081.
    """
    run = on_quadratics(make("mimelite", base="adam"), [[1.0, 0.0]], 2, [1.0], lr=1e-3)
    assert models(run) == pytest.approx([1.0, 0.9, 0.9 - 1.8e-4 / 0.101], abs=1e-14)
    assert models(run, "m") == pytest.approx([0.0, 0.1, 0.18], abs=1e-14)
    assert models(run, "v") == pytest.approx([0.0, 0.01, 0.018], abs=1e-14)


def test_the_momentum_of_mimelite_is_of_gradients_at_the_broadcast_model():
    """Two quadratics, any number of local steps: m = .1 (1·(1-0) + 3·(1-4))/2 after the first round."""
    for steps in (1, 7):
        run = on_quadratics(
            make("mimelite"), [[1.0, 0.0], [3.0, 4.0]], 1, [1.0], lr=0.1, steps=steps
        )
        assert models(run, "m")[-1] == pytest.approx(0.1 * (1 - 9) / 2, abs=1e-14)


# ---- FedExP


def expanded(delta, p=None, **options):
    """η_g d of one round."""
    algo = make("fedexp", **{"eps": 0.0, **options})
    g = torch.as_tensor(delta, dtype=D)
    return -algo.update(
        algo.server_init(torch.zeros(g.shape[1], dtype=D), len(g)), {"delta": g}, facts(len(g), p)
    )["w"]


def test_fedexp_by_hand():
    """Δ = (2, 0), (0, 1), p = (1/4, 3/4): d = (.5, .75), Σ p ||Δ||² = 1.75, ||d||² = .8125."""
    d, delta, p = np.array([0.5, 0.75]), [[2.0, 0.0], [0.0, 1.0]], [0.25, 0.75]
    assert expanded(delta, p).tolist() == pytest.approx((1.75 / 1.625 * d).tolist())
    assert expanded(delta, p, eps=0.05).tolist() == pytest.approx((1.75 / 1.725 * d).tolist())
    # 1.75 / 1.825 < 1
    assert expanded(delta, p, eps=0.05, eps_per_client=True).tolist() == pytest.approx(d.tolist())
    assert expanded(delta, p, eps=0.01, eps_per_client=True).tolist() == pytest.approx(
        (1.75 / 1.665 * d).tolist()
    )


@pytest.mark.parametrize("count", [2, 5, 8])
def test_fedexp_with_orthogonal_updates_goes_half_their_number(count):
    assert close(expanded(3 * np.eye(count)), torch.full((count,), 1.5, dtype=D), 1e-14)


def test_fedexp_guards_and_scaling():
    g = torch.randn(5, 7, generator=torch.Generator().manual_seed(0), dtype=D)
    assert close(expanded(100 * g), 100 * expanded(g), 1e-13)
    assert expanded([[1.0, 2.0]] * 3).tolist() == pytest.approx([1.0, 2.0])
    for still in ([[1.0, 0.0], [-1.0, 0.0]], [[0.0, 0.0]]):  # 2/0 and 0/0
        assert expanded(still).tolist() == [0.0, 0.0]


def test_fedexp_deploys_the_mean_of_the_last_two_models_and_trains_from_the_last():
    data = federation()
    algo = make("fedexp")
    seen = snapshots(algo, data, rounds=4, work=BATCHES, participation=0.6)
    last = snapshots(make("fedexp", average=False), data, rounds=4, work=BATCHES, participation=0.6)
    assert all(torch.equal(a.server["w"], b.server["w"]) for a, b in zip(seen, last, strict=True))
    assert all(torch.equal(deployed(algo, s), s.server["w"]) for s in seen[:2])
    for before, after in pairwise(seen[1:]):
        assert close(deployed(algo, after), (before.server["w"] + after.server["w"]) / 2, 1e-14)


# ---- pFedMe


def test_pfedme_by_hand():
    """F = w²/2, w = 1, λ = 2, K = 1, η_p = η_l = .1, two steps; θ goes on from .9, x from .98; then half of the way.

    θ = .9, x = 1 - .2 · .1 = .98; θ = .9 - .1 (.9 + 2 (.9 - .98)) = .826, x = .98 - .2 (.98 - .826)
    = .9492.
    """
    algo = make("pfedme", lam=2.0, inner=1, personal_lr=0.1, beta=0.5)
    last = on_quadratics(algo, [[1.0, 0.0]], 1, [1.0], lr=0.1, steps=2)[-1]
    assert last.clients["personal"].item() == pytest.approx(0.826, abs=1e-14)
    assert last.server["w"].item() == pytest.approx((1 + 0.9492) / 2, abs=1e-14)


@pytest.mark.parametrize("start", ["warm", "reset"])
def test_pfedme_with_many_inner_steps_descends_the_moreau_envelope(start):
    """F = a/2 (w - b)²: θ = (a b + λ x)/(a + λ) and x <- x - η_l λ (x - θ), around the moving x."""
    (a, b), lam, lr = (3.0, 4.0), 2.0, 0.1
    algo = make("pfedme", lam=lam, inner=300, personal_lr=0.1, start=start)
    last = on_quadratics(algo, [[a, b]], 3, [1.0], lr=lr, steps=2)[-1]
    x = 1.0
    for _ in range(6):
        theta = (a * b + lam * x) / (a + lam)
        x -= lr * lam * (x - theta)
    assert last.server["w"].item() == pytest.approx(x, abs=1e-12)
    assert last.clients["personal"].item() == pytest.approx(theta, abs=1e-12)


# ---- APFL


def test_apfl_learns_its_share_by_hand():
    """F = w²/2 from w = 1, one step of rate 1/2, α = 1/2.

    Round 1: v = x, so α stays; x = .5, v = 1 - .25 = .75. Round 2: y = .625, α = .5 - .5 · .25 ·
    .625 = .421875; then y = .421875 · .75 + .578125 · .5, v = .75 - .5 α y, w = .25.
    """
    first, run = (
        on_quadratics(make("apfl", adaptive=True), [[1.0, 0.0]], rounds, [1.0]) for rounds in (1, 2)
    )
    assert [s[-1].clients["alpha"].item() for s in (first, run)] == pytest.approx(
        [0.5, 0.421875], abs=1e-15
    )
    alpha, w = 0.421875, 0.25
    v = 0.75 - 0.5 * alpha * (alpha * 0.75 + (1 - alpha) * 0.5)
    assert run[-1].clients["personal"].item() == pytest.approx(v, abs=1e-15)
    assert deployed(make("apfl", adaptive=True), run[-1]).item() == pytest.approx(
        alpha * v + (1 - alpha) * w
    )


def test_the_share_of_apfl_is_adapted_once_per_round():
    """Whatever the number of local steps: it depends on the first batch alone."""
    rows = [[1.0, 0.0], [2.0, 3.0]]
    algo = make("apfl", adaptive=True)
    one, two = (on_quadratics(algo, rows, rounds, [1.0], lr=0.1, steps=3)[-1] for rounds in (1, 2))
    before, after = one.clients["alpha"], two.clients["alpha"]
    own, w = one.clients["personal"], one.server["w"]
    a, b = torch.tensor(rows, dtype=D).split(1, 1)
    slope = (own - w) * a * (before * own + (1 - before) * w - b)
    assert close(after, before - 0.1 * slope, 1e-13)
    assert not close(after, before, 1e-3)


def test_the_share_of_apfl_stays_between_0_and_1():
    """From 100 the own model lags behind the common one, a slope of 1562; minima at ±100 pull them apart."""
    algo = make("apfl", adaptive=True)
    assert on_quadratics(algo, [[1.0, 0.0]], 2, [100.0])[-1].clients["alpha"].tolist() == [[0.0]]
    assert on_quadratics(algo, [[1.0, 100.0], [1.0, -100.0]], 2, [0.0])[-1].clients[
        "alpha"
    ].tolist() == [[1.0], [1.0]]


def test_apfl_without_and_with_only_the_own_model():
    data, how = federation(), {"rounds": 4, "work": LocalWork(0.1, None, epochs=(2, 2))}
    plain = final(make("fedavg"), data, **how)
    none = make("apfl", alpha=0.0)
    assert all(close(w, plain, 1e-12) for w in deployed(none, snapshots(none, data, **how)[-1]))
    alone, apart = make("apfl", alpha=1.0), make("ditto", lam=0.0)
    ours, theirs = (deployed(m, snapshots(m, data, **how)[-1]) for m in (alone, apart))
    assert close(ours, theirs, 1e-12)  # Ditto without a pull is separate training


# ---- personal models and states


@pytest.mark.parametrize(
    ("name", "options"),
    [("pfedme", {}), ("apfl", {}), ("apfl", {"adaptive": True}), ("fedspeed", {})],
)
def test_absent_clients_keep_their_states(name, options):
    data = federation()
    algo = make(name, **options)
    run = snapshots(algo, data, rounds=5, work=DRAWN, participation=0.4)
    seen = set()
    for before, after in pairwise(run):
        absent = np.setdiff1d(np.arange(data.num_clients), after.cohort)
        assert all(
            torch.equal(before.clients[k][absent], after.clients[k][absent]) for k in after.clients
        )
        assert not torch.equal(
            before.clients[next(iter(after.clients))], after.clients[next(iter(after.clients))]
        )
        seen |= set(after.cohort.tolist())
    for k in set(range(data.num_clients)) - seen:  # never drawn
        if "personal" in run[0].clients:
            assert torch.equal(run[-1].clients["personal"][k], start_of(data))


@pytest.mark.parametrize("name", ["feddyn", "fedspeed", "pfedme", "apfl"])
def test_states_in_a_file_are_those_in_memory(name, tmp_path):
    data, how = federation(), {"rounds": 4, "work": DRAWN, "participation": 0.6}
    algo = make(name)
    here = snapshots(algo, data, **how)[-1]
    there = snapshots(
        algo, data, allocator=StateAllocator(torch.device("cpu"), "file", tmp_path), **how
    )[-1]
    assert list(tmp_path.iterdir())
    assert torch.equal(deployed(algo, here), deployed(algo, there))
    assert all(torch.equal(here.clients[k], there.clients[k]) for k in here.clients)


# ---- compiled code, values, refusals


@pytest.mark.parametrize(
    ("name", "options", "known"),
    [
        ("feddyn", {}, True),
        ("feddyn", {"weights": "size", "examples": [1]}, False),
        ("fedexp", {}, True),
        ("fedcm", {}, True),
        ("mimelite", {}, True),
        ("mimelite", {"base": "adam"}, False),
        ("fedsam", {}, False),
        ("mofedsam", {}, False),
        ("fedspeed", {}, False),
        ("pfedme", {}, False),
        ("apfl", {}, False),
    ],
)
def test_which_local_phases_compiled_code_takes(name, options, known):
    assert DenseKernel.supports(make(name, **options).step) == known


@pytest.mark.parametrize(
    "name", ["feddyn", "fedcm", "mimelite", "mofedsam", "fedspeed", "pfedme", "apfl"]
)
def test_rules_that_are_stated_for_plain_steps_take_no_other(name):
    adaptive = Optimizer(lambda w: {}, lambda g, s: (g, {}), parts=("adaptive steps",))
    others = [sgd(momentum=0.1), sgd(weight_decay=0.1), sgd(clip_norm=10.0), adaptive]
    for solver, part in zip(
        others, ("momentum", "weight decay", "clipping", "adaptive steps"), strict=True
    ):
        with pytest.raises(
            RequestError, match=f"^{name} cannot be combined with local {part}: .*; use "
        ):
            make(name, solver)
