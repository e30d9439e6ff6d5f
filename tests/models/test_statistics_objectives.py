"""Running statistics and other losses: which statistics each model has, and when they move."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from test_statistics import DATA, EVERYONE, FULL, KEYS, around, first, network, task_with
from tools import make, snapshots
from torch import nn

import fedbench
from fedbench.core.errors import RequestError
from fedbench.core.objective import Objective, cross_entropy
from fedbench.models.parts import places_of
from fedbench.simulation.objectives import PREVIOUS
from fedbench.simulation.statistics import STATISTICS


def run(name, task, w, mode="loop", **options):
    more = {k: options.pop(k) for k in ("rounds", "participation", "cohort_size") if k in options}
    algo, shared = around(make(name, **options), task, w)
    return snapshots(algo, DATA, task=task, w=shared, mode=mode, work=FULL, **more)


def features(net, x):
    kept = []
    hook = net.layers[-1].register_forward_pre_hook(lambda _, inputs: kept.append(inputs[0]))
    logits = net(x)
    hook.remove()
    return logits, kept[0]


def moon_by_torch(named, rounds, mu=1.0, tau=0.5):
    """MOON with whole models of torch: others in evaluation mode, each with its statistics."""
    server = dict(named)
    last = [None for _ in EVERYONE]
    p = DATA.train.counts / DATA.train.counts.sum()
    for _ in range(rounds):
        total = {name: torch.zeros_like(v) for name, v in server.items()}
        for k in EVERYONE:
            nets = [network() for _ in range(3)]
            for net, state in zip(nets, (server, server, last[k] or server), strict=True):
                net.load_state_dict(state)
                net.eval()
            own, broadcast, previous = nets
            rows = DATA.train.of_clients(np.array([k]))
            x, y = DATA.x[rows], DATA.y[rows]
            own.train(len(rows) > 1)
            optimizer = torch.optim.SGD(own.parameters(), lr=FULL.lr)
            for _ in range(3):
                logits, z = features(own, x)
                others = [features(net, x)[1].detach() for net in (broadcast, previous)]
                similar = [nn.functional.cosine_similarity(z, other, dim=1) for other in others]
                term = nn.functional.softplus((similar[1] - similar[0]) / tau)
                optimizer.zero_grad()
                (nn.functional.cross_entropy(logits, y) + mu * term.mean()).backward()
                optimizer.step()
            last[k] = {n: v.detach().clone() for n, v in own.state_dict().items() if n in named}
            for name in total:
                total[name] += p[k] * last[k][name]
        server = total
    return server, last


@pytest.mark.parametrize(("mode", "cohort_size"), [("loop", 1), ("loop", 3), ("stacked", 99)])
def test_every_model_of_moon_has_its_own_statistics(mode, cohort_size):
    task = task_with()
    w = first(task)
    server, own = moon_by_torch(task.layout.named(w), 2)
    last = run("moon", task, w, mode, rounds=2, cohort_size=cohort_size)[-1]
    found = task.shared.named(last.server["w"]) | task.averaged.named(last.server[STATISTICS])
    for name, v in found.items():
        assert torch.allclose(v, server[name], atol=1e-9), name
    for k in EVERYONE:
        for name, v in task.layout.named(last.clients[PREVIOUS][k]).items():
            assert torch.allclose(v, own[k][name], atol=1e-9)


METHODS = ("moon", "fedntd", "fedlc", "feddecorr")
PARTS = (("statistics",), ("norm",), ("head",))
CASES = [("fedrod", ()), ("fedrod", ("statistics",)), *product(METHODS, PARTS)]


@pytest.mark.parametrize(("name", "part"), CASES)
def test_modes_agree(name, part):
    task = task_with(*part)
    w = first(task)
    options = {}
    if name == "fedrod":
        options = {"layout": places_of(task.model, task.shared.names)}
    runs = []
    for mode, size in (("loop", 1), ("loop", 3), ("stacked", 99)):
        last = run(name, task, w, mode, rounds=2, cohort_size=size, **options)[-1]
        runs.append(torch.cat([v.flatten() for _, v in sorted(last.clients.items())]))
        runs[-1] = torch.cat([runs[-1], last.server["w"]])
    assert all(torch.allclose(one, runs[0], atol=1e-9) for one in runs)


def test_a_loss_moves_statistics_as_the_cross_entropy_does():
    """The cross-entropy as another loss is FedAvg, and FedSAM's second pass moves nothing."""
    task = task_with()
    w = first(task)
    same = Objective(lambda own, others, batch, local, info: cross_entropy(own.logits, batch.y))
    for name in ("fedavg", "fedsam"):
        runs = []
        for objective in (None, same):
            algo, shared = around(replace(make(name), objective=objective), task, w)
            last = snapshots(algo, DATA, task=task, w=shared, work=FULL, mode="loop")[-1]
            runs.append(torch.cat([last.server["w"], last.server[STATISTICS]]))
        assert torch.allclose(*runs, atol=1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["average", "local"])
def test_runs(tmp_path, policy):
    """FedRoD keeps second heads; the others as without another loss. Constants stay constant."""
    keys = f"{KEYS} parts.statistics={policy} results_dir={tmp_path}"
    rod = fedbench.run(f"{keys} algo=fedrod")
    own = load_file(rod.path / "personal.safetensors")
    heads = {name: v for name, v in own.items() if name.startswith("personal.")}
    model = load_file(rod.path / "model.safetensors")
    for name in ("weight", "bias"):
        (key,) = (key for key in heads if key.endswith(name))
        assert heads[key].shape[1:] == model[key.removeprefix("personal.")].shape
    assert (len(own) > len(heads)) == (policy == "local")
    for algo in ("moon", "fedprox objective=ntd"):
        run = fedbench.run(f"{keys} algo={algo} parts.fix_after=0")
        model = load_file(run.path / "model.safetensors")
        assert not model["norms.0.running_mean"].any()
        moved = fedbench.run(f"{keys} algo={algo}")
        values = load_file(
            moved.path / f"{'model' if policy == 'average' else 'personal'}.safetensors"
        )
        assert values["norms.0.running_mean"].any()
    with pytest.raises(RequestError, match="fedrod has personal models"):
        fedbench.run(f"{keys} algo=fedrod parts.personal=['norms.0.weight']")
