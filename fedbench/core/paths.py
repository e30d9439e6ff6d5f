"""Paths that a user types: what no file system takes is refused before anything is looked for."""

from __future__ import annotations

import os
from pathlib import Path

from fedbench.core.errors import WrongValue, shown

_LONGEST, _LONGEST_NAME = 4095, 255  # bytes of a path and of a name in it, on the usual file systems


def user_path(name: str, value: object) -> Path:
    """Return a path as it was typed, with ``~`` replaced by the home directory.

    Args:
        name: Name of the key or argument, for messages.
        value: The path.

    Raises:
        RequestError: If it contains a NUL, is too long, or names the home of a user that does not exist.
    """
    text = str(value)
    if "\0" in text:
        raise WrongValue(name, f"must be a path without NUL characters, got {shown(text)}")
    try:
        path = Path(text).expanduser()
    except RuntimeError as error:
        raise WrongValue(
            name, f"names a home directory that cannot be found: {shown(text)}; type it in full"
        ) from error
    try:
        lengths = [len(os.fsencode(part)) for part in path.parts]
    except UnicodeEncodeError as error:
        raise WrongValue(name, f"must be a path of characters that can be encoded, got {shown(text)}") from error
    if max(lengths, default=0) > _LONGEST_NAME or sum(lengths) + len(lengths) > _LONGEST:
        raise WrongValue(
            name,
            f"must be a path of at most {_LONGEST} bytes, of at most {_LONGEST_NAME} per directory, got {shown(text)}",
        )
    return path
