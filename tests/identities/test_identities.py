"""Statements that reduce a method to another or to a closed form, in float64."""

from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from tools import close, federation, final, make, simulated, snapshots, task_for

from fedbench.core.algorithm import Stage
from fedbench.core.optim import sgd
from fedbench.core.randomness import sample_cohort
from fedbench.core.types import Batch
from fedbench.data.dataset import FederatedDataset, Rows
from fedbench.simulation.engine import Engine
from fedbench.simulation.local_work import LocalWork

UNIFORM = {"weights": "uniform"}


# 1: these are FedAvg
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("fedprox", {"mu": 0.0}),
        ("fedavgm", {"beta": 0.0}),
        ("fedavgm", {"beta": 0.0, "nesterov": True}),
    ],
)
def test_1_reduces_to_fedavg(name, options):
    data = federation()
    for solver in (sgd(), sgd(momentum=0.9)):
        plain = final(make("fedavg", solver), data, rounds=5)
        assert close(final(make(name, solver, **options), data, rounds=5), plain, 1e-10)


@pytest.mark.parametrize("solver", [{}, {"momentum": 0.9}, {"momentum": 0.9, "nesterov": True}])
def test_1_fednova_with_equal_steps_is_fedavg(solver):
    data = federation(sizes=(21, 30, 24, 28))  # three steps of 10 each, whatever the size
    assert close(
        final(make("fednova", sgd(**solver)), data, rounds=5),
        final(make("fedavg", sgd(**solver)), data, rounds=5),
        1e-10,
    )
    unequal = federation()
    a, b = (final(make(m, sgd(**solver)), unequal, rounds=5) for m in ("fednova", "fedavg"))
    assert not close(a, b, 1e-3)


# 2: q-FedAvg with q = 0 is FedAvg with uniform weights, for any L
@pytest.mark.parametrize("L", [None, 1.0, 37.0])
def test_2_qfedavg_without_fairness_is_uniform_fedavg(L):
    data = federation()
    plain = final(make("fedavg", **UNIFORM), data, rounds=5)
    assert close(final(make("qfedavg", q=0.0, L=L), data, rounds=5), plain, 1e-10)
    assert not close(
        final(make("qfedavg", q=0.0, L=L), data, rounds=5),
        final(make("fedavg"), data, rounds=5),
        1e-3,
    )


class LinearLosses:
    """F(w; batch) = w · (mean of the batch's inputs): clients with equal inputs have a constant gradient."""

    def grad(self, w, batch: Batch):
        return (batch.x * batch.weight.unsqueeze(2)).sum(1)

    def loss_and_grad(self, w, batch: Batch):
        g = self.grad(w, batch)
        return (w * g).sum(1, keepdim=True), g


def constant_gradients(sizes, dimension, seed=0):
    """A federation whose client k has the gradient g_k [N, P] everywhere, and these gradients."""
    rng = np.random.default_rng(seed)
    g = rng.normal(size=(len(sizes), dimension))
    at = np.concatenate([[0], np.cumsum(sizes)])
    data = FederatedDataset(
        x=torch.from_numpy(np.repeat(g, sizes, axis=0)),
        y=torch.zeros(sum(sizes), dtype=torch.int64),
        train=Rows.of([np.arange(a, b) for a, b in pairwise(at)]),
        test=Rows.of([np.arange(0)] * len(sizes)),
        names=tuple(map(str, range(len(sizes)))),
        classes=1,
        dtype=torch.float64,
    )
    return data, torch.from_numpy(g)


def step_on_linear_losses(algo, data, dimension, work, rounds=1):
    """The models after each round, from 0; of a task only the work of an example counts."""
    engine = Engine(LinearLosses(), "stacked", 100)
    task = SimpleNamespace(traits=SimpleNamespace(work_values=1))
    w = torch.zeros(dimension, dtype=torch.float64)
    run = simulated([Stage(algo, rounds)], task, data, work, engine, w, 0, sample_cohort())
    return [s.server for s in run]


# 4: FedNova's direction is the weighted mean gradient whatever the local work; FedAvg's is not
@pytest.mark.parametrize("solver", [{}, {"momentum": 0.9}, {"momentum": 0.5, "nesterov": True}])
def test_4_fednova_on_linear_losses(solver):
    sizes = (5, 31, 12, 80)  # 1, 4, 2 and 8 steps
    data, g = constant_gradients(sizes, 6)
    mean = (torch.tensor(sizes, dtype=torch.float64) / sum(sizes)) @ g
    work = LocalWork(lr=0.1, batch_size=10)

    def cosine(name):
        w = step_on_linear_losses(make(name, sgd(**solver)), data, 6, work)[-1]["w"]
        return torch.nn.functional.cosine_similarity(-w, mean, dim=0).item()

    assert cosine("fednova") == pytest.approx(1, abs=1e-12)
    assert cosine("fedavg") < 0.99


