"""pFedMe: its envelope, in float64."""

import pytest
from tools import make
from toy_problems import on_quadratics


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
