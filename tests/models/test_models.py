"""Architectures against torch's own and sizes counted by hand; deep and recurrent models in every engine mode."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from tools import close, federation, final, snapshots, task_for
from torch import nn

from fedbench.algorithms.fedavg import fedavg
from fedbench.algorithms.scaffold import scaffold
from fedbench.core.errors import RequestError
from fedbench.core.optim import SGD
from fedbench.core.randomness import dropout
from fedbench.core.types import Batch
from fedbench.core.validation import checked
from fedbench.data.assemble import assemble
from fedbench.data.examples import Examples
from fedbench.models.base import ModelTraits, initial, traits_of
from fedbench.models.cnn import ConvNet, LeNet
from fedbench.models.dense import MLP, Linear
from fedbench.models.lstm import LSTM
from fedbench.models.resnet import resnet, torchvision_models
from fedbench.models.vgg import VGG11
from fedbench.simulation.engine import Engine
from fedbench.simulation.evaluation import evaluate
from fedbench.simulation.local_work import LocalWork
from fedbench.simulation.measurements import Measurements
from fedbench.simulation.oracles import LoopOracle, make_oracle
from fedbench.simulation.task import Task, example_losses


@pytest.fixture(autouse=True)
def the_same_numbers_every_time():
    torch.manual_seed(0)


SMALL = {"embedding": 3, "hidden": 5, "layers": 2}


def lstm(length=6, classes=7, tokens=7, vectors=None, **options):
    return LSTM((length,), classes, tokens, vectors, **{**SMALL, **options})


def gates(inputs, hidden):
    """Four gates, each with a matrix for the input, one for the state, and torch's two biases."""
    return 4 * hidden * (inputs + hidden + 2)


SIZES = {
    "mlp, FEMNIST": (lambda: MLP((1, 28, 28), 62, [128]), 784 * 128 + 128 + 128 * 62 + 62),
    "mlp, CIFAR-10": (
        lambda: MLP((3, 32, 32), 10, [200, 200]),
        3072 * 200 + 200 + 200 * 200 + 200 + 2000 + 10,
    ),
    "cnn, FEMNIST": (
        lambda: ConvNet((1, 28, 28), 62, [32, 64], 5, 512),
        (25 + 1) * 32 + (32 * 25 + 1) * 64 + (7 * 7 * 64 + 1) * 512 + 513 * 62,
    ),
    # 28 -> 24 -> 12 -> 8 -> 4 pixels a side, and 32 -> 28 -> 14 -> 10 -> 5
    "lenet, MNIST": (
        lambda: LeNet((1, 28, 28), 10, [6, 16], 5, [120, 84]),
        26 * 6 + 151 * 16 + 257 * 120 + 121 * 84 + 850,
    ),
    "lenet, CIFAR-10": (
        lambda: LeNet((3, 32, 32), 10, [6, 16], 5, [120, 84]),
        76 * 6 + 151 * 16 + 401 * 120 + 121 * 84 + 850,
    ),
    "vgg11": (
        lambda: VGG11((3, 32, 32), 10),
        sum(9 * a * b + b for a, b in pairwise([3, 64, 128, 256, 256, 512, 512, 512, 512]))
        + 512 * 10
        + 10,
    ),
    # torchvision's resnet18 has 11689512 with 1000 classes and a 7x7 stem; BatchNorm and GroupNorm
    # have as many
    "resnet18_gn, 7x7": (
        lambda: resnet((3, 32, 32), 10, stem="7x7"),
        11_689_512 - 513 * 1000 + 513 * 10,
    ),
    "resnet18_gn, 3x3": (
        lambda: resnet((3, 32, 32), 10),
        11_689_512 - 513 * 1000 + 513 * 10 - 64 * 3 * 49 + 64 * 3 * 9,
    ),
    "resnet50_gn": (
        lambda: resnet((3, 64, 64), 14, depth=50, stem="7x7", groups=32),
        25_557_032 - 2049 * 1000 + 2049 * 14,
    ),
    "lstm_char": (
        lambda: lstm(80, 80, 80, embedding=8, hidden=256),
        80 * 8 + gates(8, 256) + gates(256, 256) + 257 * 80,
    ),
    "lstm_sent140": (
        lambda: lstm(25, 2, 9, torch.zeros(9, 300), embedding="frozen", hidden=100),
        gates(300, 100) + gates(100, 100) + 101 * 2,
    ),
    "lstm_lm": (
        lambda: lstm(35, 33278, 33278, embedding=650, hidden=650, every=True),
        33278 * 650 + 2 * gates(650, 650) + 651 * 33278,
    ),
}


