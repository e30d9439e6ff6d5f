"""MOON, FedNTD, FedLC, FedDecorr and FedRoD: other losses in local steps."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from command_line import FAST, write_files
from safetensors.torch import load_file
from tools import deployed, federation, make, snapshots, task_for

import fedbench
from fedbench.algorithms.feddecorr import decorrelation, penalty
from fedbench.algorithms.fedlc import calibrated
from fedbench.algorithms.fedntd import not_true_distillation
from fedbench.algorithms.moon import contrastive, cosine
from fedbench.core.errors import RequestError
from fedbench.core.optim import sgd
from fedbench.core.types import Batch, ClientInfo, Outputs
from fedbench.models.cnn import ConvNet
from fedbench.models.dense import MLP
from fedbench.simulation.local_work import LocalWork
from fedbench.simulation.objectives import PREVIOUS, TRAINED
from fedbench.simulation.oracles import DenseOracle, LoopOracle, VmapOracle
from fedbench.simulation.task import Inputs

DATA = federation()
MLP_TASK = task_for(DATA, MLP, hidden=[5])
INITIAL = MLP_TASK.init(torch.Generator().manual_seed(1))
MOMENTUM = sgd(momentum=0.5, weight_decay=0.01, clip_norm=1.0)
METHODS = ("moon", "fedntd", "fedlc", "feddecorr", "fedrod")
OFF = {
    "moon": {"mu": 0.0},
    "fedntd": {"beta": 0.0},
    "fedlc": {"tau": 0.0},
    "feddecorr": {"coef": 0.0},
}


def run(name, local=MOMENTUM, data=DATA, **more):
    options = {k: more.pop(k) for k in tuple(more) if k in ("mu", "beta", "tau", "coef", "start")}
    if name == "fedrod":
        options["layout"] = {"head": slice(35, 53)}  # 6 * 5 + 5 values before the head
    given = {"task": MLP_TASK, "w": INITIAL, "mode": "stacked", **more}
    return snapshots(make(name, local, **options), data, **given)


def same(one, other, tolerance=1e-10):
    assert one.keys() == other.keys()
    for name, v in one.items():
        assert torch.allclose(v, other[name], rtol=0, atol=tolerance), name


# ---- losses by hand


def info_of(counts):
    """Facts of clients with these numbers of examples of each class."""
    some = torch.ones(len(counts), 1)
    return ClientInfo(some, some, some, some, some, some, some, {"labels": torch.tensor(counts)})


def values(objective, logits, y, others=(), features=None, counts=((1.0,),)):
    """The values of an objective on the batch of one client."""
    logits = torch.tensor([logits], dtype=torch.float64)
    y = torch.tensor([y])
    weight = torch.full(y.shape, 1 / y.shape[1], dtype=torch.float64)
    features = torch.zeros(1, y.shape[1], 0) if features is None else features
    batch = Batch(logits, y, weight)
    return objective.values(Outputs(logits, features), dict(others), batch, {}, info_of(counts))


def test_fedntd_by_hand():
    own, of_server, y = [1.0, 0.0, math.log(3)], [5.0, 0.0, 0.0], 0
    others = {"broadcast": Outputs(torch.tensor([[of_server]], dtype=torch.float64), None)}
    term = 0.5 * math.log(2) + 0.5 * math.log(2 / 3)  # q = (1/4, 3/4) against (1/2, 1/2)
    plain = F.cross_entropy(torch.tensor(own), torch.tensor(y))
    got = values(not_true_distillation(), [own], [y], others)
    assert got.item() == pytest.approx(plain.item() + term, rel=1e-6)


def test_fedntd_scales_with_the_square_of_the_temperature():
    gen = torch.Generator().manual_seed(0)
    own, of_server = (torch.randn(1, 4, 5, generator=gen, dtype=torch.float64) for _ in range(2))
    y = [0, 1, 4, 4]

    def term(scale):
        others = {"broadcast": Outputs(scale * of_server, None)}
        logits = (scale * own)[0].tolist()
        whole = values(not_true_distillation(tau=scale), logits, y, others)
        return whole - values(not_true_distillation(beta=0.0), logits, y, others)

    assert torch.allclose(term(3.0), 9 * term(1.0), rtol=1e-10)
    assert (term(1.0) > 0).all()


def test_fedlc_by_hand():
    """Counts 16, 1 and 0 with τ = 2 shift the logits by 1, 2 and infinity."""
    logits = [0.3, 0.1, 9.0]
    got = values(calibrated(tau=2.0), [logits], [0], counts=[[16.0, 1.0, 0.0]])
    expected = math.log(math.exp(0.3 - 1) + math.exp(0.1 - 2)) - (0.3 - 1)
    assert got.item() == pytest.approx(expected, rel=1e-6)
    limit = values(calibrated(tau=2.0, floor=1e-12), [logits], [0], counts=[[16.0, 1.0, 0.0]])
    assert got.item() == pytest.approx(limit.item(), rel=1e-6)


@pytest.mark.parametrize("factor", [1.0, -2.0])
def test_feddecorr_by_hand(factor):
    """Two features with correlation ±1, and two orthogonal ones, next to two rows of padding."""
    x = torch.tensor([[1.0, 2, 4, 5, 9, 9]], dtype=torch.float64)
    correlated = torch.stack([x, factor * x + 7], 2)
    real = torch.tensor([[True] * 4 + [False] * 2])
    count = 4
    assert penalty(correlated, real, "code").item() == pytest.approx((count - 1) ** 2 / count)
    assert penalty(correlated, real, "paper").item() == pytest.approx(1)
    crossed = torch.tensor([[[1.0, 1], [1, -1], [-1, 1], [-1, -1], [9, 9], [9, 9]]]).double()
    assert penalty(crossed, real, "code").item() == pytest.approx(0, abs=1e-15)
    assert penalty(crossed, real, "paper").item() == pytest.approx(1 / 2)
    assert penalty(crossed[..., :1], real, "code").item() == 0
    alone = torch.tensor([[True] + [False] * 5])
    assert penalty(correlated, alone, "code").item() == 0


@pytest.mark.parametrize("dimensions", [3, 12])  # below and above the number of examples
def test_feddecorr_agrees_with_the_loss_as_published(dimensions):
    gen = torch.Generator().manual_seed(3)
    x = torch.randn(2, 7, dimensions, generator=gen, dtype=torch.float64)
    real = torch.ones(2, 7, dtype=torch.bool)
    for k in range(2):
        u = (x[k] - x[k].mean(0)) / (x[k].var(0) + 1e-8).sqrt()
        products = u.T @ u
        apart = products[~torch.eye(dimensions, dtype=torch.bool)]
        assert penalty(x, real, "code")[k].item() == pytest.approx(apart.square().mean() / 7)
        expected = (products / 6).square().sum() / dimensions**2
        assert penalty(x, real, "paper")[k].item() == pytest.approx(expected.item())
    moved = penalty(3 * x + 2, real, "code")
    assert torch.allclose(moved, penalty(x, real, "code"), rtol=1e-6)


def test_feddecorr_is_not_a_mean_over_examples():
    gen = torch.Generator().manual_seed(4)
    features = torch.randn(1, 8, 3, generator=gen, dtype=torch.float64)
    logits = torch.zeros(8, 3).tolist()
    objective = decorrelation(coef=1.0)
    whole = values(objective, logits, [0] * 8, features=features)
    halves = [
        values(objective, logits[:4], [0] * 4, features=half) for half in features.split(4, 1)
    ]
    assert whole.shape == (1, 1)
    assert abs(whole - sum(halves) / 2) > 0.1


def test_moon_by_hand():
    """Cosine 1 with the previous model and -1 with the broadcast."""
    z = torch.tensor([[[1.0, 2.0]]], dtype=torch.float64)
    others = {"broadcast": Outputs(None, -3 * z), "previous": Outputs(None, 2 * z)}
    got = values(contrastive(mu=2.0, tau=0.5), [[0.0, 0.0]], [0], others, z)
    assert got.item() == pytest.approx(math.log(2) + 2 * math.log(1 + math.exp(2 / 0.5)))
    swapped = {"broadcast": others["previous"], "previous": others["broadcast"]}
    got = values(contrastive(mu=2.0, tau=0.5), [[0.0, 0.0]], [0], swapped, z)
    assert got.item() == pytest.approx(math.log(2) + 2 * math.log(1 + math.exp(-2 / 0.5)))


def test_a_very_short_vector_has_no_direction():
    short = torch.tensor([1e-9, 0.0], dtype=torch.float64, requires_grad=True)
    result = cosine(short, torch.tensor([1.0, 1.0], dtype=torch.float64))
    (g,) = torch.autograd.grad(result, short)
    assert result.item() == 0
    assert (g == 0).all()


# ---- gradients


def outputs_at(task, w, x):
    return Outputs(*(v[None] for v in task.outputs(Inputs(task.layout.views(w), x))))


OBJECTIVES = {
    "moon": contrastive(mu=1.5, tau=0.5),
    "ntd": not_true_distillation(beta=2.0, tau=1.5),
    "lc": calibrated(tau=0.7),
    "decorr": decorrelation(coef=0.3),
    "decorr as printed": decorrelation(coef=3.0, form="paper"),
}


@pytest.mark.parametrize("name", OBJECTIVES)
@pytest.mark.parametrize(
    ("kind", "model"),
    [(LoopOracle, "mlp"), (VmapOracle, "mlp"), (DenseOracle, "mlp"), (LoopOracle, "cnn")],
)
def test_gradients_are_finite_differences_with_the_other_models_constant(name, kind, model):
    """Three clients with 5, 1 and 3 real examples in a batch of 5, each at its own model."""
    objective = OBJECTIVES[name]
    gen = torch.Generator().manual_seed(2)
    if model == "mlp":
        task = task_for(DATA, MLP, hidden=[4])
        x = torch.randn(3, 5, 6, generator=gen, dtype=torch.float64)
    else:
        images = federation(features=36, shape=(1, 6, 6))
        task = task_for(images, ConvNet, channels=[2], kernel=3, hidden=4)
        x = torch.randn(3, 5, 1, 6, 6, generator=gen, dtype=torch.float64)
    counts = torch.tensor([[5], [1], [3]])
    weight = (torch.arange(5) < counts).double() / counts
    y = torch.tensor([[0, 1, 2, 0, 1], [2, 0, 0, 0, 0], [1, 1, 0, 0, 0]])
    batch = Batch(x, y, weight)
    info = info_of([[2.0, 2, 1], [0, 0, 1], [1, 2, 0]])
    w, server, previous = (
        torch.stack([task.init(torch.Generator().manual_seed(10 * m + k)) for k in range(3)])
        for m in range(3)
    )
    oracle = kind(task)
    others = {"broadcast": oracle.outputs(server, x), "previous": oracle.outputs(previous, x)}
    losses, gradients = oracle.loss_and_grad(
        w, batch, lambda own: objective.values(own, others, batch, {}, info)
    )

    def loss_of(k, model):
        real = slice(int(counts[k]))
        alone = Batch(x[k : k + 1, real], y[k : k + 1, real], weight[k : k + 1, real])
        own = outputs_at(task, model, x[k, real])
        seen = {
            "broadcast": outputs_at(task, server[k], x[k, real]),
            "previous": outputs_at(task, previous[k], x[k, real]),
        }
        got = objective.values(own, seen, alone, {}, info.take(slice(k, k + 1)))
        return got if got.shape[1] == 1 and got.numel() == 1 and counts[k] > 1 else got.mean()

    step = 1e-5
    for k in range(3):
        assert losses[k].item() == pytest.approx(loss_of(k, w[k]).item(), rel=1e-9)
        for place in torch.randperm(task.size, generator=gen)[:12].tolist():
            unit = torch.zeros(task.size, dtype=torch.float64)
            unit[place] = step
            slope = (loss_of(k, w[k] + unit) - loss_of(k, w[k] - unit)) / (2 * step)
            assert gradients[k, place].item() == pytest.approx(slope.item(), abs=1e-7)


@pytest.mark.parametrize("model", [MLP, None])
def test_features_are_the_inputs_of_the_head(model):
    task = MLP_TASK if model else task_for(DATA)
    models = torch.stack([INITIAL[: task.size], -INITIAL[: task.size]])
    x = DATA.x[:8].view(2, 4, 6)
    kinds = [LoopOracle(task), VmapOracle(task), DenseOracle(task)]
    first, *others = [oracle.outputs(models, x) for oracle in kinds]
    for other in others:
        assert torch.allclose(first.logits, other.logits)
        assert torch.allclose(first.features, other.features)
    if model is None:
        assert torch.equal(first.features, x)


# ---- methods


@pytest.mark.parametrize("name", OFF)
def test_without_its_term_a_method_is_fedavg(name):
    one = run(name, participation=0.6, **OFF[name])[-1]
    other = run("fedavg", participation=0.6)[-1]
    same({"w": one.server["w"]}, {"w": other.server["w"]})
    costs = ("client_steps", "bytes_up", "bytes_down")
    assert [getattr(one, key) for key in costs] == [getattr(other, key) for key in costs]


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize(
    "how",
    [
        {"mode": "loop"},
        {"cohort_size": 2},
        {"cohort_size": 3, "workers": 2},
    ],
)
def test_the_way_of_execution_changes_rounding_only(name, how):
    one = run(name, participation=0.6)[-1]
    other = run(name, participation=0.6, **how)[-1]
    same(one.server, other.server)
    same(one.clients, other.clients)


@pytest.mark.parametrize("name", METHODS)
def test_a_resumed_run_is_the_same_bit_for_bit(name):
    whole = run(name, participation=0.6, rounds=4)
    half = run(name, participation=0.6, rounds=4)[2]
    rest = run(name, participation=0.6, rounds=4, resume=half)[-1]
    assert torch.equal(whole[-1].server["w"], rest.server["w"])
    for key, v in whole[-1].clients.items():
        assert torch.equal(v, rest.clients[key])


@pytest.mark.parametrize("name", ["moon", "fedntd", "fedlc", "feddecorr"])
def test_an_objective_acts(name):
    """After the first round for MOON, which has no previous models in it."""
    models = [snapshot.server["w"] for snapshot in run(name)]
    plain = [snapshot.server["w"] for snapshot in run("fedavg")]
    assert torch.allclose(models[1], plain[1], atol=1e-10) == (name == "moon")
    assert not torch.allclose(models[2], plain[2], atol=1e-6)


def test_moon_keeps_a_clients_own_last_local_model():
    """Also over rounds in which it is absent."""
    work = LocalWork(lr=0.1, batch_size=None)
    one_step = {"work": work, "local": sgd()}
    before = {}
    seen = run("moon", participation=0.3, rounds=4, **one_step)
    for t, snapshot in enumerate(seen[1:]):
        w = seen[t].server["w"]
        for k in range(DATA.num_clients):
            kept = snapshot.clients[PREVIOUS][k]
            if k in snapshot.cohort and k not in before:  # one plain step
                rows = DATA.train.of_clients(np.array([k]))
                v = w.clone().requires_grad_()
                loss = F.cross_entropy(MLP_TASK.predict(v, DATA.x[rows]), DATA.y[rows])
                expected = w - 0.1 * torch.autograd.grad(loss, v)[0]
                assert torch.allclose(kept, expected, atol=1e-12)
            elif k in before and k not in snapshot.cohort:
                assert torch.equal(kept, before[k])
            if k in snapshot.cohort:
                before[k] = kept
            assert snapshot.clients[TRAINED][k].item() == (k in before)


def test_fedntd_is_fedavg_with_two_classes_and_with_one_step():
    two = federation(classes=2)
    task = task_for(two, MLP, hidden=[5])
    w = task.init(torch.Generator().manual_seed(1))
    models = [run(name, data=two, task=task, w=w)[-1].server["w"] for name in ("fedntd", "fedavg")]
    assert torch.allclose(*models, atol=1e-10)
    work = LocalWork(lr=0.1, batch_size=None)
    models = [run(name, work=work)[-1].server["w"] for name in ("fedntd", "fedavg")]
    assert torch.allclose(*models, atol=1e-10)


def balanced_data():
    """The federation with labels of which every client has equally many."""
    data = federation(sizes=(6, 3, 9), tests=[3, 3, 3])
    return data.relabelled(torch.arange(len(data.y)) % 3)


@pytest.mark.parametrize("name", ["fedlc", "fedrod"])
def test_equal_class_counts_are_fedavg(name):
    data = balanced_data()
    models = [run(method, data=data)[-1].server["w"] for method in (name, "fedavg")]
    assert torch.allclose(*models, atol=1e-10)


@pytest.mark.parametrize("name", ["fedlc", "fedrod"])
def test_the_row_of_a_class_that_no_client_has_does_not_move(name):
    data = DATA.relabelled(DATA.y.clamp(max=1))  # of three classes
    last = run(name, local=sgd(), data=data)[-1].server["w"]
    row = slice(35 + 2 * 5, 35 + 3 * 5)  # the third row of the head
    assert torch.equal(last[row], INITIAL[row])
    plain = run("fedavg", local=sgd(), data=data)[-1].server["w"]
    assert not torch.equal(plain[row], INITIAL[row])


def test_class_counts_are_those_of_the_training_examples():
    counts = DATA.class_counts
    for k, rows in enumerate(DATA.train.split()):
        assert counts[k].tolist() == np.bincount(DATA.y[rows], minlength=3).tolist()


# ---- FedRoD


@pytest.mark.parametrize("start", ["copy", "zero"])
def test_fedrod_by_hand(start):
    """Full batches, two local steps, two rounds: second heads see the shared model as constants."""
    work = LocalWork(lr=0.2, batch_size=None, epochs=(2, 2))
    last = run("fedrod", local=sgd(), work=work, rounds=2, start=start)[-1]

    net = MLP(DATA.shape, 3, [5]).double()
    names = [name for name, _ in net.named_parameters()]
    w = INITIAL.clone()
    first = w[35:] if start == "copy" else torch.zeros(18, dtype=torch.float64)
    seconds = [first.clone() for _ in range(DATA.num_clients)]
    p = torch.from_numpy(DATA.train.counts / DATA.train.counts.sum())
    for _ in range(2):
        ends = []
        for k in range(DATA.num_clients):
            rows = DATA.train.of_clients(np.array([k]))
            x, y = DATA.x[rows], DATA.y[rows]
            counts = torch.bincount(y, minlength=3)
            v = w.clone()
            for _ in range(2):
                leaves = [u.clone().requires_grad_() for u in MLP_TASK.layout.views(v)]
                features = torch.relu(F.linear(x, leaves[0], leaves[1]))
                logits = F.linear(features, leaves[2], leaves[3])
                loss = F.cross_entropy(logits + counts.log(), y)
                g = torch.cat([u.flatten() for u in torch.autograd.grad(loss, leaves)])
                second = seconds[k].clone().requires_grad_()
                weight, bias = second[:15].view(3, 5), second[15:]
                own = logits.detach() + F.linear(features.detach(), weight, bias)
                (d,) = torch.autograd.grad(F.cross_entropy(own, y), second)
                v = v - 0.2 * g
                seconds[k] = seconds[k] - 0.2 * d
            ends.append(v)
        w = p @ torch.stack(ends)
    assert len(names) == 4
    assert torch.allclose(last.server["w"], w, atol=1e-10)
    assert torch.allclose(last.clients["second"], torch.stack(seconds), atol=1e-10)


def test_fedrod_judges_the_sum_of_both_heads_and_keeps_those_of_absent_clients():
    algo = make("fedrod", sgd(), layout={"head": slice(35, 53)})
    *_, before, last = run("fedrod", participation=0.3, rounds=3)
    models = deployed(algo, last)
    x = DATA.x[:4]
    for k in range(DATA.num_clients):
        v = last.clients["second"][k]
        logits, features = MLP_TASK.outputs(Inputs(MLP_TASK.layout.views(last.server["w"]), x))
        expected = logits + F.linear(features, v[:15].view(3, 5), v[15:])
        assert torch.allclose(MLP_TASK.predict(models[k], x), expected)
        if k not in last.cohort:
            assert torch.equal(v, before.clients["second"][k])


def test_the_shared_model_of_fedrod_does_not_depend_on_the_second_heads():
    one, other = (run("fedrod", start=start)[-1] for start in ("copy", "zero"))
    assert torch.equal(one.server["w"], other.server["w"])
    assert not torch.equal(one.clients["second"], other.clients["second"])


# ---- through the configuration

FILE = "model.safetensors"
KEYS = f"{' '.join(FAST)} participation=2"


def finished(path, keys):
    run = fedbench.run(f"{KEYS} model=mlp {keys} results_dir={path}")
    return run, load_file(run.path / "model.safetensors")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("algo=fedntd", "algo=fedavg objective=ntd"),
        ("algo=fedntd algo.tau=2.0", "algo=fedprox algo.mu=0.0 objective=ntd objective.tau=2.0"),
        ("algo=fedlc", "algo=fedavg objective=lc"),
        ("algo=feddecorr", "algo=fedavg objective=decorr"),
    ],
)
def test_the_group_is_the_method(tmp_path, one, other):
    (first, a), (second, b) = (finished(tmp_path, keys) for keys in (one, other))
    assert all(torch.equal(v, b[key]) for key, v in a.items())
    costs = ("bytes_up", "bytes_down", "test_loss")  # evaluated on the plain loss
    assert [first.last_round()[c] for c in costs] == [second.last_round()[c] for c in costs]
    assert second.meta["objective"] == other.partition("objective=")[2].split()[0]


@pytest.mark.slow
def test_an_objective_goes_with_roles_and_states(tmp_path):
    """FedProx, SCAFFOLD and FedSAM with a personal head: the head is never sent."""
    for keys in ("algo=fedprox", "algo=scaffold", "algo=fedsam", "algo=moon objective=none"):
        objective = "" if "moon" in keys else "objective=decorr"
        _, model = finished(tmp_path, f"{keys} {objective} parts.personal=[head]")
        initial = fedbench.run(f"{KEYS} model=mlp rounds=0 results_dir={tmp_path}")
        first = load_file(initial.path / "model.safetensors")
        assert torch.equal(model["layers.1.weight"], first["layers.1.weight"])
        assert not torch.equal(model["layers.0.weight"], first["layers.0.weight"])


@pytest.mark.parametrize("keys", ["objective=lc", "objective=decorr objective.coef=5.0"])
def test_models_are_measured_on_the_plain_loss(tmp_path, keys):
    """Evaluation, and the losses that select clients."""
    common = (
        "algo=term algo.weights=uniform sampling=power_of_choice sampling_candidates=5 rounds=1"
    )
    plain, _ = finished(tmp_path, common)
    other, _ = finished(tmp_path, f"{common} {keys}")
    rows = [run_.rounds() for run_ in (plain, other)]
    for column in ("test_loss", "train_loss", "accuracy_mean"):
        assert rows[0][column][0] == rows[1][column][0]
    assert rows[0]["test_loss"][1] != rows[1]["test_loss"][1]


def test_no_objective_leaves_no_trace():
    plain = fedbench.config.compose.compose_run([])
    assert fedbench.config.compose.compose_run(["objective=none"]).digest == plain.digest
    assert "objective" not in plain.tree


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ("algo=propfair objective=lc", "propfair uses the cross-entropy of a batch"),
        ("algo=fedsps objective=lc", "fedsps uses the cross-entropy of a batch"),
        ("algo=fedcorr rounds=20 objective=lc", "fedcorr uses the cross-entropy of a batch"),
        ("algo=ditto objective=lc", "ditto has a second local phase on the cross-entropy"),
        ("algo=moon objective=decorr", "moon has a loss of its own already, and a run has one"),
        ("algo=moon model=linear", "algo=moon acts through the features, and those of"),
        ("algo=feddecorr model=linear", "algo=feddecorr acts through the features"),
        ("algo=moon parts.frozen=[body]", "acts through the features, and those of model=mlp"),
        ("algo=fedrod parts.personal=[head]", "fedrod has personal models already"),
        ("algo=fedrod parts.personal=[body]", "fedrod has personal models already"),
        ("algo=fedrod parts.frozen=[head]", "declared, trained and shared"),
    ],
)
def test_refusals(tmp_path, keys, message):
    model = "" if "model=" in keys else "model=mlp"
    with pytest.raises(RequestError, match=message):
        fedbench.run(f"{KEYS} {model} {keys} results_dir={tmp_path}")
    assert not list(tmp_path.iterdir())


def test_labels_per_token_are_refused():
    from fedbench.runs.build import _check_objective

    config = fedbench.config.compose.compose_run(["algo=fedlc", "data=synthetic_leaf"])
    tokens = replace(DATA, y=DATA.y.unsqueeze(1))
    algorithm = replace(make("fedavg"), objective=calibrated())
    for algo in (algorithm, make("fedrod")):
        with pytest.raises(RequestError, match="has a label per token"):
            _check_objective(config, tokens, MLP_TASK, algo)


OWN = """
import torch
import torch.nn.functional as F
from fedbench.core.algorithm import Algorithm, descent
from fedbench.core.objective import Objective, cross_entropy
from torch import nn

