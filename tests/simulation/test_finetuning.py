"""Fine-tuning before an evaluation: local steps from the judged model, of which nothing is kept."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from command_line import FAST, interrupted, model_of, rows_of, rows_without_clocks
from safetensors.torch import load_file
from tools import engine_of, federation, make, snapshots
from torch import nn

import fedbench
from fedbench.core.errors import RequestError
from fedbench.core.optim import SGD, sgd
from fedbench.core.options import Schedule
from fedbench.core.randomness import fold_in, key
from fedbench.data.dataset import Rows
from fedbench.models.dense import MLP
from fedbench.models.parts import tensors_of
from fedbench.simulation.evaluation import evaluate
from fedbench.simulation.finetuning import FineTuning, moved_values, tuned_task
from fedbench.simulation.local_work import BatchLayout, LocalWork
from fedbench.simulation.measurements import Measurements
from fedbench.simulation.personal import with_personal_part
from fedbench.simulation.task import Task

DATA = federation()
CPU = torch.device("cpu")
KEYS = f"{' '.join(FAST)} model=mlp"


def task_with(frozen=(), personal=()):
    with torch.device("meta"):
        net = MLP(DATA.shape, DATA.classes, [5])
    return Task(
        net,
        CPU,
        torch.float64,
        frozen=tensors_of(net, frozen, "x"),
        personal=tensors_of(net, personal, "x"),
    )


def tuning_of(task, solver=SGD, parts=("*",), mode="loop", size=1000, workers=1, lr=None, **work):
    """Fine-tuning for two epochs, if nothing else is given, after runs at a rate of 0.3."""
    names = tensors_of(task.model, parts, "x")
    tuned = tuned_task(task, names)
    work = LocalWork(**{"lr": 0.3, "batch_size": None, "epochs": (2, 2)} | work)
    engine = engine_of(tuned, mode, size, workers)
    return FineTuning(task, tuned, moved_values(tuned, names), engine, work, lr, solver, seed=0)


def judged(tuning, algo, snapshot, data=DATA, ids=None):
    """The evaluations before and after fine-tuning, and its steps."""
    measurements = Measurements(tuning.run, engine_of(tuning.run, "loop"))
    models = algo.deploy(snapshot.server, snapshot.clients)
    if ids is not None and models.dim() > 1:
        models = models[ids]
    before = evaluate(measurements, data, models, ids=ids)
    return before, *tuning.evaluate(algo, snapshot, data, before)


def sums(task, model, rows):
    """Sum of losses, and number of correct examples, of a model by name."""
    logits = torch.func.functional_call(task.model, model, DATA.x[rows])
    loss = nn.functional.cross_entropy(logits, DATA.y[rows], reduction="sum")
    return loss.item(), (logits.argmax(1) == DATA.y[rows]).sum().item()


def tuned_by_hand(task, model, batches, moved, optimizer, clip=None):
    """torch's own optimizer on the moved parameters alone."""
    leaves = {name: v.clone().requires_grad_() for name, v in model.items()}
    chosen = [leaves[name] for name in moved]
    steps = optimizer(chosen)
    for rows in batches:
        steps.zero_grad()
        logits = torch.func.functional_call(task.model, leaves, DATA.x[rows])
        nn.functional.cross_entropy(logits, DATA.y[rows]).backward()
        if clip:
            nn.utils.clip_grad_norm_(chosen, clip)
        steps.step()
    return {name: v.detach() for name, v in leaves.items()}


SOLVER = {"momentum": 0.9, "weight_decay": 0.1}
ALL = ["layers.0.weight", "layers.0.bias", "layers.1.weight", "layers.1.bias"]


# frozen and personal parts, the parts that are moved, and the names of the latter
PARTS = [
    ([], [], ["*"], ALL),
    ([], [], ["head"], ALL[2:]),
    (["head"], [], ["*"], ALL),
    (["head"], [], ["body"], ALL[:2]),
    (["head"], [], ["head"], ALL[2:]),
    (["layers.*.weight"], [], ["layers.1.weight", "layers.0.bias"], ALL[1:3]),
    ([], ["head"], ["*"], ALL),
    ([], ["head"], ["body"], ALL[:2]),
    (["layers.0.bias"], ["head"], ["layers.0.*"], ALL[:2]),
]


