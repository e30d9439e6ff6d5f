"""Tests of whether methods differ, on runs that are equal in everything but one key, paired by seed.

A block contains the runs that are equal in everything but the compared key, the seed and the keys that do not affect
the numbers. If methods are compared, the keys of a method (``algo`` and ``local``) do not separate blocks; if ``local``
differs, a note says so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from math import isnan, nan
from pathlib import Path
from statistics import mean
from typing import Any, TypeAlias

from fedbench.analysis.matching import departure_texts
from fedbench.analysis.metrics_catalogue import CATALOGUE, Measure, measure
from fedbench.analysis.settings import flat_settings
from fedbench.analysis.stats import Paired, paired_with_diverged
from fedbench.analysis.tables import departures
from fedbench.config.keys import WATCHING
from fedbench.core.errors import RequestError, choice, nearest, number
from fedbench.core.trees import Tree, config_value, leaves
from fedbench.runs.store import Fields, Run

_GROUPS = ("algo", "data", "model")  # keys whose value is the name of a choice
_LISTED = 3  # number of blocks with nothing to compare that are listed
Facts: TypeAlias = dict[str, str]
Values: TypeAlias = dict[str, dict[int, float]]  # by method and seed, in the printed unit


@dataclass(frozen=True)
class ComparedRuns:
    """Runs that can be compared, with their measurements.

    Attributes:
        key: Configuration key whose values are compared.
        metric: The compared metric.
        blocks: Blocks of runs that are equal in everything but the compared key, each with its numbers.
        names: Names of the values of the key, in the order of the tables.
        baseline: The name of the value that all others are compared with; None for all pairs.
        alpha: Level of the tests.
        alone: Blocks with nothing to compare, as (title, content).
        without: Number of runs without the key.
    """

    key: str
    metric: Measure
    blocks: tuple[tuple[ComparedBlock, Values], ...]
    names: tuple[str, ...]
    baseline: str | None
    alpha: float
    alone: tuple[tuple[str, str], ...]
    without: int

    def pairs(self, values: Values) -> list[tuple[str, str]]:
        """Return the pairs of a block that are tested."""
        if self.baseline is None:
            return list(combinations(values, 2))
        return [(name, self.baseline) for name in values if name != self.baseline and self.baseline in values]


def compare(
    runs: Sequence[Run], key: str, metric: str, baseline: str | None = None, alpha: float = 0.05
) -> ComparedRuns:
    """Return the runs in which values of a key can be compared, with their numbers.

    Args:
        runs: Runs on disk; unfinished runs do not count. A run that diverged counts as worse than its partner by the
            largest difference among the other seeds; its numbers are not part of any mean.
        key: ``algo``, ``data``, ``model`` or a dotted key of the configuration.
        metric: A key of ``rounds.jsonl``; its value at the last round counts.
        baseline: The value that all others are compared with, under its name in the tables or by the value alone; None
            to compare all pairs.
        alpha: Level of the tests, in (0, 1).

    Raises:
        RequestError: If the key, metric or baseline is unknown, the metric was not measured, the level is out of range,
            or no two values of the key can be compared.
        DamagedRun: If a run cannot be read.
    """
    alpha = number("alpha", alpha, above=0, below=1, remedy="0.05 is usual")
    members = _members(runs, key)
    groups = _groups(members, key)
    _name(groups)
    blocks = [ComparedBlock(title, inside, key) for title, inside in _titled(groups)]
    shown = [b for b in blocks if len(b.methods) > 1]
    if not shown:
        contents = "; ".join(f"{b.title}: {b.content}" for b in blocks[:_LISTED])
        contents += f"; and {len(blocks) - _LISTED} more" if blocks[_LISTED:] else ""
        raise RequestError(
            f"nothing to compare: --compare {key} needs finished runs of at least two values of {key} whose other "
            f"settings are equal; found {contents}. Run more, for example fedbench -m {key}=A,B seed=0,1,2"
        )
    done = [m for b in shown for m in b.done]
    if not done:
        raise RequestError("all runs that could be compared diverged")
    entry = _metric(metric, [(m.run.path, m.last) for m in done])
    present = {n for b in shown for n in b.methods}
    names = tuple(dict.fromkeys(m.name for m in sorted(members, key=_order) if m.name in present))
    return ComparedRuns(
        key=key,
        metric=entry,
        blocks=tuple((b, {n: _read(entry, b, n) for n in names if n in b.methods}) for b in shown),
        names=names,
        baseline=None if baseline is None else _baseline(baseline, done, names),
        alpha=alpha,
        alone=tuple((b.title, b.content) for b in blocks if len(b.methods) < 2),
        without=len(runs) - len(members),
    )


def _metric(name: str, rows: Sequence[tuple[Path, Fields]]) -> Measure:
    """Return the entry of a metric.

    Args:
        name: A key of ``rounds.jsonl``.
        rows: Directory and last line of every compared run.

    Raises:
        RequestError: If the metric is unknown or was not measured in all of the runs.
    """
    measured = dict.fromkeys(k for _, last in rows for k in last if k != "round")
    if name not in measured and name in CATALOGUE and not CATALOGUE[name].needs:
        raise RequestError(f"these runs have no {name}; repeat them with force=true, or choose another metric")
    choice("metric", name, measured)
    missing = [path for path, last in rows if last.get(name) is None]
    if missing:
        raise RequestError(
            f"{name} must have been measured in all runs that are compared, but is null in {len(missing)} of "
            f"{len(rows)}, first in {missing[0]}; choose another metric"
        )
    return measure(name)


@dataclass
class Member:
    """A run and its configuration as dotted keys.

    Attributes:
        run: The run on disk.
        flat: The configuration without the keys that do not affect the numbers.
        value: Value of the compared key.
        base: The value as text.
        name: Name of its row in the tables: the base, and the settings in which runs of one value differ within a
            block.
    """

    run: Run
    flat: Tree
    value: Any
    base: str
    name: str = ""

    @property
    def status(self) -> str:
        """Outcome of the run; only ``done`` counts."""
        return self.run.outcome

    @cached_property
    def last(self) -> Fields:
        """The last line of ``rounds.jsonl``."""
        return self.run.last_round()


def _members(runs: Sequence[Run], key: str) -> list[Member]:
    members, known = [], set(_GROUPS)
    runs = sorted(runs, key=lambda r: str(r.path))
    for run, flat in zip(runs, flat_settings(runs), strict=True):
        config = {**leaves(run.config), **flat}
        known |= config.keys()
        if key in _GROUPS or key in config:
            value = run.meta[key] if key in _GROUPS else config[key]
            members.append(
                Member(run, flat, value, config_value(value) if key in _GROUPS else f"{key}={config_value(value)}")
            )
    if not members:
        raise RequestError(
            f"none of {len(runs)} runs has the key {key}; it must be algo, data, model or a key of their config.yaml, "
            f"such as local.lr{nearest(key, known)}"
        )
    return members


def _groups(members: Sequence[Member], key: str) -> list[tuple[Facts, list[Member]]]:
    """Return the blocks: what their runs have in common ("" is the experiment or data set), and the runs."""
    apart = {key, *WATCHING, *(("algo", "local") if key == "algo" else ()), *_copies(members, key)}
    groups: dict[tuple[tuple[str, str], ...], list[Member]] = {}
    for e in members:
        meta = e.run.meta
        place = meta["experiment"] or ("all data" if key == "data" else meta["data"])
        facts = {"": place, **{g: meta[g] for g in _GROUPS}, **e.flat}
        common = sorted(
            (k, config_value(v)) for k, v in facts.items() if not any(k == a or k.startswith(f"{a}.") for a in apart)
        )
        groups.setdefault(tuple(common), []).append(e)
    return [(dict(facts), members) for facts, members in groups.items()]


def _copies(members: Sequence[Member], key: str) -> set[str]:
    """Return the keys of ``data`` that repeat the compared key: the config tree passes some on to ``data.source``."""
    if not key.startswith("data."):
        return set()
    source = key.startswith("data.source.")
    keys = {k for e in members for k in e.flat if k.startswith("data.") and k.startswith("data.source.") != source}
    return {k for k in keys if all(e.flat[k] == e.value for e in members if k in e.flat)}


def _name(groups: Sequence[tuple[Facts, list[Member]]]) -> None:
    """Name the rows.

    A setting in which runs of one value differ within a block is part of the name of this value in all blocks, so that
    rows of different blocks have the same name.
    """
    differing: dict[str, set[str]] = {}
    for _, members in groups:
        for base in {e.base for e in members}:
            settings = {e.run.meta["hash"]: _settings(e) for e in members if e.base == base}
            free = {k for s in settings.values() for k in s if k != "hash"}
            keys = {k for k in free if len({s.get(k) for s in settings.values()}) > 1}
            values = {tuple(s.get(k) for k in sorted(keys)) for s in settings.values()}
            differing.setdefault(base, set()).update(keys if len(values) == len(settings) else keys | {"hash"})
    for _, members in groups:
        for e in members:
            settings_of_run = _settings(e)
            e.name = " ".join(
                [e.base, *(f"{k}={settings_of_run[k]}" for k in sorted(differing[e.base]) if k in settings_of_run)]
            )


def _settings(e: Member) -> Facts:
    return {k: config_value(v) for k, v in e.flat.items()} | {"hash": str(e.run.meta["hash"])}


def _titled(groups: Sequence[tuple[Facts, list[Member]]]) -> list[tuple[str, list[Member]]]:
    """Return the blocks by title: experiment or data set, method, and the settings that distinguish equal titles."""
    varying = [g for g in ("data", "model") if len({facts.get(g) for facts, _ in groups}) > 1]
    heads = [" ".join(dict.fromkeys(f[k] for k in ("", "algo", *varying) if k in f)) for f, _ in groups]
    titled = []
    for (facts, members), head in zip(groups, heads, strict=True):
        alike = [f for (f, _), other in zip(groups, heads, strict=True) if other == head]
        settings = {k: v for k, v in facts.items() if k and any(f.get(k) != v for f in alike)}
        once = [k for k, v in settings.items() if "source." not in k or settings.get(k.replace("source.", "", 1)) != v]
        titled.append((" ".join([head, *(f"{k}={settings[k]}" for k in once)]), members))
    return sorted(titled, key=lambda t: t[0])


class ComparedBlock:
    """Runs that can be compared, by method and seed, and the runs that are left out."""

    def __init__(self, title: str, members: Sequence[Member], key: str) -> None:
        self.title = title
        self.methods: dict[str, dict[int, Member]] = {}
        self.lost: dict[str, set[int]] = {}
        self._out: Counter[str] = Counter()
        for e in members:
            if e.status == "done":
                seeds = self.methods.setdefault(e.name, {})
                if seeds.setdefault(e.run.meta["seed"], e) is not e:
                    self._out[f"{e.name} with a seed that already counts"] += 1
        for e in members:
            if e.status == "diverged":
                if e.run.meta["seed"] not in self.methods.setdefault(e.name, {}):
                    self.lost.setdefault(e.name, set()).add(e.run.meta["seed"])
            elif e.status != "done":
                self._out[f"{e.name} {e.status}"] += 1
        self.unequal = _unequal(self.done) if key == "algo" else []
        cuts = {(e.name, departure_texts(departures([e.run], ignoring=key))) for e in self.done}
        self.reduced = sorted(f"{name}: {', '.join(cut)}" for name, cut in cuts if cut)

    @property
    def done(self) -> list[Member]:
        """The runs that count."""
        return [e for seeds in self.methods.values() for e in seeds.values()]

    @property
    def left_out(self) -> str:
        """Number of runs that do not count, with the reasons; empty if all count."""
        return ", ".join(f"{count} {why}" for why, count in sorted(self._out.items()))

    @property
    def content(self) -> str:
        """Number of runs per method."""
        counts = ", ".join(f"{len(seeds)} {name}" for name, seeds in sorted(self.methods.items()))
        return f"{counts or 'none done'}" + (f" (left out: {self.left_out})" if self._out else "")


def _read(metric: Measure, block: ComparedBlock, name: str) -> dict[int, float]:
    """Return a method's numbers by seed; NaN where it diverged."""
    numbers = {seed: metric.factor * float(m.last[metric.name]) for seed, m in block.methods[name].items()}
    return dict(sorted({**numbers, **dict.fromkeys(block.lost.get(name, ()), nan)}.items()))


