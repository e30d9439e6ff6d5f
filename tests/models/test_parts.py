"""Parts of a model: words and patterns, and frozen parameters, which are no part of w."""

from dataclasses import replace

import pytest
import torch
from command_line import FAST
from safetensors.torch import load_file
from tools import CASES, any_solver, cases_of, federation, make, snapshots, task_for
from torch import nn

import fedbench
from fedbench.core.errors import RequestError
from fedbench.models.base import ModelTraits
from fedbench.models.cnn import ConvNet, LeNet
from fedbench.models.dense import MLP, Linear, Logistic
from fedbench.models.lstm import LSTM
from fedbench.models.parts import tensors_of
from fedbench.models.resnet import resnet
from fedbench.models.vgg import VGG11
from fedbench.simulation.task import Task, check_head

CPU = torch.device("cpu")
IMAGE = torch.zeros(2, 3, 32, 32)
MODELS = {
    "linear": (lambda: Linear((6,), 3), torch.zeros(2, 6)),
    "logistic": (lambda: Logistic((6,), 2), torch.zeros(2, 6)),
    "mlp": (lambda: MLP((6,), 3, [5, 4]), torch.zeros(2, 6)),
    "cnn": (lambda: ConvNet((3, 32, 32), 5, (3, 4), 3, 6), IMAGE),
    "lenet": (lambda: LeNet((3, 32, 32), 5, [2, 3], 3, [7]), IMAGE),
    "resnet18_gn": (lambda: resnet((3, 32, 32), 5), IMAGE),
    "vgg11": (lambda: VGG11((3, 32, 32), 5), IMAGE),
    "lstm": (
        lambda: LSTM((6,), 7, 7, None, embedding=3, hidden=5, layers=2, dense=[4]),
        torch.zeros(2, 6, dtype=torch.int64),
    ),
}


def chosen(model, *words):
    return tensors_of(model, words, "parts.frozen")


@pytest.mark.parametrize("name", MODELS)
def test_the_head_maps_the_features_to_the_logits_and_the_body_is_the_rest(name):
    make_model, x = MODELS[name]
    model = make_model()
    names = [name for name, _ in model.named_parameters()]
    head = chosen(model, "head")
    (place,) = {name.rpartition(".")[0] for name in head}
    assert isinstance(model.get_submodule(place), nn.Linear)
    outputs = []
    model.get_submodule(place).register_forward_hook(lambda _, x, y: outputs.append(y))
    logits = model(x)
    assert torch.equal(outputs[-1].flatten(), logits[..., -outputs[-1].shape[-1] :].flatten())
    body = set(names) - head
    if body:
        assert chosen(model, "body") == body
    else:
        with pytest.raises(RequestError, match="body names no parameter of Li|of Lo"):
            chosen(model, "body")


def test_norms_and_patterns():
    model = MODELS["resnet18_gn"][0]()
    vectors = {name for name, p in model.named_parameters() if p.dim() == 1}
    assert chosen(model, "norm") == vectors - {"fc.bias"}  # convolutions have no bias
    assert chosen(model, "layer1.*.conv1.*", "fc.bias") == {
        "layer1.0.conv1.weight",
        "layer1.1.conv1.weight",
        "fc.bias",
    }


class Own(nn.Module):
    """A model of a user, whose first layer is frozen if ``frozen``."""

    def __init__(self, frozen=False):
        super().__init__()
        self.first = nn.Linear(6, 5)
        self.last = nn.Linear(5, 3)
        self.first.requires_grad_(not frozen)

    def forward(self, x):
        return self.last(torch.relu(self.first(x)))


class Declared(Own):
    traits = ModelTraits(head="last")


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("lat.*", r"parts\.frozen: lat\.\* names no parameter of Own, which has first\.weight, "),
        ("norm", "norm: Own has no normalisation"),
        ("head", r"parts\.frozen=head: Own does not declare its head; set traits = ModelTraits"),
    ],
)
def test_a_choice_of_nothing_is_named(word, message):
    with pytest.raises(RequestError, match=message):
        chosen(Own(), word)


def test_a_declared_head():
    assert chosen(Declared(), "head") == {"last.weight", "last.bias"}


class Square(nn.Module):
    traits = ModelTraits(head="first")

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(6, 6)
        self.last = nn.Linear(6, 6)

    def forward(self, x):
        return self.last(self.first(x))


