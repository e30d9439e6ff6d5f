"""Losses and accuracies of one model, or of each client's own, on the data of every client."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from fedbench.data.dataset import FederatedDataset
from fedbench.simulation.metrics import accuracy_metrics
from fedbench.simulation.shared_probes import SharedProbes


@dataclass(frozen=True)
class Evaluation:
    """Measurements of one model, or of each client's own: per-client arrays [N] on the host.

    Attributes:
        n_train: Number of training examples.
        n_test: Number of test examples; may be 0.
        correct: Number of correct test examples; for sequences with a label per token the sum of their fractions of
            correct tokens.
        test_loss: Sum of the losses of the test examples, in nats.
        train_loss: Sum of the losses of the training examples, in nats; None if they were not evaluated.
        per_token: Whether an example is a sequence with a label per token.
    """

    n_train: np.ndarray
    n_test: np.ndarray
    correct: np.ndarray
    test_loss: np.ndarray
    train_loss: np.ndarray | None
    per_token: bool = False

    def summary(self) -> dict[str, float]:
        """Return the metrics of the federation; losses are means over all examples of all clients.

        The accuracies are NaN if no client has a test example.
        """
        tested = self.n_test > 0
        trained = float("nan") if self.train_loss is None else _mean(self.train_loss, self.n_train)
        losses = {"train_loss": trained, "test_loss": _mean(self.test_loss, self.n_test)}
        if not tested.any():
            return {**losses, **dict.fromkeys(accuracy_metrics(np.ones(1), np.ones(1)), float("nan"))}
        return {**losses, **accuracy_metrics(self.correct[tested] / self.n_test[tested], self.n_test[tested])}

    def per_client(self, names: tuple[str, ...]) -> dict[str, np.ndarray | tuple[str, ...]]:
        """Return the columns of the per-client table; NaN where a client has no examples."""
        train_loss = np.full(len(names), np.nan) if self.train_loss is None else self.train_loss
        with np.errstate(invalid="ignore"):
            return {
                "client": np.arange(len(names)),
                "name": names,
                "n_train": self.n_train,
                "n_test": self.n_test,
                "correct": self.correct if self.per_token else self.correct.astype(np.int64),
                "accuracy": self.correct / self.n_test,
                "test_loss": self.test_loss / self.n_test,
                "train_loss": train_loss / self.n_train,
            }


def evaluate(
    probes: SharedProbes, data: FederatedDataset, w: Tensor, train: bool = True, known: Tensor | None = None
) -> Evaluation:
    """Evaluate the model w [P], or each client's own [N, P], on the test and training examples of every client.

    One model on a central test set is evaluated once.

    Args:
        probes: Carries out the measurement.
        data: The federated data set.
        w: The model or the models.
        train: Whether the training examples are evaluated too.
        known: Sums of the training losses of the clients that have training examples under the model [P], if they have
            been measured.
    """
    everyone, n = np.arange(data.num_clients), data.train.counts
    if w.dim() == 2:
        test_loss, correct = probes.plan(data, data.test, everyone).sums(w, hits=True)
        train_loss = probes.plan(data, data.train, everyone).sums(w)[0].cpu().numpy() if train else None
    else:
        sums = probes.sums(data, data.test, everyone[:1] if data.central else everyone, w, hits=True)
        test_loss, correct = (v.expand(len(everyone)) for v in sums)
        train_loss = _training_losses(probes, data, w, known) if train else None
    right, tested = (v.cpu().numpy() for v in (correct, test_loss))
    return Evaluation(n, data.test.counts, right, tested, train_loss, data.y.dim() > 1)


def _training_losses(probes: SharedProbes, data: FederatedDataset, w: Tensor, known: Tensor | None) -> np.ndarray:
    """Return the sum of the training losses of each client under the model w [P], [N]."""
    able, total = np.flatnonzero(data.train.counts), np.zeros(data.num_clients)
    losses = probes.sums(data, data.train, able, w)[0] if known is None else known
    total[able] = losses.cpu().numpy()
    return total


def _mean(total: np.ndarray, count: np.ndarray) -> float:
    return float(total.sum() / count.sum()) if count.sum() else float("nan")