@pytest.mark.parametrize("name", SIZES)
def test_sizes_counted_by_hand(name):
    make, size = SIZES[name]
    with torch.device("meta"):
        assert sum(p.numel() for p in make().parameters()) == size


def filled(model, seed=0):
    """The model in float64 with Gaussian parameters."""
    gen = torch.Generator().manual_seed(seed)
    for p in model.parameters():
        p.data = 0.2 * torch.randn(p.shape, generator=gen, dtype=torch.float64)
    return model


def test_lenet_is_its_layers_in_a_row():
    """The order of the 1998 network: convolution, ReLU and pooling; pooling first is the same function."""
    model = filled(LeNet((3, 32, 32), 10, [6, 16], 5, [120, 84]))
    rows = nn.Sequential(
        nn.Conv2d(3, 6, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10),
    )  # fmt: skip
    nn.utils.vector_to_parameters(
        nn.utils.parameters_to_vector(model.parameters()), rows.parameters()
    )
    x = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    assert torch.equal(model(x), rows(x))


def test_vgg_is_torchvisions_features_and_a_linear_layer():
    """Pooling before ReLU is the same function."""
    with torch.device("meta"):  # torchvision's has a classifier of 124 million parameters
        ours, theirs = VGG11((3, 32, 64), 4), torchvision_models().vgg11().features
    filled(ours.to_empty(device="cpu"))
    theirs.load_state_dict(ours.features.state_dict(), assign=True)
    x = torch.randn(2, 3, 32, 64, dtype=torch.float64)
    assert torch.allclose(ours(x), ours.classifier(theirs(x).flatten(1)), rtol=1e-12)


@pytest.mark.parametrize(("stem", "side"), [("3x3", 4), ("7x7", 1)])
def test_resnet_strides(stem, side):
    """32 pixels a side: three halvings, and two more by the original stem."""
    with torch.device("meta"):
        model, seen = resnet((1, 32, 32), 5, stem=stem), []
        model.layer4.register_forward_hook(lambda module, x, y: seen.append(tuple(y.shape)))
        assert model(torch.empty(2, 1, 32, 32)).shape == (2, 5)
    assert seen == [(2, 512, side, side)]
    assert not list(model.buffers())


def test_lstm_is_torchs_lstm():
    ours = filled(lstm(dense=[4]))
    theirs = nn.LSTM(3, 5, 2, batch_first=True).double()
    for k, layer in enumerate(ours.lstms):
        for name, p in layer.named_parameters():
            getattr(theirs, name.replace("l0", f"l{k}")).data = p.data
    x = torch.randint(0, 7, (4, 6))
    h = theirs(ours.embedding(x))[0]
    assert torch.allclose(ours(x), ours.dense[1](torch.relu(ours.dense[0](h[:, -1]))), rtol=1e-12)
    each = filled(lstm(every=True))
    last = filled(lstm())
    assert torch.allclose(each(x)[:, -1], last(x), rtol=1e-12)


def test_single_operations_are_the_fused_kernel():
    model, x = filled(lstm()), torch.randint(0, 7, (4, 6))
    fused = model(x)
    for layer in model.lstms:
        layer.elementary = True
    assert torch.allclose(model(x), fused, rtol=1e-12)


# ---- dropout


def test_dropout_is_a_function_of_its_key():
    x, key = torch.ones(200, 500, dtype=torch.float64), torch.tensor(3)
    once = dropout(x, 0.3, key, 1)
    assert torch.equal(once, dropout(x, 0.3, key, 1))
    assert set(once.unique().tolist()) == {0.0, 1 / 0.7}
    # four deviations of 100000 draws
    assert (once == 0).double().mean().item() == pytest.approx(0.3, abs=0.006)
    for other in (dropout(x, 0.3, key + 1, 1), dropout(x, 0.3, key, 2)):
        both = ((other == 0) & (once == 0)).double().mean().item()
        assert both == pytest.approx(0.09, abs=0.004)  # independent