@pytest.mark.parametrize(
    ("mode", "frozen", "personal", "parts", "moved"),
    [
        *(("loop", *case) for case in PARTS),
        *(("stacked", *case) for case in PARTS),
        *(("compiled", *PARTS[k]) for k in (0, 2)),  # it has no mask
    ],
)
def test_clients_are_judged_after_steps_of_their_own(mode, frozen, personal, parts, moved):
    """Full batches, momentum, decay and clipping of the moved parameters, whatever their role."""
    task = task_with(frozen, personal)
    w = task.init(torch.Generator().manual_seed(1))
    algo = make("fedprox", mu=3.0)
    if personal:
        algo = with_personal_part(algo, w[task.shared.size :])
    shared = w[: task.shared.size]
    last = snapshots(algo, DATA, task=task, w=shared, participation=0.5, rounds=2)[-1]
    tuning = tuning_of(task, sgd(**SOLVER, clip_norm=0.5), parts, mode)
    before, after, steps = judged(tuning, algo, last)
    assert steps == 2 * DATA.num_clients

    deployed = algo.deploy(last.server, last.clients).expand(DATA.num_clients, -1)
    for k, vector in enumerate(deployed):
        own = DATA.train.of_clients(np.array([k]))
        model = task.constants | task.layout.named(vector)

        def optimizer(chosen):
            return torch.optim.SGD(chosen, lr=0.3, **SOLVER)

        model = tuned_by_hand(task, model, [own] * 2, moved, optimizer, clip=0.5)
        test = DATA.test.of_clients(np.array([k]))
        assert (after.test.loss[k], after.test.correct[k]) == pytest.approx(
            sums(task, model, test), abs=1e-5
        )
        assert after.train_loss[k] == pytest.approx(sums(task, model, own)[0], abs=1e-5)
    assert not np.allclose(after.train_loss, before.train_loss)


