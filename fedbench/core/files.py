"""Functions for paths typed by users and for reading files."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedbench.core.errors import RequestError, WrongValue, reason_of, shown


def user_path(name: str, value: object) -> Path:
    """Return a path typed by a user, with ``~`` replaced by the home directory.

    Args:
        name: Name of the key or argument, for messages.
        value: The path.

    Raises:
        RequestError: If the path contains a NUL character, or names the home directory of a
            nonexistent user.
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
    """Return a directory named by the user.

    Raises:
        RequestError: If the directory does not exist.
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
    """Raise a RequestError that names the file if reading it fails within this block.

    Args:
        place: The file, or its name in an archive. A path that is neither a file nor a directory is
            refused, because reading from a pipe or a device may never end.
        fault: Statement of the problem, for the message.
        remedy: Advice for the user, for the message.
    """
    try:
        if isinstance(place, Path) and _is_device(place):
            raise RequestError(f"{place} is not a regular file")
        yield
    except RequestError:
        raise
    except Exception as error:  # decoders can raise any exception on a corrupt file
        raise RequestError(
            f"{place} {fault} ({reason_of(error)}){'; ' if remedy else ''}{remedy}"
        ) from error


def _is_device(path: Path) -> bool:
    """Return whether a path exists and is neither a file nor a directory."""
    return path.exists() and not (path.is_file() or path.is_dir())
