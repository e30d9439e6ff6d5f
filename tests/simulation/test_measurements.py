"""What is measured at the broadcast model, and evaluation; what several ask of the same model is
measured once.
"""

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

DATA = federation(tests=(0, 3, 1, 2, 0, 5, 4))
TASK = task_for(DATA)
W = TASK.init(torch.Generator().manual_seed(3))
EVERYONE = np.arange(7)


@pytest.fixture(params=["stacked", "loop"])
def engine(request):
    clients = 3 if request.param == "stacked" else 1
    return Engine(
        make_oracle(TASK, request.param),
        request.param,
        clients,
    )


def rows_of(rows: Rows, k):
    return torch.from_numpy(rows.split()[k])


BLOCKS = [("_MOST_ROWS", 2048), ("_MOST_ROWS", 7), ("_MOST_ROWS", 1), ("_BLOCK_VALUES", 1)]


@pytest.mark.parametrize(("limit", "value"), BLOCKS)
def test_losses_and_gradients_are_each_clients_own(engine, monkeypatch, limit, value):
    """Over all its examples, whether they go through in one block or in many."""
    monkeypatch.setattr(measurements, limit, value)
    ids = np.array([4, 1, 0, 6])
    alone = Measurements(TASK, engine).mean_losses(DATA, ids, W)
    losses, grads = ExamplePlan(
        TASK,
        DATA,
        DATA.train,
        ids,
        engine,
    ).gradients(W)
    assert losses.dtype == alone.dtype == torch.float64
    for i, k in enumerate(ids):
        v = W.clone().requires_grad_()
        rows = rows_of(DATA.train, k)
        loss = F.cross_entropy(TASK.predict(v, DATA.x[rows]), DATA.y[rows])
        assert losses[i].item() == pytest.approx(loss.item(), rel=1e-12)
        assert alone[i].item() == pytest.approx(loss.item(), rel=1e-12)
        assert torch.allclose(
            grads[i],
            torch.autograd.grad(loss, v)[0],
            rtol=0,
            atol=1e-14,
        )


def test_evaluation_by_hand(engine):
    record = evaluate(Measurements(TASK, engine), DATA, W)
    assert record.n["train"].tolist() == list(UNEQUAL)
    assert record.test.n.tolist() == [0, 3, 1, 2, 0, 5, 4]
    for k in EVERYONE:
        rows = rows_of(DATA.test, k)
        guess = TASK.predict(W, DATA.x[rows]).argmax(1)
        assert record.test.correct[k] == (guess == DATA.y[rows]).sum().item()
    tested = [1, 2, 3, 5, 6]  # clients without test examples are left out
    accuracy = record.test.correct[tested] / record.test.n[tested]
    summary = record.summary()
    assert summary["accuracy_mean"] == pytest.approx(accuracy.mean())
    assert summary["accuracy_mean_weighted"] == pytest.approx(record.test.correct.sum() / 15)
    rows = DATA.train.index
    mean = F.cross_entropy(TASK.predict(W, DATA.x[rows]), DATA.y[rows])
    assert summary["train_loss"] == pytest.approx(mean.item(), rel=1e-12)
    assert np.isnan(record.per_client(DATA.names)["accuracy"][[0, 4]]).all()


def test_a_central_test_set_is_measured_once_for_all(engine, monkeypatch):
    shared = replace(
        DATA,
        test=Rows.shared(DATA.test.index.numpy(), 7),
        central=True,
    )
    seen = []
    flat_sums = ExamplePlan._flat_sums

    def noted(plan, *rest):
        seen.append(len(plan.ids))
        return flat_sums(plan, *rest)

    monkeypatch.setattr(ExamplePlan, "_flat_sums", noted)
    record = evaluate(Measurements(TASK, engine), shared, W)
    assert seen == [1, 7]  # test, training
    assert record.test.n.tolist() == [15] * 7
    plain = evaluate(
        Measurements(TASK, engine),
        replace(shared, central=False),
        W,
    )
    assert record.summary() == plain.summary()


