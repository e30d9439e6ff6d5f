"""What the method, the evaluation and the diagnostics ask of the same model is measured once."""

import numpy as np
import pytest
import torch
from tools import federation, task_for

from fedbench.simulation import shared_probes
from fedbench.simulation.engine import Engine
from fedbench.simulation.evaluation import evaluate
from fedbench.simulation.oracles import make_oracle
from fedbench.simulation.probes import ExamplePlan, _number_of_blocks
from fedbench.simulation.shared_probes import SharedProbes


@pytest.fixture
def setting(monkeypatch):
    """Data, a model, and probes that note every pass over the examples of clients: (kind, number of clients)."""
    data = federation(tests=(0, 3, 1, 2, 0, 5, 4))
    task = task_for(data)
    passes = []
    flat, gradients = shared_probes.client_sums, ExamplePlan.gradients

    def noted(task, data, rows, ids, *rest):
        passes.append(("train" if rows is data.train else "test", len(ids)))
        return flat(task, data, rows, ids, *rest)

    def noted_gradients(plan, w):
        passes.append(("gradients", plan.count))
        return gradients(plan, w)

    monkeypatch.setattr(shared_probes, "client_sums", noted)
    monkeypatch.setattr(ExamplePlan, "gradients", noted_gradients)
    return data, task.init(torch.Generator().manual_seed(3)), task, passes


def probes_of(task):
    return SharedProbes(task, Engine(make_oracle(task, "loop"), "loop", 1))


def test_a_loss_is_measured_once_whoever_asks(setting):
    data, w, task, passes = setting
    probes, everyone = probes_of(task), np.arange(7)
    record = evaluate(probes, data, w)
    probed = probes.at_broadcast(data, everyone, w, {"loss"})
    diagnosed = probes.mean_losses(data, everyone, w)
    assert passes == [("test", 7), ("train", 7)]
    assert probed["loss"].tolist() == diagnosed.tolist() == (record.train_loss / record.n_train).tolist()


def test_only_the_same_pass_is_shared(setting):
    """Not that of other clients, of another model with the same values, of other labels, or without the accuracies."""
    data, w, task, passes = setting
    probes, everyone = probes_of(task), np.arange(7)
    probes.mean_losses(data, everyone, w)
    probes.mean_losses(data, np.array([1, 4]), w)
    probes.mean_losses(data, everyone, w.clone())
    probes.mean_losses(data.relabelled(data.y.flip(0)), everyone, w)
    probes.at_broadcast(data, everyone, w, {"accuracy"})
    assert passes == [("train", 7), ("train", 2), ("train", 7), ("train", 7), ("train", 7)]
    probes.at_broadcast(data, everyone, w, {"accuracy", "loss"})
    probes.mean_losses(data, everyone, w)
    assert len(passes) == 5


def test_shared_numbers_are_those_of_a_measurement_of_its_own(setting):
    data, w, task, _ = setting
    shared, everyone, needs = probes_of(task), np.arange(7), {"loss", "accuracy", "grad"}
    evaluate(shared, data, w, known=shared.measure_ahead(data, everyone, w, needs))
    found, alone = shared.at_broadcast(data, everyone, w, needs), probes_of(task).at_broadcast(data, everyone, w, needs)
    assert found.keys() == alone.keys() == needs
    assert all(torch.equal(found[k], alone[k]) for k in needs)


def test_gradients_measured_ahead_give_the_losses_and_are_handed_out_once(setting):
    data, w, task, passes = setting
    probes, everyone = probes_of(task), np.arange(7)
    known = probes.measure_ahead(data, everyone, w, {"grad"})
    record = evaluate(probes, data, w, known=known)
    assert passes == [("gradients", 7), ("test", 7)]
    assert record.train_loss == pytest.approx(evaluate(probes_of(task), data, w).train_loss, rel=1e-12)
    passes.clear()
    for count in (0, 1):
        probes.at_broadcast(data, everyone, w, {"grad"})
        assert passes == [("gradients", 7)] * count


def test_gradients_of_other_clients_or_models_are_not_those_measured_ahead(setting):
    data, w, task, passes = setting
    for ids, model in ((np.array([1, 4]), w), (np.arange(7), w.clone())):
        probes = probes_of(task)
        probes.measure_ahead(data, np.arange(7), w, {"loss", "grad"})
        passes.clear()
        found = probes.at_broadcast(data, ids, model, {"loss", "grad"})
        assert passes == [("gradients", len(ids))]
        assert len(found["grad"]) == len(ids)


def test_gradients_that_the_next_round_does_not_need_are_let_go(setting):
    data, w, task, _ = setting
    probes, everyone = probes_of(task), np.arange(7)
    probes.measure_ahead(data, everyone, w, {"grad"})
    probes.at_broadcast(data, everyone, w, frozenset())
    assert probes._ahead is None


def test_no_pass_is_made_for_a_method_that_asks_nothing(setting):
    data, w, task, passes = setting
    probes = probes_of(task)
    assert probes.measure_ahead(data, np.arange(7), w, frozenset()) is None
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
