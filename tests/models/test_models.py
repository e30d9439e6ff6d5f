"""Architectures against torch's own and sizes counted by hand; deep and recurrent models in every
engine mode."""

from math import exp

import numpy as np
import pytest
import torch
from tools import close, federation, final, rejected, task_for
from torch import nn

from fedbench.algorithms.fedavg import fedavg
from fedbench.algorithms.scaffold import scaffold
from fedbench.core.optim import SGD
from fedbench.core.randomness import dropout
from fedbench.core.types import Batch
from fedbench.data.assemble import assemble
from fedbench.data.examples import Examples
from fedbench.models.base import ModelTraits, initial, traits_of
from fedbench.models.cnn import ConvNet, LeNet
from fedbench.models.dense import MLP, Linear, Logistic
from fedbench.models.lstm import LSTM
from fedbench.models.resnet import resnet, torchvision_models
from fedbench.models.vgg import VGG11
from fedbench.simulation.engine import Engine
from fedbench.simulation.evaluation import evaluate
from fedbench.simulation.local_work import LocalWork
from fedbench.simulation.measurements import Measurements
from fedbench.simulation.oracles import LoopOracle, make_oracle
from fedbench.simulation.task import Task, example_losses

CPU = torch.device("cpu")
D = torch.float64


@pytest.fixture(autouse=True)
def the_same_numbers_every_time():
    torch.manual_seed(0)


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def task_of(make, dtype=D, **options):
    with torch.device("meta"):
        return Task(make(), CPU, dtype, **options)


def lstm(length=6, classes=7, tokens=7, vectors=None, **options):
    small = {"embedding": 3, "hidden": 5, "layers": 2}
    return LSTM(
        (length,),
        classes,
        tokens,
        vectors,
        **(small | options),
    )


def small_cnn(
    shape=(1, 8, 8),
    channels=(3, 4),
    kernel=3,
):
    return ConvNet(shape, 5, channels, kernel, 6)


def linear(inputs, outputs):
    return (inputs + 1) * outputs


# torchvision's networks with 1000 classes and a 7x7 stem; BatchNorm and GroupNorm have as many
RESNET18 = 11_689_512
RESNET50 = 25_557_032

SIZES = {
    "mlp": (
        lambda: MLP((3, 32, 32), 10, [200, 200]),
        linear(3072, 200) + linear(200, 200) + linear(200, 10),
    ),
    "cnn": (
        lambda: ConvNet((1, 28, 28), 62, [32, 64], 5, 512),
        linear(25, 32) + linear(32 * 25, 64) + linear(7 * 7 * 64, 512) + linear(512, 62),
    ),
    "resnet18_gn": (
        lambda: resnet((3, 32, 32), 10),
        RESNET18 - linear(512, 1000) + linear(512, 10) - 64 * 3 * 49 + 64 * 3 * 9,
    ),
    "resnet50_gn": (
        lambda: resnet(
            (3, 64, 64),
            14,
            depth=50,
            stem="7x7",
            groups=32,
        ),
        RESNET50 - linear(2048, 1000) + linear(2048, 14),
    ),
}


@pytest.mark.parametrize("name", SIZES)
def test_sizes_counted_by_hand(name):
    make, size = SIZES[name]
    with torch.device("meta"):
        model = make()
    assert sum(p.numel() for p in model.parameters()) == size


def filled(model):
    """The model in float64 with Gaussian parameters."""
    gen = seeded()
    for p in model.parameters():
        p.data = 0.2 * torch.randn(p.shape, generator=gen, dtype=D)
    return model


