"""FedCM and MimeLite: worked steps and momenta, in float64."""

import numpy as np
import pytest
import torch
from tools import close, federation, make
from toy_problems import (
    BATCHES,
    DRAWN,
    FEDAVG,
    cohort,
    models,
    on_linear_losses,
    on_quadratics,
    start_of,
    trained,
    updated,
    vector,
)

from fedbench.simulation.local_work import LocalWork


@pytest.mark.parametrize("weights", ["uniform", "size"])
def test_fedcm_on_linear_losses_has_a_momentum_of_known_length(weights):
    """m^t = (1 - (1-α)^t) Σ p_k b_k, whatever the steps of the clients (here 1 to 4)."""
    rows = [[1.0, -2.0], [3.0, 0.5], [-1.0, 4.0]]
    work = LocalWork(lr=0.1, batch_size=None, epochs=(1, 4))
    algo = make("fedcm", alpha=0.3, weights=weights)
    for t, snapshot in enumerate(on_linear_losses(algo, work, rows, rounds=6)):
        want = (1 - 0.7**t) * np.mean(rows, 0)
        assert snapshot.server["m"] == pytest.approx(want, abs=1e-13)


@pytest.mark.parametrize("name", ["fedcm", "mofedsam"])
def test_the_momentum_is_a_mean_of_gradients(name):
    """m = Σ p_k Δ_k / (η_l τ_k), each client with its own steps and rate; it replaces the one before."""
    algo = make(name, server_lr=2.0)
    server = {"w": vector(0.0, 0.0), "m": vector(9.0, 9.0)}
    info = cohort([1.0, 3.0], lr=0.5, steps=[1.0, 3.0])
    after = updated(algo, [[1.0, 0.0], [0.0, 6.0]], info, server)
    assert after["m"] == pytest.approx([0.5, 3.0])
    assert after["w"] == pytest.approx([-0.5, -9.0])


@pytest.mark.parametrize("mode", ["loop", "stacked", "compiled"])
@pytest.mark.parametrize("name", ["fedcm", "mofedsam"])
def test_without_a_share_of_the_own_gradient_nothing_moves(name, mode):
    ours = trained((name, {"alpha": 0.0}), work=DRAWN, mode=mode)
    assert torch.equal(ours, start_of(federation()))


def test_fedcm_begins_as_fedavg_at_a_lower_rate():
    plain = trained(FEDAVG, rounds=1, work=LocalWork(0.03, 10, (2, 2)))
    ours = trained(("fedcm", {"alpha": 0.3}), rounds=1, work=BATCHES)
    assert close(ours, plain, 1e-12)


def test_mimelite_with_adam_by_hand():
    """F = w²/2 from w = 1, one step of rate .001.

    Round 1, v = 0: w = 1 - .001 · .1 · 1/.001 = .9, m = .1, v = .01. Round 2: w = .9 - .001 (.09 +
    .09)/(.1 + .001), m = .09 + .09, v = .0099 + .0081.
    """
    run = on_quadratics(make("mimelite", base="adam"), [[1.0, 0.0]], 2, [1.0], lr=1e-3)
    assert models(run) == pytest.approx([1.0, 0.9, 0.9 - 1.8e-4 / 0.101], abs=1e-14)
    assert models(run, "m") == pytest.approx([0.0, 0.1, 0.18], abs=1e-14)
    assert models(run, "v") == pytest.approx([0.0, 0.01, 0.018], abs=1e-14)


@pytest.mark.parametrize("steps", [1, 7])
def test_the_momentum_of_mimelite_is_of_gradients_at_the_broadcast_model(steps):
    """Two quadratics, any number of local steps: m = .1 (1·(1-0) + 3·(1-4))/2 after the first round."""
    rows = [[1.0, 0.0], [3.0, 4.0]]
    last = on_quadratics(make("mimelite"), rows, 1, [1.0], lr=0.1, steps=steps)[-1]
    assert last.server["m"] == pytest.approx([0.1 * (1 - 9) / 2], abs=1e-14)
