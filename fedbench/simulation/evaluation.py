"""Losses and accuracies of one model, or of each client's own, on the data of every client."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from fedbench.data.dataset import FederatedDataset, Rows
from fedbench.simulation.fairness import accuracy_metrics
from fedbench.simulation.measurements import Measurements


@dataclass(frozen=True)
class HeldOut:
    """Measurements on the validation examples, per client [N]: their number, correct ones, and sums of losses."""

    n: np.ndarray
    correct: np.ndarray
    loss: np.ndarray


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
        held_out: Measurements on the validation examples; None if the run has none.
    """

    n_train: np.ndarray
    n_test: np.ndarray
    correct: np.ndarray
    test_loss: np.ndarray
    train_loss: np.ndarray | None
    per_token: bool = False
    held_out: HeldOut | None = None

    def summary(self) -> dict[str, float]:
        """Return the metrics of the federation; losses are means over all examples of all clients.

        Clients without test examples are left out of the accuracies, which are NaN if no client has any. With
        validation examples, all metrics of the test examples are measured on them too, under ``val_...``.
        """
        trained = float("nan") if self.train_loss is None else _mean(self.train_loss, self.n_train)
        found = {
            "train_loss": trained,
            "test_loss": _mean(self.test_loss, self.n_test),
            **_accuracies(self.correct, self.n_test),
        }
        if (held := self.held_out) is not None:
            found["val_loss"] = _mean(held.loss, held.n)
            found |= {f"val_{k}": v for k, v in _accuracies(held.correct, held.n).items()}
        return found

    def per_client(self, names: tuple[str, ...]) -> dict[str, np.ndarray | tuple[str, ...]]:
        """Return the columns of the per-client table; NaN where a client has no examples."""
        train_loss = np.full(len(names), np.nan) if self.train_loss is None else self.train_loss
        with np.errstate(invalid="ignore"):
            columns: dict[str, np.ndarray | tuple[str, ...]] = {
                "client": np.arange(len(names)),
                "name": names,
                "n_train": self.n_train,
                "n_test": self.n_test,
                "correct": self.correct if self.per_token else self.correct.astype(np.int64),
                "accuracy": self.correct / self.n_test,
                "test_loss": self.test_loss / self.n_test,
                "train_loss": train_loss / self.n_train,
            }
            if (held := self.held_out) is not None:
                columns |= {
                    "n_val": held.n,
                    "val_correct": held.correct if self.per_token else held.correct.astype(np.int64),
                    "val_accuracy": held.correct / held.n,
                    "val_loss": held.loss / held.n,
                }
            return columns


def evaluate(measurements: Measurements, data: FederatedDataset, w: Tensor, train: bool = True) -> Evaluation:
    """Evaluate the model w [P], or each client's own [N, P], on the examples of every client, in all splits.

    One model on a central test set is evaluated once.

    Args:
        measurements: Carries them out.
        data: The federated data set.
        w: The model or the models.
        train: Whether the training examples are evaluated too.
    """
    everyone = np.arange(data.num_clients)

    def sums(rows: Rows, ids: np.ndarray, hits: bool) -> list[np.ndarray]:
        return [v.cpu().numpy() for v in measurements.plan(data, rows, ids).sums(w, hits)]

    held_out = None
    if data.validation is not None:
        loss, correct = sums(data.validation, everyone, hits=True)
        held_out = HeldOut(data.validation.counts, correct, loss)
    tested = everyone[:1] if data.central and w.dim() == 1 else everyone
    test_loss, correct = (np.broadcast_to(v, len(everyone)) for v in sums(data.test, tested, hits=True))
    train_loss = sums(data.train, everyone, hits=False)[0] if train else None
    per_token = data.y.dim() > 1
    return Evaluation(data.train.counts, data.test.counts, correct, test_loss, train_loss, per_token, held_out)


def _accuracies(correct: np.ndarray, n: np.ndarray) -> dict[str, float]:
    """Return the accuracy columns of the clients with examples; NaN if there are none."""
    if not (able := n > 0).any():
        return dict.fromkeys(accuracy_metrics(np.ones(1), np.ones(1)), float("nan"))
    return accuracy_metrics(correct[able] / n[able], n[able])


def _mean(total: np.ndarray, count: np.ndarray) -> float:
    return float(total.sum() / count.sum()) if count.sum() else float("nan")
