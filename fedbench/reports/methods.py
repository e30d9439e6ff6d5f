"""The settings of runs in sentences, for pages and manuscripts."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from fedbench.analysis.data_text import content_of, title_of
from fedbench.analysis.settings import by_setting
from fedbench.config.comments import method_name
from fedbench.reports.templates import ENVIRONMENT
from fedbench.runs.run import Run

_SENTENCES = {  # the macros of ``assets/methods.txt``, and how the sentences about them begin
    "method": "The method is",
    "data": "The data are",
    "split": "The split is",
    "model": "The model is",
    "evaluation": "The evaluation is",
    "rounds": "The number of rounds is",
    "cohort": "The cohort is",
    "local_work": "Local work is",
    "local_rate": "The local learning rate is",
    "seeds": "The seeds are",
    "choice": "The choice of values is",
}
_MOST = 4  # names in a title, or texts in a sentence, that are listed


def title_of_runs(runs: Iterable[Run]) -> str:
    """Return the title of a report: the methods and the data, or how many there are."""
    runs = list(runs)
    if not runs:
        return "No runs"
    methods = listed((method_name(run.meta["algo"]) for run in runs), "methods")
    data = dict.fromkeys(title_of([run]) for run in runs)
    settings = f"{len(data)} settings" if len(data) > _MOST else "; ".join(data)
    return f"{methods} on {settings}"


def listed(names: Iterable[str], plural: str) -> str:
    """Return names as in a sentence, 'A, B and C', or their number if there are many."""
    *most, last = names = list(dict.fromkeys(names))
    if len(names) > _MOST:
        return f"{len(names)} {plural}"
    return f"{', '.join(most)} and {last}" if most else last


def described(runs: Iterable[Run]) -> list[str]:
    """Return the settings of runs as sentences for the methods section of a paper.

    Settings without a run that counts are left out; without any run there are no sentences.
    """
    groups = [[run for run in group if run.counts] for group in by_setting(runs).values()]
    groups = [group for group in groups if group]
    if not groups:
        return []
    # a run of each setting by text
    facts: dict[str, dict[str, list[Run]]] = {name: {} for name in _SENTENCES}
    for group in groups:
        for name, text in _facts(group).items():
            facts[name].setdefault(text, []).append(group[0])
    sentences = [f"{_SENTENCES[name]} {_joined(texts)}" for name, texts in facts.items() if texts]
    environment = environment_of([run for group in groups for run in group])
    software = ", ".join(f"{name} {' or '.join(values)}" for name, values in environment.items())
    return [*sentences, f"The software and hardware are {software}"]


def _facts(runs: Sequence[Run]) -> dict[str, str]:
    """Return the facts of a setting that hold for it, by the names of their macros."""
    run = runs[0]
    macros = ENVIRONMENT.get_template("methods.txt").make_module(
        {
            "run": run,
            "flat": defaultdict(lambda: None, run.flat),
            "numbers": sorted({int(run.meta["seed"]) for run in runs}),
            "method_name": method_name(run.meta["algo"]),
            "data_name": content_of(run),
        }
    )
    texts = {name: " ".join(getattr(macros, name)().split()) for name in _SENTENCES}
    return {name: text for name, text in texts.items() if text}


def _joined(texts: Mapping[str, Sequence[Run]]) -> str:
    """Return the texts of a fact, each with the methods, else the data sets, that alone have it.

    More texts than a reader can follow are counted.
    """
    if len(texts) == 1:
        return next(iter(texts))
    if len(texts) > _MOST:
        return f"different between settings, in {len(texts)} ways that the tables list"
    names: dict[str, list[str]] = {}
    for name_of in (lambda run: method_name(run.meta["algo"]), content_of):
        names = {text: sorted({name_of(run) for run in runs}) for text, runs in texts.items()}
        counts = Counter(name for members in names.values() for name in members)
        if max(counts.values()) == 1:
            break
        names = {}
    parts = []
    for text in sorted(texts):
        members = ", ".join(names.get(text, ()))
        parts.append(f"{text} ({members})" if members and members not in text else text)
    return f"{' or '.join(parts)}, by setting"


# ---- environment


def environment_of(runs: Sequence[Run]) -> dict[str, dict[str, int]]:
    """Return the versions, devices and commits of runs, with the number of runs per value."""
    facts: dict[str, Counter[str]] = defaultdict(Counter)
    for run in runs:
        meta = run.meta
        changes = " with changes" if meta.get("git_dirty") else ""
        named = {
            **meta.get("versions", {}),
            "device": meta.get("device_name"),
            "platform": meta.get("platform"),
            "commit": f"{meta.get('git_commit')}{changes}",
        }
        if "own_commit" in meta:
            named["commit of the user's code"] = meta["own_commit"]
        for key, value in named.items():
            facts[key][str(value)] += 1
    return {key: dict(sorted(counts.items())) for key, counts in facts.items()}
