"""FedCM and MimeLite: worked steps and momenta, in float64."""

import pytest
from tools import make
from toy_problems import (
    cohort,
    models,
    on_quadratics,
    updated,
    vector,
)


@pytest.mark.parametrize("name", ["fedcm", "mofedsam"])
def test_the_momentum_is_a_mean_of_gradients(name):
    """m = Σ p_k Δ_k / (η_l τ_k), each client with its own steps and rate; it replaces the one before."""
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


def test_mimelite_with_adam_by_hand():
    """F = w²/2 from w = 1, one step of rate .001.

    Round 1, v = 0: w = 1 - .001 · .1 · 1/.001 = .9, m = .1, v = .01. Round 2: w = .9 - .001 (.09 +
    .09)/(.1 + .001), m = .09 + .09, v = .0099 + .0081.
    """
    run = on_quadratics(
        make("mimelite", base="adam"),
        [[1.0, 0.0]],
        2,
        [1.0],
        lr=1e-3,
    )
    assert models(run) == pytest.approx([1.0, 0.9, 0.9 - 1.8e-4 / 0.101], abs=1e-14)
    assert models(run, "m") == pytest.approx([0.0, 0.1, 0.18], abs=1e-14)
    assert models(run, "v") == pytest.approx([0.0, 0.01, 0.018], abs=1e-14)


@pytest.mark.parametrize("steps", [1, 7])
def test_the_momentum_of_mimelite_is_of_gradients_at_the_broadcast_model(steps):
    """Two quadratics, any number of local steps: m = .1 (1·(1-0) + 3·(1-4))/2 after the first round."""
    rows = [[1.0, 0.0], [3.0, 4.0]]
    last = on_quadratics(
        make("mimelite"),
        rows,
        1,
        [1.0],
        lr=0.1,
        steps=steps,
    )[-1]
    assert last.server["m"] == pytest.approx([0.1 * (1 - 9) / 2], abs=1e-14)
