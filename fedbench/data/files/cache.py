"""Cache of prepared data: memory-mapped arrays, kept as long as the files that they were read from are unchanged.

Reading hundreds of thousands of images from text or archives takes minutes and twice their size in memory; cached
arrays are available at once and are read page by page.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock

from fedbench import __version__
from fedbench.data.examples import Examples

_FORMAT = 6  # of the files below; a new number rebuilds them
_ARRAYS = ("x", "y", "owner", "held_out")
_FACTS = ("classes", "names", "mean", "std", "sources", "unofficial")


def prepared(
    data_dir: Path, name: str, paths: Sequence[Path], options: Mapping[str, str], make: Callable[[], Examples]
) -> Examples:
    """The examples that ``make`` reads, from the cache ``data_dir/prepared`` if they were read before.

    The arrays are mapped copy-on-write: they can be changed in memory, never on disk. The cache of another version of
    fedbench is not used, one that cannot be read is rebuilt. If ``data_dir`` cannot be written, the examples are
    returned as read, with a warning on standard error.

    Args:
        data_dir: Directory of all data sets.
        name: Name of the data set.
        paths: Files and directories that the examples are read from. The cache is valid as long as files keep their
            size and modification time and directories neither gain nor lose a file.
        options: Everything else that the examples depend on.
        make: Function that reads the examples.
    """
    depends = {"format": str(_FORMAT), "fedbench": __version__, **{str(p): _stamp(p) for p in paths}, **options}
    digest = hashlib.sha256(json.dumps(depends, sort_keys=True).encode()).hexdigest()[:12]
    folder = data_dir / "prepared" / f"{name}-{digest}"
    with ExitStack() as held:
        with suppress(OSError):  # a directory that cannot be written is read all the same
            folder.parent.mkdir(parents=True, exist_ok=True)
            # the runs of a sweep would prepare the same data side by side
            held.enter_context(FileLock(folder.with_suffix(".lock")))
        if (folder / "facts.json").is_file():
            try:
                return _read(folder)
            except (OSError, ValueError, EOFError) as error:
                print(f"fedbench: {folder} is corrupt; rebuilding it: {error}", file=sys.stderr)
        print(f"fedbench: preparing {name}, once for all runs", file=sys.stderr, flush=True)
        examples = make()
        try:
            _write(folder, examples)
            return _read(folder)
        except OSError as error:
            print(f"fedbench: prepared data are not cached: {error}", file=sys.stderr)
            return examples


def _stamp(path: Path) -> str:
    """A text that changes when a file does, or when a directory gains or loses a file."""
    facts = path.stat()
    return str(facts.st_mtime_ns) if path.is_dir() else f"{facts.st_size}:{facts.st_mtime_ns}"


def _write(folder: Path, examples: Examples) -> None:
    with tempfile.TemporaryDirectory(prefix=".preparing-", dir=folder.parent) as made:
        part = Path(made) / "new"
        part.mkdir()
        arrays = {key: a for key in _ARRAYS if (a := getattr(examples, key)) is not None}
        for key, array in arrays.items():
            np.save(part / f"{key}.npy", array)
        facts = {key: getattr(examples, key) for key in _FACTS}
        (part / "facts.json").write_text(json.dumps({**facts, "arrays": [*arrays]}), encoding="utf-8")
        shutil.rmtree(folder, ignore_errors=True)
        part.replace(folder)


def _read(folder: Path) -> Examples:
    facts = json.loads((folder / "facts.json").read_text(encoding="utf-8"))
    fields: dict[str, Any] = {key: np.load(folder / f"{key}.npy", mmap_mode="c") for key in facts.pop("arrays")}
    fields |= {key: tuple(value) if isinstance(value, list) else value for key, value in facts.items()}
    return Examples(**fields)
