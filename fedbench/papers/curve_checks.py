"""Checks of claims about the curves of a figure, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Annotated, Any, ClassVar, Literal

from pydantic import ValidationInfo, model_validator

from fedbench.core.metrics import is_field, lower_is_better
from fedbench.papers.parsing import (
    Entry,
    FigureId,
    Known,
    ListOrOne,
    RunField,
    SetupId,
    one_of,
)


@dataclass(frozen=True)
class Selection(Entry):
    """Runs of a figure.

    Attributes:
        algo: The method; ``others`` for all methods that the other side does not name, ``all`` for all methods.
        hyperparameters: Hyperparameters of the selected runs.
    """

    algo: str
    hyperparameters: dict[str, Any] = field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _of_method(cls, value: Any, info: ValidationInfo) -> Any:
        """Read a method's id, ``others``, ``all`` or ``{algo: ID, <hyperparameter>: value}``."""
        given = value if isinstance(value, Mapping) else {"algo": value}
        if "algo" not in given:
            raise ValueError(f"must be a method or a mapping with algo and hyperparameters; got {value!r}")
        if info.context is not None:
            one_of(given["algo"], [*info.context["methods"], "others", "all"])
        return {"algo": given["algo"], "hyperparameters": {k: v for k, v in given.items() if k != "algo"}}

    def fits(self, row: Any) -> bool:
        """Whether a row of the figure is selected."""
        if self.algo in ("others", "all"):
            return True
        return row.algo == self.algo and all(row.hyperparameters.get(k) == v for k, v in self.hyperparameters.items())

    def __str__(self) -> str:
        """Return the selection as it is written in the file."""
        pairs = {"algo": self.algo, **self.hyperparameters}
        return repr(pairs if self.hyperparameters else self.algo)


Selections = Annotated[tuple[Selection, ...], ListOrOne]


Measure = Literal[
    "area",
    "final",
    "tail",
    "roughness",
    "setbacks",
    "setbacks_early",
    "rounds",
    "rounds_pairwise",
    "below",
    "at_least",
    "cka",
]


LESS_IS_BETTER = ("roughness", "setbacks", "setbacks_early", "rounds", "rounds_pairwise", "below")


MORE_IS_BETTER = ("at_least", "cka")


_OF_CLIENTS = {"below", "at_least", "cka"}  # measures of the clients at the end, not of a curve


@dataclass(frozen=True)
class Curves(Entry):
    """A measure of the curves of some runs of a figure is better than that of others.

    Attributes:
        measure: Measures, each tested by itself.
        fields: Fields of the curves, each tested by itself; ``accuracy`` for below and at_least, ``moments`` for cka.
        setups: Setups of the figure; all of them if empty.
        threshold: Accuracy threshold of the measures below and at_least.
        share: What "far fewer" or "clearly smoother" is taken to mean: the number of the better side is below this
            share of that of the worse one, 0.8 say. For measures of which less is better and none is below 0.
    """

    kind: ClassVar[str] = "curves"
    figure: FigureId
    better: Selections
    worse: Selections
    measure: Annotated[tuple[Measure, ...], ListOrOne]
    fields: tuple[str, ...]
    setups: tuple[SetupId, ...] = ()
    threshold: float | None = None
    share: float | None = None

    def validate(self, known: Known) -> None:
        """Refuse fields that runs do not have, a missing threshold, a useless share, and selections without runs."""
        for name in self.fields:
            if not set(self.measure) <= _OF_CLIENTS and not is_field(name):
                raise ValueError(f"fields must be numbers that runs have, such as train_loss; got {name!r}")
        for measure in sorted({"below", "at_least"} & set(self.measure)):
            if self.threshold is None:
                raise ValueError(f"the measure {measure} needs threshold, an accuracy such as 0.5")
        if self.share is not None:
            self._validate_share(self.share)
        figure = known["figures"][self.figure]
        _refuse_empty(figure, self.setups or figure.setups, better=self.better, worse=self.worse)

    def _validate_share(self, share: float) -> None:
        if not 0 < share < 1:
            raise ValueError(f"share must be between 0 and 1, such as 0.8; got {share:g}")
        for measure, name in product(self.measure, self.fields):
            if measure not in LESS_IS_BETTER and (measure in MORE_IS_BETTER or not lower_is_better(name)):
                raise ValueError(
                    f"share needs numbers of which less is better, such as rounds or a training loss; "
                    f"got {measure} of {name}"
                )


@dataclass(frozen=True)
class Limit(Entry):
    """A measure of each of some runs of a figure stays on one side of a bound.

    Attributes:
        measure: ``area``, the mean over all rounds; ``tail``, the mean over the last tenth of the curve; ``decline``,
            that mean as a share of the first value; or ``seconds_over``, the last value divided by that of the
            reference.
        reference: The run of the measure seconds_over.
    """

    kind: ClassVar[str] = "limit"
    figure: FigureId
    methods: Selections
    measure: Literal["area", "tail", "decline", "seconds_over"]
    field: RunField
    at_least: float | None = None
    at_most: float | None = None
    reference: Selection | None = None

    def validate(self, known: Known) -> None:
        """Refuse a missing or second bound, a missing reference, and selections without runs."""
        if (self.at_least is None) == (self.at_most is None):
            raise ValueError("a limit has either at_least or at_most")
        if self.measure == "seconds_over" and self.reference is None:
            raise ValueError("seconds_over needs reference, the method whose seconds are compared")
        figure = known["figures"][self.figure]
        reference = () if self.reference is None else (self.reference,)
        _refuse_empty(figure, figure.setups, methods=self.methods, reference=reference)


def _refuse_empty(figure: Any, setups: tuple[str, ...], **sides: tuple[Selection, ...]) -> None:
    for key, selections in sides.items():
        for selection, setup in product(selections, setups):
            if not any(r.setup == setup and selection.fits(r) for r in figure.rows):
                raise ValueError(f"{key} {selection} selects no run of {figure.id} on {setup}")
