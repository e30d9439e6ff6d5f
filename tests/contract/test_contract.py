"""What every method must meet, each at its defaults and with each of its switches."""

import numpy as np
import pytest
import reference
import torch
from tools import (
    ALGORITHMS,
    CASES,
    ROOT,
    SOLVERS,
    UNEQUAL,
    any_solver,
    case_id,
    close,
    deployed,
    everyone,
    factory,
    federation,
    final,
    make,
    refuses,
    snapshots,
    task_for,
    variants,
)

from fedbench.core.errors import RequestError
from fedbench.core.optim import sgd
from fedbench.core.types import Batch
from fedbench.models.cnn import ConvNet
from fedbench.models.dense import MLP
from fedbench.simulation.batches import LocalWork
from fedbench.simulation.oracles import DenseOracle

cases = pytest.mark.parametrize("case", CASES, ids=case_id)


@cases
@pytest.mark.parametrize("solver", SOLVERS)
def test_equals_the_definition(case, solver):
    """The parameters after six rounds are those of plain loops in NumPy, written from the definitions."""
    name, options = case
    if options.get("mixup", name == "fedcorr"):
        pytest.skip("its batches are mixed; tests/test_fedcorr.py has its definition")
    if refuses(case, solver):
        with pytest.raises(RequestError, match=rf"{name} cannot be combined with local .*; use local\."):
            make(name, sgd(**SOLVERS[solver]), **options)
        return
    data = federation()
    epochs = 3
    algo = make(name, sgd(**SOLVERS[solver]), **options)
    last = snapshots(algo, data, rounds=6, work=LocalWork(lr=0.1, batch_size=None, epochs=(epochs, epochs)))[-1]
    ours = deployed(algo, last)
    owned = data.train.split()
    clients = [(data.x[rows].numpy(), data.y[rows].numpy()) for rows in owned]
    words = {"weight_decay": "decay", "clip_norm": "clip"}
    plain = {words.get(k, k): v for k, v in SOLVERS[solver].items()}
    start = task_for(data).init(torch.Generator().manual_seed(0)).numpy()
    theirs = reference.run(name, clients, start, 6, 0.1, [epochs] * len(clients), plain, **options)
    if isinstance(theirs, tuple):  # clients with models of their own
        theirs, own = theirs
        assert close(ours.flatten(), torch.from_numpy(own).flatten(), 1e-9)
        ours = last.server["w"]
    assert close(ours, torch.from_numpy(theirs), 1e-9)


@cases
@pytest.mark.parametrize("solver", ["sgd", "momentum"])
def test_stacked_is_loop(case, solver):
    """Unequal clients, short batches, drawn epochs, partial participation: the engine mode changes rounding only."""
    name, options = case
    if refuses(case, solver):
        pytest.skip("refused")
    data = federation()
    work = LocalWork(lr=0.1, batch_size=10, epochs=(1, 3))
    algo = make(name, sgd(**SOLVERS[solver]), **options)
    share = 1.0 if everyone(case) else 0.6
    a, b = (snapshots(algo, data, mode=m, work=work, rounds=6, participation=share)[-1] for m in ("stacked", "loop"))
    assert close(a.server["w"], b.server["w"], 1e-10)
    for key in a.clients:
        assert close(a.clients[key].flatten(), b.clients[key].flatten(), 1e-10)


@cases
def test_chunks_and_workers_change_nothing(case):
    name, options = case
    data = federation()
    algo = make(name, any_solver(case), **options)
    whole = final(algo, data, rounds=4)
    for size, workers in ((1, 1), (3, 1), (3, 2), (1, 2)):
        assert close(final(algo, data, rounds=4, cohort_size=size, workers=workers), whole, 1e-10)


@cases
def test_order_of_clients_changes_nothing(case):
    """Identity 18: the cohort permuted."""
    name, options = case
    data = federation()
    algo = make(name, any_solver(case), **options)
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
@pytest.mark.parametrize("at", [0, 1, 3, 5])
def test_going_on_from_any_round_is_bit_identical(case, at):
    """Drawn epochs and partial participation included; the snapshot is all there is to know."""
    name, options = case
    data = federation()
    algo = make(name, any_solver(case), **options)
    share = 1.0 if everyone(case) else 0.6
    how = {"rounds": 6, "participation": share, "work": LocalWork(0.1, 10, epochs=(1, 3))}
    whole = snapshots(algo, data, **how)
    left = whole[at]._replace(clients={k: v.clone() for k, v in whole[at].clients.items()})
    rest = snapshots(algo, data, resume=left, **how)
    assert [s.round for s in rest] == list(range(at + 1, 7))
    for a, b in zip(rest, whole[at + 1 :], strict=True):
        assert all(torch.equal(a.server[k], b.server[k]) for k in b.server)
        assert all(torch.equal(a.clients[k], b.clients[k]) for k in b.clients)
        assert (a.bytes_up, a.bytes_down, a.client_steps) == (b.bytes_up, b.bytes_down, b.client_steps)


@cases
def test_nothing_that_is_handed_over_is_changed(case):
    """States, messages and uploads are values: a snapshot taken earlier still holds what it held."""
    name, options = case
    data = federation()
    algo = make(name, any_solver(case), **options)
    seen = snapshots(algo, data, rounds=4)
    again = snapshots(algo, data, rounds=4)
    fresh = [snapshots(algo, data, rounds=t)[-1].server for t in range(5)]
    for a, b, c in zip(seen, again, fresh, strict=True):
        assert all(torch.equal(a.server[k], b.server[k]) for k in a.server)
        # a method of several stages divides other numbers of rounds differently
        assert all(torch.equal(a.server[k], c[k]) for k in ("w", *a.server.keys() & c.keys()))


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
        seen = snapshots(make(name, any_solver(case), **options), data, task=task, rounds=20, w=w, mode=mode)
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
            final(make(name, **variants(name)[0]), data, task=task, mode=m, rounds=2, work=LocalWork(0.1, 4))
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
    given = ("local", "rounds", "clients")  # by the run
    defaults = {k: p.default for k, p in inspect.signature(factory(name)).parameters.items() if k not in given}
    assert config == defaults
    text = inspect.getdoc(factory(name))
    assert "Identity:" in text
    assert f"## {name}" in (ROOT / "docs" / "algorithms.md").read_text().lower()


@pytest.mark.parametrize("name", ALGORITHMS)
def test_file_is_short(name):
    assert 15 <= len((ROOT / "fedbench" / "algorithms" / f"{name}.py").read_text().splitlines()) <= 100
