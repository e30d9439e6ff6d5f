"""Losses and accuracies on the data of every client, and fairness over clients.

Accuracies are fractions in [0, 1], and the variance is that of fractions; tables print percent and
percent².
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import floor, sqrt
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedbench.core.types import State
from fedbench.data.dataset import FederatedDataset, Rows
from fedbench.simulation.measurements import ExamplePlan, Measurements

TAILS = (5, 10, 20, 30)  # percent
CLASS_SCORES = ("balanced_accuracy", "macro_f1")


class SplitSums(NamedTuple):
    """Measurements on the test or validation examples, per client [N]."""

    n: np.ndarray  # number of examples; may be 0
    correct: np.ndarray  # correct examples; for sequences, the sum of fractions of correct tokens
    loss: np.ndarray  # sums of losses, in nats

    @property
    def accuracies(self) -> np.ndarray:
        """Fraction of correct examples [N]; NaN for clients without examples."""
        with np.errstate(invalid="ignore"):
            accuracies: np.ndarray = self.correct / self.n
        return accuracies

    def metrics(
        self,
        split: str,
        prefix: str,
    ) -> dict[str, float]:
        """Return the loss of the split, "test" or "val", and its accuracies with a prefix."""
        tested = self.n > 0
        n = self.n[tested]
        accuracies = accuracy_metrics(self.correct[tested] / n, n)

        metrics = {f"{split}_loss": float(self.loss.sum() / self.n.sum())}
        for name, v in accuracies.items():
            metrics[f"{prefix}{name}"] = v
        return metrics

    def columns(
        self,
        split: str,
        prefix: str,
        per_token: bool,
    ) -> dict[str, np.ndarray]:
        """Return the split's columns of the per-client table; NaN for clients without examples."""
        correct = self.correct if per_token else self.correct.astype(np.int64)
        return {
            f"n_{split}": self.n,
            f"{prefix}correct": correct,
            f"{prefix}accuracy": self.accuracies,
            f"{split}_loss": self.loss / self.n,
        }


@dataclass(frozen=True)
class Evaluation:
    """Measurements of one model or of one model per client, as arrays [N] on the host.

    Attributes:
        ids: Ids of the N evaluated clients, ascending.
        n: Number of examples, by split: "train", "test" and, if the run has any, "validation".
        measured: Measurements by name (``measured_sums``). Those of the training examples are
            missing if they were not evaluated.
        per_token: Whether an example is a sequence with a label per token.
    """

    ids: np.ndarray
    n: Mapping[str, np.ndarray]
    measured: Mapping[str, np.ndarray]
    per_token: bool

    @property
    def train_loss(self) -> np.ndarray:
        """Sum of the losses of the training examples, in nats; NaN if they were not evaluated."""
        return self.measured.get("train_loss", np.full(len(self.ids), np.nan))

    @property
    def test(self) -> SplitSums:
        """Measurements on the test examples."""
        return self._split("test")

    @property
    def validation(self) -> SplitSums | None:
        """Measurements on the validation examples; None if the run has none."""
        return self._split("validation") if "validation" in self.n else None

    def _split(self, name: str) -> SplitSums:
        measured = self.measured
        return SplitSums(self.n[name], measured[f"{name}_correct"], measured[f"{name}_loss"])

    def summary(self) -> dict[str, float]:
        """Return the metrics of the federation; losses are means over all examples of all clients.

        Clients without test examples are left out of the accuracies, which are NaN if no client has
        any. If there are validation examples, all metrics of the test examples are also computed on
        them, as ``val_...``.
        """
        with np.errstate(invalid="ignore"):
            metrics = {"train_loss": float(self.train_loss.sum() / self.n["train"].sum())}
            metrics |= self.test.metrics("test", "")
            if self.validation is not None:
                metrics |= self.validation.metrics("val", "val_")
        for name, values in self._class_scores().items():
            known = values[~np.isnan(values)]
            metrics[f"{name}_mean"] = _mean(known) if len(known) else float("nan")
        return metrics

    def _class_scores(self) -> dict[str, np.ndarray]:
        """Return the scores over classes by column, [N]; NaN for clients without examples."""
        columns = {}
        for split, prefix in (("test", ""), ("validation", "val_")):
            scores = self.measured.get(f"{split}_scores")
            if scores is not None:
                for name, values in zip(CLASS_SCORES, scores.T, strict=True):
                    columns[f"{prefix}{name}"] = values
        return columns

    def per_client(
        self,
        names: tuple[str, ...],
    ) -> dict[str, np.ndarray | tuple[str, ...]]:
        """Return the columns of the per-client table; NaN where a client has no examples.

        Args:
            names: Names of all clients of the data set.
        """
        with np.errstate(invalid="ignore"):
            columns: dict[str, np.ndarray | tuple[str, ...]] = {
                "client": self.ids,
                "name": tuple(names[k] for k in self.ids),
                "n_train": self.n["train"],
                **self.test.columns("test", "", self.per_token),
                "train_loss": self.train_loss / self.n["train"],
            }
            if self.validation is not None:
                columns |= self.validation.columns("val", "val_", self.per_token)
        return columns | self._class_scores()


