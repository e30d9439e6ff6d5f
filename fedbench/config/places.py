"""Where fedbench's own config tree lies."""

from __future__ import annotations

from pathlib import Path


def config_dir() -> Path:
    """Return the directory of the config tree: inside an installed package, next to the package in a checkout."""
    package = Path(__file__).resolve().parent.parent
    return package / "conf" if (package / "conf").is_dir() else package.parent / "conf"
