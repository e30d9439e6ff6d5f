"""Running statistics of BatchNorm: the layer, its policies, and what methods do not see."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from command_line import FAST, write_files
from safetensors.torch import load_file, save_file
from test_personal import ALLOWED
from tools import any_solver, case_id, engine_of, federation, make, share, snapshots, stages_of
from torch import nn

import fedbench
from fedbench.core.algorithm import Algorithm, Stage
from fedbench.core.errors import RequestError
from fedbench.core.optim import sgd
from fedbench.core.types import Batch
from fedbench.data.dataset import Rows
from fedbench.models.dense import MLP
from fedbench.models.normalisation import PaddedBatchNorm, statistics_of, with_padding
from fedbench.models.parts import tensors_of
from fedbench.models.resnet import resnet
from fedbench.scenarios.allowed import refusals
from fedbench.simulation.local_work import LocalWork
from fedbench.simulation.loop import Observer
from fedbench.simulation.measurements import Measurements
from fedbench.simulation.oracles import LoopOracle, VmapOracle
from fedbench.simulation.personal import PERSONAL, with_personal_part
from fedbench.simulation.statistics import STATISTICS, TOOK_PART, with_statistics
from fedbench.simulation.task import Task
from tests.simulation.test_captured import Again

CPU = torch.device("cpu")
DATA = federation()  # the first, sixth and seventh client have 1, 10 and 2 training examples
EVERYONE = np.arange(DATA.num_clients)
HIDDEN = [5, 4]
FULL = LocalWork(lr=0.3, batch_size=None, epochs=(3, 3))


def network():
    return MLP(DATA.shape, DATA.classes, HIDDEN, norm="batch").double()


def task_with(*personal, data=DATA):
    net = network()
    statistics = statistics_of(net)
    names = statistics.keys() if personal == ("statistics",) else set()
    if personal and not names:
        names = tensors_of(net, personal, "parts.personal", statistics)
    return Task(net, CPU, torch.float64, personal=names)


def first(task):
    """An initial model whose weights and biases of BatchNorm are not 1 and 0."""
    w = task.init(torch.Generator().manual_seed(1))
    size = sum(task.layout.sizes[: task.parameters])
    w[:size] += 0.1 * torch.randn(size, generator=torch.Generator().manual_seed(2)).double()
    return w


def around(algo, task, w, constant=None):
    """A method for a task with statistics, and the shared part of its first model."""
    sizes = [task.shared.size, task.personal.size, task.local.size, task.averaged.size]
    shared, own, local, averaged = w.split(sizes)
    if len(own):
        algo = with_personal_part(algo, own)
    return with_statistics(algo, local, averaged, constant), shared


def run(algo, task, w, constant=None, mode="loop", **more):
    algo, shared = around(algo, task, w, constant)
    return snapshots(algo, DATA, task=task, w=shared, mode=mode, **more)


# ---- the layer


def layer(elementary):
    norm = with_padding(nn.Sequential(nn.BatchNorm1d(1)))[0].double()
    norm.elementary = elementary
    return norm


@pytest.mark.parametrize(("elementary", "padded"), [(False, 0), (True, 0), (True, 3)])
def test_two_values(elementary, padded):
    norm = layer(elementary)
    x = torch.tensor([1.0, 3.0] + [7.0] * padded).double()[:, None]
    norm.real = torch.tensor([0.5, 0.5] + [0.0] * padded).double()
    y = norm(x)[:2, 0]
    unit = (1 + 1e-5) ** -0.5
    assert torch.allclose(y, torch.tensor([-unit, unit]).double(), atol=1e-12)
    assert torch.allclose(norm.running_mean, torch.tensor([0.2]).double(), atol=1e-12)
    assert torch.allclose(norm.running_var, torch.tensor([1.1]).double(), atol=1e-12)
    norm.real = None
    norm(x)
    assert torch.allclose(norm.running_mean, torch.tensor([0.2]).double(), atol=1e-12)


@pytest.mark.parametrize("make_layer", [nn.BatchNorm1d, nn.BatchNorm2d])
def test_padding_counts_for_nothing_in_sequences_and_images(make_layer):
    """Values, gradients and statistics are those of torch on the real examples."""
    shape = (4, 3, 5) if make_layer is nn.BatchNorm1d else (4, 3, 2, 3)
    x = torch.randn(*shape, generator=torch.Generator().manual_seed(3)).double()
    theirs = make_layer(3, momentum=0.3, eps=1e-3).double()
    ours = with_padding(nn.Sequential(make_layer(3, momentum=0.3, eps=1e-3)))[0].double()
    ours.elementary = True
    nn.init.normal_(theirs.weight)
    nn.init.normal_(theirs.bias)
    ours.weight, ours.bias = theirs.weight, theirs.bias
    ours.real = torch.tensor([1.0, 1.0, 1.0, 0.0]).double()
    gradients = []
    for norm, values in ((theirs, x[:3]), (ours, x)):
        leaf = values.clone().requires_grad_()
        y = norm(leaf)[:3]
        (g,) = torch.autograd.grad((y**3).sum(), leaf)
        gradients.append(torch.cat([y.flatten(), g[:3].flatten()]))
    assert torch.allclose(*gradients, atol=1e-10)
    assert torch.allclose(ours.running_mean, theirs.running_mean, atol=1e-12)
    assert torch.allclose(ours.running_var, theirs.running_var, atol=1e-12)


def batch_of(clients, training):
    """All training examples of clients, the shorter ones padded by a large example."""
    rows = [DATA.train.of_clients(np.array([k])) for k in clients]
    width = max(map(len, rows))
    x = torch.full((len(rows), width, 6), 50.0).double()
    y = torch.zeros(len(rows), width, dtype=torch.int64)
    weight = torch.zeros(len(rows), width).double()
    for k, r in enumerate(rows):
        x[k, : len(r)] = DATA.x[r]
        y[k, : len(r)] = DATA.y[r]
        weight[k, : len(r)] = 1 / len(r)
    return Batch(x, y, weight, training=training)


@pytest.mark.parametrize("kind", [LoopOracle, VmapOracle])
@pytest.mark.parametrize("training", [True, False])
def test_a_padded_batch_is_the_batch_alone(kind, training):
    task = task_with()
    oracle = kind(task)
    clients = [4, 0, 6, 2]
    w = first(task).expand(4, -1) + 0.01 * torch.arange(4).double()[:, None]
    losses, gradients = oracle.loss_and_grad(w, batch_of(clients, training))
    for k, client in enumerate(clients):
        alone = LoopOracle(task).loss_and_grad(w[k : k + 1], batch_of([client], training))
        assert torch.allclose(losses[k], alone[0][0], atol=1e-10)
        assert torch.allclose(gradients[k], alone[1][0], atol=1e-10)


@pytest.mark.parametrize("kind", [LoopOracle, VmapOracle])
def test_a_single_example_is_normalised_by_the_running_statistics(kind):
    task = task_with()
    w = first(task)[None] + 0.3
    trained, evaluated = (
        kind(task).loss_and_grad(w, batch_of([0], training)) for training in (True, False)
    )
    size = task.shared.size
    assert torch.allclose(trained[0], evaluated[0], atol=1e-12)
    assert torch.allclose(trained[1][:, :size], evaluated[1][:, :size], atol=1e-12)
    assert torch.equal(trained[1][:, size:], w[:, size:])
    assert not evaluated[1][:, size:].any()


@pytest.mark.parametrize("kind", [LoopOracle, VmapOracle])
def test_captured_steps(kind):
    """As on a GPU: a repeated step of either mode moves the statistics of its own models."""
    task = task_with()
    captured = Again(kind(task))
    for k in range(5):
        w = first(task).expand(2, -1) + 0.1 * k
        for training in (True, False):
            batch = batch_of([4, 6], training)
            ours = captured.loss_and_grad(w, batch)
            theirs = kind(task).loss_and_grad(w, batch)
            assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))
    assert captured.replayed == 4


# ---- rounds, against torch's modules


def trained_by_torch(net, rows, lr, steps, solver):
    """Full-batch steps of torch's SGD; a batch of one is normalised as in evaluation."""
    optimizer = torch.optim.SGD(net.parameters(), lr=lr, **solver)
    for _ in range(steps):
        net.train(len(rows) > 1)
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(DATA.x[rows]), DATA.y[rows]).backward()
        optimizer.step()


