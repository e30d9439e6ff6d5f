"""AFL: worked numbers, in float64."""

import pytest
import torch
from tools import (
    close,
    federation,
    make,
    snapshots,
)
from toy_problems import cohort, updated, vector


def test_the_mixture_stays_on_the_simplex_and_the_average_finds_the_minimax_point():
    """F_1 = w²/2, F_2 = (w-1)²/2 + 0.2: they meet at w = 0.7, the least largest loss."""
    algo = make("afl", lr_lambda=0.05, average=True)
    server = algo.server_init(vector(0.0), 2)
    for _ in range(3_000):
        w = server["w"]
        losses = torch.cat([w**2 / 2, (w - 1) ** 2 / 2 + 0.2])
        updates = 0.05 * torch.stack([w, w - 1])
        server = updated(
            algo,
            updates,
            cohort(2, loss=losses),
            server,
        )
        assert server["lambda"].min() >= 0
        assert server["lambda"].sum() == pytest.approx(1, abs=1e-9)
    assert algo.deploy(server, {}) == pytest.approx(0.7, abs=5e-3)


def test_the_average_is_of_the_models_after_each_round():
    algo = make("afl", average=True)
    seen = [s.server for s in snapshots(algo, federation(), rounds=5)]
    models = torch.stack([server["w"] for server in seen])
    assert torch.equal(algo.deploy(seen[0], {}), models[0])
    assert close(
        algo.deploy(seen[-1], {}),
        models[1:].mean(0),
        1e-12,
    )


def test_partial_participation_touches_the_cohort_before_the_projection():
    """N = 4, cohort {1, 3}, λ = ¼ each: weights ½, ½; λ + γ F = (¼, ¼ + .1, ¼, ¼ + .3), by hand 0.1
    less after Π.
    """
    algo = make("afl", lr_lambda=0.1, partial=True)
    server = algo.server_init(torch.zeros(2).double(), 4)
    info = cohort(2, ids=[1, 3], loss=[1.0, 3.0])

    after = updated(algo, torch.eye(2), info, server)
    assert after["w"].tolist() == [-0.5, -0.5]
    assert after["lambda"] == pytest.approx([0.15, 0.25, 0.15, 0.45])

    # all λ of the cohort are 0: uniform
    server["lambda"] = vector(1.0, 0.0, 0.0, 0.0)
    after = updated(algo, torch.eye(2), info, server)
    assert after["w"].tolist() == [-0.5, -0.5]
