"""Statistics, other losses, fine-tuning, selection and personal parts in one run."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from command_line import FAST, write_files
from safetensors.torch import load_file
from test_statistics import DATA, around, first, run, task_with
from tools import make

import fedbench
from fedbench.core.errors import RequestError
from fedbench.core.optim import sgd
from fedbench.models.dense import MLP
from fedbench.runs.build import build
from fedbench.simulation.objectives import PREVIOUS
from fedbench.simulation.personal import PERSONAL

LOSSES = ("moon", "fedntd", "feddecorr", "fedlc")
BATCH_NORM = f"{' '.join(FAST)} engine.precision=float64 model=mlp model.norm=batch"


def last_of(name, personal=(), **more):
    task = task_with(*personal)
    return run(make(name, sgd(momentum=0.5)), task, first(task), participation=0.6, **more)


def same(one, other):
    for part, twin in ((one.server, other.server), (one.clients, other.clients)):
        assert part.keys() == twin.keys()
        for name, v in part.items():
            assert torch.allclose(v, twin[name], rtol=1e-9, atol=1e-10), name


@pytest.mark.parametrize("personal", [(), ("norm",), ("head", "norm")])
@pytest.mark.parametrize("name", LOSSES)
def test_losses_with_statistics_and_personal_parts_agree_in_all_modes(name, personal):
    loop = last_of(name, personal)[-1]
    same(loop, last_of(name, personal, mode="stacked")[-1])
    same(loop, last_of(name, personal, mode="stacked", cohort_size=2, workers=2)[-1])
    assert (PERSONAL in loop.clients) == bool(personal)


def test_moon_keeps_models_with_their_statistics():
    """In a first round it is FedAvg; other models are seen with statistics of their own."""
    task = task_with()
    moon = last_of("moon")
    plain = last_of("fedavg")
    same(moon[1]._replace(clients={}), plain[1]._replace(clients={}))
    assert moon[-1].clients[PREVIOUS].shape == (DATA.num_clients, task.size)
    assert not torch.allclose(moon[-1].server["w"], plain[-1].server["w"], atol=1e-6)

    seen = next(k for k in moon[1].cohort if DATA.train.counts[k] > 1)
    w = torch.cat([moon[0].server["w"], moon[0].server["statistics"]])
    kept = moon[1].clients[PREVIOUS][seen]
    parameters = sum(task.layout.sizes[: task.parameters])
    assert not torch.equal(kept[parameters:], w[parameters:])


def test_fixed_statistics_do_not_move_under_another_loss():
    task = task_with()
    w = first(task)
    algo, shared = around(make("feddecorr", sgd()), task, w, constant=w[task.shared.size :])
    message = algo.broadcast(algo.server_init(shared, 2))
    assert message.keys() == {"w"}
    models = run(make("feddecorr", sgd()), task, w, constant=w[task.shared.size :])
    assert torch.equal(models[-1].server["statistics"], w[task.shared.size :])


def tuned_by_torch(path, keys, fixed):
    """The mean test accuracy after one full-batch step of every client from the recorded model."""
    recorded = fedbench.run(f"{BATCH_NORM} {keys} finetune.epochs=0 results_dir={path}")
    prepared = build(fedbench.config.compose.compose_run(f"{BATCH_NORM} {keys}".split()))
    data = prepared.data
    losses = []
    for k in range(data.num_clients):
        net = MLP(data.shape, data.classes, norm="batch").double()
        net.load_state_dict(load_file(recorded.path / "model.safetensors"), strict=False)
        net.train(not fixed)
        rows = data.train.of_clients(np.array([k]))
        x = data.features(rows)
        loss = F.cross_entropy(net(x), data.y[rows])
        gradients = torch.autograd.grad(loss, list(net.parameters()))
        with torch.no_grad():
            for p, g in zip(net.parameters(), gradients, strict=True):
                p -= 0.05 * g
            net.eval()
            rows = data.test.of_clients(np.array([k]))
            losses.append(F.cross_entropy(net(data.features(rows)), data.y[rows], reduction="sum"))
    return float(sum(losses) / data.test.counts.sum())


@pytest.mark.parametrize(("fix_after", "fixed"), [("null", False), ("0.5", True), ("1", False)])
def test_fine_tuning_moves_statistics_as_the_next_round_would(tmp_path, fix_after, fixed):
    keys = f"local.batch_size=full local.lr=0.05 parts.fix_after={fix_after} rounds=2"
    expected = tuned_by_torch(tmp_path, keys, fixed)
    got = fedbench.run(f"{BATCH_NORM} {keys} finetune.epochs=1 results_dir={tmp_path}")
    assert got.last_round()["test_loss"] == pytest.approx(expected, rel=1e-9)
    assert got.last_round()["untuned_test_loss"] != pytest.approx(expected, rel=1e-6)


def test_clients_are_selected_by_the_losses_of_their_own_models(tmp_path):
    keys = "sampling=power_of_choice participation=2 algo.weights=uniform rounds=3"
    models = []
    for mode in ("loop", "stacked"):
        options = f"{keys} parts.personal=[norm] engine.mode={mode}"
        done = fedbench.run(f"{BATCH_NORM} {options} results_dir={tmp_path / mode}")
        assert done.rounds()["asked"].dropna().tolist()[-1] == 8
        models.append(load_file(done.path / "model.safetensors"))
    for name, v in models[0].items():
        torch.testing.assert_close(v, models[1][name], rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize(
    ("keys", "is_compiled"),
    [
        ("parts.personal=[head]", True),
        ("parts.personal=[body]", False),
        ("model.norm=batch", False),
    ],
)
def test_compiled_code_steps_aside_for_parts(tmp_path, keys, is_compiled):
    """It takes a model's parameters in their order: a personal head is the last of them."""
    mode = "engine.mode=compiled"
    run_ = fedbench.run(f"{' '.join(FAST)} model=mlp {keys} {mode} results_dir={tmp_path}")
    assert (run_.meta["engine"]["mode"] == "compiled") == is_compiled


