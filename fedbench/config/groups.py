"""The config groups: where their files lie, and their choices."""

from __future__ import annotations

from pathlib import Path

GROUPS = ("algo", "data", "model", "experiment", "tracker", "debug")
LISTED = ("algo", "data", "model", "experiment")  # groups that `fedbench list` shows


def config_dir() -> Path:
    """The directory of fedbench's config tree: inside an installed package, next to the package in a checkout."""
    package = Path(__file__).resolve().parent.parent
    return package / "conf" if (package / "conf").is_dir() else package.parent / "conf"


def options(group: str, where: Path | None = None) -> list[str]:
    """The choices of a config group as typed on the command line.

    Args:
        group: The group, such as ``algo`` or ``data/partition``.
        where: A config tree to look in instead of fedbench's own.
    """
    root = (where or config_dir()) / group
    files = root.rglob("*.yaml") if group == "experiment" else root.glob("*.yaml")
    named = (f for f in files if not f.name.startswith("_"))  # files with an underscore are included by others
    return sorted(f.relative_to(root).as_posix().removesuffix(".yaml") for f in named)
