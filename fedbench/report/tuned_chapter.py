"""What tuning has found as a chapter of the page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fedbench.core.trees import config_value
from fedbench.report.tuned import TuningFacts, edges_text, score_text, values_text
from fedbench.report.views import ChapterView, GridCell, GridView
from fedbench.tuning.trials import Trial, Tuned


def tuned_chapter(facts: TuningFacts, found: Sequence[Tuned]) -> ChapterView:
    """Return the chosen values of every method and all trials.

    Args:
        facts: How the methods were tuned.
        found: What was found, per method.
    """
    spaces = tuple((f"space of {t.method}", " ".join(axis.text for axis in t.space)) for t in found)
    return ChapterView(
        "Tuning",
        "Every method has the same number of trials, judged on validation examples",
        (_chosen(facts, found), *(_trials(facts, t) for t in found)),
        (),
        (*facts.items(), *spaces),
    )


def _chosen(facts: TuningFacts, found: Sequence[Tuned]) -> GridView:
    rows = []
    for tuned in found:
        best, whole = tuned.best, sum(facts.rounds in t.scores for t in tuned.trials)
        rows.append(
            (
                GridCell(tuned.method),
                GridCell(str(len(tuned.trials)), len(tuned.trials)),
                GridCell(str(whole), whole),
                GridCell("all trials diverged or failed" if best is None else values_text(best)),
                GridCell("–") if best is None else GridCell(score_text(facts.metric, best), best.mean()),
                GridCell(edges_text(tuned)),
            )
        )
    heads = (
        *(("method", False), ("trials", True), ("to the end", True), ("chosen", False), (facts.metric.axis, True)),
        ("at the edge of its range", False),
    )
    notes = ("a value at the edge of its range may be better outside: widen the range",)
    return GridView("Chosen values", "", heads, tuple(rows), notes if any(map(edges_text, found)) else ())


def _trials(facts: TuningFacts, tuned: Tuned) -> GridView:
    """Return all trials of a method; scores of trials that ended early are of fewer rounds."""
    heads = (
        ("trial", False),
        *((axis.key, all(_number(t.values[axis.key]) is not None for t in tuned.trials)) for axis in tuned.space),
        ("rounds", True),
        (facts.metric.axis, True),
    )
    rows = tuple(_trial(facts, tuned, trial) for trial in tuned.trials)
    return GridView(f"Trials of {tuned.method}", "the chosen one is marked", heads, rows)


def _trial(facts: TuningFacts, tuned: Tuned, trial: Trial) -> tuple[GridCell, ...]:
    mean = trial.mean()
    score = (
        GridCell("diverged or failed")
        if mean is None
        else GridCell(score_text(facts.metric, trial), mean, trial is tuned.best)
    )
    return (
        GridCell(str(trial.number + 1)),
        *(GridCell(config_value(v := trial.values[axis.key]), _number(v)) for axis in tuned.space),
        GridCell(str(trial.rounds), trial.rounds),
        score,
    )


def _number(value: Any) -> float | None:
    """Return the sort key of a value; None if it is not a number."""
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
