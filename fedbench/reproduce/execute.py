"""The data of a plan, and the outcomes of its runs."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from fedbench.config.compose import compose_run
from fedbench.core.atomic_files import replace_file
from fedbench.core.errors import RequestError
from fedbench.papers.registry import LABELS, papers
from fedbench.reproduce.plan import PlannedRun, chosen
from fedbench.runs.build_data import federated, read_examples
from fedbench.runs.bundle import FOLDER
from fedbench.runs.executors.base import RunResult
from fedbench.runs.results import PUBLISHED
from fedbench.runs.run import DamagedRun, is_done, read_run


def unreadable_data(runs: Iterable[PlannedRun]) -> dict[str, str]:
    """Read the data of the runs, each source once, downloading what is missing.

    Returns:
        The error message by experiment, for those whose data cannot be read.
    """
    faults: dict[str, str] = {}
    known: dict[str, str] = {}
    for experiment, config in {run.experiment: run.config for run in runs}.items():
        assert config is not None
        source = json.dumps([config.data.source.target, config.data.source.options, config.data.clients])
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


def write_labels(names: Sequence[str], results: Path, common: Sequence[str]) -> None:
    """Write the number of examples per client and class, for the figures that show it.

    Those of published reports are taken over, so that they need no data.
    """
    for paper, part in chosen(names):
        figure = papers()[paper.id].figures.get(part)
        for setup in figure.setups if figure is not None and figure.kind == "labels" else ():
            experiment = paper.setups[setup].experiment
            path = results / LABELS / f"{experiment}.json"
            if path.exists():
                continue
            published = results / PUBLISHED / paper.id / FOLDER / path.relative_to(results)
            try:
                counts = (
                    published.read_text(encoding="utf-8") if published.exists() else _label_counts(experiment, common)
                )
            except RequestError as error:
                print(f"fedbench: no label counts for {experiment}: {error}", file=sys.stderr)
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            replace_file(path, counts)


def _label_counts(experiment: str, common: Sequence[str]) -> str:
    """Return the number of examples per client and class as JSON."""
    data = federated(compose_run([f"experiment={experiment}", *common]))
    return json.dumps(data.train.label_counts(data.y.numpy(), data.classes).tolist())


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
    return [failed.get((*run.overrides, *common)) or _outcome(run, faults.get(run.experiment)) for run in runs]


def _outcome(run: PlannedRun, fault: str | None) -> RunResult:
    """Return the result of a run as it is on disk or published, or the fault of its data."""
    assert run.path is not None
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
