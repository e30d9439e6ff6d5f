"""PropFair: identities, in float64."""

import numpy as np
import pytest
from tools import federation
from toy_problems import (
    BATCHES,
    assert_descends,
    distance,
    trained,
)

from fedbench.core.optim import sgd
from fedbench.simulation.local_work import LocalWork


@pytest.mark.parametrize(
    ("tail", "rate"),
    [
        ("huber", 0.1 / 60),
        ("scaled", 0.1 / 50),
    ],
)
def test_in_its_tail_it_is_fedavg_at_another_rate(tail, rate):
    how = {"solver": sgd(momentum=0.5), "rounds": 4, "participation": 0.6}
    ours = trained(
        ("propfair", {"M": 50.0, "eps": 60.0, "tail": tail}),
        work=BATCHES,
        **how,
    )
    plain = trained(
        "fedavg",
        work=LocalWork(lr=rate, batch_size=10, epochs=(2, 2)),
        **how,
    )
    assert distance(ours, plain) < 1e-10


@pytest.mark.parametrize(
    ("M", "eps"),
    [
        (2.0, 0.2),
        (1.6, 0.9),
    ],
)
def test_one_full_batch_step_descends_the_objective(M, eps):
    """Σ p_k φ(F_k), φ = -log(M - F), continued with slope 1/ε; finite differences."""
    data = federation()
    p = data.train.counts / data.train.counts.sum()

    def phi(loss):
        if M - loss >= eps:
            return -np.log(M - loss)
        return (loss - (M - eps)) / eps - np.log(eps)

    def combine(losses):
        return p @ [phi(loss) for loss in losses]

    assert_descends(("propfair", {"M": M, "eps": eps}), data, combine)
