"""The data needed by a plan, and the outcomes of its runs."""

import json
import sys
from collections.abc import Iterable, Mapping, Sequence

from fedbench.core.errors import RequestError
from fedbench.reproduce.plan import PlannedRun
from fedbench.runs.build_data import read_examples
from fedbench.runs.executors.base import RunResult
from fedbench.runs.run import DamagedRun, is_done, read_run


def unreadable_data(runs: Iterable[PlannedRun]) -> dict[str, str]:
    """Read the data of the runs, each source once, and download missing files.

    Returns:
        Error messages by experiment, for the experiments whose data cannot be read.
    """
    faults: dict[str, str] = {}
    known: dict[str, str] = {}
    configs = {run.experiment: run.config for run in runs}
    for experiment, config in configs.items():
        source = config.data.source
        key = json.dumps([source.target, source.options])
        if key not in known:
            try:
                read_examples(config)
                known[key] = ""
            except (RequestError, OSError) as error:
                known[key] = str(error)
        if fault := known[key]:
            print(f"fedbench: no data for {experiment}: {fault}", file=sys.stderr)
            faults[experiment] = fault
    return faults


def outcomes(
    runs: Iterable[PlannedRun],
    faults: Mapping[str, str],
    results: Iterable[RunResult] = (),
    common: Sequence[str] = (),
) -> list[RunResult]:
    """Return a result for each planned run, with status ``planned`` if there is none yet.

    Args:
        runs: The located plan.
        faults: Error messages by experiment, for the experiments without data.
        results: Results of the runs that were just executed.
        common: Overrides for all runs; the overrides of the results include them.
    """
    failed = {result.overrides: result for result in results if result.error}
    every = []
    for run in runs:
        fault = faults.get(run.experiment)
        result = failed.get((*run.overrides, *common))
        every.append(result or _outcome(run, fault))
    return every


def _outcome(run: PlannedRun, fault: str | None) -> RunResult:
    """Return the stored or published result of a run, or a refusal if its data are faulty."""
    overrides = tuple(run.overrides)
    if is_done(run.path):
        try:
            status = read_run(run.path).meta["status"]
            return RunResult(overrides, str(status))
        except DamagedRun as damage:
            if not run.published:
                return RunResult(overrides, "failed", error=str(damage))
    if run.published:
        return RunResult(overrides, run.published)
    if fault is not None:
        return RunResult(overrides, "refused", error=fault)
    return RunResult(overrides, "planned")
