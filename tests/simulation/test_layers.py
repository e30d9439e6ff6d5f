"""Layers in compiled code: values and gradients by hand, agreement with torch's own, and when they are used."""

from dataclasses import replace
from math import prod

import numpy as np
import pytest
import torch
from tools import close, federation, final, make

from fedbench.config.compose import compose_run
from fedbench.core.types import Batch
from fedbench.data.dataset import FederatedDataset, Rows
from fedbench.models.cnn import ConvNet, PooledConv
from fedbench.models.dense import MLP
from fedbench.models.lstm import LSTM, Layer
from fedbench.runs.build_engine import kernel_used, make_engine
from fedbench.simulation.batches import LocalWork
from fedbench.simulation.compiled.layers import _FEW_EXAMPLES, LayerKernels, has_compiled_layers
from fedbench.simulation.compiled.library import Kernels, kernels
from fedbench.simulation.oracles import LoopOracle
from fedbench.simulation.task import Task, channels_last

KINDS = {torch.float64: 1e-12, torch.float32: 1e-5}  # largest difference relative to the length of a vector


def compiled(layer):
    """The layer with its compiled form; skips the test where there is no compiler."""
    library = kernels().library
    if library is None:
        pytest.skip(f"no compiled code: {kernels().source}")
    LayerKernels(library, next(layer.parameters()).dtype).install(layer)
    assert layer.compiled is not None
    return layer


def outputs_and_gradients(layer, x, d):
    """The outputs of a layer, and the gradients of its inputs and parameters for the derivative ``d`` of the loss."""
    x = x.clone(memory_format=torch.preserve_format).requires_grad_()
    y = layer(x)
    return [y.detach(), *torch.autograd.grad(y, [x, *layer.parameters()], d)]


def agree(layer, x, tolerance):
    """Whether a layer's compiled form has the outputs and gradients of its operations."""
    with torch.no_grad():
        d = torch.randn_like(layer(x))
    plain = outputs_and_gradients(layer, x, d)
    own = outputs_and_gradients(compiled(layer), x, d)
    return all(close(a.flatten(), b.flatten(), tolerance) for a, b in zip(own, plain, strict=True))


def identity(values):
    """A 1 x 1 convolution that changes nothing, and an image [1, 1, H, W]."""
    layer = PooledConv(1, 1, 1).double()
    with torch.no_grad():
        layer.weight.fill_(1)
        layer.bias.fill_(0)
    return layer, torch.tensor(values, dtype=torch.float64)[None, None]


# ---- convolutions with pooling


def test_pooling_by_hand():
    """The gradient goes to the first of the largest values, none to negative windows or a last odd column."""
    layer, x = identity([[1, 3, -1, -2, 9], [3, 2, -4, -1, 9]])
    y, d_x, d_weight, d_bias = outputs_and_gradients(
        compiled(layer), x, torch.tensor([[[[5.0, 7.0]]]], dtype=torch.float64)
    )
    assert y.tolist() == [[[[3, 0]]]]
    assert d_x.tolist() == [[[[0, 5, 0, 0, 0], [0, 0, 0, 0, 0]]]]
    assert d_weight.item() == 15  # 5 times the value 3
    assert d_bias.item() == 5


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_pooling_of_values_that_are_not_finite(value):
    layer, x = identity([[1, 2], [value, 3]])
    plain = layer(x)
    assert torch.equal(compiled(layer)(x).isnan(), plain.isnan())
    assert torch.equal(layer(x).nan_to_num(0), plain.nan_to_num(0))


@pytest.mark.parametrize("dtype", KINDS)
@pytest.mark.parametrize(
    ("inputs", "outputs", "kernel", "height", "width"),
    [(1, 1, 3, 4, 4), (1, 16, 5, 7, 8), (3, 33, 3, 8, 7), (2, 8, 1, 5, 5), (4, 20, 3, 2, 3)],
)
def test_convolutions_of_any_size(inputs, outputs, kernel, height, width, dtype):
    torch.manual_seed(0)
    layer = PooledConv(inputs, outputs, kernel).to(dtype)
    assert agree(layer, channels_last(torch.randn(3, inputs, height, width, dtype=dtype)), KINDS[dtype])


