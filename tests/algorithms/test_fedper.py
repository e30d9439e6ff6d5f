"""FedPer, FedRep and LG-FedAvg: FedAvg with the head or the body left with the clients."""

import numpy as np
import pytest
import torch
from command_line import FAST
from safetensors.torch import load_file
from tools import federation, make, snapshots
from torch import nn

import fedbench
from fedbench.core.errors import RequestError
from fedbench.core.optim import sgd
from fedbench.models.dense import MLP
from fedbench.models.parts import tensors_of
from fedbench.simulation.local_work import LocalWork
from fedbench.simulation.personal import PERSONAL, with_personal_part
from fedbench.simulation.task import Task

DATA = federation()
KEYS = f"{' '.join(FAST)} model=mlp"


def models(path, keys):
    run = fedbench.run(f"{KEYS} {keys} results_dir={path}")
    files = {"model", *(["personal"] if (run.path / "personal.safetensors").exists() else [])}
    return {name: load_file(run.path / f"{name}.safetensors") for name in files}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("algo=fedper parts.personal=[]", "algo=fedavg"),
        ("algo=fedper", "algo=fedavg parts.personal=[head]"),
        ("algo=lgfedavg", "algo=fedavg algo.weights=uniform parts.personal=[body]"),
        ("algo=lgfedavg parts.personal=[head]", "algo=fedper algo.weights=uniform"),
    ],
)
def test_both_are_fedavg_with_a_personal_part(tmp_path, one, other):
    first, second = models(tmp_path, one), models(tmp_path, other)
    assert first.keys() == second.keys()
    for name, values in first.items():
        assert values.keys() == second[name].keys()
        assert all((v == second[name][key]).all() for key, v in values.items())


@pytest.mark.parametrize("other", ["fedavgm algo.beta=0", "term algo.t=0 algo.weights=size"])
def test_methods_that_reduce_to_fedavg_are_fedper_with_a_personal_head(tmp_path, other):
    double = "engine.precision=float64"
    fedper = models(tmp_path, f"algo=fedper {double}")
    same = models(tmp_path, f"algo={other} parts.personal=[head] {double}")
    for name, values in fedper.items():
        for key, v in values.items():
            torch.testing.assert_close(v, same[name][key], rtol=1e-10, atol=1e-10)


def test_only_the_other_part_is_sent(tmp_path):
    sent = {}
    for algo in ("fedavg", "fedper", "lgfedavg"):
        run = fedbench.run(f"{KEYS} algo={algo} results_dir={tmp_path}")
        sent[algo] = run.last_round()["bytes_up"]
    assert sent["fedper"] + sent["lgfedavg"] == sent["fedavg"]
    assert sent["lgfedavg"] == 4 * 8 * 4 * (128 * 10 + 10)  # rounds, clients, bytes, the head


def fedrep_by_hand(task, w, length, rounds, epochs, body_epochs, lr, momentum):
    """Full batches: heads first, then bodies, which are averaged uniformly; a part that rests keeps
    its momentum.
    """
    body = w[:length]
    heads = [w[length:]] * DATA.num_clients
    for _ in range(rounds):
        bodies = []
        for k, head in enumerate(heads):
            rows = DATA.train.of_clients(np.array([k]))
            model = torch.cat([body, head])
            buffer = torch.zeros_like(model)
            for epoch in range(epochs):
                leaf = model.clone().requires_grad_()
                loss = nn.functional.cross_entropy(task.predict(leaf, DATA.x[rows]), DATA.y[rows])
                (g,) = torch.autograd.grad(loss, leaf)
                moving = torch.arange(len(model)) < length
                if epoch < epochs - body_epochs:
                    moving = ~moving
                buffer = torch.where(moving, momentum * buffer + g, buffer)
                model = torch.where(moving, model - lr * buffer, model)
            bodies.append(model[:length])
            heads[k] = model[length:]
        body = torch.stack(bodies).mean(0)
    return body, torch.stack(heads)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("body_epochs", [0, 1, 2, 4])
def test_fedrep_takes_turns(body_epochs, momentum):
    with torch.device("meta"):
        net = MLP(DATA.shape, DATA.classes, [5])
    task = Task(net, torch.device("cpu"), torch.float64, personal=tensors_of(net, ["head"], "x"))
    w = task.init(torch.Generator().manual_seed(1))
    length = task.shared.size
    algo = make("fedrep", sgd(momentum=momentum), body_epochs=body_epochs)
    algo = with_personal_part(algo, w[length:])
    work = LocalWork(lr=0.3, batch_size=None, epochs=(4, 4))
    last = snapshots(algo, DATA, task=task, w=w[:length], work=work, rounds=2, mode="loop")[-1]
    body, heads = fedrep_by_hand(task, w, length, 2, 4, body_epochs, 0.3, momentum)
    assert torch.allclose(last.server["w"], body, atol=1e-10)
    assert torch.allclose(last.clients[PERSONAL], heads, atol=1e-10)


@pytest.mark.parametrize("keys", ["local.epochs=[1,3]", "local.steps=4", "algo.body_epochs=2"])
def test_fedrep_needs_whole_epochs(tmp_path, keys):
    with pytest.raises(RequestError, match="fedrep needs local.epochs to be one number, at least"):
        fedbench.run(f"{KEYS} algo=fedrep {keys} results_dir={tmp_path}")


def test_the_turns_of_late_clients_are_those_that_were_planned(tmp_path):
    """Clients that stop after two of three epochs have not begun with the body."""
    task = Task(MLP(DATA.shape, DATA.classes, [5]), torch.device("cpu"), torch.float64)
    algo = make("fedrep", epochs=3)
    work = LocalWork(lr=0.3, batch_size=None, epochs=(2, 2))
    last = snapshots(algo, DATA, task=task, work=work, rounds=1)[-1]
    first = snapshots(algo, DATA, task=task, work=work, rounds=0)[-1]
    assert torch.equal(last.server["w"], first.server["w"])
    whole = snapshots(make("fedrep"), DATA, task=task, work=work, rounds=1)[-1]
    assert not torch.equal(whole.server["w"], first.server["w"])
