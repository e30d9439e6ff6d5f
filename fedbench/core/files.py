"""Paths that users type, and reading files."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedbench.core.errors import RequestError, WrongValue, reason_of, shown


def user_path(name: str, value: object) -> Path:
    """Return a path as a user has typed it, with ``~`` replaced by the home directory.

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


def existing_directory(name: str, value: object) -> Path:
    """Return a directory that a user has named.

    Raises:
        RequestError: If there is none.
    """
    folder = user_path(name, value)
    if not folder.is_dir():
        raise RequestError(f"{name}={folder} is not a directory")
    return folder


@contextmanager
def reading(
    place: object,
    fault: str = "cannot be read",
    remedy: str = "",
) -> Iterator[None]:
    """Raise a RequestError that names a file in place of any error in reading it inside this block.

    Args:
        place: The file, or its name in an archive. A path that is neither a file nor a directory is
            refused: reading from a pipe or a device need not end.
        fault: What is wrong with the file if it cannot be read.
        remedy: What to do about it.
    """
    try:
        if isinstance(place, Path) and _is_device(place):
            raise RequestError(f"{place} is not a regular file")
        yield
    except RequestError:
        raise
    except Exception as error:  # the decoder of a corrupt file may fail in any way
        raise RequestError(
            f"{place} {fault} ({reason_of(error)}){'; ' if remedy else ''}{remedy}"
        ) from error


def _is_device(path: Path) -> bool:
    """Return whether a path is there and is neither a file nor a directory."""
    return path.exists() and not (path.is_file() or path.is_dir())