# ---- LSTM layers


def test_a_token_by_hand():
    """With weights 0 and biases b: c = sigmoid(i) tanh(g), and dh/do = sigmoid'(o) tanh(c)."""
    i, f, g, o = 0.5, -1.0, 0.25, 2.0
    layer = Layer(1, 1).double()
    with torch.no_grad():
        for p in layer.parameters():
            p.zero_()
        layer.bias_ih_l0.copy_(torch.tensor([i, f, g, o]))
    x = torch.zeros(1, 1, 1, dtype=torch.float64)
    y, *_, d_in, d_out = outputs_and_gradients(compiled(layer), x, torch.ones_like(x))
    s = {k: torch.sigmoid(torch.tensor(v, dtype=torch.float64)) for k, v in zip("ifo", (i, f, o), strict=True)}
    c = s["i"] * torch.tanh(torch.tensor(g, dtype=torch.float64))
    assert torch.allclose(y.flatten(), s["o"] * c.tanh(), rtol=1e-14)
    by_c = s["o"] * (1 - c.tanh() ** 2)
    tanh_g = c / s["i"]
    wanted = [
        by_c * tanh_g * s["i"] * (1 - s["i"]),
        0 * c,
        by_c * s["i"] * (1 - tanh_g**2),
        (1 - s["o"]) * s["o"] * c.tanh(),
    ]
    assert torch.allclose(d_in, torch.stack(wanted), rtol=1e-13)
    assert torch.equal(d_in, d_out)


@pytest.mark.parametrize("dtype", KINDS)
@pytest.mark.parametrize(
    ("examples", "tokens", "inputs", "hidden"),
    [(1, 1, 1, 1), (10, 6, 3, 32), (_FEW_EXAMPLES, 4, 20, 21), (13, 2, 40, 5), (7, 9, 16, 48)],
)
def test_lstm_layers_of_any_size(examples, tokens, inputs, hidden, dtype):
    torch.manual_seed(0)
    layer = Layer(inputs, hidden).to(dtype)
    assert agree(layer, torch.randn(examples, tokens, inputs, dtype=dtype), KINDS[dtype])


def test_many_examples_go_through_torch():
    torch.manual_seed(0)
    layer, x = Layer(3, 4), torch.randn(_FEW_EXAMPLES + 1, 5, 3)
    plain = layer(x)
    assert torch.equal(compiled(layer)(x), plain)


def test_an_example_does_not_depend_on_the_others():
    torch.manual_seed(0)
    layer, x = compiled(Layer(3, 20)), torch.randn(14, 6, 3)
    together = layer(x)
    assert torch.equal(torch.cat([layer(x[:5]), layer(x[5:])]), together)
    x[3, 2, 1] = float("nan")
    found = layer(x)
    assert found[3, 2:].isnan().all()
    others = torch.arange(14) != 3
    assert torch.equal(found[others], together[others])


def test_gates_that_are_saturated():
    """Gates of 0 and 1 to rounding: c adds up g, and the gradients are those of torch, 0 instead of NaN."""
    torch.manual_seed(0)
    layer = Layer(2, 3).double()
    assert agree(layer, 1e4 * torch.randn(4, 5, 2, dtype=torch.float64), 1e-12)


@pytest.mark.parametrize("x", [1e-30, 1e-8, 1e-3, 0.2])
def test_small_values_keep_their_digits(x):
    """tanh(x) = x - x³/3 near 0, in relative terms: c of one token is sigmoid(0) tanh(x)."""
    layer = Layer(1, 1)
    with torch.no_grad():
        for p in layer.parameters():
            p.zero_()
        layer.weight_ih_l0[2] = 1
    found = compiled(layer)(torch.full((1, 1, 1), x)).item()
    exact = torch.tensor(x, dtype=torch.float64)
    assert found == pytest.approx((0.5 * (0.5 * exact.tanh()).tanh()).item(), rel=3e-7)


