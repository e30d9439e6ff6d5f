"""Text files of data sets."""

from __future__ import annotations

from pathlib import Path

from fedbench.core.errors import RequestError
from fedbench.data.files.limits import refuse_too_large

_PER_BYTE = 8  # bytes of memory per byte of text, at least: a word of five letters takes 54 and a place in a list 8


def text_of(path: Path) -> str:
    """Return the content of a text file in UTF-8.

    Raises:
        RequestError: If it cannot be read, is not in UTF-8 or does not fit into memory.
    """
    try:
        refuse_too_large(f"the words of {path}", path.stat().st_size * _PER_BYTE)
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise RequestError(f"{path} is not text in UTF-8: {error}") from error
    except OSError as error:
        raise RequestError(f"{path} cannot be read: {error.strerror or error}") from error


def is_text(value: str) -> bool:
    """Return whether a string can be written to a file: half of a surrogate pair, which JSON can hold, cannot."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
