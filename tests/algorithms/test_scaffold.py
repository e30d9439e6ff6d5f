"""SCAFFOLD: identities and invariances, in float64."""

import pytest
from toy_problems import (
    FEDAVG,
    apart,
)

from fedbench.simulation.local_work import LocalWork


@pytest.mark.parametrize("option", [1, 2])
def test_begins_as_fedavg(option):
    method = ("scaffold", {"option": option})
    assert apart(method, FEDAVG, rounds=1) < 1e-12
    assert apart(method, FEDAVG, rounds=3) > 1e-4


@pytest.mark.parametrize("weights", ["uniform", "size"])
def test_with_one_step_it_is_fedavg(weights):
    """Σ p_k (c - c_k) = 0 over all clients."""
    work = LocalWork(lr=0.1, batch_size=None, steps=1)
    method = ("scaffold", {"weights": weights})
    average = ("fedavg", {"weights": weights})
    assert apart(method, average, rounds=6, work=work) < 1e-10
