"""APFL: identities and worked numbers, in float64."""

import pytest
from tools import (
    close,
    deployed,
    federation,
    make,
    snapshots,
)
from toy_problems import on_quadratics, trained

from fedbench.simulation.local_work import LocalWork

ADAPTIVE = make("apfl", adaptive=True)


def test_the_share_is_learned_as_by_hand():
    """F = w²/2 from w = 1, one step of rate 1/2, α = 1/2.

    Round 1: v = x, so α stays; x = .5, v = 1 - .25 = .75. Round 2: y = .625, α = .5 - .5 · .25 ·
    .625 = .421875; then y = .421875 · .75 + .578125 · .5, v = .75 - .5 α y, w = .25.
    """
    _, first, second = on_quadratics(
        ADAPTIVE,
        [[1.0, 0.0]],
        2,
        [1.0],
    )
    assert first.round == 1
    alpha, w = 0.421875, 0.25
    y = alpha * 0.75 + (1 - alpha) * 0.5
    v = 0.75 - 0.5 * alpha * y
    assert second.clients["alpha"] == pytest.approx(alpha, abs=1e-15)
    assert second.clients["personal"] == pytest.approx(v, abs=1e-15)
    assert deployed(ADAPTIVE, second) == pytest.approx(alpha * v + (1 - alpha) * w)


@pytest.mark.parametrize(
    ("rows", "start", "share"),
    [
        ([[1.0, 0.0]], 100.0, 0.0),  # the own model lags behind the common one: a slope of 1562
        ([[1.0, 100.0], [1.0, -100.0]], 0.0, 1.0),  # the minima pull them apart
    ],
)
def test_the_share_stays_between_0_and_1(rows, start, share):
    last = on_quadratics(ADAPTIVE, rows, 2, [start])[-1]
    assert last.clients["alpha"].flatten().tolist() == [share] * len(rows)


def test_without_and_with_only_the_own_model_it_is_fedavg_and_separate_training():
    how = {"rounds": 4, "work": LocalWork(0.1, None, epochs=(2, 2))}
    common, alone, apart = (
        deployed(algo, snapshots(algo, federation(), **how)[-1])
        for algo in (
            make("apfl", alpha=0.0),
            make("apfl", alpha=1.0),
            make("ditto", lam=0.0),
        )
    )
    plain = trained("fedavg", **how)
    assert all(close(w, plain, 1e-12) for w in common)
    assert close(alone, apart, 1e-12)  # Ditto without a pull is separate training
