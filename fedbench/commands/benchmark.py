"""``fedbench benchmark NAME``: compare your method with baselines that have been run already.

Methods without published or local runs are tuned and run with the budget of the benchmark.
"""

import secrets
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from math import inf
from pathlib import Path
from time import monotonic

from fedbench.benchmarks.bundle import read_baselines
from fedbench.benchmarks.check import Checked, check_runs
from fedbench.benchmarks.definition import Benchmark, read_benchmark
from fedbench.benchmarks.entries import FOLDER, Entry
from fedbench.benchmarks.execution import BenchmarkContext, PlannedEntry, methods_of
from fedbench.commands.result import CommandResult, print_errors
from fedbench.config.compose import Composer
from fedbench.config.overrides import parse_overrides
from fedbench.core.config_values import keys_text
from fedbench.core.errors import RequestError, one_line
from fedbench.core.options import Count, Natural, Positive
from fedbench.core.validation import validate
from fedbench.reports.benchmark import benchmark_text, write_benchmark
from fedbench.reports.filters import plural
from fedbench.runs.executors.base import Executor, RunResult
from fedbench.runs.process import deadline
from fedbench.tuning.search import RefusedTrial

# keys that do not change results
_FREE = (
    "data_dir",
    "results_dir",
    "device",
    "tracker",
    "engine.",
    "data.download",
    "data.mirrors",
)


def execute(
    name: str,
    overrides: Sequence[str],
    executor: Executor,
    baselines: str | None = None,
    check: int | None = None,
    draw: int | None = None,
    config_dir: Path | None = None,
    hours: float | None = None,
) -> CommandResult:
    """Tune and run the missing methods of a benchmark, and print the tables.

    Args:
        name: The benchmark.
        overrides: ``algo``, and keys that do not change results.
        executor: The executor of the runs.
        baselines: Directory or address of published runs.
        check: Number of published runs to repeat. Nothing else is run unless ``algo`` is given.
        draw: Seed of the draw of these runs. If None, every call draws others.
        config_dir: The user's directory with config files and modules.
        hours: Time limit in hours.

    Returns:
        The result. Its status is 1 if a run failed, a method in ``algo`` has no run or refuses a
        trial, or a repeated run differs. There is no page without runs.

    Raises:
        RequestError: If the request is invalid.
    """
    for option, value, kind in (("hours", hours, Positive), ("check", check, Count)):
        if value is not None:
            validate(f"--{option}", value, kind)
    draw = secrets.randbelow(2**31) if draw is None else validate("--draw", draw, Natural)
    benchmark = read_benchmark(name, config_dir)
    own, common = _overrides(overrides, benchmark)
    composer = Composer(config_dir)
    folder = composer.config(common).results_dir
    context = BenchmarkContext(benchmark, composer, executor, folder, tuple(common))
    context.check_settings()

    wanted = own if own or check is not None else methods_of(benchmark)
    entries: list[Entry] = []
    if baselines is not None:
        data_dir = composer.config(common).data_dir
        entries = read_baselines(baselines, context, data_dir, without=own)
    todo = _missing(context, wanted, entries)
    if own and not any(entry.runs for entry in entries if entry.method not in own):
        raise RequestError(
            f"there is nothing to compare algo={','.join(own)} with: type --baselines DIR or URL "
            f"with published runs of {benchmark.label}, or run `fedbench benchmark {name}` first, "
            "without algo, which runs all its methods here"
        )
    todo = _allowed(todo, entries)
    print(f"fedbench: {_outlook(benchmark, entries, todo)}", file=sys.stderr, flush=True)
    failed, refusing = _run(todo, entries, hours)
    print_errors(failed, config_dir)

    checked = None
    if check is not None and not todo:
        print(f"fedbench: --draw {draw} repeats this check", file=sys.stderr, flush=True)
        published = [entry for entry in entries if entry.published]
        checked = check_runs(published or entries, check, draw, context)
    lines = [] if checked is None else checked_lines(checked)
    with_runs = {entry.method for entry in entries if entry.runs}
    page = None
    if with_runs:
        page = write_benchmark(
            benchmark,
            entries,
            own,
            folder / FOLDER / benchmark.label,
            lines,
        )
        text = benchmark_text(benchmark, entries, own)
        print("\n".join(["", text, "", *reasons(entries), *lines, f"written: {page}"]))
    else:
        print("\n".join([*reasons(entries), "no page is written: there is no run"]))
    if todo:
        print(f"\nthe hours are up: {_count(todo)} left; the same command runs the rest")
    missing = set(own) & refusing or (not todo and set(own) - with_runs)
    differs = checked is not None and checked.count("differs")
    return CommandResult(1 if failed or missing or differs else 0, page)