def mine(local, wrong=""):
    def values(own, others, batch, local_variables, info):
        if wrong == "scalar":
            return F.cross_entropy(own.logits.flatten(0, 1), batch.y.flatten())
        if wrong == "classes":
            return own.logits
        if wrong == "other":
            return others["broadcast"].logits.sum(2)
        if wrong == "counts":
            return info.probe["labels"]
        return cross_entropy(own.logits, batch.y)

    return Algorithm(**descent(local), objective=Objective(values))

def loss():
    return lambda: None

class Net(nn.Module):
    def __init__(self, input_shape, classes):
        super().__init__()
        self.last = nn.Linear(input_shape[0], classes)

    def forward(self, x):
        return self.last(x)
"""


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (
            "algo.wrong=scalar",
            r"objective\.values: values .* returned \[\] float32; expected \[C, B\]",
        ),
        ("algo.wrong=classes", r"returned \[\d+, 10, 10\] float32; expected \[C, B\] or \[C, 1\]"),
        ("algo.wrong=other", r"objective\.values: values .* raised KeyError .*'broadcast'"),
        ("algo.wrong=counts", r"objective\.values: values .* raised KeyError .*'labels'"),
        ("model=net", "algo=mine needs a declared head, whose inputs are the features, and Net"),
        ("algo=fedavg +objective._target_=own.loss", "must return an Objective, got function"),
    ],
)
def test_losses_of_a_user_are_checked(tmp_path, keys, message):
    files = {
        "own.py": OWN,
        "algo/mine.yaml": "_target_: own.mine\nwrong: ''\n",
        "model/net.yaml": "_target_: own.Net\n",
    }
    write_files(tmp_path / "own", files)
    given = "" if "algo=" in keys else "algo=mine"
    model = "" if "model=" in keys else "model=mlp"
    with pytest.raises(RequestError, match=message):
        fedbench.run(
            f"{KEYS} {given} {model} {keys} results_dir={tmp_path}", config_dir=tmp_path / "own"
        )


def test_a_longer_run_continues_bit_for_bit(tmp_path):
    """Also where some clients take part for the first time in the second part."""
    keys = "algo=moon model=mlp data=synthetic_leaf data.clients=8 participation=4 local.lr=0.1"
    keys += " engine.precision=float64 keep_state=true"
    fedbench.run(f"{keys} rounds=2 results_dir={tmp_path / 'parts'}")
    models = [
        load_file(fedbench.run(f"{keys} rounds=4 results_dir={tmp_path / place}").path / FILE)
        for place in ("parts", "whole")
    ]
    assert all(torch.equal(v, models[1][name]) for name, v in models[0].items())
