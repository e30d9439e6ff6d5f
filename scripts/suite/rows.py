"""Part e: rows of papers at their full setting, through ``fedbench reproduce``, which resumes what is not finished."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from suite.parts import Outcome, Part, Piece, Setting
from suite.record import ROOT

from fedbench.papers.ledger import read_ledger
from fedbench.papers.plan import PlannedRun, locate, plan
from fedbench.runs.records import DamagedRun
from fedbench.runs.store import read_run

_CLOSING = 30.0  # seconds that a run takes to leave its checkpoint, and the report to be written


@dataclass(frozen=True)
class Rows:
    """Rows of a table.

    Attributes:
        table: Name of the table, as ``fedbench reproduce`` takes it.
        experiment: The experiment whose rows are meant; None for all of the table.
    """

    table: str
    experiment: str | None = None

    @property
    def name(self) -> str:
        """Name of the piece."""
        return self.experiment or self.table


FULL = (
    Rows("adafedadam/table5", "adafedadam/table5_cifar10_dir005"),
    Rows("adafedadam/table2"),
    Rows("adafedadam/table3"),
    Rows("fedcada/table2"),
    Rows("adafed/table1", "adafed/table1_cifar10_s2"),
)
SMALL = (Rows("adafedadam/table7", "adafedadam/table5_synthetic"),)


def run_within(command: Sequence[str], seconds: float, grace: float = 60.0) -> int | None:
    """Run a command and return its exit status; None if it was interrupted because the time was used up.

    Args:
        command: The command.
        seconds: Seconds until it is interrupted, as by Ctrl-C.
        grace: Seconds that it may take to stop before it is killed.
    """
    process = subprocess.Popen(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)})
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
        return None
    finally:  # also if this process is interrupted, as the other one then is by the same Ctrl-C
        try:
            process.wait(grace)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def reproduce(rows: Rows, setting: Setting) -> Outcome:
    """Carry out what is left of rows for as long as there is time, and return what is done."""
    profile = "smoke" if setting.small else "full"
    common = [f"results_dir={setting.out / 'results'}", f"device={setting.device}", "data.download=false"]
    common += [f"data_dir={setting.data}"] if setting.data else []
    common += setting.overrides
    only = ["--experiment", rows.experiment] if rows.experiment else []
    jobs = ["--jobs", "1"] if setting.small else []
    command = [sys.executable, "-m", "fedbench", "reproduce", rows.table, "--profile", profile, *only, *jobs, *common]
    status = run_within(command, max(1.0, setting.seconds_left() - _CLOSING))
    wanted = [r for r in plan([rows.table], profile) if rows.experiment in (None, r.experiment)]
    planned = locate(wanted, common)
    found = _of_rows(planned)
    entries = read_ledger(setting.out / "results").entries
    mine = [e for e in entries if any((e.experiment, e.algo) == (r.experiment, r.algo) for r in planned)]
    failed = sorted({f"{e.experiment}, {e.algo}, seed {e.seed}: {e.error}" for e in mine if e.status == "failed"})
    missing = sorted({f"{e.experiment}: {e.error}" for e in mine if e.status == "refused"})
    wrong = failed if status is not None else []  # what the end of the time has interrupted is noted as failed too
    if status not in (None, 0) and not (wrong or missing):
        wrong = [f"fedbench reproduce ended with exit status {status}"]
    return {
        "profile": profile,
        "rows": found,
        "missing_data": missing,
        "unfinished": not all(r.done for r in planned),
        "wrong": wrong,
    }


def _of_rows(planned: Sequence[PlannedRun]) -> list[dict[str, object]]:
    """Return runs planned, runs done and hours of the rows, one for each setting."""
    rows: dict[tuple[str, ...], list[PlannedRun]] = {}
    for run in planned:
        rows.setdefault(run.setting, []).append(run)
    return [
        {
            "experiment": runs[0].experiment,
            "algo": runs[0].algo,
            "runs": len(runs),
            "done": sum(r.done for r in runs),
            "hours": sum(_hours(r) for r in runs),
        }
        for runs in rows.values()
    ]


def _hours(run: PlannedRun) -> float:
    """Return the hours of training and evaluation of a run that is done; 0 of another."""
    if not run.done or run.path is None:
        return 0.0
    try:
        last = read_run(run.path).last_round()
    except DamagedRun:
        return 0.0
    return float(last["seconds_train"] + last["seconds_eval"]) / 3600


def pieces(setting: Setting) -> list[Piece]:
    """Return a piece for each group of rows; any time over some minutes brings a group further."""
    return [Piece(rows.name, 3.0, partial(reproduce, rows)) for rows in (SMALL if setting.small else FULL)]


def table(found: Mapping[str, Outcome]) -> list[str]:
    """Return the rows with their hours as a table, and the data that are missing."""
    lines = ["| experiment | method | profile | runs done | hours |", "| --- | --- | --- | ---: | ---: |"]
    for f in found.values():
        for r in f.get("rows", []):
            done = f"{r['done']} of {r['runs']}"
            lines.append(f"| {r['experiment']} | {r['algo']} | {f['profile']} | {done} | {r['hours']:.3f} |")
    missing = [line for f in found.values() for line in f.get("missing_data", [])]
    return [*lines, "", *(f"- No data: {line}" for line in missing)] if missing else lines


PART = Part("e", "Rows of papers", pieces, table)
