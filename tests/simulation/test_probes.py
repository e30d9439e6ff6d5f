"""What is measured at the broadcast model, and evaluation."""

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from tools import UNEQUAL, federation, task_for

from fedbench.data.dataset import Rows
from fedbench.simulation import probes, shared_probes
from fedbench.simulation.engine import Engine
from fedbench.simulation.evaluation import evaluate
from fedbench.simulation.oracles import make_oracle
from fedbench.simulation.probes import ExamplePlan, client_sums
from fedbench.simulation.shared_probes import SharedProbes


@pytest.fixture(params=["stacked", "loop"])
def setting(request):
    data = federation(tests=(0, 3, 1, 2, 0, 5, 4))
    task = task_for(data)
    engine = Engine(make_oracle(task, request.param), request.param, 3 if request.param == "stacked" else 1)
    return data, task, task.init(torch.Generator().manual_seed(3)), engine


def rows_of(rows: Rows, k):
    return torch.from_numpy(rows.split()[k])


@pytest.mark.parametrize("most", [2048, 7, 1])
def test_losses_and_gradients_are_each_clients_own(setting, monkeypatch, most):
    """Over all its examples, whether they go through in one block or in many."""
    monkeypatch.setattr(probes, "_MOST_ROWS", most)
    data, task, w, engine = setting
    ids = np.array([4, 1, 0, 6])
    losses, (with_them, grads) = (
        SharedProbes(task, engine).mean_losses(data, ids, w),
        ExamplePlan(data, data.train, ids, engine).gradients(w),
    )
    assert losses.dtype == with_them.dtype == torch.float64
    for k, f, same, g in zip(ids, losses, with_them, grads, strict=True):
        v = w.clone().requires_grad_()
        rows = rows_of(data.train, k)
        loss = F.cross_entropy(task.predict(v, data.x[rows]), data.y[rows])
        assert f.item() == pytest.approx(loss.item(), rel=1e-12)
        assert same.item() == pytest.approx(loss.item(), rel=1e-12)
        assert torch.allclose(g, torch.autograd.grad(loss, v)[0], rtol=0, atol=1e-14)


def test_evaluation_by_hand(setting):
    data, task, w, engine = setting
    record = evaluate(SharedProbes(task, engine), data, w)
    assert record.n_train.tolist() == list(UNEQUAL)
    assert record.n_test.tolist() == [0, 3, 1, 2, 0, 5, 4]
    for k in range(len(UNEQUAL)):
        rows = rows_of(data.test, k)
        guess = task.predict(w, data.x[rows]).argmax(1) if len(rows) else rows
        assert record.correct[k] == (guess == data.y[rows]).sum().item()
    tested = [1, 2, 3, 5, 6]  # clients without test examples are left out
    accuracy = record.correct[tested] / record.n_test[tested]
    summary = record.summary()
    assert summary["accuracy_mean"] == pytest.approx(accuracy.mean())
    assert summary["accuracy_mean_weighted"] == pytest.approx(record.correct.sum() / 15)
    everything = data.train.index
    mean = F.cross_entropy(task.predict(w, data.x[everything]), data.y[everything])
    assert summary["train_loss"] == pytest.approx(mean.item(), rel=1e-12)
    table = record.per_client(data.names)
    assert np.isnan(table["accuracy"][[0, 4]]).all()
    assert table["train_loss"][0] == pytest.approx(record.train_loss[0] / 1)


def test_a_central_test_set_is_measured_once_for_all(setting, monkeypatch):
    data, task, w, engine = setting
    shared = replace(data, test=Rows.shared(data.test.index.numpy(), 7), central=True)
    seen = []
    inner = probes.client_sums
    monkeypatch.setattr(shared_probes, "client_sums", lambda *a, **k: (seen.append(len(a[3])), inner(*a, **k))[1])
    record = evaluate(SharedProbes(task, engine), shared, w)
    assert seen == [1, 7]  # test, training
    plain = evaluate(SharedProbes(task, engine), replace(shared, central=False), w)
    assert record.summary() == plain.summary()
    assert record.n_test.tolist() == [15] * 7
    own = evaluate(SharedProbes(task, engine), shared, w.expand(7, -1).clone())
    assert own.correct.tolist() == record.correct.tolist() == plain.correct.tolist()


def test_ties_go_to_the_first_class(setting):
    """A model of zeros has no opinion: it is right where the label is 0, not everywhere."""
    data, task, w, engine = setting
    _, hits = client_sums(task, data, data.test, np.arange(7), torch.zeros_like(w), engine, hits=True)
    assert hits.sum().item() == (data.y[data.test.index] == 0).sum().item()


def test_nobody_with_test_examples():
    data = federation(sizes=(4, 5), tests=(0, 0))
    task = task_for(data)
    record = evaluate(
        SharedProbes(task, Engine(make_oracle(task, "loop"), "loop", 1)), data, task.init(torch.Generator())
    )
    assert np.isnan(record.summary()["accuracy_mean"])
    assert np.isnan(record.summary()["test_loss"])
    assert record.summary()["train_loss"] > 0


def test_small_blocks_change_nothing(setting, monkeypatch):
    data, task, w, engine = setting
    ids = np.arange(7)
    whole = client_sums(task, data, data.train, ids, w, engine, hits=True)
    monkeypatch.setattr(probes, "_BLOCK_VALUES", 1)
    many = client_sums(task, data, data.train, ids, w, engine, hits=True)
    assert all(torch.allclose(a, b, rtol=1e-13) for a, b in zip(whole, many, strict=True))
