"""Local solvers against torch's."""

import pytest
import torch

from fedbench.core.errors import RequestError
from fedbench.core.optim import adam, sgd

D = torch.float64


def walk(solver, w, gradients, lr=0.1):
    """Apply a solver to given gradients."""
    state = {"w": w, **solver.init(w)}
    for g in gradients:
        direction, new = solver.update(g, state)
        state.update(
            new,
            w=state["w"] - lr * direction,
        )
    return state["w"]


def torch_walk(make, w, gradients):
    """Apply an optimizer of torch to the same gradients."""
    w = torch.nn.Parameter(w.clone())
    optimizer = make([w], lr=0.1)
    for g in gradients:
        w.grad = g.clone()
        optimizer.step()
    return w.detach()


@pytest.fixture
def problem():
    w, *gradients = torch.randn(
        13,
        9,
        generator=torch.Generator().manual_seed(0),
        dtype=D,
    )
    return w, gradients


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"momentum": 0.9},
        {"momentum": 0.9, "nesterov": True},
        {"momentum": 0.5, "weight_decay": 0.1},
    ],
)
def test_sgd_is_torchs(problem, options):
    theirs = torch_walk(lambda w, lr: torch.optim.SGD(w, lr, **options), *problem)
    assert torch.allclose(
        walk(sgd(**options), *problem),
        theirs,
        rtol=0,
        atol=1e-13,
    )


def test_adam_is_torchs(problem):
    theirs = torch_walk(
        lambda w, lr: torch.optim.Adam(
            w,
            lr,
            (0.8, 0.95),
            1e-6,
        ),
        *problem,
    )
    ours = walk(adam(0.8, 0.95, 1e-6, bias_correction=True), *problem)
    assert torch.allclose(
        ours,
        theirs,
        rtol=0,
        atol=1e-12,
    )


def test_clipping_is_per_client_comes_first_and_leaves_zero_alone():
    """A direction of length 5 becomes one of length 1, to which weight decay adds 0.1 w."""
    g = torch.tensor([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0]])
    direction, _ = sgd(clip_norm=1.0, weight_decay=0.1).update(g, {"w": g})
    clipped = torch.tensor([[0.6, 0.8], [0.3, 0.4], [0.0, 0.0]])
    assert torch.allclose(direction, clipped + 0.1 * g)


@pytest.mark.parametrize("options", [{}, {"momentum": 0.9}, {"momentum": 0.5, "nesterov": True}])
@pytest.mark.parametrize("steps", [1, 2, 57])
def test_passes_counts_a_constant_gradient(options, steps):
    """FedNova's a_k: the distance walked under a gradient of 1 with rate 1, for any number of
    steps.
    """
    solver = sgd(**options)
    one = torch.ones(1, dtype=D)
    walked = -walk(
        solver,
        0 * one,
        [one] * steps,
        lr=1.0,
    )
    assert solver.passes(steps * one) == pytest.approx(walked.tolist(), rel=1e-12)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"momentum": 1.0}, "momentum must be < 1, got 1.0"),
        ({"nesterov": True}, "nesterov must be false without momentum"),
        ({"weight_decay": -1}, "weight_decay must be >= 0"),
        ({"clip_norm": 0}, "clip_norm must be > 0, got 0"),
    ],
)
def test_options_out_of_range_are_refused(options, message):
    with pytest.raises(RequestError, match=message):
        sgd(**options)
