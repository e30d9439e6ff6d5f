"""The open points of a paper: readings that a verdict may depend on, gaps, and contradictions."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any, Literal

from fedbench.core.metrics import weighted_or_not
from fedbench.papers.parsing import Entry, Known, MethodId, Section, SetupId


@dataclass(frozen=True)
class Reading:
    """A way to read a paper's numbers; ``Reading()`` is the one that fedbench adopts.

    Attributes:
        weighting: Weights of the clients in statistics over clients: ``adopted`` for those of the
            paper's columns, else ``unweighted``, or ``weighted`` by their test examples.
        round: Round of a run whose number counts: ``adopted`` for that of the table, else ``last``
            or ``best``.
        splits: ``fixed`` for the data that the experiment draws, with the training seeds as blocks;
            ``drawn`` for all splits (data seeds) that have been run, with the splits as blocks.
        variant: Id of a documented alternative of the paper's settings; None for the adopted
            settings.
    """

    weighting: Literal["adopted", "unweighted", "weighted"] = "adopted"
    round: Literal["adopted", "last", "best"] = "adopted"
    splits: Literal["fixed", "drawn"] = "fixed"
    variant: str | None = None

    def field(self, name: str) -> str | None:
        """Return the metric that is read in place of another one; None if runs do not have it."""
        return (
            name
            if self.weighting == "adopted"
            else weighted_or_not(name, self.weighting == "weighted")
        )

    def differs_from(self, other: Reading) -> list[str]:
        """Return the axes in which two readings differ."""
        return [axis for axis in AXES if getattr(self, axis) != getattr(other, axis)]

    def nearer(self) -> list[Reading]:
        """Return the readings that differ in one axis less from the adopted one."""
        return [
            replace(self, **{axis: getattr(ADOPTED, axis)}) for axis in self.differs_from(ADOPTED)
        ]


ADOPTED = Reading()
AXES = ("weighting", "round", "splits", "variant")


@dataclass(frozen=True)
class Variant(Entry):
    """A documented alternative of the settings of a paper, in which every other setting stays.

    Attributes:
        title: What differs, in words.
        why: Why it is defensible.
        setups: Setups that it concerns; all of them if empty.
        set: Config keys that it sets for every method, in place of those of the rows.
        methods: Config keys that it sets for one method, by method, in place of those of the rows
            and of ``set``.
        algos: Algorithm in the config group of each method that has another one.
        config_dir: Directory of the repository with these algorithms; empty if fedbench has them.
    """

    id: str
    title: str
    why: str
    setups: tuple[SetupId, ...] = ()
    set: dict[str, Any] = field(default_factory=dict)
    methods: dict[MethodId, dict[str, Any]] = field(default_factory=dict)
    algos: dict[MethodId, str] = field(default_factory=dict)
    config_dir: str = ""

    def validate(self, known: Known) -> None:
        """Refuse a variant that changes nothing."""
        if not all(self.methods.values()) or not (self.set or self.methods or self.algos):
            raise ValueError(
                f"{self.id} changes nothing; it needs set (config keys), methods "
                "(method: config keys) or algos (method: algorithm)"
            )

    def concerns(self, setup: str) -> bool:
        """Return whether runs of a setup differ under this variant."""
        return not self.setups or setup in self.setups

    def changes(self, method: str) -> bool:
        """Return whether this variant changes the runs of a method in the setups it concerns."""
        return bool(self.set) or method in self.methods or method in self.algos

    def keys(self, method: str) -> dict[str, Any]:
        """Return the config keys that it sets for a method."""
        return {**self.set, **self.methods.get(method, {})}


@dataclass(frozen=True)
class Readings(Entry):
    """The defensible readings of a paper besides the adopted one: reasons by axis and value."""

    weighting: dict[Literal["unweighted", "weighted"], str] = field(default_factory=dict)
    round: dict[Literal["last", "best"], str] = field(default_factory=dict)
    splits: dict[Literal["drawn"], str] = field(default_factory=dict)
    variants: Section[Variant] = field(default_factory=dict)

    def every(self) -> list[Reading]:
        """Return all combinations of the alternatives, the adopted reading first."""
        axes: list[list[Any]] = [
            [None, *self.variants],
            ["fixed", *self.splits],
            ["adopted", *self.round],
            ["adopted", *self.weighting],
        ]
        return [
            Reading(weighting, at, splits, variant)
            for variant, splits, at, weighting in product(*axes)
        ]

    def variant(self, name: str | None, setup: str) -> Variant | None:
        """Return the variant of a name if it concerns a setup."""
        variant = self.variants.get(name or "")
        return variant if variant is not None and variant.concerns(setup) else None


# ---- what the paper does not state


@dataclass(frozen=True)
class Values(Entry):
    """Rows whose hyperparameters are from a search or a default, where others have the paper's.

    Attributes:
        origin: ``searched`` here, or a ``default``.
        methods: The methods.
        setups: The setups; all if empty.
        how: The search, with its range and budget, or where the default is from.
        edge: Methods whose chosen value lies at an edge of the range.
    """

    id: str
    origin: Literal["searched", "default"]
    methods: tuple[MethodId, ...]
    how: str
    setups: tuple[SetupId, ...] = ()
    edge: tuple[MethodId, ...] = ()

    def concerns(self, method: str, setup: str) -> bool:
        """Return whether the row of a method in a setup has these values."""
        return method in self.methods and (not self.setups or setup in self.setups)


@dataclass(frozen=True)
class Gap(Entry):
    """Something that the paper does not state, and what fedbench adopts instead."""

    id: str
    field: str
    adopted: str
    why: str
    confidence: str


@dataclass(frozen=True)
class Contradiction(Entry):
    """A disagreement within the paper, and how fedbench resolves it."""

    id: str
    statement: str
    resolution: str
