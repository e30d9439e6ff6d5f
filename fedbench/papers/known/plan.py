"""The runs that known numbers need."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fedbench.papers.known.registry import Number, Reference
from fedbench.papers.plan import PlannedRun
from fedbench.papers.registry import Method, Paper, Reduction, Row, Setup


@dataclass(frozen=True)
class Wanted:
    """A known number under a profile.

    Attributes:
        seeds: Number of seeds.
        cut: Config keys that the profile sets.
    """

    reference: Reference
    number: Number
    seeds: int
    cut: dict[str, Any]

    @property
    def name(self) -> str:
        """Name of the reference, as it is typed."""
        return f"known/{self.reference.id}"

    def grid(self, algo: str) -> list[PlannedRun]:
        """Return the runs on which the tuned key of an algorithm is chosen, in the order of its values."""
        grid = self.number.grid
        if grid is None:
            return []
        return [self._run(algo, grid.seed, {grid.key: value}) for value in grid.values]

    def runs(self, algo: str, tuned: float | None) -> list[PlannedRun]:
        """Return the runs of an algorithm whose numbers count, with the chosen value of a tuned key."""
        grid = self.number.grid
        keys = {} if grid is None else {grid.key: tuned}
        return [self._run(algo, seed, keys) for seed in range(self.seeds)]

    def _run(self, algo: str, seed: int, keys: dict[str, Any]) -> PlannedRun:
        row = Row(self.number.experiment, algo)
        wanted = {**self.number.set, **keys}
        return PlannedRun(_paper(self.reference, self.number), row, seed, wanted, self.cut, [self.name])


def wanted(references: list[Reference], profile: str, seeds: int | None = None) -> list[Wanted]:
    """Return the known numbers of references under a profile.

    Args:
        references: The references.
        profile: ``full`` for the settings on record, or ``cpu`` or ``smoke`` for reduced ones where there are any.
        seeds: Number of seeds, which replaces that on record or of the profile; None to keep it.
    """
    found = []
    for reference in references:
        for number in reference.numbers:
            cut = next((c for name, c in number.profiles.items() if name == profile), Reduction())
            found.append(Wanted(reference, number, seeds or cut.seeds or number.seeds, cut.set))
    return found


def _paper(reference: Reference, number: Number) -> Paper:
    """Return a paper with the experiment and the algorithms of a number, which is what a plan knows of it."""
    setup = Setup(number.experiment, number.label, number.experiment, None, number.seeds, 1)
    return Paper(
        id="known",
        name=reference.title,
        citation=reference.source,
        metrics={},
        methods={algo: Method(algo, algo, algo) for algo in number.algos},
        setups={setup.id: setup},
        tables={},
        figures={},
        claims=(),
        gaps=(),
        contradictions=(),
    )
