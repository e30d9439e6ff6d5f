"""The cost of a method in communication, storage and computation, measured on three clients."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from fedbench.core.algorithm import Algorithm, Stage
from fedbench.core.samplers import sample_cohort
from fedbench.core.types import Batch, Oracle, nbytes
from fedbench.data.dataset import FederatedDataset, Rows
from fedbench.models.dense import Linear
from fedbench.simulation.batches import LocalWork
from fedbench.simulation.engine import Engine
from fedbench.simulation.loop import simulate
from fedbench.simulation.oracles import make_oracle
from fedbench.simulation.task import Task

_CLIENTS, _FEATURES = 3, 2000


@dataclass(frozen=True)
class Cost:
    """The cost of a method per client; messages and states are in multiples of the model, scalars are ignored.

    Attributes:
        broadcast: Size of the broadcast of a round.
        upload: Size of the upload of a round.
        first: Size of both messages of the exchange before the first round.
        state: Size of the state that a client keeps between rounds.
        gradients: Number of gradients per local step, including a second local phase.
        needs: Names of the probes.
    """

    broadcast: int
    upload: int
    first: int
    state: int
    gradients: int
    needs: tuple[str, ...]

    def text(self) -> str:
        """Return one line: broadcast/upload, followed by the other costs that are not the minimum."""
        parts = [f"{self.broadcast}/{self.upload}"]
        parts += [f"first {self.first // 2}/{self.first // 2}"] if self.first else []
        parts += [f"state {self.state}"] if self.state else []
        parts += [f"gradients {self.gradients}"] if self.gradients > 1 else []
        return ", ".join(parts)


class _Counting:
    """An oracle that counts the gradients it computes."""

    def __init__(self, oracle: Oracle) -> None:
        self.oracle, self.count = oracle, 0

    def grad(self, w: Tensor, batch: Batch) -> Tensor:
        """Return the gradients [A, P]."""
        self.count += len(w)
        return self.oracle.grad(w, batch)

    def loss_and_grad(self, w: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the losses [A, 1] and the gradients [A, P]."""
        self.count += len(w)
        return self.oracle.loss_and_grad(w, batch)

    def logits(self, w: Tensor, x: Tensor) -> Tensor:
        """Return the logits [A, B, classes]."""
        return self.oracle.logits(w, x)


def cost(method: Algorithm | list[Stage]) -> Cost:
    """Return the cost of a method; of several stages the cost of the last, which must have at least 2 rounds."""
    stages = [Stage(method, 2)] if isinstance(method, Algorithm) else method
    algo = stages[-1].algorithm
    oracle = _Counting(make_oracle(_task(), "stacked"))
    engine = Engine(oracle, "stacked", _CLIENTS)
    w = torch.zeros(_task().size)
    run = simulate(stages, _task(), _data(), LocalWork(1e-3, None), engine, w, 0, sample_cohort())
    seen = []
    before = sum(s.rounds for s in stages[:-1])
    for snapshot in run:
        if before <= snapshot.round <= before + 2:
            seen.append((snapshot.bytes_down, snapshot.bytes_up, oracle.count))
    probes = _CLIENTS * ("grad" in algo.needs)
    size = nbytes({"w": w}) * _CLIENTS
    (d0, u0, _), (d1, u1, g1), (d2, u2, g2) = seen
    return Cost(
        broadcast=(d2 - d1) // size,
        upload=(u2 - u1) // size,
        first=round(((d1 - d0) - (d2 - d1) + (u1 - u0) - (u2 - u1)) / size),
        state=nbytes(snapshot.clients) // size,
        gradients=(g2 - g1 - probes) // _CLIENTS,
        needs=tuple(sorted(algo.needs)),
    )


def _task() -> Task:
    with torch.device("meta"):
        model: nn.Module = Linear((_FEATURES,), 2)
    return Task(model, torch.device("cpu"), torch.float32)


def _data() -> FederatedDataset:
    x = torch.ones(2 * _CLIENTS, _FEATURES) * torch.arange(1.0, 2 * _CLIENTS + 1).unsqueeze(1)
    rows = [np.arange(2 * k, 2 * k + 2) for k in range(_CLIENTS)]
    names = tuple(map(str, range(_CLIENTS)))
    y = torch.arange(2 * _CLIENTS) % 2
    return FederatedDataset(x, y, Rows.of(rows), Rows.of(rows), names, classes=2)
