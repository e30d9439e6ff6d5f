"""Personal parts: what clients keep never leaves them, and the rest is as without them."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from command_line import FAST, write_files
from safetensors.torch import load_file
from tools import (
    CASES,
    any_solver,
    cases_of,
    federation,
    make,
    share,
    snapshots,
    stages_of,
    task_for,
)
from torch import nn

import fedbench
from fedbench.core.algorithm import Algorithm
from fedbench.core.errors import RequestError
from fedbench.core.optim import SGD, sgd
from fedbench.models.base import ModelTraits
from fedbench.models.dense import MLP, Linear
from fedbench.models.parts import tensors_of
from fedbench.simulation.local_work import LocalWork
from fedbench.simulation.personal import PERSONAL, refusal, with_personal_part
from fedbench.simulation.task import Task

CPU = torch.device("cpu")
DATA = federation()


def allowed(case):
    stages = stages_of(make(case[0], **case[1]), 1, DATA.num_clients)
    return len(stages) == 1 and stages[0].after is None and not refusal(stages[0].algorithm)


ALLOWED = [case for case in CASES if allowed(case)]


def test_which_methods_can_have_personal_parts():
    names = {name for name, _ in ALLOWED}
    assert names == {
        "fedavg", "fedavgm", "fedprox", "fedadagrad", "fedyogi", "fedadam", "fedams", "fednova",
        "scaffold", "qfedavg", "afl", "term", "fedmgda", "adafed", "fedfa", "adafedadam", "fedsps",
        "fedfv", "propfair", "gifair", "fedmdfg", "drfa", "fedheal", "feddyn", "fedexp", "fedsam",
        "fedper", "lgfedavg", "fedrep", "fedbn", "silobn", "fixbn", "moon", "fedntd", "fedlc",
        "feddecorr", "fedavg_ft", "fedbabu", "local",
    }  # fmt: skip


class WithUnused(nn.Module):
    """A linear model with parameters whose gradient is 0."""

    traits = ModelTraits(head="linear")

    def __init__(self, input_shape, classes):
        super().__init__()
        self.linear = nn.Linear(input_shape[0], classes)
        self.unused = nn.Linear(2, 2)

    def forward(self, x):
        return self.linear(x) + 0 * (self.unused.weight.sum() + self.unused.bias.sum())


def task_with(model, personal, **options):
    with torch.device("meta"):
        net = model(DATA.shape, DATA.classes, **options)
    names = tensors_of(net, personal, "parts.personal")
    return Task(net, CPU, torch.float64, personal=names)


def run(name, task, w, local=SGD, options=None, **more):
    """Snapshots of a method whose clients keep the personal part of a task's model."""
    length = task.shared.size
    stages = stages_of(make(name, local, **(options or {})), 3, DATA.num_clients)
    algo = with_personal_part(stages[0].algorithm, w[length:])
    return snapshots(algo, DATA, task=task, w=w[:length], **more)


@pytest.mark.parametrize("case", cases_of(ALLOWED))
def test_a_personal_part_without_effect_changes_nothing(case):
    """Norms, momentum, probes, ranks, traffic and states are those of the shared part."""
    name, options = case
    task = task_with(WithUnused, ["unused.*"])
    w = task.init(torch.Generator().manual_seed(1))
    more = {"mode": "loop", "participation": share(case), "rounds": 4}
    last = run(name, task, w, any_solver(case), options, **more)[-1]
    plain = make(name, any_solver(case), **options)
    start = w[: task.shared.size]
    other = snapshots(plain, DATA, task=task_for(DATA, Linear), w=start, **more)[-1]
    assert torch.allclose(last.server["w"], other.server["w"], rtol=1e-9, atol=1e-10)
    costs = ("client_steps", "bytes_up", "bytes_down")
    assert [getattr(last, name) for name in costs] == [getattr(other, name) for name in costs]
    kept = {key: v for key, v in last.clients.items() if key != PERSONAL}
    assert kept.keys() == other.clients.keys()
    for key, v in other.clients.items():  # MOON keeps whole models
        assert torch.allclose(kept[key][:, : v.shape[1]], v, atol=1e-9)


def test_scaffolds_server_variate_is_the_mean_of_the_clients():
    """Whatever cohorts took part, and of the shared part alone."""
    task = task_with(MLP, ["head"], hidden=[5])
    w = task.init(torch.Generator().manual_seed(1))
    for snapshot in run("scaffold", task, w, participation=0.4, rounds=4)[1:]:
        assert snapshot.server["c"].shape == (task.shared.size,)
        assert torch.allclose(snapshot.server["c"], snapshot.clients["c"].mean(0), atol=1e-12)
    assert snapshot.server["c"].abs().max() > 1e-4


def trained_alone(task, w, client, steps, lr):
    """A model after full-batch steps on a client's training examples."""
    rows = DATA.train.of_clients(np.array([client]))
    w = w.clone().requires_grad_()
    for _ in range(steps):
        loss = nn.functional.cross_entropy(task.predict(w, DATA.x[rows]), DATA.y[rows])
        (g,) = torch.autograd.grad(loss, w)
        w = (w - lr * g).detach().requires_grad_()
    return w.detach()


