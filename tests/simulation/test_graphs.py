"""Local steps replayed from graphs, on one stream or several, rehearsed on a pretended GPU: the results of a CPU."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from math import prod

import pytest
import torch
from pretend_gpu import PretendError, PretendGpu
from pretend_graphs import GraphError, PretendGraph
from tools import CASES, case_id, federation, make, snapshots, task_for, variants
from torch import nn

from fedbench.core.errors import RequestError
from fedbench.core.options import Schedule
from fedbench.data.augment import Augmentation
from fedbench.models.cnn import ConvNet
from fedbench.models.dense import MLP, Linear
from fedbench.models.lstm import LSTM
from fedbench.models.resnet import resnet
from fedbench.models.vgg import VGG11
from fedbench.simulation import engine, graphs
from fedbench.simulation.batches import LocalWork
from fedbench.simulation.engine import Engine
from fedbench.simulation.graphs import rounded
from fedbench.simulation.oracles import make_oracle
from fedbench.simulation.streams import Home, Streams
from fedbench.simulation.unfold import unfold_small, unfoldable

WORK = LocalWork(lr=0.1, batch_size=3, epochs=(1, 2))  # 9 examples: 3 full batches; 5: one and 2 examples; 1: one
SIZES = (1, 9, 5)
DEFAULTS = [c for c in CASES if c[1] == variants(c[0])[0]]
SMALL_MLP = partial(MLP, hidden=(4,))
CNN = partial(ConvNet, channels=(2, 3), kernel=3, hidden=4)
TEXT = partial(LSTM, tokens=7, vectors=None, embedding=3, hidden=4, layers=1, dense=(3,), dropout=0.3)


class Residual(nn.Module):
    """Convolutions with GroupNorm, a stride, a shortcut and ReLU in place."""

    def __init__(self, shape, classes):
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(shape[0], 4, 3, padding=1, bias=False), nn.GroupNorm(2, 4)
        self.conv2, self.shortcut = nn.Conv2d(4, 4, 3, stride=2, padding=1), nn.Conv2d(shape[0], 4, 1, stride=2)
        self.relu, self.fc = nn.ReLU(inplace=True), nn.Linear(4, classes)

    def forward(self, x):
        h = self.conv2(self.relu(self.norm1(self.conv1(x)))) + self.shortcut(x)
        return self.fc(self.relu(h).mean((2, 3)))


def last(device, algo, data, model, mode="stacked", work=WORK, channels_last=None, **options):
    """The last states of server and clients, on the host."""
    data = data.to(torch.device(device), torch.float64)
    task = task_for(data, model)
    task.device = torch.device(device)
    task.use_layout(channels_last)
    options = {"rounds": 2, "cohort_size": 2 if mode != "loop" else 1, **options}
    end = snapshots(algo, data, task=task, mode=mode, work=work, **options)[-1]
    return {f"{kind}.{k}": v.cpu() for kind in ("server", "clients") for k, v in getattr(end, kind).items()}


def rehearse(
    algo, model=SMALL_MLP, mode="stacked", shape=None, data=None, sizes=SIZES, graphs=True, workers=1, **other
):
    """Compare two rounds with those of a CPU, and return the pretended GPU."""
    data = data or federation(sizes, features=prod(shape or (6,)), shape=shape)
    expected = last("cpu", algo, data, model, "stacked" if mode == "unfold" else mode, **other)
    PretendGraph.replays = 0
    with PretendGpu({}, {}) as gpu:
        found = last("cuda", algo, data, model, mode, graphs=graphs, workers=workers, **other)
    assert gpu.faults == []
    assert found.keys() == expected.keys()
    for name, v in expected.items():
        torch.testing.assert_close(found[name], v, rtol=1e-9, atol=1e-9, msg=name)
    assert (PretendGraph.replays > 0) == graphs
    return found


def test_a_graph_reads_the_rate_of_the_round():
    """Captured in the first round, replayed in later ones with other rates."""
    work = replace(WORK, schedule=Schedule("decay", decay_factor=0.5))
    for name in ("fedavg", "scaffold", "fedcada"):
        rehearse(make(name), work=work, rounds=4)


@pytest.mark.parametrize("case", DEFAULTS, ids=case_id)
def test_every_method(case):
    """Stacked MLPs and linear models one after another, in turn, so that each method has both."""
    algo = make(case[0], **case[1])
    rehearse(algo, SMALL_MLP, "stacked")
    rehearse(algo, Linear, "loop", sizes=(5, 4))


@pytest.mark.parametrize(
    ("name", "model", "mode"),
    [
        ("fedavg", CNN, "loop"),
        ("scaffold", CNN, "stacked"),
        ("adafedadam", CNN, "unfold"),
        ("fedavg", Residual, "unfold"),
        ("local_adam", Residual, "loop"),
        ("fedfa", Residual, "stacked"),
    ],
)
def test_images(name, model, mode):
    rehearse(make(name), model, mode, shape=(2, 6, 6), sizes=(5, 3), workers=2, channels_last=mode == "loop" or None)


def test_augmented_images():
    data = federation((5, 3), features=72, shape=(2, 6, 6))
    work = replace(WORK, augment=Augmentation(crop=1, flip=True))
    rehearse(make("fedavg"), CNN, "loop", data=data, work=work)


@pytest.mark.parametrize(("name", "mode"), [("fedavg", "stacked"), ("fedavg", "loop"), ("stem", "stacked")])
def test_text_with_dropout(name, mode):
    data = federation((5, 3), features=4)
    data = replace(data, x=(data.x * 3).long() % 7, tokens=7)
    rehearse(make(name), TEXT, mode, data=data, work=replace(WORK, random=True))


@pytest.mark.parametrize("mode", ["stacked", "loop"])
def test_full_batches_of_unequal_clients(mode):
    rehearse(make("adafedadam"), SMALL_MLP, mode, sizes=(11, 9, 3, 7), work=LocalWork(lr=0.1, batch_size=None))


def test_the_same_bits_on_any_number_of_streams():
    """With more parts than threads; uploads are held, and local states of several vectors are kept."""
    runs = [
        rehearse(make("local_adam"), mode="loop", sizes=(4, 5, 3, 7, 6), graphs=on, workers=n)
        for on, n in ((True, 1), (True, 2), (True, 3), (False, 3))
    ]
    for run in runs[1:3]:
        assert all(torch.equal(v, runs[0][k]) for k, v in run.items())


def test_sums_that_pass_between_streams(monkeypatch):
    monkeypatch.setattr("fedbench.simulation.cohort._HELD_BYTES", 0)
    one, three = (rehearse(make("fedavg"), mode="loop", sizes=(4, 5, 3, 7, 6), workers=n) for n in (1, 3))
    assert all(torch.equal(v, three[k]) for k, v in one.items())


def test_sizes_are_rounded_up():
    assert [rounded(n, 10) for n in (1, 2, 3, 5, 8, 9, 10)] == [1, 2, 4, 8, 8, 10, 10]
    assert [rounded(n, n) for n in (1, 3, 5, 8, 9, 11, 17, 33, 100)] == [1, 3, 5, 8, 10, 12, 20, 40, 112]
    assert [rounded(n, 50, 50) for n in (1, 33, 50)] == [1, 50, 50]


def test_the_number_of_captures(monkeypatch):
    """9, 5 and 1 examples in batches of 3 side by side: 3 clients [3, 3], 2 clients [2, 3], one alone [1, 3]."""
    shapes = []
    real = graphs.StepGraphs._capture

    def counted(self, phase, msg, spec, batch, *rest):
        shapes.append(tuple(batch.y.shape))
        return real(self, phase, msg, spec, batch, *rest)

    monkeypatch.setattr(graphs.StepGraphs, "_capture", counted)
    rehearse(make("fedavg"), rounds=3, cohort_size=3, work=LocalWork(lr=0.1, batch_size=3))
    assert shapes == [(3, 3), (2, 3), (1, 3)]


def test_captures_are_dropped(monkeypatch):
    """The same three sizes in three rounds, each captured again since only one is kept."""
    kept, real = [], graphs.StepGraphs._record

    def counted(self, work):
        kept.append(len(self._captures))
        return real(self, work)

    monkeypatch.setattr(graphs.StepGraphs, "_record", counted)
    monkeypatch.setattr(graphs, "MOST", 1)
    rehearse(make("fedavg"), rounds=3, cohort_size=3, work=LocalWork(lr=0.1, batch_size=3))
    assert kept == [0] * 9


@pytest.mark.parametrize("most", [graphs.MOST, 1])
def test_memory_that_grows_while_another_thread_captures(monkeypatch, most):
    """Clients of up to 9 examples with batches of 8: wider batches than before, for which a thread starts anew."""
    forgotten, real = [], graphs.StepGraphs._forget
    monkeypatch.setattr(graphs.StepGraphs, "_forget", lambda self: (forgotten.append(1), real(self)))
    monkeypatch.setattr(graphs, "MOST", most)
    work = LocalWork(lr=0.1, batch_size=8, epochs=(1, 6))
    for _ in range(50):  # which thread takes which client differs
        forgotten.clear()
        rehearse(make("fedavg"), mode="loop", sizes=(4, 9, 3, 7), workers=2, rounds=3, work=work)
        if len(forgotten) > 1:
            return
    raise AssertionError("no thread has met batches wider than before")


def test_it_finds_a_wait_for_the_device_while_another_thread_captures():
    with PretendGpu({}, {}), ThreadPoolExecutor(1, initializer=engine._prepare_thread) as other:
        v, graph = torch.ones(3, device="cuda"), torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, None, torch.cuda.Stream(), capture_error_mode="thread_local"):
            v.mul_(2)
            other.submit(torch.cuda.Stream().synchronize).result()
            with pytest.raises(PretendError, match="a wait for the device during a capture"):
                other.submit(torch.cuda.synchronize).result()


def test_graphs_need_a_gpu():
    task = task_for(federation())
    with pytest.raises(RequestError, match="engine.graphs=true is for a GPU"):
        Engine(make_oracle(task, "loop"), "loop", 1, graphs=True, device=task.device)


def changed(change):
    """Naive adaptive FedAvg, whose step is not taken in place, with a change of the model after each step."""
    algo = make("naive_adaptive", eps=1e-3)

    def step(oracle, msg, local, batch, info):
        new = algo.step(oracle, msg, local, batch, info)
        return {**new, "w": change(new["w"])}

    return replace(algo, step=step)


def test_it_finds_a_number_that_changes_between_steps():
    count = iter(range(10**6))
    with pytest.raises(AssertionError):
        rehearse(changed(lambda w: w * (1 + next(count))))


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda w: w + torch.ones(w.shape, dtype=w.dtype), "aten::add with tensors on the GPU and on the CPU"),
        (lambda w: w + torch.ones(w.shape[-1], dtype=w.dtype).to(w.device, non_blocking=True), "to the device"),
        (lambda w: w * (2 if w.sum() > 0 else 1), "aten::_local_scalar_dense"),
        (lambda w: (w.is_cuda and torch.cuda.synchronize(), w)[1], "a wait for the device"),
    ],
    ids=["host", "upload", "item", "synchronize"],
)
def test_it_finds_what_cannot_be_captured(change, what):
    with pytest.raises((RequestError, RuntimeError), match=f"{what}.*test_graphs|{what}.*fedbench/simulation"):
        rehearse(changed(change))


def test_it_finds_a_graph_on_memory_that_was_freed():
    with PretendGpu({}, {}):
        v, graph = torch.ones(3, device="cuda"), torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, None, torch.cuda.Stream(), capture_error_mode="thread_local"):
            double = v * 2
        assert double.cpu().isnan().all()
        v.fill_(4)
        graph.replay()
        assert double.cpu().tolist() == [8, 8, 8]
        del v
        with pytest.raises(GraphError, match="has been freed"):
            graph.replay()


@pytest.mark.parametrize(
    ("missing", "what", "name"),
    [
        ((Streams, "join"), "that another stream writes", "adafedadam"),  # gradients at the broadcast model
        ((Home, "take_over"), "that another stream (uses|writes)", "fedavg"),  # which comes first differs
    ],
    ids=["join", "sums"],
)
def test_it_finds_a_missing_wait(monkeypatch, missing, what, name):
    monkeypatch.setattr("fedbench.simulation.cohort._HELD_BYTES", 0)
    monkeypatch.setattr(*missing, lambda self, *_: None)
    with pytest.raises(AssertionError, match=what):
        rehearse(make(name), sizes=(4, 5, 3, 7, 6), workers=3)


def test_it_finds_memory_that_is_taken_too_early(monkeypatch):
    """Without ``record_stream`` a worker's stream could use the memory of its sums while they are being added."""
    monkeypatch.setattr("fedbench.simulation.cohort._HELD_BYTES", 0)
    monkeypatch.setattr(Home, "take_over", lambda self, tensors, event: event and self._stream.wait_event(event))
    with pytest.raises(AssertionError, match="freed while another stream may use it"):
        rehearse(make("fedavg"), mode="loop", sizes=(4, 5, 3, 7, 6, 4, 5, 6, 7, 8), workers=2)