def test_batches_are_drawn_by_the_finished_rounds():
    """The order of an epoch is that of the hashes of (seed, 26, round, epoch, row)."""
    task = task_with()
    last = snapshots(make("fedavg"), DATA, task=task, rounds=2)[-1]
    _, after, steps = judged(tuning_of(task, batch_size=8), make("fedavg"), last)
    assert steps == 2 * sum(-(-DATA.train.counts // 8))
    for k in range(DATA.num_clients):
        own = DATA.train.of_clients(np.array([k]))
        batches = []
        for epoch in range(2):
            order = fold_in(key(0, 26, 2), torch.tensor(epoch), own).argsort()
            batches += own[order].split(8)
        model = task.named(last.server["w"])
        model = tuned_by_hand(
            task, model, batches, ALL, lambda chosen: torch.optim.SGD(chosen, lr=0.3)
        )
        assert after.train_loss[k] == pytest.approx(sums(task, model, own)[0], abs=1e-8)


def test_random_draws_of_the_model_have_the_same_stream(monkeypatch):
    """Their keys are (seed, MODEL, 26, round)."""
    drawn = []
    real = BatchLayout.batches

    def batches(layout, seed, round, purpose):
        drawn.append((seed, round, purpose))
        return real(layout, seed, round, purpose)

    monkeypatch.setattr(BatchLayout, "batches", batches)
    task = task_with()
    for snapshot in snapshots(make("fedavg"), DATA, task=task, rounds=1):
        drawn.clear()
        judged(tuning_of(task), make("fedavg"), snapshot)
        assert set(drawn) == {(0, snapshot.round, 26)}
    layout = BatchLayout(
        np.array([0]),
        np.array([2]),
        DATA,
        LocalWork(0.1, None, epochs=(2, 2), random=True),
    )
    keys = [batch.key for batch, _ in layout.batches(0, 1, 26)]
    base = key(0, 8, 26, 1)
    assert [k.tolist() for k in keys] == [
        fold_in(base, torch.tensor([0]), torch.tensor([step])).tolist() for step in range(2)
    ]


@pytest.mark.parametrize("lr", [None, 0.05])
def test_the_rate_is_that_of_the_last_finished_round(lr):
    schedule = Schedule(schedule="decay", decay_factor=0.5)
    task = task_with()
    states = snapshots(make("fedavg"), DATA, task=task, rounds=3)
    tuning = tuning_of(task, lr=lr, schedule=schedule)
    for snapshot in states:
        rate = lr or 0.3 * 0.5 ** max(0, snapshot.round - 1)
        _, after, _ = judged(tuning, make("fedavg"), snapshot)
        _, other, _ = judged(tuning_of(task, lr=rate), make("fedavg"), snapshot)
        assert np.array_equal(after.train_loss, other.train_loss)


@pytest.mark.parametrize("name", ["fedavg", "ditto", "fedper"])
def test_grouping_changes_nothing_but_rounding(name):
    task = task_with(["layers.0.bias"], ["head"] if name == "fedper" else [])
    w = task.init(torch.Generator().manual_seed(1))
    algo = make(name)
    if name == "fedper":
        algo = with_personal_part(algo, w[task.shared.size :])
    last = snapshots(algo, DATA, task=task, w=w[: task.shared.size])[-1]
    results = []
    for mode, size, workers in (("loop", 1, 1), ("stacked", 1000, 1), ("stacked", 2, 2)):
        tuning = tuning_of(task, sgd(**SOLVER), mode=mode, size=size, workers=workers, batch_size=4)
        _, after, _ = judged(tuning, algo, last)
        tuning.engine.close()
        results.append(np.concatenate([after.train_loss, after.test.loss, after.test.correct]))
    assert all(np.allclose(one, results[0], atol=1e-10) for one in results)
    _, some, steps = judged(tuning, algo, last, ids=np.array([1, 4]))
    tuning.engine.close()
    assert steps == 2 * (6 + 10)
    assert np.allclose(some.train_loss, results[0][[1, 4]], atol=1e-10)


def test_clients_without_training_examples_keep_their_measurements():
    data = federation((6, 0, 3))
    task = task_with()
    last = snapshots(make("fedavg"), data, task=task)[-1]
    tuning = tuning_of(task)
    before, after, steps = judged(tuning, make("fedavg"), last, data)
    assert steps == 4
    assert after.test.loss[1] == before.test.loss[1] != 0
    assert (after.test.loss[[0, 2]] != before.test.loss[[0, 2]]).all()
    nobody = replace(data, train=Rows.of([np.arange(0)] * 3))
    before, after, steps = judged(tuning, make("fedavg"), last, nobody)
    assert steps == 0
    assert after is before


def test_a_central_test_set_is_measured_with_every_model():
    rows = Rows.shared(DATA.test.index.numpy(), DATA.num_clients)
    data = replace(DATA, test=rows, central=True)
    task = task_with()
    last = snapshots(make("fedavg"), data, task=task)[-1]
    before, after, _ = judged(tuning_of(task), make("fedavg"), last, data)
    assert len(set(before.test.loss)) == 1
    own = replace(data, central=False)
    _, other, _ = judged(tuning_of(task), make("fedavg"), last, own)
    assert len(set(after.test.loss)) == DATA.num_clients
    assert np.array_equal(after.test.loss, other.test.loss)


def test_validation_examples_are_measured_after_it_too():
    task = task_with()
    last = snapshots(make("fedavg"), DATA, task=task)[-1]
    tuning = tuning_of(task)
    for rows in (DATA.test, DATA.train):
        data = replace(DATA, validation=rows)
        _, after, _ = judged(tuning, make("fedavg"), last, data)
        expected = after.test.loss if rows is DATA.test else after.train_loss
        assert np.allclose(after.validation.loss, expected, rtol=1e-12)


def test_scores_over_classes_are_those_after_it():
    """With one test example, the balanced accuracy is the accuracy."""
    data = federation(tests=[1] * 7)
    task = task_with()
    last = snapshots(make("fedavg"), data, task=task, rounds=0)[-1]
    tuning = tuning_of(task)
    before = evaluate(
        Measurements(task, engine_of(task, "loop")), data, last.server["w"], classes=True
    )
    after, _ = tuning.evaluate(make("fedavg"), last, data, before)
    assert after.measured["test_scores"][:, 0].tolist() == after.test.correct.tolist()
    assert after.test.correct.tolist() != before.test.correct.tolist()


METHODS = ["fedavg", "scaffold", "ditto", "fedper", "pfedme", "feddyn local.lr=0.1"]


@pytest.mark.parametrize("method", METHODS)
def test_nothing_of_it_survives(tmp_path, method):
    """Models, states, traffic and steps are those without it, and so are the untuned columns."""
    keys = f"{KEYS} algo={method} participation=0.5 keep_state=true"
    plain = fedbench.run(f"{keys} results_dir={tmp_path}")
    tuned = fedbench.run(f"{keys} results_dir={tmp_path} finetune.epochs=2")
    assert plain.meta["hash"] != tuned.meta["hash"]
    files = [p.relative_to(plain.path) for p in plain.path.rglob("*.safetensors")]
    assert len(files) > 1
    for name in files:
        one, other = load_file(plain.path / name), load_file(tuned.path / name)
        assert one.keys() == other.keys()
        assert all(torch.equal(v, other[key]) for key, v in one.items())
    assert plain.meta["client_steps"] == tuned.meta["client_steps"]
    for before, after in zip(rows_of(plain.path), rows_of(tuned.path), strict=True):
        for name in ("bytes_up", "bytes_down", "update_norm"):
            assert before[name] == after[name]
        for name in ("accuracy_mean", "accuracy_mean_weighted", "accuracy_std", "test_loss"):
            assert before[name] == after[f"untuned_{name}"]
        assert before["test_loss"] != after["test_loss"]
        assert after["finetune_steps"] > 0
        assert "finetune_steps" not in before
    (one, other) = (run.clients() for run in (plain, tuned))
    assert one.accuracy.tolist() == other.untuned_accuracy.tolist()
    assert one.accuracy.tolist() != other.accuracy.tolist()


@pytest.mark.slow
def test_rows_of_a_resumed_run_are_those_of_a_run_in_one_piece(fed, train, monkeypatch):
    args = [*KEYS.split(), "algo=fedbabu", "participation=0.5", "engine.mode=loop"]
    whole = train(*args, "results_dir=whole")
    interrupted(fed, monkeypatch, 3, *args)
    done = train(*args)
    assert rows_without_clocks(done) == rows_without_clocks(whole)
    assert model_of(done) == model_of(whole)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("algo=fedavg_ft", "algo=fedavg finetune.epochs=1"),
        ("algo=fedavg_ft finetune.epochs=0", "algo=fedavg"),
        ("algo=fedbabu parts.frozen=[] finetune.epochs=0", "algo=fedavg algo.weights=uniform"),
        (
            "algo=fedbabu",
            "algo=fedavg algo.weights=uniform parts.frozen=[head] finetune.epochs=5",
        ),
    ],
)
def test_methods_are_fedavg_with_keys(tmp_path, one, other):
    keys = f"{KEYS} participation=0.5 engine.mode=loop results_dir={tmp_path}"
    first, second = (fedbench.run(f"{keys} {more}") for more in (one, other))
    assert model_of(first.path) == model_of(second.path)
    assert rows_without_clocks(first.path) == rows_without_clocks(second.path)


