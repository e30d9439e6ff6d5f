"""Settings of runs, their distinguishing keys, and blocks of settings that differ in one key."""

from collections import Counter
from collections.abc import (
    Collection,
    Iterable,
    Mapping,
    Sequence,
)
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import chain
from math import inf
from typing import Any, TypeAlias

from fedbench.analysis.data_text import content_of, data_facts, data_text
from fedbench.analysis.departures import counted_and_others, departures
from fedbench.config.identity import REPORTING_KEYS, setting
from fedbench.config.overrides import ADDITIONS
from fedbench.core.config_values import Tree, config_value, keys_text
from fedbench.core.errors import RequestError, nearest
from fedbench.core.metrics import MetricInfo
from fedbench.runs.run import Run

Key: TypeAlias = tuple[str, str]  # method, hash of the setting
# sections whose keys have a meaning only for a given choice of the group
GROUPS = ("algo", "data", "model", *ADDITIONS)
_BESIDES_DATA = ("model", *ADDITIONS)


def by_setting(runs: Iterable[Run]) -> dict[Key, list[Run]]:
    """Return the runs of each method and setting, in order of their seeds."""
    groups: dict[Key, list[Run]] = {}

    def order(run: Run) -> tuple[int, str]:
        return run.meta["seed"], str(run.path)

    for run in sorted(runs, key=order):
        key = run.meta["algo"], run.meta["hash"]
        groups.setdefault(key, []).append(run)
    return groups


def choices_of(run: Run) -> Tree:
    """Return a run's choice in each config group."""
    return {group: run.meta.get(group, "none") for group in GROUPS}


def distinguishing(groups: Mapping[Key, Sequence[Run]]) -> dict[Key, Tree]:
    """Return for each setting the keys in which it differs from any other, with its values.

    Keys of ``algo``, ``data`` and ``model`` are compared between settings with the same choice in
    that group, all other keys between all settings. A key of ``data.source`` that repeats one of
    ``data`` is left out. If settings of a method differ only in the content of files, their hashes
    are added.
    """
    trees = {
        key: choices_of(runs[0]) | _without_repeats(setting(runs[0].config))
        for key, runs in groups.items()
    }

    @cache
    def differing_in(section: str, choice: str | None) -> set[str]:
        alike = [tree for tree in trees.values() if tree.get(section) == choice]
        return differing(alike)

    keys: dict[Key, Tree] = {}
    for key, tree in trees.items():
        keys[key] = {}
        for name, value in tree.items():
            section, _, option = name.partition(".")
            if not option or section not in GROUPS:
                section = ""  # no setting has this section, so all settings are compared
            if name != "algo" and name in differing_in(section, tree.get(section)):
                keys[key][name] = value

    by_name: dict[str, list[Key]] = {}
    for key, tree in keys.items():
        algo, _ = key
        by_name.setdefault(f"{algo} {keys_text(tree)}", []).append(key)
    for alike in by_name.values():
        if len(alike) > 1:
            for key in alike:
                _, keys[key]["hash"] = key
    return keys


def differing(trees: Collection[Tree]) -> set[str]:
    """Return the keys whose values differ between trees, or that some trees lack."""
    values: dict[str, list[str]] = {}
    for tree in trees:
        for key, value in tree.items():
            values.setdefault(key, []).append(config_value(value))
    keys = set()
    for key, texts in values.items():
        if len(texts) < len(trees) or len(set(texts)) > 1:
            keys.add(key)
    return keys


def rank(value: Any) -> tuple[int, float, str]:
    """Return a sort key for a value: None first, then numbers, then all other values."""
    if value is None:
        return 0, 0.0, ""
    if isinstance(value, int | float):
        return 1, float(value), ""
    return 2, 0.0, config_value(value)


def _without_repeats(flat: Tree) -> Tree:
    """Return keys without those of ``data.source`` that repeat one of ``data``."""
    texts = {key: config_value(value) for key, value in flat.items()}
    kept = {}
    for key, value in flat.items():
        of_data = texts.get(key.replace("data.source.", "data.", 1))
        if not key.startswith("data.source.") or of_data != texts[key]:
            kept[key] = value
    return kept


