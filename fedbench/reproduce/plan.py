"""The runs that chosen tables and figures need under a profile."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedbench.config.compose import Composer
from fedbench.config.schema import RunConfig
from fedbench.config.targets import user_code_from
from fedbench.core.config_values import config_value
from fedbench.core.errors import RequestError, nearest
from fedbench.papers.readings import Variant
from fedbench.papers.registry import papers
from fedbench.papers.schema import Paper, Reduction, Row
from fedbench.runs.run import is_done

if TYPE_CHECKING:
    from fedbench.runs.results import Results

_SPLITS = 10  # number of data seeds of the reading with splits drawn; a claim of up to 51 comparisons can hold and fail


@dataclass
class PlannedRun:
    """A planned run.

    Attributes:
        row: First row of a table or figure that needs the run.
        wanted: Config keys that the row sets.
        cut: Config keys that the profile sets; they replace those of the row.
        parts: Tables and figures that need the run.
        path: The run's directory, once it is known.
        config: The configuration of the setting (with seed 0), once it is known.
        reading: Reading of the paper that needs the run: ``split``, the id of a variant, or empty for the adopted one.
        variant: The variant of the settings, or None.
        published: What became of it in a published report of the results directory; empty if none has it finished.
    """

    paper: Paper
    row: Row
    seed: int
    wanted: dict[str, Any]
    cut: dict[str, Any]
    parts: list[str] = field(default_factory=list)
    path: Path | None = None
    config: RunConfig | None = None
    reading: str = ""
    variant: Variant | None = None
    published: str = ""

    @property
    def experiment(self) -> str:
        """Name of the experiment's config."""
        return self.paper.setups[self.row.setup].experiment

    @property
    def algo(self) -> str:
        """Name of the algorithm in the config group."""
        algo = self.paper.methods[self.row.algo].algo
        return algo if self.variant is None else self.variant.algos.get(self.row.algo, algo)

    @property
    def config_dir(self) -> Path | None:
        """Directory with algorithms that fedbench does not have itself, or None."""
        return Path(self.variant.config_dir) if self.variant and self.variant.config_dir else None

    @property
    def done(self) -> bool:
        """Whether the run is finished, on disk or in a published report."""
        return bool(self.published) or (self.path is not None and is_done(self.path))

    @property
    def keys(self) -> dict[str, Any]:
        """Config keys that the run sets."""
        return {**self.wanted, **self.cut}

    @cached_property
    def setting(self) -> tuple[str, ...]:
        """The setting without the seed, as overrides."""
        keys = (f"{k}={config_value(v)}" for k, v in self.keys.items())
        return (f"experiment={self.experiment}", f"algo={self.algo}", *keys)

    @property
    def overrides(self) -> list[str]:
        """The setting and the seed, as overrides."""
        return [*self.setting, f"seed={self.seed}"]


def parts(paper: Paper) -> list[str]:
    """Return the ids of a paper's tables and figures that need runs or data."""
    figures = (f.id for f in paper.figures.values() if f.kind != "schematic")
    return [*paper.tables, *figures]


