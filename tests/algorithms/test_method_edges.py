"""Guards of several methods, on hand-made uploads."""

import numpy as np
import pytest
import torch
from tools import make
from toy_problems import D, cohort, moved


@pytest.mark.parametrize("scale", [1e8, 1e-8])
def test_qfedavg_with_a_large_q_does_not_overflow(scale):
    """q = 50, F = (1, 2)·scale: by hand with f = F/max F, L = 10 and Δ unit vectors."""
    losses = np.array([1.0, 2.0]) * scale
    step = moved(
        make("qfedavg", q=50.0),
        torch.eye(2),
        lr=0.1,
        loss=losses,
    )
    largest = losses.max() + 1e-10
    f = (losses + 1e-10) / largest
    h = 50 * f**49 * 100 / largest + 10 * f**50
    assert step == pytest.approx(10 * f**50 / h.sum(), rel=1e-12)


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize(
    "name",
    ["adafed", "fedheal", "fedfv", "fedmdfg", "fedexp", "gifair", "fedcm"],
)
def test_an_update_that_is_not_finite_reaches_the_model(name, value):
    """A run whose server left such a client out would stand still or go on, and not count as
    diverged.
    """
    algo = make(name)
    ends = torch.ones(3, 2, dtype=D).tril()
    ends[1, 0] = value
    info = cohort([1.0, 2.0, 3.0], loss=[1.0, 2.0, 3.0])
    server = algo.server_init(torch.zeros(2, dtype=D), 3)
    state = {k: v.expand(3, *v.shape) for k, v in algo.client_init(server["w"]).items()}

    uploads, _ = algo.finish(
        algo.broadcast(server),
        state,
        {"w": ends},
        info.columns(),
    )
    after = algo.update(server, uploads, info)
    assert not torch.isfinite(after["w"]).all()
