"""AdaFedAdam: identities, invariances and worked numbers, in float64."""

import numpy as np
import pytest
import torch
from tools import close, federation, make, snapshots, task_for
from toy_problems import constant_gradients, step_on_linear_losses

from fedbench.simulation.local_work import LocalWork


def cohorts_of_batches(seed=0):
    """Two clients whose data are new in every round: clients 2t and 2t + 1 hold the two minibatches of round t."""
    return federation(sizes=[4, 9] * 10, seed=seed), lambda t, n, s: np.array([2 * t, 2 * t + 1])


def _with_losses(algo):
    """The same method with the loss probe answered by ones: a linear loss has no sign."""

    def update(server, up, cohort):
        probe = {**cohort.probe, "loss": torch.ones(len(cohort.id), dtype=torch.float64)}
        return algo.update(server, up, type(cohort)(**{**cohort.__dict__, "probe": probe}))

    return type(algo)(**{**algo.__dict__, "update": update})


# 7: AdaFedAdam with one local full-batch step is Adam on Σ ω_k g_k, whatever the local rate
@pytest.mark.parametrize("alpha", [0.0, 1, 2.0])  # 1: an integer, as Python code may pass it
def test_one_full_batch_step_is_adam(alpha):
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


def test_one_minibatch_step_is_minibatch_adam():
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


def test_the_length_over_all_data_is_not_minibatch_adam():
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


def test_linear_loss_and_several_steps():
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
