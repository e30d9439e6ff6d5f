"""Which runs the chosen tables and figures need under a profile."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedbench.config.schema import RunConfig
from fedbench.core.errors import RequestError, nearest
from fedbench.core.trees import Tree, config_value
from fedbench.papers.registry import Paper, Reduction, Row, papers

PROFILES = ("full", "cpu", "smoke")


@dataclass
class PlannedRun:
    """One run.

    Attributes:
        paper: it is for.
        row: of the table or figure that asked first.
        seed: of the run.
        wanted: config keys that the row sets.
        cut: config keys that the profile sets, in place of the row's where both do.
        parts: the tables and figures that need it.
        also: other ways in which rows ask for the same run.
        path: the run's directory, once it is known.
        config: the resolved configuration, once it is known.
        run_config: The parsed configuration of the setting, once it is known.
    """

    paper: Paper
    row: Row
    seed: int
    wanted: dict[str, Any]
    cut: dict[str, Any]
    parts: list[str] = field(default_factory=list)
    also: list[dict[str, Any]] = field(default_factory=list)
    path: Path | None = None
    config: Tree = field(default_factory=dict)
    run_config: RunConfig | None = None

    @property
    def experiment(self) -> str:
        """The config of its setup."""
        return self.paper.setups[self.row.setup].experiment

    @property
    def algo(self) -> str:
        """The config group's choice."""
        return self.paper.methods[self.row.algo].algo

    @property
    def done(self) -> bool:
        """Whether it is on disk."""
        return self.path is not None and (self.path / "DONE").exists()

    @property
    def setting(self) -> tuple[str, ...]:
        """What it is, without its seed, as overrides."""
        keys = {**self.wanted, **self.cut}
        return (
            f"experiment={self.experiment}",
            f"algo={self.algo}",
            *(f"{k}={config_value(v)}" for k, v in keys.items()),
        )

    @property
    def overrides(self) -> list[str]:
        """What it is, as overrides."""
        return [*self.setting, f"seed={self.seed}"]


def parts(paper: Paper) -> list[str]:
    """Return the names of a paper's tables and figures that need runs or data."""
    figures = (f.id for f in paper.figures.values() if f.kind not in ("schematic", "functions"))
    return [*paper.tables, *figures]


def chosen(names: Sequence[str]) -> list[tuple[Paper, str]]:
    """Return the tables and figures that names stand for: ``paper/table``, or ``paper`` for all of it; none: all.

    Raises:
        RequestError: for a name that is neither.
    """
    known = [(p, part) for p in papers().values() for part in parts(p)]
    if not names:
        return known
    out = []
    for name in names:
        found = [(p, part) for p, part in known if name in (p.id, f"{p.id}/{part}")]
        if not found:
            everything = [*papers(), *(f"{p.id}/{part}" for p, part in known)]
            hint = nearest(name, everything)
            raise RequestError(
                f"{name!r} is no table, figure or paper on record; `fedbench list table` shows them{hint}"
            )
        out += found
    return list(dict.fromkeys(out))


def plan(names: Sequence[str], profile: str, seeds: int | None = None) -> list[PlannedRun]:
    """Return the runs that tables and figures need, each once, in the order in which they ask for them.

    Args:
        names: as for ``chosen``.
        profile: full: the paper's setting; cpu or smoke: with the reductions that the registry names.
        seeds: in place of the paper's, or the profile's, number.
    """
    jobs: dict[tuple[str, ...], PlannedRun] = {}
    for paper, part in chosen(names):
        for row in paper.rows(part):
            for job in _of_row(paper, row, profile, seeds):
                jobs.setdefault(tuple(job.overrides), job).parts.append(f"{paper.id}/{part}")
    return list(jobs.values())


def _of_row(paper: Paper, row: Row, profile: str, seeds: int | None) -> Iterator[PlannedRun]:
    setup = paper.setups[row.setup]
    cut = setup.profiles.get(profile, Reduction())
    wanted = paper.overrides(row)
    # a row's own settings stay, but a method of several stages has rounds of its own, which are cut as well
    keys = {k: v for k, v in cut.set.items() if k not in wanted or k == "rounds"}
    for seed in range(seeds or cut.seeds or setup.seeds):
        yield PlannedRun(paper, row, seed, wanted, keys)


def table_names() -> list[tuple[str, str]]:
    """Return the names that ``fedbench reproduce`` takes, with captions."""
    return [
        (f"{paper.id}/{part}", paper.tables[part].caption if part in paper.tables else paper.figures[part].caption)
        for paper, part in chosen([])
    ]
