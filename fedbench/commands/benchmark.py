"""``fedbench benchmark NAME``: compare your method with baselines that have been run already.

The methods that are not there are tuned and run with the budget of the benchmark; published runs
are taken for the rest.
"""

import random
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

from fedbench.analysis.compare import compare
from fedbench.benchmarks.check import Checked, check_runs
from fedbench.benchmarks.definition import Benchmark, read_benchmark
from fedbench.benchmarks.entries import Entry
from fedbench.benchmarks.execution import (
    BenchmarkContext,
    PlannedEntry,
    check_methods,
    check_settings,
    entries_of,
    methods_of,
)
from fedbench.commands.result import CommandResult, print_errors
from fedbench.config.compose import Composer
from fedbench.config.overrides import parse_overrides
from fedbench.core.errors import RequestError
from fedbench.core.files import existing_directory
from fedbench.core.options import Count, Natural, Positive
from fedbench.core.validation import validate
from fedbench.reports.comparison import compared_text
from fedbench.reports.filters import plural
from fedbench.runs.cached_run import writing_results
from fedbench.runs.executors.base import Executor, RunResult
from fedbench.runs.process import deadline
from fedbench.runs.run import Run

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
_DRAWS = 2**31


def execute(
    name: str,
    overrides: Sequence[str],
    executor: Executor,
    baselines: str | None = None,
    check: int | None = None,
    draw: int | None = None,
    config_dir: Path | None = None,
    hours: float | None = None,
    debug: bool = False,
) -> CommandResult:
    """Tune and run the methods of a benchmark that are not there, and print the tables.

    Args:
        name: The benchmark.
        overrides: ``algo``, and keys that do not change results.
        executor: The executor of the runs.
        baselines: Directory or address of published runs.
        check: Number of published runs to repeat. Nothing else is run unless ``algo`` is given.
        draw: Seed of the draw of these runs. If None, another draw in every call.
        config_dir: The user's directory with config files and modules.
        hours: Time limit in hours.
        debug: Whether to print the traceback of a failed run.

    Returns:
        The result. Its status is 1 if a run failed, a method in ``algo`` has no run, or a repeated
        run differs.

    Raises:
        RequestError: If the request is invalid.
    """
    benchmark = read_benchmark(name, config_dir)
    own, common = _overrides(overrides, benchmark)
    for option, value, kind in (
        ("--hours", hours, Positive),
        ("--check", check, Count),
        ("--draw", draw, Natural),
    ):
        if value is not None:
            validate(option, value, kind)
    if draw is not None and check is None:
        raise RequestError("--draw repeats a draw of --check; add --check K")

    check_methods([*own, *methods_of(benchmark)], config_dir)
    composer = Composer(config_dir)
    folder = composer.config(common).results_dir
    shared = BenchmarkContext(benchmark, composer, executor, folder, tuple(common), debug)
    check_settings(shared)
    published = [] if baselines is None else _published(baselines, benchmark)
    if own:
        wanted = own
    else:
        wanted = methods_of(benchmark) if check is None else []
    plan = _plan(shared, wanted, [entry for entry in published if entry.method not in own])
    if own and not any(entry.runs and entry.method not in own for entry in plan.entries):
        raise RequestError(
            f"there is nothing to compare algo={','.join(own)} with: type --baselines DIR or URL "
            f"with published runs of {benchmark.label}, or first run `fedbench benchmark {name}` "
            "without algo, which runs all its methods here"
        )

    with writing_results(folder):
        folder.mkdir(parents=True, exist_ok=True)
    _refuse(plan)
    print(f"fedbench: {_outlook(plan, benchmark)}", file=sys.stderr, flush=True)
    failed = _run(plan, hours)
    print_errors(failed, config_dir)
    checked = None
    if check is not None and not plan.todo:
        checked = _check(plan.entries, check, draw, shared)
    print(f"\n{_text(benchmark, plan.entries, own, checked)}")
    if plan.todo:
        print(f"\nthe hours are up: {_count(plan.todo)} left; the same command runs the rest")
    with_runs = {entry.method for entry in plan.entries if entry.runs}
    compared = bool(plan.todo) or set(own) <= with_runs
    agrees = checked is None or checked.agrees
    return CommandResult(0 if compared and agrees and not failed else 1)


def _overrides(texts: Sequence[str], benchmark: Benchmark) -> tuple[list[str], list[str]]:
    """Return the methods in ``algo`` and the overrides of all runs.

    Raises:
        RequestError: If an override is of a key that the benchmark determines.
    """
    own: list[str] = []
    common = []
    for o in parse_overrides(texts):
        if o.key == "algo":
            own += [str(o.value)] if not o.sweeps else o.values
        elif o.key.startswith(_FREE) and o.key != "engine.precision" and not o.sweeps:
            common.append(o.text)
        else:
            raise RequestError(
                f"{o.text}: {benchmark.label} determines this key, with another value it is another "
                f"benchmark; copy conf/benchmark/{benchmark.name}.yaml to a name of your own in "
                f"--config-dir. It takes algo, {', '.join(_FREE)}"
            )
    return list(dict.fromkeys(own)), common


def _published(source: str, benchmark: Benchmark) -> list[Entry]:
    """Return the entries of another results directory.

    Raises:
        RequestError: If there are none of this version.
    """
    folder = existing_directory("--baselines", source)
    entries = [replace(entry, published=True) for entry in entries_of(folder, benchmark)]
    if not entries:
        raise RequestError(f"--baselines {source} has no entries of {benchmark.label}")
    return entries