def test_4_step_length_is_tau_eff():
    """By hand: sizes 10 and 30 with batch 10 take 1 and 3 steps; τ_eff = (10·1 + 30·3)/40 = 2.5; step 2.5 η Σ p g."""
    data, g = constant_gradients((10, 30), 4)
    w = step_on_linear_losses(make("fednova"), data, 4, LocalWork(lr=0.1, batch_size=10))[-1]["w"]
    assert torch.allclose(w, -2.5 * 0.1 * (0.25 * g[0] + 0.75 * g[1]), rtol=0, atol=1e-14)


# 6: FedAdam in torch's form is torch's Adam on the pseudo-gradient
def test_6_fedadam_is_torch_adam():
    data = federation()
    work = LocalWork(lr=0.1, batch_size=None, epochs=(2, 2))
    options = {
        "beta1": 0.9,
        "beta2": 0.999,
        "tau": 1e-8,
        "v0": 0.0,
        "bias_correction": True,
        "server_lr": 1e-2,
    }
    ours = final(make("fedadam", **options), data, work=work, rounds=12)
    w = torch.nn.Parameter(task_for(data).init(torch.Generator().manual_seed(0)))
    adam = torch.optim.Adam([w], lr=1e-2, betas=(0.9, 0.999), eps=1e-8)
    for _ in range(12):
        w.grad = w.detach() - final(make("fedavg"), data, work=work, rounds=1, w=w.detach().clone())
        adam.step()
    assert close(ours, w.detach(), 1e-10)


def test_6_first_step_of_reddis_form():
    """By hand: m = (1-β1) d, v = β2 τ² + (1-β2) d², w - η m / (√v + τ)."""
    data = federation()
    start = task_for(data).init(torch.Generator().manual_seed(0))
    d = start - final(make("fedavg"), data, rounds=1)
    ours = final(make("fedadam", server_lr=0.5, beta1=0.8, beta2=0.95, tau=0.01), data, rounds=1)
    want = start - 0.5 * 0.2 * d / ((0.95 * 0.01**2 + 0.05 * d.square()).sqrt() + 0.01)
    assert close(ours, want, 1e-12)


# 7: AdaFedAdam with one local full-batch step is Adam on Σ ω_k g_k, whatever the local rate
@pytest.mark.parametrize("alpha", [0.0, 1, 2.0])  # 1: an integer, as Python code may pass it
def test_7_one_full_batch_step_is_adam(alpha):
    data = federation()
    task = task_for(data)
    runs = [
        snapshots(
            make("adafedadam", alpha=alpha, server_lr=1e-2),
            data,
            work=LocalWork(lr, None),
            rounds=10,
        )
        for lr in (0.01, 3.0)
    ]
    assert close(runs[0][-1].server["w"], runs[1][-1].server["w"], 1e-9)
    w = torch.nn.Parameter(task.init(torch.Generator().manual_seed(0)))
    adam = torch.optim.Adam([w], lr=1e-2)
    owned = data.train.split()
    for _ in range(10):
        losses = [
            torch.nn.functional.cross_entropy(task.predict(w, data.x[r]), data.y[r]) for r in owned
        ]
        grads = torch.stack([torch.autograd.grad(f, w, retain_graph=True)[0] for f in losses])
        omega = (
            torch.tensor(data.train.counts, dtype=torch.float64)
            * torch.stack(losses).detach() ** alpha
        )
        w.grad = (omega / omega.sum()) @ grads
        adam.step()
    assert close(runs[0][-1].server["w"], w.detach(), 1e-9)
    # χ = 1 in every round
    assert runs[0][-1].server["c_m"].item() == pytest.approx(0.9**10, rel=1e-9)


def cohorts_of_batches(seed=0):
    """Two clients whose data are new in every round: clients 2t and 2t + 1 hold the two minibatches of round t."""
    return federation(sizes=[4, 9] * 10, seed=seed), lambda t, n, s: np.array([2 * t, 2 * t + 1])


