"""What was run, in sentences: title and methods paragraph of a page, and the statement of a manuscript."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from fedbench.analysis.data_text import content_of, title_of
from fedbench.analysis.settings import by_setting
from fedbench.config.comments import method_name
from fedbench.papers.registry import home_of
from fedbench.reports.format import environment_items, environment_of
from fedbench.reports.page import render_text
from fedbench.runs.run import Run

_KEY = r"\b([\w.]+)=(\S*[\w\]])"
_KEYS = {
    "data.clients": "{} clients", "rounds": "{} rounds", "local.lr": "local learning rate {}",
    "local.epochs": "local epochs {}", "local.steps": "local steps {}", "local.batch_size": "batch size {}",
}  # fmt: skip
_MOST = 4  # names in a title, or texts in a sentence, that are listed


def printed_names(runs: Iterable[Run]) -> dict[str, str]:
    """Return the names of methods and experiments in print, by those of the configuration."""
    runs = list(runs)
    names: dict[str, str] = {}
    for experiment in {str(run.meta["experiment"]) for run in runs}:
        names |= {experiment: home.setup.title} if (home := home_of(experiment)) else {}
    return names | {run.meta["algo"]: method_name(run.meta["algo"]) for run in runs}


def in_print(text: str, names: Mapping[str, str]) -> str:
    """Return a text with names of the configuration, as ``printed_names`` has them, in their printed form.

    Keys with their values are in words: 'synthetic_leaf data.clients=8 algo.q=1' is 'Synthetic (8 clients, q=1)'.
    """

    def words(found: re.Match[str]) -> str:
        pairs = re.findall(_KEY, found[0])
        said = ", ".join(_KEYS.get(key, f"{key.rpartition('.')[2]}={{}}").format(value) for key, value in pairs)
        return f" ({said})" if found[0].startswith(" ") else said

    text = re.sub(rf"(?:(?<=\w) )?{_KEY}(?: {_KEY})*", words, text)
    return re.sub(r"[\w./+-]*\w", lambda found: names.get(found[0], found[0]), text)


def title_of_runs(runs: Iterable[Run]) -> str:
    """Return a title that says what was run: the methods and the data, or how many there are."""
    runs = list(runs)
    methods = [method_name(run.meta["algo"]) for run in runs]
    data = dict.fromkeys(title_of([run]) for run in runs)
    what = f"{len(data)} settings" if len(data) > _MOST else "; ".join(data)
    return f"{listed(methods or ['No methods'], 'methods')} on {what or 'no data'}"


def listed(names: Iterable[str], what: str) -> str:
    """Return names as in a sentence, each once: 'A, B and C', or the number of them if there are many."""
    *most, last = found = list(dict.fromkeys(names))
    if len(found) > _MOST:
        return f"{len(found)} {what}"
    return f"{', '.join(most)} and {last}" if most else last


def described(runs: Iterable[Run]) -> list[str]:
    """Return what runs share, then what differs, as sentences for the methods section of a paper.

    Settings without a run that counts are left out; without any run there are no sentences.
    """
    groups = [[run for run in group if run.counts] for group in by_setting(runs).values()]
    groups = list(filter(None, groups))
    found: dict[tuple[str, str], dict[str, list[Run]]] = {}  # runs by subject and verb of a sentence, and its rest
    for group in groups:
        for fact in _facts(group):
            subject, verb, rest = re.split(r" (is|are) ", fact, maxsplit=1)
            found.setdefault((subject, verb), {}).setdefault(rest, []).append(group[0])
    shared = [f"{subject} {verb} {next(iter(texts))}" for (subject, verb), texts in found.items() if len(texts) == 1]
    differ = [_differing(subject, verb, texts) for (subject, verb), texts in found.items() if len(texts) > 1]
    software = environment_items(environment_of([run for group in groups for run in group]))
    last = "The software and hardware are " + ", ".join(f"{name} {text}" for name, text in software)
    return [*shared, *differ, last] if groups else []


def _facts(runs: Sequence[Run]) -> list[str]:
    """Return the facts of a setting as sentences, which ``assets/methods.txt`` has."""
    run, found = runs[0], sorted({int(run.meta["seed"]) for run in runs})
    several = len(found) > 2 and found[-1] - found[0] == len(found) - 1
    seeds = f"{found[0]} to {found[-1]}" if several else (" and " if len(found) == 2 else ", ").join(map(str, found))
    flat = defaultdict(lambda: None, run.flat)
    names = {"method": method_name(run.meta["algo"]), "data": content_of(run)}
    text = render_text("methods.txt", run=run, flat=flat, seeds=seeds, **names)
    return [" ".join(fact.split()).replace(" ,", ",") for fact in text.removeprefix("- ").split("\n- ")]


def _differing(subject: str, verb: str, found: Mapping[str, Sequence[Run]]) -> str:
    """Return a sentence with the texts of a fact, each with the methods, else the data sets, that alone have it.

    More texts than a reader can follow are counted.
    """
    if len(found) > _MOST:
        differs = "differs" if verb == "is" else "differ"
        return f"{subject} {differs} between settings, in {len(found)} ways that the tables list"
    for of in (lambda run: method_name(run.meta["algo"]), content_of):
        names = {text: sorted(set(map(of, runs))) for text, runs in found.items()}
        if len({name for some in names.values() for name in some}) == sum(map(len, names.values())):
            break
    else:
        names = {text: [text] for text in found}
    texts = [text if some[0] in text else f"{text} ({', '.join(some)})" for text, some in sorted(names.items())]
    return f"{subject} {verb} {' or '.join(texts)}, by setting"
