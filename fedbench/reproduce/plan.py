"""The runs that chosen tables and figures need under a profile."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedbench.config.compose import Composer
from fedbench.config.plans import Plan, plans_of
from fedbench.config.schema import RunConfig
from fedbench.config.user_sources import user_code_from
from fedbench.core.config_values import config_value
from fedbench.core.errors import RequestError, nearest
from fedbench.papers.readings import Variant
from fedbench.papers.registry import papers
from fedbench.papers.schema import Paper, Reduction, Row
from fedbench.runs.run import is_done
from fedbench.runs.source_files import official_files

if TYPE_CHECKING:
    from fedbench.runs.results import Results


@dataclass(kw_only=True)
class PlannedRun:
    """A planned run.

    Attributes:
        paper: The paper.
        row: First row of a table or figure that needs the run.
        algo: Name of the algorithm in the config group.
        seed: Random seed of the run.
        wanted: Config keys set by the row.
        cut: Config keys set by the profile; of the row's keys, only ``rounds`` can be among them.
        parts: Tables and figures that need the run.
        reading: Variant of the settings that needs the run; empty for the adopted settings.
        config_dir: Directory with algorithms that are not part of fedbench, or None.
        path: The run's directory; ``locate`` sets it.
        config: The configuration of the setting, with seed 0; ``locate`` sets it.
        published: Outcome of the run in a published report in the results directory; empty if no
            report contains the finished run.
    """

    paper: Paper
    row: Row
    algo: str
    seed: int
    wanted: dict[str, Any]
    cut: dict[str, Any]
    parts: list[str] = field(default_factory=list)
    reading: str = ""
    config_dir: Path | None = None
    path: Path = field(init=False, compare=False)
    config: RunConfig = field(init=False, compare=False)
    published: str = ""

    @property
    def experiment(self) -> str:
        """Name of the experiment's config."""
        return self.paper.setups[self.row.setup].experiment

    @property
    def done(self) -> bool:
        """Whether the run is finished, on disk or in a published report."""
        return bool(self.published) or is_done(self.path)

    @property
    def keys(self) -> dict[str, Any]:
        """Config keys set by the run."""
        return {**self.wanted, **self.cut}

    @cached_property
    def setting(self) -> tuple[str, ...]:
        """The setting without the seed, as overrides."""
        keys = (f"{key}={config_value(value)}" for key, value in self.keys.items())
        return (f"experiment={self.experiment}", f"algo={self.algo}", *keys)

    @property
    def overrides(self) -> list[str]:
        """The setting and the seed, as overrides."""
        return [*self.setting, f"seed={self.seed}"]


def parts(paper: Paper) -> list[str]:
    """Return the ids of a paper's tables and figures that need runs or data."""
    figures = paper.figures.items()
    drawn = [name for name, figure in figures if figure.kind != "schematic"]
    return [*paper.tables, *drawn]


def chosen(names: Sequence[str]) -> list[tuple[Paper, str]]:
    """Return the tables and figures with the given names, ``paper/table`` or ``paper``.

    If no names are given, all tables and figures are returned.

    Raises:
        RequestError: If a name is unknown.
    """
    known = {}
    for paper in papers().values():
        for part in parts(paper):
            known[f"{paper.id}/{part}"] = paper, part
    if not names:
        return list(known.values())
    selected: list[tuple[Paper, str]] = []
    for name in names:
        matching = []
        for full, entry in known.items():
            if f"{full}/".startswith(f"{name}/"):
                matching.append(entry)
        if not matching:
            hint = nearest(name, [*papers(), *known])
            raise RequestError(
                f"unknown table, figure or paper {name!r}{hint or '; see `fedbench list table`'}"
            )
        selected += matching
    return list(dict.fromkeys(selected))


def plan(
    names: Sequence[str],
    profile: str,
    seeds: int | None = None,
    readings: bool = False,
    folder: Path | None = None,
) -> list[PlannedRun]:
    """Return the runs that tables and figures need, each once, in the order of the tables.

    Args:
        names: Names as for ``chosen``.
        profile: ``full`` for the papers' settings, or ``cpu`` or ``smoke`` for the reductions in
            the papers' files.
        seeds: Number of seeds, which replaces the seeds of plans and the number in the paper or the
            profile. If None, they are kept.
        readings: Whether to append the runs for other readings of the papers: variants of the
            settings, except those of ``missing_variants``. Variants in plans are always appended.
        folder: The results directory with the plans (``fedbench.config.plans``), or None.
    """
    adopted: list[PlannedRun] = []
    variants: list[PlannedRun] = []
    for paper, part in chosen(names):
        plans: tuple[Plan, ...] = ()
        if folder is not None and profile != "smoke":
            plans = plans_of(folder, paper.id)
        for row in paper.rows(part):
            runs, asking = _row_runs(paper, row, profile, seeds, plans)
            wanted = None
            if not readings:
                wanted = {variant for plan in asking for variant in plan.variants}
            for run in runs:
                others = list(_variant_runs(run, wanted))
                for one in (run, *others):
                    one.parts.append(f"{paper.id}/{part}")
                adopted.append(run)
                variants += others

    planned: dict[tuple[str, ...], PlannedRun] = {}
    for run in (*adopted, *variants):
        first = planned.setdefault(tuple(run.overrides), run)
        if first is not run:
            first.parts += run.parts
    return list(planned.values())


def missing_variants(names: Sequence[str]) -> list[tuple[Paper, Variant]]:
    """Return the variants of the chosen papers whose directory of algorithms is missing."""
    missing = []
    wanted = dict.fromkeys(paper for paper, _ in chosen(names))
    for paper in wanted:
        for variant in paper.readings.variants.values():
            if not Path(variant.config_dir).is_dir():
                missing.append((paper, variant))
    return missing


