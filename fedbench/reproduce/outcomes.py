"""The data of a plan, and the outcomes of its runs."""

import json
import sys
from collections.abc import Iterable, Mapping, Sequence

from fedbench.core.errors import RequestError
from fedbench.reproduce.plan import PlannedRun
from fedbench.runs.build_data import read_examples
from fedbench.runs.executors.base import RunResult
from fedbench.runs.run import DamagedRun, is_done, read_run


def unreadable_data(runs: Iterable[PlannedRun]) -> dict[str, str]:
    """Read the data of the runs, each source once, downloading what is missing.

    Returns:
        The error message by experiment, for those whose data cannot be read.
    """
    faults: dict[str, str] = {}
    known: dict[str, str] = {}
    for experiment, config in {run.experiment: run.config for run in runs}.items():
        data = config.data
        source = json.dumps([data.source.target, data.source.options, data.clients])
        if source not in known:
            try:
                read_examples(config)
                known[source] = ""
            except (RequestError, OSError) as error:
                known[source] = str(error)
        if fault := known[source]:
            print(f"fedbench: no data for {experiment}: {fault}", file=sys.stderr)
            faults[experiment] = fault
    return faults


def outcomes(
    runs: Iterable[PlannedRun],
    faults: Mapping[str, str],
    results: Iterable[RunResult] = (),
    common: Sequence[str] = (),
) -> list[RunResult]:
    """Return the result of each planned run; that of a run without one has the status ``planned``.

    Args:
        runs: The plan, located.
        faults: Experiments without data, with the error message.
        results: The results of runs just now.
        common: Overrides for all runs, which are among those of the results.
    """
    failed = {result.overrides: result for result in results if result.error}
    every = []
    for run in runs:
        result = failed.get((*run.overrides, *common))
        every.append(result or _outcome(run, faults.get(run.experiment)))
    return every


def _outcome(run: PlannedRun, fault: str | None) -> RunResult:
    """Return the result of a run as it is on disk or published, or the fault of its data."""
    overrides = tuple(run.overrides)
    if is_done(run.path):
        try:
            return RunResult(overrides, str(read_run(run.path).meta["status"]))
        except DamagedRun as damage:
            if not run.published:
                return RunResult(overrides, "failed", error=str(damage))
    if run.published:
        return RunResult(overrides, run.published)
    if fault is not None:
        return RunResult(overrides, "refused", error=fault)
    return RunResult(overrides, "planned")
