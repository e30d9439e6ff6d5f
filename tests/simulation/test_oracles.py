"""Losses and gradients against real modules and plain autograd."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from fedbench.core.errors import RequestError
from fedbench.core.types import Batch
from fedbench.data.dataset import FederatedDataset, Rows
from fedbench.models.cnn import ConvNet
from fedbench.models.dense import MLP, Linear
from fedbench.simulation.oracles import DenseOracle, LoopOracle, VmapOracle, make_oracle
from fedbench.simulation.task import Task, example_losses

MODELS = {
    "linear": (Linear, {}, [LoopOracle, VmapOracle, DenseOracle]),
    "mlp": (MLP, {"hidden": [7]}, [LoopOracle, VmapOracle, DenseOracle]),
    "mlp, three hidden layers": (MLP, {"hidden": [9, 5, 4]}, [LoopOracle, VmapOracle, DenseOracle]),
    "cnn": (ConvNet, {"channels": [4, 3], "kernel": 5, "hidden": 6}, [LoopOracle, VmapOracle]),
}


def batch_of(clients=4, size=6, shape=(1, 8, 8), classes=5, dtype=torch.float64):
    gen = torch.Generator().manual_seed(1)
    counts = torch.tensor([6, 1, 4, 6])[:clients]
    weight = (torch.arange(size) < counts[:, None]).to(dtype) / counts[:, None]
    return Batch(
        torch.randn(clients, size, *shape, generator=gen, dtype=dtype),
        torch.randint(0, classes, (clients, size), generator=gen),
        weight,
    )


def task_of(model, options, shape=(1, 8, 8), classes=5, dtype=torch.float64):
    with torch.device("meta"):
        return Task(model(shape, classes, **options), torch.device("cpu"), dtype)


@pytest.mark.parametrize(
    ("name", "kind"),
    [(n, k) for n, (_, _, kinds) in MODELS.items() for k in kinds],
    ids=lambda v: getattr(v, "__name__", v),
)
@pytest.mark.parametrize("classes", [5, 20])  # below and above where the softmax changes its form
def test_agrees_with_a_module_of_its_own(name, kind, classes):
    """Each client: a real module with its parameters, its real examples only, torch's own cross-entropy."""
    model, options, _ = MODELS[name]
    task, batch = task_of(model, options, classes=classes), batch_of(classes=classes)
    gen = torch.Generator().manual_seed(2)
    w = torch.stack([task.init(gen) for _ in range(4)])
    loss, grad = kind(task).loss_and_grad(w, batch)
    assert torch.equal(kind(task).grad(w, batch), grad)
    for k in range(4):
        net = model((1, 8, 8), classes, **options).double()
        net.load_state_dict(task.layout.named(w[k]))
        real = batch.weight[k] > 0
        f = F.cross_entropy(net(batch.x[k][real]), batch.y[k][real])
        g = torch.cat([v.flatten() for v in torch.autograd.grad(f, list(net.parameters()))])
        assert loss[k].item() == pytest.approx(f.item(), rel=1e-12)
        assert torch.allclose(grad[k], g, rtol=0, atol=1e-13)


@pytest.mark.parametrize("kind", [LoopOracle, VmapOracle, DenseOracle])
def test_softmax_regression_by_hand(kind):
    """At w = 0 every probability is 1/K: the gradient of one example is (1/K - [class = y]) times its input."""
    task = task_of(Linear, {}, shape=(2,), classes=4)
    batch = Batch(
        torch.tensor([[[3.0, -1.0]]]).double(), torch.tensor([[2]]), torch.ones(1, 1).double()
    )
    loss, grad = kind(task).loss_and_grad(torch.zeros(1, task.size).double(), batch)
    assert loss.item() == pytest.approx(torch.log(torch.tensor(4.0)).item())
    miss = torch.tensor([0.25, 0.25, -0.75, 0.25]).double()
    assert torch.allclose(grad[0], torch.cat([torch.outer(miss, batch.x[0, 0]).flatten(), miss]))


def test_large_logits_do_not_overflow():
    logits = torch.tensor([[1000.0, 0.0], [0.0, 1000.0]])
    assert example_losses(logits, torch.tensor([0, 0]), 1).tolist() == [0, 1000]