def test_lenet_is_its_layers_in_a_row():
    """The order of the 1998 network: convolution, ReLU and pooling; pooling first is the same
    function."""
    model = filled(LeNet((1, 12, 12), 4, [2, 3], 3, [5]))
    row = nn.Sequential(
        nn.Conv2d(1, 2, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(2, 3, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(3, 5),
        nn.ReLU(),
        nn.Linear(5, 4),
    )
    w = nn.utils.parameters_to_vector(model.parameters())
    nn.utils.vector_to_parameters(w, row.parameters())
    x = torch.randn(2, 1, 12, 12, dtype=D)
    assert torch.equal(model(x), row(x))


def test_logistic_regression_has_the_binary_cross_entropy_of_one_output():
    model = filled(Logistic((2, 3), 2))
    x = torch.randn(5, 2, 3, dtype=D)
    y = torch.tensor([0, 1, 1, 0, 1])
    ours = nn.functional.cross_entropy(model(x), y)
    z = x.flatten(1) @ model.weight[0] + model.bias
    theirs = nn.functional.binary_cross_entropy(z.sigmoid(), y.double())
    parameters = [model.weight, model.bias]
    torch.testing.assert_close(
        [ours, *torch.autograd.grad(ours, parameters)],
        [theirs, *torch.autograd.grad(theirs, parameters)],
    )
    assert torch.equal(model(x).argmax(1) == 1, z.sigmoid() > 0.5)


def test_vgg_is_torchvisions_features_and_a_linear_layer():
    """Pooling before ReLU is the same function."""
    with torch.device("meta"):  # torchvision's has a classifier of 124 million parameters
        ours = VGG11((3, 32, 64), 4)
        theirs = torchvision_models().vgg11().features
    filled(ours.to_empty(device="cpu"))
    theirs.load_state_dict(ours.features.state_dict(), assign=True)
    x = torch.randn(2, 3, 32, 64, dtype=D)
    expected = ours.classifier(theirs(x).flatten(1))
    assert torch.allclose(ours(x), expected, rtol=1e-12)


@pytest.mark.parametrize(
    ("stem", "side"),
    [("3x3", 4), ("7x7", 1)],
)
def test_resnet_strides(stem, side):
    """32 pixels a side: three halvings, and two more by the original stem."""
    shapes = []
    with torch.device("meta"):
        model = resnet((1, 32, 32), 5, stem=stem)
        model.layer4.register_forward_hook(lambda module, x, y: shapes.append(y.shape))
        logits = model(torch.empty(2, 1, 32, 32))
    assert logits.shape == (2, 5)
    assert shapes == [(2, 512, side, side)]


def test_lstm_is_torchs_lstm():
    ours = filled(lstm(dense=[4]))
    theirs = nn.LSTM(3, 5, 2, batch_first=True).double()
    for k, layer in enumerate(ours.lstms):
        for name, p in layer.named_parameters():
            getattr(theirs, name.replace("l0", f"l{k}")).data = p.data

    x = torch.randint(0, 7, (4, 6))
    hidden = theirs(ours.embedding(x))[0][:, -1]
    first, second = ours.dense
    expected = second(torch.relu(first(hidden)))
    assert torch.allclose(ours(x), expected, rtol=1e-12)

    each = filled(lstm(every=True))
    last = filled(lstm())
    assert torch.allclose(each(x)[:, -1], last(x), rtol=1e-12)


# ---- dropout


def test_dropout_is_a_function_of_its_key():
    x = torch.ones(200, 500, dtype=D)
    key = torch.tensor(3)
    once = dropout(x, 0.3, key, 1)
    assert torch.equal(once, dropout(x, 0.3, key, 1))
    assert set(once.unique().tolist()) == {0.0, 1 / 0.7}

    # four deviations of 100000 draws
    dropped = once == 0
    assert dropped.double().mean() == pytest.approx(0.3, abs=0.006)
    others = (
        dropout(x, 0.3, key + 1, 1),
        dropout(x, 0.3, key, 2),
    )
    for other in others:
        both = (other == 0) & dropped
        assert both.double().mean() == pytest.approx(0.09, abs=0.004)  # independent


def test_dropout_in_the_network_by_hand():
    model = filled(lstm(dropout=0.5))
    x = torch.randint(0, 7, (4, 6))
    key = torch.tensor(11)
    h = dropout(model.embedding(x), 0.5, key, 0)
    for k, layer in enumerate(model.lstms):
        h = dropout(layer(h), 0.5, key, k + 1)
    logits = model.dense[0](h[:, -1])
    assert torch.equal(model(x, key), logits)
    assert torch.equal(model(x), filled(lstm())(x))  # none without a key


# ---- oracles

# makes of models, the shape of an example, and of its labels where the example is text
DEEP = {
    "cnn, one channel": (small_cnn, (1, 8, 8), None),
    "cnn, three channels": (
        lambda: small_cnn((3, 8, 8)),
        (3, 8, 8),
        None,
    ),
    "lenet": (
        lambda: LeNet((1, 8, 10), 5, [3], 3, [6, 4]),
        (1, 8, 10),
        None,
    ),
    "vgg11": (
        lambda: VGG11((1, 32, 32), 5),
        (1, 32, 32),
        None,
    ),
    "resnet18_gn": (
        lambda: resnet((1, 8, 8), 5),
        (1, 8, 8),
        None,
    ),
    "lstm": (
        lambda: lstm(6, 5),
        (6,),
        (),
    ),
    "lstm, every token": (
        lambda: lstm(6, 5, dropout=0.25, every=True),
        (6,),
        (6,),
    ),
    "linear": (
        lambda: Linear((6,), 5),
        (6,),
        None,
    ),
    "linear, sigmoid": (
        lambda: Linear((6,), 5, sigmoid=True),
        (6,),
        None,
    ),
    "mlp": (
        lambda: MLP((6,), 5, [4, 3]),
        (6,),
        None,
    ),
}

LARGE = ("vgg11", "resnet18_gn")  # ten million parameters each
NAMES = [
    pytest.param(
        name,
        marks=[pytest.mark.slow] if name in LARGE else [],
    )
    for name in DEEP
]


def case(name):
    """A task and a batch of unequal clients, with keys where the model draws."""
    make, shape, labels = DEEP[name]
    task = task_of(make)
    gen = seeded(1)
    counts = torch.tensor([4, 1] if name in LARGE else [4, 1, 3])
    clients = len(counts)
    if labels is None:
        x = torch.randn(
            clients,
            4,
            *shape,
            generator=gen,
            dtype=D,
        )
    else:
        x = torch.randint(
            0,
            7,
            (clients, 4, *shape),
            generator=gen,
        )
    y = torch.randint(
        0,
        5,
        (clients, 4, *(labels or ())),
        generator=gen,
    )
    real = torch.arange(4) < counts[:, None]
    weight = real.double() / counts[:, None]
    key = None
    if task.traits.random:
        key = torch.tensor([5, 6, 7])[:clients]
    w = torch.stack([task.init(gen) for _ in counts])
    return task, Batch(x, y, weight, key), w


def test_logistic_regression_with_a_sigmoid():
    model = Linear((2,), 2, sigmoid=True)
    nn.init.zeros_(model.weight)
    nn.init.constant_(model.bias, 0.4)
    logits = model(torch.ones(1, 2)).flatten().tolist()
    assert logits == pytest.approx([1 / (1 + exp(-0.4))] * 2)


@pytest.mark.parametrize("name", NAMES)
def test_the_oracles_agree_and_descend_along_their_gradients(name):
    task, batch, w = case(name)
    loop = LoopOracle(task)
    stacked = make_oracle(task, "stacked")
    ours = [
        *stacked.loss_and_grad(w, batch),
        stacked.logits(w, batch.x),
    ]
    theirs = [
        *loop.loss_and_grad(w, batch),
        loop.logits(w, batch.x),
    ]
    torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-12)

    rates = torch.tensor([[0.1], [0.02], [3.0]], dtype=D)
    lr = rates[: len(w)]
    for oracle in (loop, stacked):
        # on a part of a larger matrix, as in a chunk some of whose clients have finished
        whole = torch.cat([w, w])
        part, rest = whole.chunk(2)
        oracle.descend_(part, batch, lr)
        expected = w - lr * oracle.grad(w, batch)
        assert torch.allclose(part, expected, rtol=1e-10, atol=1e-13)
        assert torch.equal(rest, w)


def test_the_loss_of_tokens_is_their_mean():
    logits = torch.randn(2, 3, 4, 20)
    y = torch.randint(0, 20, (2, 3, 4))
    each = nn.functional.cross_entropy(
        logits.flatten(0, 2),
        y.flatten(),
        reduction="none",
    )
    assert torch.allclose(example_losses(logits, y, 3).flatten(), each)
    of_sequences = each.view(2, 3, 4).mean(-1)
    assert torch.allclose(example_losses(logits, y, 2), of_sequences)


# ---- whole rounds


def assembled(examples):
    data = assemble(
        examples,
        partition=None,
        clients=None,
        split=1.0,
        local_test="auto",
        seed=0,
    )
    return data.to(CPU, D)


def texts(every):
    """Unequal clients with random tokens, and a label per text or per token."""
    rng = np.random.default_rng(0)
    owners = np.repeat(
        np.arange(4),
        [7, 25, 12, 1],
    )
    y = rng.integers(
        0,
        5,
        (45, 6) if every else 45,
    )
    x = rng.integers(0, 7, (45, 6))
    return assembled(Examples(x, y, 5, owners, tuple("abcd")))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("algo", "every"),
    [(fedavg, True), (scaffold, False)],
)
def test_modes_chunks_and_workers_agree_with_dropout(algo, every):
    task = task_of(lambda: lstm(6, 5, dropout=0.5, every=every))
    data = texts(every)
    work = LocalWork(0.5, 4, (1, 2), random=True)

    def run(mode, cohort_size, workers):
        return final(
            algo(SGD),
            data,
            task=task,
            work=work,
            mode=mode,
            cohort_size=cohort_size,
            workers=workers,
            rounds=2,
        )

    one = run("loop", 1, 1)
    threads = run("loop", 1, 2)
    for other in (threads, run("stacked", 2, 1), run("stacked", 9, 2)):
        assert torch.allclose(other, one, rtol=1e-9, atol=1e-12)
    assert torch.equal(run("loop", 1, 2), threads)