@dataclass
class _Plan:
    """The work of a command.

    Attributes:
        entries: The entries that are there: published, or run here.
        todo: The entries to run; those that are done move to ``entries``.
    """

    entries: list[Entry]
    todo: list[PlannedEntry]


def _plan(
    shared: BenchmarkContext,
    wanted: Sequence[str],
    published: Sequence[Entry],
) -> _Plan:
    """Return the entries that are there, and the wanted ones that are missing."""
    plan = _Plan(list(published), [])
    there = {(entry.setting, entry.method) for entry in published}
    methods = dict.fromkeys([*wanted, *methods_of(shared.benchmark)])
    for setting in shared.benchmark.settings:
        for method in methods:
            if (setting, method) in there:
                continue
            planned = PlannedEntry(setting, method, shared)
            if (entry := planned.finished()) is not None:
                plan.entries.append(entry)
            elif method in wanted:
                plan.todo.append(planned)
    return plan


def _refuse(plan: _Plan) -> None:
    """Move methods that cannot run in a setting from the work to the entries, with the reason.

    Raises:
        RequestError: If the baseline cannot run in a setting, for example because data are missing.
    """
    todo = []
    settings: set[str] = set()
    for planned in plan.todo:
        baseline = replace(planned, method=planned.shared.benchmark.baseline)
        if planned.name not in settings and (reason := baseline.refusal()):
            raise RequestError(f"{baseline.method} cannot run in {planned.name}: {reason}")
        settings.add(planned.name)
        if reason := planned.refusal():
            plan.entries.append(planned.refuse(reason))
            print(f"fedbench: {planned.method}, {planned.name}: {reason}", file=sys.stderr)
        else:
            todo.append(planned)
    plan.todo = todo


def _outlook(plan: _Plan, benchmark: Benchmark) -> str:
    """Return a line on what is published, what is done and what is to do."""
    published = [entry for entry in plan.entries if entry.published]
    local = [entry for entry in plan.entries if entry.runs and not entry.published]
    runs = sum(planned.most_runs() for planned in plan.todo)
    return (
        f"{benchmark.label}: {_count(published)} published, {_count(local)} done here, "
        f"{_count(plan.todo)} to do: at most {plural(runs, 'run')}, without those done already"
    )


def _count(entries: Sequence[Entry] | Sequence[PlannedEntry]) -> str:
    """Return the numbers of methods and settings in entries, such as ``2 methods (4 in settings)``."""
    methods = plural(len({entry.method for entry in entries}), "method")
    return f"{methods} ({len(entries)} in settings)"


def _run(plan: _Plan, hours: float | None) -> list[RunResult]:
    """Run the work until the time is up, move it to the entries, and return the failed runs."""
    failed: list[RunResult] = []
    with nullcontext() if hours is None else deadline(hours * 3600):
        while plan.todo:
            entry, results = plan.todo[0].execute()
            failed += [result for result in results if result.error]
            plan.entries.append(entry)
            plan.todo.pop(0)
    return failed


def _check(
    entries: Sequence[Entry], number: int, draw: int | None, shared: BenchmarkContext
) -> Checked:
    """Repeat published runs, or if there are none, runs that were trained here."""
    published = [entry for entry in entries if entry.published]
    seed = random.randrange(_DRAWS) if draw is None else draw
    print(f"fedbench: --draw {seed} repeats the same runs", file=sys.stderr, flush=True)
    return check_runs(published or entries, number, seed, shared)


def _text(
    benchmark: Benchmark,
    entries: Sequence[Entry],
    own: Sequence[str],
    checked: Checked | None,
) -> str:
    """Return the tables of all settings and their held-out variants, and the result of a check."""
    parts = [] if checked is None else [_checked_text(checked)]
    for setting in benchmark.settings:
        inside = [entry for entry in entries if entry.setting == setting]
        parts += [f"{entry.method}, {setting}: {entry.reason}" for entry in inside if entry.reason]
        for held_out in (False, True):
            runs = [run for e in inside for run in (e.held_out if held_out else e.runs)]
            title = f"{setting}, held out" if held_out else setting
            for metric in benchmark.metrics[:2]:
                for against in own or (benchmark.baseline,):
                    parts.append(_compared(runs, f"## {title}: {metric}", metric, against))
    return "\n\n".join(parts)


def _compared(runs: Sequence[Run], title: str, metric: str, against: str) -> str:
    """Return the comparison of all methods with one of them."""
    methods = {run.meta["algo"] for run in runs}
    if against not in methods or len(methods) < 2:
        return f"{title}\n\nno runs to compare with {against}"
    return f"{title}\n\n{compared_text(compare(runs, 'algo', metric, against))}"


def _checked_text(checked: Checked) -> str:
    """Return the result of a check, with a line for each run that is not identical."""
    outcomes = Counter(run.outcome for run in checked.runs)
    lines = [
        f"{len(checked.runs)} of {plural(checked.population, 'run')} repeated (--draw "
        f"{checked.draw}): {outcomes['identical']} identical, {outcomes['within']} within the "
        f"tolerance of {checked.tolerance:g} for another kind of machine, {outcomes['differs']} "
        "different"
    ]
    for run in checked.runs:
        if run.outcome != "identical":
            variant = ", held out" if run.held_out else ""
            place = f"{run.setting}{variant}: {run.method} seed {run.seed}"
            lines.append(f"{place} {run.outcome}: {run.reason} (by {run.difference:.3g})")
    return "\n".join(lines)