def test_fedper_by_two_separate_vectors():
    """FedAvg of the bodies, weighted by size; every head starts where its client left it."""
    task = task_with(MLP, ["head"], hidden=[5])
    w = task.init(torch.Generator().manual_seed(1))
    length = task.shared.size
    work = LocalWork(lr=0.3, batch_size=None, epochs=(2, 2))
    last = run("fedavg", task, w, mode="loop", work=work, rounds=3)[-1]

    body = w[:length]
    heads = [w[length:]] * DATA.num_clients
    p = torch.from_numpy(DATA.train.counts / DATA.train.counts.sum())
    for _ in range(3):
        bodies = []
        for k, head in enumerate(heads):
            model = trained_alone(task, torch.cat([body, head]), k, 2, 0.3)
            bodies.append(model[:length])
            heads[k] = model[length:]
        body = p @ torch.stack(bodies)
    assert torch.allclose(last.server["w"], body, atol=1e-10)
    assert torch.allclose(last.clients[PERSONAL], torch.stack(heads), atol=1e-10)


def test_absent_clients_keep_their_part_and_new_ones_have_the_initial_part():
    task = task_with(MLP, ["head"], hidden=[5])
    w = task.init(torch.Generator().manual_seed(1))
    initial = w[task.shared.size :]
    took_part = set()
    before = None
    for snapshot in run("fedavg", task, w, participation=0.3, rounds=2):
        own = snapshot.clients[PERSONAL]
        took_part |= set(snapshot.cohort.tolist())
        for k in range(DATA.num_clients):
            if k not in took_part:
                assert torch.equal(own[k], initial)
            elif k not in snapshot.cohort:
                assert torch.equal(own[k], before[k])
        before = own
    assert 0 < len(took_part) < DATA.num_clients


@pytest.mark.parametrize("part", ["head", "body", "layers.1.*"])
@pytest.mark.parametrize("name", ["fedprox", "scaffold", "fedadam", "qfedavg", "fednova"])
def test_modes_and_chunks_agree(name, part):
    task = task_with(MLP, [part], hidden=[5, 4])
    w = task.init(torch.Generator().manual_seed(1))
    runs = []
    modes = [("loop", 1, 1), ("stacked", 1000, 1), ("stacked", 2, 2)]
    assert task.traits.dense == (part == "head")  # the last layer: the order is the model's
    if task.traits.dense:
        modes.append(("compiled", 1, 1))
    for mode, size, workers in modes:
        last = run(name, task, w, mode=mode, cohort_size=size, workers=workers)[-1]
        runs.append(torch.cat([last.server["w"], last.clients[PERSONAL].flatten()]))
    assert all(torch.allclose(one, runs[0], atol=1e-10) for one in runs)


def test_the_proximal_term_leaves_the_head_alone():
    """With one step a round, the shared part starts at the server's: FedProx is FedAvg."""
    task = task_with(MLP, ["head"], hidden=[5])
    w = task.init(torch.Generator().manual_seed(1))
    work = LocalWork(lr=0.3, batch_size=None)
    runs = []
    for name, options in (("fedavg", {}), ("fedprox", {"mu": 5.0})):
        last = run(name, task, w, options=options, work=work, rounds=4)[-1]
        runs.append(torch.cat([last.server["w"], last.clients[PERSONAL].flatten()]))
    assert torch.allclose(*runs, atol=1e-12)


