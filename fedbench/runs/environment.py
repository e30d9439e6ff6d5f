"""Software and hardware of a run, for its ``meta.json``."""

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

# packages whose versions are recorded
_RECORDED = ("torch", "numpy", "hydra-core", "omegaconf", "pandas", "safetensors")


def utc_now() -> str:
    """Return the current time in UTC, in ISO 8601 format."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def environment(device: torch.device) -> dict[str, Any]:
    """Return versions, the device, and the commit of the checkout from which fedbench runs.

    The commit is None if fedbench is installed as a package. If the user's config directory is in a
    Git repository, the commit of that repository is added.
    """
    name = platform.processor() or platform.machine()
    if device.type == "cuda":
        name = torch.cuda.get_device_name(device)
    versions = {"fedbench": fedbench.__version__, "python": platform.python_version()}
    versions |= {package: version(package) for package in _RECORDED}

    root = Path(fedbench.__file__).resolve().parent.parent
    # without .git, fedbench is installed; a repository around it would be another project's
    head, dirty = None, None
    if (root / ".git").exists():
        head, dirty = commit(root, "no")
    facts = {
        "versions": versions,
        "git_commit": head,
        "git_dirty": dirty,
        "device": str(device),
        "device_name": name,
        "platform": platform.platform(),
    }
    if own := user_folder.get():
        own_head, changed = commit(own, "all")
        if own_head:
            facts["own_commit"] = f"{own_head} with changes" if changed else own_head
    return facts


@cache  # the commit at the first call, even if the checkout changes later
def commit(folder: Path, untracked: str) -> tuple[str | None, bool | None]:
    """Return the commit of a directory, and whether its files have uncommitted changes.

    Args:
        folder: The directory.
        untracked: Whether untracked files count as changes: ``all`` or ``no``.
    """
    head = ["rev-parse", "HEAD"]
    status = ["status", "--porcelain", f"--untracked-files={untracked}", "--", "."]
    outputs = []
    for command in (head, status):
        git = ["git", "-C", str(folder), *command]
        try:
            output = subprocess.check_output(git, text=True, stderr=subprocess.DEVNULL)
        except (OSError, subprocess.CalledProcessError):
            return None, None
        outputs.append(output.strip())
    return outputs[0], bool(outputs[1])


def peak_memory_bytes(device: torch.device) -> int:
    """Return the peak memory in bytes of the device or, on a CPU, of the whole process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024  # kilobytes on Linux
