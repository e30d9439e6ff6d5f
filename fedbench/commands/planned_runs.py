"""Carries out the runs of a plan, through Hydra's launchers; a failure never stops the other runs."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np

from fedbench.commands.deadline import Deadline
from fedbench.commands.gpus import placement
from fedbench.commands.launch import Job, launch_batch, make_directory
from fedbench.commands.side_by_side import announce
from fedbench.commands.workers import work_through
from fedbench.config.compose import Composer, compose_run
from fedbench.core.errors import RequestError
from fedbench.core.writing import replace_file
from fedbench.papers.ledger import Entry, write_ledger
from fedbench.papers.plan import PlannedRun, chosen
from fedbench.papers.registry import papers
from fedbench.report.figures import LABELS
from fedbench.runs.build_data import federated, read_examples
from fedbench.runs.results import Results
from fedbench.runs.run import DamagedRun, is_done, read_run
from fedbench.runs.sweep_notes import Note, forget, notes


def missing_data(runs: Sequence[PlannedRun]) -> dict[str, str]:
    """Read the data of the runs, downloading what is missing, and return which data could not be read.

    Args:
        runs: The plan, located.

    Returns:
        Experiment -> error message.
    """
    faults: dict[str, str] = {}
    seen: dict[str, str | None] = {}
    for run in runs:
        if run.experiment in faults:
            continue
        assert run.config is not None
        data = run.config.data
        source = json.dumps([data.source.target, data.source.options, data.clients], sort_keys=True)
        if source not in seen:
            try:
                read_examples(run.config)
                seen[source] = None
            except (RequestError, OSError) as error:
                seen[source] = str(error)
                print(f"fedbench: no data for {run.experiment}: {error}", file=sys.stderr)
        if (fault := seen[source]) is not None:
            faults[run.experiment] = fault
    return faults


def write_labels(names: Sequence[str], results: Path, common: Sequence[str], published: Results) -> None:
    """Write the number of examples per client and class, for the figures that show it.

    Those of published reports are taken over, so that they need no data.
    """
    for paper, part in chosen(names):
        figure = papers()[paper.id].figures.get(part)
        if figure is None or figure.kind != "labels":
            continue
        for setup in figure.setups:
            experiment = paper.setups[setup].experiment
            path = results / LABELS / f"{experiment}.json"
            if not path.exists():
                known = published.file(paper.id, path.relative_to(results).as_posix())
                try:
                    counts = _label_counts(experiment, common) if known is None else known.decode()
                except RequestError as error:
                    print(f"fedbench: no label counts for {experiment}: {error}", file=sys.stderr)
                    continue
                path.parent.mkdir(parents=True, exist_ok=True)
                replace_file(path, counts)


def _label_counts(experiment: str, common: Sequence[str]) -> str:
    """Return the number of examples per client and class as JSON."""
    data = federated(compose_run([f"experiment={experiment}", *common]))
    y = data.y.numpy()
    return json.dumps([np.bincount(y[rows], minlength=data.classes).tolist() for rows in data.train.split()])


def carry_out(
    runs: Sequence[PlannedRun],
    faults: dict[str, str],
    common: Sequence[str],
    results: Path,
    launcher: Sequence[str],
    jobs: int,
    deadline: Deadline | None = None,
) -> list[Entry]:
    """Carry out the runs that are not on disk, and return the results of all.

    Args:
        runs: The plan, located.
        faults: Experiments without data, with the error message.
        common: Overrides for all runs.
        results: The directory of the ledger.
        launcher: Overrides that choose Hydra's launcher; none for no launcher.
        jobs: Number of runs at a time without a launcher.
        deadline: When to stop; runs that are not done then remain planned.
    """
    entries = [_entry(run, *_before(run, faults)) for run in runs]
    _record(results, runs, entries)
    todo = [i for i, e in enumerate(entries) if e.status == "planned"]
    left: dict[int, Note] = {}
    gpus = placement(config for i in todo if (config := runs[i].config) is not None) if todo else ()
    try:
        with deadline or nullcontext():
            for own in dict.fromkeys(runs[i].config_dir for i in todo):
                here = [i for i in todo if runs[i].config_dir == own]
                found: list[Note] = []
                try:
                    _launch([[*runs[i].overrides, *common] for i in here], results, launcher, jobs, own, gpus, found)
                finally:  # also of runs that had failed when the time was up
                    left |= {here[note.job]: note for note in found}
    finally:
        entries = [_entry(run, *_before(run, faults)) for run in runs]
        _record(results, runs, entries)
    for i, note in left.items():
        entries[i] = _entry(runs[i], note.status, note.error)
    _record(results, runs, entries)
    return entries


def record_done(results: Path, runs: Sequence[PlannedRun]) -> None:
    """Record the results of those runs of a plan that are done: the report is about them too."""
    done = [run for run in runs if run.done]
    _record(results, done, [_entry(run, *_before(run, {})) for run in done])


def _record(results: Path, runs: Sequence[PlannedRun], entries: Sequence[Entry]) -> None:
    """Record the results of the runs, under every setting that asked for them."""
    write_ledger(results, [replace(e, set=w) for j, e in zip(runs, entries, strict=True) for w in (j.wanted, *j.also)])


def _before(run: PlannedRun, faults: dict[str, str]) -> tuple[str, str | None]:
    assert run.path is not None
    if is_done(run.path):
        try:
            return str(read_run(run.path).meta["status"]), None
        except DamagedRun as error:
            if not run.published:
                return "failed", str(error)
    if run.published:
        return run.published, None
    return ("refused", faults[run.experiment]) if run.experiment in faults else ("planned", None)


def _entry(run: PlannedRun, status: str, error: str | None) -> Entry:
    line = None if error is None else " ".join(error.split())  # those of libraries have several
    return Entry(run.experiment, run.algo, run.wanted, run.seed, status, line)


def _launch(
    batch: Sequence[Sequence[str]],
    results: Path,
    launcher: Sequence[str],
    jobs: int,
    own: Path | None,
    gpus: Sequence[str],
    left: list[Note],
) -> None:
    """Carry out a list of runs, given as overrides, and add the notes of the jobs to ``left``, however it ends."""
    folder = (results / "sweeps" / f"reproduce_{os.getpid()}").resolve()  # another process may be at work here
    forget(folder)
    try:
        if launcher:
            launch_batch(batch, folder, launcher, own)
        else:
            make_directory(folder)
            announce(len(batch), jobs := min(jobs, len(batch)), gpus)
            work_through(Job(Composer(own), loud=False), batch, folder, jobs, gpus)
    finally:
        left += notes(folder)
        forget(folder)
