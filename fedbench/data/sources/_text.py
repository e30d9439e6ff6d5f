"""What the readers of text share: finding official files, and LEAF's JSON with strings."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedbench.core.errors import RequestError, integer
from fedbench.data.files.download import Remote, unpacked

_CHOICE = 7  # what a generator is for, beside the data seed


def found(
    data_dir: Path,
    layouts: Sequence[Sequence[str]],
    archive: Remote,
    folder: str,
    *,
    download: bool,
    what: str,
    most_bytes: int,
) -> list[Path]:
    """Return the official files of a data set, fetched and unpacked if they are nowhere.

    Args:
        data_dir: The directory of all data sets.
        layouts: Where the files may be, below ``data_dir``; the first layout of which every file is there is taken. The
            last is what unpacking gives.
        archive: That holds them.
        folder: Where it is unpacked, below ``data_dir``.
        download: Whether it may be fetched.
        what: The name of the data set, for messages.
        most_bytes: That the archive may hold.

    Raises:
        RequestError: If the files are missing and cannot be fetched, or the archive does not hold them.
    """
    for attempt in range(2):
        for layout in layouts:
            files = [data_dir / name for name in layout]
            if all(f.is_file() for f in files):
                return files
        if attempt == 0:
            (path,) = unpacked(
                [archive], data_dir, data_dir / folder, download=download, what=what, most_bytes=most_bytes
            )
    raise RequestError(f"{path} does not hold {', '.join(Path(n).name for n in layouts[-1])}; delete it and try again")


def choose(count: int, clients: int | None, seed: int, what: str) -> np.ndarray:
    """Return which of ``count`` clients are taken: all, or ``clients`` of them at random, in their order.

    Raises:
        RequestError: If there are fewer.
    """
    if clients is None:
        return np.arange(count)
    if integer("data.clients", clients, at_least=1) > count:
        raise RequestError(
            f"data.clients (and data.test_clients with it) must be at most {count}, the {what}; got {clients}"
        )
    rng = np.random.default_rng([integer("data.seed", seed), _CHOICE])
    return np.sort(rng.choice(count, clients, replace=False))


def leaf_strings(where: str, name: str) -> Iterator[tuple[str, list[str], list[str]]]:
    """Yield user, x and y of every user in LEAF JSON files whose examples are strings.

    Args:
        where: A file, or a directory whose ``*.json`` files are all read.
        name: Of the option, for messages.

    Raises:
        RequestError: Naming the file, the user and the fault.
    """
    path = Path(str(where)).expanduser()
    files = sorted(path.glob("*.json")) if path.is_dir() else [path]
    if not files or not path.exists():
        fault = "holds no .json file" if path.exists() else "does not exist"
        raise RequestError(f"{name}={where} {fault}; give a file in LEAF's JSON form or a directory of such files")
    for file in files:
        try:
            content = json.loads(file.read_text(encoding="utf-8-sig"))
        except (ValueError, RecursionError, OSError) as error:
            raise RequestError(f"{file} is not JSON: {error}") from error
        data = content.get("user_data") if isinstance(content, dict) else None
        if not isinstance(data, dict) or not isinstance(content.get("users"), list):
            raise RequestError(f"{file} is not in LEAF's form: it needs the keys users, num_samples and user_data")
        for user in content["users"]:
            yield str(user), *_strings(f"{file}: user {user!r}", data.get(user) if isinstance(user, str) else None)


def _strings(what: str, entry: Any) -> tuple[list[str], list[str]]:
    if not isinstance(entry, dict) or "x" not in entry or "y" not in entry:
        raise RequestError(f"{what} has no user_data with x and y")
    x, y = entry["x"], entry["y"]
    lists = isinstance(x, list) and isinstance(y, list) and len(x) == len(y)
    if not lists or not all(isinstance(v, str) for v in (*x, *y)):
        raise RequestError(f"{what}: x and y must be lists of strings, of one length")
    return x, y
