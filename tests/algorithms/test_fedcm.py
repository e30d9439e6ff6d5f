"""FedCM and MoFedSAM: their momentum, in float64."""

import pytest
from tools import make
from toy_problems import (
    cohort,
    updated,
    vector,
)


@pytest.mark.parametrize("name", ["fedcm", "mofedsam"])
def test_the_momentum_is_a_mean_of_gradients(name):
    """m = Σ p_k Δ_k / (η_l τ_k), each client with its own steps and rate; it replaces the one
    before.
    """
    algo = make(name, server_lr=2.0)
    server = {"w": vector(0.0, 0.0), "m": vector(9.0, 9.0)}
    info = cohort([1.0, 3.0], lr=0.5, steps=[1.0, 3.0])
    after = updated(
        algo,
        [[1.0, 0.0], [0.0, 6.0]],
        info,
        server,
    )
    assert after["m"] == pytest.approx([0.5, 3.0])
    assert after["w"] == pytest.approx([-0.5, -9.0])
