"""APFL: identities, invariances and worked numbers, in float64."""

import pytest
import torch
from tools import close, deployed, federation, final, make, snapshots
from toy_problems import D, on_quadratics

from fedbench.simulation.local_work import LocalWork


def test_apfl_learns_its_share_by_hand():
    """F = w²/2 from w = 1, one step of rate 1/2, α = 1/2.

    Round 1: v = x, so α stays; x = .5, v = 1 - .25 = .75. Round 2: y = .625, α = .5 - .5 · .25 ·
    .625 = .421875; then y = .421875 · .75 + .578125 · .5, v = .75 - .5 α y, w = .25.
    """
    first, run = (
        on_quadratics(make("apfl", adaptive=True), [[1.0, 0.0]], rounds, [1.0]) for rounds in (1, 2)
    )
    assert [s[-1].clients["alpha"].item() for s in (first, run)] == pytest.approx(
        [0.5, 0.421875], abs=1e-15
    )
    alpha, w = 0.421875, 0.25
    v = 0.75 - 0.5 * alpha * (alpha * 0.75 + (1 - alpha) * 0.5)
    assert run[-1].clients["personal"].item() == pytest.approx(v, abs=1e-15)
    assert deployed(make("apfl", adaptive=True), run[-1]).item() == pytest.approx(
        alpha * v + (1 - alpha) * w
    )


def test_the_share_of_apfl_is_adapted_once_per_round():
    """Whatever the number of local steps: it depends on the first batch alone."""
    rows = [[1.0, 0.0], [2.0, 3.0]]
    algo = make("apfl", adaptive=True)
    one, two = (on_quadratics(algo, rows, rounds, [1.0], lr=0.1, steps=3)[-1] for rounds in (1, 2))
    before, after = one.clients["alpha"], two.clients["alpha"]
    own, w = one.clients["personal"], one.server["w"]
    a, b = torch.tensor(rows, dtype=D).split(1, 1)
    slope = (own - w) * a * (before * own + (1 - before) * w - b)
    assert close(after, before - 0.1 * slope, 1e-13)
    assert not close(after, before, 1e-3)


def test_the_share_of_apfl_stays_between_0_and_1():
    """From 100 the own model lags behind the common one, a slope of 1562; minima at ±100 pull them apart."""
    algo = make("apfl", adaptive=True)
    assert on_quadratics(algo, [[1.0, 0.0]], 2, [100.0])[-1].clients["alpha"].tolist() == [[0.0]]
    assert on_quadratics(algo, [[1.0, 100.0], [1.0, -100.0]], 2, [0.0])[-1].clients[
        "alpha"
    ].tolist() == [[1.0], [1.0]]


def test_apfl_without_and_with_only_the_own_model():
    data, how = federation(), {"rounds": 4, "work": LocalWork(0.1, None, epochs=(2, 2))}
    plain = final(make("fedavg"), data, **how)
    none = make("apfl", alpha=0.0)
    assert all(close(w, plain, 1e-12) for w in deployed(none, snapshots(none, data, **how)[-1]))
    alone, apart = make("apfl", alpha=1.0), make("ditto", lam=0.0)
    ours, theirs = (deployed(m, snapshots(m, data, **how)[-1]) for m in (alone, apart))
    assert close(ours, theirs, 1e-12)  # Ditto without a pull is separate training