def by_torch(named, cohorts, kept, p, solver):
    """Rounds of averaging state_dicts, of which every client keeps the entries ``kept``."""
    server = dict(named)
    own = [{name: named[name] for name in kept} for _ in EVERYONE]
    for cohort in cohorts:
        weights = p[cohort] / p[cohort].sum()
        total = {name: torch.zeros_like(v) for name, v in server.items()}
        for k, weight in zip(cohort, weights, strict=True):
            net = network()
            net.load_state_dict(server | own[k])
            rows = DATA.train.of_clients(np.array([k]))
            trained_by_torch(net, rows, FULL.lr, 3, solver)
            after = {n: v.detach() for n, v in net.state_dict().items() if n in named}
            own[k] = {name: after[name] for name in kept}
            for name in total:
                total[name] += weight * after[name]
        server = total | {name: named[name] for name in kept}
    return server, own


@pytest.mark.parametrize("mode", ["loop", "stacked"])
@pytest.mark.parametrize("solver", [{}, {"momentum": 0.9, "weight_decay": 0.1}])
@pytest.mark.parametrize("part", [(), ("statistics",), ("norm",), ("norms.0.*",)])
def test_rounds_are_those_of_torch(part, solver, mode):
    """FedAvg-BN, SiloBN, FedBN, and a part of the layers, with sampled cohorts."""
    task = task_with(*part)
    w = first(task)
    states = run(
        make("fedavg", sgd(**solver)), task, w, mode=mode, work=FULL, participation=0.4, rounds=3
    )
    named = task.layout.named(w)
    kept = (*task.personal.names, *task.local.names)
    cohorts = [s.cohort for s in states[1:]]
    server, own = by_torch(named, cohorts, kept, DATA.train.counts.astype(float), solver)
    last = states[-1]
    ours = task.shared.named(last.server["w"])
    if task.averaged.names:
        ours |= task.averaged.named(last.server[STATISTICS])
    for name, v in ours.items():
        assert torch.allclose(v, server[name], atol=1e-10), name
    for k in EVERYONE:
        mine = {}
        if task.personal.names:
            mine |= task.personal.named(last.clients[PERSONAL][k])
        if task.local.names:
            mine |= task.local.named(last.clients[STATISTICS][k])
        assert mine.keys() == own[k].keys()
        for name, v in mine.items():
            assert torch.allclose(v, own[k][name], atol=1e-10), (k, name)
    if kept:
        came = torch.zeros(len(EVERYONE), 1).double()
        came[np.concatenate(cohorts)] = 1
        assert torch.equal(last.clients[TOOK_PART], came)
        assert not came.all()


