"""q-FedAvg: identities, invariances and worked numbers, in float64."""

import pytest
from tools import close, federation, final, make
from toy_problems import UNIFORM


# 2: q-FedAvg with q = 0 is FedAvg with uniform weights, for any L
@pytest.mark.parametrize("L", [None, 1.0, 37.0])
def test_qfedavg_without_fairness_is_uniform_fedavg(L):
    data = federation()
    plain = final(make("fedavg", **UNIFORM), data, rounds=5)
    assert close(final(make("qfedavg", q=0.0, L=L), data, rounds=5), plain, 1e-10)
    assert not close(
        final(make("qfedavg", q=0.0, L=L), data, rounds=5),
        final(make("fedavg"), data, rounds=5),
        1e-3,
    )
