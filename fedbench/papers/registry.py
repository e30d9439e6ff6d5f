"""The papers' reports as data: a YAML file per paper in this folder. docs/adding_a_paper.md explains the keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import yaml

from fedbench.core.errors import RequestError
from fedbench.core.trees import from_yaml
from fedbench.papers.checks import Check
from fedbench.papers.reading import AtLeast, Called, Known, Ref, RunField, entries, fill, one_of, read
from fedbench.papers.readings import NO_READINGS, Readings

RunFields = tuple[Annotated[str, RunField()], ...]
SetupIds = tuple[Annotated[str, Ref("setups")], ...]
LABELS = "labels"  # folder in the results directory: examples per client and class, by experiment


@dataclass(frozen=True)
class Reported:
    """A number as printed.

    Attributes:
        mean: The number, in the unit of its metric.
        std: The printed ±, or None.
    """

    mean: float
    std: float | None

    @classmethod
    def read(cls, value: Any, where: str, known: Known) -> Reported:
        """Return ``number`` or ``[number, ±]``."""
        pair = value if isinstance(value, list) and len(value) == 2 else [value, None]
        try:
            return cls(read(float, pair[0], where, known), read(float | None, pair[1], where, known))
        except RequestError as error:
            raise RequestError(f"{where} must be a number or [number, ±]; got {value!r}") from error


@dataclass(frozen=True)
class PrintedMetric:
    """A column of the paper's tables.

    Attributes:
        field: Field of a run: a key of ``rounds.jsonl``, or ``client:<k>``, the accuracy of client k.
        factor: Factor from the run's unit to the printed one.
        fraction: Share of the clients in a tail; None for other metrics.
        target: Value of the field up to which rounds are counted; None for the field itself.
        rounds: First and last round of a mean over rounds, of a run of full length; None for the round of the table.
    """

    id: str
    label: str
    direction: Literal["higher", "lower", None]
    field: Annotated[str, RunField()]
    factor: Annotated[float, AtLeast(0)] = 100.0
    definition: str = ""
    fraction: Annotated[float, AtLeast(0)] | None = None
    target: float | None = None
    rounds: tuple[int, int] | None = None

    def validate(self, where: str, known: Known) -> None:
        """Refuse a tail metric without the share of its clients."""
        tail = self.field.startswith(("accuracy_worst", "accuracy_best"))
        if tail and not 0 < (self.fraction or 0) < 1:
            raise RequestError(
                f"{where} needs fraction, the share of the clients in the tail, such as 0.3; got {self.fraction!r}"
            )


@dataclass(frozen=True)
class Method:
    """A row label of the paper.

    Attributes:
        keys: Config key of each hyperparameter in the rows.
        set: Config keys that this label always sets.
    """

    id: str
    label: str
    algo: str
    keys: dict[str, str] = field(default_factory=dict)
    set: dict[str, Any] = field(default_factory=dict)

    def overrides(self, hyperparameters: Mapping[str, Any]) -> dict[str, Any]:
        """Return the config keys that a row of this method sets; hyperparameters that are not printed set none."""
        given = {self.keys[k]: v for k, v in hyperparameters.items() if k in self.keys and v is not None}
        return {**self.set, **given}


@dataclass(frozen=True)
class Reduction:
    """How a profile reduces a setup.

    Attributes:
        seeds: Number of seeds; None to keep the paper's.
    """

    set: dict[str, Any] = field(default_factory=dict)
    seeds: Annotated[int, AtLeast(1)] | None = None


@dataclass(frozen=True)
class Setup:
    """A setup of the paper.

    Attributes:
        clients: Number of clients; None if the paper does not state it.
        seeds: Number of seeds over which the paper averages; 1 if the paper does not state it.
        examples_per_client: Mean number of training examples of a client. It gives the number of steps of the local
            epochs, which shows whether a run with ``local.steps`` is reduced.
        departs: Parts of the printed setting that fedbench does not implement, as text; such a setup is never full.
    """

    id: str
    title: str
    experiment: str
    clients: Annotated[int, AtLeast(1)] | None
    seeds: Annotated[int, AtLeast(1)]
    examples_per_client: Annotated[int, AtLeast(1)]
    gaps: tuple[Annotated[str, Ref("gaps")], ...] = ()
    profiles: Annotated[dict[Literal["cpu", "smoke"], Reduction], Called("profile")] = field(default_factory=dict)
    departs: tuple[str, ...] = ()


@dataclass(frozen=True)
class Impossible:
    """A contradiction between the printed numbers of a row (scripts/impossible_numbers.py).

    Attributes:
        columns: Metrics that it concerns.
        why: Why no accuracies of unweighted clients have all numbers of the row.
    """

    columns: tuple[Annotated[str, Ref("metrics")], ...]
    why: str


@dataclass(frozen=True)
class Row:
    """A row of a table within one setup, or a run that a figure shows.

    Attributes:
        hyperparameters: Values as printed.
        values: Printed numbers by metric; empty for runs of figures.
        impossible: Why the printed numbers contradict each other, or None.
    """

    setup: str
    algo: Annotated[str, Ref("methods")]
    hyperparameters: dict[str, Any] = field(default_factory=dict)
    values: Annotated[dict[str, Reported], Called("column")] = field(default_factory=dict)
    impossible: Impossible | None = None

    def validate(self, where: str, known: Known) -> None:
        """Refuse hyperparameters that set no config key."""
        _refuse_loose_hyperparameters(where, known["methods"][self.algo], self.hyperparameters)


@dataclass(frozen=True)
class Tuning:
    """Which methods had their hyperparameters tuned, one sentence each; the rows use the values that the paper states.

    Attributes:
        paper: What the paper says that it tuned, and for which methods.
        here: What fedbench tuned where the paper states no value; otherwise that it tuned nothing.
    """

    paper: str
    here: str


@dataclass(frozen=True)
class Table:
    """A table with results.

    Attributes:
        round: Round whose numbers are reported, ``last`` or ``best``.
        tuning: Which of its methods were tuned.
    """

    id: str
    caption: str
    setups: SetupIds
    columns: tuple[Annotated[str, Ref("metrics")], ...]
    rows: Annotated[tuple[Row, ...], Called("row")]
    round: Literal["last", "best"] = "last"
    tuning: Tuning | None = None

    def validate(self, where: str, known: Known) -> None:
        """Refuse rows with setups or columns that the table does not have."""
        for number, row in enumerate(self.rows, 1):
            one_of(f"{where}: row {number}: setup", row.setup, self.setups)
            for column in row.values:
                one_of(f"{where}: row {number}: column", column, self.columns)


@dataclass(frozen=True)
class Sketch:
    """A figure without data, which is not drawn."""

    setups: ClassVar[tuple[str, ...]] = ()


@dataclass(frozen=True)
class Adjustments:
    """FedCAda's adjustment functions."""

    rounds: Annotated[int, AtLeast(1)]
    beta: float
    setups: ClassVar[tuple[str, ...]] = ()