# ---- blocks


@dataclass
class Setting:
    """The runs of a setting that contains the compared key.

    Attributes:
        runs: The runs.
        facts: Everything that affects the results, except the seed: the experiment, the choices,
            the configuration (``data_facts``) and the hash.
        value: Value of the compared key.
        base: The value as text.
        name: Name of the setting's row: the base, and the keys in which settings with the same
            value differ within a block.
    """

    runs: list[Run]
    facts: Tree
    value: Any
    base: str
    name: str = ""

    @cached_property
    def counted(self) -> dict[int, Run]:
        """The counted runs in order of their seeds; if several share a seed, only the first."""
        counted, _ = counted_and_others(self.runs)
        return {unit.seed: run for unit, run in counted.items()}

    @cached_property
    def lost(self) -> list[int]:
        """The seeds whose runs diverged, sorted."""
        diverged = {run.meta["seed"] for run in self.runs if run.outcome == "diverged"}
        return sorted(diverged - self.counted.keys())

    def numbers(self, metric: MetricInfo) -> dict[int, float]:
        """Return the values of a metric by seed, in the printed unit.

        The value of a diverged run is infinitely bad.
        """
        numbers = dict.fromkeys(self.lost, -metric.sign * inf)
        for seed, run in self.counted.items():
            value = run.last_round()[metric.name]
            numbers[seed] = metric.factor * float(value)
        return numbers


@dataclass(frozen=True)
class SeedBlock:
    """Settings that are equal in everything except the compared key.

    Attributes:
        title: Description of the common setting.
        key: The compared key.
        settings: The settings.
    """

    title: str
    key: str
    settings: tuple[Setting, ...]

    @cached_property
    def rows(self) -> dict[str, Setting]:
        """The settings with at least one run that is done or diverged, by name."""
        ended = {s.name: s for s in self.settings if s.counted or s.lost}
        return dict(sorted(ended.items()))

    @property
    def lines(self) -> dict[str, list[Run]]:
        """The counted runs of each row, one per seed, in order of their seeds."""
        lines = {}
        for name, s in self.rows.items():
            if s.counted:
                lines[name] = list(s.counted.values())
        return lines

    @property
    def runs(self) -> list[Run]:
        """The counted runs of all rows."""
        return [run for members in self.lines.values() for run in members]

    @property
    def left_out(self) -> str:
        """Numbers of failed and unfinished runs, by row, as text."""
        counts: Counter[str] = Counter()
        for s in self.settings:
            for run in s.runs:
                if run.outcome not in ("done", "diverged"):
                    counts[f"{s.name} {run.outcome}"] += 1
        return ", ".join(f"{n} {row}" for row, n in sorted(counts.items()))

    @property
    def content(self) -> str:
        """Number of counted runs per row, as text."""
        counts = ", ".join(f"{len(s.counted)} {name}" for name, s in self.rows.items())
        left_out = f" (left out: {self.left_out})" if self.left_out else ""
        return f"{counts or 'none done'}{left_out}"

    @property
    def reduced(self) -> dict[str, str]:
        """Departures from the paper by row, without departures in the data files."""
        texts = {}
        for name, (run, *_) in self.lines.items():
            if cuts := departures(run, self.key):
                texts[name] = ", ".join(cuts)
        return texts

    @property
    def unofficial(self) -> list[str]:
        """Sentences about data not read from the publisher's files and about samples of clients."""
        texts: set[str] = set()
        for run in self.runs:
            texts |= {*run.unofficial, *run.sampled}
        return sorted(texts)

    @property
    def lost(self) -> dict[str, list[int]]:
        """Seeds whose runs diverged, by row."""
        return {name: s.lost for name, s in self.rows.items() if s.lost}


