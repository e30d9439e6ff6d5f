"""What the papers report, as data: a YAML file per paper beside this module. docs/reproduction.md explains the keys."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from fedbench.papers.reading import Values, read


@dataclass(frozen=True)
class Reported:
    """A number as printed.

    Attributes:
        mean: the number, in the unit of its metric.
        std: the ± beside it, or None.
    """

    mean: float
    std: float | None


@dataclass(frozen=True)
class Metric:
    """A column of the paper's tables.

    Attributes:
        id: of the column.
        label: its heading.
        direction: higher or lower, whichever is better; None for neither.
        field: where a run has it: a key of ``rounds.jsonl``, or ``client:<k>``, the accuracy of client k.
        factor: from the run's unit to the printed one.
        definition: what is adopted, in words.
        fraction: of a tail, the share of the clients in it; else None.
    """

    id: str
    label: str
    direction: str | None
    field: str
    factor: float = 100.0
    definition: str = ""
    fraction: float | None = None


@dataclass(frozen=True)
class Method:
    """A row label of the paper.

    Attributes:
        id: in the paper's rows.
        label: for people.
        algo: the config group's choice.
        keys: hyperparameters of the rows -> config keys; one that is not here is not set.
        set: config keys that this label always sets.
        gradients: per local step and example, relative to FedAvg: what the time estimate counts.
    """

    id: str
    label: str
    algo: str
    keys: dict[str, str] = field(default_factory=dict)
    set: dict[str, Any] = field(default_factory=dict)
    gradients: float = 1.0

    def overrides(self, hyperparameters: Values) -> dict[str, Any]:
        """Return the config keys that a row of this method sets; hyperparameters that are not printed set none."""
        given = {self.keys[k]: v for k, v in hyperparameters.items() if k in self.keys and v is not None}
        return {**self.set, **given}


@dataclass(frozen=True)
class Reduction:
    """How a profile cuts a setup down.

    Attributes:
        set: config keys.
        seeds: how many.
    """

    set: dict[str, Any] = field(default_factory=dict)
    seeds: int | None = None


@dataclass(frozen=True)
class Setup:
    """A setting of the paper.

    Attributes:
        id: in the paper's rows.
        title: for people.
        experiment: the config that carries it out at the paper's values.
        clients: how many there are; None if the paper does not say.
        seeds: over how many the paper averages; 1 if it does not say.
        samples: training examples of a client, on average: what the time estimate counts.
        flops: of a training step, per example: three times those of the model's answer.
        gaps: what the paper leaves open here.
        profiles: reductions by profile.
        departs: what the paper prints and fedbench does not carry out, in words: such a setting is never full.
    """

    id: str
    title: str
    experiment: str
    clients: int | None
    seeds: int
    samples: int
    flops: float
    gaps: tuple[str, ...] = ()
    profiles: dict[str, Reduction] = field(default_factory=dict)
    departs: tuple[str, ...] = ()


@dataclass(frozen=True)
class Row:
    """A row of a table within one setup, or a run that a figure shows.

    Attributes:
        setup: its id.
        algo: the method's id.
        hyperparameters: as printed.
        values: by metric; empty for runs of figures.
    """

    setup: str
    algo: str
    hyperparameters: dict[str, Any] = field(default_factory=dict)
    values: dict[str, Reported] = field(default_factory=dict)


@dataclass(frozen=True)
class Table:
    """A table with results.

    Attributes:
        id: such as table5.
        caption: in our words.
        setups: ids, in order.
        columns: ids of metrics, in order.
        rows: in order.
        round: last or best: the round whose numbers are reported.
    """

    id: str
    caption: str
    setups: tuple[str, ...]
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    round: str = "last"


@dataclass(frozen=True)
class Figure:
    """A figure.

    Attributes:
        id: such as figure2.
        caption: in our words.
        kind: curves, distribution, sweep, front, labels, two_clients, cka, functions, or schematic (nothing to run).
        rows: the runs that it shows.
        spec: what its kind needs besides.
    """

    id: str
    caption: str
    kind: str
    rows: tuple[Row, ...] = ()
    spec: dict[str, Any] = field(default_factory=dict)

    @property
    def setups(self) -> tuple[str, ...]:
        """Ids of the setups, in order."""
        return tuple(dict.fromkeys(self.spec.get("setups", ()))) or tuple(dict.fromkeys(r.setup for r in self.rows))


@dataclass(frozen=True)
class Claim:
    """A statement of the paper.

    Attributes:
        id: such as c01.
        text: in our words.
        reference: where the paper makes it.
        check: how it is tested; None if it names nothing that could be.
        printed: whether the paper's own numbers agree: supports, contradicts, mixed or not tabulated.
    """

    id: str
    text: str
    reference: str
    check: dict[str, Any] | None
    printed: str


@dataclass(frozen=True)
class Gap:
    """What the paper does not say, and what is adopted in its place."""

    id: str
    field: str
    adopted: str
    why: str
    confidence: str


@dataclass(frozen=True, eq=False)
class Paper:
    """A paper.

    Attributes:
        id: short name, also the folder of its experiments.
        name: of its method, for headings.
        citation: authors, title, year, venue.
        metrics: by id.
        methods: by id.
        setups: by id.
        tables: by id; those with results only.
        figures: by id.
        claims: in order.
        gaps: in order.
        contradictions: (id, where the paper's text and numbers disagree, with what to make of it).
    """

    id: str
    name: str
    citation: str
    metrics: dict[str, Metric]
    methods: dict[str, Method]
    setups: dict[str, Setup]
    tables: dict[str, Table]
    figures: dict[str, Figure]
    claims: tuple[Claim, ...]
    gaps: tuple[Gap, ...]
    contradictions: tuple[tuple[str, str], ...]

    def rows(self, part: str) -> tuple[Row, ...]:
        """Return the runs behind a table or a figure."""
        return self.tables[part].rows if part in self.tables else self.figures[part].rows

    def overrides(self, row: Row) -> dict[str, Any]:
        """Return the config keys that a row sets beside its experiment and algorithm."""
        return self.methods[row.algo].overrides(row.hyperparameters)


@cache
def papers() -> dict[str, Paper]:
    """Return the papers on record, by id.

    Raises:
        RequestError: if a file has a fault.
    """
    found = sorted(Path(__file__).parent.glob("*.yaml"))
    return {p.id: p for p in (_paper(read(path)) for path in found)}


def _paper(c: Values) -> Paper:
    head = c["paper"]
    return Paper(
        id=head["id"],
        name=head["name"],
        citation=f"{', '.join(head['authors'])}: {head['title']}. {head['venue']}, {head['year']}",
        metrics=_by_id(Metric(**m) for m in c["metrics"]),
        methods=_by_id(Method(**m) for m in c["methods"]),
        setups=_by_id(_setup(s) for s in c["setups"]),
        tables=_by_id(_table(t) for t in c["tables"]),
        figures=_by_id(_figure(f) for f in c["figures"]),
        claims=tuple(Claim(**q) for q in c["claims"]),
        gaps=tuple(Gap(**g) for g in c["gaps"]),
        contradictions=tuple((x["id"], f"{x['statement']} {x['resolution']}") for x in c["contradictions"]),
    )


def _by_id(entries: Any) -> dict[str, Any]:
    return {e.id: e for e in entries}


def _setup(s: Values) -> Setup:
    profiles = {k: Reduction(**v) for k, v in s.get("profiles", {}).items()}
    return Setup(
        **{**s, "gaps": tuple(s.get("gaps", ())), "departs": tuple(s.get("departs", ())), "profiles": profiles}
    )


def _row(r: Values) -> Row:
    values = {
        k: Reported(float(v[0]), float(v[1])) if isinstance(v, list) else Reported(float(v), None)
        for k, v in r.get("values", {}).items()
    }
    return Row(r["setup"], r["algo"], dict(r.get("hyperparameters", {})), values)


def _table(t: Values) -> Table:
    return Table(
        t["id"],
        t["caption"],
        tuple(t["setups"]),
        tuple(t["columns"]),
        tuple(_row(r) for r in t["rows"]),
        t.get("round", "last"),
    )


def _figure(f: Values) -> Figure:
    spec = dict(f.get("spec", {}))
    rows = tuple(
        Row(s, r["algo"], dict(r.get("hyperparameters", {}))) for r in f.get("runs", ()) for s in spec["setups"]
    )
    return Figure(f["id"], f["caption"], f["kind"], rows, spec)
