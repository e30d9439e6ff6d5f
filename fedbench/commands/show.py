"""``fedbench show RUN``: one run in a terminal: configuration, curves, numbers, files, and how to load it."""

from __future__ import annotations

import math
import shlex
from argparse import Namespace
from pathlib import Path

import numpy as np

from fedbench.core.errors import RequestError
from fedbench.core.files import config_value, user_path
from fedbench.core.metrics import metric_info
from fedbench.runs.run import Run, read_run
from fedbench.runs.status import status_of

_NUMBERS = (
    "accuracy_mean", "accuracy_mean_weighted", "accuracy_worst30", "accuracy_worst10", "accuracy_min", "accuracy_std",
    "angle_degrees", "test_loss", "train_loss", "bytes_up", "bytes_down", "seconds_train", "seconds_eval",
)  # fmt: skip
_CURVES = ("accuracy_mean", "accuracy_worst30", "train_loss")
_WIDTH = 64  # of a curve, in characters
_BLOCKS = "▁▂▃▄▅▆▇█"
_NOT_CHANGES = ("results_dir", "data_dir", "force")


def carry_out(asked: Namespace) -> int:
    """Print one run.

    Raises:
        RequestError: If there is no such run.
        DamagedRun: If the run's files cannot be read.
    """
    path = _located(user_path("RUN", asked.run))
    run = read_run(path)
    parts = [_head(run), _settings(run)]
    if run.begun:
        parts += [_numbers(run), _curves(run)]
    elif run.outcome == "done":
        parts.append("No numbers: rounds.jsonl is missing or empty; force=true trains the run again")
    print("\n\n".join(filter(None, [*parts, _files(path), _python(path)])))
    return 0


def _located(path: Path) -> Path:
    """Return the directory of the one run at or below a path."""
    if (path / "meta.json").exists() and (path / "config.yaml").exists():
        return path
    found = [p.parent for p in sorted(path.rglob("meta.json"))] if path.is_dir() else []
    if len(found) == 1:
        return found[0]
    if not found:
        raise RequestError(f"{path} has no run; type the directory that a run prints as its last line")
    raise RequestError(f"{path} has {len(found)} runs; name one of them, such as {found[0]}")


def _head(run: Run) -> str:
    meta, at = run.meta, status_of(run.path)
    title = f"{meta.get('experiment') or meta['data']} {meta['algo']} seed {meta['seed']}"
    lines = [title, f"  {at.state}, round {at.done} of {at.rounds}" + (f": {at.error}" if at.error else "")]
    versions = meta.get("versions", {})
    made = [f"fedbench {versions.get('fedbench', '?')}", f"torch {versions.get('torch', '?')}", f"{meta.get('device')}"]
    return "\n".join([*lines, f"  {meta.get('started')} to {meta.get('ended') or '?'}, {', '.join(made)}"])


def _settings(run: Run) -> str:
    meta, flat = run.meta, run.flat
    lines = ["Configuration"]
    typed = [o for o in meta.get("overrides", []) if o.partition("=")[0] not in _NOT_CHANGES]
    lines.append(f"  fedbench {shlex.join(typed)}".rstrip())
    for key, (was, now) in meta.get("departures", {}).items():
        lines.append(f"  {key}: {config_value(now)} (the experiment has {config_value(was)})")
    main = ("model._target_", "data.clients", "participation", "local.lr", "local.epochs", "local.batch_size")
    kept = [k for k in flat if k in main or (k.startswith("algo.") and not k.endswith("_target_"))]
    lines.append("  " + "  ".join(f"{k}={config_value(flat[k])}" for k in kept))
    return "\n".join(lines)


def _numbers(run: Run) -> str:
    table = run.rounds()
    last = table.iloc[-1]
    lines = [f"Round {int(last['round'])}"]
    for name in _NUMBERS:
        if name not in table or last[name] is None or math.isnan(last[name]):
            continue
        info = metric_info(name)
        value = info.text(info.factor * float(last[name]))
        lines.append(f"  {info.label:<40} {value} {info.unit}".rstrip())
    return "\n".join(lines)


def _curves(run: Run) -> str:
    """Return a line of blocks for each curve that has at least two numbers."""
    table, lines = run.rounds(), []
    for name in (n for n in _CURVES if n in table):
        info, values = metric_info(name), table[name].to_numpy(float)
        measured = np.isfinite(values)
        if measured.sum() > 1:
            shown, rounds = info.factor * values[measured], table["round"][measured]
            lines.append(f"{info.axis}, rounds {rounds.iloc[0]} to {rounds.iloc[-1]}")
            lines.append(f"  {sparkline(shown)}  {shown.min():.4g} to {shown.max():.4g}")
    return "\n".join(lines)


def sparkline(values: np.ndarray) -> str:
    """Return values [T] as blocks: each is as high as the mean of an equal span, between the least and the largest."""
    means = np.array([part.mean() for part in np.array_split(values, min(_WIDTH, len(values)))])
    share = (means - values.min()) / (np.ptp(values) or 1.0)
    return "".join(_BLOCKS[round(7 * s)] for s in share)


def _files(path: Path) -> str:
    lines = [f"Files in {path}"]
    for file in sorted(p for p in path.iterdir() if p.is_file() and p.name not in (".lock", "DONE")):
        lines.append(f"  {file.stat().st_size:>12,} bytes  {file.name}")
    return "\n".join(lines)


def _python(path: Path) -> str:
    return "\n".join(
        [
            "In Python",
            "  import fedbench",
            f"  results = fedbench.load_results({str(path)!r})",
            "  results.rounds, results.clients  # pandas frames",
        ]
    )
