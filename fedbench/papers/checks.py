"""Checks of claims as data, one class per kind; ``fedbench.analysis.claims.judge`` runs them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field, ValidationInfo, model_validator

from fedbench.core.metrics import is_field, lower_is_better
from fedbench.core.validation import choice
from fedbench.papers.parsing import (
    Entry,
    FigureId,
    Known,
    ListOrOne,
    MethodId,
    Methods,
    MetricId,
    RunField,
    SetupId,
    TableId,
)

Metrics = Annotated[tuple[MetricId, ...], ListOrOne]
Setups = Annotated[tuple[SetupId, ...], ListOrOne]

# ---- tables


@dataclass(frozen=True)
class Place(Entry):
    """A setup in a table."""

    table: TableId
    setup: SetupId


@dataclass(frozen=True)
class Compare(Entry):
    """A check that, in every setup and metric, each better method is ahead of each worse one.

    Attributes:
        worse: The worse methods; all other rows if empty.
        at: Another place, in which each method of ``better`` is compared with itself; None for the
            same place.
        by: The lead that must be exceeded, in the printed unit (the interpretation of "clearly"). A
            negative value is a lag that must not be reached (non-inferiority). If it is negative
            and both lists contain the same methods, any two methods must differ by less: there is
            one comparison per pair, made up of two one-sided tests.
        label: Description of the check's only comparison; if empty, it is generated.
    """

    table: TableId
    setups: Setups
    metrics: Metrics
    better: Methods
    worse: Methods = ()
    at: Place | None = None
    by: float = 0.0
    label: str = ""
    kind: Literal["compare"] = "compare"


@dataclass(frozen=True)
class Trend(Entry):
    """A check that a metric tends to rise, or to fall, over some steps.

    Single steps may go the other way. There is one comparison per method: the rank correlation of
    the metric with all steps.

    Attributes:
        algo: The methods, each tested separately.
        over: ``setups``, in the order of ``order``, or a hyperparameter of the rows in one setup.
        order: The setups in order.
        setup: The setup in which the hyperparameter varies.
    """

    table: TableId
    metric: MetricId
    algo: Methods
    over: str
    trend: Literal["increasing", "decreasing"]
    order: tuple[SetupId, ...] = ()
    setup: SetupId | None = None
    kind: Literal["trend"] = "trend"

    def validate(self, known: Known) -> None:
        """Refuse steps without names."""
        if self.over == "setups" and len(self.order) < 2:
            raise ValueError("over: setups needs order, a list of at least two setups")
        if self.over != "setups" and self.setup is None:
            raise ValueError(f"over: {self.over} needs setup, in which the hyperparameter varies")


@dataclass(frozen=True)
class Side(Entry):
    """Rows of a table for one or more methods in one or more setups."""

    table: TableId
    setups: Setups
    algos: Methods


@dataclass(frozen=True)
class Averages(Entry):
    """A check that one side, averaged over rows, is better than the other by more than ``by``.

    The rows of both sides are paired in their order.
    """

    label: str
    metric: MetricId
    better: Side
    worse: Side
    by: float = 0.0
    kind: Literal["averages"] = "averages"

    def validate(self, known: Known) -> None:
        """Refuse sides of different sizes."""
        better = len(self.better.setups) * len(self.better.algos)
        worse = len(self.worse.setups) * len(self.worse.algos)
        if better != worse:
            raise ValueError(f"both sides need as many rows; better has {better}, worse {worse}")


@dataclass(frozen=True)
class WithinBand(Entry):
    """A check that the mean of a row's metric lies within a band.

    Two one-sided tests over seeds show equivalence.

    Attributes:
        low: Lower end of the band, in the printed unit.
        high: Upper end of the band, in the printed unit.
        hyperparameters: Hyperparameters of the row, if the method has several rows.
    """

    table: TableId
    setup: SetupId
    algo: MethodId
    metric: MetricId
    low: float
    high: float
    hyperparameters: dict[str, Any] = field(default_factory=dict)
    kind: Literal["within_band"] = "within_band"


@dataclass(frozen=True)
class EqualRows(Entry):
    """A check that two tables print the same numbers for the rows of some methods.

    Attributes:
        hyperparameters: Hyperparameters of the rows in the second table, if it contains several
            rows per method.
    """

    tables: tuple[TableId, TableId]
    setups: tuple[SetupId, ...]
    metrics: tuple[MetricId, ...]
    algo: Methods
    hyperparameters: dict[str, Any] = field(default_factory=dict)
    kind: Literal["equal_rows"] = "equal_rows"


# ---- curves of figures


@dataclass(frozen=True)
class Selection(Entry):
    """Runs of a figure.

    Attributes:
        algo: The method; ``others`` for all methods not named on the other side, ``all`` for all
            methods.
        hyperparameters: Hyperparameters of the selected runs.
    """

    algo: str
    hyperparameters: dict[str, Any] = field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _of_method(
        cls,
        value: Any,
        info: ValidationInfo,
    ) -> Any:
        """Read a method's id, ``others``, ``all`` or ``{algo: ID, <hyperparameter>: value}``."""
        given = value if isinstance(value, Mapping) else {"algo": value}
        known: Known = info.context or {}
        if "methods" in known:
            choice("", given.get("algo"), [*known["methods"], "others", "all"])
        return {
            "algo": given.get("algo"),
            "hyperparameters": {k: v for k, v in given.items() if k != "algo"},
        }

    def fits(self, row: Any) -> bool:
        """Return whether a row of the figure is selected."""
        if self.algo in ("others", "all"):
            return True
        return row.algo == self.algo and all(
            row.hyperparameters.get(k) == v for k, v in self.hyperparameters.items()
        )

    def __str__(self) -> str:
        """Return the selection in the notation of the file."""
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
_OF_CLIENTS = {"below", "at_least", "cka"}  # measures of final clients, not of curves