def examples_of(
    data: FederatedDataset,
    train: bool,
    ids: np.ndarray,
    tested: np.ndarray,
) -> int:
    """Return the number of examples in an evaluation of the clients ``ids``.

    Args:
        data: The federated data set.
        train: Whether the training examples are evaluated, too.
        ids: Ids of the clients.
        tested: Ids of the clients whose test examples are evaluated; one for a central test set.
    """
    total = data.test.counts[tested].sum()
    if data.validation is not None:
        total += data.validation.counts[ids].sum()
    if train:
        total += data.train.counts[ids].sum()
    return int(total)


def evaluate(
    measurements: Measurements,
    data: FederatedDataset,
    w: Tensor,
    train: bool = True,
    ids: np.ndarray | None = None,
    follow: Callable[[float], None] = lambda share: None,
    classes: bool = False,
) -> Evaluation:
    """Evaluate one model w [P], or one per client [N, P], on the clients' examples of all splits.

    One model on a central test set is evaluated only once.

    Args:
        measurements: Object that carries out the measurements.
        data: The federated data set.
        w: The model or the models.
        train: Whether to evaluate the training examples, too.
        ids: Ids of the clients to evaluate, ascending. If None, all clients.
        follow: Function that is called with the share of the examples that are done, on any thread.
        classes: Whether to measure the scores over classes, too, in a pass of their own.
    """
    ids = np.arange(data.num_clients) if ids is None else ids
    measured_once = data.central and w.dim() == 1
    tested = ids[:1] if measured_once else ids
    total = examples_of(data, train, ids, tested)
    done = 0

    def measured(examples: int) -> None:
        nonlocal done  # without a lock: a lost block is not noticed on a display
        done += examples * measurements.engine.ranks.world_size
        follow(min(1.0, done / max(1, total)))  # padding counts as well

    values = {}
    for split, rows in splits_of(data, train).items():
        plan = measurements.plan(data, rows, tested if split == "test" else ids)
        for name, v in measured_sums(plan, split, w, classes, measured).items():
            values[name] = v.expand(len(ids), *v.shape[1:]).numpy(force=True)

    return Evaluation(
        ids=ids,
        n={split: rows.counts[ids] for split, rows in splits_of(data).items()},
        measured=values,
        per_token=data.y.dim() > 1,
    )


def splits_of(data: FederatedDataset, train: bool = True) -> dict[str, Rows]:
    """Return the rows of the splits of a data set by name, with or without the training rows."""
    splits = {"validation": data.validation, "test": data.test}
    if train:
        splits["train"] = data.train
    return {name: rows for name, rows in splits.items() if rows is not None}


def measured_sums(
    plan: ExamplePlan,
    split: str,
    w: Tensor,
    classes: bool,
    measured: Callable[[int], None] = lambda examples: None,
) -> State:
    """Return sums over each client's examples.

    These are the losses, "SPLIT_loss" [C], and, except for "train", the numbers of correct
    examples, "SPLIT_correct" [C], and the scores over classes, "SPLIT_scores" [C, 2], in the order
    of ``CLASS_SCORES``.

    Args:
        plan: The examples of the clients.
        split: Name of the split.
        w: One model [P], or one per client [C, P].
        classes: Whether to measure the scores over classes, too, in a pass of their own.
        measured: As for ``ExamplePlan.sums``.
    """
    trained = split == "train"
    loss, *correct = plan.sums(w, hits=not trained, measured=measured)
    if trained:
        return {"train_loss": loss}
    values = {f"{split}_correct": correct[0], f"{split}_loss": loss}
    if classes:
        values[f"{split}_scores"] = class_scores(plan.class_counts(w))
    return values