def resnet18(shape, classes):
    return resnet(shape, classes)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "model", "mode"),
    [
        ("fedavg", VGG11, "stacked"),
        ("adafedadam", VGG11, "loop"),
        ("fedavg", resnet18, "loop"),
        ("adafedadam", resnet18, "stacked"),
    ],
)
def test_large_models(name, model, mode):
    """One round and one step of two clients, eager: their layers, not their graphs."""
    work = LocalWork(lr=0.01, batch_size=2)
    rehearse(make(name), model, mode, shape=(3, 32, 32), sizes=(2, 1), graphs=False, rounds=1, work=work)


@pytest.mark.parametrize(("model", "shape"), [(CNN, (2, 9, 7)), (Residual, (2, 6, 6)), (Residual, (2, 20, 20))])
def test_unfolded_convolutions_agree_with_the_loop(model, shape):
    data = federation((5, 3), features=prod(shape), shape=shape)
    loop, unfolded = (last("cpu", make("scaffold"), data, model, mode, cohort_size=2) for mode in ("loop", "unfold"))
    for name, v in loop.items():
        torch.testing.assert_close(unfolded[name], v, rtol=1e-9, atol=1e-12, msg=name)


@pytest.mark.parametrize(
    "options",
    [
        {"dilation": 2},
        {"stride": (2, 1), "padding": (0, 2)},
        {"bias": False},
        {"groups": 2},
        {"padding": "same"},
        {"padding": 1, "padding_mode": "circular"},
    ],
)
def test_an_unfolded_convolution(options):
    conv, other = (nn.Conv2d(2, 4, (3, 1), dtype=torch.float64, **options) for _ in range(2))
    other.load_state_dict(conv.state_dict())
    unfold_small(other)
    x = torch.randn(3, 2, 8, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(other(x), conv(x), rtol=1e-12, atol=1e-12)
    assert unfoldable(other) == ("groups" not in options and not {"same", "circular"} & set(map(str, options.values())))


def test_unfold_needs_convolutions():
    with pytest.raises(RequestError, match="engine.mode=unfold is for models with convolutions"):
        make_oracle(task_for(federation()), "unfold")


def test_channels_last_by_choice():
    task, x = task_for(federation()), torch.zeros(2, 3, 4, 5)
    for choice, expected in ((None, True), (True, True), (False, False)):
        task.use_layout(choice)
        assert task.images(x).is_contiguous(memory_format=torch.channels_last) == expected
        assert task.images(x[0]).is_contiguous()  # not a batch of images
