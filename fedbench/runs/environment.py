"""The software and hardware of a run: facts for its record."""

from __future__ import annotations

import os
import platform
import resource
import subprocess
import sys
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

import fedbench

_RECORDED = ("torch", "numpy", "hydra-core", "omegaconf", "pandas", "safetensors")


def utc_now() -> str:
    """Return the time in UTC, ISO 8601."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def environment(device: torch.device) -> dict[str, Any]:
    """Return versions, the commit of the checkout that fedbench runs from (None if it is installed), and the device."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.processor() or platform.machine()
    return {
        "versions": _versions(),
        **_commit(),
        "device": str(device),
        "device_name": name,
        "visible_devices": os.environ.get("CUDA_VISIBLE_DEVICES"),  # what the index of a GPU counts in; None is all
        "platform": platform.platform(),
    }


@cache  # as the process has imported them
def _versions() -> dict[str, str]:
    own = {"fedbench": fedbench.__version__, "python": platform.python_version()}
    return own | {k: version(k) for k in _RECORDED}


@cache  # the commit of the code that runs, whatever happens in the checkout later
def _commit() -> dict[str, Any]:
    root = Path(fedbench.__file__).resolve().parent.parent
    if not (root / ".git").exists():  # an installed package; a repository around it would be another project's
        return {"git_commit": None, "git_dirty": None}
    try:
        git = ["git", "-C", str(root)]
        head = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
        dirty = subprocess.run([*git, "status", "--porcelain"], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return {"git_commit": None, "git_dirty": None}
    return {"git_commit": head, "git_dirty": bool(dirty.strip())}


def peak_memory_bytes(device: torch.device) -> int:
    """Return the peak memory in bytes: of the device, or on a CPU of the whole process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024  # kilobytes on Linux