def blocks_of(runs: Sequence[Run], key: str) -> list[SeedBlock]:
    """Return the blocks of the runs that have a key, sorted by title.

    If methods are compared, differences in ``local`` do not separate blocks.

    Raises:
        RequestError: If no run has the key.
    """
    settings = _settings_with(runs, key)
    merged = {key, "hash", *REPORTING_KEYS}
    if key == "algo":
        merged.add("local")
    if key.startswith("data."):  # the config tree passes some of these keys on to data.source
        name = key.removeprefix("data.").removeprefix("source.")
        merged |= {f"data.{name}", f"data.source.{name}"}
    sections = tuple(f"{section}." for section in merged)
    groups: dict[tuple[tuple[str, Any], ...], list[Setting]] = {}
    for s in settings:
        common = []
        for name, value in sorted(s.facts.items()):
            if name not in merged and not name.startswith(sections):
                common.append((name, value))
        groups.setdefault(tuple(common), []).append(s)
    _name(groups.values())
    titles = _titles([dict(common) for common in groups])
    blocks = []
    for title, members in zip(titles, groups.values(), strict=True):
        blocks.append(SeedBlock(title, key, tuple(members)))
    return sorted(blocks, key=lambda block: block.title)


def _settings_with(runs: Sequence[Run], key: str) -> list[Setting]:
    """Return the settings that have a key."""
    settings: dict[tuple[Any, ...], Setting] = {}
    known: set[str] = set()
    for run in sorted(runs, key=lambda run: str(run.path)):
        choices = choices_of(run)
        config = {**run.flat, **choices}
        known |= config.keys()
        if key not in config:
            continue
        value = config[key]
        base = value if key in GROUPS else keys_text({key: value})
        if key == "data":
            base = content_of(run)
        place = base, *run.identity[:-1]
        if place not in settings:
            experiment = run.meta["experiment"]
            facts = {
                "experiment": experiment,
                **choices,
                **data_facts(run),
                "hash": run.meta["hash"],
            }
            settings[place] = Setting(
                [],
                facts,
                value,
                base,
            )
        settings[place].runs.append(run)
    if not settings:
        raise RequestError(
            f"none of {len(runs)} runs has the key {key}; it must be algo, data, model or a key of "
            f"their config.yaml, such as local.lr{nearest(key, known)}"
        )
    return list(settings.values())


def _name(groups: Iterable[Sequence[Setting]]) -> None:
    """Name the rows of blocks; all rows with the same value show the same keys in every block."""
    named: dict[str, set[str]] = {}
    for members in groups:
        by_base: dict[str, list[Tree]] = {}
        for s in members:
            by_base.setdefault(s.base, []).append(s.facts)
        for base, alike in by_base.items():
            keys = differing(alike) - {"hash"}
            texts = set()
            for facts in alike:
                chosen = {key: facts.get(key) for key in keys}
                texts.add(keys_text(chosen))
            if len(texts) < len(alike):
                keys.add("hash")
            named.setdefault(base, set()).update(keys)
    for s in chain.from_iterable(groups):
        known = sorted(named[s.base] & s.facts.keys())
        keys_of_name = {key: s.facts[key] for key in known}
        s.name = f"{s.base} {keys_text(keys_of_name)}".rstrip()


def _titles(commons: Sequence[Tree]) -> list[str]:
    """Return block titles: experiment or data, method, and keys that distinguish equal titles."""
    shown = {"algo", *(differing(commons) & set(_BESIDES_DATA))}
    heads = []
    for common in commons:
        head = data_text(common, common["experiment"])
        for group in GROUPS:
            if group in shown and group in common:
                name = f"{group}=" if group in ADDITIONS else ""
                head += f", {name}{common[group]}"
        heads.append(head)

    alike: dict[str, list[Tree]] = {}
    for head, common in zip(heads, commons, strict=True):
        alike.setdefault(head, []).append(common)
    titles = []
    for head, common in zip(heads, commons, strict=True):
        apart = differing(alike[head]) - {"experiment"}
        keys = {key: value for key, value in common.items() if key in apart}
        titles.append(f"{head} {keys_text(_without_repeats(keys))}".rstrip())
    return titles
