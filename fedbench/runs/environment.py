"""The software and hardware of a run: facts for its record, and a trace of where its time goes."""

from __future__ import annotations

import platform
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, schedule

import fedbench

_RECORDED = ("torch", "numpy", "hydra-core", "omegaconf", "pandas", "safetensors")


def utc_now() -> str:
    """Return the time in UTC, ISO 8601."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def environment(device: torch.device) -> dict[str, Any]:
    """Return versions, the commit of the checkout that fedbench runs from (None if it is installed), and the device."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.processor() or platform.machine()
    return {
        **_software(),
        "device": str(device),
        "device_name": name,
        "platform": platform.platform(),
    }


@cache  # that of this process, whatever is installed or happens in the checkout later
def _software() -> dict[str, Any]:
    versions = {"fedbench": fedbench.__version__, "python": platform.python_version()}
    versions |= {name: version(name) for name in _RECORDED}
    root = Path(fedbench.__file__).resolve().parent.parent
    head = dirty = None
    try:
        if (root / ".git").exists():  # otherwise it is installed; a repository around it would be another project's
            git = ["git", "-C", str(root)]
            head = subprocess.check_output([*git, "rev-parse", "HEAD"], text=True).strip()
            dirty = bool(subprocess.check_output([*git, "status", "--porcelain"]))
    except (OSError, subprocess.CalledProcessError):
        head = dirty = None
    return {"versions": versions, "git_commit": head, "git_dirty": dirty}


def peak_memory_bytes(device: torch.device) -> int:
    """Return the peak memory in bytes: of the device, or on a CPU of the whole process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024  # kilobytes on Linux


@contextmanager
def traced(path: Path, device: torch.device) -> Iterator[Callable[[], None]]:
    """Trace the third and the fourth of the steps in this block, and print the ten most expensive operations.

    Args:
        path: File of the trace, in the format of chrome://tracing and Perfetto.
        device: The device whose operations are traced in addition to the host's.

    Yields:
        A function to be called after every step.
    """

    def write(p: profile) -> None:
        p.export_chrome_trace(str(path))
        table = p.key_averages().table(sort_by="self_cpu_time_total", row_limit=10, max_name_column_width=40)
        print(f"{table}\ntrace: {path}", file=sys.stderr)

    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if device.type == "cuda" else [])]
    plan = schedule(wait=1, warmup=1, active=2, repeat=1)  # the first step is the initial model
    with profile(activities=activities, schedule=plan, on_trace_ready=write) as p:
        yield p.step
