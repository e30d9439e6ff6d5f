"""The papers as data; docs/adding_a_paper.md explains the keys of their files."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import NonNegativeFloat, PositiveInt, model_validator

from fedbench.core.validation import choice
from fedbench.papers.checks import AnyCheck
from fedbench.papers.parsing import (
    Entry,
    Known,
    MethodId,
    MetricId,
    RunField,
    Section,
    SetupId,
    id_in,
)
from fedbench.papers.readings import Contradiction, Gap, Readings, Values

GapId = Annotated[str, id_in("gaps")]


@dataclass(frozen=True)
class PrintedMetric(Entry):
    """A column of the paper's tables.

    Attributes:
        field: Field of a run: a key of ``rounds.jsonl``, or ``client:<k>`` for the accuracy of
            client k.
        factor: Factor from the run's unit to the printed one.
        target: Value of the field up to which rounds are counted. If None, the metric is the field
            itself.
        rounds: First and last round of a mean over rounds, in a run of full length. If None, the
            value is taken from the table's round.
    """

    id: str
    label: str
    direction: Literal["higher", "lower", None]
    field: RunField
    factor: NonNegativeFloat = 100.0
    definition: str = ""
    target: float | None = None
    rounds: tuple[int, int] | None = None


@dataclass(frozen=True)
class Method(Entry):
    """A row label of the paper.

    Attributes:
        keys: Config keys of the hyperparameters in the rows.
        set: Config keys that this label always sets, with their values.
    """

    id: str
    label: str
    algo: str
    keys: dict[str, str] = field(default_factory=dict)
    set: dict[str, Any] = field(default_factory=dict)

    def overrides(self, hyperparameters: Mapping[str, Any]) -> dict[str, Any]:
        """Return the config keys that a row of this method sets.

        Unprinted hyperparameters set no key.
        """
        keys = dict(self.set)
        for name, value in hyperparameters.items():
            if name in self.keys and value is not None:
                keys[self.keys[name]] = value
        return keys


@dataclass(frozen=True)
class Reduction(Entry):
    """A reduction of a setup by a profile: config keys, and seeds (None for the paper's number)."""

    set: dict[str, Any] = field(default_factory=dict)
    seeds: PositiveInt | None = None


@dataclass(frozen=True)
class Setup(Entry):
    """A setup of the paper.

    Attributes:
        clients: Number of clients; None if the paper does not state it.
        seeds: Number of seeds over which the paper averages; 1 if the paper does not state it.
        examples_per_client: Mean number of training examples per client, for time estimates.
        departs: Descriptions of parts of the printed setting that fedbench does not implement. A
            setup with such parts is never full.
        settings: Values of the experiment that it did not have when earlier runs were made, by
            configuration key. Runs with other values are not full.
    """

    id: str
    title: str
    experiment: str
    clients: PositiveInt | None
    seeds: PositiveInt
    examples_per_client: PositiveInt
    gaps: tuple[GapId, ...] = ()
    profiles: dict[Literal["cpu", "smoke"], Reduction] = field(default_factory=dict)
    departs: tuple[str, ...] = ()
    settings: dict[str, Any] = field(default_factory=dict)


# ---- tables and figures


@dataclass(frozen=True)
class Reported(Entry):
    """A printed number in the unit of its metric, with its ± if there is one."""

    mean: float
    std: float | None

    @model_validator(mode="before")
    @classmethod
    def _of_number_or_pair(cls, value: Any) -> Any:
        pair = value if isinstance(value, list) else [value, None]
        if len(pair) != 2:
            raise ValueError(f"must be a number or [number, ±]; got {value!r}")
        return {"mean": pair[0], "std": pair[1]}

    def __str__(self) -> str:
        """Return the number with its ± as text."""
        return f"{self.mean:g}" if self.std is None else f"{self.mean:g} ± {self.std}"


@dataclass(frozen=True)
class Impossible(Entry):
    """A contradiction between printed numbers of a row, under unweighted clients.

    ``scripts/impossible_numbers.py`` finds such contradictions.
    """

    columns: tuple[MetricId, ...]
    why: str


@dataclass(frozen=True)
class Row(Entry):
    """A row of a table within one setup, or a run that a figure shows.

    Attributes:
        setup: Id of the setup; empty for runs of figures, which are shown for every setup of the
            figure.
        hyperparameters: Values as printed.
        values: Printed numbers by metric; empty for runs of figures.
        impossible: The contradiction between the printed numbers, or None.
    """

    algo: MethodId
    setup: str = ""
    hyperparameters: dict[str, Any] = field(default_factory=dict)
    values: dict[str, Reported] = field(default_factory=dict)
    impossible: Impossible | None = None

    def validate(self, known: Known) -> None:
        """Refuse hyperparameters without a config key."""
        methods = known.get("methods", {})
        for name in self.hyperparameters if self.algo in methods else ():
            if name not in methods[self.algo].keys:
                raise ValueError(
                    f"the hyperparameter {name} has no config key; add it to keys of the method "
                    f"{self.algo}, as in keys: {{lr: local.lr}}"
                )


@dataclass(frozen=True)
class Tuning(Entry):
    """Sentences on tuned hyperparameters; the rows use the values that the paper states.

    Attributes:
        paper: Hyperparameters that the paper says it tuned, and the tuned methods.
        here: Hyperparameters tuned with fedbench because the paper states no value, or a statement
            that there are none.
    """

    paper: str
    here: str


@dataclass(frozen=True)
class Table(Entry):
    """A table with results.

    Attributes:
        round: Round whose numbers are reported, ``last`` or ``best``.
        tuning: Sentences on tuned methods, or None.
    """

    id: str
    caption: str
    setups: tuple[SetupId, ...]
    columns: tuple[MetricId, ...]
    rows: tuple[Row, ...]
    round: Literal["last", "best"] = "last"
    tuning: Tuning | None = None

    def validate(self, known: Known) -> None:
        """Refuse rows with setups or columns that are not in the table."""
        for number, row in enumerate(self.rows, 1):
            choice(f"row {number}: setup", row.setup, self.setups)
            for column in row.values:
                choice(f"row {number}: column", column, self.columns)


_NEEDED = {  # kind of figure -> required keys
    "curves": ("setups", "fields"),
    "sweep": ("setups", "fields", "parameter"),
    "front": ("setups", "fields", "parameter"),
    "distribution": ("setups",),
    "two_clients": ("setups",),
    "cka": ("setups",),
    "schematic": (),
}


@dataclass(frozen=True)
class Figure(Entry):
    """A figure with a panel per setup.

    Attributes:
        kind: ``curves`` over the rounds, ``sweep`` (final values over a hyperparameter), ``front``
            (two final values against each other), ``distribution`` over clients, ``two_clients``,
            ``cka`` (used only by claims) or ``schematic``; the last two are not drawn.
        setups: Ids of the setups, in the paper's order.
        fields: Fields to draw.
        parameter: The hyperparameter of a sweep or a front.
        distribution: Whether to draw the final distribution over clients in addition to the curves.
        runs: The runs shown for every setup.
        tuning: Sentences on tuned methods, or None.
    """

    id: str
    caption: str
    kind: str
    setups: tuple[SetupId, ...] = ()
    fields: tuple[RunField, ...] = ()
    parameter: str = ""
    distribution: bool = False
    runs: tuple[Row, ...] = ()
    tuning: Tuning | None = None

    @property
    def number(self) -> str:
        """The figure's number in the paper."""
        return self.id.removeprefix("figure").replace("_", "").upper()

    @property
    def drawn(self) -> bool:
        """Whether fedbench draws the figure."""
        return self.kind not in ("cka", "schematic")

    @cached_property
    def rows(self) -> tuple[Row, ...]:
        """The rows of the figure: every run in every setup."""
        return tuple(replace(run, setup=setup) for run in self.runs for setup in self.setups)

    def validate(self, known: Known) -> None:
        """Refuse an unknown kind, missing keys, and a parameter that no run has."""
        for key in _NEEDED[choice("kind", self.kind, _NEEDED)]:
            if not getattr(self, key):
                raise ValueError(f"a figure of kind {self.kind} needs {key}")
        if self.kind == "front" and len(self.fields) != 2:
            raise ValueError(f"a front has two fields; got {', '.join(self.fields)}")
        if self.parameter and not any(self.parameter in run.hyperparameters for run in self.runs):
            raise ValueError(
                f"no run has the parameter {self.parameter!r} among its hyperparameters"
            )


# ---- the paper


@dataclass(frozen=True)
class Claim(Entry):
    """A statement in the paper.

    Attributes:
        text: The statement, paraphrased.
        reference: Location of the statement in the paper.
        check: The test of the claim; None if it states nothing testable.
        printed: Whether the paper's own numbers agree with the claim.
        tested: Description of the test.
        beyond: The untested part of the statement; empty if all of it is tested.
        refuted: The result that would refute the claim.
        needs: Requirements of a verdict beyond the profile ``cpu``; empty if the runs of ``cpu``
            suffice.
    """

    id: str
    text: str
    reference: str
    check: AnyCheck | None
    printed: Literal["supports", "contradicts", "mixed", "not tabulated"]
    tested: str = ""
    beyond: str = ""
    refuted: str = ""
    needs: str = ""


@dataclass(frozen=True)
class Head(Entry):
    """Identity of a paper.

    Attributes:
        id: Name of the paper's file and of the folder with its experiments.
        name: Name of the paper's method.
        note: A caveat shown before the counts.
        headlines: Ids of the claims that the front page names, the paper's main ones.
        benchmark: Whether the file lists known numbers of public benchmarks instead of a paper.
    """

    id: str
    name: str
    title: str
    authors: tuple[str, ...]
    year: int
    venue: str
    note: str = ""
    headlines: tuple[str, ...] = ()
    benchmark: bool = False


@dataclass(frozen=True, eq=False)
class Paper(Entry):
    """A paper. Sections are keyed by id, and each refers only to earlier sections.

    Attributes:
        readings: Defensible readings of the paper's numbers other than the adopted one.
    """

    paper: Head
    gaps: Section[Gap]
    metrics: Section[PrintedMetric]
    methods: Section[Method]
    setups: Section[Setup]
    tables: Section[Table]
    figures: Section[Figure]
    claims: Section[Claim]
    contradictions: Section[Contradiction]
    values: Section[Values] = field(default_factory=dict)
    readings: Readings = field(default_factory=Readings)

    def validate(self, known: Known) -> None:
        """Refuse headlines that are no claims."""
        for claim in self.paper.headlines:
            choice("paper: headlines", claim, self.claims)

    @property
    def id(self) -> str:
        """Short name of the paper, also used for the folder with its experiments."""
        return self.paper.id

    @property
    def name(self) -> str:
        """Name of the paper's method, for headings."""
        return self.paper.name

    @property
    def citation(self) -> str:
        """Authors, title, venue and year."""
        head = self.paper
        return f"{', '.join(head.authors)}: {head.title}. {head.venue}, {head.year}"

    def rows(self, part: str) -> tuple[Row, ...]:
        """Return the runs behind a table or a figure."""
        return self.tables[part].rows if part in self.tables else self.figures[part].rows

    def values_of(self, row: Row) -> tuple[Values, ...]:
        """Return the origins of a row's values; empty if the values are the paper's."""
        return tuple(
            values for values in self.values.values() if values.concerns(row.algo, row.setup)
        )

    def searched(self, row: Row) -> bool:
        """Return whether values of a row were found by a search with fedbench."""
        return any(values.origin == "searched" for values in self.values_of(row))

    def overrides(self, row: Row) -> dict[str, Any]:
        """Return the config keys that a row sets in addition to its experiment and algorithm."""
        return self.methods[row.algo].overrides(row.hyperparameters)
