"""Settings of runs: the keys that distinguish them, and blocks of settings that are equal in everything but one key."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import nan
from typing import Any, TypeAlias

from fedbench.analysis.data_text import content_of, data_facts, data_name, data_text
from fedbench.analysis.departures import data_departures, departures
from fedbench.config.identity import REPORTING_KEYS, setting
from fedbench.config.overrides import SCENARIOS
from fedbench.core.config_values import Tree, config_value, keys_text
from fedbench.core.errors import RequestError, nearest
from fedbench.core.metrics import MetricInfo
from fedbench.runs.bundle import named_files
from fedbench.runs.run import Run

Key: TypeAlias = tuple[str, str]  # method, hash of the setting
# sections whose keys have a meaning only together with the name of the choice
GROUPS = ("algo", "data", "model", *SCENARIOS)
_BESIDES_DATA = ("model", *SCENARIOS)
_ABSENT = object()
_IN_A_HASH = ("seed", "device", "engine.")  # keys in which runs of one hash may differ


def by_setting(runs: Iterable[Run]) -> dict[Key, list[Run]]:
    """Return the runs of each method and setting, in the order of their seeds."""
    groups: dict[Key, list[Run]] = {}
    for run in sorted(runs, key=lambda r: (r.meta["seed"], str(r.path))):
        groups.setdefault((run.meta["algo"], run.meta["hash"]), []).append(run)
    return groups


def distinguishing(groups: Mapping[Key, Sequence[Run]]) -> dict[Key, Tree]:
    """Return for each setting the keys in which it differs from another one, with its values.

    Keys of ``algo``, ``data`` and ``model`` are compared between settings with the same choice of that group, all
    others between all settings. A key of ``data.source`` that repeats one of ``data`` is left out. Settings of a
    method that differ only in the content of files also have their hash.
    """
    first = {key: members[0] for key, members in groups.items()}
    flat = {key: _without_repeats(setting(run.config)) for key, run in first.items()}
    peers: dict[Any, list[Tree]] = {}  # the settings that a key is compared between
    for key, run in first.items():
        for place in (None, *((group, run.meta.get(group)) for group in GROUPS)):
            peers.setdefault(place, []).append(flat[key])
    apart = {place: differing(trees) for place, trees in peers.items()}
    several = [g for g in GROUPS[1:] if len({run.meta.get(g) for run in first.values()}) > 1]
    found: dict[Key, Tree] = {}
    for key, run in first.items():
        sections = {name: name.split(".")[0] for name in flat[key]}
        places = {n: (s, run.meta.get(s)) if s in GROUPS else None for n, s in sections.items()}
        found[key] = {g: run.meta.get(g, "none") for g in several} | {
            n: v for n, v in flat[key].items() if n in apart[places[n]]
        }
    seen = Counter((key[0], keys_text(s)) for key, s in found.items())
    return {k: s if seen[k[0], keys_text(s)] == 1 else {**s, "hash": k[1]} for k, s in found.items()}


def differing(trees: Sequence[Tree]) -> set[str]:
    """Return the keys of which some trees have other values than others, or none."""
    texts: dict[str, set[str]] = {}
    counts: Counter[str] = Counter()
    for tree in trees:
        counts.update(tree.keys())
        for key, value in tree.items():
            texts.setdefault(key, set()).add(config_value(value))
    return {key for key, values in texts.items() if len(values) > 1 or counts[key] < len(trees)}


def in_order(settings: Sequence[Mapping[str, Any]]) -> list[tuple[Any, ...]]:
    """Return a sort key for each of several settings: by the values of their keys, numbers in ascending order."""
    names = dict.fromkeys(name for s in settings for name in s)
    return [tuple(rank(s.get(name, _ABSENT)) for name in names) for s in settings]


def rank(value: Any) -> tuple[int, float, str]:
    """Return a sort key for a value: none first, then numbers in ascending order, then lists and texts."""
    if value is _ABSENT or value is None:
        return (0 if value is _ABSENT else 1), 0.0, ""
    if isinstance(value, bool | int | float):
        return 2, float(value), ""
    numbers = [float(v) for v in value if isinstance(v, int | float)] if isinstance(value, list) else []
    return 3, max(numbers, default=0.0), config_value(value)


def _without_repeats(flat: Tree) -> Tree:
    values = {f"data.source{k.removeprefix('data')}": config_value(v) for k, v in flat.items()}
    return {k: v for k, v in flat.items() if values.get(k) != config_value(v)}


# ---- blocks


@dataclass
class Setting:
    """The runs of a setting that has a compared key.

    Attributes:
        runs: Its runs.
        flat: The configuration under dotted keys, without those that do not affect the numbers.
        value: Value of the compared key.
        base: The value as text.
        name: Name of its row: the base, and the keys in which settings of one value differ within a block.
    """

    runs: list[Run]
    flat: Tree
    value: Any
    base: str
    name: str = ""


@dataclass(frozen=True)
class SeedBlock:
    """Settings that are equal in everything but the compared key, and the keys that do not separate its values.

    Attributes:
        title: What they have in common.
        key: The compared key.
        settings: The settings.
    """

    title: str
    key: str
    settings: tuple[Setting, ...]

    @cached_property
    def methods(self) -> dict[str, dict[int, Run]]:
        """The runs that count by row and seed, of the rows with a run that is done or diverged."""
        ended = self._by_row(lambda run: run.outcome in ("done", "diverged"))
        return {name: {seed: run for seed, run in by_seed.items() if run.counts} for name, by_seed in ended.items()}

    @property
    def lines(self) -> dict[str, list[Run]]:
        """The runs that count by row, a run per seed, in order."""
        return {name: [seeds[s] for s in sorted(seeds)] for name, seeds in sorted(self.methods.items()) if seeds}

    @cached_property
    def lost(self) -> dict[str, set[int]]:
        """The seeds that diverged, by row."""
        gone = self._by_row(lambda run: run.outcome == "diverged")
        lost = {name: set(by_seed) - set(self.methods[name]) for name, by_seed in gone.items()}
        return {name: seeds for name, seeds in lost.items() if seeds}

    def _by_row(self, counted: Callable[[Run], bool]) -> dict[str, dict[int, Run]]:
        """Return runs by row and seed; of several with one seed, one that counts."""
        found: dict[str, dict[int, Run]] = {}
        for s in self.settings:
            for run in sorted(s.runs, key=lambda run: not run.counts):
                if counted(run):
                    found.setdefault(s.name, {}).setdefault(run.meta["seed"], run)
        return found

    @property
    def done(self) -> list[tuple[Setting, Run]]:
        """The runs that count."""
        return [(s, run) for s in self.settings for run in self.methods.get(s.name, {}).values()]

    @property
    def left_out(self) -> str:
        """Number of runs that are not finished or failed, by row."""
        counts = Counter(f"{s.name} {run.outcome}" for s in self.settings for run in s.runs)
        return ", ".join(f"{n} {what}" for what, n in sorted(counts.items()) if not what.endswith(("done", "diverged")))

    @property
    def content(self) -> str:
        """Number of runs per row."""
        counts = ", ".join(f"{len(seeds)} {name}" for name, seeds in sorted(self.methods.items()))
        return f"{counts or 'none done'}" + (f" (left out: {self.left_out})" if self.left_out else "")

    def numbers(self, metric: MetricInfo, name: str) -> dict[int, float]:
        """Return the numbers of a row by seed, in the printed unit; NaN where it diverged."""
        runs = self.methods[name]
        numbers = {seed: metric.factor * float(run.last_round()[metric.name]) for seed, run in runs.items()}
        return dict(sorted({**numbers, **dict.fromkeys(self.lost.get(name, ()), nan)}.items()))

    def reduced(self) -> tuple[tuple[str, str], ...]:
        """Return the departures from the paper by row, except for those of the data's files."""
        cuts = set()
        for s, run in self.done:
            files = data_departures([run])
            cuts.add((s.name, tuple(cut for cut in departures([run], self.key) if cut not in files)))
        return tuple(sorted((name, ", ".join(cut)) for name, cut in cuts if cut))


