"""FedSPS: identities and worked steps, in float64."""

import pytest
from tools import make
from toy_problems import (
    FEDAVG,
    FULL,
    QUADRATIC,
    distance,
    run_on,
    trained,
)

from fedbench.simulation.local_work import LocalWork


def test_a_tiny_bound_makes_it_fedavg_at_that_rate():
    work = LocalWork(lr=77.0, batch_size=10)
    ours = trained(("fedsps", {"gamma_b": 1e-3}), rounds=5, work=work)
    plain = trained(FEDAVG, rounds=5, work=LocalWork(lr=1e-3, batch_size=10))
    assert distance(ours, plain) < 1e-10


def test_a_quadratic_is_solved_in_one_step():
    """F = a/2 ||w - b||², c = ½: γ = F / (½ ||a (w - b)||²) = 1/a."""
    rows = [[4.0, 1.0, -2.0], [4.0, 1.0, -2.0]]
    last = run_on(
        QUADRATIC,
        rows,
        make("fedsps", c=0.5),
        FULL,
        1,
        [7.0, 3.0],
    )[-1]
    assert last.server["w"] == pytest.approx([1.0, -2.0], abs=1e-12)


@pytest.mark.parametrize(
    ("row", "bound"),
    [
        ([4.0, 7.0], 0.0),
        ([4.0, 1.0], 1e6),
    ],
)
def test_no_gradient_or_a_loss_below_the_bound_is_no_step(row, bound):
    last = run_on(
        QUADRATIC,
        [row],
        make("fedsps", l_star=bound),
        FULL,
        3,
        [7.0],
    )[-1]
    assert last.server["w"] == 7.0
