"""The directory in which fedbench keeps what it has built or measured on this machine."""

from __future__ import annotations

import os
from pathlib import Path


def user_cache(name: str) -> Path:
    """Return the directory ``name`` of the user's cache, which only the user may enter; created if it does not exist.

    Raises:
        OSError: If it cannot be created.
        RuntimeError: If the user has no home directory.
    """
    root = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    directory = root / "fedbench" / name
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    directory.chmod(0o700)
    return directory
