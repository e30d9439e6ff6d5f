"""Losses, correct examples and gradients of clients by the compiled code, shared among the engine's threads."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from fedbench.data.dataset import FederatedDataset, Rows
from fedbench.simulation.compiled.dense import DenseKernel
from fedbench.simulation.engine import Engine, balanced

_PIECE = 4096  # examples of a client that one call measures


def sums_of_clients(
    kernel: DenseKernel,
    data: FederatedDataset,
    rows: Rows,
    ids: np.ndarray,
    w: Tensor,
    engine: Engine,
    hits: bool,
    threads: bool = True,
) -> list[Tensor]:
    """The sums of the losses and, with ``hits``, the correct examples of each client, [C] float64 each.

    Args:
        kernel: The compiled code.
        data: A data set that it reads.
        rows: The training, test or validation rows.
        ids: The clients [C].
        w: One model [P], or a model for each client [C, P].
        engine: How the measurement is carried out.
        hits: Whether to count correct examples too.
        threads: Whether to use the engine's worker threads.
    """
    owner, starts, counts = _pieces(rows, ids)
    found = np.zeros((1 + hits, len(owner)))

    def part(share: np.ndarray) -> None:
        models = w if w.dim() == 1 else w[torch.from_numpy(owner[share])]
        sums = kernel.measure(data, rows.index, starts[share], counts[share], models, hits=hits)
        for total, some in zip(found, sums, strict=False):
            assert some is not None
            total[share] = some.numpy()  # no set of examples is in two shares

    most = most_clients(kernel, engine) if w.dim() == 2 else None  # the models of a share are copied
    shares = balanced(counts, kernel.threads(int(counts.sum()), engine.workers) if threads else 1, most)
    if threads:
        engine.map(part, shares)
    else:
        for share in shares:
            part(share)
    return [torch.from_numpy(np.bincount(owner, values, len(ids))) for values in found]


def gradients(
    kernel: DenseKernel, data: FederatedDataset, rows: Rows, ids: np.ndarray, w: Tensor, engine: Engine
) -> tuple[Tensor, Tensor]:
    """F_k(w) [C] float64 and ∇F_k(w) [C, P] of one model w [P] over all examples of each client."""
    starts, counts = rows.starts[ids], rows.counts[ids]
    loss, grad = torch.empty(len(ids), dtype=torch.float64), w.new_empty(len(ids), len(w))

    def part(share: np.ndarray) -> None:
        f, _ = kernel.measure(data, rows.index, starts[share], counts[share], w, gradients=(grad, share))
        loss[torch.from_numpy(share)] = f  # no client is in two shares

    threads = kernel.threads(int(counts.sum()), engine.workers)
    engine.map(part, balanced(counts, threads, most_clients(kernel, engine)))
    return loss / torch.from_numpy(np.maximum(counts, 1)), grad


def most_clients(kernel: DenseKernel, engine: Engine) -> int:
    """Largest number of clients, each with a model of its own, that one call measures."""
    return engine.at_once("clients", kernel.most_clients)


def _pieces(rows: Rows, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The examples of clients, cut where they are very many, so that threads can share them.

    Returns:
        The client of each piece as a position in ``ids``, where its rows begin, and its number of examples; clients
        without examples have no piece.
    """
    starts, counts = rows.starts[ids], rows.counts[ids]
    if counts.max(initial=0) <= _PIECE:
        owner = np.flatnonzero(counts)
        return owner, starts[owner], counts[owner]
    pieces = -(-counts // _PIECE)
    owner = np.repeat(np.arange(len(ids)), pieces)
    first = (np.arange(len(owner)) - np.repeat(np.cumsum(pieces) - pieces, pieces)) * _PIECE
    return owner, starts[owner] + first, np.minimum(counts[owner] - first, _PIECE)
