"""Known numbers as data: ``known.yaml`` in this folder."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

from fedbench.core.errors import RequestError, nearest
from fedbench.core.trees import from_yaml
from fedbench.papers.reading import AtLeast, Called, Known, RunField, entries
from fedbench.papers.registry import Reduction


@dataclass(frozen=True)
class Measure:
    """One number of a run.

    Attributes:
        kind: ``rounds_to``: first evaluated round at which ``field`` has reached ``target``; ``at``: the value in round
            ``first``; ``mean``: the mean over the rounds from ``first`` to ``last``; ``best``: the best value.
        field: Field of a run: a key of ``rounds.jsonl``, in the unit of the run.
    """

    kind: Literal["rounds_to", "at", "mean", "best"]
    field: Annotated[str, RunField()]
    target: float | None = None
    first: int | None = None
    last: int | None = None

    def validate(self, where: str, known: Known) -> None:
        """Refuse a measure without the numbers that its kind needs."""
        needed = {"rounds_to": ("target",), "at": ("first",), "mean": ("first", "last"), "best": ()}[self.kind]
        for name in ("target", "first", "last"):
            if (getattr(self, name) is None) == (name in needed):
                raise RequestError(f"{where}: {self.kind} {'needs' if name in needed else 'has no'} {name}")


@dataclass(frozen=True)
class Published:
    """A published value in the unit of the page (percent, points or rounds), and who published it.

    Attributes:
        value: The value; None where only a band or an order is stated.
        std: The published ±, or None.
    """

    by: str
    value: float | None = None
    std: float | None = None


@dataclass(frozen=True)
class Grid:
    """A key that is tuned: the value with the best measure on a seed of its own counts.

    Attributes:
        seed: Random seed of the runs of the grid, which is none of those of the number.
    """

    key: str
    values: tuple[float, ...]
    seed: int = 1000


@dataclass(frozen=True)
class Number:
    """A known number.

    Attributes:
        experiment: Name of the experiment's config.
        algo: Name of the algorithm in the config group.
        seeds: Number of seeds of the runs here.
        set: Config keys on top of the experiment.
        against: An algorithm whose number is subtracted, seed by seed; None for the number itself.
        published: What others published.
        band: Bounds between which the mean must be to agree with what is published, in the unit of the page; None is no
            bound.
        grid: A key that is tuned, or None.
        profiles: Reduced settings.
    """

    id: str
    label: str
    experiment: str
    algo: str
    measure: Measure
    seeds: Annotated[int, AtLeast(1)]
    band: tuple[float | None, ...] = (None, None)
    published: Annotated[tuple[Published, ...], Called("value")] = ()
    set: dict[str, Any] = field(default_factory=dict)
    against: str | None = None
    grid: Grid | None = None
    profiles: Annotated[dict[Literal["cpu", "smoke"], Reduction], Called("profile")] = field(default_factory=dict)

    def validate(self, where: str, known: Known) -> None:
        """Refuse a band that is none or without need, and a tuning seed that is one of the results."""
        if len(self.band) != 2 or (None not in self.band and not self.band[0] < self.band[1]):  # type: ignore[operator]
            raise RequestError(f"{where}: band must be [low, high] with low < high, null for no bound; got {self.band}")
        if bool(self.published) != (self.band != (None, None)):
            raise RequestError(f"{where}: a number has a band if it has published values, and only then")
        if self.grid is not None and self.grid.seed < self.seeds:
            raise RequestError(f"{where}: grid: seed must be {self.seeds} or above, got {self.grid.seed}")

    @property
    def algos(self) -> tuple[str, ...]:
        """The algorithms whose runs the number needs."""
        return (self.algo,) if self.against is None else (self.algo, self.against)


@dataclass(frozen=True)
class Reference:
    """Known numbers of one benchmark.

    Attributes:
        title: What was measured.
        source: Where the numbers are published.
        setup: The published setup, in words.
        differs: What is different here, one sentence each; empty if nothing is.
        depends: What the numbers depend on.
        numbers: The numbers.
    """

    id: str
    title: str
    source: str
    setup: str
    depends: str
    numbers: Annotated[tuple[Number, ...], Called("number")]
    differs: tuple[str, ...] = ()


@cache
def references() -> dict[str, Reference]:
    """Return the known numbers on record, by id of the benchmark.

    Raises:
        RequestError: If the file is invalid.
    """
    path = Path(__file__).with_name("known.yaml")
    try:
        return entries(Reference, "references", from_yaml(path.read_text(encoding="utf-8"))["references"], {})
    except RequestError as error:
        raise RequestError(f"{path.name}: {error}") from error


def reference_names() -> list[tuple[str, str]]:
    """Return the names of known numbers that ``fedbench reproduce`` accepts, with titles."""
    return [("known", "all known numbers"), *((f"known/{key}", r.title) for key, r in references().items())]


def chosen_references(names: list[str]) -> list[Reference]:
    """Return the references that are named ``known/<id>``; all of them for ``known``.

    Raises:
        RequestError: If a name is unknown.
    """
    found: dict[str, Reference] = {}
    every = {f"known/{key}": reference for key, reference in references().items()}
    for name in names:
        if name != "known" and name not in every:
            hint = nearest(name, ["known", *every]) or f"; they are known, {', '.join(every)}"
            raise RequestError(f"unknown reference {name!r}{hint}; papers are reproduced by another command")
        found |= every if name == "known" else {name: every[name]}
    return list(found.values())