def test_dropout_in_the_network_by_hand():
    model, x, key = filled(lstm(dropout=0.5)), torch.randint(0, 7, (4, 6)), torch.tensor(11)
    h = dropout(model.embedding(x), 0.5, key, 0)
    for k, layer in enumerate(model.lstms):
        h = dropout(layer(h), 0.5, key, k + 1)
    assert torch.equal(model(x, key), model.dense[0](h[:, -1]))
    assert torch.equal(model(x), filled(lstm())(x))  # none without a key


# ---- oracles

DEEP = {
    "cnn, one channel": (lambda: ConvNet((1, 8, 8), 5, [3, 4], 3, 6), (1, 8, 8), None),
    "cnn, three channels": (lambda: ConvNet((3, 8, 8), 5, [3, 4], 3, 6), (3, 8, 8), None),
    "lenet": (lambda: LeNet((1, 8, 10), 5, [3], 3, [6, 4]), (1, 8, 10), None),
    "vgg11": (lambda: VGG11((1, 32, 32), 5), (1, 32, 32), None),
    "resnet18_gn": (lambda: resnet((1, 8, 8), 5), (1, 8, 8), None),
    "lstm": (lambda: lstm(6, 5), (6,), ()),
    "lstm with dropout": (lambda: lstm(6, 5, dropout=0.5), (6,), ()),
    "lstm, every token": (lambda: lstm(6, 5, dropout=0.25, every=True), (6,), (6,)),
    "linear": (lambda: Linear((6,), 5), (6,), None),
    "mlp": (lambda: MLP((6,), 5, [4, 3]), (6,), None),
}

LARGE = ("vgg11", "resnet18_gn")  # ten million parameters each


def case(name):
    """A task and a batch of unequal clients, with keys where the model draws."""
    make, shape, labels = DEEP[name]
    clients, size = (2, 4) if name in LARGE else (3, 4)
    with torch.device("meta"):
        task = Task(make(), torch.device("cpu"), torch.float64)
    gen = torch.Generator().manual_seed(1)
    counts = torch.tensor([4, 1, 3])[:clients]
    weight = (torch.arange(size) < counts[:, None]).double() / counts[:, None]
    whole = (clients, size)
    x = torch.randn(*whole, *shape, generator=gen, dtype=torch.float64)
    if labels is not None:
        x = torch.randint(0, 7, (*whole, *shape), generator=gen)
    y = torch.randint(0, 5, (*whole, *(labels or ())), generator=gen)
    key = torch.tensor([5, 6, 7])[:clients] if task.traits.random else None
    return task, Batch(x, y, weight, key), torch.stack([task.init(gen) for _ in range(clients)])


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.slow] if n in LARGE else []) for n in DEEP]
)
def test_stacked_oracle_is_the_loop(name):
    task, batch, w = case(name)
    loop, stacked = LoopOracle(task), make_oracle(task, "stacked")
    (f, g), (f_loop, g_loop) = stacked.loss_and_grad(w, batch), loop.loss_and_grad(w, batch)
    assert torch.allclose(f, f_loop, rtol=1e-10)
    assert torch.allclose(g, g_loop, rtol=1e-9, atol=1e-12)
    assert torch.allclose(
        stacked.logits(w, batch.x), loop.logits(w, batch.x), rtol=1e-9, atol=1e-12
    )


@pytest.mark.parametrize(
    ("mode", "name"),
    [
        pytest.param(mode, name, marks=[pytest.mark.slow] if name in LARGE else [])
        for mode in ("loop", "stacked")
        for name in DEEP
    ],
)
def test_a_plain_step_of_the_oracle_is_minus_rate_times_gradient(name, mode):
    task, batch, w = case(name)
    oracle = make_oracle(task, mode)
    lr = torch.tensor([[0.1], [0.02], [3.0]], dtype=torch.float64)[: len(w)]
    want = w - lr * oracle.grad(w, batch)
    # a part of a larger matrix, as in a chunk some of whose clients have finished
    whole = torch.cat([w, w])
    oracle.descend_(whole[: len(w)], batch, lr)
    assert torch.allclose(whole[: len(w)], want, rtol=1e-10, atol=1e-13)
    assert torch.equal(whole[len(w) :], w)


