"""FedExP: identities, invariances and worked numbers, in float64."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from tools import close, deployed, federation, make, snapshots
from toy_problems import BATCHES, D, facts


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
