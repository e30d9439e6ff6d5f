"""pFedMe: worked numbers, in float64."""

import pytest
from tools import make
from toy_problems import on_quadratics


def test_two_steps_by_hand():
    """F = w²/2, w = 1, λ = 2, K = 1, η_p = η_l = .1, two steps; θ goes on from .9, x from .98; then half of the way.

    θ = .9, x = 1 - .2 · .1 = .98; θ = .9 - .1 (.9 + 2 (.9 - .98)) = .826, x = .98 - .2 (.98 - .826)
    = .9492.
    """
    algo = make(
        "pfedme",
        lam=2.0,
        inner=1,
        personal_lr=0.1,
        beta=0.5,
    )
    last = on_quadratics(
        algo,
        [[1.0, 0.0]],
        1,
        [1.0],
        lr=0.1,
        steps=2,
    )[-1]
    assert last.clients["personal"] == pytest.approx(0.826, abs=1e-14)
    assert last.server["w"] == pytest.approx((1 + 0.9492) / 2, abs=1e-14)


@pytest.mark.parametrize("start", ["warm", "reset"])
def test_many_inner_steps_descend_the_moreau_envelope(start):
    """F = a/2 (w - b)²: θ = (a b + λ x)/(a + λ) and x <- x - η_l λ (x - θ), around the moving x."""
    a, b, lam, lr = 3.0, 4.0, 2.0, 0.1
    algo = make(
        "pfedme",
        lam=lam,
        inner=300,
        personal_lr=0.1,
        start=start,
    )
    last = on_quadratics(
        algo,
        [[a, b]],
        3,
        [1.0],
        lr=lr,
        steps=2,
    )[-1]

    x = 1.0
    for _ in range(6):
        theta = (a * b + lam * x) / (a + lam)
        x -= lr * lam * (x - theta)
    assert last.server["w"] == pytest.approx(x, abs=1e-12)
    assert last.clients["personal"] == pytest.approx(theta, abs=1e-12)
