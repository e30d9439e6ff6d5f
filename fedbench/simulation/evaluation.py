"""What a model, or each client's own, does on every client's data."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from fedbench.data.dataset import FederatedDataset
from fedbench.simulation.engine import Engine
from fedbench.simulation.metrics import accuracy_metrics, linear_cka
from fedbench.simulation.probes import ModelPlan, client_sums
from fedbench.simulation.task import Task


@dataclass(frozen=True)
class Record:
    """Measurements of one model: per-client arrays [N] on the host.

    Attributes:
        n_train: training examples.
        n_test: test examples; may be 0.
        correct: right answers on the test examples; of sequences with a label per token the sum of their shares.
        test_loss: sum of the example losses on the test examples.
        train_loss: the same on the training examples.
        per_token: an example is a sequence with a label per token.
    """

    n_train: np.ndarray
    n_test: np.ndarray
    correct: np.ndarray
    test_loss: np.ndarray
    train_loss: np.ndarray
    per_token: bool = False

    def summary(self) -> dict[str, float]:
        """Return the metrics of the federation; losses are means over all examples of all clients.

        Without any test example the accuracies are NaN.
        """
        tested = self.n_test > 0
        losses = {"train_loss": _mean(self.train_loss, self.n_train), "test_loss": _mean(self.test_loss, self.n_test)}
        if not tested.any():
            return {**losses, **dict.fromkeys(accuracy_metrics(np.ones(1), np.ones(1)), float("nan"))}
        return {**losses, **accuracy_metrics(self.correct[tested] / self.n_test[tested], self.n_test[tested])}

    def per_client(self, names: tuple[str, ...]) -> dict[str, np.ndarray | tuple[str, ...]]:
        """Return the columns of the per-client table; NaN where a client has no examples."""
        with np.errstate(invalid="ignore"):
            return {
                "client": np.arange(len(names)),
                "name": names,
                "n_train": self.n_train,
                "n_test": self.n_test,
                "correct": self.correct if self.per_token else self.correct.astype(np.int64),
                "accuracy": self.correct / self.n_test,
                "test_loss": self.test_loss / self.n_test,
                "train_loss": self.train_loss / self.n_train,
            }


def evaluate(task: Task, data: FederatedDataset, w: Tensor, engine: Engine) -> Record:
    """Measure the model w [P], or each client's own [N, P], on every client's test and training examples.

    One model on a central test set is measured once.
    """
    ids = np.arange(data.num_clients)
    if w.dim() == 2:
        test_loss, correct = ModelPlan(data, data.test, ids, engine).sums(w, hits=True)
        (train_loss,) = ModelPlan(data, data.train, ids, engine).sums(w)
    else:
        who = ids[:1] if data.central else ids
        sums = client_sums(task, data, data.test, who, w, engine, hits=True)
        test_loss, correct = (v.expand(len(ids)) for v in sums)
        (train_loss,) = client_sums(task, data, data.train, ids, w, engine)
    right, tested, trained = (v.cpu().numpy() for v in (correct, test_loss, train_loss))
    return Record(data.train.counts, data.test.counts, right, tested, trained, data.y.dim() > 1)


def _mean(total: np.ndarray, count: np.ndarray) -> float:
    return float(total.sum() / count.sum()) if count.sum() else float("nan")


def moment_similarity(task: Task, moments: Tensor) -> np.ndarray:
    """Return how alike the clients' first moments are (FedCAda, Zhou et al. 2024, Eq. 2), [K, K].

    The linear CKA of each weight tensor, reshaped to [out, rest], averaged over the tensors; vectors, such as biases,
    are left out, and so are tensors without variance.

    Args:
        task: the model.
        moments: [K, P].
    """
    named = task.layout.named(moments.float())
    tensors = [v.flatten(2).numpy(force=True) for v in named.values() if v.dim() > 2]
    if not tensors:
        return np.full((len(moments), len(moments)), np.nan)
    pairs = [[[linear_cka(t[i], t[j]) for t in tensors] for j in range(len(moments))] for i in range(len(moments))]
    values = np.array(pairs)
    known = np.isfinite(values)
    return np.where(known.any(-1), np.where(known, values, 0).sum(-1) / np.maximum(known.sum(-1), 1), np.nan)
