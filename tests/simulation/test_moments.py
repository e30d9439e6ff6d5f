"""How alike first moments are, and what a run records of them and of its updates."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from command_line import FAST, FILES, interrupted, model_of
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file
from tools import federation, make, snapshots, task_for

from fedbench.config.compose import compose_run
from fedbench.core.algorithm import Stage
from fedbench.models.dense import MLP
from fedbench.runs import training as runner
from fedbench.runs.build_data import federated
from fedbench.runs.run import read_run
from fedbench.simulation import diagnostics
from fedbench.simulation.diagnostics import MomentSimilarity, Watched, linear_cka, moment_similarity
from fedbench.simulation.engine import Engine
from fedbench.simulation.local_work import LocalWork
from fedbench.simulation.oracles import make_oracle

# ---- linear CKA

sizes = st.integers(2, 7)
seeds = st.integers(0, 10**6)


def gaussian(seed, *shape):
    return np.random.default_rng(seed).normal(size=shape)


def test_cka_of_two_columns_by_hand():
    """X = (-1, 0, 1), Y = (0, 0, 3) - 1 = (-1, -1, 2): Y'X = 3, X'X = 2, Y'Y = 6; 9 / 12."""
    x = np.array([[0.0], [1], [2]])
    y = np.array([[5.0], [5], [8]])
    z = np.array([[1.0], [-1], [0]])
    assert linear_cka(x, y) == pytest.approx(9 / 12)
    assert linear_cka(y, z) == pytest.approx(0, abs=1e-15)  # (-1)(1) + (-1)(-1) + 2·0


@given(seeds, sizes, sizes, sizes)
def test_cka_depends_on_the_similarity_alone(seed, n, a, b):
    """Not on bases, scales and order, nor on whether columns of zeros lead to the other form."""
    x = gaussian(seed, n, a)
    y = gaussian(seed + 1, n, b)
    value = linear_cka(x, y)
    assert 0 <= value <= 1 + 1e-12
    zeros = np.zeros((n, n + 1))
    wide_x = np.hstack([x, zeros])
    wide_y = np.hstack([y, zeros])
    basis, _ = np.linalg.qr(gaussian(seed + 2, b, b))
    turned = 1e9 * y @ basis - 3
    for same in (turned, 1e-30 * y):
        assert linear_cka(y, same) == pytest.approx(1, abs=1e-9)
    pairs = [
        (y, x),
        (x, turned),
        (x[::-1], y[::-1]),
        (wide_x, wide_y),
        (wide_x, y),
    ]
    for pair in pairs:
        assert linear_cka(*pair) == pytest.approx(value, rel=1e-8, abs=1e-12)


@pytest.mark.parametrize("constant", [0.0, 0.1, -3e7])
def test_cka_of_what_does_not_vary_is_not_a_number(constant):
    """The mean of three numbers 0.1 is not 0.1: what is left must not be taken for variance."""
    x = gaussian(0, 3, 4)
    narrow = np.full((3, 4), constant)
    wide = np.full((3, 9), constant)
    assert np.isnan(linear_cka(x, narrow))
    assert np.isnan(linear_cka(wide, x))
    assert np.isnan(linear_cka(x, x * np.nan))


# ---- over the tensors of a model


@pytest.fixture
def three():
    """A task with two weights and two biases, and moments of three clients for it."""
    task = task_for(federation(), MLP, hidden=[4])
    draws = torch.Generator().manual_seed(0)
    return task, torch.randn(3, task.size, generator=draws)


def weights_and_biases(task, moments):
    """Return views of the moments of weights and of biases."""
    tensors = task.layout.named(moments).values()
    weights = [v for v in tensors if v.dim() == 3]
    biases = [v for v in tensors if v.dim() == 2]
    return weights, biases


def cka_of_the_first_two(weight):
    """Return the similarity of two clients by one tensor of their moments."""
    one, two, _ = weight.numpy()
    return linear_cka(one, two)


def test_similarity_is_the_mean_over_weights_and_leaves_vectors_out(three):
    task, moments = three
    similarity = moment_similarity(task, moments)
    assert np.diag(similarity) == pytest.approx(1)
    weights, biases = weights_and_biases(task, moments)
    by_weight = [cka_of_the_first_two(v) for v in weights]
    assert similarity[0, 1] == pytest.approx(np.mean(by_weight))
    assert similarity[0, 1] < 0.9
    flipped = moment_similarity(task, moments.flip(0))
    assert flipped == pytest.approx(similarity[::-1, ::-1])
    for v in biases:
        v += 9
    again = moment_similarity(task, moments)
    assert again.tolist() == similarity.tolist()


def test_a_tensor_without_variance_is_left_out_of_the_mean(three):
    """A client without moments is similar to no client, not even to itself."""
    task, moments = three
    (first, second), _ = weights_and_biases(task, moments)
    first[1] = 0.1
    first[2] = 0
    second[2] = 0
    similarity = moment_similarity(task, moments)
    assert similarity[0, 1] == pytest.approx(cka_of_the_first_two(second))
    known = np.isfinite(similarity)
    assert known[:2, :2].all()
    assert known.sum() == 4


# ---- what the loop hands out and a run writes


def watch(algo, data, rounds, **options):
    """Run a method with the diagnostic; return the snapshots and the moments document."""
    task = task_for(data)
    engine = Engine(make_oracle(task, "loop"), "loop", 1)
    watched = Watched([Stage(algo, rounds)], task, engine)
    diagnostic = MomentSimilarity(watched)
    seen = snapshots(
        algo,
        data,
        rounds=rounds,
        observers=[diagnostic.observer],
        **options,
    )
    return seen, diagnostic.document()