def finite(by_seed: Mapping[int, float]) -> list[float]:
    """Return the numbers of the runs that did not diverge."""
    return [v for v in by_seed.values() if not isnan(v)]


def _unequal(done: Sequence[Member]) -> list[str]:
    """Return the settings of the local solver in which methods differ and that their names do not show."""
    keys = dict.fromkeys(k for e in done for k in e.flat if k.startswith("local."))
    by_key = {k: {e.name: config_value(e.flat.get(k)) for e in done} for k in keys}
    named = [k for k, of in by_key.items() if len(set(of.values())) == 1 or all(f" {k}=" in name for name in of)]
    return [f"{k} ({', '.join(map(' '.join, of.items()))})" for k, of in by_key.items() if k not in named]


def _order(e: Member) -> tuple[bool, float, str]:
    numeric = isinstance(e.value, int | float)
    return not numeric, float(e.value) if numeric else 0.0, e.name


def _baseline(given: str, done: Sequence[Member], names: Sequence[str]) -> str:
    try:
        wanted = {given, config_value(float(given))}  # 1e-3 is 0.001
    except ValueError:
        wanted = {given}
    fitting = {e.name for e in done if wanted & {e.base, config_value(e.value)}}
    if given in names or not fitting:
        return str(choice("baseline", given, names))
    if len(fitting) > 1:
        raise RequestError(f"baseline {given!r} fits several rows; give one of {', '.join(sorted(fitting))}")
    return fitting.pop()


