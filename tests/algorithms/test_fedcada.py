"""FedCAda and local Adam: one client is Adam, and worked adjustments, in float64."""

import pytest
from tools import (
    close,
    federation,
    make,
)
from toy_problems import (
    adam_steps,
    models,
    on_linear_losses,
    trained,
)

from fedbench.simulation.local_work import LocalWork


@pytest.mark.parametrize(
    "method", ["local_adam", ("fedcada", {"adjust": "adam", "counter": "step"})]
)
def test_one_client_is_adam(method):
    data = federation(sizes=(12,))
    steps = adam_steps(data, 0.05, lambda t, loss: loss(data.train.index), steps=15)
    ours = trained(
        method,
        data,
        rounds=5,
        work=LocalWork(0.05, None, epochs=(3, 3)),
    )
    assert close(ours, steps[-1], 1e-9)


@pytest.mark.parametrize(
    ("adjust", "value"),
    [
        ("plus", 1.5),
        ("square", 1.25),
        ("identity", 1.0),
    ],
)
def test_adjustments_by_hand(adjust, value):
    """β1 = ½, β2 = 0, t = 1, g = 1: m = ½, v = 1, D(0) = 1; the step is η (½/D(½))."""
    algo = make(
        "fedcada",
        adjust=adjust,
        beta1=0.5,
        beta2=0.0,
        eps=1e-12,
    )
    _, w = models(on_linear_losses(algo, LocalWork(0.1, None), [[1.0]]))
    assert w == pytest.approx(-0.1 * 0.5 / value, rel=1e-9)
