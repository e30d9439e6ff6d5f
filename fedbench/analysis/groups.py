"""Runs that are compared: blocks of runs that are equal in everything but one key, and their names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import nan
from typing import Any, TypeAlias

from fedbench.analysis.departures import departure_texts
from fedbench.analysis.settings import flat_settings
from fedbench.analysis.tables import departures
from fedbench.config.identity import REPORTING_KEYS
from fedbench.core.errors import RequestError, nearest
from fedbench.core.files import Tree, config_value
from fedbench.core.metrics import MetricInfo
from fedbench.runs.run import Fields, Run

_GROUPS = ("algo", "data", "model")  # keys whose value is the name of a choice


Facts: TypeAlias = dict[str, str]


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

    @cached_property
    def texts(self) -> Facts:
        """The keys of the configuration with values as text, and the hash."""
        return {k: config_value(v) for k, v in self.flat.items()} | {"hash": str(self.run.meta["hash"])}

    @cached_property
    def last(self) -> Fields:
        """The last line of ``rounds.jsonl``."""
        return self.run.last_round()


def members_of(runs: Sequence[Run], key: str) -> list[Member]:
    """Return the runs that have a key.

    Raises:
        RequestError: If there are none.
    """
    members, known = [], set(_GROUPS)
    runs = sorted(runs, key=lambda r: str(r.path))
    for run, flat in zip(runs, flat_settings(runs), strict=True):
        config = {**run.flat, **flat}
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


def blocks_of(members: Sequence[Member], key: str) -> list[tuple[Facts, list[Member]]]:
    """Return the blocks: what their runs have in common ("" is the experiment or data set), and the runs."""
    apart = {key, *REPORTING_KEYS, *(("algo", "local") if key == "algo" else ()), *_copies(members, key)}
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


def runs_by_value(runs: Sequence[Run], key: str) -> list[tuple[str, dict[str, list[Run]]]]:
    """Return the finished runs of every block by the name of the row that they have in a comparison, a run per seed.

    Raises:
        RequestError: If the key is unknown.
    """
    groups = blocks_of(members_of(runs, key), key)
    name_rows(groups)
    blocks = [RunBlock(title, inside, key) for title, inside in titled(groups)]
    return [
        (b.title, {name: [seeds[s].run for s in sorted(seeds)] for name, seeds in sorted(b.methods.items()) if seeds})
        for b in blocks
    ]


def _copies(members: Sequence[Member], key: str) -> set[str]:
    """Return the keys of ``data`` that repeat the compared key: the config tree passes some on to ``data.source``."""
    if not key.startswith("data."):
        return set()
    source = key.startswith("data.source.")
    keys = {k for e in members for k in e.flat if k.startswith("data.") and k.startswith("data.source.") != source}
    return {k for k in keys if all(e.flat[k] == e.value for e in members if k in e.flat)}


def name_rows(groups: Sequence[tuple[Facts, list[Member]]]) -> None:
    """Name the rows.

    Keys in which runs of one value differ within a block are part of the name of this value in all blocks, so that rows
    of different blocks have the same name.
    """
    differing: dict[str, set[str]] = {}
    for _, members in groups:
        for base in {e.base for e in members}:
            texts = {e.run.meta["hash"]: e.texts for e in members if e.base == base}
            free = {k for t in texts.values() for k in t if k != "hash"}
            keys = {k for k in free if len({t.get(k) for t in texts.values()}) > 1}
            values = {tuple(t.get(k) for k in sorted(keys)) for t in texts.values()}
            differing.setdefault(base, set()).update(keys if len(values) == len(texts) else keys | {"hash"})
    for e in (e for _, members in groups for e in members):
        e.name = " ".join([e.base, *(f"{k}={e.texts[k]}" for k in sorted(differing[e.base]) if k in e.texts)])


def titled(groups: Sequence[tuple[Facts, list[Member]]]) -> list[tuple[str, list[Member]]]:
    """Return the blocks by title: experiment or data set, method, and the keys that distinguish equal titles."""
    varying = [g for g in ("data", "model") if len({facts.get(g) for facts, _ in groups}) > 1]
    heads = [" ".join(dict.fromkeys(f[k] for k in ("", "algo", *varying) if k in f)) for f, _ in groups]
    found = []
    for (facts, members), head in zip(groups, heads, strict=True):
        alike = [f for (f, _), other in zip(groups, heads, strict=True) if other == head]
        apart = {k: v for k, v in facts.items() if k and any(f.get(k) != v for f in alike)}
        once = [k for k, v in apart.items() if "source." not in k or apart.get(k.replace("source.", "", 1)) != v]
        found.append((" ".join([head, *(f"{k}={apart[k]}" for k in once)]), members))
    return sorted(found, key=lambda t: t[0])


class RunBlock:
    """The runs of a block by method and seed, and the runs that are left out."""

    def __init__(self, title: str, members: Sequence[Member], key: str) -> None:
        self.title, self.key = title, key
        self.methods: dict[str, dict[int, Member]] = {}
        self.lost: dict[str, set[int]] = {}
        self._out: Counter[str] = Counter()
        for e in sorted(members, key=lambda e: not e.run.counts):
            outcome, seed = e.run.outcome, e.run.meta["seed"]
            if outcome not in ("done", "diverged"):
                self._out[f"{e.name} {outcome}"] += 1
                continue
            known = self.methods.setdefault(e.name, {})
            if outcome == "diverged":
                if seed not in known:
                    self.lost.setdefault(e.name, set()).add(seed)
            elif known.setdefault(seed, e) is not e:
                self._out[f"{e.name} with a seed that already counts"] += 1

    @property
    def done(self) -> list[Member]:
        """The runs that count."""
        return [e for seeds in self.methods.values() for e in seeds.values()]

    @property
    def left_out(self) -> str:
        """Number of runs that do not count, with the reasons."""
        return ", ".join(f"{count} {why}" for why, count in sorted(self._out.items()))

    @property
    def content(self) -> str:
        """Number of runs per method."""
        counts = ", ".join(f"{len(seeds)} {name}" for name, seeds in sorted(self.methods.items()))
        return f"{counts or 'none done'}" + (f" (left out: {self.left_out})" if self._out else "")

    def numbers(self, metric: MetricInfo, name: str) -> dict[int, float]:
        """Return a method's numbers by seed; NaN where it diverged."""
        numbers = {seed: metric.factor * float(m.last[metric.name]) for seed, m in self.methods[name].items()}
        return dict(sorted({**numbers, **dict.fromkeys(self.lost.get(name, ()), nan)}.items()))

    def reduced(self) -> tuple[str, ...]:
        """Return the departures from the paper, with the method."""
        cuts = {(e.name, departure_texts(departures([e.run], ignoring=self.key))) for e in self.done}
        return tuple(sorted(f"{name}: {', '.join(cut)}" for name, cut in cuts if cut))
