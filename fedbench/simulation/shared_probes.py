"""Measurements of one model that the method, the evaluation and the diagnostics share."""

from __future__ import annotations

from collections.abc import Set
from typing import NamedTuple
from weakref import ref

import numpy as np
import torch
from torch import Tensor

from fedbench.core.transfers import upload
from fedbench.core.types import State
from fedbench.data.dataset import FederatedDataset, Rows
from fedbench.simulation.engine import Engine
from fedbench.simulation.probes import ExamplePlan, client_sums
from fedbench.simulation.task import Task

_KEPT = 4  # plans, and sums: those of all clients, and of a cohort before and after its round


class _Examples(NamedTuple):
    """The training or test examples of some clients."""

    data: FederatedDataset
    rows: Rows
    ids: np.ndarray

    def same(self, other: _Examples) -> bool:
        """Return whether these are the same examples."""
        return self.data is other.data and self.rows is other.rows and np.array_equal(self.ids, other.ids)


class SharedProbes:
    """Losses, accuracies and gradients on clients' own examples, each computed once however many ask for it.

    The numbers do not depend on who asks first, nor on whether they were kept: only what would be computed in the very
    same way is shared. A model is recognised as an object, which must not be changed in place.

    Args:
        task: The model and its loss.
        engine: How the measurement is carried out.
    """

    def __init__(self, task: Task, engine: Engine) -> None:
        self.task, self.engine = task, engine
        self._plans: list[tuple[_Examples, ExamplePlan]] = []
        self._sums: list[tuple[_Examples, ref[Tensor], list[Tensor]]] = []  # models are not kept alive for this
        self._ahead: tuple[_Examples, ref[Tensor], tuple[Tensor, Tensor]] | None = None

    def plan(self, data: FederatedDataset, rows: Rows, ids: np.ndarray) -> ExamplePlan:
        """Return the plan of the clients ``ids`` [C]."""
        asked = _Examples(data, rows, ids)
        known = next((entry for entry in self._plans if entry[0].same(asked)), None)
        entry = known or (asked, ExamplePlan(data, rows, ids, self.engine))
        self._plans = [entry, *(other for other in self._plans if other is not entry)][:_KEPT]
        return entry[1]

    def sums(self, data: FederatedDataset, rows: Rows, ids: np.ndarray, w: Tensor, hits: bool = False) -> list[Tensor]:
        """Return what ``client_sums`` does: losses and, with ``hits`` or if known, correct examples, [C] float64 each.

        Args:
            data: The data set.
            rows: Its training or test rows.
            ids: The clients [C].
            w: The model [P].
            hits: Whether to count correct examples too.
        """
        asked = _Examples(data, rows, ids)
        for examples, model, sums in self._sums:
            if model() is w and len(sums) > hits and examples.same(asked):
                return sums
        sums = client_sums(self.task, data, rows, ids, w, self.engine, hits)
        self._sums = [(asked, ref(w), sums), *self._sums][:_KEPT]
        return sums

    def mean_losses(self, data: FederatedDataset, ids: np.ndarray, w: Tensor) -> Tensor:
        """Return F_k(w), the mean loss over all training examples, of each client, [C] float64."""
        total = self.sums(data, data.train, ids, w)[0]
        return total / upload(data.train.counts[ids], total.device, total.dtype)

    def losses_of_several(self, data: FederatedDataset, ids: np.ndarray, models: Tensor) -> Tensor:
        """Return F_k of several models [J, P] that are not shared with other measurements, [C, J] float64."""
        sums = [client_sums(self.task, data, data.train, ids, w, self.engine)[0] for w in models]
        n = upload(data.train.counts[ids], sums[0].device, sums[0].dtype)
        return torch.stack([total / n for total in sums], 1)

    def measure_ahead(self, data: FederatedDataset, ids: np.ndarray, w: Tensor, needs: Set[str]) -> Tensor | None:
        """Measure what ``at_broadcast`` will be asked for next, and keep it until then.

        Returns:
            The sum of the training losses of each client, [C] float64, if gradients are needed, whose forward pass has
            them; they differ by rounding from those of ``sums``. None otherwise.
        """
        if "grad" not in needs:
            self.at_broadcast(data, ids, w, needs)
            return None
        mean, grad = self.plan(data, data.train, ids).gradients(w)
        self._ahead = (_Examples(data, data.train, ids), ref(w), (mean, grad))
        return mean * upload(data.train.counts[ids], mean.device, mean.dtype)

    def at_broadcast(self, data: FederatedDataset, ids: np.ndarray, w: Tensor, needs: Set[str]) -> State:
        """Return those of "loss", "accuracy" and "grad" that are in ``needs``, leaves [C] (a gradient [C, P])."""
        found: State = {}
        if "grad" in needs:
            found["loss"], found["grad"] = self._gradients(data, ids, w)
        if "accuracy" in needs or ("loss" in needs and not found):
            sums = self.sums(data, data.train, ids, w, hits="accuracy" in needs)
            n = upload(data.train.counts[ids], sums[0].device, sums[0].dtype)
            found |= dict(zip(("loss", "accuracy"), (v / n for v in sums), strict=False))
        self._ahead = None  # not asked for, as where the next stage needs no gradients
        return {k: v for k, v in found.items() if k in needs}

    def _gradients(self, data: FederatedDataset, ids: np.ndarray, w: Tensor) -> tuple[Tensor, Tensor]:
        """Return F_k(w) [C] float64 and ∇F_k(w) [C, P], those that were measured ahead or new ones."""
        kept, self._ahead = self._ahead, None  # gradients are large: they are handed out once
        if kept is not None and kept[1]() is w and kept[0].same(_Examples(data, data.train, ids)):
            return kept[2]
        return self.plan(data, data.train, ids).gradients(w)
