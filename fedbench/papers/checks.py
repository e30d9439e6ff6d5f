"""Checks of claims as data, a class per kind of check. ``fedbench.analysis.claims.judge`` runs them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal, TypeAlias, get_args

from pydantic import NonNegativeFloat, PlainValidator, PositiveFloat, ValidationInfo

from fedbench.papers.curve_checks import Curves, Limit
from fedbench.papers.parsing import (
    Entry,
    Known,
    ListOrOne,
    MethodId,
    Methods,
    MetricId,
    SetupId,
    TableId,
    one_of,
    parse,
)


@dataclass(frozen=True)
class NotBest(Entry):
    """In each setup and metric some row of the table is ahead of the method."""

    kind: ClassVar[str] = "not_best"
    table: TableId
    setups: tuple[SetupId, ...]
    metrics: tuple[MetricId, ...]
    algo: MethodId


@dataclass(frozen=True)
class Best(NotBest):
    """In each setup and metric the method is ahead of every other row."""

    kind: ClassVar[str] = "best"


@dataclass(frozen=True)
class Compare(Entry):
    """Each method of one list is ahead of each of another.

    Attributes:
        by: The lead that must be exceeded, in the printed unit: what "clearly" or "much" is taken to mean.
    """

    kind: ClassVar[str] = "compare"
    table: TableId
    setups: tuple[SetupId, ...]
    metric: MetricId
    better: Methods
    worse: Methods
    by: NonNegativeFloat = 0.0

    def validate(self, known: Known) -> None:
        """Refuse a method that would have to be ahead of itself."""
        if both := set(self.better) & set(self.worse):
            raise ValueError(f"a method cannot be both better and worse; {', '.join(sorted(both))} is")


@dataclass(frozen=True)
class Monotone(Entry):
    """A metric rises, or falls, from step to step.

    Attributes:
        algo: The methods, each tested by itself.
        over: ``setups``, whose order is given, or a hyperparameter of the rows of one setup.
        order: The setups in order.
        setup: The setup in which a hyperparameter varies.
    """

    kind: ClassVar[str] = "monotone"
    table: TableId
    metric: MetricId
    algo: Methods
    over: str
    trend: Literal["increasing", "decreasing"]
    order: tuple[SetupId, ...] = ()
    setup: SetupId | None = None

    def validate(self, known: Known) -> None:
        """Refuse steps without names, and a hyperparameter that a row lacks."""
        if self.over == "setups":
            if len(self.order) < 2:
                raise ValueError("over: setups needs order, a list of at least two setups")
            return
        if self.setup is None:
            raise ValueError(f"over: {self.over} needs setup, in which the hyperparameter varies")
        rows = [r for r in known["tables"][self.table].rows if r.setup == self.setup and r.algo in self.algo]
        names = dict.fromkeys(["setups", *(k for r in rows for k in r.hyperparameters)])
        for row in rows:
            one_of(self.over, [k for k in names if k == "setups" or k in row.hyperparameters], "over")


@dataclass(frozen=True)
class Trend(Monotone):
    """A metric tends to rise, or to fall, over the steps: a rule of thumb, from which single steps may depart.

    Two comparisons per method: the rank correlation of the metric with the steps, and the last step with the first.
    """

    kind: ClassVar[str] = "trend"


@dataclass(frozen=True)
class Place(Entry):
    """A setup of a table."""

    table: TableId
    setup: SetupId


@dataclass(frozen=True)
class CompareTables(Entry):
    """Each method is better in one table and setup than in another.

    Attributes:
        metric: Metrics, each tested by itself.
        by: The lead that must be exceeded, in the printed unit; if it is negative, a lag that must not be reached.
    """

    kind: ClassVar[str] = "compare_tables"
    metric: Annotated[tuple[MetricId, ...], ListOrOne]
    algos: tuple[MethodId, ...]
    better: Place
    worse: Place
    by: float = 0.0


@dataclass(frozen=True)
class Side(Entry):
    """Rows of a table: those of some methods in some setups, which may each be one."""

    table: TableId
    setups: Annotated[tuple[SetupId, ...], ListOrOne]
    algos: Methods


@dataclass(frozen=True)
class Averages(Entry):
    """Averaged over rows, one side is better than the other; their rows are paired in the given order.

    Attributes:
        label: Description of the comparison.
        by: The lead that must be exceeded, in the printed unit; if it is negative, a lag that must not be reached.
    """

    kind: ClassVar[str] = "averages"
    label: str
    metric: MetricId
    better: Side
    worse: Side
    by: float = 0.0

    def validate(self, known: Known) -> None:
        """Refuse sides of different sizes."""
        better, worse = (len(side.setups) * len(side.algos) for side in (self.better, self.worse))
        if better != worse:
            raise ValueError(f"both sides need as many rows; better has {better}, worse {worse}")


# ---- margins: two one-sided tests, or one


@dataclass(frozen=True)
class NotBehind(Entry):
    """In each setup and metric each method is behind none of the others by the margin (non-inferiority).

    If the same methods are on both sides, any two of them differ by less than the margin: two one-sided tests a pair.

    Attributes:
        algo: The methods.
        margin: The lag, in the printed unit, that must not be reached.
        against: The methods that they are compared with; all other rows of the table if empty.
    """

    kind: ClassVar[str] = "not_behind"
    table: TableId
    setups: tuple[SetupId, ...]
    metrics: tuple[MetricId, ...]
    algo: Methods
    margin: PositiveFloat
    against: Methods = ()


@dataclass(frozen=True)
class WithinBand(Entry):
    """The mean of a row's metric, once all seeds have run, is within a band; a seed without a number is outside.

    Attributes:
        against: A method of the setup whose number is subtracted, seed by seed; None for the number itself.
        low: Lower bound in the printed unit; None if there is none.
        high: Upper bound in the printed unit; None if there is none.
    """

    kind: ClassVar[str] = "within_band"
    table: TableId
    setup: SetupId
    algo: MethodId
    metric: MetricId
    against: MethodId | None = None
    low: float | None = None
    high: float | None = None

    def validate(self, known: Known) -> None:
        """Refuse a band without bounds, or one that contains nothing."""
        if self.low is None and self.high is None:
            raise ValueError("within_band needs low, high or both")
        if self.low is not None and self.high is not None and not self.low < self.high:
            raise ValueError(f"low must be below high; got {self.low:g} and {self.high:g}")


@dataclass(frozen=True)
class EqualRows(Entry):
    """Two tables print the same numbers for the rows of some methods."""

    kind: ClassVar[str] = "equal_rows"
    tables: tuple[TableId, TableId]
    setups: tuple[SetupId, ...]
    metrics: tuple[MetricId, ...]
    algo: Methods


@dataclass(frozen=True)
class PrintedRow(Entry):
    """A row of a table in any setup."""

    table: TableId
    algo: MethodId
    hyperparameters: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class EqualCells(Entry):
    """Two rows, of one table or two, print the same numbers."""

    kind: ClassVar[str] = "equal_cells"
    a: PrintedRow
    b: PrintedRow
    setups: tuple[SetupId, ...]
    metrics: tuple[MetricId, ...]


@dataclass(frozen=True)
class PropertyTest(Entry):
    """A property of the method, shown by a test of the code.

    Attributes:
        test: ``<file>::<test>``.
        shows: Whether the test proves the claim or, by a counterexample, refutes it.
    """

    kind: ClassVar[str] = "test"
    test: str
    shows: Literal["holds", "fails"] = "holds"


@dataclass(frozen=True)
class Function(Entry):
    """A check by a function: the one in ``fedbench/analysis/claims/<paper>.py`` with the claim's id as its name."""

    kind: ClassVar[str] = "function"


