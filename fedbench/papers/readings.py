"""Readings: the choices that a paper leaves open and that a verdict may depend on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Reading:
    """A way to read a paper's numbers; ``Reading()`` is the one that fedbench adopts.

    Attributes:
        weighting: Weights of the clients in statistics over clients: ``adopted`` for those of the paper's columns,
            else ``unweighted``, or ``weighted`` by their test examples.
        round: Round of a run whose number counts: ``adopted`` for that of the table, else ``last`` or ``best``.
        splits: ``fixed`` for the data that the experiment draws, with the training seeds as blocks; ``drawn`` for all
            splits (data seeds) that have been run, with the splits as blocks.
        variant: Id of a documented alternative of the paper's settings; None for the adopted settings.
    """

    weighting: Literal["adopted", "unweighted", "weighted"] = "adopted"
    round: Literal["adopted", "last", "best"] = "adopted"
    splits: Literal["fixed", "drawn"] = "fixed"
    variant: str | None = None
