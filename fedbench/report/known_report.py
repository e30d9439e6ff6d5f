"""The report on the known numbers of a directory of runs, or of a report that was published with its bundle."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd

from fedbench.analysis.kept_rounds import kept_of
from fedbench.analysis.known import KnownResult, results_on_record, used_runs
from fedbench.analysis.known_runs import runs_among
from fedbench.analysis.run_rows import run_rows
from fedbench.core.errors import RequestError
from fedbench.core.writing import NotWritten, replaced_folder, replacing
from fedbench.papers.known.registry import chosen_references
from fedbench.report.known import write_known
from fedbench.report.write import experiment_of, name_left_out
from fedbench.runs.bundle import FOLDER, as_published, write_bundle
from fedbench.runs.results import PUBLISHED, Results
from fedbench.runs.run import Run

NAME = "known"  # of the reports, in place of the id of a paper
_MARK = "known.json"  # file of a bundle of known numbers


def is_known_bundle(folder: Path) -> bool:
    """Return whether a directory is a published report on known numbers."""
    return (folder / FOLDER / _MARK).exists()


def known_results(runs: Sequence[Run]) -> tuple[list[KnownResult], list[Run]]:
    """Return the known numbers as runs have measured them, and the runs that they rest on."""
    among = runs_among(runs)
    results = results_on_record(chosen_references([NAME]), among)
    return results, used_runs(results, among)


def results_of_bundle(bundle: Results) -> tuple[list[KnownResult], list[Run]]:
    """Return the known numbers of a published report, and its runs.

    Raises:
        RequestError: If a run fits no known number on record any more.
    """
    runs = list(bundle)
    results, used = known_results(runs)
    _refuse_unused(runs, used, bundle.root)
    return results, used


def _refuse_unused(runs: Sequence[Run], used: Sequence[Run], root: Path) -> None:
    """Refuse runs of a bundle that no number rests on: without them a page would say that they have not been run."""
    lost = {run.path for run in runs} - {run.path for run in used}
    if lost:
        raise RequestError(
            f"{root}: {len(lost)} of {len(runs)} runs fit no known number on record, such as "
            f"{min(lost).relative_to(root)}; write the report again from its runs: "
            f"fedbench report RUNS --paper {NAME} --into {root}"
        )


def report_known(folder: Path, into: Path | None) -> str:
    """Write the report on known numbers and return its table and location as text.

    Args:
        folder: Directory that contains the runs, or a published report on known numbers.
        into: Directory of the report, which then has a bundle; None for one below ``folder``.

    Raises:
        RequestError: If there are no runs of known numbers, the bundle is damaged, or a file cannot be written.
    """
    store = Results(folder, [NAME])
    bundled = store.bundle is not None
    target = into or folder / "report" / ("" if bundled else NAME)
    experiments = {number.experiment for r in chosen_references([NAME]) for number in r.numbers}
    runs = [run for run in store if run.meta["experiment"] in experiments]
    own = f"{PUBLISHED}/{NAME}/"
    damaged = [why for why in store.damaged if experiment_of(why) in experiments or why.startswith(own)]

    def work(runs: list[Run], damaged: list[str]) -> str:
        if not runs:
            left = [f"left out: {why}" for why in damaged]
            raise RequestError(
                "\n".join([f"{folder} has no runs of known numbers; fedbench reproduce known makes them", *left])
            )
        results, used = known_results([as_published(run) for run in runs] if into is not None else runs)
        if bundled:
            _refuse_unused(runs, used, store.root)
        with replaced_folder(target) as new:
            text = write_known(results, new, damaged)
            with replacing(new / "runs.parquet") as part:
                pd.DataFrame(run_rows(used, store.root)).to_parquet(part, index=False)
            if into is not None:
                fields = {r.wanted.number.measure.field for r in results}
                write_bundle(
                    new,
                    {run.path.relative_to(store.root).as_posix(): run for run in used},
                    lambda run: replace(kept_of(run), curves=fields if run.counts else ()),
                    damaged,
                    {_MARK: (json.dumps({"page": NAME}) + "\n").encode()},
                )
        return text

    try:
        text = work(runs, damaged)
    except NotWritten as error:
        raise RequestError(str(error)) from error
    name_left_out(damaged)
    return f"{text}written: {target}"
