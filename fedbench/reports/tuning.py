"""The results of tuning: a table of the values chosen for every method, and all trials as JSON."""

import json
from collections.abc import Iterable, Sequence

from fedbench.analysis.table_model import Cell as Measured
from fedbench.core.config_values import keys_text
from fedbench.core.metrics import MetricInfo
from fedbench.reports.comparison import mean_cell
from fedbench.reports.filters import plural
from fedbench.reports.page import Chapter
from fedbench.reports.text_table import Cell, Table, Values, table_of
from fedbench.tuning.search import OPTUNA_VERSION, Study, Trial, Tuned
from fedbench.tuning.space import Axis
from fedbench.tuning.space import Values as Chosen


def tuned_chapter(
    study: Study,
    results: Sequence[Tuned],
    command: str,
) -> Chapter:
    """Return a chapter of the page with the values chosen for every method.

    Args:
        study: The search for one of the methods.
        results: The result of each search.
        command: The command line.
    """
    request = study.request
    config = study.config
    seeds = f"{plural(len(request.seeds), 'tuning seed')} ({', '.join(map(str, request.seeds))})"
    halving = "; successive halving: a third of the trials goes on at every rung"
    facts = {
        "command": command,
        "budget": f"{request.budget} trials per method, each on {seeds}, which no result may have",
        "trials": (
            f"{request.sampler}, by Optuna {OPTUNA_VERSION}"
            f"{halving if request.pruning == 'halving' else ''}"
        ),
        "selection": (
            f"best mean of {study.metric.name} after {config.rounds} rounds, on "
            f"{config.data.validation:g} of each client's training examples, held out; "
            "test examples play no part"
        ),
    }
    for tuned in results:
        space = " ".join(axis.text for axis in tuned.study.space)
        facts[f"space of {tuned.study.method}"] = space
    return Chapter(
        "Tuning",
        "Every method has the same number of trials, judged on validation examples",
        tables=(_chosen(study, results),),
        facts=tuple(facts.items()),
    )


def tuned_json(
    study: Study,
    results: Sequence[Tuned],
    command: str,
) -> str:
    """Return the searches as JSON: the request, and for each method all trials with scores.

    Scores are in the runs' unit. The score of a diverged or failed run is null.
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
    """Return a table of the values chosen for every method, with their scores."""
    metric = study.metric
    rows: list[Values] = []
    for tuned in results:
        complete = sum(study.config.rounds in trial.scores for trial in tuned.trials)
        values = "all trials diverged or failed"
        score = Cell("–")
        edges = ""
        if tuned.best is not None:
            values = keys_text(tuned.best.values)
            score = _score(metric, tuned.best)
            tried = [trial.values for trial in tuned.trials if trial.scores]
            edges = edges_text(tuned.study.space, tuned.best.values, tried)
        row = (
            tuned.study.method,
            len(tuned.trials),
            complete,
            values,
            score,
            edges,
        )
        rows.append(row)
    notes = []
    if any(row[-1] for row in rows):
        notes.append(
            "a value at the edge of its range, or of those tried, may be better outside: widen "
            "the range or raise the budget"
        )
    heads = ("method", "trials", "to the end", "chosen", metric.axis, "at the edge of its range")
    return table_of("Chosen values", heads, rows, notes=notes)


def edges_text(
    space: Iterable[Axis],
    values: Chosen,
    tried: Sequence[Chosen] = (),
) -> str:
    """Return the keys whose values lie at an end of their axis, with the end.

    Args:
        space: The axes.
        values: The chosen values.
        tried: The values of all trials, to name the ends of those drawn from a range.
    """
    edges = []
    for axis in space:
        if axis.key not in values:
            continue
        value = values[axis.key]
        end = axis.edge(value)
        if end is not None:
            edges.append(f"{axis.key} ({end})")
        elif tried and not axis.grid:
            drawn = {trial[axis.key] for trial in tried}
            if len(drawn) > 2 and value in (min(drawn), max(drawn)):
                extreme = "lowest" if value == min(drawn) else "highest"
                edges.append(f"{axis.key} ({extreme} of those tried)")
    return ", ".join(edges)


def _score(metric: MetricInfo, trial: Trial) -> Cell:
    """Return a trial's mean over the tuning seeds at its last rung, with the STD."""
    if trial.mean() is None:
        return Cell("diverged or failed")
    scores = [score for score in trial.scores[trial.rounds] if score is not None]
    return mean_cell(Measured(tuple(metric.factor * score for score in scores)), metric)