def test_constant_statistics_are_those_of_evaluation_mode():
    """Also with decay, momentum and clipping, which leave them alone."""
    task = task_with()
    w = first(task)
    w[task.shared.size :] += 0.5
    solver = {"momentum": 0.9, "weight_decay": 0.1}
    last = run(make("fedavg", sgd(**solver)), task, w, w[task.shared.size :], work=FULL)[-1]
    total = torch.zeros(task.shared.size).double()
    server = task.layout.named(w)
    p = DATA.train.counts / DATA.train.counts.sum()
    for _ in range(3):
        total = {name: torch.zeros_like(v) for name, v in server.items()}
        for k in EVERYONE:
            net = network()
            net.load_state_dict(server)
            net.eval()
            optimizer = torch.optim.SGD(net.parameters(), lr=FULL.lr, **solver)
            rows = DATA.train.of_clients(np.array([k]))
            for _ in range(3):
                optimizer.zero_grad()
                nn.functional.cross_entropy(net(DATA.x[rows]), DATA.y[rows]).backward()
                optimizer.step()
            for name in total:
                total[name] += p[k] * net.state_dict()[name].detach()
        server = total
    assert torch.equal(last.server[STATISTICS], w[task.shared.size :])
    for name, v in task.shared.named(last.server["w"]).items():
        assert torch.allclose(v, server[name], atol=1e-10)


