"""Open points of a paper: gaps, contradictions, and readings that may affect verdicts."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any, Literal

from fedbench.core.metrics import weighted_or_not
from fedbench.papers.parsing import Entry, Known, MethodId, Section, SetupId


@dataclass(frozen=True)
class Reading:
    """A way to read a paper's numbers; ``Reading()`` is the adopted reading.

    Attributes:
        weighting: Weighting of clients in statistics over clients: ``adopted`` as in the paper's
            columns, ``unweighted``, or ``weighted`` by numbers of test examples.
        round: Round of a run from which numbers are taken: ``adopted`` as in the table, ``last`` or
            ``best``.
        splits: ``drawn`` for all splits (data seeds) that have been run, with splits as blocks;
            ``fixed`` for the split of data seed 0 alone, with training seeds as blocks.
        variant: Id of a documented alternative to the paper's settings; None for the adopted
            settings.
    """

    weighting: Literal["adopted", "unweighted", "weighted"] = "adopted"
    round: Literal["adopted", "last", "best"] = "adopted"
    splits: Literal["drawn", "fixed"] = "drawn"
    variant: str | None = None

    def field(self, name: str) -> str | None:
        """Return the metric to read in place of another; None if runs do not have it."""
        return (
            name
            if self.weighting == "adopted"
            else weighted_or_not(name, self.weighting == "weighted")
        )

    def differs_from(self, other: Reading) -> list[str]:
        """Return the axes along which two readings differ."""
        return [axis for axis in AXES if getattr(self, axis) != getattr(other, axis)]

    def nearer(self) -> list[Reading]:
        """Return the readings that are one axis closer to the adopted reading."""
        readings = []
        for axis in self.differs_from(ADOPTED):
            adopted = {axis: getattr(ADOPTED, axis)}
            readings.append(replace(self, **adopted))
        return readings


ADOPTED = Reading()
AXES = ("weighting", "round", "splits", "variant")


@dataclass(frozen=True)
class Variant(Entry):
    """A documented alternative to some of a paper's settings; all other settings are unchanged.

    Attributes:
        title: Description of the difference.
        why: Reason why the variant is defensible.
        setups: Setups that the variant affects; all of them if empty.
        set: Config keys that it sets for every method; they override the keys of rows.
        methods: Config keys that it sets for single methods, by method; they override the keys of
            rows and of ``set``.
        algos: Replacement algorithms in the config group, by method.
        config_dir: Directory in the repository with these algorithms; empty if they are part of
            fedbench.
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
        changes = self.set or self.methods or self.algos
        if not changes or not all(self.methods.values()):
            raise ValueError(
                f"{self.id} changes nothing; it needs set (config keys), methods "
                "(method: config keys) or algos (method: algorithm)"
            )

    def concerns(self, setup: str) -> bool:
        """Return whether runs of a setup differ under this variant."""
        return not self.setups or setup in self.setups

    def changes(self, method: str) -> bool:
        """Return whether this variant changes the runs of a method in the setups it affects."""
        return bool(self.set) or method in self.methods or method in self.algos

    def keys(self, method: str) -> dict[str, Any]:
        """Return the config keys that this variant sets for a method."""
        return {**self.set, **self.methods.get(method, {})}


@dataclass(frozen=True)
class Readings(Entry):
    """Defensible readings of a paper other than the adopted one: reasons by axis and value."""

    weighting: dict[Literal["unweighted", "weighted"], str] = field(default_factory=dict)
    round: dict[Literal["last", "best"], str] = field(default_factory=dict)
    splits: dict[Literal["fixed"], str] = field(default_factory=dict)
    variants: Section[Variant] = field(default_factory=dict)

    def every(self) -> list[Reading]:
        """Return all combinations of the alternatives, the adopted reading first."""
        axes: list[list[Any]] = [
            [None, *self.variants],
            ["drawn", *self.splits],
            ["adopted", *self.round],
            ["adopted", *self.weighting],
        ]
        return [
            Reading(weighting, at, splits, variant)
            for variant, splits, at, weighting in product(*axes)
        ]

    def variant(self, name: str | None, setup: str) -> Variant | None:
        """Return the variant with the given name if it affects the setup, else None."""
        variant = self.variants.get(name or "")
        return variant if variant is not None and variant.concerns(setup) else None


# ---- missing and contradictory information


@dataclass(frozen=True)
class Values(Entry):
    """Hyperparameters taken from a search or a default instead of the paper.

    Attributes:
        origin: ``searched`` (with fedbench) or ``default``.
        methods: The methods.
        setups: The setups; all of them if empty.
        how: The search with its range and budget, or the source of the default.
        edge: Methods whose chosen value lies at an edge of the range.
    """

    id: str
    origin: Literal["searched", "default"]
    methods: tuple[MethodId, ...]
    how: str
    setups: tuple[SetupId, ...] = ()
    edge: tuple[MethodId, ...] = ()

    def concerns(self, method: str, setup: str) -> bool:
        """Return whether these values apply to a method in a setup."""
        return method in self.methods and (not self.setups or setup in self.setups)


@dataclass(frozen=True)
class Gap(Entry):
    """Missing information in the paper, and the value that fedbench adopts."""

    id: str
    field: str
    adopted: str
    why: str
    confidence: str


@dataclass(frozen=True)
class Contradiction(Entry):
    """A contradiction within the paper, and its resolution in fedbench."""

    id: str
    statement: str
    resolution: str