def blocks_of(runs: Sequence[Run], key: str) -> list[SeedBlock]:
    """Return the blocks of the runs that have a key, by title; if methods are compared, ``local`` separates none.

    Raises:
        RequestError: If no run has the key.
    """
    groups: dict[tuple[tuple[str, Any], ...], list[Setting]] = {}
    settings = _settings_with(runs, key)
    apart = {key, *REPORTING_KEYS, *(("algo", "local") if key == "algo" else ()), *_copies(settings, key)}
    for s in settings:
        run = s.runs[0]
        facts = {
            "": run.meta["experiment"],
            **{g: run.meta.get(g, "none") for g in GROUPS},
            **data_facts(run),
        }
        common = {k: v for k, v in facts.items() if not any(k == a or k.startswith(f"{a}.") for a in apart)}
        groups.setdefault(tuple(sorted(common.items())), []).append(s)
    _name(groups.values())
    titles = _titles([dict(common) for common in groups])
    blocks = [SeedBlock(title, key, tuple(inside)) for title, inside in zip(titles, groups.values(), strict=True)]
    return sorted(blocks, key=lambda block: block.title)


def _settings_with(runs: Sequence[Run], key: str) -> list[Setting]:
    """Return the settings that have a key; a user's file goes by its name and content, however its path was typed."""
    groups: dict[tuple[Any, ...], list[Run]] = {}
    for run in sorted(runs, key=lambda r: str(r.path)):
        place = (run.meta.get(name) for name in ("experiment", "algo", *_BESIDES_DATA, "hash"))
        apart = config_value(run.flat.get(key)) if key.startswith(_IN_A_HASH) else None
        groups.setdefault((data_name(run), *place, apart), []).append(run)
    found, known = [], set(GROUPS)
    for members in groups.values():
        first = members[0]
        config = {**first.flat, **{group: first.meta.get(group, "none") for group in GROUPS}}
        known |= config.keys()
        if key in config:
            base = config[key] if key in GROUPS else keys_text({key: config[key]})
            if key == "data":
                base = content_of(first)
            flat = setting(first.config) | named_files(first)
            found.append(Setting(members, flat, config[key], base))
    if not found:
        raise RequestError(
            f"none of {len(runs)} runs has the key {key}; it must be algo, data, model or a key of their config.yaml, "
            f"such as local.lr{nearest(key, known)}"
        )
    return found