class Missing(Own):
    traits = ModelTraits(head="middle")


def own_task(model):
    with torch.device("meta"):
        return Task(model(), CPU, torch.float64)


def test_the_declared_head_is_checked():
    x = torch.randn(4, 6, dtype=torch.float64)
    good = own_task(Declared)
    w = good.init(torch.Generator().manual_seed(1))
    check_head(good, w, x)
    square = own_task(Square)
    with pytest.raises(RequestError, match="head='first', and the logits are not the outputs"):
        check_head(square, square.init(torch.Generator().manual_seed(1)), x)
    with pytest.raises(RequestError, match="head='middle', which is no linear layer of it"):
        own_task(Missing)


def on_features(data, task, w):
    """The data with the features of a model as examples, and the linear model on top of them."""
    named = task.named(w)
    x = torch.relu(data.x @ named["layers.0.weight"].T + named["layers.0.bias"])
    features = replace(data, x=x)
    return features, torch.cat([named["layers.1.weight"].flatten(), named["layers.1.bias"]])


# FedCorr mixes examples, and the features of a mean are not the mean of the features
LINEAR_CASES = [case for case in CASES if case[0] != "fedcorr"]


@pytest.mark.parametrize("case", cases_of(LINEAR_CASES))
def test_with_a_frozen_body_every_method_trains_a_linear_model_on_the_features(case):
    name, options = case
    data = federation()
    with torch.device("meta"):
        net = MLP(data.shape, data.classes, [5])
    task = Task(net, CPU, torch.float64, frozen=chosen(net, "body"))
    w = task.init(torch.Generator().manual_seed(1))
    features, head = on_features(data, task, w)
    if "tensors" in options:
        options = options | {"tensors": task.layout.sizes}
    algo = make(name, any_solver(case), **options)
    last = snapshots(algo, data, task=task, w=w, mode="loop")[-1]
    other = snapshots(algo, features, task=task_for(features, Linear), w=head, mode="loop")[-1]
    assert torch.allclose(last.server["w"], other.server["w"], rtol=1e-9, atol=1e-10)
    costs = ("client_steps", "bytes_up", "bytes_down")
    assert [getattr(last, name) for name in costs] == [getattr(other, name) for name in costs]


@pytest.mark.parametrize("mode", ["loop", "stacked"])
def test_parameters_without_a_gradient_are_frozen(mode):
    data = federation()
    with torch.device("meta"):
        tasks = [
            Task(Own(), CPU, torch.float64, frozen=["first.weight", "first.bias"]),
            Task(Own(frozen=True), CPU, torch.float64),
        ]
    models = []
    for task in tasks:
        last = snapshots(make("fedprox"), data, task=task, mode=mode)[-1]
        models.append(task.named(last.server["w"]))
    one, other = models
    assert list(one) == ["first.weight", "first.bias", "last.weight", "last.bias"]
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_nothing_is_left_to_train():
    with pytest.raises(RequestError, match="Own has no parameters to train"):
        Task(Own(), CPU, torch.float64, frozen=[n for n, _ in Own().named_parameters()])


def test_a_run_saves_frozen_parameters_and_sends_and_moves_none(tmp_path):
    small = " ".join(FAST)
    keys = f"{small} algo=fedprox model=mlp results_dir={tmp_path} local.weight_decay=0.1"
    run = fedbench.run(f"{keys} parts.frozen=[body]")
    whole = fedbench.run(f"{keys} rounds=0")
    before = load_file(whole.path / "model.safetensors")
    after = load_file(run.path / "model.safetensors")
    assert set(after) == set(before)
    moved = {name for name in after if not torch.equal(after[name], before[name])}
    assert moved == {"layers.1.weight", "layers.1.bias"}
    assert run.meta["frozen"] == ["layers.0.weight", "layers.0.bias"]
    values = after["layers.1.weight"].numel() + after["layers.1.bias"].numel()
    assert run.meta["parameters"] == values
    assert run.last_round()["bytes_up"] == 4 * 8 * 4 * values  # 4 rounds, 8 clients, float32
    model = fedbench.trained_model(run)
    assert torch.equal(model.layers[0].weight, after["layers.0.weight"])
    again = f"{keys} parts.frozen=[body] rounds=0 init.path={run.path / 'model.safetensors'}"
    kept = load_file(fedbench.run(again).path / "model.safetensors")
    assert all(torch.equal(kept[name], after[name]) for name in after)
