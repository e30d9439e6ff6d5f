"""Training examples that are held out for validation, client by client."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fedbench.core.randomness import DataPurpose, data_generator
from fedbench.data.dataset import FederatedDataset, Rows


def with_validation(data: FederatedDataset, fraction: float, seed: int) -> FederatedDataset:
    """Return the data set with a fraction of every client's training examples held out; test examples stay.

    A client with n training examples holds out int(fraction n) of them, drawn at random, and keeps at least one. The
    draw of a client depends on the seed, on its number and on n alone. What training does to labels has been done
    before: where training labels are noisy, so are those of the held-out examples.

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