@pytest.mark.parametrize("keys", ["algo=local", "algo=fedper", "algo=silobn model.norm=batch"])
def test_clients_improve_if_their_own_models_do(tmp_path, keys):
    """After full-batch steps that are tiny, all improve; after huge ones, not all do."""
    common = f"{' '.join(FAST)} model=mlp {keys} improved_clients=true local.batch_size=full"
    shares = []
    for lr in (1e-4, 1e3):
        path = tmp_path / str(lr)
        done = fedbench.run(f"{common} engine.precision=float64 local.lr={lr} results_dir={path}")
        shares.append(done.rounds()["improved_clients"].dropna().tolist())
    assert "silobn" in keys or set(shares[0]) == {1.0}
    assert min(shares[1]) < 1


@pytest.mark.parametrize(
    ("keys", "sent"),
    [
        # 60 * 128 + 128 signs, and a scale for each of two tensors
        ("kind=sign per=tensor", (60 * 128 + 128) // 8 + 2 * 4),
        # two factors of the matrix, and the bias
        ("kind=power rank=2", 4 * (2 * (60 + 128) + 128)),
        ("kind=top_k ratio=0.5", None),
    ],
)
@pytest.mark.parametrize("part", ["parts.personal=[head]", "parts.frozen=[head]"])
def test_messages_are_compressed_as_those_of_a_model_of_the_shared_part(tmp_path, keys, sent, part):
    kind, option = keys.split()
    common = f"{' '.join(FAST)} model=mlp {part} rounds=2 results_dir={tmp_path}"
    compression = f"compression={kind[5:]} compression.up.{option}"
    done = fedbench.run(f"{common} {compression}")
    values = 60 * 128 + 128
    bytes_up = done.last_round()["bytes_up"] / (2 * 8)
    assert bytes_up == sent if sent else bytes_up < 4 * values
    assert done.last_round()["bytes_down"] == 2 * 8 * 4 * values


@pytest.mark.slow
@pytest.mark.parametrize("keys", ["defence=krum algo.weights=uniform", "privacy=central"])
def test_rules_and_noise_see_the_shared_part_alone(tmp_path, keys):
    """With a personal head, messages are those of a model whose head is frozen, in one round."""
    common = f"{' '.join(FAST)} model=mlp {keys} rounds=1 local.steps=1 local.batch_size=full"
    common += f" algo.weights=uniform engine.precision=float64 results_dir={tmp_path}"
    if "algo.weights" in keys:
        common = common.replace(" algo.weights=uniform engine", " engine")
    models = []
    for part in ("personal", "frozen"):
        done = fedbench.run(f"{common} parts.{part}=[head]")
        models.append(load_file(done.path / "model.safetensors"))
    for name, v in models[0].items():
        torch.testing.assert_close(v, models[1][name], rtol=1e-9, atol=1e-11)


def test_held_out_clients_are_not_counted_as_absent(tmp_path):
    keys = f"{BATCH_NORM} algo=silobn evaluate.held_out_clients=2 results_dir={tmp_path}"
    assert fedbench.run(keys).last_round()["never"] == 0


OWN = """
from fedbench.core.algorithm import Algorithm, descent
from fedbench.models.base import ModelTraits
from torch import nn

def gradient(oracle, msg, local, batch, info):
    return oracle.grad(local["w"].clone(), batch)

def mine(local):
    return Algorithm(**descent(local, gradient), parts=True)

class Net(nn.Module):
    def __init__(self, input_shape, classes):
        super().__init__()
        self.norm = nn.BatchNorm1d(input_shape[0] // 2)
        self.last = nn.Linear(input_shape[0], classes)

    def forward(self, x):
        halves = x.reshape(2 * len(x), -1)  # two rows per example
        return self.last(self.norm(halves).reshape(x.shape))
"""


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ("algo=mine", "running statistics are moved by the gradient at the local model"),
        ("model=net", "model, in a training step with padding"),
    ],
)
def test_code_of_a_user_that_does_not_fit_statistics_is_refused(tmp_path, keys, message):
    files = {
        "own.py": OWN,
        "algo/mine.yaml": "_target_: own.mine\n",
        "model/net.yaml": "_target_: own.Net\n",
    }
    write_files(tmp_path / "own", files)
    base = BATCH_NORM if "algo=" in keys else " ".join(FAST)
    with pytest.raises(RequestError, match=message):
        fedbench.run(f"{base} {keys} results_dir={tmp_path / 'r'}", config_dir=tmp_path / "own")
