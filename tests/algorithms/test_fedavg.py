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
    UNIFORM,
    apart,
)

from fedbench.core.optim import sgd

BY_SIZE = [
    ("fedprox", {"mu": 0.0}),
    ("fedavgm", {"beta": 0.0}),
    ("fedavgm", {"beta": 0.0, "nesterov": True}),
    ("term", {"t": 0.0, "weights": "size"}),
    ("fedmgda", {"eps": 0.0, "normalize": False}),
    ("ditto", {"lam": 3.0}),
    ("fedcorr", {"iterations": 0, "mixup": False}),
    ("gifair", {"share": 0.0}),
    ("gifair", {"share": 0.0, "form": "local"}),
    ("fedexp", {"eps": 1e20, "average": False}),
    ("fedcm", {"alpha": 1.0, "weights": "size"}),
    ("pfedme", {"inner": 1, "lam": 4.0, "personal_lr": 0.25, "start": "reset"}),
    ("apfl", {"alpha": 0.7}),
]
UNIFORMLY = [
    ("term", {"t": 0.0}),
    ("fedmgda", {"eps": 0.0, "normalize": False, "prior": "uniform"}),
    ("afl", {"lr_lambda": 0.0}),
    ("fedfv", {"alpha": 1.0, "tau": 0}),
    ("fedfv", {"alpha": 1.0, "tau": 0, "history": "paper"}),
    ("gifair", {"share": 0.0, "rank_at": "last", **UNIFORM}),
    ("drfa", {"gamma": 0.0}),
    ("drfa", {"gamma": 0.0, "snapshot": "random"}),
    ("fedheal", {"threshold": -1.0, "beta": 0.0}),
    ("fedcm", {"alpha": 1.0}),
    ("fedsam", {"rho": 0.0}),
    ("mofedsam", {"rho": 0.0, "alpha": 1.0}),
    ("mimelite", {"beta1": 0.0}),
    ("apfl", {"alpha": 0.2, "adaptive": True, **UNIFORM}),
]


@pytest.mark.parametrize(
    ("method", "weights"),
    [*((m, "size") for m in BY_SIZE), *((m, "uniform") for m in UNIFORMLY)],
)
def test_a_method_reduces_to_fedavg(method, weights):
    how = {
        "solver": any_solver(method),
        "rounds": 5,
        "work": DRAWN,
        "participation": share(method),
    }
    assert apart(method, ("fedavg", {"weights": weights}), **how) < 1e-10


@pytest.mark.parametrize(
    "method",
    [
        ("fedfv", {"tau": 2}),
        ("gifair", {"share": 0.9}),
        ("gifair", {"share": 0.9, "form": "local"}),
        ("drfa", {}),
        ("drfa", {"snapshot": 1}),
        ("fedmdfg", {}),
        ("fedheal", {"threshold": -1.0}),
        ("fedexp", {"average": False}),
        ("apfl", {}),
    ],
)
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
