"""FedNova: identities, invariances and worked numbers, in float64."""

import pytest
import torch
from tools import close, federation, final, make
from toy_problems import constant_gradients, step_on_linear_losses

from fedbench.core.optim import sgd
from fedbench.simulation.local_work import LocalWork


@pytest.mark.parametrize("solver", [{}, {"momentum": 0.9}, {"momentum": 0.9, "nesterov": True}])
def test_fednova_with_equal_steps_is_fedavg(solver):
    data = federation(sizes=(21, 30, 24, 28))  # three steps of 10 each, whatever the size
    assert close(
        final(make("fednova", sgd(**solver)), data, rounds=5),
        final(make("fedavg", sgd(**solver)), data, rounds=5),
        1e-10,
    )
    unequal = federation()
    a, b = (final(make(m, sgd(**solver)), unequal, rounds=5) for m in ("fednova", "fedavg"))
    assert not close(a, b, 1e-3)


# 4: FedNova's direction is the weighted mean gradient whatever the local work; FedAvg's is not
@pytest.mark.parametrize("solver", [{}, {"momentum": 0.9}, {"momentum": 0.5, "nesterov": True}])
def test_fednova_on_linear_losses(solver):
    sizes = (5, 31, 12, 80)  # 1, 4, 2 and 8 steps
    data, g = constant_gradients(sizes, 6)
    mean = (torch.tensor(sizes, dtype=torch.float64) / sum(sizes)) @ g
    work = LocalWork(lr=0.1, batch_size=10)

    def cosine(name):
        w = step_on_linear_losses(make(name, sgd(**solver)), data, 6, work)[-1]["w"]
        return torch.nn.functional.cosine_similarity(-w, mean, dim=0).item()

    assert cosine("fednova") == pytest.approx(1, abs=1e-12)
    assert cosine("fedavg") < 0.99


def test_step_length_is_tau_eff():
    """By hand: sizes 10 and 30 with batch 10 take 1 and 3 steps; τ_eff = (10·1 + 30·3)/40 = 2.5; step 2.5 η Σ p g."""
    data, g = constant_gradients((10, 30), 4)
    w = step_on_linear_losses(make("fednova"), data, 4, LocalWork(lr=0.1, batch_size=10))[-1]["w"]
    assert torch.allclose(w, -2.5 * 0.1 * (0.25 * g[0] + 0.75 * g[1]), rtol=0, atol=1e-14)