def difference(values: Values, a: str, b: str, metric: Measure, level: float = 0.95) -> Paired | None:
    """Return a minus b over the seeds that both have, or None if they share no seed.

    A diverged run counts as worse than the other (``paired_with_diverged``); a seed for which both diverged is left
    out. For a metric without a better direction, all pairs with a run that diverged are left out.

    Args:
        values: Numbers by method and seed; NaN where a run diverged.
        a: The first method.
        b: The second method.
        metric: The compared metric.
        level: Confidence of the interval.
    """
    both = values[a].keys() & values[b].keys()
    lost, won = ({s for s in both if isnan(values[m][s]) and not isnan(values[o][s])} for m, o in ((a, b), (b, a)))
    if metric.direction is None:
        lost, won = set(), set()
    differences = {s: d for s in sorted(both) if not isnan(d := values[a][s] - values[b][s])}
    return paired_with_diverged(differences, lost, won, metric.sign, level)


def scores(values: Values, names: Sequence[str], metric: Measure) -> list[float]:
    """Return a score per method, higher is better; a method with a diverged run has a score below all others."""
    means = {n: metric.sign * mean(v) for n in names if len(v := finite(values[n])) == len(values[n])}
    last = min(means.values(), default=0.0) - 1
    return [means.get(n, last) for n in names]


def gains(values: Sequence[Values], a: str, b: str, metric: Measure) -> list[Paired]:
    """Return by how much a is better than b in each block in which they share a seed."""
    first, second = (a, b) if metric.sign > 0 else (b, a)
    found = (difference(v, first, second, metric) for v in values if a in v and b in v)
    return [d for d in found if d is not None]