def test_fedbabu_without_fine_tuning_is_fedrep_with_a_body_only(tmp_path):
    keys = f"{KEYS} participation=0.5 engine.mode=loop results_dir={tmp_path} local.momentum=0.5"
    one = fedbench.run(f"{keys} local.epochs=2 algo=fedbabu finetune.epochs=0")
    other = fedbench.run(f"{keys} local.epochs=2 algo=fedrep algo.body_epochs=2")
    assert model_of(one.path) == model_of(other.path)
    for row, expected in zip(rows_of(one.path), rows_of(other.path), strict=True):
        assert row["accuracy_mean"] == pytest.approx(expected["accuracy_mean"])
        assert row["bytes_up"] == expected["bytes_up"]


def test_fedbabu_trains_and_sends_the_body(tmp_path):
    run = fedbench.run(f"{KEYS} algo=fedbabu results_dir={tmp_path} local.weight_decay=0.1")
    start = fedbench.run(f"{KEYS} algo=fedavg results_dir={tmp_path} rounds=0")
    one, other = (load_file(r.path / "model.safetensors") for r in (run, start))
    moved = [name for name, v in one.items() if not torch.equal(v, other[name])]
    assert moved == ["layers.0.bias", "layers.0.weight"]
    body = one["layers.0.weight"].numel() + one["layers.0.bias"].numel()
    assert run.last_round()["bytes_up"] == 4 * 8 * 4 * body
    assert run.meta["frozen"] == ["layers.1.weight", "layers.1.bias"]