def _overrides(texts: Sequence[str], benchmark: Benchmark) -> tuple[list[str], list[str]]:
    """Return the methods in ``algo`` and the overrides of all runs.

    Raises:
        RequestError: If an override is of a key that the benchmark determines.
    """
    own: list[str] = []
    common = []
    for o in parse_overrides(texts):
        if o.key == "algo":
            own += o.values or [str(o.value)]
        elif o.key.startswith(_FREE) and o.key != "engine.precision":
            common.append(o.text)
        else:
            raise RequestError(
                f"{o.text}: {benchmark.label} determines this key, and with another value it is "
                f"another benchmark: write benchmark/NAME.yaml in --config-dir DIR, such as a copy "
                f"of {benchmark.name}.yaml; algo and keys of {', '.join(_FREE)} can be typed"
            )
    return list(dict.fromkeys(own)), common


def _missing(
    context: BenchmarkContext,
    wanted: Sequence[str],
    entries: list[Entry],
) -> list[PlannedEntry]:
    """Return the wanted entries that are missing, and add those that were run here to the others.

    Args:
        context: The benchmark and the results directory.
        wanted: The requested methods.
        entries: The published entries.
    """
    present = {(entry.setting, entry.method) for entry in entries}
    todo = []
    for setting in context.benchmark.settings:
        for method in dict.fromkeys([*wanted, *methods_of(context.benchmark)]):
            if (setting, method) in present:
                continue
            planned = context.planned(setting, method)
            entry = planned.finished()
            if entry is not None:
                entries.append(entry)
            elif method in wanted:
                todo.append(planned)
    return todo


def _allowed(todo: Sequence[PlannedEntry], entries: list[Entry]) -> list[PlannedEntry]:
    """Return the work without methods that cannot run in a setting, whose entries are added."""
    allowed = []
    for planned in todo:
        reason = planned.refusal()
        if reason:
            print(f"fedbench: {planned.method} in {planned.name}: {reason}", file=sys.stderr)
            entries.append(planned.write(reason=reason))
        else:
            allowed.append(planned)
    return allowed


def _outlook(
    benchmark: Benchmark,
    entries: Sequence[Entry],
    todo: Sequence[PlannedEntry],
) -> str:
    """Return a line on what is published, what was run here before and what is to do."""
    published = [entry for entry in entries if entry.published]
    local = [entry for entry in entries if entry.trials and not entry.published]
    runs = sum(planned.most_runs for planned in todo)
    return (
        f"{benchmark.label}: {_count(published)} published, {_count(local)} here, {_count(todo)} "
        f"to do: at most {plural(runs, 'run')}; finished runs are not repeated"
    )


def _count(entries: Sequence[Entry | PlannedEntry]) -> str:
    """Return the number of methods in entries."""
    return plural(len({entry.method for entry in entries}), "method")


def _run(
    todo: list[PlannedEntry],
    entries: list[Entry],
    hours: float | None,
) -> tuple[list[RunResult], set[str]]:
    """Run entries until the time is up, and return the failed runs and the methods that refuse one.

    Finished entries move from the work to the others.
    """
    failed: list[RunResult] = []
    refusing = set()
    seconds = inf if hours is None else hours * 3600
    end = monotonic() + seconds
    with nullcontext() if hours is None else deadline(seconds):
        while todo and monotonic() < end:
            planned = todo[0]
            print(f"fedbench: {planned.method} in {planned.name}", file=sys.stderr, flush=True)
            try:
                entry, results = planned.execute()
                failed += [result for result in results if result.error]
            except RefusedTrial as error:  # the other methods run nevertheless
                entry = planned.write(reason=str(error))
                refusing.add(planned.method)
            if entry.chosen:
                print(f"fedbench: chosen: {keys_text(entry.chosen)}", file=sys.stderr)
            entries.append(entry)
            todo.remove(planned)
    return failed, refusing


def reasons(entries: Sequence[Entry]) -> list[str]:
    """Return a line for each entry without runs; the reason may be a stranger's."""
    lines = []
    for entry in entries:
        if entry.reason:
            lines.append(f"{entry.method}, {entry.setting}: {one_line(entry.reason)}")
    return lines


def checked_lines(checked: Checked) -> list[str]:
    """Return the result of a check, with a line for each run that is not identical."""
    outcomes = [f"{checked.count(word)} {word}" for word in ("identical", "within", "differs")]
    lines = [
        f"{plural(len(checked.runs), 'run')} of {checked.population} repeated (--draw "
        f"{checked.draw}): {', '.join(outcomes)}; the tolerance on another kind of machine is "
        f"{checked.tolerance:g}"
    ]
    for one in checked.runs:
        if one.outcome != "identical":
            variant = ", held out" if one.held_out else ""
            name = f"{one.entry.method}, {one.entry.setting}{variant}, seed {one.seed}"
            reason = one_line(one.reason)  # may have the name of a published column
            lines.append(f"{name} {one.outcome}: {reason} (by {one.difference:.3g})")
    return lines