def class_scores(counts: Tensor) -> Tensor:
    """Return balanced accuracy and macro-F1 of each client, [C, 2]; NaN without examples.

    The balanced accuracy is the mean recall over the classes with examples, and macro-F1 the mean
    F1 = 2 correct / (labelled + predicted) over the classes that are labels or predictions, as in
    scikit-learn's ``balanced_accuracy_score`` and ``f1_score(average="macro")``.

    Args:
        counts: Correct, labelled and predicted examples per class, [C, 3, classes].
    """
    correct, labelled, predicted = counts.unbind(1)
    total = labelled + predicted
    scores = []
    for share, present in (
        (correct / labelled, labelled > 0),
        (2 * correct / total, total > 0),
    ):
        known = torch.where(present, share, 0)
        scores.append(known.sum(1) / present.sum(1))
    return torch.stack(scores, 1)


def weighted_tail(
    values: np.ndarray,
    percent: float,
    weights: np.ndarray,
) -> float:
    """Return the weighted mean of the lowest max(1, floor(p N / 100)) values.

    Clients that are tied at the edge of the tail share the remaining places: all of them belong to
    the tail, each with the same fraction of its weight, so that the result does not depend on their
    order.
    """
    count = tail_size(len(values), percent)
    edge = np.partition(values, count - 1)[count - 1]
    below = values < edge
    tied = values == edge
    places_left = count - np.count_nonzero(below)
    share = np.where(tied, places_left / np.count_nonzero(tied), below)
    return _weighted_mean(values, weights * share)


def tail_size(clients: int, percent: float) -> int:
    """Return the number of clients in a tail of ``percent`` percent: max(1, floor(p N / 100)).

    Rounding down follows the code of q-FFL (Li et al., ICLR 2020).
    """
    return max(1, floor(percent * clients / 100 + 1e-9))  # 0.29 * 100 is a little less than 29


def angle_degrees(values: np.ndarray) -> float:
    """Return the angle between the values and (1, ..., 1), in degrees.

    The angle is arccos(Σ a / (√N ||a||)) = atan(STD / mean). If all values are 0, the direction is
    undefined and the angle is 90. (Fairness measure of Li et al., ICLR 2020, appendix, Definition
    2.)
    """
    mean = _mean(values)
    if mean <= 0:
        return 90.0
    angle = np.arctan2(_deviation(values), mean)
    return float(np.degrees(angle))


def kl_uniform(values: np.ndarray) -> float:
    """Return KL(a/Σa || uniform) = Σ p ln(N p) in nats, with 0 ln 0 = 0; 0 if all values are 0."""
    total = values.sum()
    if total <= 0:
        return 0.0
    p = values / total
    p = p[p > 0]
    divergence = (p * np.log(len(values) * p)).sum()
    return max(0.0, float(divergence))


def accuracy_metrics(accuracy: np.ndarray, n_test: np.ndarray) -> dict[str, float]:
    """Return the accuracy columns of a round.

    Args:
        accuracy: Fraction of correct test examples of each client, [N].
        n_test: Number of test examples of each client, > 0, [N]; the weights of the ``_weighted``
            columns.

    Standard deviation and variance are those of the population (ddof 0). Without clients, all
    columns are NaN.
    """
    if not len(accuracy):
        names = accuracy_metrics(np.ones(1), np.ones(1))
        return dict.fromkeys(names, float("nan"))

    ranked = np.sort(accuracy)
    worst = {}
    best = {}
    for percent in TAILS:
        count = tail_size(len(ranked), percent)
        worst[f"accuracy_worst{percent}"] = _mean(ranked[:count])
        best[f"accuracy_best{percent}"] = _mean(ranked[-count:])

    std = _deviation(accuracy)
    weighted = _weighted_mean(accuracy, n_test)
    weighted_variance = _weighted_mean((accuracy - weighted) ** 2, n_test)
    return {
        "accuracy_mean": _mean(accuracy),
        "accuracy_std": std,
        "accuracy_variance": std**2,
        "accuracy_min": float(ranked[0]),
        "accuracy_max": float(ranked[-1]),
        **worst,
        **best,
        "angle_degrees": angle_degrees(accuracy),
        "kl_uniform": kl_uniform(accuracy),
        "accuracy_mean_weighted": weighted,
        "accuracy_std_weighted": sqrt(weighted_variance),
        "accuracy_worst30_weighted": weighted_tail(accuracy, 30, n_test),
    }


def _mean(values: np.ndarray) -> float:
    # same as ``values.mean()``, which takes four times as long
    return float(np.add.reduce(values)) / len(values)


def _weighted_mean(values: np.ndarray, weights: np.ndarray) -> float:
    total = np.add.reduce(values * weights)
    return float(total / np.add.reduce(weights))


def _deviation(values: np.ndarray) -> float:
    """Return the population standard deviation."""
    centred = values - _mean(values)
    return sqrt(_mean(centred * centred))
