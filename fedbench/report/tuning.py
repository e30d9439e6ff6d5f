"""What tuning has found: the chosen values of every method and all trials, as tables and CSV."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import stdev
from typing import Any

from fedbench.core.files import config_value
from fedbench.core.metrics import MetricInfo
from fedbench.report.format import plural
from fedbench.report.page import Chapter
from fedbench.report.table import Cell, Table, markdown
from fedbench.tuning.trials import Trial, Tuned, edges

Fields = dict[str, Any]
_PRUNING = {"none": "", "halving": "; successive halving: a third of the trials goes on at every rung"}


@dataclass(frozen=True)
class TuningFacts:
    """How methods were tuned, the same for all.

    Attributes:
        command: The command.
        metric: The metric that trials are judged by.
        rounds: Number of rounds of a whole trial.
        budget: Number of trials per method.
        seeds: The tuning seeds.
        sampler: Where trials come from.
        pruning: How bad trials end early.
        validation: Fraction of each client's training examples that trials are judged on.
    """

    command: str
    metric: MetricInfo
    rounds: int
    budget: int
    seeds: tuple[int, ...]
    sampler: str
    pruning: str
    validation: float

    def items(self) -> tuple[tuple[str, str], ...]:
        """Return the facts as (name, text)."""
        budget = (
            f"{self.budget} trials per method, each on {plural(len(self.seeds), 'tuning seed')} "
            f"({', '.join(map(str, self.seeds))}), which no result may have"
        )
        selection = (
            f"best mean of {self.metric.name} after {self.rounds} rounds, on {self.validation:g} of each client's "
            "training examples, held out; test examples play no part"
        )
        trials = f"{self.sampler}{_PRUNING[self.pruning]}"
        return ("command", self.command), ("budget", budget), ("trials", trials), ("selection", selection)


def tuned_chapter(facts: TuningFacts, found: Sequence[Tuned]) -> Chapter:
    """Return the chosen values of every method and all trials as a chapter of the page."""
    spaces = tuple((f"space of {t.method}", _space(t)) for t in found)
    lead = "Every method has the same number of trials, judged on validation examples"
    tables = (_chosen(facts, found), *(_trials(facts, t) for t in found))
    return Chapter("Tuning", lead, tables, facts=(*facts.items(), *spaces))


def tuned_markdown(facts: TuningFacts, found: Sequence[Tuned]) -> str:
    """Return the table of what was chosen as Markdown, with the facts and the spaces."""
    said = [*(f"{name}: {text}" for name, text in facts.items()), *(f"space of {t.method}: {_space(t)}" for t in found)]
    return markdown([_chosen(facts, found)], notes=said)


def _chosen(facts: TuningFacts, found: Sequence[Tuned]) -> Table:
    rows = []
    for tuned in found:
        best, whole = tuned.best, sum(facts.rounds in t.scores for t in tuned.trials)
        values = (
            (Cell("all trials diverged or failed"), Cell("–"))
            if best is None
            else (Cell(values_text(best)), Cell(score_text(facts.metric, best), best.mean()))
        )
        counts = Cell(str(len(tuned.trials)), len(tuned.trials)), Cell(str(whole), whole)
        rows.append((Cell(tuned.method), *counts, *values, Cell(edges_text(tuned))))
    heads = (
        *(("method", False), ("trials", True), ("to the end", True), ("chosen", False), (facts.metric.axis, True)),
        ("at the edge of its range", False),
    )
    note = "a value at the edge of its range may be better outside: widen the range"
    return Table("Chosen values", heads, tuple(rows), notes=(note,) if any(map(edges_text, found)) else ())


def _trials(facts: TuningFacts, tuned: Tuned) -> Table:
    """Return all trials of a method; scores of trials that ended early are of fewer rounds."""
    keys = [axis.key for axis in tuned.space]
    numeric = [all(_number(t.values[key]) is not None for t in tuned.trials) for key in keys]
    heads = (("trial", False), *zip(keys, numeric, strict=True), ("rounds", True), (facts.metric.axis, True))
    rows = []
    for trial in tuned.trials:
        values = (Cell(config_value(trial.values[key]), _number(trial.values[key])) for key in keys)
        mean = trial.mean()
        score = Cell("diverged or failed")
        if mean is not None:
            score = Cell(score_text(facts.metric, trial), mean, trial is tuned.best)
        rows.append((Cell(str(trial.number + 1)), *values, Cell(str(trial.rounds), trial.rounds), score))
    return Table(f"Trials of {tuned.method}", heads, tuple(rows), "the chosen one is marked")


def tuned_rows(facts: TuningFacts, found: Sequence[Tuned]) -> list[Fields]:
    """Return a row per method: budget, space, selection, seeds, chosen values and score in the unit of the runs."""
    return [
        {
            "method": t.method,
            "trials": len(t.trials),
            "to_the_end": sum(facts.rounds in trial.scores for trial in t.trials),
            "budget": facts.budget,
            "sampler": facts.sampler,
            "pruning": facts.pruning,
            "selection": facts.metric.name,
            "rounds": facts.rounds,
            "validation": facts.validation,
            "seeds": " ".join(map(str, facts.seeds)),
            "space": _space(t),
            "chosen": "" if t.best is None else values_text(t.best),
            "score": None if t.best is None else t.best.mean(),
            "edge": edges_text(t),
        }
        for t in found
    ]


def trial_rows(found: Sequence[Tuned]) -> list[Fields]:
    """Return a row per trial, rung and tuning seed, with the score in the unit of the runs; None where it diverged."""
    rows = []
    for t in found:
        for trial in t.trials:
            known: Fields = {"method": t.method, "trial": trial.number, "values": values_text(trial)}
            for rounds, scores in trial.scores.items():
                rows += [known | {"rounds": rounds, "index": i, "score": s} for i, s in enumerate(scores)]
    return rows


def values_text(trial: Trial) -> str:
    """Return the values of a trial as typed on the command line."""
    return " ".join(f"{k}={config_value(v)}" for k, v in trial.values.items())


def score_text(metric: MetricInfo, best: Trial) -> str:
    """Return the mean of a trial over the tuning seeds at its last rung, with the sample STD of several."""
    seeds = [metric.factor * s for s in best.scores[best.rounds] if s is not None]
    return metric.text(sum(seeds) / len(seeds)) + (f" ± {metric.text(stdev(seeds))}" if len(seeds) > 1 else "")


def edges_text(tuned: Tuned) -> str:
    """Return which chosen values lie at an edge of their range; empty if there are none."""
    if tuned.best is None:
        return ""
    return ", ".join(f"{key} ({end})" for key, end in edges(tuned.space, tuned.best.values).items())


def _space(tuned: Tuned) -> str:
    return " ".join(axis.text for axis in tuned.space)


def _number(value: Any) -> float | None:
    """Return the sort key of a value; None if it is not a number."""
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