def test_loss_of_tokens_is_their_mean():
    logits = torch.randn(2, 3, 4, 20)
    y = torch.randint(0, 20, (2, 3, 4))
    each = example_losses(logits, y, 3)
    assert torch.allclose(example_losses(logits, y, 2), each.mean(-1))
    assert torch.allclose(each[1, 2, 3], -torch.log_softmax(logits[1, 2, 3], -1)[y[1, 2, 3]])


# ---- whole rounds


def texts(every):
    """Unequal clients with random tokens, and a label per text or per token."""
    rng = np.random.default_rng(0)
    n = np.array([7, 25, 12, 1])
    y = rng.integers(0, 5, (n.sum(), 6) if every else n.sum())
    e = Examples(rng.integers(0, 7, (n.sum(), 6)), y, 5, np.repeat(np.arange(4), n), tuple("abcd"))
    data = assemble(e, partition=None, clients=None, split=1.0, local_test="split", seed=0)
    return data.to(torch.device("cpu"), torch.float64)


@pytest.mark.parametrize(
    ("algo", "every"),
    [
        (fedavg, True),
        (scaffold, False),
        pytest.param(fedavg, False, marks=pytest.mark.slow),
        pytest.param(scaffold, True, marks=pytest.mark.slow),
    ],
)
def test_modes_chunks_and_workers_agree_with_dropout(algo, every):
    data = texts(every)
    with torch.device("meta"):
        task = Task(lstm(6, 5, dropout=0.5, every=every), torch.device("cpu"), torch.float64)

    def final(mode, size, workers, seed=0):
        work = LocalWork(0.5, 4, (1, 2), random=True)
        how = {
            "task": task,
            "mode": mode,
            "cohort_size": size,
            "workers": workers,
            "rounds": 2,
            "seed": seed,
        }
        return snapshots(algo(SGD), data, work=work, **how)[-1].server["w"]

    first, threads = final("loop", 1, 1), final("loop", 1, 2)
    for other in (threads, final("stacked", 2, 1), final("stacked", 9, 2)):
        assert torch.allclose(other, first, rtol=1e-9, atol=1e-12)
    assert torch.equal(final("loop", 1, 2), threads)
    assert not torch.allclose(final("loop", 1, 1, seed=1), first, rtol=1e-3)


@pytest.mark.parametrize(
    "name", ["cnn, one channel", pytest.param("resnet18_gn", marks=pytest.mark.slow)]
)
def test_convolutions_agree_in_float32_after_a_round(name):
    make, shape, _ = DEEP[name]
    with torch.device("meta"):
        task = Task(make(), torch.device("cpu"), torch.float32)
    data = federation(sizes=(7, 25, 12), features=64, classes=5, dtype=torch.float32, shape=shape)
    ends = [
        snapshots(
            fedavg(SGD), data, task=task, mode=m, rounds=1, workers=k, work=LocalWork(0.05, 8)
        )[-1].server["w"]
        for m, k in (("loop", 1), ("loop", 2), ("stacked", 1))
    ]
    for other in ends[1:]:
        assert torch.allclose(other, ends[0], rtol=1e-4, atol=1e-5)


