"""FedMGDA+: invariances and worked numbers, in float64."""

import pytest
import torch
from tools import make
from toy_problems import D, moved


@pytest.mark.parametrize("seed", range(5))
def test_no_loss_rises_along_the_direction(seed):
    """No vertex of the hull has a smaller product with its shortest vector than ||d||²."""
    gen = torch.Generator().manual_seed(seed)
    g = torch.randn(8, 5, generator=gen, dtype=D)
    g[:, 0] += 1
    d = moved(make("fedmgda", eps=1.0), g)
    unit = g / g.norm(dim=1, keepdim=True)
    slack = unit @ d - d @ d
    assert slack.min() > -1e-8
    assert slack.min() < 1e-6


def test_a_silent_client_does_not_stop_the_others():
    algo = make("fedmgda", eps=1.0)
    g = torch.tensor([[1.0, 0.0], [0.0, 0.0], [0.0, 2.0]])
    assert moved(
        algo,
        g,
        [0.2, 0.6, 0.2],
    ) == pytest.approx([0.5, 0.5], abs=1e-8)
    assert not moved(algo, 0 * g).any()


@pytest.mark.parametrize("eps", [0.05, 0.5, 1.0])
def test_a_single_client_that_moved_has_all_the_weight(eps):
    g = torch.tensor([[0.0, 0.0], [3.0, 4.0], [0.0, 0.0]])
    assert moved(make("fedmgda", eps=eps), g, [0.7, 0.1, 0.2]) == pytest.approx([0.6, 0.8])
