"""Changes to an assembled data set: wrong training labels, and training examples held out for validation."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from fedbench.core.options import LabelNoise
from fedbench.core.randomness import DataPurpose, data_generator
from fedbench.data.dataset import FederatedDataset, Rows


def with_label_noise(data: FederatedDataset, noise: LabelNoise, seed: int) -> tuple[FederatedDataset, np.ndarray]:
    """The data with noisy training labels, and the noise level of each client [N].

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


def with_validation(data: FederatedDataset, fraction: float, seed: int) -> FederatedDataset:
    """The data set with a fraction of every client's training examples held out; test examples stay.

    A client with n training examples holds out int(fraction n) of them, drawn at random, and keeps at least one. The
    draw of a client depends on the seed, on its number and on n alone. Where training labels are noisy, so are those
    of the held-out examples.

    Args:
        data: The data set, on the host.
        fraction: Fraction of the training examples to hold out, in [0, 1).
        seed: Random seed of the data.
    """
    train, held_out = [], []
    for client, rows in enumerate(data.train.split()):
        count = min(int(fraction * len(rows) + 1e-9), max(0, len(rows) - 1))  # 0.7 * 10 is a little less than 7
        shuffled = data_generator(seed, DataPurpose.VALIDATION, client).permutation(rows)
        held_out.append(np.sort(shuffled[:count]))
        train.append(np.sort(shuffled[count:]))
    return replace(data, train=Rows.of(train), validation=Rows.of(held_out))
