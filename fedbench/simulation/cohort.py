"""One round of local work: cohorts are cut into parts, the parts are trained, their outcomes are put together."""

from __future__ import annotations

import threading
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedbench.core.algorithm import Algorithm, weighted_sum
from fedbench.core.randomness import Purpose, hashes, key
from fedbench.core.types import ClientInfo, State, nbytes, upload
from fedbench.data.dataset import FederatedDataset
from fedbench.simulation.batches import LocalWork
from fedbench.simulation.client_states import client_rows, write_rows
from fedbench.simulation.compiled.dense import SHARE_BYTES
from fedbench.simulation.engine import Engine, balanced, chunks
from fedbench.simulation.local_phases import Part

_HELD_BYTES = 2**28  # uploads of a cohort up to this size are held at once; they are added up part by part above it
_LEAST_SHARES = 8  # shares of a cohort whose models do not fit into one, for as many threads


class Trained(NamedTuple):
    """The outcome of the local phase of a cohort."""

    uploads: State  # [C, ...]; [P] of those that are added up
    client_states: State  # [C, ...]; empty if they are where they belong
    after: State  # measured at the local models, [C]
    bytes_up: int


class Gathered:
    """What the parts of a cohort have brought so far; the methods may be called by several threads.

    Sums are formed in the order of the parts, whichever finishes first.

    Args:
        count: Number of clients of the cohort.

    Attributes:
        uploads: Uploads that are not added up, [C, ...].
        client_states: New states of the clients, [C, ...].
        after: What is measured at the local models, [C].
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self.uploads: State = {}
        self.client_states: State = {}
        self.after: State = {}
        self._missing = np.ones(count, dtype=bool)
        self._bytes_up = self._next = 0
        self._waiting: dict[int, State] = {}
        self._sums: State = {}
        self._types: dict[str, torch.dtype] = {}
        self._lock = threading.Lock()

    def missing(self) -> np.ndarray:
        """Return the positions of the clients that have not finished, and number the parts from 0 again."""
        for number in sorted(self._waiting):  # an allocation error has left a gap before these
            self._add(self._waiting.pop(number))
        self._next = 0
        return np.flatnonzero(self._missing)

    def put(self, total: State, rows: Tensor | slice, some: State) -> None:
        """Copy what the clients at ``rows`` have to their places in ``total``."""
        for name, v in some.items():
            with self._lock:
                if name not in total:
                    total[name] = v.new_empty(self.count, *v.shape[1:])
            total[name][rows] = v

    def finish(self, number: int, positions: np.ndarray, sums: State, uploads: State) -> None:
        """Note that part ``number`` has finished, and add its sums [P] float64 to those of the parts before it.

        Args:
            number: Number of the part.
            positions: Positions of its clients.
            sums: Weighted sums of its uploads.
            uploads: All its uploads, which are counted.
        """
        with self._lock:
            self._missing[positions] = False
            self._bytes_up += nbytes(uploads)
            self._types |= {k: uploads[k].dtype for k in sums}
            self._waiting[number] = sums
            while self._next in self._waiting:
                self._add(self._waiting.pop(self._next))
                self._next += 1

    def _add(self, sums: State) -> None:
        for name, v in sums.items():
            self._sums[name] = self._sums[name].add_(v) if name in self._sums else v

    def trained(self) -> Trained:
        """Return the outcome of the whole cohort."""
        sums = {k: v.to(self._types[k]) for k, v in self._sums.items()}
        return Trained(self.uploads | sums, self.client_states, self.after, self._bytes_up)


class Cohort:
    """The clients of one round with the plan of their work; reused while the same clients do the same work.

    Args:
        ids: The clients [C], ascending.
        tau: Their local steps [C].
        data: The data set.
        work: The local work.
        engine: How the work is carried out.
        seed: Random seed of the run.
        purpose: The stream that the order of the examples is drawn from.
    """

    def __init__(
        self,
        ids: np.ndarray,
        tau: np.ndarray,
        data: FederatedDataset,
        work: LocalWork,
        engine: Engine,
        seed: int,
        purpose: Purpose = Purpose.BATCHES,
    ) -> None:
        self.ids, self.tau, self.data, self.work, self.engine = ids, tau, data, work, engine
        self.seed, self.purpose = seed, purpose
        n, device = data.train.counts[ids], data.x.device
        count = upload(n, device, data.dtype)
        self._parts: dict[bool, list[Part]] = {}
        self._weights: State = {}
        self._lr: tuple[float, Tensor] | None = None
        self._limits = engine.limits
        self._facts = {
            "id": upload(ids, device),
            "n": count,
            "steps": upload(tau, device, data.dtype),
            "per_epoch": upload(work.per_epoch(n), device, data.dtype),
        }

    def same(self, ids: np.ndarray, tau: np.ndarray, data: FederatedDataset) -> bool:
        """Return whether this is the cohort of these clients with this work."""
        return data is self.data and np.array_equal(ids, self.ids) and np.array_equal(tau, self.tau)

    def info(self, weights: str, probe: State, round: int) -> ClientInfo:
        """Return the facts of the cohort, leaves [C]; ``weights`` is "size" or "uniform" and decides p."""
        if weights not in self._weights:
            n = self._facts["n"]
            self._weights[weights] = n / n.sum() if weights == "size" else torch.full_like(n, 1 / len(n))
        draws = upload(hashes(key(self.seed, Purpose.LOCAL, round), self.ids), self.data.x.device)
        return ClientInfo(**self._facts, lr=self._rate(round), p=self._weights[weights], key=draws, probe=probe)

    def _rate(self, round: int) -> Tensor:
        """Return η_l of every client in this round, [C]."""
        rate = self.work.rate(round)
        if self._lr is None or self._lr[0] != rate:
            self._lr = rate, torch.full_like(self._facts["n"], rate)
        return self._lr[1]

    def _compiled(self, algo: Algorithm) -> bool:
        """Return whether there is compiled code for the local phase of a method."""
        kernel = self.engine.kernel
        if kernel is None or self.work.random or self.work.augment:
            return False
        return kernel.carries_out(algo.step) and kernel.reads(self.data)

    @torch.no_grad()
    def train(
        self,
        algo: Algorithm,
        msg: State,
        clients: State,
        info: ClientInfo,
        round: int,
        weights: State | None = None,
        in_place: bool = False,
    ) -> Trained:
        """Return the outcome of the local phase of the whole cohort, in the order of ``ids``.

        Args:
            algo: The method.
            msg: The broadcast.
            clients: States of all clients, [N, ...].
            info: Facts of the cohort; leaves [C].
            round: Rounds done before this one.
            weights: Weights [C] of the uploads that are added up, by name.
            in_place: Whether the new states of the clients replace the old ones in ``clients``.

        Raises:
            OutOfMemory: If the local phase of one client does not fit.
        """
        compiled, weights = self._compiled(algo), weights or {}
        held = len(self.ids) * nbytes({"w": msg["w"]})
        by_part = held > (SHARE_BYTES if compiled else _HELD_BYTES)
        summed = weights if by_part else {}
        measured = algo.needs & {"loss_after", "accuracy_after"}
        gathered = Gathered(len(self.ids))

        def work(task: tuple[int, Part]) -> None:
            number, part = task
            own = info.take(part.rows)
            states = client_rows(clients, own.id)
            uploads, states, last = part.local_phase(algo, msg, states, own, self.seed, round, self.purpose)
            if measured:
                found = part.examples.sums(last["w"], hits="accuracy_after" in algo.needs, threads=False)
                means = dict(zip(("loss_after", "accuracy_after"), (v / own.n for v in found), strict=False))
                gathered.put(gathered.after, part.rows, {k: v for k, v in means.items() if k in algo.needs})
            gathered.put(gathered.uploads, part.rows, {k: v for k, v in uploads.items() if k not in summed})
            sums = {k: self._sum(v[part.rows], uploads[k]) for k, v in summed.items()}
            if in_place:
                write_rows(clients, own.id, states)
            else:
                gathered.put(gathered.client_states, part.rows, states)
            gathered.finish(number, part.positions, sums, uploads)

        self.engine.within_memory(
            lambda: self.engine.map(work, list(enumerate(self._cut(compiled, gathered.missing())))),
            "clients",
            lambda: max(len(part.positions) for part in self._cut(compiled, gathered.missing())),
            "the local phase of one client does not fit into memory next to the uploads of the others; use a smaller "
            "local.batch_size, model or participation",
        )
        trained = gathered.trained()
        if not by_part:
            sums = {k: weighted_sum(v, trained.uploads[k]).to(trained.uploads[k].dtype) for k, v in weights.items()}
            trained.uploads.update(sums)
        return trained

    def _sum(self, weights: Tensor, values: Tensor) -> Tensor:
        """Return Σ ω_k v_k in float64, ω [C] and v [C, P]."""
        kernel = self.engine.kernel
        if kernel is not None and values.dtype == self.data.dtype:
            return kernel.weighted_sum(weights, values)
        return weighted_sum(weights, values)

    def _cut(self, compiled: bool, positions: np.ndarray) -> list[Part]:
        """Return the clients at ``positions`` in parts; those of the whole cohort are kept."""
        if self._limits != self.engine.limits:  # an allocation error has lowered what is done at once
            self._limits = self.engine.limits
            self._parts.clear()
        cut = self._shares if compiled else self._chunks
        if len(positions) < len(self.ids):
            return cut(positions)
        if compiled not in self._parts:
            self._parts[compiled] = cut(positions)
        return self._parts[compiled]

    def _chunks(self, positions: np.ndarray) -> list[Part]:
        ids, tau = self.ids[positions], self.tau[positions]
        parts = chunks(ids, tau, self.work.widths(self.data.train.counts[ids]), self.engine.cohort_size)
        return [self._part(positions[p], compiled=False) for p in parts]

    def _shares(self, positions: np.ndarray) -> list[Part]:
        kernel = self.engine.kernel
        assert kernel is not None
        ids, tau = self.ids[positions], self.tau[positions]
        cost = tau * self.work.widths(self.data.train.counts[ids])
        count, most = len(ids), self.engine.at_once("clients", kernel.most_clients)
        if count <= most:
            parts = balanced(cost, kernel.threads(int(cost.sum()), self.engine.workers))
        else:  # sums over a large cohort depend on its shares, which must be the same for any number of workers
            parts = np.array_split(np.arange(count), min(count, max(-(-count // most), _LEAST_SHARES)))
            parts.sort(key=lambda p: -cost[p].sum())  # the longest first, so that no thread waits for it alone
        return [self._part(positions[p], compiled=True) for p in parts]

    def _part(self, at: np.ndarray, compiled: bool) -> Part:
        return Part(at, self.ids[at], self.tau[at], self.data, self.work, self.engine, compiled)