@dataclass(frozen=True)
class Curves(Entry):
    """A check that a measure of the curves is better for some runs of a figure than for others.

    Attributes:
        measure: Measures, each tested separately.
        fields: Fields of the curves, each tested separately; ``accuracy`` for below and at_least,
            ``moments`` for cka.
        setups: Setups of the figure; all of them if empty.
        threshold: Accuracy threshold for the measures below and at_least.
        share: Interpretation of "far fewer" or "clearly smoother", such as 0.8: the value of the
            better side must be below this share of the worse side's. Only for non-negative measures
            for which lower is better.
        by: The lead that must be exceeded, in the shown unit. A negative value is a lag that must
            not be reached.
        label: Description of the check's only comparison; if empty, it is generated.
    """

    figure: FigureId
    better: Selections
    worse: Selections
    measure: Annotated[tuple[Measure, ...], ListOrOne]
    fields: tuple[str, ...]
    setups: tuple[SetupId, ...] = ()
    threshold: float | None = None
    share: Annotated[float, Field(gt=0, lt=1)] | None = None
    by: float = 0.0
    label: str = ""
    kind: Literal["curves"] = "curves"

    def validate(self, known: Known) -> None:
        """Reject unknown fields, a missing threshold, an unsuitable share and empty selections.

        A share is unsuitable if higher values of the measure are better.
        """
        for measure, name in product(self.measure, self.fields):
            if measure not in _OF_CLIENTS and not is_field(name):
                raise ValueError(
                    f"fields must be numbers that runs have, such as train_loss; got {name!r}"
                )
            if measure in ("below", "at_least") and self.threshold is None:
                raise ValueError(f"the measure {measure} needs threshold, an accuracy such as 0.5")
            if measure in ("rounds", "rounds_pairwise") and self.by:
                raise ValueError(f"{measure} has no by; use share, such as 0.8")
            more = measure in MORE_IS_BETTER or (
                measure not in LESS_IS_BETTER and not lower_is_better(name)
            )
            if self.share is not None and more:
                raise ValueError(
                    "share needs a measure for which lower is better, such as rounds or a training "
                    f"loss; got {measure} of {name}"
                )
        _refuse_empty(
            known,
            self.figure,
            self.setups,
            better=self.better,
            worse=self.worse,
        )


@dataclass(frozen=True)
class Limit(Entry):
    """A check that a measure stays on one side of a bound for every selected run of a figure.

    Attributes:
        measure: ``area``, the mean over all rounds; ``tail``, the mean over the last tenth of the
            curve; ``decline``, that mean as a share of the first value; or ``seconds_over``, the
            last value divided by that of the reference.
        reference: The reference run for the measure seconds_over.
    """

    figure: FigureId
    methods: Selections
    measure: Literal["area", "tail", "decline", "seconds_over"]
    field: RunField
    at_least: float | None = None
    at_most: float | None = None
    reference: Selection | None = None
    kind: Literal["limit"] = "limit"

    def validate(self, known: Known) -> None:
        """Refuse a missing or second bound, a missing reference, and selections without runs."""
        if (self.at_least is None) == (self.at_most is None):
            raise ValueError("a limit has either at_least or at_most")
        if self.measure == "seconds_over" and self.reference is None:
            raise ValueError("seconds_over needs reference, the method whose seconds are compared")
        reference = () if self.reference is None else (self.reference,)
        _refuse_empty(
            known,
            self.figure,
            (),
            methods=self.methods,
            reference=reference,
        )


def _refuse_empty(
    known: Known,
    name: str,
    setups: tuple[str, ...],
    **sides: tuple[Selection, ...],
) -> None:
    """Refuse selections without a run in one of a figure's given setups (default: all)."""
    if "figures" not in known:
        return
    figure = known["figures"][name]
    for key, selections in sides.items():
        for selection, setup in product(selections, setups or figure.setups):
            if not any(r.setup == setup and selection.fits(r) for r in figure.rows):
                raise ValueError(f"{key} {selection} selects no run of {name} on {setup}")


# ---- others


@dataclass(frozen=True)
class PropertyTest(Entry):
    """A property of the method that a test of the code proves, or refutes by a counterexample.

    Attributes:
        test: The test, as ``<file>::<test>``.
    """

    test: str
    shows: Literal["holds", "fails"] = "holds"
    kind: Literal["test"] = "test"


@dataclass(frozen=True)
class Function(Entry):
    """A check by a function in ``fedbench/analysis/claims/<paper>.py`` named after the claim."""

    kind: Literal["function"] = "function"


@dataclass(frozen=True)
class Several(Entry):
    """A check that all, or at least one, of the comparisons of several checks are shown.

    Attributes:
        checks: The checks.
        kind: ``all`` or ``some``.
        label: Description of the joint comparison. For ``all``, it may be empty; the comparisons of
            the checks are then judged together.
    """

    checks: tuple[AnyCheck, ...]
    kind: Literal["all", "some"]
    label: str = ""


Check: TypeAlias = (
    Compare
    | Trend
    | Averages
    | WithinBand
    | EqualRows
    | Curves
    | Limit
    | PropertyTest
    | Function
    | Several
)
AnyCheck: TypeAlias = Annotated[Check, Field(discriminator="kind")]