def test_the_accuracy_of_a_label_per_token():
    """A client's right answers are the shares of right tokens, summed over its sequences."""
    task = task_of(lambda: lstm(6, 5, every=True))
    w = task.init(seeded())
    measurements = Measurements(task, Engine(LoopOracle(task), "loop", 1))
    whole = texts(every=True)
    examples = Examples(
        whole.x.numpy(),
        whole.y.numpy(),
        5,
        np.zeros(45, dtype=int),
        ("a",),
        np.arange(45) >= 40,
    )

    record = evaluate(measurements, assembled(examples), w)
    predicted = task.predict(w, whole.x.long())
    loss = nn.functional.cross_entropy(
        predicted[:40].flatten(0, 1),
        whole.y[:40].flatten(),
    )
    assert record.train_loss[0] / 40 == pytest.approx(loss.item(), rel=1e-12)
    hits = predicted[40:].argmax(-1) == whole.y[40:]
    right = hits.double().mean(1)
    assert record.test.correct[0] == pytest.approx(right.sum().item())
    table = record.per_client(("a",))
    assert table["accuracy"][0] == pytest.approx(right.mean().item())


# torch's convolutions are not to be trusted with it on a CPU
@pytest.mark.parametrize("name", ["linear", "mlp"])
@pytest.mark.parametrize("mode", ["loop", "stacked"])
def test_bfloat16_rounds_the_products_and_not_the_parameters(name, mode):
    """Eight bits of mantissa: gradients differ by about 2^-8, and not by nothing."""
    make, shape, _ = DEEP[name]
    plain = task_of(make, torch.float32)
    rounded = task_of(make, torch.float32, bf16=True)
    w = plain.init(seeded(1)).expand(2, -1)
    x = torch.randn(2, 4, *shape)
    y = torch.randint(0, 5, (2, 4))
    batch = Batch(
        x,
        y,
        torch.full((2, 4), 0.25),
    )
    g = make_oracle(plain, mode).grad(w, batch)
    g_rounded = make_oracle(rounded, mode).grad(w, batch)
    assert g_rounded.dtype == torch.float32
    assert 1e-4 < (g_rounded - g).norm() / g.norm() < 0.03


