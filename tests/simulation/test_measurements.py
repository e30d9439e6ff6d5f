"""What is measured at the broadcast model, and evaluation; what several ask of the same model is measured once."""

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from tools import UNEQUAL, federation, task_for

from fedbench.data.dataset import Rows
from fedbench.simulation import measurements
from fedbench.simulation.engine import Engine
from fedbench.simulation.evaluation import evaluate
from fedbench.simulation.measurements import ExamplePlan, Measurements, _number_of_blocks
from fedbench.simulation.oracles import make_oracle


@pytest.fixture(params=["stacked", "loop"])
def setting(request):
    data = federation(tests=(0, 3, 1, 2, 0, 5, 4))
    task = task_for(data)
    engine = Engine(
        make_oracle(task, request.param), request.param, 3 if request.param == "stacked" else 1
    )
    return data, task, task.init(torch.Generator().manual_seed(3)), engine


def rows_of(rows: Rows, k):
    return torch.from_numpy(rows.split()[k])


@pytest.mark.parametrize("most", [2048, 7, 1])
def test_losses_and_gradients_are_each_clients_own(setting, monkeypatch, most):
    """Over all its examples, whether they go through in one block or in many."""
    monkeypatch.setattr(measurements, "_MOST_ROWS", most)
    data, task, w, engine = setting
    ids = np.array([4, 1, 0, 6])
    losses, (with_them, grads) = (
        Measurements(task, engine).mean_losses(data, ids, w),
        ExamplePlan(task, data, data.train, ids, engine).gradients(w),
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
    record = evaluate(Measurements(task, engine), data, w)
    assert record.n_train.tolist() == list(UNEQUAL)
    assert record.test.n.tolist() == [0, 3, 1, 2, 0, 5, 4]
    for k in range(len(UNEQUAL)):
        rows = rows_of(data.test, k)
        guess = task.predict(w, data.x[rows]).argmax(1) if len(rows) else rows
        assert record.test.correct[k] == (guess == data.y[rows]).sum().item()
    tested = [1, 2, 3, 5, 6]  # clients without test examples are left out
    accuracy = record.test.correct[tested] / record.test.n[tested]
    summary = record.summary()
    assert summary["accuracy_mean"] == pytest.approx(accuracy.mean())
    assert summary["accuracy_mean_weighted"] == pytest.approx(record.test.correct.sum() / 15)
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
    inner = ExamplePlan._flat_sums
    monkeypatch.setattr(
        ExamplePlan, "_flat_sums", lambda plan, *a: (seen.append(len(plan.ids)), inner(plan, *a))[1]
    )
    record = evaluate(Measurements(task, engine), shared, w)
    assert seen == [1, 7]  # test, training
    plain = evaluate(Measurements(task, engine), replace(shared, central=False), w)
    assert record.summary() == plain.summary()
    assert record.test.n.tolist() == [15] * 7
    own = evaluate(Measurements(task, engine), shared, w.expand(7, -1).clone())
    assert own.test.correct.tolist() == record.test.correct.tolist() == plain.test.correct.tolist()


def test_ties_go_to_the_first_class(setting):
    """A model of zeros has no opinion: it is right where the label is 0, not everywhere."""
    data, task, w, engine = setting
    _, hits = ExamplePlan(task, data, data.test, np.arange(7), engine).sums(
        torch.zeros_like(w), hits=True
    )
    assert hits.sum().item() == (data.y[data.test.index] == 0).sum().item()


def test_nobody_with_test_examples():
    data = federation(sizes=(4, 5), tests=(0, 0))
    task = task_for(data)
    record = evaluate(
        Measurements(task, Engine(make_oracle(task, "loop"), "loop", 1)),
        data,
        task.init(torch.Generator()),
    )
    assert np.isnan(record.summary()["accuracy_mean"])
    assert np.isnan(record.summary()["test_loss"])
    assert record.summary()["train_loss"] > 0


def test_small_blocks_change_nothing(setting, monkeypatch):
    data, task, w, engine = setting
    ids = np.arange(7)
    whole = ExamplePlan(task, data, data.train, ids, engine).sums(w, hits=True)
    monkeypatch.setattr(measurements, "_BLOCK_VALUES", 1)
    many = ExamplePlan(task, data, data.train, ids, engine).sums(w, hits=True)
    assert all(torch.allclose(a, b, rtol=1e-13) for a, b in zip(whole, many, strict=True))


@pytest.fixture
def passing(monkeypatch):
    """Data, a model, and probes that note every pass over the examples of clients: (kind, number of clients)."""
    data = federation(tests=(0, 3, 1, 2, 0, 5, 4))
    task = task_for(data)
    passes = []
    flat, gradients = ExamplePlan._flat_sums, ExamplePlan.gradients

    def noted(plan, *rest):
        passes.append(("train" if plan.rows is data.train else "test", len(plan.ids)))
        return flat(plan, *rest)

    def noted_gradients(plan, w):
        passes.append(("gradients", len(plan.ids)))
        return gradients(plan, w)

    monkeypatch.setattr(ExamplePlan, "_flat_sums", noted)
    monkeypatch.setattr(ExamplePlan, "gradients", noted_gradients)
    return data, task.init(torch.Generator().manual_seed(3)), task, passes


def measured_by(task):
    return Measurements(task, Engine(make_oracle(task, "loop"), "loop", 1))


def test_a_loss_is_measured_once_whoever_asks(passing):
    data, w, task, passes = passing
    asked, everyone = measured_by(task), np.arange(7)
    record = evaluate(asked, data, w)
    probed = asked.at_broadcast(data, everyone, w, {"loss"})
    diagnosed = asked.mean_losses(data, everyone, w)
    assert passes == [("test", 7), ("train", 7)]
    assert (
        probed["loss"].tolist()
        == diagnosed.tolist()
        == (record.train_loss / record.n_train).tolist()
    )


def test_only_the_same_pass_is_shared(passing):
    """Not that of other clients, of another model with the same values, of other labels, or without the accuracies."""
    data, w, task, passes = passing
    asked, everyone = measured_by(task), np.arange(7)
    asked.mean_losses(data, everyone, w)
    asked.mean_losses(data, np.array([1, 4]), w)
    asked.mean_losses(data, everyone, w.clone())
    asked.mean_losses(data.relabelled(data.y.flip(0)), everyone, w)
    asked.at_broadcast(data, everyone, w, {"accuracy"})
    assert passes == [("train", 7), ("train", 2), ("train", 7), ("train", 7), ("train", 7)]
    asked.at_broadcast(data, everyone, w, {"accuracy", "loss"})
    asked.mean_losses(data, everyone, w)
    assert len(passes) == 5


def test_no_pass_is_made_for_a_method_that_asks_nothing(passing):
    data, w, task, passes = passing
    assert measured_by(task).at_broadcast(data, np.arange(7), w, frozenset()) == {}
    assert passes == []


@pytest.mark.parametrize(
    ("examples", "most", "number"),
    [
        (2500, 668, 8),  # 4 are enough; 8 equal ones can be shared among 2, 4 or 8 threads
        (1024, 170, 8),  # 7 are enough
        (10_000, 668, 16),  # 15 are enough
        (160, 6553, 4),  # 8 would have 20 examples each, fewer than 32
        (63, 100, 1),  # two would have fewer than 32
        (5, 1, 5),
        (0, 10, 1),
    ],
)
def test_blocks_are_equal_and_can_be_shared_evenly(examples, most, number):
    assert _number_of_blocks(examples, most) == number


def test_models_of_their_own_are_measured_again(setting):
    """The loop changes them in place."""
    data, task, w, engine = setting
    plan, own = ExamplePlan(task, data, data.test, np.arange(7), engine), w.expand(7, -1).clone()
    first = plan.sums(own)[0].clone()
    own.mul_(-1)
    assert not torch.equal(plan.sums(own)[0], first)
