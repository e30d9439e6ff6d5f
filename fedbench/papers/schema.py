"""What the papers report, as data: docs/adding_a_paper.md explains the keys of their files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import NonNegativeFloat, PositiveInt

from fedbench.papers.checks import AnyCheck
from fedbench.papers.figures import Figure
from fedbench.papers.parsing import Entry, Known, MetricId, RunField, SetupId, id_in, one_of
from fedbench.papers.readings import NO_READINGS, Readings
from fedbench.papers.rows import Row, Tuning

GapId = Annotated[str, id_in("gaps")]


@dataclass(frozen=True)
class PrintedMetric(Entry):
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
    field: RunField
    factor: NonNegativeFloat = 100.0
    definition: str = ""
    fraction: NonNegativeFloat | None = None
    target: float | None = None
    rounds: tuple[int, int] | None = None

    def validate(self, known: Known) -> None:
        """Refuse a tail metric without the share of its clients."""
        tail = self.field.startswith(("accuracy_worst", "accuracy_best"))
        if tail and not 0 < (self.fraction or 0) < 1:
            raise ValueError(
                f"needs fraction, the share of the clients in the tail, such as 0.3; got {self.fraction!r}"
            )


@dataclass(frozen=True)
class Method(Entry):
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
class Reduction(Entry):
    """How a profile reduces a setup.

    Attributes:
        seeds: Number of seeds; None to keep the paper's.
    """

    set: dict[str, Any] = field(default_factory=dict)
    seeds: PositiveInt | None = None


@dataclass(frozen=True)
class Setup(Entry):
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
    clients: PositiveInt | None
    seeds: PositiveInt
    examples_per_client: PositiveInt
    gaps: tuple[GapId, ...] = ()
    profiles: dict[Literal["cpu", "smoke"], Reduction] = field(default_factory=dict)
    departs: tuple[str, ...] = ()


@dataclass(frozen=True)
class Table(Entry):
    """A table with results.

    Attributes:
        round: Round whose numbers are reported, ``last`` or ``best``.
        tuning: Which of its methods were tuned.
    """

    id: str
    caption: str
    setups: tuple[SetupId, ...]
    columns: tuple[MetricId, ...]
    rows: tuple[Row, ...]
    round: Literal["last", "best"] = "last"
    tuning: Tuning | None = None

    def validate(self, known: Known) -> None:
        """Refuse rows with setups, columns or hyperparameters that do not exist."""
        for number, row in enumerate(self.rows, 1):
            try:
                one_of(row.setup, self.setups, "setup")
                for column in row.values:
                    one_of(column, self.columns, "column")
                row.validate(known)
            except ValueError as error:
                raise ValueError(f"row {number}: {error}") from error


@dataclass(frozen=True)
class Claim(Entry):
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
    check: AnyCheck | None
    printed: Literal["supports", "contradicts", "mixed", "not tabulated"]
    tested: str = ""
    beyond: str = ""
    refuted: str = ""
    needs: str = ""
    reduced: Literal["decide", "support", "refute", "neither"] = "decide"


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


@dataclass(frozen=True)
class Head(Entry):
    """What identifies a paper."""

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
