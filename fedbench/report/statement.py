"""The reproducibility statement of a paper, as the checklists of the large conferences ask for it, from the runs alone.

The questions are those of the NeurIPS paper checklist: experimental setting, significance, compute, licences, and what
is needed to repeat the results.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from fedbench.analysis.settings import by_setting
from fedbench.core.files import config_value
from fedbench.report.table import latex_text, markdown_text
from fedbench.runs.run import Run

Cite = Callable[[str], tuple[str, str] | None]


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
        "Settings": [_setting(group) for group in by_setting(done).values()],
        "Tuning": _tuning(done),
        "Error bars and tests": _tests(alpha, done),
        "Compute": _compute(done),
        "Software": _software(done),
        "Data and licences": _data(done, cite),
    }
    markdown = ["# Reproducibility statement", ""]
    latex = [r"\section*{Reproducibility statement}"]
    for title, sentences in parts.items():
        markdown += [f"## {title}", "", *(f"- {markdown_text(s)}" for s in sentences), ""]
        items = [rf"  \item {latex_text(s)}" for s in sentences]
        latex += [rf"\paragraph{{{title}.}}", r"\begin{itemize}", *items, r"\end{itemize}"]
    return Statement("\n".join(markdown), "\n".join(latex) + "\n")


def _runs(runs: Sequence[Run]) -> list[str]:
    outcomes = Counter(run.outcome for run in runs)
    ended = ", ".join(f"{n} {what}" for what, n in sorted(outcomes.items()))
    counted = "Runs that diverged are in no mean and count as worse in the tests" if outcomes["diverged"] else ""
    return [f"{len(runs)} runs: {ended}", *([counted] if counted else [])]


def _setting(group: Sequence[Run]) -> str:
    """Return data, model, rounds, seeds, and the keys of method and local solver of a setting."""
    flat, meta = group[0].flat, group[0].meta
    keys = [k for k in flat if k.partition(".")[0] in ("algo", "local") and not k.endswith("_target_")]
    typed = " ".join(f"{k}={config_value(flat[k])}" for k in keys if flat[k] is not None)
    seeds = ", ".join(str(run.meta["seed"]) for run in group if run.counts)
    split = flat.get("data.seed")
    drawn = "a split of the data of its own per seed" if split is None else f"one split of the data (seed {split})"
    where = f"{meta['experiment'] or meta['data']} (data {meta['data']}, model {meta['model']})"
    shape = f"{flat['rounds']} rounds, participation {config_value(flat.get('participation'))}, seeds {seeds}, {drawn}"
    return f"{meta['algo']} on {where}: {shape}; {typed}"


def _tuning(done: Sequence[Run]) -> list[str]:
    """Return on which seeds values were chosen, as the configurations record it."""
    by_seeds: dict[str, set[str]] = {}
    for run in done:
        seeds = run.config.get("tuned_on") or []
        by_seeds.setdefault(", ".join(map(str, seeds)), set()).add(run.meta["algo"])
    sentences = []
    for seeds, methods in sorted(by_seeds.items()):
        how = (
            "values chosen on validation examples, held out from the training data of each client, with the tuning "
            f"seeds {seeds}, which no result has"
        )
        unknown = "the configurations record no tuning; to be added: how values were chosen"
        sentences.append(f"{', '.join(sorted(methods))}: {how if seeds else unknown}")
    return [*sentences, "No value was chosen on test examples by the program; all numbers are those of the last round"]


def _tests(alpha: float, done: Sequence[Run]) -> list[str]:
    seeds = sorted({sum(run.counts for run in group) for group in by_setting(done).values()})
    return [
        f"Numbers are means ± sample standard deviations (n - 1) over {' or '.join(map(str, seeds))} seeds per "
        "setting; bands in figures reach from the lowest to the highest seed",
        "A seed determines the initial model, the cohorts and the batches, and the split of the data where this is not "
        "one for all seeds",
        "Differences are tested with two-sided exact sign-flip tests, paired by seed, with Holm's adjustment over the "
        f"differences of a setting, at level {alpha:g}",
    ]


def _compute(done: Sequence[Run]) -> list[str]:
    """Return devices, time and memory."""
    by_device = Counter(f"{run.meta.get('device_name')} ({run.meta.get('platform')})" for run in done)
    sentences = [f"{n} runs on {device}" for device, n in sorted(by_device.items())]
    if spent := [run.seconds for run in done]:
        sentences.append(
            f"{sum(spent) / 3600:.3g} hours of training and evaluation in total; {sum(spent) / len(spent):.1f} s per "
            f"run on average, {max(spent):.1f} s at most"
        )
    if peaks := [p for run in done if (p := run.meta.get("peak_memory_bytes")) is not None]:
        sentences.append(f"At most {max(peaks) / 2**20:.0f} MiB of memory per run")
    return [*sentences, "Runs that are not reported, such as trials of a search, are not in these numbers"]


def _software(done: Sequence[Run]) -> list[str]:
    """Return versions and commits."""
    versions: dict[str, set[str]] = {}
    commits = set()
    for run in done:
        for name, version in run.meta.get("versions", {}).items():
            versions.setdefault(name, set()).add(str(version))
        if commit := run.meta.get("git_commit"):
            commits.add(f"{commit}{' with changes' if run.meta.get('git_dirty') else ''}")
    listed = ", ".join(f"{name} {' and '.join(sorted(found))}" for name, found in versions.items())
    bits = "With one configuration, seed and device, the models are equal bit for bit, also after an interruption"
    return [listed, *([f"Commit {', '.join(sorted(commits))}"] if commits else []), bits]


def _data(done: Sequence[Run], cite: Cite) -> list[str]:
    """Return licence, reference and files of every data set."""
    targets: dict[str, str | None] = {}
    for run in done:
        source = run.config.get("data", {}).get("source", {})
        targets.setdefault(run.meta["data"], source.get("_target_") if isinstance(source, Mapping) else None)
    sentences = []
    for data, target in sorted(targets.items()):
        found = cite(target) if target else None
        what = f"licence: {found[0]}; reference: {found[1]}" if found else "to be added: licence and reference"
        sentences.append(f"{data}: {what}")
    files = dict.fromkeys(text for run in done for text in (*run.meta.get("sources", ()), *run.unofficial))
    return [*sentences, *files]
