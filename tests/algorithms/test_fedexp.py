"""FedExP: worked numbers and invariances, in float64."""

from itertools import pairwise

import pytest
import torch
from tools import (
    close,
    deployed,
    federation,
    make,
    snapshots,
)
from toy_problems import BATCHES, D, moved


def expanded(delta, n=None, eps=0.0, **options):
    """η_g d of one round."""
    return moved(make("fedexp", eps=eps, **options), delta, n)


@pytest.mark.parametrize(
    ("options", "factor"),
    [
        ({"eps": 0.05}, 1.75 / 1.725),
        ({"eps": 0.05, "eps_per_client": True}, 1.0),  # 1.75 / 1.825 < 1
        ({"eps": 0.01, "eps_per_client": True}, 1.75 / 1.665),
    ],
)
def test_a_step_by_hand(options, factor):
    """Δ = (2, 0), (0, 1), p = (1/4, 3/4): d = (.5, .75), Σ p ||Δ||² = 1.75, ||d||² = .8125."""
    step = expanded(
        [[2.0, 0.0], [0.0, 1.0]],
        [1.0, 3.0],
        **options,
    )
    assert step == pytest.approx([factor * 0.5, factor * 0.75])


def test_the_step_scales_with_the_updates_and_equal_ones_are_their_mean():
    g = torch.randn(
        5,
        7,
        generator=torch.Generator().manual_seed(0),
        dtype=D,
    )
    assert close(expanded(100 * g), 100 * expanded(g), 1e-13)
    assert expanded([[1.0, 2.0]] * 3) == pytest.approx([1.0, 2.0])


@pytest.mark.parametrize(
    "updates",
    [
        [[1.0, 0.0], [-1.0, 0.0]],
        [[0.0, 0.0]],
    ],
)  # 2/0 and 0/0
def test_updates_that_cancel_leave_the_model(updates):
    assert not expanded(updates).any()


def test_deploys_the_mean_of_the_last_two_models_and_trains_from_the_last():
    how = {"rounds": 4, "work": BATCHES, "participation": 0.6}
    algo = make("fedexp")
    seen = snapshots(algo, federation(), **how)
    last = snapshots(make("fedexp", average=False), federation(), **how)
    for ours, theirs in zip(seen, last, strict=True):
        assert torch.equal(ours.server["w"], theirs.server["w"])
    assert all(torch.equal(deployed(algo, s), s.server["w"]) for s in seen[:2])
    for before, after in pairwise(seen[1:]):
        mean = (before.server["w"] + after.server["w"]) / 2
        assert close(deployed(algo, after), mean, 1e-14)
