"""The software and hardware of a run, for its ``meta.json``."""

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
from fedbench.config.user_sources import user_folder

_RECORDED = ("torch", "numpy", "hydra-core", "omegaconf", "pandas", "safetensors")  # versions


def utc_now() -> str:
    """Return the time in UTC, ISO 8601."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def environment(device: torch.device) -> dict[str, Any]:
    """Return versions, the device, and the commit of the checkout that fedbench runs from; None if it is installed.

    With a user's own config directory in a repository, also the commit of that.
    """
    name = (
        torch.cuda.get_device_name(device)
        if device.type == "cuda"
        else platform.processor() or platform.machine()
    )
    versions = {"fedbench": fedbench.__version__, "python": platform.python_version()}
    versions |= {package: version(package) for package in _RECORDED}

    root = Path(fedbench.__file__).resolve().parent.parent
    # without .git it is installed; a repository around it would be another project's
    head, dirty = commit(root, "no") if (root / ".git").exists() else (None, None)
    facts = {
        "versions": versions,
        "git_commit": head,
        "git_dirty": dirty,
        "device": str(device),
        "device_name": name,
        "platform": platform.platform(),
    }
    own = user_folder.get()
    own_head, changed = commit(own, "all") if own else (None, None)
    if own_head:
        facts["own_commit"] = f"{own_head}{' with changes' if changed else ''}"
    return facts


@cache  # that of this process, whatever happens in the checkout later
def commit(folder: Path, untracked: str) -> tuple[str | None, bool | None]:
    """Return the commit of a directory and whether its files have changed, with untracked ones ``all`` or ``no``."""
    git = ["git", "-C", str(folder)]
    try:
        head = subprocess.check_output(
            [*git, "rev-parse", "HEAD"], text=True, stderr=subprocess.DEVNULL
        ).strip()
        changes = subprocess.check_output(
            [*git, "status", "--porcelain", f"--untracked-files={untracked}", "--", "."]
        )
    except (OSError, subprocess.CalledProcessError):
        return None, None
    return head, bool(changes)


def peak_memory_bytes(device: torch.device) -> int:
    """Return the peak memory in bytes: of the device, or on a CPU of the whole process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024  # kilobytes on Linux