def gradient_of(data, w, k):
    """Return the full gradient of a client of a linear model by autograd."""
    rows = data.train.split()[k]
    w = w.clone().requires_grad_()
    logits = task_for(data).predict(w, data.x[rows])
    loss = F.cross_entropy(logits, data.y[rows])
    (gradient,) = torch.autograd.grad(loss, w)
    return gradient


@pytest.mark.parametrize("name", ["local_adam", "fedcada", "fafed", "stem"])
def test_the_moments_are_the_cohorts_own_and_of_the_last_round(name, monkeypatch):
    """After one full batch m is (1 - beta1) times the gradient at the first model, by client.

    With alpha = 1, m of FAFED and STEM is the gradient itself.
    """
    monkeypatch.setattr(diagnostics, "moment_similarity", lambda task, moments: moments)
    data = federation([9] * 12)
    options = {"work": LocalWork(lr=0.1, batch_size=None)}
    algo = make(name)
    share = 0.1
    if name in ("fafed", "stem"):
        algo = make(name, init_step="none", alpha=1.0)
        share = 1.0
    else:
        options["participation"] = 11

    (first, last), document = watch(algo, data, 1, **options)
    assert document["round"] == 1
    assert document["clients"] == last.cohort[:10].tolist()
    assert len(document["cka"]) == 10
    moments = dict(zip(document["clients"], document["cka"], strict=True))
    start = first.server["w"]
    for k, m in moments.items():
        want = share * gradient_of(data, start, k)
        assert m == pytest.approx(want.tolist(), rel=1e-7)
    seen, document = watch(algo, data, 3, **options)
    assert document["round"] == 3
    assert document["clients"] == seen[-1].cohort[:10].tolist()


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("fedadam", {}),
        ("local_adam", {"state": "reset"}),
    ],
)
def test_methods_without_moments_of_clients_expose_none(name, options):
    """Moments of the server do not count; the diagnostic is for runs whose methods expose them."""
    assert MomentSimilarity.exposed not in make(name, **options).exposes


def test_a_run_records_the_similarity_of_ten_clients(train):
    keys = ["data.clients=14", "participation=12", "rounds=3", "eval_every=2"]
    path = train(*keys, "algo=fedcada")
    assert {p.name for p in path.iterdir()} == {*FILES, "moments.json"}
    document = read_run(path).document("moments")
    assert set(document) == {"round", "clients", "cka"}
    assert document["round"] == 3
    clients = document["clients"]
    assert len(clients) == 10
    assert clients == sorted(set(clients) & set(range(14)))
    matrix = np.array(document["cka"])
    assert matrix.shape == (10, 10)
    assert np.diag(matrix) == pytest.approx(1)


def files(path):
    """The moments and the model of a run."""
    moments = (path / "moments.json").read_bytes()
    return moments, model_of(path)


@pytest.mark.parametrize(
    ("algo", "at"),
    [
        ("local_adam", 3),
        ("fedcada", 5),  # the last round
    ],
)
def test_moments_and_norms_survive_an_interruption(fed, train, tmp_path, monkeypatch, algo, at):
    """The last round is in no checkpoint of such a method: it is done again, and gives the moments
    again.
    """
    args = [*FAST, f"algo={algo}", "participation=5"]
    whole = train(*args, "results_dir=whole")
    interrupted(fed, monkeypatch, at, *args)
    assert not list((tmp_path / "results").rglob("moments.json"))
    path = train(*args)
    assert files(path) == files(whole)
    first, *norms = read_run(path).rounds()["update_norm"]
    _, *expected = read_run(whole).rounds()["update_norm"]
    assert np.isnan(first)
    assert norms == expected


def test_a_run_stopped_behind_its_last_round_still_has_moments(fed, train, monkeypatch):
    args = [*FAST, "algo=fedcada"]
    whole = train(*args, "results_dir=whole")

    def stopped(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(runner, "_CHECKPOINT_EVERY", 0)
        patch.setattr(diagnostics, "moment_similarity", stopped)
        assert fed(*args)[0] == 130
    path = train(*args)
    assert files(path) == files(whole)
    rounds = read_run(path).rounds()
    assert rounds["round"].tolist() == [0, 1, 2, 3, 4]


# ---- the norm of an update


def test_one_full_batch_of_one_client_moves_by_rate_times_gradient(train, tmp_path):
    """The norm of the update after one round, against the gradient at the first model."""
    args = ["data.clients=1", "local.batch_size=full", "local.lr=0.5", "engine.precision=float64"]
    start = train(*args, "rounds=0")
    last = train(*args, "rounds=1")
    data = federated(compose_run([*args, f"data_dir={tmp_path}"]))
    data = data.to(torch.device("cpu"), torch.float64)
    model = load_file(start / "model.safetensors")
    w = task_for(data).layout.flatten(model)
    before, measured = read_run(last).rounds()["update_norm"]
    assert np.isnan(before)
    length = gradient_of(data, w, 0).norm().item()
    assert measured == pytest.approx(0.5 * length, rel=1e-9)


def test_the_norm_is_of_the_last_round_before_an_evaluation(train):
    # in this order: a run that is evaluated in every round would answer for the other
    some = read_run(train(*FAST, "eval_every=3")).rounds()
    every = read_run(train(*FAST, "eval_every=1")).rounds()
    assert some["round"].tolist() == [0, 3, 4]
    _, third, fourth = some["update_norm"]
    norms = every["update_norm"].tolist()
    assert [third, fourth] == norms[3:]