# ---- initial values and vectors


def test_initial_values_by_kind_of_layer():
    with torch.device("meta"):
        net = resnet((3, 32, 32), 10)
        text = lstm(embedding=8, hidden=64)

    values = initial(net, seeded())
    w = values["layer3.0.conv2.weight"]  # [256, 256, 3, 3]
    variance = 2 / (256 * 9)
    assert w.std() == pytest.approx(variance**0.5, rel=0.01)
    assert values["layer3.0.bn1.weight"].eq(1).all()
    assert values["layer3.0.bn1.bias"].eq(0).all()
    assert values["fc.weight"].abs().max() == pytest.approx(512**-0.5, rel=0.01)

    values = initial(text, seeded())
    widest = values["lstms.1.weight_hh_l0"].abs().max()
    assert widest == pytest.approx(1 / 8, rel=0.01)
    assert values["embedding.weight"].std() == pytest.approx(1, abs=0.25)


def test_given_vectors_are_frozen_or_trained():
    vectors = torch.randn(7, 3, generator=seeded())
    frozen = lstm(vectors=vectors, embedding="frozen")
    trained = lstm(vectors=vectors, embedding="trained")
    assert not any(name.startswith("embedding") for name, _ in frozen.named_parameters())
    start = initial(trained, seeded())
    assert torch.equal(start["embedding.weight"], vectors)

    trained.load_state_dict(start)
    frozen.load_state_dict({k: v for k, v in start.items() if k != "embedding.weight"})
    x = torch.randint(0, 7, (4, 6))
    assert torch.equal(frozen(vectors[x]), trained(x))


