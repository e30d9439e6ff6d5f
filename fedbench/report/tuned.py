"""What tuning has found, as Markdown and CSV."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import stdev

from fedbench.core.metrics import MetricInfo
from fedbench.core.trees import config_value
from fedbench.report.render import csv_text, markdown
from fedbench.tuning.trials import Trial, Tuned, edges


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
        ends = {"none": "", "halving": "; successive halving: a third of the trials goes on at every rung"}[
            self.pruning
        ]
        budget = (
            f"{self.budget} trials per method, each on {len(self.seeds)} tuning "
            f"seed{'s' if len(self.seeds) > 1 else ''} ({', '.join(map(str, self.seeds))}), which no result may have"
        )
        selection = (
            f"best mean of {self.metric.name} after {self.rounds} rounds, on {self.validation:g} of each client's "
            "training examples, held out; test examples play no part"
        )
        return (
            ("command", self.command),
            ("budget", budget),
            ("trials", f"{self.sampler}{ends}"),
            ("selection", selection),
        )

    def text(self) -> str:
        """Return the facts as Markdown."""
        return "".join(f"- {k}: {f'`{v}`' if k == 'command' else v}\n" for k, v in self.items())


def tuned_markdown(facts: TuningFacts, found: Sequence[Tuned]) -> str:
    """Return the table of what was chosen, with the facts above and the spaces below."""
    rows = []
    for tuned in found:
        whole = [t for t in tuned.trials if facts.rounds in t.scores]
        best = tuned.best
        chosen = "all trials diverged or failed" if best is None else values_text(best)
        score = "–" if best is None else score_text(facts.metric, best)
        rows.append([tuned.method, str(len(tuned.trials)), str(len(whole)), chosen, score, edges_text(tuned)])
    unit = f" ({facts.metric.unit})" if facts.metric.unit else ""
    heads = ["method", "trials", "to the end", "chosen", f"{facts.metric.name}{unit}", "at the edge of its range"]
    spaces = "".join(f"- {t.method}: {' '.join(f'`{a.text}`' for a in t.space)}\n" for t in found)
    edge = (
        "\nA value at the edge of its range may be better outside: widen the range.\n"
        if any(map(edges_text, found))
        else ""
    )
    return f"{facts.text()}\n{markdown(heads, rows)}{edge}\nSpaces:\n\n{spaces}"


def tuned_csv(facts: TuningFacts, found: Sequence[Tuned]) -> str:
    """Return a row per method: budget, space, selection, seeds, chosen values and score in the unit of the runs."""
    return csv_text(
        [
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
                "space": " ".join(a.text for a in t.space),
                "chosen": "" if t.best is None else values_text(t.best),
                "score": None if t.best is None else t.best.mean(),
                "edge": edges_text(t),
            }
            for t in found
        ]
    )


def trials_csv(found: Sequence[Tuned]) -> str:
    """Return a row per trial, rung and tuning seed, with the score in the unit of the runs; empty where it diverged."""
    return csv_text(
        [
            {
                "method": t.method,
                "trial": trial.number,
                "values": values_text(trial),
                "rounds": rounds,
                "index": i,
                "score": s,
            }
            for t in found
            for trial in t.trials
            for rounds, scores in trial.scores.items()
            for i, s in enumerate(scores)
        ]
    )


def write_tables(folder: Path, texts: Mapping[str, str]) -> None:
    """Write texts to files of a directory."""
    from fedbench.core.files import replace_file

    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        replace_file(folder / name, text)


def values_text(trial: Trial) -> str:
    """Return the values of a trial as typed on the command line."""
    return " ".join(f"{k}={config_value(v)}" for k, v in trial.values.items())


def score_text(metric: MetricInfo, best: Trial) -> str:
    """Return the mean of a trial over the tuning seeds at its last rung, with the sample STD of several."""
    seeds = [metric.factor * s for s in best.scores[best.rounds] if s is not None]
    spread = f" ± {metric.text(stdev(seeds))}" if len(seeds) > 1 else ""
    return metric.text(sum(seeds) / len(seeds)) + spread


def edges_text(tuned: Tuned) -> str:
    """Return which chosen values lie at an edge of their range; empty if there are none."""
    if tuned.best is None:
        return ""
    return ", ".join(f"{key} ({end})" for key, end in edges(tuned.space, tuned.best.values).items())
