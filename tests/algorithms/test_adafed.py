"""AdaFed: identities, invariances and worked numbers, in float64."""

import pytest
import torch
from tools import close, make
from toy_problems import D, cohort, moved

from fedbench.algorithms.shared.gram import gram


@pytest.fixture
def updates():
    gen = torch.Generator().manual_seed(3)
    g = torch.randn(5, 12, generator=gen, dtype=D)
    losses = torch.rand(5, generator=gen, dtype=D) + 0.2
    return g, losses


def direction(g, f, **options):
    return moved(make("adafed", **options), g, loss=f)


@pytest.mark.parametrize("gamma", [0.0, 0.1, 1.0, 5.0])
def test_every_client_descends_in_proportion(updates, gamma):
    """Theorem 4.1 with the constant ||d||²; the closed form; homogeneity; order."""
    g, f = updates
    s = f**gamma
    d = direction(g, f, gamma=gamma)
    assert torch.allclose(
        g @ d / s,
        (d @ d).expand(5),
        rtol=1e-8,
        atol=0,
    )

    a = torch.linalg.solve(gram(g), s)
    assert close(d, g.T @ a / (s @ a), 1e-8)

    assert close(direction(3 * g, f, gamma=gamma), 3 * d, 1e-8)
    assert close(direction(g, 2 * f, gamma=gamma), d / 2**gamma, 1e-8)
    assert close(
        direction(g.flip(0), f.flip(0), gamma=gamma),
        d,
        1e-8,
    )


def test_similar_updates_of_float32_descend_in_proportion():
    """Their weights are large and of either sign; in float32, the sum would be off by a tenth."""
    gen = torch.Generator().manual_seed(0)
    common = torch.randn(20_000, generator=gen)
    g = common + 1e-3 * torch.randn(10, 20_000, generator=gen)
    f = torch.linspace(0.5, 2.3, 10, dtype=D)
    algo = make("adafed")
    server = algo.server_init(torch.zeros(20_000), 10)
    after = algo.update(server, {"delta": g}, cohort(10, loss=f))
    d = -after["w"].double()
    assert torch.allclose(g.double() @ d / f, d @ d, rtol=1e-5, atol=0)


@pytest.mark.parametrize("gamma", [0.0, 0.1, 1.0, 5.0])
def test_the_closed_form_is_the_shortest_vector_of_the_hull(updates, gamma):
    """Eqs. 5, 6 and 14 as printed: weights above 0 of sum 1, and g · d >= ||d||² at every vertex.

    That is the condition of the shortest vector of a convex hull, and the vector is the direction
    of the code.
    """
    g, f = updates
    turned = []
    for update, scale in zip(g, f**gamma, strict=True):
        shares = [(update @ t) / (t @ t) for t in turned]
        rest = update
        for share, t in zip(shares, turned, strict=True):
            rest = rest - share * t
        turned.append(rest / (scale - sum(shares)))

    vertices = torch.stack(turned)
    length = vertices.square().sum(1)
    weight = 1 / (length * (1 / length).sum())
    d = weight @ vertices
    assert (weight > 0).all()
    assert weight.sum().item() == pytest.approx(1)
    assert (vertices @ d >= (1 - 1e-9) * (d @ d)).all()
    assert close(d, direction(g, f, gamma=gamma), 1e-8)


@pytest.mark.parametrize("gamma", [0.0, 0.5, 1.0, 3.0])
def test_no_loss_rises_within_the_step_of_theorem_5_1(gamma):
    """f_k = (h_k / 2) ||w - c_k||² + b_k is h_k-smooth: no loss rises at the step 2 min f^γ / L.

    At 5 min f^γ / min h that of the client with the smallest loss does: by hand, a loss falls up to
    2 f^γ / h_k.
    """
    gen = torch.Generator().manual_seed(5)
    for _ in range(20):
        w = torch.randn(12, generator=gen, dtype=D)
        centres = torch.randn(5, 12, generator=gen, dtype=D)
        h = torch.rand(5, generator=gen, dtype=D) + 0.5
        b = torch.rand(5, generator=gen, dtype=D)

        def losses(w, centres=centres, h=h, b=b):
            return h / 2 * (w - centres).square().sum(1) + b

        f = losses(w)
        d = direction(h.unsqueeze(1) * (w - centres), f, gamma=gamma)
        smallest = (f**gamma).min()
        inside = losses(w - 2 * smallest / h.max() * d)
        outside = losses(w - 5 * smallest / h.min() * d)

        assert (inside <= f * (1 + 1e-12)).all()
        assert (outside > f)[f.argmin()]


def test_without_losses_it_is_mgda_where_that_is_interior():
    g = torch.diag(torch.tensor([1.0, 2.0, 3.0, 0.5], dtype=D))
    mgda = moved(make("fedmgda", eps=1.0, normalize=False), g)
    assert close(direction(g, torch.ones(4), gamma=0.0), mgda, 1e-8)


def test_a_silent_or_repeated_client_changes_nothing(updates):
    g, f = updates
    d = direction(g, f)
    with_one_more = torch.cat([f, f[:1]])
    assert close(
        direction(torch.cat([g, 0 * g[:1]]), with_one_more),
        d,
        1e-8,
    )
    assert close(
        direction(torch.cat([g, g[:1]]), with_one_more),
        d,
        1e-7,
    )


def test_a_client_without_loss_is_left_as_it_is(updates):
    g, f = updates
    f[0] = 0
    assert (g[0] @ direction(g, f)).abs() < 1e-12
    assert not direction(g, 0 * f).any()
