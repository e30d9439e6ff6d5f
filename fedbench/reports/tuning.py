"""What tuning has found: the chosen values of every method and all trials, as tables and JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from statistics import stdev
from typing import Any

from fedbench.core.config_values import config_value, keys_text
from fedbench.core.metrics import MetricInfo
from fedbench.reports.filters import plural
from fedbench.reports.page import Chapter
from fedbench.reports.text_table import Cell, Table, Values, markdown, table_of
from fedbench.tuning.search import OPTUNA_VERSION, Study, Trial, Tuned

_PRUNING = {"none": "", "halving": "; successive halving: a third of the trials goes on at every rung"}


def tuned_facts(study: Study, found: Sequence[Tuned], command: str) -> list[tuple[str, str]]:
    """Return how methods were tuned, the same for all, and their spaces, as (name, text).

    Args:
        study: The search for one of the methods.
        found: What the searches have found.
        command: The command.
    """
    request, config = study.request, study.config
    budget = (
        f"{request.budget} trials per method, each on {plural(len(request.seeds), 'tuning seed')} "
        f"({', '.join(map(str, request.seeds))}), which no result may have"
    )
    selection = (
        f"best mean of {study.metric.name} after {config.rounds} rounds, on {config.data.validation:g} of each "
        "client's training examples, held out; test examples play no part"
    )
    facts = [
        ("command", command),
        ("budget", budget),
        ("trials", f"{request.sampler}, by Optuna {OPTUNA_VERSION}{_PRUNING[request.pruning]}"),
    ]
    return [*facts, ("selection", selection), *((f"space of {t.study.method}", _space(t)) for t in found)]


def tuned_chapter(study: Study, found: Sequence[Tuned], command: str) -> Chapter:
    """Return the chosen values of every method and all trials as a chapter of the page."""
    lead = "Every method has the same number of trials, judged on validation examples"
    tables = (_chosen(study, found), *(_trials(study.metric, t) for t in found))
    return Chapter("Tuning", lead, tables, facts=tuple(tuned_facts(study, found, command)))


def tuned_markdown(study: Study, found: Sequence[Tuned], command: str) -> str:
    """Return the table of what was chosen as Markdown, with the facts and the spaces."""
    facts = [f"{name}: {text}" for name, text in tuned_facts(study, found, command)]
    return markdown([_chosen(study, found)], notes=facts)


def tuned_json(study: Study, found: Sequence[Tuned], command: str) -> str:
    """Return the searches as JSON: the request, and per method all trials with the scores of every rung and seed.

    Scores are in the unit of the runs; null where a run diverged or failed.
    """
    request, config = study.request, study.config
    methods: dict[str, Any] = {}
    for t in found:
        trials = [{"values": trial.values, "scores": trial.scores} for trial in t.trials]
        chosen = None if t.best is None else t.best.number
        methods[t.study.method] = {"space": [axis.text for axis in t.study.space], "trials": trials, "chosen": chosen}
    facts = {"command": command, "metric": study.metric.name, "rounds": config.rounds, "budget": request.budget}
    facts |= {"seeds": request.seeds, "sampler": request.sampler, "pruning": request.pruning, "optuna": OPTUNA_VERSION}
    return json.dumps(facts | {"validation": config.data.validation, "methods": methods}, indent=1) + "\n"


def _chosen(study: Study, found: Sequence[Tuned]) -> Table:
    rows: list[Values] = []
    for tuned in found:
        best, whole = tuned.best, sum(study.config.rounds in t.scores for t in tuned.trials)
        values, score = "all trials diverged or failed", Cell("–")
        if best is not None:
            values, score = keys_text(best.values), _score(study.metric, best)
        ends = [(axis.key, axis.edge(tuned.values[axis.key])) for axis in tuned.study.space if tuned.values]
        edge = ", ".join(f"{key} ({end})" for key, end in ends if end is not None)
        rows.append((tuned.study.method, len(tuned.trials), whole, values, score, edge))
    heads = ("method", "trials", "to the end", "chosen", study.metric.axis, "at the edge of its range")
    notes = ["a value at the edge of its range may be better outside: widen the range"]
    return table_of("Chosen values", heads, rows, notes=notes if any(row[-1] for row in rows) else [])


def _trials(metric: MetricInfo, tuned: Tuned) -> Table:
    """Return all trials of a method; scores of trials that ended early are of fewer rounds."""
    keys = [axis.key for axis in tuned.study.space]
    rows: list[Values] = []
    for trial in tuned.trials:
        values = [Cell(config_value(trial.values[key]), _number(trial.values[key])) for key in keys]
        score = _score(metric, trial, trial is tuned.best)
        rows.append((str(trial.number + 1), *values, trial.rounds, score))
    heads = ("trial", *keys, "rounds", metric.axis)
    return table_of(f"Trials of {tuned.study.method}", heads, rows, "the chosen one is marked")


def _score(metric: MetricInfo, trial: Trial, best: bool = False) -> Cell:
    """Return the mean of a trial over the tuning seeds at its last rung, with the sample STD of several."""
    mean = trial.mean()
    if mean is None:
        return Cell("diverged or failed")
    seeds = [metric.factor * s for s in trial.scores[trial.rounds] if s is not None]
    spread = f" ± {metric.text(stdev(seeds))}" if len(seeds) > 1 else ""
    return Cell(metric.text(metric.factor * mean) + spread, metric.factor * mean, best)


def _space(tuned: Tuned) -> str:
    return " ".join(axis.text for axis in tuned.study.space)


def _number(value: Any) -> float | None:
    """Return the sort key of a value; None if it is not a number."""
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
