"""Figures of papers as data: what each kind draws, and the runs that it shows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, ValidationInfo, model_validator

from fedbench.papers.parsing import Entry, Known, MethodId, RunField, SetupId, one_of, parse
from fedbench.papers.rows import Row, Tuning


@dataclass(frozen=True)
class Sketch(Entry):
    """A figure without data, which is not drawn."""

    setups: ClassVar[tuple[str, ...]] = ()


@dataclass(frozen=True)
class PerSetup(Entry):
    """A panel per setup."""

    setups: tuple[SetupId, ...]


@dataclass(frozen=True)
class CurvesPerSetup(PerSetup):
    """Curves of fields over the rounds.

    Attributes:
        distribution: Whether the final distribution over clients is drawn as well.
    """

    fields: tuple[RunField, ...]
    distribution: bool = False


@dataclass(frozen=True)
class SweepPerSetup(PerSetup):
    """Final values over a hyperparameter."""

    fields: tuple[RunField, ...]
    parameter: str


@dataclass(frozen=True)
class SweptMethod(Entry):
    """The method and the hyperparameter that draw a front."""

    algo: MethodId
    parameter: str


@dataclass(frozen=True)
class FrontPerSetup(PerSetup):
    """Two final values against each other.

    Attributes:
        sweep: The method and hyperparameter that draw the front.
    """

    fields: tuple[RunField, RunField]
    sweep: SweptMethod


Spec = Sketch | PerSetup


SPECS: dict[str, type[Spec]] = {
    "curves": CurvesPerSetup,
    "distribution": PerSetup,
    "sweep": SweepPerSetup,
    "front": FrontPerSetup,
    "labels": PerSetup,
    "two_clients": PerSetup,
    "cka": PerSetup,
    "schematic": Sketch,
}


@dataclass(frozen=True)
class _ShownRun(Entry):
    algo: MethodId
    hyperparameters: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class _FigureEntry(Entry):
    id: str
    caption: str
    kind: Annotated[str, BeforeValidator(lambda kind: one_of(kind, SPECS))]
    spec: dict[str, Any] = field(default_factory=dict)
    runs: tuple[_ShownRun, ...] = ()
    tuning: Tuning | None = None


@dataclass(frozen=True)
class Figure(Entry):
    """A figure. In a file its ``runs`` are shown in each setup of its ``spec``.

    Attributes:
        kind: Kind of the figure, a key of ``SPECS``.
        rows: The shown runs, for every setup.
        spec: Specification of its kind.
        tuning: Which of its methods were tuned.
    """

    id: str
    caption: str
    kind: str
    rows: tuple[Row, ...]
    spec: Spec
    tuning: Tuning | None = None

    @property
    def setups(self) -> tuple[str, ...]:
        """Ids of the setups, in the paper's order."""
        return self.spec.setups

    @model_validator(mode="before")
    @classmethod
    def _of_entry(cls, value: Any, info: ValidationInfo) -> dict[str, Any]:
        entry = parse(_FigureEntry, value, known=info.context)
        spec = parse(SPECS[entry.kind], entry.spec, "spec", info.context)
        if entry.runs and not spec.setups:
            raise ValueError(f"a figure of kind {entry.kind} has no setups, so no runs")
        parameter = getattr(getattr(spec, "sweep", spec), "parameter", None)
        if parameter is not None and not any(parameter in r.hyperparameters for r in entry.runs):
            raise ValueError(f"no run has the parameter {parameter!r} among its hyperparameters")
        rows = tuple(Row(s, r.algo, r.hyperparameters) for r in entry.runs for s in spec.setups)
        fields = {"id": entry.id, "caption": entry.caption, "kind": entry.kind, "tuning": entry.tuning}
        return {**fields, "rows": rows, "spec": spec}

    def validate(self, known: Known) -> None:
        """Refuse hyperparameters that set no config key."""
        for row in self.rows:
            row.validate(known)
