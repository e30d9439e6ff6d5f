"""Balanced accuracy and macro-F1 of clients, from counts of examples per class."""

import numpy as np
import pytest
import torch
from command_line import FAST, write_files
from tools import engine_of, federation, task_for

import fedbench
from fedbench.core.errors import RequestError
from fedbench.models.dense import MLP
from fedbench.simulation.evaluation import class_scores, evaluate
from fedbench.simulation.measurements import Measurements

KEYS = f"{' '.join(FAST)} model=mlp"
# the fifth client has no test examples
DATA = federation(tests=[3, 1, 5, 40, 0, 7, 2], classes=4)


def counts(labels, predictions, classes=4):
    """Correct, labelled and predicted examples per class, [1, 3, classes]."""
    rows = []
    for c in range(classes):
        labelled = [y == c for y in labels]
        predicted = [y == c for y in predictions]
        correct = [a and b for a, b in zip(labelled, predicted, strict=True)]
        rows.append([sum(correct), sum(labelled), sum(predicted)])
    return torch.tensor(rows, dtype=torch.float64).T[None]


@pytest.mark.parametrize(
    ("labels", "predictions", "balanced", "f1"),
    [
        # recalls 1/2, 1, 0; F1 2/3, 1/2, 0; the fourth class does not occur
        ([0, 0, 1, 2], [0, 1, 1, 1], 1 / 2, 7 / 18),
        # a class that is only predicted counts for F1 alone: F1 6/7, 0
        ([0, 0, 0, 0], [0, 0, 0, 3], 3 / 4, 3 / 7),
        ([1, 1, 2], [1, 1, 2], 1, 1),
        ([1], [0], 0, 0),
        ([], [], np.nan, np.nan),
    ],
)
def test_scores_by_hand(labels, predictions, balanced, f1):
    scores = class_scores(counts(labels, predictions))[0].tolist()
    assert scores == pytest.approx([balanced, f1], nan_ok=True)


@pytest.mark.parametrize("mode", ["loop", "stacked", "compiled"])
@pytest.mark.parametrize(("workers", "ids"), [(1, [0, 2, 3, 4, 6]), (2, [0, 2, 3, 4, 6]), (1, [4])])
def test_counts_of_one_model_and_of_a_model_for_each(mode, workers, ids):
    task = task_for(DATA, MLP, hidden=[5])
    w = task.init(torch.Generator().manual_seed(3)) * 3
    ids = np.array(ids)
    own = torch.stack([w * (1 - 0.2 * k) for k in range(len(ids))])
    engine = engine_of(task, mode, cohort_size=2, workers=workers)
    for models in (w, own):
        plan = Measurements(task, engine).plan(DATA, DATA.test, ids)
        found = plan.class_counts(models)
        for place, k in enumerate(ids):
            rows = DATA.test.of_clients(np.array([k]))
            model = models if models.dim() == 1 else models[place]
            predictions = task.predict(model, DATA.x[rows]).argmax(1)
            expected = counts(DATA.y[rows].tolist(), predictions.tolist())[0]
            assert torch.equal(found[place], expected)
    engine.close()


def test_means_are_over_the_clients_with_test_examples():
    task = task_for(DATA, MLP, hidden=[5])
    w = task.init(torch.Generator().manual_seed(3))
    measurements = Measurements(task, engine_of(task, "loop"))
    record = evaluate(measurements, DATA, w, classes=True)
    columns = record.per_client(DATA.names)
    for name in ("balanced_accuracy", "macro_f1"):
        values = columns[name]
        assert np.flatnonzero(np.isnan(values)).tolist() == [4]
        assert record.summary()[f"{name}_mean"] == pytest.approx(np.nanmean(values))


@pytest.mark.parametrize("more", ["", "finetune.epochs=1"])
def test_runs_have_them_on_request(tmp_path, more):
    keys = f"{KEYS} {more} results_dir={tmp_path} evaluate.held_out_clients=2 data.validation=0.2"
    plain = fedbench.run(keys)
    done = fedbench.run(f"{keys} evaluate.class_metrics=true")
    before, after = plain.last_round(), done.last_round()
    names = ("balanced_accuracy", "macro_f1")
    prefixes = ("", "val_", "held_out_", "held_out_val_")
    assert after.keys() - before.keys() == {f"{p}{n}_mean" for p in prefixes for n in names}
    assert all(after[k] == v for k, v in before.items() if not k.startswith("seconds"))
    table = done.clients()
    for name in ("balanced_accuracy", "macro_f1", "val_balanced_accuracy", "val_macro_f1"):
        assert after[f"{name}_mean"] == pytest.approx(table[name].mean())
    default = fedbench.run(f"{keys} evaluate.class_metrics=false")
    assert default.meta["hash"] == plain.meta["hash"] != done.meta["hash"]


WORDS = """
import numpy as np
from fedbench.data.examples import Examples

def load():
    x = np.arange(40).reshape(10, 4) % 7
    return Examples(x=x, y=x, classes=7)
"""


def test_labels_per_token_are_refused(tmp_path):
    preset = "defaults:\n  - partition: iid\n  - /model@_global_.model: lstm_lm\nclients: 2\n"
    files = {"words.py": WORDS, "data/words.yaml": f"{preset}source:\n  _target_: words.load\n"}
    write_files(tmp_path / "own", files)
    keys = f"data=words model.hidden=4 rounds=0 results_dir={tmp_path}"
    with pytest.raises(
        RequestError, match="needs examples with one label each, and data=words has"
    ):
        fedbench.run(f"{keys} evaluate.class_metrics=true", config_dir=tmp_path / "own")
