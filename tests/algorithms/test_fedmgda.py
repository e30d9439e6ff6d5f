"""FedMGDA+: identities, invariances and worked numbers, in float64."""

import pytest
import torch
from tools import make
from toy_problems import D, cohort


@pytest.mark.parametrize("seed", range(5))
def test_common_descent(seed):
    gen = torch.Generator().manual_seed(seed)
    g = torch.randn(8, 5, generator=gen, dtype=D) + torch.tensor([1.0, 0, 0, 0, 0], dtype=D)
    algo = make("fedmgda", eps=1.0)
    d = -algo.update(
        algo.server_init(torch.zeros(5, dtype=D), 8), {"delta": g}, cohort([1 / 8] * 8)
    )["w"]
    unit = g / g.norm(dim=1, keepdim=True)
    assert (unit @ d - d @ d).min() > -1e-8
    # any weights that give d: those with slack are 0
    active = torch.linalg.lstsq(unit.T, d).solution
    assert (((unit @ d - d @ d) * active.abs()).abs() < 1e-6).sum() >= 1


def test_a_silent_client_does_not_stop_the_others():
    g = torch.tensor([[1.0, 0], [0, 0], [0, 2]], dtype=D)
    algo = make("fedmgda", eps=1.0)
    w = algo.update(
        algo.server_init(torch.zeros(2, dtype=D), 3), {"delta": g}, cohort([0.2, 0.6, 0.2])
    )["w"]
    assert w.tolist() == pytest.approx([-0.5, -0.5], abs=1e-8)
    still = algo.update(
        algo.server_init(torch.zeros(2, dtype=D), 3), {"delta": 0 * g}, cohort([0.2, 0.6, 0.2])
    )["w"]
    assert not still.any()


def test_the_bound_holds_the_weights():
    """Δ = (1, 0), (0, 1), prior (0.9, 0.1): MGDA has ½, ½; with ε = 0.1 the weights stop at 0.8, 0.2."""
    algo = make("fedmgda", eps=0.1)
    w = algo.update(
        algo.server_init(torch.zeros(2, dtype=D), 2),
        {"delta": torch.eye(2, dtype=D)},
        cohort([0.9, 0.1]),
    )
    assert w["w"].tolist() == pytest.approx([-0.8, -0.2], abs=1e-9)
