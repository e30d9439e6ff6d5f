"""Guards and switches of single methods, on hand-made uploads."""

from dataclasses import fields

import numpy as np
import pytest
import torch
from tools import make

from fedbench.core.optim import sgd
from fedbench.core.randomness import sample_cohort
from fedbench.core.types import ClientInfo

D = torch.float64


def cohort(n, lr=0.1, dtype=D, **probe):
    """Facts of a cohort with n examples each, and what was probed."""
    n = torch.tensor(n, dtype=dtype)
    facts = {"n": n, "p": n / n.sum(), "id": torch.arange(len(n)), "lr": torch.full_like(n, lr)}
    rest = {
        f.name: torch.ones_like(n) for f in fields(ClientInfo) if f.name not in {*facts, "probe"}
    }
    return ClientInfo(
        **facts, **rest, probe={k: torch.tensor(v, dtype=D) for k, v in probe.items()}
    )


def finished(algo, deltas, grads, lr=0.1):
    """What clients with these updates and gradients upload."""
    info = cohort([1.0] * len(deltas), lr, grad=grads).columns()
    zero = torch.zeros(len(deltas[0]), dtype=D)
    return algo.finish({"w": zero}, {}, {"w": -torch.tensor(deltas, dtype=D)}, info)[0]


def test_adafedadam_client_that_did_not_move_or_has_no_gradient():
    """U = 0 and χ = 1 for each of the three; the fourth has r = 2/0.5 = 4, U = Δ/4 and χ = ln(4/0.1) + 1."""
    up = finished(
        make("adafedadam"), [[0.0, 0], [3, 4], [0, 0], [0, 2]], [[1.0, 0], [0, 0], [0, 0], [0.5, 0]]
    )
    assert up["update"].tolist() == [[0, 0], [0, 0], [0, 0], [0, 0.5]]
    assert up["certainty"].squeeze(1).tolist() == pytest.approx([1, 1, 1, np.log(40) + 1])


def test_adafedadam_certainty_has_a_floor():
    """r = η/e³ has χ = -2, which would make β^χ > 1; it counts as 0.1."""
    algo = make("adafedadam")
    up = finished(algo, [[0.1 * np.exp(-3), 0.0], [0.1, 0.0]], [[1.0, 0.0], [1.0, 0.0]])
    assert up["certainty"].squeeze(1).tolist() == pytest.approx([-2, 1])
    server = algo.server_init(torch.zeros(2, dtype=D), 2)
    after = algo.update(server, up, cohort([3.0, 1.0], loss=[1.0, 1.0]))
    chi = 0.75 * 0.1 + 0.25 * 1
    assert after["c_m"].item() == pytest.approx(0.9**chi)
    # the first step of Adam is one of sign
    assert after["w"][0].item() == pytest.approx(-chi * 1e-3, rel=1e-6)


@pytest.mark.parametrize(
    ("alpha", "losses", "share"),
    [
        (1.0, [0.0, 0.0], 0.25),  # all losses 0: weights n_k
        (2.0, [0.0, 0.0], 0.25),
        (2.0, [2.0, 4.0], 0.25 * 4 / (0.25 * 4 + 0.75 * 16)),
        # F + 1e-10 before a fractional power
        (0.5, [0.0, 1.0], 1e-5 / (1e-5 + 3 * (1 + 1e-10) ** 0.5)),
    ],
)
def test_adafedadam_weights(alpha, losses, share):
    algo = make("adafedadam", alpha=alpha, beta1=0.0)
    up = {"update": torch.eye(2, dtype=D), "certainty": torch.ones(2, 1, dtype=D)}
    m = algo.update(
        algo.server_init(torch.zeros(2, dtype=D), 2), up, cohort([1.0, 3.0], loss=losses)
    )["m"]
    assert m.tolist() == pytest.approx([share, 1 - share], rel=1e-9)


@pytest.mark.parametrize("scale", [1e8, 1e-8])
def test_qfedavg_with_a_large_q_does_not_overflow(scale):
    """q = 50, F = (1, 2)·scale: by hand with f = F/max F, L = 10 and Δ unit vectors."""
    losses = np.array([1.0, 2.0]) * scale
    algo = make("qfedavg", q=50.0)
    w = algo.update(
        algo.server_init(torch.zeros(2, dtype=D), 2),
        {"delta": torch.eye(2, dtype=D)},
        cohort([1.0, 1.0], loss=losses),
    )["w"]
    f, top = (losses + 1e-10) / (losses + 1e-10).max(), losses.max() + 1e-10
    h = 50 * f**49 * 100 / top + 10 * f**50
    assert (-w).tolist() == pytest.approx((10 * f**50 / h.sum()).tolist(), rel=1e-12)


def test_cohorts_drawn_by_size_prefer_large_clients():
    """Client 0 holds half of all examples: alone it is drawn in about half of the rounds, not in a fifth."""
    n = np.array([40, 10, 10, 10, 10])
    drawn = [
        np.mean([0 in sample_cohort(1, by_size=b)(t, n, 0) for t in range(2000)])
        for b in (True, False)
    ]
    assert drawn == pytest.approx([0.5, 0.2], abs=0.04)


@pytest.mark.parametrize("rho", [0.9, 0.99, 0.999, 0.9999])
@pytest.mark.parametrize("nesterov", [False, True])
def test_fednova_counts_in_float32_as_in_float64(rho, nesterov):
    """a_1 = 1 for any ρ (with Nesterov 1 + ρ): the formula cancels."""
    passes = sgd(momentum=rho, nesterov=nesterov).passes
    for tau in (1.0, 7.0, 300.0):
        exact = passes(torch.tensor([tau], dtype=D)).item()
        assert passes(torch.tensor([tau])).item() == pytest.approx(exact, rel=1e-6)
    assert passes(torch.tensor([1.0])).item() == pytest.approx(1 + rho * nesterov, rel=1e-6)


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("adafed", {}),
        ("fedheal", {}),
        ("fedfv", {}),
        ("fedmdfg", {}),
        ("fedexp", {}),
        ("gifair", {}),
        ("fedcm", {}),
    ],
)
def test_an_update_that_is_not_finite_reaches_the_model(name, options, value):
    """A run whose server left such a client out would stand still or go on, and not count as diverged."""
    algo, ends = make(name, **options), torch.ones(3, 2, dtype=D).tril()
    ends[1, 0] = value
    server = algo.server_init(torch.zeros(2, dtype=D), 3)
    info = cohort([1.0, 2.0, 3.0], loss=[1.0, 2.0, 3.0])
    state = {k: v.expand(3, *v.shape) for k, v in algo.client_init(server["w"]).items()}
    uploads, _ = algo.finish(algo.broadcast(server), state, {"w": ends}, info.columns())
    assert not torch.isfinite(algo.update(server, uploads, info)["w"]).all()
