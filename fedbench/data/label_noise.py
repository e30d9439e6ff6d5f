"""Label noise: training labels made wrong on purpose, for any method."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch

from fedbench.core.errors import choice, number
from fedbench.core.randomness import DataPurpose, data_generator
from fedbench.data.dataset import FederatedDataset


@dataclass(frozen=True)
class LabelNoise:
    """The amount and the kind of label noise.

    Attributes:
        clients: Probability that a client is noisy (FedCorr's ρ).
        level: Lowest noise level of a noisy client; its own is drawn from U(level, 1) (FedCorr's τ).
        kind: "uniform" redraws each label with that probability, uniformly over all classes, so that it may come out
            right; "pair" replaces it by the next class with that probability.
    """

    clients: float
    level: float
    kind: Literal["uniform", "pair"]

    def __post_init__(self) -> None:
        number("data.noise.clients", self.clients, at_least=0, at_most=1)
        number("data.noise.level", self.level, at_least=0, at_most=1)
        choice("data.noise.kind", self.kind, ("uniform", "pair"))


def with_label_noise(data: FederatedDataset, noise: LabelNoise, seed: int) -> tuple[FederatedDataset, np.ndarray]:
    """Return the data with noisy training labels, and the noise level of each client [N].

    Test labels are unchanged (Xu et al., CVPR 2022, Sec. 4.1; over the data's own number of classes).
    """
    rng = data_generator(seed, DataPurpose.LABEL_NOISE)
    count, rows = data.num_clients, data.train.index.numpy(force=True)
    level = np.where(rng.random(count) < noise.clients, rng.uniform(noise.level, 1, count), 0.0)
    y = data.y.numpy(force=True).copy()
    clean = y[rows]
    rate = np.repeat(level, data.train.counts).reshape(-1, *[1] * (clean.ndim - 1))  # per token for sequences
    hit = rng.random(clean.shape) < rate
    drawn = rng.integers(0, data.classes, clean.shape) if noise.kind == "uniform" else (clean + 1) % data.classes
    y[rows] = np.where(hit, drawn, clean)
    wrong = (y[rows] != clean).sum()
    note = f"label noise: {(level > 0).sum()} of {count} clients, {wrong} of {clean.size} training labels"
    noisy = data.relabelled(torch.from_numpy(y).to(data.y.device))
    return replace(noisy, sources=(*data.sources, note)), level
