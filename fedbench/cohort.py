"""One round of local work: cohorts cut into chunks, chunks trained, uploads put together again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from fedbench.algorithm import Algorithm
from fedbench.batches import LocalWork, Plan
from fedbench.data.federated import FederatedDataset
from fedbench.engine import Engine, chunks
from fedbench.probes import GradientPlan, mean_losses
from fedbench.task import Task
from fedbench.types import Batch, ClientInfo, Oracle, State


def train_cohort(
    algo: Algorithm,
    oracle: Oracle,
    msg: State,
    clients: State,
    info: ClientInfo,
    batches: Iterable[tuple[Batch, int]],
) -> tuple[State, State]:
    """Carry out the local phase of one chunk.

    Args:
        algo: the method.
        oracle: computes losses and gradients.
        msg: the broadcast.
        clients: lasting states of the chunk's clients, [C, ...].
        info: of the chunk's clients, ordered by steps, most first; leaves [C].
        batches: (batch, A) per step; the first A clients are still at work.

    Returns:
        The uploads and the new lasting states, [C, ...].
    """
    count, info = len(info.id), info.columns()
    local = {k: v.expand(count, *v.shape[-1:]) for k, v in algo.start(msg, clients, info).items()}
    finished: State = {}
    active, here = count, info
    for batch, k in batches:
        if k < active:
            _put_away(finished, local, k, active, count)
            local = {name: v[:k] for name, v in local.items()}
            active, here = k, info.head(k)
        local = algo.step(oracle, msg, local, batch, here)
    _put_away(finished, local, 0, active, count)
    return algo.finish(msg, clients, finished, info)


def _put_away(finished: State, local: State, start: int, stop: int, count: int) -> None:
    """Copy the clients start..stop out of ``local``; a view of it would keep the whole chunk's memory alive."""
    for name, v in local.items():
        if name not in finished:
            finished[name] = v.new_empty(count, *v.shape[1:])
        finished[name][start:stop] = v[start:]


class Cohort:
    """The clients of one round with the plan of their work; reused while the same clients do the same work.

    Args:
        ids: [C] ascending.
        tau: [C] local steps.
        data: the data set.
        work: the local work.
        engine: how it is carried out.
    """

    def __init__(
        self, ids: np.ndarray, tau: np.ndarray, data: FederatedDataset, work: LocalWork, engine: Engine
    ) -> None:
        self.ids, self.tau, self.data, self.engine = ids, tau, data, engine
        parts = chunks(ids, tau, work.widths(data.train.counts[ids]), engine.cohort_size)
        device = data.x.device
        self._parts = [torch.from_numpy(p).to(device) for p in parts]
        self._plans = [Plan(ids[p], tau[p], data, work) for p in parts]
        self._back = torch.from_numpy(np.argsort(np.concatenate(parts))).to(device)
        n = torch.from_numpy(data.train.counts[ids]).to(device, data.dtype)
        self._facts = {
            "id": torch.from_numpy(ids).to(device),
            "n": n,
            "steps": torch.from_numpy(tau).to(device, data.dtype),
            "lr": torch.full_like(n, work.lr),
        }

    def same(self, ids: np.ndarray, tau: np.ndarray, data: FederatedDataset) -> bool:
        """Return whether this is the cohort of these clients with this work."""
        return data is self.data and np.array_equal(ids, self.ids) and np.array_equal(tau, self.tau)

    def info(self, weights: str, probe: State) -> ClientInfo:
        """Return the facts of the cohort, leaves [C]; p by size or uniform."""
        n = self._facts["n"]
        p = n / n.sum() if weights == "size" else torch.full_like(n, 1 / len(n))
        return ClientInfo(**self._facts, p=p, probe=probe)

    @cached_property
    def _gradients(self) -> GradientPlan:
        return GradientPlan(self.data, self.ids, self.engine)

    def probe(self, algo: Algorithm, task: Task, w: Tensor, initial_losses: Tensor | None) -> State:
        """Return what ``algo.needs`` at the broadcast model w [P], leaves [C] (a gradient [C, P])."""
        found: State = {}
        if "loss" in algo.needs:
            found["loss"] = mean_losses(task, self.data, self.ids, w, self.engine)
        if "grad" in algo.needs:
            found["grad"] = self._gradients.measure(w)
        if "loss_init" in algo.needs and initial_losses is not None:
            found["loss_init"] = initial_losses[self._facts["id"]]
        return found

    @torch.no_grad()
    def train(
        self, algo: Algorithm, msg: State, clients: State, info: ClientInfo, seed: int, round: int
    ) -> tuple[State, State]:
        """Return the uploads and new lasting states [C, ...] of the whole cohort, in the order of ``ids``."""

        @torch.no_grad()
        def work(part: tuple[Tensor, Plan]) -> tuple[State, State]:
            rows, plan = part
            here = info.take(rows)
            lasting = {k: v.index_select(0, here.id) for k, v in clients.items()}
            return train_cohort(algo, self.engine.oracle, msg, lasting, here, plan.batches(seed, round))

        done = self.engine.map(work, zip(self._parts, self._plans, strict=True))
        return self._join([up for up, _ in done]), self._join([mine for _, mine in done])

    def _join(self, parts: Sequence[State]) -> State:
        return {k: torch.cat([p[k] for p in parts]).index_select(0, self._back) for k in parts[0]}
