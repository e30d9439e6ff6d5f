"""The runs of a plan carried out: through Hydra's launchers, one failure never in the way of another run."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fedbench.config.compose import Job as Carrier
from fedbench.config.compose import compose_tree
from fedbench.config.overrides import quoted
from fedbench.config.schema import config_dir
from fedbench.core.errors import RequestError
from fedbench.papers.ledger import Entry, write_ledger
from fedbench.papers.plan import PlannedRun, chosen
from fedbench.papers.registry import papers
from fedbench.report.figures import LABELS
from fedbench.runs import sweep_notes as sweep
from fedbench.runs.build_data import federated, read_examples
from fedbench.runs.store import DamagedRun, read_run, replace_file


def missing_data(jobs: Sequence[PlannedRun]) -> dict[str, str]:
    """Read what the runs are to be trained on, fetching what is missing, and return what cannot be had.

    Args:
        jobs: located.

    Returns:
        experiment -> why.
    """
    faults: dict[str, str] = {}
    seen: dict[str, str | None] = {}
    for job in jobs:
        if job.experiment in faults:
            continue
        source = json.dumps([job.config["data"]["source"], job.config["data"]["clients"]], sort_keys=True)
        if source not in seen:
            try:
                read_examples(job.config, job.experiment)
                seen[source] = None
            except (RequestError, OSError) as error:
                seen[source] = str(error)
                print(f"fedbench: no data for {job.experiment}: {error}", file=sys.stderr)
        if (fault := seen[source]) is not None:
            faults[job.experiment] = fault
    return faults


def write_labels(names: Sequence[str], results: Path, common: Sequence[str]) -> None:
    """Write who has how many examples of each class, for the figures that show it."""
    for paper, part in chosen(names):
        figure = papers()[paper.id].figures.get(part)
        if figure is None or figure.kind != "labels":
            continue
        for setup in figure.setups:
            experiment = paper.setups[setup].experiment
            path = results / LABELS / f"{experiment}.json"
            if not path.exists():
                try:
                    data = federated(compose_tree([f"experiment={experiment}", *common]), experiment)
                except RequestError as error:
                    print(f"fedbench: no label counts for {experiment}: {error}", file=sys.stderr)
                    continue
                y = data.y.numpy()
                counts = [np.bincount(y[rows], minlength=data.classes).tolist() for rows in data.train.split()]
                path.parent.mkdir(parents=True, exist_ok=True)
                replace_file(path, json.dumps(counts))


def carry_out(
    jobs: Sequence[PlannedRun],
    faults: dict[str, str],
    common: Sequence[str],
    results: Path,
    launcher: Sequence[str],
) -> list[Entry]:
    """Carry out the runs that are not on disk, and return what became of all.

    Args:
        jobs: the plan, located.
        faults: experiments without data, and why.
        common: overrides for all runs.
        results: where the plan is kept.
        launcher: overrides that choose Hydra's launcher.
    """
    entries = [_entry(j, *_before(j, faults)) for j in jobs]
    _record(results, jobs, entries)
    todo = [i for i, e in enumerate(entries) if e.status == "planned"]
    if todo:
        try:
            notes = _launch([[*jobs[i].overrides, *common] for i in todo], results, launcher)
        finally:
            entries = [_entry(j, *_before(j, faults)) for j in jobs]
            _record(results, jobs, entries)
        for note in notes:
            entries[todo[note.job]] = _entry(jobs[todo[note.job]], note.status, note.error)
        _record(results, jobs, entries)
    return entries


def _record(results: Path, jobs: Sequence[PlannedRun], entries: Sequence[Entry]) -> None:
    """Keep what became of the runs, under every wording that asked for them."""
    write_ledger(results, [replace(e, set=w) for j, e in zip(jobs, entries, strict=True) for w in (j.wanted, *j.also)])


def _before(job: PlannedRun, faults: dict[str, str]) -> tuple[str, str | None]:
    if job.done:
        assert job.path is not None
        try:
            return str(read_run(job.path).meta["status"]), None
        except DamagedRun as error:
            return "failed", str(error)
    return ("refused", faults[job.experiment]) if job.experiment in faults else ("planned", None)


def _entry(job: PlannedRun, status: str, error: str | None) -> Entry:
    line = None if error is None else " ".join(error.split())  # those of libraries have several
    return Entry(job.experiment, job.algo, job.wanted, job.seed, status, line)


def _launch(batch: Sequence[Sequence[str]], results: Path, launcher: Sequence[str]) -> list[sweep.Note]:
    """Hand override lists to a launcher as Hydra's own sweepers do, and return what became of the jobs."""
    folder = (results / "sweeps" / f"reproduce_{os.getpid()}").resolve()  # another process may be at work here
    sweep.forget(folder)
    try:
        _through_hydra(batch, folder, launcher)
        return sweep.notes(folder)
    finally:
        sweep.forget(folder)


def _through_hydra(batch: Sequence[Sequence[str]], folder: Path, launcher: Sequence[str]) -> None:
    from hydra import initialize_config_dir
    from hydra._internal.callbacks import Callbacks
    from hydra.core.global_hydra import GlobalHydra
    from hydra.core.plugins import Plugins
    from hydra.types import HydraContext, RunMode

    with initialize_config_dir(str(config_dir()), version_base="1.3"):
        hydra = GlobalHydra.instance().hydra
        assert hydra is not None
        config = hydra.compose_config(
            config_name="config",
            overrides=["hydra.mode=MULTIRUN", *launcher, f"hydra.sweep.dir={quoted(str(folder))}"],
            run_mode=RunMode.MULTIRUN,
            with_log_configuration=False,
        )
        context = HydraContext(config_loader=hydra.config_loader, callbacks=Callbacks(config))
        task: Callable[[Any], None] = Carrier(loud=False).run
        plugin = Plugins.instance().instantiate_launcher(hydra_context=context, task_function=task, config=config)
        plugin.launch([list(b) for b in batch], initial_job_idx=0)
