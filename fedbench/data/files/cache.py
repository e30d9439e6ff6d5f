"""Cache of prepared data: memory-mapped arrays, with a manifest of the files that they were read from.

Reading hundreds of thousands of images from text or archives takes minutes and twice their size in memory; cached
arrays are available at once and are read page by page.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock

from fedbench import __version__
from fedbench.core.errors import RequestError
from fedbench.core.files import check_files, file_checksum
from fedbench.core.rooms import abandoned, room
from fedbench.core.trees import from_json
from fedbench.data.examples import Examples
from fedbench.data.files.download import checksum

_FORMAT = 5  # of the files below; a new number rebuilds them
_ARRAYS = ("x", "y", "owner", "held_out")
_PART = ".part."  # beginning of the names of directories that are being written
_FACTS = ("classes", "names", "mean", "std", "sources", "unofficial")
_again: ContextVar[bool] = ContextVar("_again", default=False)


def prepared(
    data_dir: Path, name: str, paths: Sequence[Path], options: Mapping[str, str], make: Callable[[], Examples]
) -> Examples:
    """Return the examples that ``make`` reads, from the cache ``data_dir/prepared`` if they were read before.

    Args:
        data_dir: Directory of all data sets.
        name: Name of the data set.
        paths: Files and directories that the examples are read from. The cache is valid as long as files keep their
            size and modification time and directories neither gain nor lose a file; only ``read_again`` notices a
            change inside the files of a directory.
        options: Everything else that the examples depend on.
        make: Function that reads the examples.

    The arrays are mapped copy-on-write: they can be changed in memory, never on disk. The
    cache of another version of fedbench is not used. All files have checksums, which are compared when a process first
    reads them; a cache that is corrupt is rebuilt. If ``data_dir`` cannot be written,
    the examples are returned as read and standard error says so.
    """
    depends = {"format": str(_FORMAT), "fedbench": __version__, **{str(p): _stamp(p) for p in paths}, **options}
    digest = hashlib.sha256(json.dumps(depends, sort_keys=True).encode()).hexdigest()[:12]
    folder = data_dir / "prepared" / f"{name}-{digest}"
    with _locked(folder) as writable:  # also to read: another process may be replacing the directory
        if not _again.get() and (kept := _kept(folder)):
            return kept
        examples = make()
        if not writable:
            return examples
        try:
            sums = {str(p): digest_of(p) for p in paths}
            if _again.get():
                _refuse_changes(folder, sums)
            _write(folder, examples, depends, sums)
        except OSError as error:
            print(f"fedbench: prepared data are not cached: {error}", file=sys.stderr)
            return examples
        return _read(folder)


@contextmanager
def _locked(folder: Path) -> Iterator[bool]:
    """Hold the lock of a directory of prepared data; yield False if none can be created."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder.with_suffix(".lock"))
        lock.acquire()
    except OSError as error:
        if not (folder / "manifest.json").is_file():
            print(f"fedbench: prepared data are not cached: {error}", file=sys.stderr)
        yield False
        return
    try:
        yield True
    finally:
        lock.release()


def _kept(folder: Path) -> Examples | None:
    """Return the cached examples, None if there are none or they are corrupt."""
    if not (folder / "manifest.json").is_file():
        return None
    try:
        return _read(folder)
    except (OSError, ValueError) as error:
        print(f"fedbench: {folder} is corrupt; rebuilding it: {error}", file=sys.stderr)
        return None


@contextmanager
def read_again() -> Iterator[None]:
    """Inside this block, rebuild prepared data from their sources; raise ``ChangedFiles`` if these have changed."""
    token = _again.set(True)
    try:
        yield
    finally:
        _again.reset(token)


def _stamp(path: Path) -> str:
    """Return a text that changes when a file does, or when a directory gains or loses a file."""
    facts = path.stat()
    return str(facts.st_mtime_ns) if path.is_dir() else f"{facts.st_size}:{facts.st_mtime_ns}"


def digest_of(path: Path) -> str:
    """Return "sha256 ..." of a file, or of the names and contents of all files below a directory."""
    if not path.is_dir():
        return f"sha256 {checksum(path, 'sha256')}"
    hashed = hashlib.sha256()
    for file in sorted(p for p in path.rglob("*") if p.is_file()):
        content = file.read_bytes()
        hashed.update(f"{file.relative_to(path).as_posix()}\0{len(content)}\0".encode())
        hashed.update(content)
    return f"sha256 {hashed.hexdigest()} of names and contents"


class ChangedFiles(RequestError):
    """The files that prepared data were read from have changed."""


def _refuse_changes(folder: Path, sums: dict[str, str]) -> None:
    """Raise ``ChangedFiles`` if files have changed since the data in ``folder`` were prepared."""
    if not _kept(folder):
        return
    before = _manifest(folder)["checksums"]
    changed = [p for p, digest in sums.items() if before.get(p, digest) != digest]
    if changed:
        raise ChangedFiles(
            f"changed since the data were prepared: {', '.join(changed)}; if that is intended, remove {folder}"
        )


def _write(folder: Path, examples: Examples, depends: dict[str, str], sums: dict[str, str]) -> None:
    for left in abandoned(_PART, folder.parent):
        print(f"fedbench: {left} is left by a process that was killed; removing it", file=sys.stderr)
    with room(_PART, folder.parent) as made:
        part = made / "new"
        part.mkdir()
        arrays = {k: a for k in _ARRAYS if (a := getattr(examples, k)) is not None}
        for key, array in arrays.items():
            np.save(part / f"{key}.npy", array)
        facts = {k: getattr(examples, k) for k in _FACTS}
        facts |= {"arrays": {f"{key}.npy": file_checksum(part / f"{key}.npy") for key in arrays}}
        facts |= {"inputs": depends, "checksums": sums}
        (part / "manifest.json").write_text(json.dumps({**facts, "own": _digest(facts)}, indent=1))
        if folder.exists():
            shutil.rmtree(folder)
        part.replace(folder)


def _read(folder: Path) -> Examples:
    facts = _manifest(folder)
    check_files(folder, facts["arrays"])
    fields: dict[str, Any] = {Path(f).stem: np.load(folder / f, mmap_mode="c") for f in facts["arrays"]}
    fields |= {k: tuple(v) if isinstance(v := facts[k], list) else v for k in _FACTS}
    return Examples(**fields)


def _manifest(folder: Path) -> dict[str, Any]:
    """Return the facts of prepared data.

    Raises:
        OSError: If the file cannot be read.
        ValueError: If it has changed since it was written.
    """
    facts = from_json((folder / "manifest.json").read_text())
    if not isinstance(facts, dict) or facts.pop("own", None) != _digest(facts):
        raise ValueError("manifest.json has changed since it was written: its checksum differs")
    return facts


def _digest(facts: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()
