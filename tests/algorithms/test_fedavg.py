"""FedAvg, and the settings in which other methods are FedAvg, in float64."""

import pytest
from tools import (
    any_solver,
    federation,
    share,
)
from toy_problems import (
    BATCHES,
    DRAWN,
    REDUCTIONS,
    UNIFORM,
    apart,
)

from fedbench.core.optim import sgd

WEIGHTS = {"size": "fedavg_by_size", "uniform": "fedavg_uniformly"}
CASES = [(method, weights) for weights, part in WEIGHTS.items() for method in REDUCTIONS[part]]


@pytest.mark.parametrize(("method", "weights"), CASES)
def test_a_method_reduces_to_fedavg(method, weights):
    how = {
        "solver": any_solver(method),
        "rounds": 5,
        "work": DRAWN,
        "participation": share(method),
    }
    assert apart(method, ("fedavg", {"weights": weights}), **how) < 1e-10


@pytest.mark.parametrize("method", REDUCTIONS["fedavg_of_one_client"])
def test_one_client_is_fedavg(method):
    data = federation(sizes=(23,))
    assert (
        apart(
            method,
            "fedavg",
            data=data,
            rounds=4,
            work=BATCHES,
        )
        < 1e-10
    )


@pytest.mark.parametrize("solver", [{}, {"momentum": 0.5}])
def test_qfedavg_without_fairness_is_uniform_fedavg_for_any_lipschitz_constant(solver):
    how = {"solver": sgd(**solver), "rounds": 5}
    for constant in (None, 37.0):
        method = ("qfedavg", {"q": 0.0, "L": constant})
        assert apart(method, ("fedavg", UNIFORM), **how) < 1e-10
        assert apart(method, "fedavg", **how) > 1e-3
