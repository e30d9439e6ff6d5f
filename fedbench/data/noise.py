"""Label noise: wrong training labels at some clients."""

from dataclasses import replace

import numpy as np
import torch

from fedbench.core.options import LabelNoise
from fedbench.core.randomness import DataPurpose, data_generator
from fedbench.data.dataset import FederatedDataset


def with_label_noise(
    data: FederatedDataset, noise: LabelNoise, seed: int
) -> tuple[FederatedDataset, np.ndarray]:
    """Return the data with noisy training labels, and the noise level of each client [N].

    Test labels are unchanged (Xu et al., CVPR 2022, Sec. 4.1; generalised to the data set's number
    of classes).
    """
    rng = data_generator(seed, DataPurpose.LABEL_NOISE)
    clients = data.num_clients
    noisy_client = rng.random(clients) < noise.clients
    drawn = rng.uniform(noise.level, 1, clients)
    level = np.where(noisy_client, drawn, 0.0)

    y = data.y.numpy(force=True).copy()
    rows = data.train.index.numpy(force=True)
    clean = y[rows]
    rate = np.repeat(level, data.train.counts)
    if clean.ndim > 1:  # a label per token
        rate = rate[:, None]
    redrawn = rate > rng.random(clean.shape)
    noisy = (clean + 1) % data.classes
    if noise.kind == "uniform":
        noisy = rng.integers(0, data.classes, clean.shape)
    y[rows] = np.where(redrawn, noisy, clean)

    wrong = (y[rows] != clean).sum()
    note = (
        f"label noise: {(level > 0).sum()} of {clients} clients, "
        f"{wrong} of {clean.size} training labels"
    )
    labels = torch.from_numpy(y).to(data.y.device)
    noisy_data = replace(
        data,
        y=labels,
        sources=(*data.sources, note),
    )
    return noisy_data, level
