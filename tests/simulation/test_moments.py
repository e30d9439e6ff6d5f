"""How alike first moments are, what a run records of them and of its updates, and partitions that follow the seed."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from command_line import FAST, FILES, interrupted, run_dir
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
    """X = (-1, 0, 1), Y = (0, 0, 3) - 1 = (-1, -1, 2): Y'X = 3, X'X = 2, Y'Y = 6; 9 / 12. Another column: Y'Z = 0."""
    x, y, z = np.array([[0.0], [1], [2]]), np.array([[5.0], [5], [8]]), np.array([[1.0], [-1], [0]])
    assert linear_cka(x, y) == pytest.approx(9 / 12)
    assert linear_cka(y, z) == pytest.approx(0, abs=1e-15)  # (-1)(1) + (-1)(-1) + 2·0
    # [X Z]'[X Z] = [[2, -1], [-1, 2]], of norm √10; ‖Y'[X Z]‖² = 9 + 0
    assert linear_cka(np.hstack([x, z]), y) == pytest.approx(9 / (np.sqrt(10) * 6))


@given(seeds, sizes, sizes, sizes)
def test_cka_is_one_for_the_same_up_to_scale_shift_and_rotation(seed, n, a, power):
    x = gaussian(seed, n, a)
    turned = x @ np.linalg.qr(gaussian(seed + 1, a, a))[0]
    for same in (x, -(10.0**power) * x, 1e-30 * x, x + gaussian(seed + 2, a), turned):
        assert linear_cka(x, same) == pytest.approx(1, abs=1e-9)


@given(seeds, sizes, sizes, sizes)
def test_cka_does_not_depend_on_bases_scales_order_or_on_the_way_it_is_computed(seed, n, a, b):
    """More columns of zeros lead to the Gram matrices of rows, fewer to those of columns."""
    x, y = gaussian(seed, n, a), gaussian(seed + 1, n, b)
    value = linear_cka(x, y)
    assert 0 <= value <= 1 + 1e-12
    turned = y @ np.linalg.qr(gaussian(seed + 2, b, b))[0]
    wide = [np.hstack([m, np.zeros((n, n + 1))]) for m in (x, y)]
    for other in (
        linear_cka(y, x),
        linear_cka(x, 7 * turned - 3),
        linear_cka(x[::-1], y[::-1]),
        linear_cka(*wide),
        linear_cka(wide[0], y),
    ):
        assert other == pytest.approx(value, rel=1e-8, abs=1e-12)


@pytest.mark.parametrize("constant", [0.0, 0.1, -3e7])
def test_cka_of_what_does_not_vary_is_not_a_number(constant):
    """The mean of three numbers 0.1 is not 0.1: what is left must not be taken for variance."""
    x = gaussian(0, 3, 4)
    assert np.isnan(linear_cka(x, np.full((3, 4), constant)))
    assert np.isnan(linear_cka(np.full((3, 9), constant), x))
    assert np.isnan(linear_cka(x, np.full((3, 4), np.nan)))


# ---- over the tensors of a model


def three_clients():
    """A task with two weights and two biases, and moments of three clients for it."""
    task = task_for(federation(), MLP, hidden=[4])
    return task, torch.randn(3, sum(task.layout.sizes), generator=torch.Generator().manual_seed(0))


def test_similarity_is_the_mean_over_weights_and_leaves_vectors_out():
    task, moments = three_clients()
    found = moment_similarity(task, moments)
    assert found == pytest.approx(found.T)
    assert np.diag(found) == pytest.approx(1)
    weights = [v.numpy() for v in task.layout.named(moments).values() if v.dim() == 3]
    assert len(weights) == 2
    assert found[0, 1] == pytest.approx(np.mean([linear_cka(w[0], w[1]) for w in weights]))
    assert found[0, 1] < 0.9
    for v in task.layout.named(moments).values():  # views: other biases
        v += 9 * (v.dim() == 2) * torch.rand(v.shape)
    assert moment_similarity(task, moments).tolist() == found.tolist()
    assert moment_similarity(task, moments.flip(0)) == pytest.approx(found[::-1, ::-1])


def test_a_tensor_without_variance_is_left_out_of_the_mean():
    """A client without moments is similar to no client, not even to itself."""
    task, moments = three_clients()
    first, second = (v for v in task.layout.named(moments).values() if v.dim() == 3)
    first[1] = 0.1
    first[2] = second[2] = 0
    found = moment_similarity(task, moments)
    assert found[0, 1] == pytest.approx(linear_cka(second[0].numpy(), second[1].numpy()))
    assert np.isnan(found[2]).all()
    assert np.isnan(found[:, 2]).all()
    assert np.isfinite(found[:2, :2]).all()


# ---- what the loop hands out and a run writes


def watch(algo, data, rounds=3, **options):
    """Run a method with the diagnostic; return the snapshots and the moments document."""
    task = task_for(data)
    watched = Watched([Stage(algo, rounds)], task, Engine(make_oracle(task, "loop"), "loop", 1))
    diagnostic = MomentSimilarity(watched)
    observer = diagnostic.observer
    seen = snapshots(
        algo, data, rounds=rounds, observers=[] if observer is None else [observer], **options
    )
    return seen, diagnostic.document()


@pytest.mark.parametrize("name", ["local_adam", "fedcada", "fafed", "stem"])
def test_the_moments_are_the_cohorts_own_and_of_the_last_round(name, monkeypatch):
    """After a round of one full batch m is (1 - beta1) times the gradient at the first model, client by client.

    With alpha = 1, m of FAFED and STEM is the gradient itself.
    """
    monkeypatch.setattr(diagnostics, "moment_similarity", lambda task, moments: moments)
    data = federation([9] * 12)
    own = name in ("local_adam", "fedcada")
    options = {"work": LocalWork(lr=0.1, batch_size=None), "participation": 11 if own else 1.0}
    algo = make(name) if own else make(name, init_step="none", alpha=1.0)
    (first, last), document = watch(algo, data, rounds=1, **options)
    assert document["round"] == 1
    assert document["clients"] == last.cohort[:10].tolist()
    assert np.shape(document["cka"]) == (10, len(first.server["w"]))
    task = task_for(data)
    for k, m in zip(
        document["clients"], torch.tensor(document["cka"], dtype=torch.float64), strict=True
    ):
        rows = data.train.of_clients(np.array([k]))
        w = first.server["w"].clone().requires_grad_()
        named = task.layout.named(w)
        loss = F.cross_entropy(F.linear(data.x[rows], named["weight"], named["bias"]), data.y[rows])
        (gradient,) = torch.autograd.grad(loss, w)
        torch.testing.assert_close(m, (0.1 if own else 1.0) * gradient)
    seen, document = watch(algo, data, rounds=3, **options)
    assert document["round"] == 3
    assert document["clients"] == seen[-1].cohort[:10].tolist()


@pytest.mark.parametrize(
    ("name", "options"),
    [("fedavg", {}), ("fedadam", {}), ("adafedadam", {}), ("local_adam", {"state": "reset"})],
)
def test_methods_without_moments_of_clients_expose_none(name, options):
    """Moments of the server do not count; the diagnostic is for runs whose methods expose them."""
    assert MomentSimilarity.exposed not in make(name, **options).exposes


@pytest.mark.parametrize("algo", ["local_adam", "fedcada"])
def test_a_run_records_the_similarity_of_ten_clients(fed, tmp_path, algo):
    _, out, _ = fed(
        "data.clients=14", "participation=12", "rounds=3", f"algo={algo}", "eval_every=2"
    )
    path = run_dir(tmp_path, out)
    assert {p.name for p in path.iterdir()} == {*FILES, "moments.json"}
    found = read_run(path).document("moments")
    assert set(found) == {"round", "clients", "cka"}
    assert found["round"] == 3
    assert len(set(found["clients"])) == 10
    assert found["clients"] == sorted(found["clients"])
    assert set(found["clients"]) <= set(range(14))
    matrix = np.array(found["cka"])
    assert matrix.shape == (10, 10)
    assert matrix == pytest.approx(matrix.T)
    assert np.diag(matrix) == pytest.approx(1)
    assert ((matrix >= 0) & (matrix <= 1 + 1e-9)).all()
    _, out, _ = fed("data.clients=14", "participation=3", "rounds=3", f"algo={algo}")
    assert np.shape(read_run(run_dir(tmp_path, out)).document("moments")["cka"]) == (3, 3)


@pytest.mark.parametrize(
    ("algo", "at"),
    [
        ("local_adam", 3),
        ("fedcada", 5),  # the last round
        pytest.param("local_adam", 5, marks=pytest.mark.slow),
        pytest.param("fedcada", 3, marks=pytest.mark.slow),
    ],
)
def test_moments_and_norms_survive_an_interruption(fed, tmp_path, monkeypatch, algo, at):
    """The last round is in no checkpoint of such a method: it is done again, and gives the moments again."""
    args = [*FAST, f"algo={algo}", "participation=5"]
    whole = run_dir(tmp_path, fed(*args, "results_dir=whole")[1])
    interrupted(fed, monkeypatch, at, *args)
    assert not list((tmp_path / "results").rglob("moments.json"))
    path = run_dir(tmp_path, fed(*args)[1])
    for name in ("moments.json", "model.safetensors"):
        assert (path / name).read_bytes() == (whole / name).read_bytes()
    norms = [read_run(p).rounds()["update_norm"] for p in (path, whole)]
    assert norms[0].isna().tolist() == [True, False, False, False, False]
    assert norms[0][1:].tolist() == norms[1][1:].tolist()


def test_a_run_stopped_behind_its_last_round_still_has_moments(fed, tmp_path, monkeypatch):
    whole = run_dir(tmp_path, fed(*FAST, "algo=fedcada", "results_dir=whole")[1])

    def stopped(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(runner, "_CHECKPOINT_EVERY", 0)
        patch.setattr(diagnostics, "moment_similarity", stopped)
        assert fed(*FAST, "algo=fedcada")[0] == 130
    path = run_dir(tmp_path, fed(*FAST, "algo=fedcada")[1])
    for name in ("moments.json", "model.safetensors"):
        assert (path / name).read_bytes() == (whole / name).read_bytes()
    assert read_run(path).rounds()["round"].tolist() == [0, 1, 2, 3, 4]


# ---- the norm of an update


def test_one_full_batch_of_one_client_moves_by_rate_times_gradient(fed, tmp_path):
    """The norms of a run of FedAvg against the gradient at the models that shorter runs of it end with."""
    args = ["data.clients=1", "local.batch_size=full", "local.lr=0.5", "engine.precision=float64"]
    runs = [run_dir(tmp_path, fed(*args, f"rounds={t}")[1]) for t in range(3)]
    data = federated(compose_run([*args, f"data_dir={tmp_path}"]))
    x, y = data.x[data.train.index].double(), data.y[data.train.index]
    measured = read_run(runs[2]).rounds()["update_norm"]
    assert np.isnan(measured[0])
    for t in range(2):
        w = {k: v.requires_grad_() for k, v in load_file(runs[t] / "model.safetensors").items()}
        gradient = torch.autograd.grad(
            F.cross_entropy(F.linear(x, w["weight"], w["bias"]), y), list(w.values())
        )
        norm = torch.cat([g.flatten() for g in gradient]).norm().item()
        assert measured[t + 1] == pytest.approx(0.5 * norm, rel=1e-9)


def test_the_norm_is_of_the_last_round_before_an_evaluation(fed, tmp_path):
    # in this order: a run that is evaluated in every round would answer for the other
    some, every = (
        read_run(run_dir(tmp_path, fed(*FAST, f"eval_every={n}")[1]))
        .rounds()
        .set_index("round")["update_norm"]
        for n in (3, 1)
    )
    assert some.index.tolist() == [0, 3, 4]
    assert some[[3, 4]].tolist() == every[[3, 4]].tolist()
    models = [
        load_file(run_dir(tmp_path, fed(*FAST[:1], f"rounds={t}")[1]) / "model.safetensors")
        for t in (3, 4)
    ]
    moved = torch.cat([(models[1][k] - models[0][k]).flatten() for k in models[0]])
    assert every[4] == pytest.approx(moved.double().norm().item())


# ---- partitions that follow the seed of the run


def drawn(*overrides):
    """The data of a configuration, as (owners' rows, labels)."""
    data = federated(
        compose_run(["data=synthetic_leaf", "data.clients=6", "data.noise.clients=0.5", *overrides])
    )
    return data.train.index.tolist(), data.test.index.tolist(), data.x.tolist(), data.y.tolist()


def test_null_is_the_seed_of_the_run():
    """In the generator, the split and the noise alike; seeds share a setting and not a partition."""
    follows = [drawn("data.seed=null", f"seed={s}") for s in (0, 3)]
    assert follows[0] != follows[1]
    for s, data in zip((0, 3), follows, strict=True):
        assert data == drawn(f"data.seed={s}", "seed=7")
    assert drawn("seed=3") == follows[0]  # a number of its own does not follow
