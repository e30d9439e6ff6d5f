"""A data set of one's own, and a rule that divides it among clients."""

from typing import Annotated

import numpy as np
from pydantic import Field

from fedbench.core.options import Count
from fedbench.data.examples import Examples


def load(seed: int, *, sectors: Annotated[int, Field(ge=2)] = 8, examples: Count = 600) -> Examples:
    """Points on a disk, labelled by the sector that they lie in; a quarter of them are set apart as test examples.

    Args:
        seed: The key data.seed.
        sectors: Number of sectors, which are the classes.
        examples: Number of points.
    """
    rng = np.random.default_rng([seed, 31])
    angle, radius = rng.uniform(0, 2 * np.pi, examples), np.sqrt(rng.uniform(0.1, 1, examples))
    x = np.stack([radius * np.cos(angle), radius * np.sin(angle)], 1).astype(np.float32)
    y = (angle * sectors / (2 * np.pi)).astype(np.int64)
    return Examples(
        x=x,
        y=y,
        classes=sectors,
        held_out=np.arange(examples) % 4 == 3,
        sources=("wheel: generated",),
    )


def neighbours(
    y: np.ndarray, clients: int, rng: np.random.Generator, *, classes: Count = 2
) -> list[np.ndarray]:
    """Client k has the classes k, k + 1, ... (modulo their number), each dealt out equally among its holders.

    Args:
        y: Labels of the examples that are not test examples, [T].
        clients: Number of clients.
        rng: Generator of data.seed.
        classes: Classes of each client.
    """
    count = int(y.max()) + 1
    owned: list[list[np.ndarray]] = [[] for _ in range(clients)]
    for c in range(count):
        holders = [k for k in range(clients) if (c - k) % count < classes]
        rows = rng.permutation(np.flatnonzero(y == c))
        for place, k in enumerate(holders):
            owned[k].append(rows[place :: len(holders)])
    return [np.concatenate([*parts, np.empty(0, dtype=np.int64)]) for parts in owned]
