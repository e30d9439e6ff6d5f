"""The keys that distinguish settings of runs, and the order in which settings are listed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from fedbench.config.identity import setting
from fedbench.core.files import Tree, config_value
from fedbench.runs.run import Run

Key: TypeAlias = tuple[str, str]  # method, hash of the setting
_NAMED = ("algo", "data", "model")  # sections whose keys have a meaning only together with the name of the choice


def by_setting(runs: Iterable[Run]) -> dict[Key, list[Run]]:
    """Return the runs of each method and setting with a run that counts, in the order of their seeds."""
    groups: dict[Key, list[Run]] = {}
    for run in sorted(runs, key=lambda r: (r.meta["seed"], str(r.path))):
        groups.setdefault((run.meta["algo"], run.meta["hash"]), []).append(run)
    return {key: group for key, group in groups.items() if any(r.counts for r in group)}


def flat_settings(runs: Iterable[Run]) -> list[Tree]:
    """Return the dotted keys of the setting of each run, in which a user file has one path, however it was typed.

    A file goes by the path under which its content is seen first; other content at that path has its digest added.
    Runs of one method with one hash are of one setting, as are those of fedbench 0.1.0, which did not record contents.
    """
    paths: dict[tuple[str, str], str] = {}
    by_hash: dict[Key, Tree] = {}
    found = []
    for run in runs:
        flat = setting(run.config)
        for key, digest in run.meta.get("files", {}).items():
            taken = flat[key] in (path for (other, _), path in paths.items() if other == key)
            flat[key] = paths.setdefault((key, digest), f"{flat[key]} ({digest[:10]})" if taken else flat[key])
        found.append(by_hash.setdefault((run.meta["algo"], run.meta["hash"]), flat))
    return found


def distinguishing(groups: Mapping[Key, Sequence[Run]]) -> dict[Key, Tree]:
    """Return for each setting the keys in which it differs from another one, with its values.

    Keys of ``algo``, ``data`` and ``model`` are compared between settings with the same choice of that group, all
    others between all settings. A key of ``data.source`` that repeats one of ``data`` is left out. Settings of a
    method that differ only in the content of files also have their hash.
    """
    first = {key: members[0] for key, members in groups.items()}
    flat = {key: _without_repeats(f) for key, f in zip(first, flat_settings(first.values()), strict=True)}
    several = [g for g in ("data", "model") if len({run.meta.get(g) for run in first.values()}) > 1]
    peers: Counter[Hashable] = Counter()  # settings that a key is compared between
    texts: dict[Hashable, Counter[str]] = {}  # how many of them have which value
    for key, run in first.items():
        peers.update([None, *((group, run.meta.get(group)) for group in _NAMED)])
        for name, value in flat[key].items():
            texts.setdefault((_peers(run, name), name), Counter())[config_value(value)] += 1
    found: dict[Key, Tree] = {}
    for key, run in first.items():
        own = {n: v for n, v in flat[key].items() if set(texts[at := _peers(run, n), n].values()) != {peers[at]}}
        found[key] = {g: run.meta[g] for g in several} | own
    seen = Counter((key[0], keys_text(s)) for key, s in found.items())
    return {k: s if seen[k[0], keys_text(s)] == 1 else {**s, "hash": k[1]} for k, s in found.items()}


def _peers(run: Run, name: str) -> Hashable:
    """Return what names the settings that a key is compared between."""
    section = name.split(".")[0]
    return (section, run.meta.get(section)) if section in _NAMED else None


def keys_text(keys: Mapping[str, Any]) -> str:
    """Return keys with their values as they are typed on the command line."""
    return " ".join(f"{k}={config_value(v)}" for k, v in keys.items())


def in_order(settings: Sequence[Mapping[str, Any]]) -> list[tuple[Any, ...]]:
    """Return a sort key for each of several settings: by the values of their keys, numbers in ascending order."""
    names = dict.fromkeys(name for s in settings for name in s)
    return [tuple(_rank(s.get(name, _ABSENT)) for name in names) for s in settings]


_ABSENT = object()


def _same(a: Any, b: Any) -> bool:
    return a is not _ABSENT and config_value(a) == config_value(b)


def _without_repeats(flat: Tree) -> Tree:
    def repeats(key: str, value: Any) -> bool:
        return key.startswith("data.source.") and _same(flat.get(key.replace("source.", "", 1), _ABSENT), value)

    return {k: v for k, v in flat.items() if not repeats(k, v)}


def _rank(value: Any) -> tuple[int, float, str]:
    if value is _ABSENT or value is None:
        return (0 if value is _ABSENT else 1), 0.0, ""
    if isinstance(value, bool | int | float):
        return 2, float(value), ""
    numbers = [float(v) for v in value if isinstance(v, int | float)] if isinstance(value, list) else []
    return 3, max(numbers, default=0.0), config_value(value)
