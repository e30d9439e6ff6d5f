"""The reproducibility statement of a paper, as the checklists of the large conferences ask for it, from the runs alone.

The questions are those of the NeurIPS paper checklist: experimental setting, significance, compute, licences, and what
is needed to repeat the results.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from fedbench.analysis.settings import by_setting
from fedbench.core.trees import config_value
from fedbench.report.render import escape, in_markdown
from fedbench.runs.run import Run

Cite = Callable[[str], tuple[str, str] | None]
_SECONDS_PER_HOUR = 3600


@dataclass(frozen=True)
class Statement:
    """The statement in both forms."""

    markdown: str
    latex: str


def statement(runs: Sequence[Run], alpha: float, cite: Cite) -> Statement:
    """Return the statement on runs.

    Args:
        runs: All runs that the results rest on, those that did not end well too.
        alpha: Level of the tests.
        cite: Returns licence and reference of the source that a ``_target_`` names; None for one that is unknown.

    Raises:
        DamagedRun: If a run cannot be read.
    """
    done = [run for run in runs if run.done]
    parts = {
        "Runs": _runs(runs),
        "Settings": _settings(done),
        "Tuning": _tuning(done),
        "Error bars and tests": _tests(alpha, done),
        "Compute": _compute(done),
        "Software": _software(done),
        "Data and licences": _data(done, cite),
    }
    markdown = ["# Reproducibility statement", ""]
    latex = [r"\section*{Reproducibility statement}"]
    for title, sentences in parts.items():
        markdown += [f"## {title}", "", *(f"- {in_markdown(s)}" for s in sentences), ""]
        items = [rf"  \item {escape(s)}" for s in sentences]
        latex += [rf"\paragraph{{{title}.}}", r"\begin{itemize}", *items, r"\end{itemize}"]
    return Statement("\n".join(markdown), "\n".join(latex) + "\n")


def _runs(runs: Sequence[Run]) -> list[str]:
    outcomes = Counter(run.outcome for run in runs)
    ended = ", ".join(f"{n} {what}" for what, n in sorted(outcomes.items()))
    counted = "Runs that diverged are in no mean and count as worse in the tests" if outcomes["diverged"] else ""
    return [f"{len(runs)} runs: {ended}", *([counted] if counted else [])]


def _settings(done: Sequence[Run]) -> list[str]:
    """Return a sentence per method and setting: data, model, rounds, seeds, and the keys of method and local solver."""
    sentences = []
    for group in by_setting(done).values():
        run = group[0]
        flat = run.flat
        keys = {
            k: v for k, v in flat.items() if k.partition(".")[0] in ("algo", "local") and not k.endswith("_target_")
        }
        seeds = ", ".join(str(r.meta["seed"]) for r in group if r.counts)
        split = flat.get("data.seed")
        drawn = "a split of the data of its own per seed" if split is None else f"one split of the data (seed {split})"
        where = run.meta["experiment"] or run.meta["data"]
        sentences.append(
            f"{run.meta['algo']} on {where} (data {run.meta['data']}, model {run.meta['model']}): "
            f"{flat['rounds']} rounds, participation {config_value(flat.get('participation'))}, seeds {seeds}, "
            f"{drawn}; " + " ".join(f"{k}={config_value(v)}" for k, v in keys.items() if v is not None)
        )
    return sentences


def _tuning(done: Sequence[Run]) -> list[str]:
    """Return on which seeds values were chosen, as the configurations record it."""
    by_seeds: dict[str, set[str]] = {}
    for run in done:
        seeds = run.config.get("tuned_on") or []
        by_seeds.setdefault(", ".join(map(str, seeds)), set()).add(run.meta["algo"])
    sentences = [
        f"{', '.join(sorted(methods))}: values chosen on validation examples, held out from the training data of each "
        f"client, with the tuning seeds {seeds}, which no result has"
        if seeds
        else f"{', '.join(sorted(methods))}: the configurations record no tuning; to be added: how values were chosen"
        for seeds, methods in sorted(by_seeds.items())
    ]
    return [*sentences, "No value was chosen on test examples by the program; all numbers are those of the last round"]


def _tests(alpha: float, done: Sequence[Run]) -> list[str]:
    seeds = sorted({len([r for r in group if r.counts]) for group in by_setting(done).values()})
    counts = " or ".join(map(str, seeds))
    return [
        f"Numbers are means ± sample standard deviations (n - 1) over {counts} seeds per setting; bands in figures "
        "reach from the lowest to the highest seed",
        "A seed determines the initial model, the cohorts and the batches, and the split of the data where this is not "
        "one for all seeds",
        "Differences are tested with two-sided exact sign-flip tests, paired by seed, with Holm's adjustment over the "
        f"differences of a setting, at level {alpha:g}",
    ]


def _compute(done: Sequence[Run]) -> list[str]:
    """Return devices, time and memory."""
    spent = [_seconds(run) for run in done]
    by_device = Counter(f"{r.meta.get('device_name')} ({r.meta.get('platform')})" for r in done)
    sentences = [f"{n} runs on {device}" for device, n in sorted(by_device.items())]
    if spent:
        sentences.append(
            f"{sum(spent) / _SECONDS_PER_HOUR:.3g} hours of training and evaluation in total; "
            f"{sum(spent) / len(spent):.1f} s per run on average, {max(spent):.1f} s at most"
        )
    peaks = [p for run in done if (p := run.meta.get("peak_memory_bytes")) is not None]
    if peaks:
        sentences.append(f"At most {max(peaks) / 2**20:.0f} MiB of memory per run")
    return [*sentences, "Runs that are not reported, such as trials of a search, are not in these numbers"]


def _seconds(run: Run) -> float:
    last = run.last_round()
    return sum(float(last.get(k) or 0.0) for k in ("seconds_train", "seconds_eval"))


def _software(done: Sequence[Run]) -> list[str]:
    """Return versions and commits."""
    versions: dict[str, set[str]] = {}
    for run in done:
        for name, version in run.meta.get("versions", {}).items():
            versions.setdefault(name, set()).add(str(version))
    listed = ", ".join(f"{name} {' and '.join(sorted(found))}" for name, found in versions.items())
    commits = sorted({f"{c}{' with changes' if r.meta.get('git_dirty') else ''}" for r in done if (c := _commit(r))})
    bits = "With one configuration, seed and device, the models are equal bit for bit, also after an interruption"
    return [listed, *([f"Commit {', '.join(commits)}"] if commits else []), bits]


def _commit(run: Run) -> str | None:
    commit: str | None = run.meta.get("git_commit")
    return commit


def _data(done: Sequence[Run], cite: Cite) -> list[str]:
    """Return licence, reference and files of every data set."""
    sources: dict[str, str | None] = {}
    for run in done:
        source = run.config.get("data", {}).get("source", {})
        sources.setdefault(run.meta["data"], source.get("_target_") if isinstance(source, Mapping) else None)
    sentences = []
    for data, target in sorted(sources.items()):
        found = cite(target) if target else None
        what = f"licence: {found[0]}; reference: {found[1]}" if found else "to be added: licence and reference"
        sentences.append(f"{data}: {what}")
    return [*sentences, *_distinct(s for r in done for s in (*r.meta.get("sources", ()), *r.unofficial))]


def _distinct(texts: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(texts))
