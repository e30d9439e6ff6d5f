"""AFL: identities, invariances and worked numbers, in float64."""

import pytest
import torch
from tools import close, federation, make, snapshots
from toy_problems import D, cohort

from fedbench.core.types import ClientInfo


def test_the_mixture_stays_on_the_simplex_and_the_average_finds_the_minimax_point():
    """F_1 = w²/2, F_2 = (w-1)²/2 + 0.2: they meet at w = 0.7, the least largest loss."""
    algo = make("afl", lr_lambda=0.02, average=True)
    server = algo.server_init(torch.tensor([0.0], dtype=D), 2)
    for _ in range(8_000):
        w = server["w"]
        loss = torch.cat([w**2 / 2, (w - 1) ** 2 / 2 + 0.2])
        delta = 0.02 * torch.stack([w, w - 1])
        server = algo.update(server, {"delta": delta}, cohort([0.5, 0.5], loss=loss))
        low, high = server["lambda"].tolist()
        assert min(low, high) >= 0
        assert abs(low + high - 1) < 1e-9
    assert algo.deploy(server, {}).item() == pytest.approx(0.7, abs=5e-3)


def test_average_is_of_the_models_after_each_round():
    data = federation()
    models = [s.server["w"] for s in snapshots(make("afl"), data, rounds=5)]
    algo = make("afl", average=True)
    seen = snapshots(algo, data, rounds=5)
    assert torch.equal(algo.deploy(seen[0].server, {}), models[0])
    assert close(algo.deploy(seen[-1].server, {}), torch.stack(models[1:]).mean(0), 1e-12)


def test_partial_participation_touches_the_cohort_before_the_projection():
    """N = 4, cohort {1, 3}, λ = ¼ each: weights ½, ½; λ + γ F = (¼, ¼ + .1, ¼, ¼ + .3), by hand 0.1 less after Π."""
    algo = make("afl", lr_lambda=0.1, partial=True)
    server = algo.server_init(torch.zeros(2, dtype=D), 4)
    info = cohort([0.5, 0.5], loss=torch.tensor([1.0, 3.0], dtype=D))
    info = ClientInfo(**{**info.__dict__, "id": torch.tensor([1, 3])})
    after = algo.update(server, {"delta": torch.eye(2, dtype=D)}, info)
    assert after["w"].tolist() == [-0.5, -0.5]
    assert after["lambda"].tolist() == pytest.approx([0.15, 0.25, 0.15, 0.45])
    # all λ of the cohort are 0: uniform
    server = {**server, "lambda": torch.tensor([1.0, 0, 0, 0], dtype=D)}
    assert algo.update(server, {"delta": torch.eye(2, dtype=D)}, info)["w"].tolist() == [-0.5, -0.5]
