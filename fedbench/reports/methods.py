"""Sentences on the settings of runs, for pages and manuscripts."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fedbench.analysis.data_text import content_of, title_of
from fedbench.analysis.settings import by_setting
from fedbench.config.descriptions import method_name
from fedbench.config.overrides import ADDITIONS
from fedbench.reports.templates import ENVIRONMENT
from fedbench.runs.run import Run

_MOST = 4  # maximum number of names listed in a title, or of descriptions in a sentence


def title_of_runs(runs: Iterable[Run]) -> str:
    """Return the title of a report: the methods and the data, or their numbers."""
    runs = list(runs)
    if not runs:
        return "No runs"
    names = [method_name(run.meta["algo"]) for run in runs]
    methods = listed(names, "methods")
    data = dict.fromkeys(title_of([run]) for run in runs)
    settings = "; ".join(data)
    if len(data) > _MOST:
        settings = f"{len(data)} settings"
    return f"{methods} on {settings}"


def listed(names: Iterable[str], plural: str) -> str:
    """Return names as an enumeration, 'A, B and C', or their number if there are many."""
    distinct = list(dict.fromkeys(names))
    if len(distinct) > _MOST:
        return f"{len(distinct)} {plural}"
    *most, last = distinct
    return f"{', '.join(most)} and {last}" if most else last


def described(runs: Iterable[Run]) -> list[str]:
    """Return sentences on the settings of runs, for the methods section of a paper.

    Settings without a counted run are left out; if no run is counted, the list is empty.
    """
    counted: list[Run] = []
    facts: dict[str, dict[str, set[str]]] = {}  # methods by text, for each beginning of a sentence
    for setting in by_setting(runs).values():
        group = [run for run in setting if run.counts]
        if not group:
            continue
        counted += group
        method = method_name(group[0].meta["algo"])
        for beginning, text in _facts(group).items():
            by_text = facts.setdefault(beginning, {})
            by_text.setdefault(text, set()).add(method)
    if not counted:
        return []
    sentences = [f"{beginning} {_joined(texts)}" for beginning, texts in facts.items()]
    environment = environment_of(counted)
    software = ", ".join(f"{name} {' or '.join(values)}" for name, values in environment.items())
    return [*sentences, f"The software and hardware are {software}"]


def _facts(runs: Sequence[Run]) -> dict[str, str]:
    """Return the facts about a setting, by the beginnings of their sentences."""
    run = runs[0]
    macros: Any = ENVIRONMENT.get_template("methods.txt").make_module(
        {
            "run": run,
            "flat": defaultdict(lambda: None, run.flat),
            "numbers": sorted({int(run.meta["seed"]) for run in runs}),
            "method_name": method_name(run.meta["algo"]),
            "data_name": content_of(run),
            "groups": ADDITIONS,
        }
    )
    facts = {}
    for name, beginning in macros.sentences.items():
        text = " ".join(getattr(macros, name)().split())
        if text:
            facts[beginning] = text
    return facts


def _joined(texts: Mapping[str, set[str]]) -> str:
    """Return the descriptions of a fact, each with its methods if they differ between them.

    A fact differs by setting if a method has several descriptions.

    If there are too many descriptions to be readable, only their number is given.
    """
    if len(texts) == 1:
        return next(iter(texts))
    if len(texts) > _MOST:
        return f"different between settings, in {len(texts)} ways that the tables list"
    alike = len(set(map(frozenset, texts.values()))) == 1
    by_setting = sum(map(len, texts.values())) > len(set().union(*texts.values()))
    parts = []
    for text, methods in sorted(texts.items()):
        members = ", ".join(sorted(methods))
        parts.append(text if alike or members in text else f"{text} ({members})")
    return f"{' or '.join(parts)}{', by setting' if by_setting else ''}"


# ---- environment


def environment_of(runs: Sequence[Run]) -> dict[str, dict[str, int]]:
    """Return the versions, devices and commits of runs, with the number of runs per value."""
    facts: dict[str, Counter[str]] = defaultdict(Counter)
    for run in runs:
        meta = run.meta
        changes = " with changes" if meta.get("git_dirty") else ""
        environment = {
            **meta.get("versions", {}),
            "device": meta.get("device_name"),
            "platform": meta.get("platform"),
            "commit": f"{meta.get('git_commit')}{changes}",
        }
        if "own_commit" in meta:
            environment["commit of the user's code"] = meta["own_commit"]
        for key, value in environment.items():
            facts[key][str(value)] += 1
    return {key: dict(sorted(counts.items())) for key, counts in facts.items()}