def _copies(settings: Sequence[Setting], key: str) -> set[str]:
    """Return the keys of ``data`` that repeat the compared key: the config tree passes some on to ``data.source``."""
    if not key.startswith("data."):
        return set()
    source = key.startswith("data.source.")
    keys = {k for s in settings for k in s.flat if k.startswith("data.") and k.startswith("data.source.") != source}
    return {k for k in keys if all(s.flat[k] == s.value for s in settings if k in s.flat)}


def _name(groups: Iterable[Sequence[Setting]]) -> None:
    """Name the rows of blocks; keys that are part of the name of a value in one of them are so in all."""
    named: dict[str, set[str]] = {}
    for inside in groups:
        for base in {s.base for s in inside}:
            alike = [s for s in inside if s.base == base]
            keys = differing([s.flat for s in alike])
            texts = {keys_text({k: s.flat.get(k) for k in sorted(keys)}) for s in alike}
            named.setdefault(base, set()).update(keys, () if len(texts) == len(alike) else ("hash",))
    for s in (s for inside in groups for s in inside):
        keyed = {**s.flat, "hash": s.runs[0].meta["hash"]}
        s.name = f"{s.base} {keys_text({k: keyed[k] for k in sorted(named[s.base]) if k in keyed})}".rstrip()


def _titles(commons: Sequence[Tree]) -> list[str]:
    """Return titles of blocks: experiment or data, method, and keys that separate equal titles."""
    varying = [g for g in _BESIDES_DATA if len({common.get(g) for common in commons}) > 1]
    heads = []
    for common in commons:
        groups = [g for g in ("algo", *varying) if g in common]
        names = [f"{g}={common[g]}" if g in SCENARIOS else common[g] for g in groups]
        heads.append(", ".join([data_text(common, common[""]), *names]))
    found = []
    for common, head in zip(commons, heads, strict=True):
        apart = differing([c for c, other in zip(commons, heads, strict=True) if other == head])
        keys = _without_repeats({k: v for k, v in common.items() if k and k in apart})
        found.append(f"{head} {keys_text(keys)}".rstrip())
    return found
