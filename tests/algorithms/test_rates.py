"""Schedules of the learning rate, by hand."""

from itertools import pairwise

import numpy as np
import pytest
from tools import make
from toy_problems import QUADRATIC, models, run_on

from fedbench.core.options import Schedule
from fedbench.simulation.local_work import LocalWork


@pytest.mark.parametrize(
    ("schedule", "rates"),
    [
        (Schedule("decay", decay_factor=0.5), [0.4, 0.2, 0.1, 0.05]),
        (Schedule("step", decay_factor=0.25, decay_at=(1, 3)), [0.4, 0.1, 0.1, 0.025]),
        (Schedule("cosine", decay_to=0.5, rounds=2), [0.4, 0.3]),
        (Schedule(), [0.4, 0.4, 0.4]),
    ],
)
def test_a_round_has_its_rate(schedule, rates):
    """On w²/2 a step of rate η multiplies w by 1 - η: after rounds of two steps w is the product of their squares."""
    work = LocalWork(lr=0.4, batch_size=None, epochs=(2, 2), schedule=schedule)
    run = run_on(QUADRATIC, [[1.0, 0.0]], make("fedavg"), work, len(rates), [3.0])
    want = 3.0 * np.cumprod((1 - np.array(rates)) ** 2)
    assert models(run)[1:] == pytest.approx(want, rel=1e-14)


def test_the_control_variate_of_scaffold_is_a_gradient_whatever_the_rate():
    """With one step of a full batch c_k is ∇F_k(w), since Δ_k is divided by the rate that it was made with."""
    work = LocalWork(lr=0.4, batch_size=None, schedule=Schedule("decay", decay_factor=0.5))
    run = run_on(QUADRATIC, [[1.0, 0.0], [3.0, 0.0]], make("scaffold"), work, 3, [2.0])
    for before, after in pairwise(run):
        mean_gradient = 2 * before.server["w"].item()  # of w and 3 w
        assert after.server["c"] == pytest.approx(mean_gradient, rel=1e-12)
