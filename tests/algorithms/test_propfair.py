"""PropFair: identities, invariances and worked numbers, in float64."""

import numpy as np
import pytest
import torch
from reference import loss_and_grad
from tools import close, federation, final, make
from toy_problems import BATCHES, FULL, D, start_of

from fedbench.core.optim import sgd
from fedbench.simulation.local_work import LocalWork


def test_one_client_of_propfair_is_not_fedavg():
    """The factor 1/(M - F) stays: the first full-batch step is that much longer."""
    data = federation(sizes=(23,))
    start, rows = start_of(data), data.train.split()[0]
    loss, grad = loss_and_grad(start.numpy(), data.x[rows].numpy(), data.y[rows].numpy())
    after = final(make("propfair"), data, rounds=1, work=FULL)
    assert close(start - after, torch.from_numpy(0.1 / (2 - loss) * grad), 1e-12)


@pytest.mark.parametrize("participation", [1.0, 0.6])
@pytest.mark.parametrize(("tail", "rate"), [("huber", 0.1 / 60), ("scaled", 0.1 / 50)])
def test_propfair_in_its_tail_is_fedavg_at_another_rate(tail, rate, participation):
    data, solver, how = (
        federation(),
        sgd(momentum=0.5),
        {"rounds": 4, "participation": participation},
    )
    ours = final(make("propfair", solver, M=50.0, eps=60.0, tail=tail), data, work=BATCHES, **how)
    plain = final(
        make("fedavg", solver), data, work=LocalWork(lr=rate, batch_size=10, epochs=(2, 2)), **how
    )
    assert close(ours, plain, 1e-10)


def test_propfair_with_a_distant_baseline_tends_to_fedavg():
    data = federation()
    plain = final(make("fedavg"), data, rounds=3, work=BATCHES)
    apart = [
        (final(make("propfair", M=m), data, rounds=3, work=LocalWork(0.1 * m, 10, (2, 2))) - plain)
        .norm()
        .item()
        for m in (1e4, 1e5)
    ]
    assert apart[0] / apart[1] == pytest.approx(10, rel=1e-2)


@pytest.mark.parametrize(("M", "eps", "tail"), [(2.0, 0.2, "huber"), (1.6, 0.9, "huber")])
def test_propfair_descends_its_objective(M, eps, tail):
    """One full-batch step is a step on Σ p_k φ(F_k), φ = -log(M - F), continued with slope 1/ε; finite differences."""
    data = federation()
    start, owned = start_of(data).numpy(), data.train.split()
    n = np.array([len(rows) for rows in owned])

    def objective(w):
        total = 0.0
        for share, rows in zip(n / n.sum(), owned, strict=True):
            loss = loss_and_grad(w, data.x[rows].numpy(), data.y[rows].numpy())[0]
            total += share * (
                -np.log(M - loss) if M - loss >= eps else (loss - (M - eps)) / eps - np.log(eps)
            )
        return total

    slope = [
        (objective(start + 1e-6 * e) - objective(start - 1e-6 * e)) / 2e-6
        for e in np.eye(len(start))
    ]
    step = start_of(data) - final(
        make("propfair", M=M, eps=eps, tail=tail), data, rounds=1, work=FULL
    )
    assert close(step / 0.1, torch.tensor(slope, dtype=D), 1e-7)