def test_7_one_minibatch_step_is_minibatch_adam():
    """With α = 0 and the gradient's length that of the minibatch: Adam on the clients' minibatches put together.

    A client makes one step on all that it holds, so that its minibatch, its step and the length are
    of the same examples; Σ n_k g_k / Σ n_k is the gradient of the mean loss over them all.
    """
    data, sampler = cohorts_of_batches()
    algo = make("adafedadam", alpha=0.0, server_lr=1e-2)
    seen = snapshots(algo, data, work=LocalWork(0.05, None), rounds=10, sampler=sampler)
    task = task_for(data)
    w = torch.nn.Parameter(task.init(torch.Generator().manual_seed(0)))
    adam = torch.optim.Adam([w], lr=1e-2)
    owned = data.train.split()
    for t in range(10):
        rows = torch.cat([torch.as_tensor(owned[k]) for k in (2 * t, 2 * t + 1)])
        adam.zero_grad()
        torch.nn.functional.cross_entropy(task.predict(w, data.x[rows]), data.y[rows]).backward()
        adam.step()
        assert close(seen[t + 1].server["w"], w.detach(), 1e-9)


def test_7_the_length_over_all_data_is_not_minibatch_adam():
    """One client, one step on 4 of 40 examples: Adam's first step is η sign(g); here it is χ η sign(g), and χ is not 1.

    Algorithm 2 as printed takes ||∇F_k|| over all 40: U = g ||∇F|| / ||g|| and χ = ln(||g|| /
    ||∇F||) + 1, which is 1 only if both gradients are equally long. The moments decay with β^χ.
    """
    data, lr = federation(sizes=(40,)), 1e-2
    algo = make("adafedadam", alpha=0.0, server_lr=lr)
    first, second = snapshots(algo, data, work=LocalWork(0.05, 4, steps=1), rounds=1)
    moved = second.server["w"] - first.server["w"]
    chi = moved.abs().max().item() / lr
    assert abs(chi - 1) > 0.05
    # ε shortens small coordinates
    assert torch.allclose(moved.abs(), torch.full_like(moved, chi * lr), rtol=1e-4)
    assert second.server["c_m"].item() == pytest.approx(0.9**chi, rel=1e-4)


def test_7_linear_loss_and_several_steps():
    """One client, constant gradient, E steps: r = E η_l, so χ = ln E + 1, and every coordinate moves by χ η."""
    data, g = constant_gradients((10,), 5)
    for steps in (1, 4, 20):
        work = LocalWork(lr=0.05, batch_size=None, steps=steps)
        # one client: its weight is 1 whatever its loss; α = 0 leaves the losses (negative here) out
        probing = make("adafedadam", alpha=0.0, server_lr=1e-3)
        algo = type(probing)(**{**probing.__dict__, "needs": frozenset({"grad"})})
        algo = _with_losses(algo)
        servers = step_on_linear_losses(algo, data, 5, work, rounds=6)
        chi = np.log(steps) + 1
        for t, s in enumerate(servers):
            want = -t * chi * 1e-3 * g[0].sign()
            assert torch.allclose(s["w"], want, rtol=1e-5, atol=0)  # ε shortens a step by ε/|g|
        assert servers[-1]["c_m"].item() == pytest.approx(0.9 ** (6 * chi), rel=1e-9)


def _with_losses(algo):
    """The same method with the loss probe answered by ones: a linear loss has no sign."""

    def update(server, up, cohort):
        probe = {**cohort.probe, "loss": torch.ones(len(cohort.id), dtype=torch.float64)}
        return algo.update(server, up, type(cohort)(**{**cohort.__dict__, "probe": probe}))

    return type(algo)(**{**algo.__dict__, "update": update})


def test_fedavg_with_one_full_batch_step_is_gradient_descent():
    data = federation()
    task = task_for(data)
    ours = final(make("fedavg"), data, work=LocalWork(0.3, None), rounds=7)
    w = task.init(torch.Generator().manual_seed(0)).requires_grad_()
    rows = data.train.index
    for _ in range(7):  # Σ p_k F_k is the mean over all examples
        loss = torch.nn.functional.cross_entropy(task.predict(w, data.x[rows]), data.y[rows])
        w = (w - 0.3 * torch.autograd.grad(loss, w)[0]).detach().requires_grad_()
    assert close(ours, w.detach(), 1e-12)


def test_fedavgm_stationary_step_is_ten_times_fedavgs():
    """v <- β v + d without a factor 1-β: under a constant d the step grows to d / (1 - β)."""
    data, _ = constant_gradients((10, 20), 3)
    work = LocalWork(lr=0.1, batch_size=10)
    servers = step_on_linear_losses(make("fedavgm"), data, 3, work, rounds=200)
    plain = step_on_linear_losses(make("fedavg"), data, 3, work)[-1]["w"]
    assert torch.allclose(servers[-1]["w"] - servers[-2]["w"], 10 * plain, rtol=1e-8, atol=0)
