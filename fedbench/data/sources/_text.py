"""What text sources share: find official files, choose clients, and read LEAF's JSON with strings."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedbench.core.errors import RequestError, integer
from fedbench.core.randomness import DataPurpose, data_generator
from fedbench.data.files.download import Remote, unpacked


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
    """Return the official files of a data set, downloading and unpacking them if they are missing.

    Args:
        data_dir: Directory of all data sets.
        layouts: Possible places of the files, below ``data_dir``; the first complete layout is used. The last one is
            the layout of the unpacked archive.
        archive: The archive that contains the files.
        folder: Directory to unpack the archive into, below ``data_dir``.
        download: Whether downloads are allowed.
        what: Name of the data set, for messages.
        most_bytes: Largest total size of the unpacked files.

    Raises:
        RequestError: If the files are missing and cannot be downloaded, or are not in the archive.
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
    raise RequestError(
        f"{path} does not contain {', '.join(Path(n).name for n in layouts[-1])}; remove it to download it again"
    )


def choose(count: int, clients: int | None, seed: int, what: str) -> np.ndarray:
    """Return the chosen ones of ``count`` clients: all, or ``clients`` of them at random, in ascending order.

    Raises:
        RequestError: If there are fewer.
    """
    if clients is None:
        return np.arange(count)
    if integer("data.clients", clients, at_least=1) > count:
        raise RequestError(
            f"data.clients (plus data.test_clients) must be at most {count}, the number of {what}; got {clients}"
        )
    rng = data_generator(integer("data.seed", seed), DataPurpose.ROLES)
    return np.sort(rng.choice(count, clients, replace=False))


def leaf_strings(where: str, name: str) -> Iterator[tuple[str, list[str], list[str]]]:
    """Yield user, x and y of every user in LEAF JSON files whose examples are strings.

    Args:
        where: A file, or a directory all of whose ``*.json`` files are read.
        name: Name of the option, for messages.

    Raises:
        RequestError: If a file is not of that form; the message names the file, the user and the fault.
    """
    path = Path(str(where)).expanduser()
    files = sorted(path.glob("*.json")) if path.is_dir() else [path]
    if not files or not path.exists():
        fault = "contains no .json file" if path.exists() else "does not exist"
        raise RequestError(
            f"{name}={where} {fault}; it must be a file in LEAF's JSON format or a directory of such files"
        )
    for file in files:
        try:
            content = json.loads(file.read_text(encoding="utf-8-sig"))
        except (ValueError, RecursionError, OSError) as error:
            raise RequestError(f"{file} is not JSON: {error}") from error
        data = content.get("user_data") if isinstance(content, dict) else None
        if not isinstance(data, dict) or not isinstance(content.get("users"), list):
            raise RequestError(
                f"{file} is not in LEAF's JSON format: expected the keys users, num_samples and user_data"
            )
        for user in content["users"]:
            yield str(user), *_strings(f"{file}: user {user!r}", data.get(user) if isinstance(user, str) else None)


def _strings(what: str, entry: Any) -> tuple[list[str], list[str]]:
    if not isinstance(entry, dict) or "x" not in entry or "y" not in entry:
        raise RequestError(f"{what} has no user_data with x and y")
    x, y = entry["x"], entry["y"]
    lists = isinstance(x, list) and isinstance(y, list) and len(x) == len(y)
    if not lists or not all(isinstance(v, str) for v in (*x, *y)):
        raise RequestError(f"{what}: x and y must be lists of strings, of the same length")
    return x, y
