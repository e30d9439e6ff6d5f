"""Local training: everything stays with the clients."""

import numpy as np
import pytest
import torch
from command_line import FAST
from safetensors.torch import load_file
from tools import federation, make, snapshots, task_for
from torch import nn

import fedbench
from fedbench.core.errors import RequestError
from fedbench.core.optim import sgd
from fedbench.models.dense import MLP, Linear
from fedbench.models.parts import tensors_of
from fedbench.simulation.local_work import LocalWork
from fedbench.simulation.personal import PERSONAL, with_personal_part
from fedbench.simulation.selection import LossSelection
from fedbench.simulation.task import Task

DATA = federation()
EVERYONE = range(DATA.num_clients)
MOMENTUM = sgd(momentum=0.9, weight_decay=0.01, clip_norm=0.5)
DRAWN = LocalWork(lr=0.1, batch_size=4, epochs=(1, 3))
KEYS = " ".join(FAST)


def task_of(model, part, **options):
    with torch.device("meta"):
        net = model(DATA.shape, DATA.classes, **options)
    names = tensors_of(net, [part], "parts.personal")
    return Task(net, torch.device("cpu"), torch.float64, personal=names)


def trained(name, task, w, local=MOMENTUM, **how):
    """The last snapshot of a method that leaves the personal part of a task with the clients."""
    length = task.shared.size
    algo = with_personal_part(make(name, local), w[length:])
    return snapshots(algo, DATA, task=task, w=w[:length], **how)[-1]


@pytest.mark.parametrize("mode", ["loop", "stacked"])
def test_every_client_is_a_federation_of_its_own(mode):
    """Short batches, drawn epochs, momentum, clipping and decay included."""
    task = task_of(MLP, "*", hidden=[5])
    w = task.init(torch.Generator().manual_seed(1))
    last = trained("local", task, w, mode=mode, work=DRAWN, rounds=3)
    plain = task_for(DATA, MLP, hidden=[5])
    for k in EVERYONE:
        alone = snapshots(
            make("fedavg", MOMENTUM),
            DATA,
            task=plain,
            w=w,
            mode="loop",
            work=DRAWN,
            rounds=3,
            sampler=lambda t, n, seed, k=k: np.array([k]),
        )[-1]
        assert torch.allclose(last.clients[PERSONAL][k], alone.server["w"], atol=1e-10)
    assert (last.bytes_up, last.bytes_down) == (0, 0)
    assert len(last.server["w"]) == 0


def test_with_full_batches_it_is_ditto_without_a_pull():
    task = task_of(Linear, "*")
    w = task.init(torch.Generator().manual_seed(1))
    work = LocalWork(lr=0.3, batch_size=None, epochs=(3, 3))
    last = trained("local", task, w, work=work, rounds=4, participation=0.6)
    ditto = make("ditto", MOMENTUM, lam=0.0)
    other = snapshots(ditto, DATA, w=w, work=work, rounds=4, participation=0.6)[-1]
    assert torch.allclose(last.clients[PERSONAL], other.clients["personal"], atol=1e-10)
    assert last.client_steps * 2 == other.client_steps


def test_a_personal_head_of_the_linear_model_is_everything():
    """As an internal call: a run refuses to share nothing with any other method."""
    runs = []
    for name, part in (("local", "*"), ("fedper", "head")):
        task = task_of(Linear, part)
        w = task.init(torch.Generator().manual_seed(1))
        runs.append(trained(name, task, w, work=DRAWN, participation=0.6).clients[PERSONAL])
    assert torch.equal(*runs)


def test_only_sampled_clients_train():
    task = task_of(Linear, "*")
    w = task.init(torch.Generator().manual_seed(1))
    last = trained("local", task, w, rounds=1, participation=0.4)
    moved = [not torch.equal(last.clients[PERSONAL][k], w) for k in EVERYONE]
    assert np.flatnonzero(moved).tolist() == last.cohort.tolist()