# ---- models


def lstm(shape, classes):
    return LSTM(shape, classes, 11, None, embedding=4, hidden=6, layers=2)


MODELS = {
    "images": (lambda shape, classes: ConvNet(shape, classes, [4, 3], 3, 6), (2, 9, 8)),
    "tokens": (lstm, (7,)),
}


def batch_of(name, size=5, clients=2):
    shape = MODELS[name][1]
    gen = torch.Generator().manual_seed(1)
    x = torch.randint(0, 11, (clients, size, *shape), generator=gen)
    if name == "images":
        x = torch.randn(x.shape, generator=gen, dtype=torch.float64)
    y = torch.randint(0, 5, (clients, size), generator=gen)
    return Batch(x, y, torch.full((clients, size), 1 / size, dtype=torch.float64))


def options(mode):
    return compose_run([f"engine.mode={mode}", "engine.workers=1"]).engine


def data_of(batch):
    """Each client's batch as its training examples."""
    x, y, n = batch.x.flatten(0, 1), batch.y.flatten(), batch.y.shape[1]
    train = Rows.of([np.arange(k * n, (k + 1) * n) for k in range(len(batch.x))])
    return FederatedDataset(x=x, y=y, train=train, test=train, names=("a", "b"), classes=5)


def task_of(name):
    build, shape = MODELS[name]
    with torch.device("meta"):
        return Task(build(shape, 5), torch.device("cpu"), torch.float64)


@pytest.mark.parametrize("name", MODELS)
def test_models_agree_with_plain_operations(name):
    if kernels().library is None:
        pytest.skip("no compiler")
    task, batch = task_of(name), batch_of(name)
    gen = torch.Generator().manual_seed(2)
    w = torch.stack([task.init(gen) for _ in range(2)])
    found = {}
    for mode in ("loop", "auto"):
        engine = make_engine(task, data_of(batch), LocalWork(0.1, 5), options(mode))
        assert engine.layers == (mode == "auto")
        assert kernel_used(engine, [], None, False).startswith(
            "layers; " if mode == "auto" else "none: engine.mode=loop"
        )
        found[mode] = [*engine.oracle.loss_and_grad(w, batch), LoopOracle(task).logits(w, batch.x)]
    for a, b in zip(found["auto"], found["loop"], strict=True):
        assert close(a.flatten(), b.flatten(), 1e-12)


def test_without_a_compiler_models_use_plain_operations(monkeypatch):
    monkeypatch.setattr("fedbench.runs.build_engine.kernels", lambda: Kernels(None, "no C++ compiler found"))
    task, batch = task_of("images"), batch_of("images")
    engine = make_engine(task, data_of(batch), LocalWork(0.1, 5), options("auto"))
    assert (engine.mode, engine.layers) == ("loop", False)
    w = task.init(torch.Generator().manual_seed(2)).expand(2, -1)
    assert torch.equal(engine.oracle.grad(w, batch), LoopOracle(task_of("images")).grad(w, batch))


@pytest.mark.parametrize("name", MODELS)
def test_workers_change_no_bit(name):
    if (library := kernels().library) is None:
        pytest.skip("no compiler")
    shape = MODELS[name][1]
    data = federation(features=prod(shape), shape=shape)
    if name == "tokens":
        gen = torch.Generator().manual_seed(0)
        data = replace(data, x=torch.randint(0, 11, data.x.shape, generator=gen), tokens=11)
    task = task_of(name)
    task.use_layers(LayerKernels(library, task.dtype))
    found = [
        final(make("fedavg"), data, task=task, mode="loop", cohort_size=1, workers=n, work=LocalWork(0.1, 3))
        for n in (1, 3, 1)
    ]
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])


def test_only_some_models_have_compiled_layers():
    assert has_compiled_layers(ConvNet((1, 8, 8), 3, [2], 3, 4))
    assert not has_compiled_layers(MLP((4,), 3))