# ---- methods


CASES = {name: (name, options) for name, options in reversed(ALLOWED) if "tensors" not in options}


@pytest.mark.parametrize("case", CASES.values(), ids=case_id)
def test_statistics_are_averaged_outside_of_every_method(case):
    """Σ p_k s_k, whatever the server's step is; methods move the rest as without statistics."""
    name, options = case
    task = task_with()
    w = first(task)
    seen = []
    observer = Observer(lambda round: True, seen.append)
    stages = stages_of(make(name, any_solver(case), **options), 2, DATA.num_clients)
    algo, shared = around(stages[0].algorithm, task, w)
    states = snapshots(
        algo, DATA, task=task, w=shared, participation=share(case), rounds=2, mode="loop",
        observers=[observer],
    )  # fmt: skip
    for before, exchange, after in zip(states, seen, states[1:], strict=False):
        p = DATA.train.counts[exchange.cohort].astype(float)
        p = np.ones_like(p) if algo.weights == "uniform" else p
        expected = torch.from_numpy(p / p.sum()) @ exchange.uploads[STATISTICS]
        assert torch.allclose(after.server[STATISTICS], expected, atol=1e-12)
        assert not torch.allclose(after.server[STATISTICS], before.server[STATISTICS], atol=1e-3)


def test_measurements_and_second_gradients_move_nothing():
    """FedSAM's first pass of every step moves them, as does a step that measures as well."""
    task = task_with()
    w = first(task)
    needs = {"loss", "grad", "accuracy", "loss_init", "loss_after", "accuracy_after"}
    runs = []
    for algo in (Algorithm(), replace(Algorithm(), needs=needs)):
        runs.append(run(algo, task, w, work=FULL)[-1].server[STATISTICS])
    assert torch.equal(*runs)

    one_step = replace(FULL, epochs=(1, 1))
    options = {"weights": "size"}
    of_sam = run(make("fedsam", **options), task, w, work=one_step, rounds=1)[-1]
    plain = run(make("fedavg", **options), task, w, work=one_step, rounds=1)[-1]
    assert torch.equal(of_sam.server[STATISTICS], plain.server[STATISTICS])
    assert not torch.allclose(of_sam.server["w"], plain.server["w"], atol=1e-4)


def test_clients_are_measured_with_their_statistics():
    """Before a round with those of the client or the server, after it with their own."""
    for part in ((), ("statistics",), ("norm",)):
        task = task_with(*part)
        w = first(task)
        seen = []

        def update(server, uploads, cohort, seen=seen):
            seen.append(cohort.probe)
            return Algorithm().averaging.step(server, uploads, cohort)

        needs = {"loss", "grad", "loss_init"}
        algo = replace(Algorithm(), needs=needs, update=replace(Algorithm().update, step=update))
        algo, shared = around(algo, task, w)
        states = snapshots(algo, DATA, task=task, w=shared, mode="loop", rounds=2)
        engine = engine_of(task, "loop")
        measure = Measurements(task, engine)
        judged = algo.deploy(states[1].server, states[1].clients)
        plan = measure.new_plan(DATA, EVERYONE)
        losses, gradients = plan.gradients(judged)
        assert torch.allclose(seen[1]["loss"], losses, atol=1e-10)
        assert torch.allclose(seen[1]["grad"], gradients[:, : len(shared)], atol=1e-10)
        assert torch.allclose(seen[1]["loss_init"], measure.mean_losses(DATA, EVERYONE, w))
        engine.close()