def chosen(names: Sequence[str]) -> list[tuple[Paper, str]]:
    """Return the tables and figures with the given names, ``paper/table`` or ``paper``; without names, all of them.

    Raises:
        RequestError: If a name is neither.
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
            raise RequestError(f"unknown table, figure or paper {name!r}{hint or '; see `fedbench list table`'}")
        out += found
    return list(dict.fromkeys(out))


def plan(names: Sequence[str], profile: str, seeds: int | None = None, readings: bool = False) -> list[PlannedRun]:
    """Return the runs that tables and figures need, each once, in the order of the tables and figures.

    Args:
        names: Names as for ``chosen``.
        profile: ``full`` for the paper's setting, or ``cpu`` or ``smoke`` for the reductions in the papers' files.
        seeds: Number of seeds, which replaces that of the paper or the profile; None to keep it.
        readings: Whether the runs that other readings of the papers need come after those of the adopted ones:
            further splits of the data, and variants of the settings except those of ``missing_variants``.
    """
    planned: dict[tuple[str, ...], PlannedRun] = {}
    for of_row in (_of_row, _of_readings) if readings else (_of_row,):
        for paper, part in chosen(names):
            for row in paper.rows(part):
                for run in of_row(paper, row, profile, seeds):
                    planned.setdefault(tuple(run.overrides), run).parts.append(f"{paper.id}/{part}")
    return list(planned.values())


def missing_variants(names: Sequence[str]) -> list[tuple[Paper, Variant]]:
    """Return the variants of chosen papers whose algorithms are in a directory that does not exist here."""
    found = dict.fromkeys(paper for paper, _ in chosen(names))
    return [
        (p, v) for p in found for v in p.readings.variants.values() if v.config_dir and not Path(v.config_dir).is_dir()
    ]


def _of_readings(paper: Paper, row: Row, profile: str, seeds: int | None) -> Iterator[PlannedRun]:
    """Return the runs of a row on each of several splits, and under each variant of its settings."""
    for run in _of_row(paper, row, profile, seeds):
        for split in range(_SPLITS) if paper.readings.splits else ():
            yield replace(run, wanted={**run.wanted, "data.seed": split}, parts=[], reading="split")
        for variant in paper.readings.variants.values():
            here = not variant.config_dir or Path(variant.config_dir).is_dir()
            if here and variant.concerns(row.setup) and variant.changes(row.algo):
                keys = variant.keys(row.algo)
                cut, wanted = {k: v for k, v in run.cut.items() if k not in keys}, {**run.wanted, **keys}
                yield replace(run, wanted=wanted, cut=cut, parts=[], reading=variant.id, variant=variant)


def _of_row(paper: Paper, row: Row, profile: str, seeds: int | None) -> Iterator[PlannedRun]:
    setup = paper.setups[row.setup]
    cut = next((c for name, c in setup.profiles.items() if name == profile), Reduction())
    wanted = paper.overrides(row)
    # a row keeps its own settings, except for rounds: those of a method with several stages are reduced as well
    keys = {k: v for k, v in cut.set.items() if k not in wanted or k == "rounds"}
    for seed in range(seeds or cut.seeds or setup.seeds):
        yield PlannedRun(paper, row, seed, wanted, keys)


def locate(runs: Sequence[PlannedRun], common: Sequence[str], published: Results | None = None) -> list[PlannedRun]:
    """Find the directory of each run and return each run once: two spellings of a setting may be the same run.

    Args:
        runs: The plan; paths and configurations are set.
        common: Overrides for all runs, such as results_dir.
        published: The published reports whose runs count as finished; None for none.

    Raises:
        RequestError: If a configuration cannot be composed.
    """
    composers = {folder: Composer(folder) for folder in {run.config_dir for run in runs}}
    found: dict[tuple[str, ...], RunConfig] = {}
    for setting, run in {run.setting: run for run in runs}.items():
        with user_code_from(run.config_dir):  # whose content is part of the path
            found[setting] = composers[run.config_dir].config([*setting, *common])
    once: dict[Path, PlannedRun] = {}
    for run in runs:
        run.config = found[run.setting]
        run.path = run.config.path.with_name(f"seed_{run.seed}")
        there = None if published is None else published.published(run.paper.id).get(run.path)
        run.published = "" if there is None else there.outcome
        first = once.setdefault(run.path, run)
        first.parts += [p for p in run.parts if p not in first.parts]
    return list(once.values())


def prefer_full(
    runs: Sequence[PlannedRun], full: Sequence[PlannedRun], common: Sequence[str], published: Results
) -> list[PlannedRun]:
    """Replace reduced runs that are not done by those at the paper's settings, for rows where these are all done.

    Args:
        runs: The located plan under a profile.
        full: The plan of the same tables and figures at the papers' settings.
        common: Overrides for all runs.
        published: The published reports whose runs count as finished.
    """
    missing = {_full_setting(run) for run in runs if run.cut and not run.done}
    wanted = [run for run in full if run.setting in missing]
    located = locate(wanted, common, published)
    ready = {run.setting for run in wanted} - {run.setting for run in wanted if not run.done}
    return [r for r in runs if _full_setting(r) not in ready] + [r for r in located if r.setting in ready]


def _full_setting(run: PlannedRun) -> tuple[str, ...]:
    return replace(run, cut={}).setting


def table_names() -> list[tuple[str, str]]:
    """Return the names that ``fedbench reproduce`` accepts, with captions."""
    return [
        (f"{paper.id}/{part}", paper.tables[part].caption if part in paper.tables else paper.figures[part].caption)
        for paper, part in chosen([])
    ]
