"""LEAF's JSON format: ``users``, ``num_samples`` and ``user_data: {user: {x, y}}``."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from fedbench.core.errors import RequestError, shown
from fedbench.core.paths import user_path
from fedbench.data.files.limits import refuse_too_large
from fedbench.data.files.texts import is_text

_PER_BYTE = 2  # bytes of memory per byte of JSON, at least: the text, and 32 + 8 for a number of about 20 characters
_KEYS = ("users", "num_samples", "user_data")


class User(NamedTuple):
    """The entry of one user.

    Attributes:
        place: File and user, for messages.
        name: Name of the user.
        x: The inputs as read.
        y: The labels as read.
        size: The number of examples that the file declares.
    """

    place: str
    name: str
    x: Any
    y: Any
    size: Any


def json_files(where: str, option: str) -> list[Path]:
    """Return a file, or all ``*.json`` files of a directory in alphabetical order.

    Args:
        where: The file or directory.
        option: Dotted key that names it, for messages.

    Raises:
        RequestError: If there is none.
    """
    path = user_path(option, where)
    files = sorted(path.glob("*.json")) if path.is_dir() else [path]
    if not files or not path.exists():
        fault = "contains no .json file" if path.exists() else "does not exist"
        raise RequestError(
            f"{option}={where} {fault}; it must be a file in LEAF's JSON format or a directory of such files"
        )
    return files


def content_of(file: Path) -> dict[str, Any]:
    """Return the content of a file.

    Raises:
        RequestError: If it is not in LEAF's JSON format; users are not checked.
    """
    try:
        refuse_too_large(f"the numbers of {file}", file.stat().st_size * _PER_BYTE, "split it into several files")
        content = json.loads(file.read_text(encoding="utf-8-sig"))
    except RequestError:
        raise
    except (ValueError, RecursionError, OSError) as error:
        raise RequestError(f"{file} is not JSON: {error}") from error
    if not isinstance(content, dict) or any(k not in content for k in _KEYS):
        got = shown(list(content)) if isinstance(content, dict) else type(content).__name__
        raise RequestError(f"{file} is not in LEAF's JSON format: expected the keys {', '.join(_KEYS)}, got {got}")
    users, sizes, data = (content[k] for k in _KEYS)
    lists = isinstance(users, list) and isinstance(sizes, list) and len(users) == len(sizes)
    if not (lists and isinstance(data, dict)):
        raise RequestError(
            f"{file} is not in LEAF's JSON format: users and num_samples must be lists of the same length, and "
            "user_data an object"
        )
    return content


def users_of(files: Iterable[Path]) -> Iterator[User]:
    """Yield the users of several files, one file in memory at a time.

    Raises:
        RequestError: If a file is not in LEAF's JSON format, or a user occurs twice.
    """
    seen: set[str] = set()
    for file in files:
        content = content_of(file)
        for user, size in zip(content["users"], content["num_samples"], strict=True):
            place = f"{file}: user {shown(user)}"
            if not isinstance(user, str) or not user or not is_text(user):
                raise RequestError(f"{place} must be a name in quotes")
            if user in seen:
                raise RequestError(f"{place} occurs twice; a user must be in one file only")
            seen.add(user)
            # freed at once: as Python numbers an entry takes 16 times as much memory as its arrays
            entry = content["user_data"].pop(user, None)
            if not isinstance(entry, dict) or "x" not in entry or "y" not in entry:
                raise RequestError(f"{place} has no user_data with x and y")
            yield User(place, user, entry["x"], entry["y"], size)