@dataclass(frozen=True)
class PerSetup:
    """A panel per setup."""

    setups: SetupIds


@dataclass(frozen=True)
class CurvesPerSetup(PerSetup):
    """Curves of fields over the rounds.

    Attributes:
        distribution: Whether the final distribution over clients is drawn as well.
    """

    fields: RunFields
    distribution: bool = False


@dataclass(frozen=True)
class SweepPerSetup(PerSetup):
    """Final values over a hyperparameter."""

    fields: RunFields
    parameter: str


@dataclass(frozen=True)
class SweptMethod:
    """The method and the hyperparameter that draw a front."""

    algo: Annotated[str, Ref("methods")]
    parameter: str


@dataclass(frozen=True)
class FrontPerSetup(PerSetup):
    """Two final values against each other.

    Attributes:
        sweep: The method and hyperparameter that draw the front.
    """

    fields: tuple[Annotated[str, RunField()], Annotated[str, RunField()]]
    sweep: SweptMethod


Spec = Sketch | Adjustments | PerSetup
# kind of a figure -> its specification
SPECS: dict[str, type[Spec]] = {
    "curves": CurvesPerSetup,
    "distribution": PerSetup,
    "sweep": SweepPerSetup,
    "front": FrontPerSetup,
    "labels": PerSetup,
    "two_clients": PerSetup,
    "cka": PerSetup,
    "functions": Adjustments,
    "schematic": Sketch,
}