def test_a_run(tmp_path):
    """The clients' models are in a file of their own; more rounds continue the run bit for bit."""
    keys = f"{KEYS} algo=local model=mlp participation=0.5 local.momentum=0.5"
    done = fedbench.run(f"{keys} results_dir={tmp_path}/whole")
    fedbench.run(f"{keys} rounds=2 keep_state=true results_dir={tmp_path}/parts")
    later = fedbench.run(f"{keys} keep_state=true results_dir={tmp_path}/parts")
    own, continued = (load_file(run.path / "personal.safetensors") for run in (done, later))
    assert {name: tuple(v.shape) for name, v in own.items()} == {
        "layers.0.weight": (8, 128, 60),
        "layers.0.bias": (8, 128),
        "layers.1.weight": (8, 10, 128),
        "layers.1.bias": (8, 10),
    }
    assert all(torch.equal(continued[name], v) for name, v in own.items())
    start = fedbench.run(f"{keys} rounds=0 results_dir={tmp_path}/start")
    model, initial = (load_file(run.path / "model.safetensors") for run in (done, start))
    assert all(torch.equal(model[name], v) for name, v in initial.items())
    last = done.last_round()
    assert (last["bytes_up"], last["bytes_down"], last["clients"]) == (0, 0, 4)


def test_running_statistics_stay_with_the_clients(tmp_path):
    keys = f"{KEYS} algo=local model=mlp model.norm=batch model.hidden=[4]"
    run = fedbench.run(f"{keys} results_dir={tmp_path}")
    own = load_file(run.path / "personal.safetensors")
    assert own["norms.0.running_mean"].shape == (8, 4)
    assert not torch.equal(own["norms.0.running_mean"][0], own["norms.0.running_mean"][1])
    last = run.last_round()
    assert (last["bytes_up"], last["bytes_down"]) == (0, 0)
    with pytest.raises(RequestError, match="got parts.statistics=average; remove it"):
        fedbench.run(f"{keys} parts.statistics=average results_dir={tmp_path}")


def test_frozen_parameters_are_nobodys(tmp_path):
    keys = f"{KEYS} algo=local model=mlp results_dir={tmp_path}"
    run = fedbench.run(f"{keys} parts.frozen=[head]")
    assert run.meta["personal"] == ["layers.0.weight", "layers.0.bias"]
    assert run.meta["frozen"] == ["layers.1.weight", "layers.1.bias"]


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ("algo=local parts.personal=[head]", r"local leaves all .* got parts.personal=\[head\]"),
        ("algo=local +algo.weights=size", "unknown key algo.weights"),
        ("algo=local +algo.server_lr=1", "unknown key algo.server_lr"),
        ("algo=local privacy=central", "privacy does not go with algo=local: its clients' mess"),
        ("algo=local attack=sign_flip", "attack.* does not go with algo=local: its clients' me"),
        ("algo=local compression=top_k", "compression.* does not go with algo=local: its clie"),
        ("algo=local availability=bernoulli availability.weights=zero", "not go with algo=local"),
        ("algo=fedper", "fedper would share nothing, so no part of the model can be personal"),
        ("algo=fedavg model=mlp 'parts.personal=[layers.*]'", "fedavg would share nothing"),
    ],
)
def test_what_is_refused(tmp_path, keys, message):
    with pytest.raises(RequestError, match=message):
        fedbench.run(f"{KEYS} {keys} results_dir={tmp_path / 'results'}")
    assert not (tmp_path / "results").exists()


def test_losses_select_clients_by_their_own_models():
    """Nothing is sent but the losses."""
    task = task_of(Linear, "*")
    w = task.init(torch.Generator().manual_seed(1))
    rule = LossSelection("power_of_choice", 2, 1.0)
    algo = with_personal_part(make("local"), w)
    before, after = snapshots(algo, DATA, task=task, w=w[:0], selection=rule, rounds=4)[-2:]
    losses = []
    for k in EVERYONE:
        rows = DATA.train.of_clients(np.array([k]))
        logits = task.predict(before.clients[PERSONAL][k], DATA.x[rows])
        losses.append(float(nn.functional.cross_entropy(logits, DATA.y[rows])))
    assert after.cohort.tolist() == sorted(np.argsort(losses)[-2:].tolist())
    assert (after.bytes_up, after.bytes_down) == (4 * 8 * DATA.num_clients, 0)
