"""FedSPS: identities, invariances and worked numbers, in float64."""

import pytest
from tools import close, federation, final, make
from toy_problems import FULL, QUADRATIC, UNIFORM, run_on

from fedbench.simulation.local_work import LocalWork


def test_fedsps_with_a_tiny_bound_is_fedavg_at_that_rate():
    data = federation()
    ours = final(
        make("fedsps", gamma_b=1e-3), data, rounds=5, work=LocalWork(lr=77.0, batch_size=10)
    )
    plain = final(make("fedavg", **UNIFORM), data, rounds=5, work=LocalWork(lr=1e-3, batch_size=10))
    assert close(ours, plain, 1e-10)


def test_a_quadratic_is_solved_in_one_step():
    """F = a/2 ||w - b||², c = ½: γ = F / (½ ||a (w - b)||²) = 1/a."""
    rows = [[4.0, 1.0, -2.0], [4.0, 1.0, -2.0]]
    w = run_on(QUADRATIC, rows, make("fedsps", c=0.5), FULL, 1, [7.0, 3.0])[-1].server["w"]
    assert w.tolist() == pytest.approx([1.0, -2.0], abs=1e-12)


def test_no_gradient_or_a_loss_below_the_bound_is_no_step():
    for rows, bound in (([[4.0, 7.0]], 0.0), ([[4.0, 1.0]], 1e6)):
        assert (
            run_on(QUADRATIC, rows, make("fedsps", l_star=bound), FULL, 3, [7.0])[-1]
            .server["w"]
            .item()
            == 7.0
        )
