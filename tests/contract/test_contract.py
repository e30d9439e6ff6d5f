"""What every method must meet, each at its defaults and with each of its switches."""

import numpy as np
import pytest
import reference
import torch
from tools import (
    ALGORITHMS,
    CASES,
    ROOT,
    UNEQUAL,
    case_id,
    close,
    factory,
    federation,
    final,
    make,
    snapshots,
    task_for,
)

from fedbench.batches import LocalWork
from fedbench.models.cnn import ConvNet
from fedbench.models.dense import MLP
from fedbench.optim import sgd
from fedbench.oracles import DenseOracle
from fedbench.types import Batch

SOLVERS = {
    "sgd": {},
    "momentum": {"momentum": 0.9},
    "nesterov": {"momentum": 0.5, "nesterov": True},
    "decay and clipping": {"weight_decay": 0.01, "clip_norm": 0.3},
}
cases = pytest.mark.parametrize("case", CASES, ids=case_id)


@cases
@pytest.mark.parametrize("solver", SOLVERS)
def test_equals_the_definition(case, solver):
    """The parameters after six rounds are those of plain loops in NumPy, written from the definitions."""
    name, options = case
    data = federation()
    epochs = 3
    ours = final(
        make(name, sgd(**SOLVERS[solver]), **options),
        data,
        rounds=6,
        work=LocalWork(lr=0.1, batch_size=None, epochs=(epochs, epochs)),
    )
    owned = np.split(data.train.index.numpy(), data.train.offsets[1:-1])
    clients = [(data.x[rows].numpy(), data.y[rows].numpy()) for rows in owned]
    words = {"weight_decay": "decay", "clip_norm": "clip"}
    plain = {words.get(k, k): v for k, v in SOLVERS[solver].items()}
    start = task_for(data).init(torch.Generator().manual_seed(0)).numpy()
    theirs = reference.run(name, clients, start, 6, 0.1, [epochs] * len(clients), plain, **options)
    assert close(ours, torch.from_numpy(theirs), 1e-9)


@cases
@pytest.mark.parametrize("solver", ["sgd", "momentum"])
def test_stacked_is_loop(case, solver):
    """Unequal clients, short batches, drawn epochs, partial participation: the engine mode changes rounding only."""
    name, options = case
    data = federation()
    work = LocalWork(lr=0.1, batch_size=10, epochs=(1, 3))
    algo = make(name, sgd(**SOLVERS[solver]), **options)
    runs = [final(algo, data, mode=m, work=work, rounds=6, participation=0.6) for m in ("stacked", "loop")]
    assert close(*runs, 1e-10)


@cases
def test_chunks_and_workers_change_nothing(case):
    name, options = case
    data = federation()
    algo = make(name, sgd(momentum=0.9), **options)
    whole = final(algo, data, rounds=4)
    for size, workers in ((1, 1), (3, 1), (3, 2), (1, 2)):
        assert close(final(algo, data, rounds=4, cohort_size=size, workers=workers), whole, 1e-10)


@cases
def test_order_of_clients_changes_nothing(case):
    """Identity 18: the cohort permuted."""
    name, options = case
    data = federation()
    algo = make(name, sgd(momentum=0.9), **options)
    everybody = np.arange(len(UNEQUAL))
    straight = final(algo, data, rounds=4, sampler=lambda t, n, seed: everybody)
    turned = final(algo, data, rounds=4, sampler=lambda t, n, seed: np.random.default_rng(t).permutation(everybody))
    assert close(turned, straight, 1e-10)


@cases
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_same_seed_is_bit_identical_and_others_differ(case, dtype):
    name, options = case
    data = federation(dtype=dtype)
    algo = make(name, **options)
    once, again, other = (final(algo, data, seed=s) for s in (1, 1, 2))
    assert torch.equal(once, again)
    assert not torch.equal(once, other)
    assert once.dtype == dtype


@cases
def test_nothing_that_is_handed_over_is_changed(case):
    """States, messages and uploads are values: a snapshot taken earlier still holds what it held."""
    name, options = case
    data = federation()
    algo = make(name, sgd(momentum=0.9), **options)
    seen = snapshots(algo, data, rounds=4)
    again = snapshots(algo, data, rounds=4)
    fresh = [snapshots(algo, data, rounds=t)[-1].server for t in range(5)]
    for a, b, c in zip(seen, again, fresh, strict=True):
        assert all(torch.equal(a.server[k], b.server[k]) and torch.equal(a.server[k], c[k]) for k in a.server)


@cases
def test_a_client_at_its_optimum_and_tiny_clients(case):
    """Loss and gradient exactly 0, a single example, no test example: the numbers stay finite."""
    name, options = case
    data = federation(sizes=(12, 1, 7), tests=(2, 0, 1), dtype=torch.float32)
    mine = data.train.index[:12]
    y = data.y.clone()
    y[mine] = 0
    x = data.x.clone()
    x[mine] = 0.0
    data = type(data)(**{**data.__dict__, "x": x, "y": y})
    task = task_for(data)
    w = torch.zeros(task.size)
    w[-data.classes] = 200.0  # label 0 for an input of zeros, with a probability that rounds to 1
    one = Batch(x[mine][None], y[mine][None], torch.full((1, 12), 1 / 12))
    loss, grad = DenseOracle(task).loss_and_grad(w[None], one)
    assert loss.item() == 0
    assert not grad.any()
    for mode in ("stacked", "loop"):
        seen = snapshots(make(name, sgd(momentum=0.9), **options), data, task=task, rounds=20, w=w, mode=mode)
        assert all(torch.isfinite(v).all() for s in seen for v in s.server.values())


@cases
def test_cohort_of_one(case):
    name, options = case
    data = federation(sizes=(9,))
    runs = [final(make(name, **options), data, mode=m, rounds=5) for m in ("stacked", "loop")]
    assert torch.isfinite(runs[0]).all()
    assert close(*runs, 1e-10)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_stacked_is_loop_for_other_models(name):
    data = federation(sizes=(5, 12, 3), features=64, shape=(1, 8, 8))
    for model, options in ((MLP, {"hidden": [7, 5]}), (ConvNet, {"channels": [3, 2], "kernel": 3, "hidden": 5})):
        task = task_for(data, model, **options)
        runs = [
            final(make(name, sgd(momentum=0.5)), data, task=task, mode=m, rounds=2, work=LocalWork(0.1, 4))
            for m in ("stacked", "loop")
        ]
        assert close(*runs, 1e-9)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_has_a_config_a_card_and_a_docstring(name):
    """The config names every argument and no other, with the function's own defaults; the card is in the docs."""
    import inspect

    import yaml

    config = yaml.safe_load((ROOT / "conf" / "algo" / f"{name}.yaml").read_text())
    assert config.pop("_target_") == f"fedbench.algorithms.{name}.{name}"
    defaults = {k: p.default for k, p in inspect.signature(factory(name)).parameters.items() if k != "local"}
    assert config == defaults
    text = inspect.getdoc(factory(name))
    assert "Identity:" in text
    assert f"## {name}" in (ROOT / "docs" / "algorithms.md").read_text().lower()


@pytest.mark.parametrize("name", ALGORITHMS)
def test_file_is_short(name):
    assert 15 <= len((ROOT / "fedbench" / "algorithms" / f"{name}.py").read_text().splitlines()) <= 100
