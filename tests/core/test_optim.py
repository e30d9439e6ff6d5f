import pytest
import torch

from fedbench.core.errors import RequestError
from fedbench.core.optim import SGD, adam, sgd


def walk(opt, w, gradients, lr):
    """Apply an optimizer to given gradients."""
    state = {"w": w, **opt.init(w)}
    for g in gradients:
        d, new = opt.update(g, state)
        state = {**state, **new, "w": state["w"] - lr * d}
    return state["w"]


def torch_walk(make, w, gradients, clip=None):
    """The same with an optimizer of torch."""
    w = torch.nn.Parameter(w.clone())
    optimizer = make([w])
    for g in gradients:
        w.grad = g.clone()
        if clip:
            torch.nn.utils.clip_grad_norm_([w], clip)
        optimizer.step()
    return w.detach()


@pytest.fixture
def problem():
    gen = torch.Generator().manual_seed(0)
    draw = lambda *shape: torch.randn(*shape, generator=gen, dtype=torch.float64)  # noqa: E731
    return draw(9), [draw(9) for _ in range(12)]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"momentum": 0.9},
        {"momentum": 0.9, "nesterov": True},
        {"weight_decay": 0.1},
        {"momentum": 0.5, "weight_decay": 0.1},
    ],
)
def test_sgd_is_torchs(problem, options):
    ours = walk(sgd(**options), *problem, 0.1)
    theirs = torch_walk(lambda p: torch.optim.SGD(p, lr=0.1, **options), *problem)
    assert torch.allclose(ours, theirs, rtol=0, atol=1e-13)


def test_clipping_is_torchs_up_to_its_epsilon(problem):
    options = {"momentum": 0.9, "weight_decay": 0.1}
    ours = walk(sgd(clip_norm=1.5, **options), *problem, 0.1)
    theirs = torch_walk(lambda p: torch.optim.SGD(p, lr=0.1, **options), *problem, clip=1.5)
    assert torch.allclose(ours, theirs, rtol=0, atol=1e-5)  # torch divides by the norm plus 1e-6
    assert not torch.allclose(ours, walk(sgd(**options), *problem, 0.1), atol=1e-2)


def test_clipping_is_per_client_and_leaves_zero_alone():
    g = torch.tensor([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0]])
    d, _ = sgd(clip_norm=1.0).update(g, {"w": g})
    assert torch.allclose(d, torch.tensor([[0.6, 0.8], [0.3, 0.4], [0.0, 0.0]]))


def test_adam_is_torchs(problem):
    ours = walk(adam(0.8, 0.95, 1e-6, bias_correction=True), *problem, 0.1)
    theirs = torch_walk(
        lambda p: torch.optim.Adam(p, lr=0.1, betas=(0.8, 0.95), eps=1e-6), *problem
    )
    assert torch.allclose(ours, theirs, rtol=0, atol=1e-12)


def test_a_cohort_is_its_clients_one_by_one(problem):
    _, gradients = problem
    stack = torch.stack(gradients)  # twelve clients
    opt = sgd(momentum=0.9, nesterov=True, weight_decay=0.1, clip_norm=2.0)
    together = walk(opt, torch.zeros(12, 9, dtype=torch.float64), [stack, stack.flip(0)], 0.1)
    alone = [
        walk(opt, torch.zeros(9, dtype=torch.float64), [a, b], 0.1)
        for a, b in zip(gradients, reversed(gradients), strict=True)
    ]
    assert torch.allclose(together, torch.stack(alone), rtol=0, atol=1e-14)


@pytest.mark.parametrize("options", [{}, {"momentum": 0.9}, {"momentum": 0.5, "nesterov": True}])
def test_passes_counts_a_constant_gradient(options):
    """FedNova's a_k: the distance walked under a gradient of 1 with rate 1, for any number of steps."""
    opt = sgd(**options)
    for tau in (1, 2, 3, 10, 57):
        w = walk(
            opt,
            torch.zeros(1, dtype=torch.float64),
            [torch.ones(1, dtype=torch.float64)] * tau,
            1.0,
        )
        assert opt.passes(torch.tensor(float(tau), dtype=torch.float64)).item() == pytest.approx(
            -w.item(), rel=1e-12
        )


def test_plain_sgd_is_recognised():
    assert sgd() is SGD


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"momentum": 1.0}, "momentum must be < 1, got 1.0"),
        ({"momentum": -0.1}, "momentum"),
        ({"nesterov": True}, "nesterov must be false without momentum"),
        ({"weight_decay": -1}, "weight_decay must be >= 0"),
        ({"clip_norm": 0}, "clip_norm must be > 0, got 0"),
    ],
)
def test_refuses(options, message):
    with pytest.raises(RequestError, match=message):
        sgd(**options)