def test_momentum_clipping_and_decay_are_those_of_torch_on_both_parts():
    task = task_with(MLP, ["head"], hidden=[5])
    w = task.init(torch.Generator().manual_seed(1))
    work = LocalWork(lr=0.1, batch_size=None, epochs=(3, 3))
    solver = sgd(momentum=0.9, weight_decay=0.1, clip_norm=0.5)
    last = run("fedavg", task, w, solver, work=work, rounds=1, participation=1)[-1]
    (k,) = last.cohort
    rows = DATA.train.of_clients(last.cohort)
    leaf = w.clone().requires_grad_()
    optimizer = torch.optim.SGD([leaf], lr=0.1, momentum=0.9, weight_decay=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        nn.functional.cross_entropy(task.predict(leaf, DATA.x[rows]), DATA.y[rows]).backward()
        nn.utils.clip_grad_norm_([leaf], 0.5)
        optimizer.step()
    length = task.shared.size
    assert torch.allclose(last.server["w"], leaf.detach()[:length], atol=1e-6)
    assert torch.allclose(last.clients[PERSONAL][k], leaf.detach()[length:], atol=1e-6)


KEYS = " ".join(FAST)


def test_a_run_keeps_personal_parts_apart(tmp_path):
    keys = f"{KEYS} model=mlp results_dir={tmp_path}"
    done = fedbench.run(f"{keys} algo=fedprox parts.personal=[head]")
    start = load_file(fedbench.run(f"{keys} algo=fedprox rounds=0").path / "model.safetensors")
    model = load_file(done.path / "model.safetensors")
    own = load_file(done.path / "personal.safetensors")
    assert {name: v.shape for name, v in own.items()} == {
        "layers.1.weight": (8, 10, 128),
        "layers.1.bias": (8, 10),
    }
    assert torch.equal(model["layers.1.weight"], start["layers.1.weight"])
    assert not torch.equal(model["layers.0.weight"], start["layers.0.weight"])
    assert done.meta["personal"] == ["layers.1.weight", "layers.1.bias"]
    sent = model["layers.0.weight"].numel() + model["layers.0.bias"].numel()
    last = done.last_round()
    assert last["bytes_up"] == last["bytes_down"] == 4 * 8 * 4 * sent


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ("algo=ditto model=mlp parts.personal=[head]", "ditto has personal models already, so no"),
        ("algo=fedcm model=mlp parts.personal=[head]", "fedcm blends a vector of the server"),
        ("algo=local_adam model=mlp parts.personal=[body]", "local_adam keeps moments, which"),
        ("algo=fedavg parts.personal=[head]", "fedavg would share nothing"),
        ("algo=fedavg model=mlp parts.personal=[head] parts.frozen=['*.1.bias']", "is both perso"),
        ("model=mlp parts.personal=[tail]", r"parts\.personal: tail names no parameter of MLP"),
    ],
)
def test_what_is_refused(tmp_path, keys, message):
    with pytest.raises(RequestError, match=message):
        fedbench.run(f"{KEYS} {keys} results_dir={tmp_path}")


def test_clients_are_measured_on_their_own_parts():
    """In the second round, at the server's body and the heads that they have left."""
    task = task_with(MLP, ["head"], hidden=[5])
    w = task.init(torch.Generator().manual_seed(1))
    length = task.shared.size
    seen = []

    def update(server, uploads, cohort):
        seen.append(cohort)
        return {**server, "w": server["w"] - cohort.p @ uploads["delta"]}

    needs = frozenset(["loss", "grad", "loss_init", "loss_after", "accuracy"])
    algo = with_personal_part(replace(Algorithm(), needs=needs, update=update), w[length:])
    states = snapshots(algo, DATA, task=task, w=w[:length], rounds=2, participation=0.5)
    before, after = states[1], states[2]
    for place, k in enumerate(after.cohort):
        rows = DATA.train.of_clients(np.array([k]))
        probe = {name: v[place] for name, v in seen[1].probe.items()}

        def loss(v, rows=rows):
            return nn.functional.cross_entropy(task.predict(v, DATA.x[rows]), DATA.y[rows])

        model = torch.cat([before.server["w"], before.clients[PERSONAL][k]]).requires_grad_()
        (g,) = torch.autograd.grad(loss(model), model)
        assert torch.allclose(probe["loss"], loss(model.detach()))
        assert torch.allclose(probe["grad"], g[:length])
        assert torch.allclose(probe["loss_init"], loss(w))
        right = (task.predict(model.detach(), DATA.x[rows]).argmax(1) == DATA.y[rows]).double()
        assert torch.allclose(probe["accuracy"], right.mean())
    assert not torch.equal(before.clients[PERSONAL], states[0].clients[PERSONAL])


OWN = """
from torch import nn
from fedbench.core.algorithm import Algorithm, descent
from fedbench.models.base import ModelTraits

class Net(nn.Module):
    traits = ModelTraits(head="last")

    def __init__(self, input_shape, classes):
        super().__init__()
        self.first = nn.Linear(input_shape[0], 5)
        self.last = nn.Linear(5, classes)

    def forward(self, x):
        return self.last(self.first(x).relu())

def gradient(oracle, msg, local, batch, info):
    return oracle.grad(local["w"], batch)

def mine(local, plain=True, parts=False):
    return Algorithm(**descent(local, None if plain else gradient), parts=parts)
"""


def test_models_and_methods_of_a_user(tmp_path):
    """Built-in steps take a user's model; a user's own step could take w for the shared part."""
    files = {
        "own.py": OWN,
        "model/net.yaml": "_target_: own.Net\n",
        "algo/mine.yaml": "_target_: own.mine\nplain: true\nparts: false\n",
    }
    write_files(tmp_path / "own", files)
    keys = f"{KEYS} model=net results_dir={tmp_path} parts.personal=[head]"
    for algo in ("fedrep", "fedsam", "mine"):
        run = fedbench.run(f"{keys} algo={algo}", config_dir=tmp_path / "own")
        assert run.meta["personal"] == ["last.weight", "last.bias"]
    own = f"{keys} algo=mine algo.plain=false"
    assert fedbench.run(f"{own} algo.parts=true", config_dir=tmp_path / "own").meta["personal"]
    with pytest.raises(RequestError, match="mine has a local step of your own, without parts=True"):
        fedbench.run(own, config_dir=tmp_path / "own")