def _read(value: Any, info: ValidationInfo) -> Any:
    """Return the check of a mapping whose key ``kind`` says which class it is."""
    if not isinstance(value, Mapping):
        raise ValueError(f"must be a mapping with kind, or null; got {value!r}")
    kind = _KINDS[one_of(value.get("kind"), _KINDS, "kind")]
    return parse(kind, {k: v for k, v in value.items() if k != "kind"}, known=info.context)


@dataclass(frozen=True)
class All(Entry):
    """All of several checks; their comparisons are judged together."""

    kind: ClassVar[str] = "all"
    checks: tuple[AnyCheck, ...]

    def validate(self, known: Known) -> None:
        """Refuse an empty list, and checks that runs do not decide."""
        if not self.checks:
            raise ValueError("checks must have at least one check")
        for check in self.checks:
            if isinstance(check, PropertyTest | EqualRows | EqualCells | WithinBand):
                raise ValueError(f"{check.kind} is not decided by comparisons; make it a claim of its own")


Check: TypeAlias = (
    Best
    | NotBest
    | Compare
    | Monotone
    | Trend
    | CompareTables
    | Averages
    | NotBehind
    | WithinBand
    | EqualRows
    | EqualCells
    | Curves
    | Limit
    | PropertyTest
    | Function
    | All
)
AnyCheck: TypeAlias = Annotated[Check, PlainValidator(_read)]

_KINDS: dict[str, type[Entry]] = {kind.kind: kind for kind in get_args(Check)}
