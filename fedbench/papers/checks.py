"""Checks of claims as data, a class per kind. ``fedbench.analysis.claims.judge`` runs them."""

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
    """A setup of a table."""

    table: TableId
    setup: SetupId


@dataclass(frozen=True)
class Compare(Entry):
    """In each setup and metric each method of one list is ahead of each of another.

    Attributes:
        worse: The methods of the other list; all other rows if empty.
        at: Another place, in which each method of ``better`` is compared with itself; None for the
            same place.
        by: The lead that must be exceeded, in the printed unit: what "clearly" is taken to mean. If
            it is negative, a lag that must not be reached (non-inferiority). With a negative one,
            and the same methods in both lists, any two of them differ by less: one comparison a
            pair, of two one-sided tests.
        label: Description of its only comparison; empty for the usual one.
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
    """A metric tends to rise, or to fall, over some steps.

    It is a rule of thumb: single steps may go the other way.

    A comparison per method: the rank correlation of the metric with all steps.

    Attributes:
        algo: The methods, each tested by itself.
        over: ``setups``, whose order is given, or a hyperparameter of the rows of one setup.
        order: The setups in order.
        setup: The setup in which a hyperparameter varies.
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
    """Rows of a table: those of some methods in some setups, which may each be one."""

    table: TableId
    setups: Setups
    algos: Methods


@dataclass(frozen=True)
class Averages(Entry):
    """Averaged over rows, one side is better than the other by more than ``by``.

    Rows are paired in their order.
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
    """The mean of a row's metric is within a band (equivalence, by two one-sided tests over seeds).

    Attributes:
        low: Lower end in the printed unit.
        high: Upper end in the printed unit.
        hyperparameters: Hyperparameters of the row, if the method has several.
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
    """Two tables print the same numbers for the rows of some methods.

    Attributes:
        hyperparameters: Hyperparameters of the rows of the second table, if it has several of a
            method.
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
        algo: The method; ``others`` for all methods that the other side does not name, ``all`` for
            all methods.
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
        fields: Fields of the curves, each tested by itself; ``accuracy`` for below and at_least,
            ``moments`` for cka.
        setups: Setups of the figure; all of them if empty.
        threshold: Accuracy threshold of the measures below and at_least.
        share: What "far fewer" or "clearly smoother" is taken to mean: the number of the better
            side is below this share of that of the worse one, 0.8 say. For measures of which less
            is better and none is below 0.
        by: The lead that must be exceeded, in the shown unit; if it is negative, a lag that must
            not be reached.
        label: Description of its only comparison; empty for the usual one.
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
        """Refuse unknown fields, a missing threshold, a useless share, and empty selections."""
        for measure, name in product(self.measure, self.fields):
            if measure not in _OF_CLIENTS and not is_field(name):
                raise ValueError(
                    f"fields must be numbers that runs have, such as train_loss; got {name!r}"
                )
            if measure in ("below", "at_least") and self.threshold is None:
                raise ValueError(f"the measure {measure} needs threshold, an accuracy such as 0.5")
            more = measure in MORE_IS_BETTER or (
                measure not in LESS_IS_BETTER and not lower_is_better(name)
            )
            if self.share is not None and more:
                raise ValueError(
                    "share needs numbers of which less is better, such as rounds or a training "
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
    """A measure of each of some runs of a figure stays on one side of a bound.

    Attributes:
        measure: ``area``, the mean over all rounds; ``tail``, the mean over the last tenth of the
            curve; ``decline``, that mean as a share of the first value; or ``seconds_over``, the
            last value divided by that of the reference.
        reference: The run of the measure seconds_over.
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
    """Refuse selections without a run of a figure in one of some setups, or of all its setups."""
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
    """A property of the method that a test of the code shows, or refutes by a counterexample.

    Attributes:
        test: The test, as ``<file>::<test>``.
    """

    test: str
    shows: Literal["holds", "fails"] = "holds"
    kind: Literal["test"] = "test"


@dataclass(frozen=True)
class Function(Entry):
    """A check by a function of ``fedbench/analysis/claims/<paper>.py``, named after the claim."""

    kind: Literal["function"] = "function"


@dataclass(frozen=True)
class Several(Entry):
    """All, or at least one, of the comparisons of several checks.

    Attributes:
        checks: The checks.
        kind: ``all`` or ``some``.
        label: Description of the one comparison that they make up; empty for ``all``, to judge
            theirs together.
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
