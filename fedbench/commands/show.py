"""``fedbench show RUN``: one run in a terminal: configuration, numbers with their curves, and how to load it."""

from __future__ import annotations

import shlex
from argparse import Namespace
from pathlib import Path

import numpy as np

from fedbench.analysis.data_text import title_of
from fedbench.core.config_values import keys_text
from fedbench.core.errors import RequestError
from fedbench.core.files import user_path
from fedbench.core.metrics import metric_info
from fedbench.runs.run import Run, read_run, run_folders
from fedbench.runs.status import status_of

_WIDTH = 32  # of a curve, in characters
_BLOCKS = "▁▂▃▄▅▆▇█"


def execute(args: Namespace) -> int:
    """Print one run, and draw its curves if that is asked for.

    Raises:
        NotWritten: If the picture cannot be written.
        RequestError: If there is no such run, or one to be drawn is not done.
        DamagedRun: If the run's files cannot be read.
    """
    path = _located(user_path("RUN", args.run))
    run = read_run(path)
    print("\n".join([*_head(run), *_numbers(run), "", f"in Python: fedbench.load_results({str(path)!r})"]))
    if args.plot:
        from fedbench.reports import canvas, figures, plots  # which import matplotlib

        panels = figures.curve_panels(
            [run], [name for name in figures.OWN_FIELDS if run.last_round().get(name) is not None]
        )
        print("\n".join(f"written: {file}" for file in canvas.draw(path / "curves.png", plots.curves, "", panels)))
    return 0


def _located(path: Path) -> Path:
    """The directory of the one run at or below a path."""
    found = run_folders(path)
    if not found:
        raise RequestError(f"{path} has no run; type the directory that a run prints as its last line")
    if len(found) > 1:
        raise RequestError(f"{path} has {len(found)} runs; name one of them, such as {found[0]}")
    return found[0]


def _head(run: Run) -> list[str]:
    meta, at = run.meta, status_of(run.path)
    versions = meta.get("versions", {})
    lines = [
        f"{title_of([run])}, {meta['algo']}, seed {meta['seed']}",
        f"  {at.state}, round {at.done} of {at.rounds}" + (f": {at.error}" if at.error else ""),
        f"  {meta.get('started')} to {meta.get('ended') or '?'}, fedbench {versions.get('fedbench', '?')}, "
        f"torch {versions.get('torch', '?')}, {meta.get('device')}",
        f"  fedbench {shlex.join(meta.get('overrides', []))}",
    ]
    for key, (was, now) in meta.get("departures", {}).items():
        lines.append(f"  {keys_text({key: now})} (the experiment has {keys_text({key: was})})")
    return [*lines, f"  {run.path / 'config.yaml'} has every key", ""]


def _numbers(run: Run) -> list[str]:
    """A line for each metric of the last round, with its curve over the rounds."""
    if not run.begun:
        return ["No numbers: rounds.jsonl is missing or empty; force=true trains the run again"]
    table = run.rounds()
    lines = [f"Round {table['round'].iloc[-1]}, and how it came to that"]
    for name in table.columns.drop("round"):
        values = table[name].to_numpy(float)
        if np.isfinite(values[-1]):
            info = metric_info(name)
            number = f"{info.text(info.factor * values[-1])} {info.unit}"
            lines.append(f"  {info.label:<40} {number:<16} {sparkline(values[np.isfinite(values)])}")
    return lines


def sparkline(values: np.ndarray) -> str:
    """Values [T] as blocks: each is as high as the mean of an equal span, between the least and the largest."""
    means = np.array([part.mean() for part in np.array_split(values, min(_WIDTH, len(values)))])
    share = (means - values.min()) / (np.ptp(values) or 1.0)
    return "".join(_BLOCKS[round(7 * s)] for s in share)