@pytest.mark.parametrize("part", [(), ("statistics",), ("norm",)])
@pytest.mark.parametrize("name", ["fedavg", "scaffold", "fedsam", "fedsps"])
def test_modes_chunks_and_resuming_agree(name, part):
    task = task_with(*part)
    w = first(task)

    def vector(snapshot):
        tensors = {**snapshot.clients, **{f"s.{k}": v for k, v in snapshot.server.items()}}
        return torch.cat([tensors[name].flatten() for name in sorted(tensors)])

    runs = []
    for mode, size, workers in (("loop", 1, 1), ("loop", 3, 2), ("stacked", 99, 1)):
        more = {"mode": mode, "cohort_size": size, "workers": workers, "participation": 0.6}
        states = run(make(name), task, w, **more)
        resumed = run(make(name), task, w, resume=states[1], **more)[-1]
        assert torch.equal(vector(resumed), vector(states[-1]))
        runs.append(vector(states[-1]))
    assert all(torch.allclose(one, runs[0], atol=1e-10) for one in runs)


def test_with_the_same_data_the_policies_agree():
    """FedBN, SiloBN and FedAvg-BN then have equal judged models."""
    rows = DATA.train.of_clients(np.array([4]))
    same = replace(
        DATA,
        train=Rows.of([rows.numpy()] * 3),
        test=Rows.of([rows.numpy()] * 3),
        names=("a", "b", "c"),
    )
    named = task_with().layout.named(first(task_with()))
    judged = []
    for part in ((), ("statistics",), ("norm",)):
        task = task_with(*part)
        algo, shared = around(make("fedavg"), task, task.begin(named))
        last = snapshots(algo, same, task=task, w=shared, work=FULL)[-1]
        models = task.layout.named(algo.deploy(last.server, last.clients).expand(3, -1))
        judged.append(torch.cat([models[name].flatten(1) for name in sorted(models)], 1))
    assert torch.allclose(judged[0], judged[1], atol=1e-12)
    assert torch.allclose(judged[0], judged[2], atol=1e-12)


def test_frozen_layers_still_have_statistics():
    net = network()
    frozen = tensors_of(net, ["norm"], "parts.frozen")
    assert frozen == {f"norms.{k}.{n}" for k in (0, 1) for n in ("weight", "bias")}
    task = Task(net, CPU, torch.float64, frozen=frozen)
    w = task.init(torch.Generator().manual_seed(1))
    states = run(make("fedavg"), task, w, rounds=1)
    assert not torch.equal(states[1].server[STATISTICS], states[0].server[STATISTICS])
    with pytest.raises(RequestError, match=r"running_mean names no parameter of MLP"):
        tensors_of(net, ["*.running_mean"], "parts.frozen")


@pytest.mark.slow
def test_residual_networks():
    """BatchNorm over images: client by client and vectorised, with padding."""
    with torch.device("meta"):
        net = resnet((3, 16, 16), 4, norm="batch")
    task = Task(net, CPU, torch.float64)
    assert len(task.averaged.names) == 40
    w = task.init(torch.Generator().manual_seed(1)).expand(2, -1)
    generator = torch.Generator().manual_seed(2)
    x = torch.randn(2, 3, 3, 16, 16, generator=generator).double()
    y = torch.tensor([[0, 1, 2], [3, 1, 0]])
    weight = torch.tensor([[1 / 3, 1 / 3, 1 / 3], [0.5, 0.5, 0.0]]).double()
    batch = Batch(x, y, weight, training=True)
    one, other = (kind(task).loss_and_grad(w, batch) for kind in (LoopOracle, VmapOracle))
    for a, b in zip(one, other, strict=True):
        assert torch.allclose(a, b, atol=1e-9)
    assert isinstance(with_padding(resnet((3, 16, 16), 4, norm="batch")).bn1, PaddedBatchNorm)


# ---- runs

