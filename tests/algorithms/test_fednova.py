"""FedNova: identities and worked numbers, in float64."""

import numpy as np
import pytest
import torch
from tools import federation, make
from toy_problems import D, apart, on_linear_losses

from fedbench.core.optim import sgd
from fedbench.simulation.local_work import LocalWork

WORK = LocalWork(lr=0.1, batch_size=10)
every_solver = pytest.mark.parametrize(
    "solver",
    [
        {},
        {"momentum": 0.9},
        {"momentum": 0.5, "nesterov": True},
    ],
)


@every_solver
def test_with_equal_steps_it_is_fedavg(solver):
    how = {"solver": sgd(**solver), "rounds": 5}
    equal = federation(sizes=(21, 30, 24, 28))  # three steps of 10 each, whatever the size
    assert apart("fednova", "fedavg", data=equal, **how) < 1e-10
    assert apart("fednova", "fedavg", **how) > 1e-3


@every_solver
def test_the_direction_is_the_weighted_mean_gradient_whatever_the_local_work(solver):
    """FedAvg's is not."""
    sizes = [5, 31, 12, 80]  # 1, 4, 2 and 8 steps
    rows = np.random.default_rng(0).normal(size=(4, 6))
    mean = torch.from_numpy(sizes @ rows)

    cosines = {}
    for name in ("fednova", "fedavg"):
        last = on_linear_losses(
            make(name, sgd(**solver)),
            WORK,
            rows,
            sizes,
        )[-1]
        cosine = torch.nn.functional.cosine_similarity(-last.server["w"], mean, dim=0)
        cosines[name] = cosine.item()

    assert cosines["fednova"] == pytest.approx(1, abs=1e-12)
    assert cosines["fedavg"] < 0.99


@pytest.mark.parametrize("rho", [0.9, 0.9999])
@pytest.mark.parametrize("nesterov", [False, True])
def test_local_steps_are_counted_in_float32_as_in_float64(rho, nesterov):
    """a_1 = 1 for any ρ (with Nesterov 1 + ρ): the formula cancels."""
    passes = sgd(momentum=rho, nesterov=nesterov).passes
    steps = torch.tensor([1.0, 7.0, 300.0])
    exact = passes(steps.to(D))
    assert passes(steps) == pytest.approx(exact.tolist(), rel=1e-6)
    assert exact[0] == pytest.approx(1 + rho * nesterov, rel=1e-6)