def test_choice_by_mode():
    dense, conv = task_of(Linear, {}), task_of(*MODELS["cnn"][:2])
    assert isinstance(make_oracle(dense, "loop"), LoopOracle)
    assert isinstance(make_oracle(dense, "stacked"), DenseOracle)
    assert isinstance(make_oracle(conv, "stacked"), VmapOracle)


def test_batch_norm_is_refused():
    net = nn.Sequential(nn.Flatten(), nn.Linear(4, 3), nn.BatchNorm1d(3))
    with pytest.raises(RequestError, match="GroupNorm"):
        Task(net, torch.device("cpu"), torch.float32)


def test_initial_model_comes_from_the_generator_alone():
    task = task_of(MLP, {"hidden": [7]}, dtype=torch.float32)
    torch.manual_seed(0)
    a = task.init(torch.Generator().manual_seed(5))
    torch.manual_seed(1)
    state = torch.random.get_rng_state()
    assert torch.equal(a, task.init(torch.Generator().manual_seed(5)))
    assert torch.equal(state, torch.random.get_rng_state())
    assert not torch.equal(a, task.init(torch.Generator().manual_seed(6)))
    named = task.layout.named(a)
    for name, fan_in in (
        ("layers.0.weight", 64),
        ("layers.0.bias", 64),
        ("layers.1.weight", 7),
        ("layers.1.bias", 7),
    ):
        v = named[name]
        assert v.abs().max() <= fan_in**-0.5
        if v.numel() > 100:  # uniform on ±b: the mean square is b²/3
            assert v.square().mean().item() == pytest.approx(1 / fan_in / 3, rel=0.15)


def test_precision_does_not_change_the_initial_model():
    a, b = (
        task_of(Linear, {}, dtype=d).init(torch.Generator().manual_seed(5))
        for d in (torch.float32, torch.float64)
    )
    assert torch.equal(a.double(), b)


def test_parameters_that_do_not_fit_are_refused():
    task = task_of(Linear, {}, shape=(2,), classes=3)
    good = {"weight": torch.zeros(3, 2), "bias": torch.zeros(3)}
    assert task.layout.flatten(good).shape == (9,)
    for bad in (
        {"weight": torch.zeros(3, 2)},
        {**good, "bias": torch.zeros(2)},
        {**good, "more": torch.zeros(1)},
    ):
        with pytest.raises(RequestError, match="do not match the model"):
            task.layout.flatten(bad)


def test_conv_net_is_a_plain_stack():
    """Pooling before ReLU is the usual network: convolution, ReLU, pooling."""
    task = task_of(ConvNet, {"channels": [4, 3], "kernel": 3, "hidden": 6})
    w = task.init(torch.Generator().manual_seed(0))
    p = task.layout.named(w)
    x = batch_of().x[0]
    h = x
    for i in range(2):
        h = F.max_pool2d(
            F.relu(F.conv2d(h, p[f"convs.{i}.weight"], p[f"convs.{i}.bias"], padding=1)), 2
        )
    h = F.relu(F.linear(h.flatten(1), p["hidden.weight"], p["hidden.bias"]))
    assert torch.allclose(task.predict(w, x), F.linear(h, p["out.weight"], p["out.bias"]))


def test_images_are_normalised_when_they_are_read():
    x = torch.randint(
        0, 256, (5, 3, 4, 4), dtype=torch.uint8, generator=torch.Generator().manual_seed(0)
    )
    mean, std = torch.tensor([0.1, 0.2, 0.3]), torch.tensor([0.5, 0.6, 0.7])
    data = FederatedDataset(
        x,
        torch.zeros(5, dtype=torch.int64),
        Rows.of([np.arange(5)]),
        Rows.of([np.arange(5)]),
        ("a",),
        1,
        mean.double(),
        std.double(),
    ).to(torch.device("cpu"), torch.float32)
    assert data.x.dtype == torch.uint8
    rows = torch.tensor([[4, 0], [1, 1]])
    want = (x[rows] / 255 - mean.view(3, 1, 1)) / std.view(3, 1, 1)
    assert torch.allclose(data.features(rows), want, atol=1e-6)