KEYS = f"{' '.join(FAST)} model=mlp model.norm=batch model.hidden=[7]"
SIZE = 60 * 7 + 7 + 7 * 10 + 10 + 2 * 7  # parameters; 14 running statistics
STATS = ("norms.0.running_mean", "norms.0.running_var")


def files(run):
    names = ["model"]
    if (run.path / "personal.safetensors").exists():
        names.append("personal")
    return {name: load_file(run.path / f"{name}.safetensors") for name in names}


def equal(one, other):
    assert one.keys() == other.keys()
    for name, values in one.items():
        assert values.keys() == other[name].keys()
        assert all(torch.equal(v, other[name][key]) for key, v in values.items())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("algo=silobn", "algo=fedavg parts.statistics=local"),
        ("algo=silobn parts.statistics=average", "algo=fedavg"),
        ("algo=fedbn", "algo=fedavg algo.weights=uniform parts.personal=[norm]"),
        ("algo=fedbn", "algo=fedavg algo.weights=uniform parts.personal=['norms.*']"),
        ("algo=fedbn parts.personal=[]", "algo=fedavg algo.weights=uniform"),
        ("algo=fixbn", "algo=fedavg parts.fix_after=0.5"),
        ("algo=fixbn parts.fix_after=1", "algo=fedavg"),
        ("algo=fixbn parts.fix_after=0.3", "algo=fedavg parts.fix_after=0.3"),
    ],
)
def test_the_three_methods_are_fedavg_with_a_policy(tmp_path, one, other):
    runs = [fedbench.run(f"{KEYS} {keys} results_dir={tmp_path}") for keys in (one, other)]
    equal(*map(files, runs))
    sent = [(run.last_round()["bytes_up"], run.last_round()["bytes_down"]) for run in runs]
    assert sent[0] == sent[1]


@pytest.mark.parametrize(
    ("keys", "sent"),
    [
        ("algo=fedavg", 4 * (SIZE + 14)),
        ("algo=fedavg parts.statistics=local", 4 * SIZE),
        ("algo=fedbn", 4 * (SIZE - 14)),
        ("algo=fedbn parts.statistics=average", 4 * SIZE),
        ("algo=fixbn", 4 * SIZE + 2 * 14),
        ("algo=fedavg parts.fix_after=0", 4 * SIZE),
        ("algo=fedavg parts.fix_after=0.2", 4 * SIZE + 14),
        ("algo=scaffold", 4 * (2 * SIZE + 14)),
    ],
)
def test_bytes(tmp_path, keys, sent):
    """Four rounds of eight clients: each vector once, and the statistics once where sent."""
    last = fedbench.run(f"{KEYS} {keys} results_dir={tmp_path}").last_round()
    assert last["bytes_up"] == last["bytes_down"] == 8 * 4 * sent


def test_statistics_are_sent_uncompressed(tmp_path):
    keys = f"{KEYS} compression=top_k compression.down.kind=qsgd results_dir={tmp_path}"
    averaged, local = (
        fedbench.run(f"{keys} {policy}").last_round()
        for policy in ("parts.statistics=average", "parts.statistics=local")
    )
    for column in ("bytes_up", "bytes_down"):
        assert averaged[column] - local[column] == 4 * 8 * 4 * 14


def test_statistics_move_in_the_first_rounds_only(tmp_path):
    """Half of 5 rounds: 3 of them."""
    run = f"data.clients=4 model=mlp model.norm=batch results_dir={tmp_path}"
    three = files(fedbench.run(f"{run} algo=fedavg rounds=3"))["model"]
    for rounds in (5, 6):
        model = files(fedbench.run(f"{run} algo=fixbn rounds={rounds}"))["model"]
        assert all(torch.equal(model[name], three[name]) for name in STATS)
        assert not torch.equal(model["layers.0.weight"], three["layers.0.weight"])
    constant = files(fedbench.run(f"{run} algo=fixbn rounds=3 parts.fix_after=0"))
    assert not constant["model"][STATS[0]].any()
    assert (constant["model"][STATS[1]] == 1).all()


