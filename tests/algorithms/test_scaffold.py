"""SCAFFOLD: identities, invariances and worked numbers, in float64."""

import pytest
import torch
from tools import close, federation, final, make, snapshots
from toy_problems import QUADRATIC, UNIFORM, run_on

from fedbench.simulation.local_work import LocalWork


@pytest.mark.parametrize("option", [1, 2])
def test_scaffold_begins_as_fedavg(option):
    data = federation()
    plain = final(make("fedavg", **UNIFORM), data, rounds=1)
    assert close(final(make("scaffold", option=option), data, rounds=1), plain, 1e-12)
    later = [
        final(make(m, **o), data, rounds=3)
        for m, o in (("scaffold", {"option": option}), ("fedavg", UNIFORM))
    ]
    assert not close(*later, 1e-4)


def test_scaffold_with_one_step_is_fedavg():
    """Σ (c - c_k) = 0 over all clients."""
    data = federation()
    work = LocalWork(lr=0.1, batch_size=None, steps=1)
    runs = [
        final(make(m, **o), data, rounds=6, work=work)
        for m, o in (("scaffold", {}), ("fedavg", UNIFORM))
    ]
    assert close(*runs, 1e-10)


def test_scaffold_finds_the_optimum_where_fedavg_does_not():
    """F_1 = ½ w², F_2 = 5 (w - 1)²: the optimum of the mean is 10/11; FedAvg with five steps stops elsewhere."""
    rows, work = [[1.0, 0.0], [10.0, 1.0]], LocalWork(lr=0.02, batch_size=None, steps=5)
    ours, plain = (
        run_on(QUADRATIC, rows, make(m, **o), work, 400, [3.0])[-1]
        for m, o in (("scaffold", {}), ("fedavg", UNIFORM))
    )
    assert ours.server["w"].item() == pytest.approx(10 / 11, rel=1e-8)
    assert abs(plain.server["w"].item() - 10 / 11) > 1e-2


@pytest.mark.parametrize("option", [1, 2])
def test_c_is_the_mean_of_all_control_variates(option):
    """Also of those that were not drawn."""
    for s in snapshots(make("scaffold", option=option), federation(), rounds=8, participation=3):
        assert torch.allclose(s.server["c"], s.clients["c"].mean(0), rtol=0, atol=1e-12)
