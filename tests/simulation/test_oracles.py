"""Losses and gradients against real modules and plain autograd."""

import re

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from fedbench.core.errors import RequestError
from fedbench.core.types import Batch
from fedbench.models.cnn import ConvNet
from fedbench.models.dense import MLP, Linear
from fedbench.simulation.oracles import DenseOracle, LoopOracle, VmapOracle, make_oracle
from fedbench.simulation.task import Task, example_losses

DENSE = (LoopOracle, VmapOracle, DenseOracle)
CNN = {
    "channels": [4, 3],
    "kernel": 5,
    "hidden": 6,
}
MODELS = [
    *((kind, Linear, {}) for kind in DENSE),
    *((kind, MLP, {"hidden": [7]}) for kind in DENSE),
    *((kind, MLP, {"hidden": [9, 5, 4]}) for kind in DENSE),
    *((kind, ConvNet, CNN) for kind in (LoopOracle, VmapOracle)),
]
SHAPE = (1, 8, 8)


def batch_of(classes):
    """Batches of four clients, three of which are shorter than the longest."""
    gen = torch.Generator().manual_seed(1)
    counts = torch.tensor([[6], [1], [4], [5]])
    return Batch(
        torch.randn(4, 6, *SHAPE, generator=gen, dtype=torch.float64),
        torch.randint(
            0,
            classes,
            (4, 6),
            generator=gen,
        ),
        (torch.arange(6) < counts).double() / counts,
    )


def task_of(model, shape=SHAPE, classes=5, dtype=torch.float64, **options):
    with torch.device("meta"):
        return Task(
            model(shape, classes, **options),
            torch.device("cpu"),
            dtype,
        )


def start_of(task, seed=5):
    return task.init(torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(("kind", "model", "options"), MODELS)
@pytest.mark.parametrize("classes", [5, 20])  # below and above where the softmax changes its form
def test_agrees_with_a_module_of_its_own(kind, model, options, classes):
    """Each client: a real module, its real examples only, torch's own cross-entropy."""
    task = task_of(model, classes=classes, **options)
    batch = batch_of(classes)
    w = torch.stack([start_of(task, seed) for seed in range(4)])
    loss, grad = kind(task).loss_and_grad(w, batch)
    assert torch.equal(kind(task).grad(w, batch), grad)
    for k in range(4):
        net = model(SHAPE, classes, **options).double()
        net.load_state_dict(task.layout.named(w[k]))
        real = batch.weight[k] > 0
        f = F.cross_entropy(net(batch.x[k][real]), batch.y[k][real])
        g = torch.cat([v.flatten() for v in torch.autograd.grad(f, list(net.parameters()))])
        assert loss[k].item() == pytest.approx(f.item(), rel=1e-12)
        assert torch.allclose(
            grad[k],
            g,
            rtol=0,
            atol=1e-13,
        )


def test_large_logits_do_not_overflow():
    logits = torch.tensor([[1000.0, 0.0], [0.0, 1000.0]])
    assert example_losses(
        logits,
        torch.tensor([0, 0]),
        1,
    ).tolist() == [0, 1000]


@pytest.mark.parametrize(
    ("model", "options", "mode", "kind"),
    [
        (Linear, {}, "loop", LoopOracle),
        (Linear, {}, "stacked", DenseOracle),
        (ConvNet, CNN, "stacked", VmapOracle),
    ],
)
def test_choice_by_mode(model, options, mode, kind):
    assert isinstance(make_oracle(task_of(model, **options), mode), kind)


@pytest.mark.parametrize("kind", DENSE)
def test_one_model_for_several_clients_is_refused(kind):
    task = task_of(Linear)
    batch = batch_of(5)
    message = re.escape(f"w [A, P] with A = 4, got [{task.size}]; for one model w [P], pass")
    with pytest.raises(ValueError, match=message):
        kind(task).logits(start_of(task), batch.x)
    with pytest.raises(ValueError, match=message):
        kind(task).loss_and_grad(start_of(task), batch)


@pytest.mark.parametrize(
    "layer",
    [
        nn.BatchNorm1d(3, affine=False),
        nn.BatchNorm1d(3, track_running_stats=False),
        nn.BatchNorm1d(3, momentum=None),
        nn.BatchNorm3d(3),
        nn.SyncBatchNorm(3),
    ],
)
def test_other_batch_norms_are_refused(layer):
    net = nn.Sequential(nn.Flatten(), nn.Linear(4, 3), layer)
    with pytest.raises(RequestError, match=r"Sequential\.2 normalises by batches .* GroupNorm"):
        Task(net, torch.device("cpu"), torch.float32)


def test_initial_model_comes_from_the_generator_alone():
    task = task_of(
        MLP,
        hidden=[7],
        dtype=torch.float32,
    )
    torch.manual_seed(0)
    w = start_of(task)
    torch.manual_seed(1)
    state = torch.random.get_rng_state()
    assert torch.equal(w, start_of(task))
    assert torch.equal(state, torch.random.get_rng_state())
    assert not torch.equal(w, start_of(task, seed=6))


def test_precision_does_not_change_the_initial_model():
    single, double = (start_of(task_of(Linear, dtype=d)) for d in (torch.float32, torch.float64))
    assert torch.equal(single.double(), double)


@pytest.mark.parametrize(
    "wrong",
    [{"bias": None}, {"bias": torch.zeros(2)}, {"more": torch.zeros(1)}],
    ids=["missing", "of another shape", "unknown"],
)
def test_parameters_that_do_not_fit_are_refused(wrong):
    layout = task_of(
        Linear,
        shape=(2,),
        classes=3,
    ).layout
    good = {"weight": torch.zeros(3, 2), "bias": torch.zeros(3)}
    assert layout.flatten(good).shape == (9,)
    given = {k: v for k, v in {**good, **wrong}.items() if v is not None}
    with pytest.raises(RequestError, match="do not match the model"):
        layout.flatten(given)


def test_conv_net_is_a_plain_stack():
    """Pooling before ReLU is the usual network: convolution, ReLU, pooling."""
    task = task_of(
        ConvNet,
        channels=[4, 3],
        kernel=3,
        hidden=6,
    )
    w = start_of(task)
    p = task.layout.named(w)
    x = batch_of(5).x[0]
    h = x
    for i in range(2):
        h = F.conv2d(
            h,
            p[f"convs.{i}.weight"],
            p[f"convs.{i}.bias"],
            padding=1,
        )
        h = F.max_pool2d(F.relu(h), 2)
    h = F.relu(
        F.linear(
            h.flatten(1),
            p["hidden.weight"],
            p["hidden.bias"],
        )
    )
    assert torch.allclose(
        task.predict(w, x),
        F.linear(
            h,
            p["out.weight"],
            p["out.bias"],
        ),
    )