@pytest.mark.parametrize("algo", ["silobn", "fedbn"])
def test_local_statistics_are_kept_apart(tmp_path, algo):
    run = fedbench.run(f"{KEYS} algo={algo} participation=0.25 rounds=2 results_dir={tmp_path}")
    found = files(run)
    assert not found["model"][STATS[0]].any()
    assert (found["model"][STATS[1]] == 1).all()
    kept = set(STATS) if algo == "silobn" else {*STATS, "norms.0.weight", "norms.0.bias"}
    assert set(found["personal"]) == kept == set(run.meta["personal"])
    means = found["personal"][STATS[0]]
    assert means.shape == (8, 7)
    never = (means == 0).all(1)
    assert int(never.sum()) == run.last_round()["never"] >= 4
    assert (found["personal"][STATS[1]][never] == 1).all()
    assert any("never took part" in remark for remark in run.meta["remarks"])
    whole = fedbench.run(f"{KEYS} algo={algo} rounds=1 results_dir={tmp_path}")
    assert whole.last_round()["never"] == 0
    assert not any("never" in remark for remark in whole.meta["remarks"])


def test_a_longer_run_continues_with_local_statistics(tmp_path):
    keys = f"{KEYS} algo=fedbn participation=0.5"
    fedbench.run(f"{keys} rounds=2 keep_state=true results_dir={tmp_path}/kept")
    longer = fedbench.run(f"{keys} keep_state=true results_dir={tmp_path}/kept")
    assert longer.meta["continues"]["rounds"] == 2
    equal(files(longer), files(fedbench.run(f"{keys} results_dir={tmp_path}/whole")))


def test_the_recorded_model_is_torchs(tmp_path):
    """A run's model in torch's evaluation mode has the recorded loss; its file begins a run."""
    keys = f"{KEYS} results_dir={tmp_path}"
    run = fedbench.run(f"{keys} algo=fedavg")
    again = f"{keys} rounds=0 init.path={run.path / 'model.safetensors'}"
    assert fedbench.run(again).last_round()["test_loss"] == pytest.approx(
        run.last_round()["test_loss"], rel=1e-6
    )
    named = files(run)["model"]
    assert set(STATS) <= named.keys()
    counter = {"norms.0.num_batches_tracked": torch.tensor(3)}
    parameters = {name: v for name, v in named.items() if name not in STATS}
    save_file(parameters | counter, tmp_path / "other.safetensors")
    other = fedbench.run(f"{keys} rounds=0 init.path={tmp_path / 'other.safetensors'}")
    began = files(other)["model"]
    assert (began[STATS[1]] == 1).all()
    assert torch.equal(began["layers.0.weight"], named["layers.0.weight"])

    net = fedbench.trained_model(run)
    assert not net.training
    assert torch.equal(net.state_dict()[STATS[0]], named[STATS[0]])


@pytest.mark.slow
def test_scenarios_around_statistics(tmp_path):
    """Lost results and clipped or compressed vectors leave statistics to themselves."""
    plain = fedbench.run(f"{KEYS} algo=fedavg results_dir={tmp_path}")
    for keys in (
        "defence=norm_clip defence.radius=1000",
        "availability=bernoulli availability.p=0",
    ):
        other = fedbench.run(f"{KEYS} algo=fedavg {keys} results_dir={tmp_path}")
        for name, v in files(plain)["model"].items():
            assert torch.allclose(v, files(other)["model"][name], atol=1e-6)
    lost = f"{KEYS} algo=fedavg availability=bernoulli availability.weights=zero"
    fedbench.run(f"{lost} results_dir={tmp_path}")
    for policy in ("parts.statistics=local", "parts.fix_after=0"):
        keys = f"{KEYS} algo.weights=uniform {policy} defence=median results_dir={tmp_path}"
        fedbench.run(f"{keys} attack=sign_flip")


