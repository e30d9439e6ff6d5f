"""Entries of a benchmark: the search and the runs of a method in a setting.

A results directory DIR has the entries in DIR/benchmark/<name>@<version>/<setting>/<method>.json,
with the paths of their runs, so that they can be published or drawn without a search.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedbench.benchmarks.definition import Benchmark
from fedbench.core.atomic_files import replace_file
from fedbench.core.files import reading
from fedbench.runs.run import Run, read_run
from fedbench.tuning.space import Values

FOLDER = "benchmark"  # directory of the entries, below the results


@dataclass(frozen=True)
class Trial:
    """A trial of a search.

    Attributes:
        values: The values by key: the rate, and the method's own keys.
        score: The metric on validation examples; None if the run diverged.
    """

    values: Values
    score: float | None


@dataclass(frozen=True)
class Entry:
    """A method in a setting.

    Attributes:
        setting: Name of the setting.
        method: The method.
        space: The axes of the search as typed on the command line, the rates first.
        trials: The trials, in the order of the search.
        chosen: The values of the best trial; None if every trial diverged or the method is refused.
        reason: Why the method has no runs, such as the message of a refusal; empty if it has.
        runs: Runs with the chosen values, in the order of the seeds.
        held_out: Runs with the same values in the held-out variant, likewise.
        published: Whether the entry was read from a bundle rather than run here.
        digests: Digests of the method's configuration in the setting and in its variant, with the
            default values of its keys.
        plan: The benchmark's numbers of trials and seeds, tuning seeds and metric, as of the run;
            empty for a published entry.
    """

    setting: str
    method: str
    space: tuple[str, ...] = ()
    trials: tuple[Trial, ...] = ()
    chosen: Values | None = None
    reason: str = ""
    runs: tuple[Run, ...] = ()
    held_out: tuple[Run, ...] = ()
    published: bool = False
    digests: tuple[str, ...] = ()
    plan: dict[str, Any] = field(default_factory=dict, compare=False)

    def is_complete(self, seeds: int) -> bool:
        """Return whether the search has ended and all seeds are done, if it has chosen values."""
        if self.chosen is None:
            return bool(self.trials)
        for runs in (self.runs, self.held_out):
            done = [run for run in runs if run.done]
            if len(done) < seeds:
                return False
        return True


def entry_file(
    folder: Path,
    benchmark: Benchmark,
    setting: str,
    method: str,
) -> Path:
    """Return the file of an entry below a results directory."""
    return folder / FOLDER / benchmark.label / setting / f"{method}.json"


def write_entry(
    entry: Entry,
    folder: Path,
    benchmark: Benchmark,
) -> None:
    """Write an entry, whose runs are below the results directory."""

    def paths(runs: Sequence[Run]) -> list[str]:
        return [str(run.path.relative_to(folder)) for run in runs]

    facts = {
        "digests": entry.digests,
        "plan": entry.plan,
        "space": entry.space,
        "trials": [vars(trial) for trial in entry.trials],
        "chosen": entry.chosen,
        "reason": entry.reason,
        "runs": paths(entry.runs),
        "held_out": paths(entry.held_out),
    }
    file = entry_file(folder, benchmark, entry.setting, entry.method)
    file.parent.mkdir(parents=True, exist_ok=True)
    replace_file(file, json.dumps(facts, indent=1) + "\n")


def read_entry(file: Path, folder: Path) -> Entry:
    """Return an entry below a results directory, with its runs.

    Raises:
        RequestError: If the file or a run cannot be read.
    """

    def runs(name: str) -> tuple[Run, ...]:
        return tuple(read_run(folder / path) for path in facts[name])

    with reading(file, "cannot be read as an entry", "remove it and run the benchmark again"):
        facts = json.loads(file.read_text(encoding="utf-8"))
        return Entry(
            setting=file.parent.name,
            method=file.stem,
            space=tuple(facts["space"]),
            trials=tuple(Trial(**trial) for trial in facts["trials"]),
            chosen=facts["chosen"],
            reason=facts["reason"],
            runs=runs("runs"),
            held_out=runs("held_out"),
            digests=tuple(facts["digests"]),
            plan=facts.get("plan", {}),  # earlier versions wrote none
        )


def entries_of(folder: Path, benchmark: Benchmark) -> Iterator[Entry]:
    """Yield the entries of a benchmark below a results directory, by setting and method.

    Raises:
        RequestError: If an entry or a run cannot be read.
    """
    for setting in benchmark.settings:
        place = entry_file(folder, benchmark, setting, "*")
        for file in sorted(place.parent.glob(place.name)):
            yield read_entry(file, folder)
