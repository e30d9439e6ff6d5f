"""The results of tuning: the chosen values of every method and all trials, as tables and JSON."""

import json
from collections.abc import Sequence

from fedbench.analysis.table_model import Cell as Measured
from fedbench.core.config_values import config_value, keys_text
from fedbench.core.metrics import MetricInfo
from fedbench.reports.comparison import mean_cell
from fedbench.reports.filters import plural
from fedbench.reports.page import Chapter
from fedbench.reports.text_table import Cell, Table, Values, markdown, table_of
from fedbench.tuning.search import OPTUNA_VERSION, Study, Trial, Tuned

_PRUNING = {
    "none": "",
    "halving": "; successive halving: a third of the trials goes on at every rung",
}


def tuned_chapter(study: Study, results: Sequence[Tuned], command: str) -> Chapter:
    """Return the chosen values of every method and all trials as a chapter of the page.

    Args:
        study: The search for one of the methods.
        results: The result of each search.
        command: The command.
    """
    request = study.request
    config = study.config
    seeds = f"{plural(len(request.seeds), 'tuning seed')} ({', '.join(map(str, request.seeds))})"
    facts = {
        "command": command,
        "budget": f"{request.budget} trials per method, each on {seeds}, which no result may have",
        "trials": f"{request.sampler}, by Optuna {OPTUNA_VERSION}{_PRUNING[request.pruning]}",
        "selection": (
            f"best mean of {study.metric.name} after {config.rounds} rounds, on {config.data.validation:g} of each "
            "client's training examples, held out; test examples play no part"
        ),
    }
    facts |= {
        f"space of {t.study.method}": " ".join(axis.text for axis in t.study.space) for t in results
    }
    return Chapter(
        "Tuning",
        "Every method has the same number of trials, judged on validation examples",
        tables=(_chosen(study, results), *(_trials(study.metric, tuned) for tuned in results)),
        facts=tuple(facts.items()),
    )


def tuned_markdown(chapter: Chapter) -> str:
    """Return the chosen values of a chapter on tuning as Markdown, with the facts."""
    return markdown(chapter.tables[:1], notes=[f"{name}: {text}" for name, text in chapter.facts])


def tuned_json(study: Study, results: Sequence[Tuned], command: str) -> str:
    """Return the searches as JSON: the request, and all trials with their scores by method.

    Scores are in the unit of the runs; null where a run diverged or failed.
    """
    request = study.request
    content = {
        "command": command,
        "metric": study.metric.name,
        "rounds": study.config.rounds,
        "budget": request.budget,
        "seeds": request.seeds,
        "sampler": request.sampler,
        "optuna": OPTUNA_VERSION,
        "pruning": request.pruning,
        "validation": study.config.data.validation,
        "methods": {
            tuned.study.method: {
                "space": [axis.text for axis in tuned.study.space],
                "trials": [
                    {"values": trial.values, "scores": trial.scores} for trial in tuned.trials
                ],
                "chosen": None if tuned.best is None else tuned.best.number,
            }
            for tuned in results
        },
    }
    return json.dumps(content, indent=1) + "\n"


def _chosen(study: Study, results: Sequence[Tuned]) -> Table:
    rows: list[Values] = []
    for tuned in results:
        to_the_end = sum(study.config.rounds in trial.scores for trial in tuned.trials)
        values = "all trials diverged or failed"
        score = Cell("–")
        if tuned.best is not None:
            values = keys_text(tuned.best.values)
            score = _score(study.metric, tuned.best)
        ends = [
            (axis.key, axis.edge(tuned.values[axis.key]))
            for axis in tuned.study.space
            if tuned.values
        ]
        edges = ", ".join(f"{key} ({end})" for key, end in ends if end is not None)
        rows.append((tuned.study.method, len(tuned.trials), to_the_end, values, score, edges))
    heads = (
        "method",
        "trials",
        "to the end",
        "chosen",
        study.metric.axis,
        "at the edge of its range",
    )
    notes = []
    if any(row[-1] for row in rows):
        notes.append("a value at the edge of its range may be better outside: widen the range")
    return table_of("Chosen values", heads, rows, notes=notes)


def _trials(metric: MetricInfo, tuned: Tuned) -> Table:
    """Return all trials of a method; scores of trials that ended early are of fewer rounds."""
    keys = [axis.key for axis in tuned.study.space]
    rows: list[Values] = []
    for trial in tuned.trials:
        values = []
        for key in keys:
            value = trial.values[key]
            values.append(
                Cell(config_value(value), value if isinstance(value, int | float) else None)
            )
        score = _score(metric, trial, trial is tuned.best)
        rows.append((str(trial.number + 1), *values, trial.rounds, score))
    heads = ("trial", *keys, "rounds", metric.axis)
    return table_of(f"Trials of {tuned.study.method}", heads, rows, "the chosen one is marked")


def _score(metric: MetricInfo, trial: Trial, best: bool = False) -> Cell:
    """Return the mean of a trial over the tuning seeds at its last rung, with its STD."""
    if trial.mean() is None:
        return Cell("diverged or failed")
    scores = tuple(
        metric.factor * score for score in trial.scores[trial.rounds] if score is not None
    )
    return mean_cell(Measured(scores), metric, best)
