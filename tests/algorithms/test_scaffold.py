"""SCAFFOLD: identities and invariances, in float64."""

from itertools import pairwise

import pytest
from tools import (
    close,
    federation,
    make,
    snapshots,
)
from toy_problems import (
    FEDAVG,
    QUADRATIC,
    apart,
    run_on,
)

from fedbench.core.options import Schedule
from fedbench.simulation.local_work import LocalWork


@pytest.mark.parametrize("option", [1, 2])
def test_begins_as_fedavg(option):
    method = ("scaffold", {"option": option})
    assert apart(method, FEDAVG, rounds=1) < 1e-12
    assert apart(method, FEDAVG, rounds=3) > 1e-4


def test_with_one_step_it_is_fedavg():
    """Σ (c - c_k) = 0 over all clients."""
    work = LocalWork(lr=0.1, batch_size=None, steps=1)
    assert apart("scaffold", FEDAVG, rounds=6, work=work) < 1e-10


def test_finds_the_optimum_where_fedavg_does_not():
    """F_1 = ½ w², F_2 = 5 (w - 1)²: the optimum of the mean is 10/11; FedAvg with five steps stops
    elsewhere.
    """
    rows = [[1.0, 0.0], [10.0, 1.0]]
    work = LocalWork(lr=0.05, batch_size=None, steps=5)
    ours, plain = (
        run_on(
            QUADRATIC,
            rows,
            algo,
            work,
            150,
            [3.0],
        )[-1]
        .server["w"]
        .item()
        for algo in (make("scaffold"), make("fedavg", weights="uniform"))
    )
    assert ours == pytest.approx(10 / 11, rel=1e-8)
    assert abs(plain - 10 / 11) > 1e-2


@pytest.mark.parametrize("option", [1, 2])
def test_c_is_the_mean_of_all_control_variates(option):
    """Also of those that were not drawn."""
    algo = make("scaffold", option=option)
    for s in snapshots(
        algo,
        federation(),
        rounds=8,
        participation=3,
    ):
        mean = s.clients["c"].mean(0)
        assert close(s.server["c"], mean, 1e-12)


def test_the_control_variate_is_a_gradient_whatever_the_rate():
    """With one step of a full batch c_k is ∇F_k(w), since Δ_k is divided by the rate that it was
    made with.
    """
    work = LocalWork(lr=0.4, batch_size=None, schedule=Schedule("decay", decay_factor=0.5))
    run = run_on(
        QUADRATIC,
        [[1.0, 0.0], [3.0, 0.0]],
        make("scaffold"),
        work,
        3,
        [2.0],
    )
    for before, after in pairwise(run):
        mean_gradient = 2 * before.server["w"].item()  # of w and 3 w
        assert after.server["c"] == pytest.approx(mean_gradient, rel=1e-12)
