"""The outcome of the local phases of a cohort, put together by several threads as its parts finish."""

from __future__ import annotations

import threading
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedbench.core.types import State, nbytes


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