def test_accuracy_of_a_label_per_token():
    """A client's right answers are the shares of right tokens, summed over its sequences."""
    data = texts(every=True)
    with torch.device("meta"):
        task = Task(lstm(6, 5, every=True), torch.device("cpu"), torch.float64)
    w = task.init(torch.Generator().manual_seed(0))
    record = evaluate(Measurements(task, Engine(LoopOracle(task), "loop", 1)), data, w)
    for k, rows in enumerate(data.train.split()):
        logits = task.predict(w, data.features(torch.from_numpy(rows)))
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), data.y[rows].flatten())
        assert record.train_loss[k] / len(rows) == pytest.approx(loss.item(), rel=1e-12)
    tested = assemble(
        Examples(
            data.x.numpy(), data.y.numpy(), 5, np.zeros(45, dtype=int), ("a",), np.arange(45) >= 40
        ),
        partition=None,
        clients=None,
        split=0.8,
        local_test="auto",
        seed=0,
    ).to(torch.device("cpu"), torch.float64)
    record = evaluate(Measurements(task, Engine(LoopOracle(task), "loop", 1)), tested, w)
    hits = task.predict(w, data.x[40:].long()).argmax(-1) == data.y[40:]
    assert record.test.correct[0] == pytest.approx(hits.double().mean(1).sum().item())
    assert record.per_client(("a",))["accuracy"][0] == pytest.approx(hits.double().mean().item())


# ---- bfloat16


# torch's convolutions are not to be trusted with it on a CPU
@pytest.mark.parametrize("name", ["linear", "mlp"])
@pytest.mark.parametrize("mode", ["loop", "stacked"])
def test_bfloat16_rounds_the_products_and_not_the_parameters(name, mode):
    """Eight bits of mantissa: gradients differ by about 2^-8, and not by nothing."""
    make, shape, _ = DEEP[name]
    with torch.device("meta"):
        plain, rounded = (
            Task(make(), torch.device("cpu"), torch.float32, bf16=b) for b in (False, True)
        )
    gen = torch.Generator().manual_seed(1)
    w = torch.stack([plain.init(gen) for _ in range(2)])
    batch = Batch(torch.randn(2, 4, *shape), torch.randint(0, 5, (2, 4)), torch.full((2, 4), 0.25))
    g, g_rounded = (make_oracle(task, mode).grad(w, batch) for task in (plain, rounded))
    assert g_rounded.dtype == torch.float32
    off = ((g_rounded - g).norm() / g.norm()).item()
    assert 1e-4 < off < 0.03


# ---- initial values and vectors


def test_initial_values_by_kind_of_layer():
    with torch.device("meta"):
        net, text = resnet((3, 32, 32), 10), lstm(embedding=8, hidden=64)
    values = initial(net, torch.Generator().manual_seed(0))
    w = values["layer3.0.conv2.weight"]  # [256, 256, 3, 3]
    assert w.std().item() == pytest.approx((2 / (256 * 9)) ** 0.5, rel=0.01)
    assert values["layer3.0.bn1.weight"].eq(1).all()
    assert values["layer3.0.bn1.bias"].eq(0).all()
    assert values["fc.weight"].abs().max().item() == pytest.approx(512**-0.5, rel=0.01)
    values = initial(text, torch.Generator().manual_seed(0))
    assert values["lstms.1.weight_hh_l0"].abs().max().item() == pytest.approx(1 / 8, rel=0.01)
    assert values["embedding.weight"].std().item() == pytest.approx(1, abs=0.25)
    with pytest.raises(RequestError, match="no initialisation is known for Bilinear"):
        initial(nn.Sequential(nn.Bilinear(2, 2, 2)), torch.Generator())


def test_given_vectors_frozen_or_trained():
    vectors = torch.randn(7, 3, generator=torch.Generator().manual_seed(0))
    frozen, trained = (lstm(vectors=vectors, embedding=e) for e in ("frozen", "trained"))
    assert not any(n.startswith("embedding") for n, _ in frozen.named_parameters())
    start = initial(trained, torch.Generator().manual_seed(0))
    assert torch.equal(start["embedding.weight"], vectors)
    frozen.load_state_dict({k: v for k, v in start.items() if k != "embedding.weight"})
    trained.load_state_dict(start)
    x = torch.randint(0, 7, (4, 6))
    assert torch.equal(frozen(vectors[x]), trained(x))