def _row_runs(
    paper: Paper,
    row: Row,
    profile: str,
    seeds: int | None,
    plans: Sequence[Plan],
) -> tuple[list[PlannedRun], list[Plan]]:
    """Return the runs of a row under a profile, and the plans that ask for them."""
    setup = paper.setups[row.setup]
    reductions = (reduced for name, reduced in setup.profiles.items() if name == profile)
    reduction = next(reductions, Reduction())
    wanted = paper.overrides(row)
    # a row keeps its own settings, except for rounds: the rounds of a method with several stages
    # are reduced as well
    settings_of_row = wanted.keys() - {"rounds"}
    cut = {}
    for key, value in reduction.set.items():
        if key not in settings_of_row:
            cut[key] = value

    asking = [plan for plan in plans if setup.experiment in plan.experiments and not cut]
    numbers = set(range(seeds or reduction.seeds or setup.seeds))
    if asking and seeds is None:
        numbers = set().union(*(plan.every_seed for plan in asking))
    algo = paper.methods[row.algo].algo
    runs = []
    for seed in sorted(numbers):
        run = PlannedRun(
            paper=paper,
            row=row,
            algo=algo,
            seed=seed,
            wanted=wanted,
            cut=cut,
        )
        runs.append(run)
    return runs, asking


def _variant_runs(run: PlannedRun, wanted: Collection[str] | None) -> Iterator[PlannedRun]:
    """Yield a run under the wanted variants of its settings; None for all variants."""
    row = run.row
    for variant in run.paper.readings.variants.values():
        folder = Path(variant.config_dir)
        changed = variant.concerns(row.setup) and variant.changes(row.algo)
        chosen = wanted is None or variant.id in wanted
        if not changed or not chosen or not folder.is_dir():
            continue
        keys = variant.keys(row.algo)
        cut = dict(run.cut)
        for key in keys:
            cut.pop(key, None)
        yield replace(
            run,
            algo=variant.algos.get(row.algo, run.algo),
            wanted={**run.wanted, **keys},
            cut=cut,
            parts=[],
            reading=variant.id,
            config_dir=folder if variant.config_dir else None,
        )


def locate(
    runs: Sequence[PlannedRun],
    common: Sequence[str],
    published: Results | None = None,
) -> list[PlannedRun]:
    """Determine the directory of each run, and return each run once.

    Two spellings of a setting may denote the same run.

    Args:
        runs: The plan; this function sets paths and configurations.
        common: Overrides for all runs, such as results_dir.
        published: The published reports whose runs count as finished, or None.

    Raises:
        RequestError: If a configuration cannot be composed.
    """
    folders = {run.config_dir for run in runs}
    composers = {folder: Composer(folder) for folder in folders}
    configs: dict[tuple[str, ...], RunConfig] = {}
    once: dict[Path, PlannedRun] = {}
    for run in runs:
        if run.setting not in configs:
            composer = composers[run.config_dir]
            overrides = [*run.setting, *common]
            with user_code_from(run.config_dir):  # the path depends on the user's code
                configs[run.setting] = composer.config(overrides, departures=False)
        run.config = configs[run.setting]
        run.path = run.config.path.with_name(f"seed_{run.seed}")
        if published is not None:
            of_paper = published.published(run.paper.id)
            finished = of_paper.get(run.path)
            run.published = finished.outcome if finished else ""
        first = once.setdefault(run.path, run)
        new_parts = [part for part in run.parts if part not in first.parts]
        first.parts += new_parts
    return list(once.values())


def prefer_full(
    runs: Sequence[PlannedRun],
    full: Sequence[PlannedRun],
    common: Sequence[str],
    published: Results,
) -> list[PlannedRun]:
    """Replace unfinished reduced runs with finished runs at the papers' settings.

    The runs of a row are replaced only if all its runs at the full setting are finished.

    Args:
        runs: The located plan under a profile.
        full: The plan of the same tables and figures at the papers' settings.
        common: Overrides for all runs.
        published: The published reports whose runs count as finished.
    """
    names = {run.paper.id for run in runs}
    folders = {path.parents[1] for name in names for path in published.published(name)}
    missing = set()
    for run in runs:
        folder = run.path.parents[1]  # contains the runs of the method at every setting
        if run.cut and not run.done and (folder in folders or folder.is_dir()):
            missing.add(_full_setting(run))
    wanted = [run for run in full if run.setting in missing]
    located = locate(wanted, common, published)
    unready = {run.setting for run in wanted if not run.done}
    ready = {run.setting for run in wanted} - unready
    reduced = [run for run in runs if _full_setting(run) not in ready]
    replacing = [run for run in located if run.setting in ready]
    return [*reduced, *replacing]


def _full_setting(run: PlannedRun) -> tuple[str, ...]:
    return replace(run, cut={}).setting


def missing_files(
    runs: Iterable[PlannedRun],
    data_dir: Path,
) -> dict[str, str]:
    """Return the files missing from the data directory, as text by experiment.

    Files are searched for by name; nothing is read or downloaded.
    """
    missing = {}
    configs = {run.experiment: run.config for run in runs}
    for experiment, config in configs.items():
        paths = [files.missing(data_dir) for files in official_files(config)]
        names = [path for path in paths if path is not None]
        if names:
            missing[experiment] = ", ".join(names)
    return missing


def table_names() -> list[tuple[str, str]]:
    """Return the names that ``fedbench reproduce`` accepts, each with its caption."""
    names = []
    for paper, part in chosen([]):
        shown = paper.tables[part] if part in paper.tables else paper.figures[part]
        names.append((f"{paper.id}/{part}", shown.caption))
    return names