def test_rules_attacks_and_privacy_do_not_cover_averaged_statistics():
    for part, constant, refused in (
        ((), False, {"message", "rule", "privacy"}),
        ((), True, set()),
        (("statistics",), False, set()),
        (("norms.0.*",), False, {"message", "rule", "privacy"}),
    ):
        task = task_with(*part)
        w = first(task)
        averaged = w[len(w) - task.averaged.size :]
        algo, _ = around(make("fedavg"), task, w, averaged if constant else None)
        assert set(refusals(Stage(algo, 1))) == refused


ATTACK = "attack=sign_flip"
UNIFORM = "algo=fedavg algo.weights=uniform"


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (f"{UNIFORM} {ATTACK}", "running statistics are averaged outside the server's step"),
        (f"{UNIFORM} defence=median", r"unless parts\.statistics=local or parts\.fix_after=0"),
        (f"{UNIFORM} parts.personal=['norms.0.weight'] defence=median", "running statistics are"),
        (f"{UNIFORM} parts.fix_after=0.5 {ATTACK}", "running statistics are averaged"),
        ("algo=ditto", "ditto has personal models already, so no running statistics are allowed"),
        ("algo=pfedme", "pfedme has personal models already, so no running"),
        ("algo=apfl", "apfl has personal models already, so no running statistics"),
        ("algo=fedcorr algo.iterations=0 algo.rounds1=1", "fedcorr has several stages, and"),
        ("algo=fafed", "fafed exchanges whole models before the first round, so no running"),
        (
            "algo=local_adam",
            "local_adam keeps moments, which would need a part of their own, so no",
        ),
        ("algo=stem", "stem .*so no running statistics are allowed; use a model with GroupNorm"),
        ("algo=fedmdfg algo.step=search", "fedmdfg measures one model for all clients, so no run"),
        ("algo=silobn data.local_test=central", "each client has statistics of its own"),
        ("algo=fedbn data.local_test=central", "each client has statistics of its own"),
        ("algo=silobn model.norm=none", "algo=silobn is for running statistics, and model=mlp has"),
        ("algo=fixbn model.norm=none", "algo=fixbn is for running statistics, and model=mlp has"),
        ("algo=fedbn model.norm=none", "MLP has no normalisation"),
        ("parts.statistics=local model.norm=none", "parts.statistics=local is for running statis"),
        ("parts.fix_after=0.5 model.norm=none", r"parts\.fix_after=0\.5 is for running statist"),
        ("parts.fix_after=1.5", r"fix_after"),
        ("parts.statistics=mean", r"statistics"),
    ],
)
def test_what_is_refused(tmp_path, keys, message):
    with pytest.raises(RequestError, match=message):
        fedbench.run(f"{KEYS} {keys} results_dir={tmp_path}")
    assert not list(tmp_path.iterdir())


OWN = """
from torch import nn
from fedbench.models.base import ModelTraits

class Net(nn.Module):
    traits = ModelTraits(head="last")

    def __init__(self, input_shape, classes):
        super().__init__()
        self.first = nn.Sequential(nn.Linear(input_shape[0], 5), nn.BatchNorm1d(5, momentum=0.2))
        self.last = nn.Linear(5, classes)

    def forward(self, x):
        return self.last(self.first(x).relu())
"""


def test_a_model_of_a_user(tmp_path):
    write_files(tmp_path / "own", {"own.py": OWN, "model/net.yaml": "_target_: own.Net\n"})
    runs = []
    for mode in ("loop", "stacked"):
        keys = f"{' '.join(FAST)} model=net engine.mode={mode} results_dir={tmp_path / mode}"
        for algo in ("fedbn", "fedavg"):
            runs.append(files(fedbench.run(f"{keys} algo={algo}", config_dir=tmp_path / "own")))
    for one, other in zip(runs[:2], runs[2:], strict=True):
        for name, values in one.items():
            for key, v in values.items():
                assert torch.allclose(v, other[name][key], atol=1e-4)
    kept = ("weight", "bias", "running_mean", "running_var")
    assert set(runs[0]["personal"]) == {f"first.1.{name}" for name in kept}