@pytest.mark.parametrize(
    "layer", [nn.Dropout(0.5), nn.Dropout2d(0.1), nn.LSTM(3, 3, 2, dropout=0.5)]
)
def test_layers_that_draw_by_themselves_are_refused(layer):
    with pytest.raises(
        RequestError,
        match=r"Sequential.1 draws from torch's global generator, .* set traits = ModelTraits",
    ):
        Task(nn.Sequential(nn.Linear(3, 3), layer), torch.device("cpu"), torch.float32)
    Task(nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.0)), torch.device("cpu"), torch.float32)


def test_tied_parameters_and_values_given_by_the_model():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.e, self.o, self.free = (
                nn.Embedding(7, 3),
                nn.Linear(3, 7),
                nn.Parameter(torch.empty(2)),
            )
            self.o.weight = self.e.weight

    model = Tied()
    with pytest.raises(
        RequestError,
        match=r"no initialisation is known for Tied \(free\); give it in .* ModelTraits\(begin=",
    ):
        initial(model, torch.Generator())
    model.traits = ModelTraits(begin={"free": torch.tensor([1.0, 2.0])})
    task = Task(model, torch.device("cpu"), torch.float32)
    values = task.layout.named(task.init(torch.Generator().manual_seed(0)))
    assert list(values) == ["free", "e.weight", "o.bias"]
    assert values["free"].tolist() == [1, 2]


def test_a_subclass_of_a_dense_model_is_asked_for_its_own_forward():
    """The engine must not write out the pass of the parent."""

    class Scaled(MLP):
        def forward(self, x):
            return 2 * super().forward(x)

    class Declared(Scaled):
        traits = ModelTraits(dense=True)

    assert traits_of(MLP((4,), 3, [2])).dense
    assert not traits_of(Scaled((4,), 3, [2])).dense
    assert traits_of(Declared((4,), 3, [2])).dense
    data = federation(features=4)
    task = task_for(data, Scaled, hidden=[2])
    assert close(
        final(fedavg(SGD), data, task=task), final(fedavg(SGD), data, task=task, mode="loop"), 1e-12
    )


def test_traits_of_another_type_are_refused():
    model = nn.Linear(2, 2)
    model.traits = {"random": True}
    with pytest.raises(
        RequestError, match=r"Linear.traits must be a fedbench.models.base.ModelTraits, got dict"
    ):
        Task(model, torch.device("cpu"), torch.float32)


def test_the_table_of_a_model_is_taken_once():
    """Worker threads copy the model, which must not hold the vectors of all tokens then."""
    vectors = torch.zeros(7, 3)
    task = Task(lstm(vectors=vectors, embedding="frozen"), torch.device("cpu"), torch.float32)
    assert task.take_table() is vectors
    assert task.take_table() is None
    assert task.model.traits.table is None
    assert task.traits.work_values == 6 * 2  # length * hidden // 2


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: LSTM((60,), 5, None, None, **SMALL),
            "this model needs tokens, got examples of shape",
        ),
        (lambda: lstm(embedding="frozen"), "this data set has no vectors; give a size"),
        (lambda: checked(LSTM, {"dense": 5}), "dense must be a list, got 5"),
        (lambda: checked(ConvNet, {"channels": 4}), "channels must be a list, got 4"),
        (
            lambda: LSTM((2, 6), 5, 7, None, **SMALL),
            r"this model needs tokens, got examples of shape \[2, 6\]",
        ),
        (
            lambda: LeNet((1, 10, 28), 5, [6, 16], 5, [9]),
            "poolings leave nothing of images of 10 x 28 pixels",
        ),
        (lambda: VGG11((3, 28, 28), 10), "at least 32 x 32 pixels"),
        (lambda: resnet((60,), 10), "this model needs images"),
        (lambda: ConvNet((60,), 5, [4], 3, 6), "needs images"),
        (lambda: ConvNet((1, 8, 8), 5, [4], 4, 6), "must be odd, got 4"),
        (lambda: ConvNet((1, 8, 8), 5, [4] * 4, 3, 6), "leave nothing of images of 8 x 8 pixels"),
        (lambda: MLP((8,), 5, []), "model=linear"),
        (lambda: checked(MLP, {"hidden": [0]}), "hidden must be >= 1, got 0"),
    ],
)
def test_models_refuse(make, message):
    with pytest.raises(RequestError, match=message):
        make()
