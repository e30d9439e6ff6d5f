"""GIFAIR-FL: identities, invariances and worked numbers, in float64."""

import numpy as np
import pytest
import torch
from reference import loss_and_grad
from tools import close, federation, final, make
from toy_problems import FULL, D, cohort, fair_cohort, start_of, vector

from fedbench.simulation.local_work import LocalWork


def test_gifair_by_hand():
    """p = (.5, .3, .2), F = (1, 2, 3), share 1/2: r = (-2, 0, 2), λ = .05."""
    info = cohort([0.5, 0.3, 0.2], loss=vector(1.0, 2.0, 3.0))
    algo = make("gifair")
    server = algo.server_init(torch.zeros(3, dtype=D), 3)
    w = algo.update(server, {"delta": torch.eye(3, dtype=D)}, info)["w"]
    assert (-w).tolist() == pytest.approx([0.4, 0.3, 0.3], abs=1e-14)
    factors = make("gifair", form="local").instruct(server, info)["factor"]
    assert factors.tolist() == pytest.approx([0.8, 1.0, 1.5], abs=1e-14)
    # a tie is 0 towards each other: r = (-1, -1, 2)
    equal = cohort([0.5, 0.3, 0.2], loss=vector(1.0, 1.0, 3.0))
    w = algo.update(server, {"delta": torch.eye(3, dtype=D)}, equal)["w"]
    assert (-w).tolist() == pytest.approx([0.45, 0.25, 0.3], abs=1e-14)


def test_gifair_weights_are_positive_and_sum_to_one():
    """Σ r_k = 0, and λ (C-1) < min p_k, whatever the losses; ties included."""
    rng = np.random.default_rng(0)
    for count in (1, 2, 7, 30):
        n, losses = rng.integers(1, 100, count), rng.integers(0, 6, count) / 3
        algo = make("gifair", share=0.99)
        server = algo.server_init(torch.zeros(count, dtype=D), count)
        weights = -algo.update(
            server, {"delta": torch.eye(count, dtype=D)}, cohort(n / n.sum(), loss=vector(*losses))
        )["w"]
        assert weights.min() > 0
        assert weights.sum().item() == pytest.approx(1, abs=1e-12)


def test_gifair_forms_agree_for_one_step_and_to_second_order_otherwise():
    data = federation()
    one = [final(make("gifair", form=f), data, rounds=3, work=FULL) for f in ("server", "local")]
    assert close(*one, 1e-10)
    apart = []
    for lr in (0.02, 0.01):
        work = LocalWork(lr=lr, batch_size=None, steps=5)
        a, b = (
            final(make("gifair", form=f), data, rounds=1, work=work) for f in ("server", "local")
        )
        apart.append((a - b).norm().item())
    assert apart[0] / apart[1] == pytest.approx(4, rel=0.1)


def test_gifair_descends_its_objective():
    """One full-batch step is a step on Σ p_k F_k + λ Σ_{i<j} |F_i - F_j|; finite differences."""
    data = federation()
    start, owned = start_of(data).numpy(), data.train.split()
    n = np.array([len(rows) for rows in owned])
    lam = 0.7 * n.min() / n.sum() / (len(n) - 1)

    def objective(w):
        f = np.array(
            [loss_and_grad(w, data.x[rows].numpy(), data.y[rows].numpy())[0] for rows in owned]
        )
        return n / n.sum() @ f + lam * np.abs(f[:, None] - f).sum() / 2

    slope = [
        (objective(start + 1e-6 * e) - objective(start - 1e-6 * e)) / 2e-6
        for e in np.eye(len(start))
    ]
    step = start_of(data) - final(make("gifair", share=0.7), data, rounds=1, work=FULL)
    assert close(step / 0.1, torch.tensor(slope, dtype=D), 1e-7)


def test_gifair_ranks_the_losses_of_the_last_participation():
    """Clients 0 and 2 have been seen with losses 5 and 1; client 1 has not, and is level with both: r = (1, 0, -1)."""
    algo = make("gifair", rank_at="last", weights="uniform")
    server = algo.server_init(torch.zeros(3, dtype=D), 3)
    server = algo.update(
        server, {"delta": torch.zeros(2, 3, dtype=D)}, fair_cohort([0, 2], loss=[5.0, 1.0])
    )
    w = algo.update(
        server, {"delta": torch.eye(3, dtype=D)}, fair_cohort([0, 1, 2], loss=[1.0, 2.0, 3.0])
    )["w"]
    assert (-w).tolist() == pytest.approx([1 / 3 + 1 / 12, 1 / 3, 1 / 3 - 1 / 12], abs=1e-14)