def test_the_identity_of_a_run(tmp_path):
    def digest(more):
        return fedbench.run(f"{KEYS} rounds=0 results_dir={tmp_path} {more}").meta["hash"]

    plain = digest("")
    assert digest("finetune.epochs=null finetune.lr=null finetune.parts=all") == plain
    others = [
        digest(f"finetune.epochs=1 {more}")
        for more in ("", "finetune.lr=0.1", "finetune.parts=[head]")
    ]
    assert len({plain, *others}) == 4


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (
            "algo=fedcorr rounds=9 finetune.epochs=1",
            "fedcorr relabels the examples on which clients would",
        ),
        ("finetune.lr=0.1", "change nothing without finetune.epochs, such as 1"),
        ("finetune.epochs=0 finetune.parts=[head]", "change nothing without finetune.epochs"),
        ("finetune.epochs=1 finetune.parts=[tail]", r"finetune\.parts: tail names no parameter of"),
        ("finetune.epochs=1 finetune.parts=[]", r"finetune\.parts must be"),
        ("finetune.epochs=1 finetune.parts=head", r"finetune\.parts must be"),
        ("finetune.epochs=-1", r"finetune\.epochs must be"),
        ("finetune.epochs=0.5", r"finetune\.epochs must be"),
        ("finetune.epochs=1 finetune.lr=0", r"finetune\.lr must be"),
    ],
)
def test_what_is_refused(tmp_path, keys, message):
    with pytest.raises(RequestError, match=message):
        fedbench.run(f"{KEYS} {keys} results_dir={tmp_path}")


def test_fedbabu_needs_a_body(tmp_path):
    message = "fedbabu would share nothing, because head is frozen, and Linear has no other"
    with pytest.raises(RequestError, match=message):
        fedbench.run(f"{' '.join(FAST)} algo=fedbabu results_dir={tmp_path}")


OTHER_LOSSES = ["fedavg objective=decorr", "moon", "fedntd", "fedrod algo.start=zero"]


@pytest.mark.parametrize("method", OTHER_LOSSES)
def test_the_loss_is_the_plain_one_whatever_rounds_train_on(tmp_path, method):
    """From the same models, fine-tuning is that of FedAvg."""
    keys = f"{KEYS} results_dir={tmp_path} local.epochs=2"
    done = fedbench.run(f"{keys} algo={method} finetune.epochs=2 rounds=0")
    plain = fedbench.run(f"{keys} algo=fedavg finetune.epochs=2 rounds=0")
    one, other = done.clients(), plain.clients()
    assert not np.allclose(one.untuned_accuracy, one.accuracy)
    assert np.allclose(one.untuned_accuracy, other.untuned_accuracy)
    assert np.allclose(one.test_loss, other.test_loss, rtol=1e-5)
    trained = fedbench.run(f"{keys} algo={method} finetune.epochs=2 rounds=2")
    assert trained.last_round()["accuracy_mean"] > trained.last_round()["untuned_accuracy_mean"]
