"""``fedbench show RUN``: print the facts, metrics and curves of one run in the terminal."""

import shlex
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from fedbench.analysis.data_text import title_of
from fedbench.commands.result import CommandResult
from fedbench.core.config_values import keys_text
from fedbench.core.errors import RequestError
from fedbench.core.files import user_path
from fedbench.core.metrics import metric_info
from fedbench.runs.run import Run, read_run, run_folders
from fedbench.runs.status import status_of

_WIDTH = 32  # width of a curve in characters
_BLOCKS = "▁▂▃▄▅▆▇█"


def execute(run: str | Path) -> CommandResult:
    """Print the facts and metrics of one run.

    Args:
        run: Directory of the run, or a parent directory that contains no other run.

    Raises:
        RequestError: If there is no such run.
        DamagedRun: If the run's files cannot be read.
    """
    path = _only_run(user_path("RUN", run))
    loaded = read_run(path)
    lines = [
        *_facts(loaded),
        "",
        *_numbers(loaded),
        "",
        f"in Python: fedbench.load_run({str(path)!r})",
    ]
    print("\n".join(lines))
    return CommandResult()


def _only_run(path: Path) -> Path:
    """Return the directory of the only run at or below a path."""
    runs = run_folders(path)
    if not runs:
        raise RequestError(
            f"{path} has no run; type the directory that a run prints as its last line"
        )
    if len(runs) > 1:
        raise RequestError(f"{path} has {len(runs)} runs; name one of them, such as {runs[0]}")
    return runs[0]


def _facts(run: Run) -> Iterator[str]:
    """Yield lines with facts about a run: title, state, versions, command and departures."""
    meta = run.meta
    status = status_of(run.path)
    versions = meta.get("versions", {})
    yield f"{title_of([run])}, {meta['algo']}, seed {meta['seed']}"
    yield f"  {status.state}, round {status.round} of {status.rounds}" + (
        f": {status.error}" if status.error else ""
    )
    yield (
        f"  {meta.get('started')} to {meta.get('ended') or '?'}, "
        f"fedbench {versions.get('fedbench', '?')}, "
        f"torch {versions.get('torch', '?')}, {meta.get('device')}"
    )
    own = "--config-dir DIR " if meta.get("code") else ""
    yield f"  fedbench {own}{shlex.join(meta.get('overrides', []))}"
    for key, (experiment, value) in meta.get("departures", {}).items():
        yield f"  {keys_text({key: value})} (the experiment has {keys_text({key: experiment})})"
    yield f"  {run.path / 'config.yaml'} has every key"


def _numbers(run: Run) -> Iterator[str]:
    """Yield one line per metric of the last round, with its curve over the rounds."""
    if not run.begun:
        yield "No numbers: rounds.jsonl is missing or empty; force=true trains the run again"
        return
    table = run.rounds()
    yield f"Round {table['round'].iloc[-1]}, and the rounds before it; bytes and seconds are sums"
    for name in table.columns.drop("round"):
        values = table[name].to_numpy(float)
        if np.isfinite(values[-1]):
            info = metric_info(name)
            number = f"{info.text(info.factor * values[-1])} {info.unit}"
            yield f"  {info.label:<40} {number:<16} {sparkline(values[np.isfinite(values)])}"


def sparkline(values: np.ndarray) -> str:
    """Return a text curve of values [T]: block heights are means over spans of equal length."""
    parts = np.array_split(values, min(_WIDTH, len(values)))
    means = np.array([part.mean() for part in parts])
    heights = (means - values.min()) / (np.ptp(values) or 1.0)
    return "".join(_BLOCKS[round(7 * height)] for height in heights)
