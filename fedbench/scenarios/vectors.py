"""Selection of the vectors in messages, and float64 arithmetic over clients.

Rows are [C, P], one vector per client.
"""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from fedbench.core.types import State
from fedbench.scenarios.layers import shown
from fedbench.simulation.statistics import STATISTICS

_BLOCK = 2**20  # number of values converted to float64 at once


def vectors(sent: State, shape: torch.Size) -> State:
    """Return the vectors [P] or [c, P] in a message or in uploads, in the order of their names.

    Args:
        sent: The message or uploads. Scalars [c, 1], masks (which are packed), running
            statistics and entries of scenarios are not vectors.
        shape: Shape [P] of the model.
    """
    return {
        k: v
        for k, v in sorted(shown(sent).items())
        if v.is_floating_point() and v.shape[-1:] == shape and k != STATISTICS
    }


def blocks(rows: Tensor) -> Iterator[Tensor]:
    """Yield rows [C, P] in column blocks of moderate size."""
    width = max(1, _BLOCK // len(rows))
    yield from rows.split(width, 1)


def by_columns(f: Callable[[Tensor], Tensor], rows: Tensor) -> Tensor:
    """Return f(rows) for a column-wise function [C, n] -> [..., n], in float64."""
    results = [f(block.double()) for block in blocks(rows)]
    return torch.cat(results, -1)


def shrunk(lengths: Tensor, radius: float | Tensor) -> Tensor:
    """Return min(1, radius / length) for lengths [C], and 1 for length 0."""
    return torch.where(lengths > radius, radius * lengths.reciprocal(), 1)


def squared_distances(rows: Tensor) -> Tensor:
    """Return the squared distances between rows, [C, C] float64 and exactly symmetric."""
    count = len(rows)
    upper = rows.new_zeros(count, count, dtype=torch.float64)
    i, j = torch.triu_indices(count, count, 1, device=rows.device)
    for block in blocks(rows):
        upper[i, j] += torch.pdist(block.double()).square()
    return upper + upper.T
