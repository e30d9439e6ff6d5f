"""Paths that a user types."""

from __future__ import annotations

from pathlib import Path

from fedbench.core.errors import WrongValue, shown


def user_path(name: str, value: object) -> Path:
    """A path as it was typed, with ``~`` replaced by the home directory.

    Args:
        name: Name of the key or argument, for messages.
        value: The path.

    Raises:
        RequestError: If it contains a NUL, or names the home of a user that does not exist.
    """
    text = str(value)
    if "\0" in text:
        raise WrongValue(name, f"must be a path without NUL characters, got {shown(text)}")
    try:
        return Path(text).expanduser()
    except RuntimeError as error:
        fault = f"names a home directory that cannot be found: {shown(text)}; type it in full"
        raise WrongValue(name, fault) from error