@pytest.mark.parametrize(
    "layer",
    [nn.Dropout(0.5), nn.LSTM(3, 3, 2, dropout=0.5)],
)
def test_layers_that_draw_by_themselves_are_refused(layer):
    message = r"Sequential.1 draws from torch's global generator, .* set traits = ModelTraits"
    with rejected(message):
        Task(
            nn.Sequential(nn.Linear(3, 3), layer),
            CPU,
            torch.float32,
        )
    Task(
        nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.0)),
        CPU,
        torch.float32,
    )


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.e = nn.Embedding(7, 3)
        self.o = nn.Linear(3, 7)
        self.o.weight = self.e.weight
        self.free = nn.Parameter(torch.empty(2))


def test_tied_parameters_count_once_and_the_model_may_give_values():
    model = Tied()
    message = r"no initialisation is known for Tied \(free\); give it in .* ModelTraits\(begin="
    with rejected(message):
        initial(model, torch.Generator())

    model.traits = ModelTraits(begin={"free": torch.tensor([1.0, 2.0])})
    task = Task(model, CPU, torch.float32)
    values = task.layout.named(task.init(seeded()))
    assert list(values) == ["free", "e.weight", "o.bias"]
    assert values["free"].tolist() == [1, 2]


class Scaled(MLP):
    def forward(self, x):
        return 2 * super().forward(x)


class Declared(Scaled):
    traits = ModelTraits(dense=True)


def test_a_subclass_of_a_dense_model_is_asked_for_its_own_forward():
    """The engine must not write out the pass of the parent."""
    for model, dense in {MLP: True, Scaled: False, Declared: True}.items():
        made = model((4,), 3, [2])
        assert traits_of(made).dense == dense

    data = federation(features=4)
    task = task_for(data, Scaled, hidden=[2])
    stacked = final(
        fedavg(SGD),
        data,
        task=task,
        mode="stacked",
    )
    loop = final(
        fedavg(SGD),
        data,
        task=task,
        mode="loop",
    )
    assert close(stacked, loop, 1e-12)


def test_traits_of_another_type_are_refused():
    model = nn.Linear(2, 2)
    model.traits = {"random": True}
    message = r"Linear.traits must be a fedbench.models.base.ModelTraits, got dict"
    with rejected(message):
        Task(model, CPU, torch.float32)


def test_the_table_of_a_model_is_taken_once():
    """Worker threads copy the model, which must not hold the vectors of all tokens then."""
    vectors = torch.zeros(7, 3)
    task = Task(
        lstm(vectors=vectors, embedding="frozen"),
        CPU,
        torch.float32,
    )
    assert task.take_table() is vectors
    assert task.take_table() is None
    assert task.model.traits.table is None
    assert task.traits.work_values == 6 * 2  # length * hidden // 2


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: lstm(tokens=None), "needs tokens, got examples of shape"),
        (lambda: lstm(embedding="frozen"), "this data set has no vectors; give a size"),
        (
            lambda: LeNet((1, 6, 28), 5, [3, 4], 3, [6]),
            "nothing of images of 6 x 28 pixels",
        ),
        (
            lambda: VGG11((3, 28, 28), 10),
            "at least 32 x 32 pixels",
        ),
        (lambda: resnet((60,), 10), "this model needs images"),
        (lambda: small_cnn(kernel=4), "must be odd, got 4"),
        (
            lambda: MLP((8,), 5, []),
            "model=linear",
        ),
        (lambda: Logistic((8,), 5), "is for two classes, got 5; use model=linear"),
    ],
)
def test_models_refuse(make, message):
    with rejected(message):
        make()