@dataclass(frozen=True)
class _ShownRun:
    algo: Annotated[str, Ref("methods")]
    hyperparameters: dict[str, Any] = field(default_factory=dict)

    def validate(self, where: str, known: Known) -> None:
        _refuse_loose_hyperparameters(where, known["methods"][self.algo], self.hyperparameters)


@dataclass(frozen=True)
class _FigureEntry:
    id: str
    caption: str
    kind: str
    spec: dict[str, Any] = field(default_factory=dict)
    runs: Annotated[tuple[_ShownRun, ...], Called("run")] = ()
    tuning: Tuning | None = None


@dataclass(frozen=True)
class Figure:
    """A figure.

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

    @classmethod
    def read(cls, value: Any, where: str, known: Known) -> Figure:
        """Return the figure of an entry whose ``runs`` hold in each setup of its ``spec``."""
        entry: _FigureEntry = fill(_FigureEntry, value, where, known)
        one_of(f"{where}: kind", entry.kind, SPECS)
        spec: Spec = fill(SPECS[entry.kind], entry.spec, f"{where}: spec", known)
        if entry.runs and not spec.setups:
            raise RequestError(f"{where}: a figure of kind {entry.kind} has no setups, so no runs")
        parameter = getattr(getattr(spec, "sweep", spec), "parameter", None)
        if parameter is not None and not any(parameter in r.hyperparameters for r in entry.runs):
            raise RequestError(f"{where}: no run has the parameter {parameter!r} among its hyperparameters")
        rows = tuple(Row(s, r.algo, r.hyperparameters) for r in entry.runs for s in spec.setups)
        return cls(entry.id, entry.caption, entry.kind, rows, spec, entry.tuning)


@dataclass(frozen=True)
class Claim:
    """A statement of the paper.

    Attributes:
        text: The statement in our words.
        reference: Its place in the paper.
        check: How it is tested; None if it names nothing that could be.
        printed: Whether the paper's own numbers agree.
        tested: What is tested, in words.
        beyond: What of the statement is not tested; empty if all of it is.
        refuted: What would refute it.
        needs: What a decision needs that the profile ``cpu`` does not have; empty if its runs can decide.
        reduced: What runs at reduced settings can do: ``decide``; ``support`` only, as for a limit that fewer rounds
            may miss; ``refute`` only; or ``neither``, as for a number of rounds that depends on the network.
    """

    id: str
    text: str
    reference: str
    check: Check | None
    printed: Literal["supports", "contradicts", "mixed", "not tabulated"]
    tested: str = ""
    beyond: str = ""
    refuted: str = ""
    needs: str = ""
    reduced: Literal["decide", "support", "refute", "neither"] = "decide"


@dataclass(frozen=True)
class Gap:
    """Something that the paper does not state, and what fedbench adopts instead."""

    id: str
    field: str
    adopted: str
    why: str
    confidence: str


@dataclass(frozen=True)
class Contradiction:
    """A disagreement within the paper, and how fedbench resolves it."""

    id: str
    statement: str
    resolution: str


@dataclass(frozen=True)
class _Head:
    id: str
    name: str
    title: str
    authors: tuple[str, ...]
    year: int
    venue: str


@dataclass(frozen=True, eq=False)
class Paper:
    """A paper.

    Attributes:
        id: Short name, also the folder of its experiments.
        name: Name of its method, for headings.
        citation: Authors, title, year, venue.
        contradictions: Contradictions as (id, statement and resolution).
        readings: The defensible readings of its numbers besides the adopted one.
    """

    id: str
    name: str
    citation: str
    metrics: dict[str, PrintedMetric]
    methods: dict[str, Method]
    setups: dict[str, Setup]
    tables: dict[str, Table]
    figures: dict[str, Figure]
    claims: tuple[Claim, ...]
    gaps: tuple[Gap, ...]
    contradictions: tuple[tuple[str, str], ...]
    readings: Readings = NO_READINGS

    def rows(self, part: str) -> tuple[Row, ...]:
        """Return the runs behind a table or a figure."""
        return self.tables[part].rows if part in self.tables else self.figures[part].rows

    def overrides(self, row: Row) -> dict[str, Any]:
        """Return the config keys that a row sets in addition to its experiment and algorithm."""
        return self.methods[row.algo].overrides(row.hyperparameters)


# in an order in which each section refers only to earlier ones
_SECTIONS: dict[str, Any] = {
    "gaps": Gap,
    "metrics": PrintedMetric,
    "methods": Method,
    "setups": Setup,
    "tables": Table,
    "figures": Figure,
    "claims": Claim,
    "contradictions": Contradiction,
}


@dataclass(frozen=True, eq=False)
class Home:
    """The place of an experiment in a paper.

    Attributes:
        paper: The paper.
        setup: The setup that the experiment carries out.
        table: The table that the experiment is named after, else the first one with the setup; None without a table.
    """

    paper: Paper
    setup: Setup
    table: Table | None


def home_of(experiment: str | None) -> Home | None:
    """Return the place of an experiment in the papers on record, or None if it belongs to none of them."""
    return None if experiment is None else _homes().get(experiment)


@cache
def _homes() -> dict[str, Home]:
    found = {}
    for paper in papers().values():
        for setup in paper.setups.values():
            tables = [t for t in paper.tables.values() if setup.id in t.setups]
            named = [t for t in tables if setup.experiment.startswith(f"{paper.id}/{t.id}_")]
            found[setup.experiment] = Home(paper, setup, next(iter([*named, *tables]), None))
    return found


@cache
def papers() -> dict[str, Paper]:
    """Return the papers on record, by id.

    Raises:
        RequestError: If a file is invalid.
    """
    return {p.id: p for p in map(read_paper, sorted(Path(__file__).parent.glob("*.yaml")))}


def read_paper(path: Path) -> Paper:
    """Return the paper of a YAML file.

    Raises:
        RequestError: With the file, the entry and its first fault.
    """
    try:
        content = from_yaml(path.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        raise RequestError(f"{path.name} is not valid YAML: {' '.join(str(error).split())}") from error
    try:
        return _paper(content, path.stem)
    except RequestError as error:
        raise RequestError(f"{path.name}: {error}") from error


def _paper(content: Any, name: str) -> Paper:
    if not isinstance(content, Mapping):
        raise RequestError(f"the file must be a mapping with paper, {', '.join(_SECTIONS)}; got {content!r}")
    for key in ("paper", *_SECTIONS):
        if key not in content:
            raise RequestError(f"the file lacks {key}; it needs paper, {', '.join(_SECTIONS)}")
    for key in content:
        one_of("the file: key", key, ("paper", *_SECTIONS, "readings"))
    head: _Head = fill(_Head, content["paper"], "paper", {})
    if head.id != name:
        raise RequestError(f"the id of a paper is the name of its file, {name}; got {head.id!r}")
    known: dict[str, dict[str, Any]] = {}
    for section, kind in _SECTIONS.items():
        known[section] = entries(kind, section, content[section], known)
    return Paper(
        id=head.id,
        name=head.name,
        citation=f"{', '.join(head.authors)}: {head.title}. {head.venue}, {head.year}",
        **{s: known[s] for s in ("metrics", "methods", "setups", "tables", "figures")},
        claims=tuple(known["claims"].values()),
        gaps=tuple(known["gaps"].values()),
        contradictions=tuple((x.id, f"{x.statement} {x.resolution}") for x in known["contradictions"].values()),
        readings=fill(Readings, content.get("readings", {}), "readings", known),
    )


def _refuse_loose_hyperparameters(where: str, method: Method, hyperparameters: Mapping[str, Any]) -> None:
    for name in hyperparameters:
        if name not in method.keys:
            raise RequestError(
                f"{where}: the hyperparameter {name} has no config key; add it to keys of the method {method.id}, "
                f"as in keys: {{lr: local.lr}}"
            )
