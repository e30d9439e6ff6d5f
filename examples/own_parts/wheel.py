"""A custom data set, and a partition that divides it among clients."""

from typing import Annotated

import numpy as np
from pydantic import Field

from fedbench.core.options import Count
from fedbench.data.examples import Examples


def load(
    seed: int,
    *,
    sectors: Annotated[int, Field(ge=2)] = 8,
    examples: Count = 600,
) -> Examples:
    """Draw points on a disk, labelled by their sector; every fourth is a test example.

    Args:
        seed: Seed of the points (``data.seed``).
        sectors: Number of sectors, which are the classes.
        examples: Number of points.
    """
    rng = np.random.default_rng([seed, 31])
    angle = rng.uniform(0, 2 * np.pi, examples)
    radius = np.sqrt(rng.uniform(0.1, 1, examples))
    x = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1).astype(np.float32)
    y = (angle * sectors / (2 * np.pi)).astype(np.int64)
    return Examples(
        x=x,
        y=y,
        classes=sectors,
        held_out=np.arange(examples) % 4 == 3,
        sources=("wheel: generated",),
    )


def neighbours(
    y: np.ndarray,
    clients: int,
    rng: np.random.Generator,
    *,
    classes: Count = 2,
) -> list[np.ndarray]:
    """Give client k the classes k, k + 1, ..., modulo their number.

    The clients that hold a class share its examples equally.

    Args:
        y: Labels of the training examples [T].
        clients: Number of clients.
        rng: Random generator, seeded by ``data.seed``.
        classes: Number of classes of each client.

    Returns:
        The indices of each client's examples.
    """
    count = int(y.max()) + 1
    nothing = np.empty(0, dtype=np.int64)
    indices = [nothing for _ in range(clients)]
    for c in range(count):
        holders = [k for k in range(clients) if (c - k) % count < classes]
        examples = rng.permutation(np.flatnonzero(y == c))
        for i, k in enumerate(holders):
            part = examples[i :: len(holders)]
            indices[k] = np.concatenate([indices[k], part])
    return indices
