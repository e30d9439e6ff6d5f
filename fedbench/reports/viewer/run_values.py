"""Values of a run that the viewer shows; a run with a fault in them is damaged for all pages."""

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedbench.analysis.data_text import title_of
from fedbench.core.config_values import config_value, keys_text
from fedbench.core.errors import reason_of, typed
from fedbench.core.metrics import metric_texts
from fedbench.runs.progress import duration
from fedbench.runs.run import Run
from fedbench.runs.status import STATES, RunStatus, status_of

# types of facts on which tables and charts depend
_KINDS: dict[str, type] = {
    "algo": str,
    "data": str,
    "hash": str,
    "seed": int,
    "overrides": list,
    "remarks": list,
    "departures": dict,
    "engine": dict,
    "versions": dict,
}


def viewed(path: Path) -> tuple[RunStatus, dict[str, Any]]:
    """Return the status of a run and the values for the template of its page.

    A run with any fault in its files is damaged and has no values.
    """
    try:
        status = status_of(path)
        if status.state not in STATES:
            raise ValueError(f"meta.json: there is no status {typed(status.state)}")
        values = {} if status.run is None else _run_values(status.run, status.last)
    except Exception as fault:  # whatever a file contains, the other runs are shown
        return RunStatus(path, "damaged", error=reason_of(fault)), {}
    return status, values


def setting_of(run: Run) -> str:
    """Return the experiment of a run, or its data if it belongs to none."""
    return str(run.meta["experiment"] or run.meta["data"])


def _run_values(run: Run, last: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a readable run for the template of its page.

    Args:
        run: The run.
        last: The last evaluated round; empty before the first.

    Raises:
        ValueError: If a fact of the run has another type.
    """
    meta = run.meta
    for key, kind in _KINDS.items():
        if not isinstance(meta.get(key, kind()), kind):
            given = typed(meta[key])
            raise ValueError(f"meta.json: {key} must be of type {kind.__name__}, got {given}")
    departures = {}
    for key, (experiment, value) in meta.get("departures", {}).items():
        before = config_value(experiment)
        departures[key] = f"{config_value(value)} (the experiment has {before})"
    config = {key: config_value(value) for key, value in sorted(run.flat.items())}
    facts = {name: value for name, value in _facts(run, last).items() if value}
    command = ["fedbench", *map(str, meta.get("overrides", []))]
    if meta.get("code"):
        command[1:1] = ["--config-dir", "DIR"]  # of the user's code, whose place is unknown
    return {
        "setting": setting_of(run),
        "title": f"{meta['algo']}, seed {meta['seed']}",
        "remarks": meta.get("remarks", []),
        "command": shlex.join(command),
        "facts": facts,
        "numbers": metric_texts(last),
        "departures": departures,
        "config": config,
    }


def _facts(run: Run, last: Mapping[str, Any]) -> dict[str, str]:
    """Return facts about a run by name; unknown ones are empty."""
    meta = run.meta
    versions = meta.get("versions", {})
    commit = str(meta.get("git_commit") or "")
    if commit and meta.get("git_dirty"):
        commit += " with changes"
    device = [str(meta[key]) for key in ("device", "device_name") if meta.get(key)]
    memory = meta.get("peak_memory_bytes")
    training = last.get("seconds_train")
    evaluation = last.get("seconds_eval")
    return {
        "data": title_of([run]),
        "model": str(meta["model"]),
        "hash": str(meta["hash"]),
        "started": str(meta.get("started") or ""),
        "ended": str(meta.get("ended") or ""),
        "training": duration(training) if training else "",
        "evaluation": duration(evaluation) if evaluation else "",
        "device": ", ".join(device),
        "engine": keys_text(meta.get("engine", {})),
        "peak memory": f"{memory / 1e6:.0f} MB" if memory else "",
        "commit": commit,
        "versions": ", ".join(f"{name} {number}" for name, number in versions.items()),
    }
