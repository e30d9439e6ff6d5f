"""Label noise: training labels made wrong on purpose, for any method."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from fedbench.core.options import LabelNoise
from fedbench.core.randomness import DataPurpose, data_generator
from fedbench.data.dataset import FederatedDataset


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
