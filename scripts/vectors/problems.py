"""The clients, the initial models and the schedules of the vectors.

All draws are hashes of a few whole numbers, so that every number can be drawn again on its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np

from vectors.models import Array, Labels, Model, NormModel

# purposes of draws
_DATA, _BATCHES, _SETUP, _PERSONAL = 1, 3, 5, 6
_MASK = 2**64 - 1
_HIDDEN = 2  # units of the hidden layer

Batch = list[int]  # indices of a client's examples, from 0


def draw(*numbers: int) -> int:
    """Return a hash of whole numbers, uniform in 0 ... 2**63 - 1 (SplitMix64, chained)."""
    h = 0
    for number in numbers:
        x = (h + 0x9E3779B97F4A7C15 * (number + 1)) & _MASK
        x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
        h = x ^ (x >> 31)
    return h >> 1


def values(seed: int, count: int, scale: float) -> Array:
    """Return numbers of two decimals, uniform in (-scale, scale)."""
    shares = [draw(_DATA, seed, i) / 2.0**63 for i in range(count)]
    return np.round((2 * np.array(shares) - 1) * scale, 2)


@dataclass(frozen=True)
class Data:
    """The training examples of all clients, client by client.

    Attributes:
        sizes: Numbers of training examples.
        classes: Number of classes.
        seed: Seed of the draws.
        features: Number of features.
    """

    sizes: tuple[int, ...]
    classes: int
    seed: int
    features: int = 4

    @cached_property
    def clients(self) -> list[tuple[Array, Labels]]:
        """The examples (x [n, features], y [n]); clients have centers and labels of their own."""
        clients = []
        for k, count in enumerate(self.sizes):
            seed = 100 * self.seed + 10 * k
            center = values(seed, self.features, 1.0)
            noise = values(seed + 1, count * self.features, 1.5)
            x = center + noise.reshape(count, self.features)
            teacher = values(seed + 2, self.classes * self.features, 1.0)
            y = (x @ teacher.reshape(self.features, self.classes)).argmax(1)
            clients.append((np.round(x, 2), y.astype(np.int64)))
        return clients


@dataclass(frozen=True)
class Round:
    """The clients of a round, and the batches of their local steps.

    Attributes:
        cohort: Ids of the clients, ascending.
        batches: The batches of every client of the cohort, in the order of its steps.
        personal: The batches of a second local training, if the method has one.
    """

    cohort: list[int]
    batches: dict[int, list[Batch]]
    personal: dict[int, list[Batch]] | None = None


@dataclass(frozen=True)
class Problem:
    """Clients, an initial model, cohorts and numbers of epochs.

    Attributes:
        name: Name of the problem.
        data: The data set.
        kind: "softmax" regression, a "network" of two layers, or one with BatchNorm.
        cohorts: Cohorts of the rounds.
        epochs: Epochs of the clients of each cohort, by round.
        batch_size: Size of a batch; the last one of an epoch may be shorter.
        w0_seed: Seed of the initial model.
    """

    name: str
    data: Data
    kind: Literal["softmax", "network", "batchnorm"]
    cohorts: tuple[tuple[int, ...], ...]
    epochs: tuple[tuple[int, ...], ...]
    batch_size: int = 4
    w0_seed: int = 7

    @property
    def model(self) -> Model:
        """The model."""
        hidden = () if self.kind == "softmax" else (_HIDDEN,)
        sizes = (self.data.features, *hidden, self.data.classes)
        return NormModel(sizes) if self.kind == "batchnorm" else Model(sizes)

    @cached_property
    def w0(self) -> Array:
        """The initial model [P]; with BatchNorm, gamma is about 1."""
        w0 = values(self.w0_seed, sum(self.model.counts), 0.6)
        if self.kind == "batchnorm":
            w0[-2 * _HIDDEN : -_HIDDEN] += 1
        return w0

    def schedule(self, personal: bool = False, personal_epochs: int | None = None) -> list[Round]:
        """Return the rounds.

        Args:
            personal: Whether there is a second local training.
            personal_epochs: Its epochs; None for those of the first one.
        """
        rounds = []
        for t, (cohort, epochs) in enumerate(zip(self.cohorts, self.epochs, strict=True)):
            first = {}
            second = {}
            for k, count in zip(cohort, epochs, strict=True):
                first[k] = self._batches(_BATCHES, t, k, count)
                second[k] = self._batches(_PERSONAL, t, k, personal_epochs or count)
            rounds.append(Round(list(cohort), first, second if personal else None))
        return rounds

    def setup(self) -> dict[int, list[Batch]]:
        """Return the batch of every client in an exchange before the first round."""
        everyone = range(len(self.data.sizes))
        return {k: self._batches(_SETUP, 0, k, 1)[:1] for k in everyone}

    def with_epochs(self, epochs: int) -> Problem:
        """Return the problem with the same number of epochs for all."""
        same = tuple((epochs,) * len(cohort) for cohort in self.cohorts)
        return replace(self, name=f"{self.name} {epochs} epochs", epochs=same)

    def lasting(self, rounds: int) -> Problem:
        """Return the problem with another number of rounds; cohorts and epochs are repeated."""
        turns = [t % len(self.cohorts) for t in range(rounds)]
        cohorts = tuple(self.cohorts[t] for t in turns)
        epochs = tuple(self.epochs[t] for t in turns)
        return replace(self, cohorts=cohorts, epochs=epochs)

    def _batches(self, purpose: int, t: int, k: int, epochs: int) -> list[Batch]:
        """Return the batches of a client in a round: every epoch in an order of its own."""
        count = self.data.sizes[k]
        first = sum(self.data.sizes[:k])
        batches = []
        for epoch in range(epochs):
            keys = [draw(0, purpose, t, epoch, first + i) for i in range(count)]
            order = sorted(range(count), key=keys.__getitem__)
            batches += _cut(order, self.batch_size)
        return batches


def _cut(order: Sequence[int], size: int) -> list[Batch]:
    return [list(order[i : i + size]) for i in range(0, len(order), size)]


TWO_CLASSES = Data(sizes=(5, 9, 3), classes=2, seed=1)
THREE_CLASSES = Data(sizes=(5, 9, 3), classes=3, seed=2)

_EVERYONE = ((0, 1, 2),) * 3
_SAMPLED = ((0, 2), (1, 2), (0, 1))  # every client is absent once, and comes twice
_SOME = ((2, 1, 1),) * 3
_DRAWN = ((2, 1), (1, 3), (2, 1))

# under this model, each hidden unit is active for a third to two thirds of each client's examples
_LIVELY = 18

SOFTMAX_ALL = Problem("softmax, all clients", TWO_CLASSES, "softmax", _EVERYONE, _SOME)
SOFTMAX_SAMPLED = Problem("softmax, sampled clients", TWO_CLASSES, "softmax", _SAMPLED, _DRAWN)
NETWORK_ALL = Problem(
    "network, all clients", THREE_CLASSES, "network", _EVERYONE, _SOME, w0_seed=_LIVELY
)
NETWORK_SAMPLED = Problem(
    "network, sampled clients", THREE_CLASSES, "network", _SAMPLED, _DRAWN, w0_seed=_LIVELY
)
BATCHNORM_ALL = replace(NETWORK_ALL, name="batchnorm, all clients", kind="batchnorm")
BATCHNORM_SAMPLED = replace(NETWORK_SAMPLED, name="batchnorm, sampled clients", kind="batchnorm")