def test_ties_go_to_the_first_class(engine):
    """A model of zeros has no opinion: it is right where the label is 0, not everywhere."""
    plan = ExamplePlan(TASK, DATA, DATA.test, EVERYONE, engine)
    _, hits = plan.sums(
        torch.zeros_like(W),
        hits=True,
    )
    assert hits.sum().item() == (DATA.y[DATA.test.index] == 0).sum().item()


def measurements_in_a_loop():
    return Measurements(
        TASK,
        Engine(
            make_oracle(TASK, "loop"),
            "loop",
            1,
        ),
    )


def test_nobody_with_test_examples():
    data = federation(
        sizes=(4, 5),
        tests=(0, 0),
    )
    summary = evaluate(measurements_in_a_loop(), data, W).summary()
    assert np.isnan(summary["accuracy_mean"])
    assert np.isnan(summary["test_loss"])
    assert summary["train_loss"] > 0


@pytest.fixture
def passes(monkeypatch):
    """The passes over the examples of clients: (train or test, number of clients)."""
    passes = []
    flat_sums = ExamplePlan._flat_sums

    def noted(plan, *rest):
        passes.append(("train" if plan.rows is DATA.train else "test", len(plan.ids)))
        return flat_sums(plan, *rest)

    monkeypatch.setattr(ExamplePlan, "_flat_sums", noted)
    return passes


def test_a_loss_is_measured_once_whoever_asks(passes):
    asked = measurements_in_a_loop()
    record = evaluate(asked, DATA, W)
    losses = (record.train_loss / record.n["train"]).tolist()
    probe = asked.at_broadcast(DATA, EVERYONE, W, {"loss"})
    assert probe["loss"].tolist() == losses
    assert asked.mean_losses(DATA, EVERYONE, W).tolist() == losses
    assert passes == [("test", 7), ("train", 7)]


def test_only_the_same_pass_is_shared(passes):
    """Not that of other clients, models or labels, nor one without the accuracies."""
    asked = measurements_in_a_loop()
    relabelled = DATA.relabelled(DATA.y.flip(0))
    asked.mean_losses(DATA, EVERYONE, W)
    asked.mean_losses(
        DATA,
        np.array([1, 4]),
        W,
    )
    asked.mean_losses(DATA, EVERYONE, W.clone())
    asked.mean_losses(relabelled, EVERYONE, W)
    asked.at_broadcast(DATA, EVERYONE, W, {"accuracy"})
    assert [clients for _, clients in passes] == [7, 2, 7, 7, 7]
    asked.at_broadcast(DATA, EVERYONE, W, {"accuracy", "loss"})
    asked.mean_losses(DATA, EVERYONE, W)
    assert len(passes) == 5


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


def test_models_of_their_own_are_measured_again(engine):
    """The loop changes them in place."""
    plan = ExamplePlan(TASK, DATA, DATA.test, EVERYONE, engine)
    own = W.expand(7, -1).clone()
    first = plan.sums(own)[0].clone()
    own.mul_(-1)
    assert not torch.equal(plan.sums(own)[0], first)


@pytest.mark.parametrize("personal", [False, True])
def test_an_evaluation_reports_the_share_of_the_examples_that_are_done(monkeypatch, personal):
    """Blocks of one example: validation, test and training examples one after another."""
    monkeypatch.setattr(ExamplePlan, "_examples_at_once", lambda plan, blocks: 1)
    monkeypatch.setattr("fedbench.simulation.measurements._FEW_ROWS", 2**20)
    data = replace(DATA, validation=replace(DATA.test))  # not the same pass
    total = 2 * DATA.test.counts.sum() + DATA.train.counts.sum()
    w = W.expand(len(EVERYONE), -1).clone() if personal else W
    shares = []
    evaluate(measurements_in_a_loop(), data, w, True, None, shares.append)
    assert shares == [n / total for n in range(1, total + 1)]
    shares.clear()
    evaluate(measurements_in_a_loop(), DATA, w, False, None, shares.append)
    assert len(shares) == DATA.test.counts.sum()
    assert shares[-1] == 1.0


def test_an_evaluation_without_examples_reports_no_progress():
    none = Rows.of([np.arange(0)] * len(EVERYONE))
    shares = []
    evaluate(measurements_in_a_loop(), replace(DATA, test=none), W, False, None, shares.append)
    assert shares == [0.0]
