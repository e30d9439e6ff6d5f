"""AdaFed: identities, invariances and worked numbers, in float64."""

import numpy as np
import pytest
import torch
from tools import close, make
from toy_problems import D, cohort

from fedbench.algorithms.shared.gram import gram


@pytest.fixture
def updates():
    gen = torch.Generator().manual_seed(3)
    return torch.randn(5, 12, generator=gen, dtype=D), torch.rand(5, generator=gen, dtype=D) + 0.2


def directions(g, f, **options):
    """AdaFed's step on given updates and losses."""
    algo = make("adafed", **options)
    info = cohort(np.full(len(g), 1 / len(g)), loss=f, loss_after=f)
    return -algo.update(
        algo.server_init(torch.zeros(g.shape[1], dtype=D), len(g)), {"delta": g}, info
    )["w"]


@pytest.mark.parametrize("gamma", [0.0, 0.1, 1.0, 5.0])
def test_every_client_descends_in_proportion(updates, gamma):
    """Theorem 4.1 with the constant ||d||²; the closed form; homogeneity; order."""
    g, f = updates
    d, s = directions(g, f, gamma=gamma), f**gamma
    assert torch.allclose(g @ d / s, (d @ d).expand(5), rtol=1e-8, atol=0)
    a = torch.linalg.solve(gram(g), s)
    assert close(d, g.T @ a / (s @ a), 1e-8)
    assert close(directions(3 * g, f, gamma=gamma), 3 * d, 1e-8)
    assert close(directions(g, 2 * f, gamma=gamma), d / 2**gamma, 1e-8)
    assert close(directions(g.flip(0), f.flip(0), gamma=gamma), d, 1e-8)


@pytest.mark.parametrize("gamma", [0.0, 0.1, 1.0, 5.0])
def test_the_closed_form_is_the_shortest_vector_of_the_hull(updates, gamma):
    """Eqs. 5, 6 and 14 as printed: weights above 0 of sum 1, and no vertex g of the hull has g · d < ||d||².

    That is the condition of the shortest vector of a convex hull, and the vector is the direction
    of the code.
    """
    g, f = updates
    turned: list[torch.Tensor] = []
    for update, scale in zip(g, f**gamma, strict=True):
        shares = [(update @ t) / (t @ t) for t in turned]
        rest = update - sum(x * t for x, t in zip(shares, turned, strict=True))
        turned.append(rest / (scale - sum(shares)))
    vertices = torch.stack(turned)
    length = vertices.square().sum(1)
    weight = 1 / (length * (1 / length).sum())
    d = weight @ vertices
    assert bool((weight > 0).all())
    assert weight.sum().item() == pytest.approx(1)
    assert bool((vertices @ d >= (1 - 1e-9) * (d @ d)).all())
    assert close(d, directions(g, f, gamma=gamma), 1e-8)


@pytest.mark.parametrize("gamma", [0.0, 0.5, 1.0, 3.0])
def test_no_loss_rises_within_the_step_of_theorem_5_1(gamma):
    """f_k = (h_k / 2) ||w - c_k||² + b_k is h_k-smooth: at the largest step, 2 min f^γ / L, no loss rises.

    At 5 min f^γ / min h that of the client with the smallest loss does: by hand, a loss falls up to
    2 f^γ / h_k.
    """
    gen = torch.Generator().manual_seed(5)
    for _ in range(20):
        w, centres = (
            torch.randn(12, generator=gen, dtype=D),
            torch.randn(5, 12, generator=gen, dtype=D),
        )
        h, b = torch.rand(5, generator=gen, dtype=D) + 0.5, torch.rand(5, generator=gen, dtype=D)

        def losses(at, centres=centres, h=h, b=b):
            return h / 2 * (at - centres).square().sum(1) + b

        f, g = losses(w), h.unsqueeze(1) * (w - centres)
        least = (f**gamma).min()
        d = directions(g, f, gamma=gamma)
        assert bool((losses(w - 2 * least / h.max() * d) <= f * (1 + 1e-12)).all())
        assert bool((losses(w - 5 * least / h.min() * d) > f)[f.argmin()])


def test_a_single_client_is_not_fedavg(updates):
    g, f = updates
    assert close(directions(g[:1], f[:1], gamma=2.0), g[0] / f[0] ** 2, 1e-8)


def test_without_losses_it_is_mgda_where_that_is_interior():
    g = torch.eye(4, dtype=D) * torch.tensor([[1.0], [2.0], [3.0], [0.5]], dtype=D)
    algo = make("fedmgda", eps=1.0, normalize=False)
    mgda = -algo.update(
        algo.server_init(torch.zeros(4, dtype=D), 4), {"delta": g}, cohort([0.25] * 4)
    )["w"]
    assert close(directions(g, torch.ones(4, dtype=D), gamma=0.0), mgda, 1e-8)


def test_silent_and_dependent_clients(updates):
    g, f = updates
    silent = torch.cat([g, torch.zeros(1, 12, dtype=D)])
    d = directions(silent, torch.cat([f, f[:1]]))
    assert close(d, directions(g, f), 1e-8)
    twice = torch.cat([g, g[:1]])  # the same update and loss again adds no condition
    assert close(directions(twice, torch.cat([f, f[:1]])), directions(g, f), 1e-7)
    assert not directions(g, torch.zeros(5, dtype=D)).any()
    assert (
        torch.allclose(
            g @ directions(g, f * torch.tensor([0.0, 1, 1, 1, 1])), torch.zeros(5, dtype=D)
        )
        is False
    )
    still = directions(g, f * torch.tensor([0.0, 1, 1, 1, 1], dtype=D))
    assert (g[0] @ still).abs() < 1e-12  # a client without loss is left as it is


def test_normalised_losses_change_the_length_only(updates):
    g, f = updates
    d, n = directions(g, f, gamma=5.0), directions(g, f, gamma=5.0, normalize_loss="mean")
    assert close(d / d.norm(), n / n.norm(), 1e-10)
    assert close(n, directions(g, 100 * f, gamma=5.0, normalize_loss="mean"), 1e-10)
