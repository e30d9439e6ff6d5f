"""Prepared data: arrays that are mapped into memory, beside a manifest of what they were made from.

Reading hundreds of thousands of images from text or archives takes minutes and twice their size in memory; the arrays
of an earlier reading are there at once and are read page by page.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

import numpy as np
from filelock import FileLock

from fedbench import __version__
from fedbench.data.examples import Examples

_FORMAT = 2  # of the files below; another number makes new ones
_ARRAYS = ("x", "y", "owner", "held_out")
_again: ContextVar[bool] = ContextVar("_again", default=False)


def prepared(data_dir: Path, name: str, inputs: Mapping[str, str], make: Callable[[], Examples]) -> Examples:
    """Return the examples that ``make`` reads, from ``data_dir/prepared`` if they were read before.

    Args:
        data_dir: the directory of all data sets.
        name: of the data set.
        inputs: what the examples depend on: files with their sizes or checksums, and options.
        make: reads the examples.

    The arrays are mapped copy-on-write: they can be changed in memory, never on disk. What an older version of fedbench
    prepared is not used, and what is damaged is made anew. Where ``data_dir`` cannot be written the examples are handed
    over as read, and a note on standard error says so.
    """
    depends = {"format": str(_FORMAT), "fedbench": __version__, **inputs}
    digest = hashlib.sha256(json.dumps(depends, sort_keys=True).encode()).hexdigest()[:12]
    folder = data_dir / "prepared" / f"{name}-{digest}"
    with _locked(folder) as writable:  # also to read: another process may be replacing the directory
        if not _again.get() and (kept := _kept(folder)):
            return kept
        examples = make()
        if not writable:
            return examples
        try:
            _write(folder, examples, depends)
        except OSError as error:
            print(f"fedbench: prepared data are not kept: {error}", file=sys.stderr)
            return examples
        return _read(folder)


@contextmanager
def _locked(folder: Path) -> Iterator[bool]:
    """Hold the lock of a directory of prepared data; False where there can be none."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder.with_suffix(".lock"))
        lock.acquire()
    except OSError as error:
        if not (folder / "manifest.json").is_file():
            print(f"fedbench: prepared data are not kept: {error}", file=sys.stderr)
        yield False
        return
    try:
        yield True
    finally:
        lock.release()


def _kept(folder: Path) -> Examples | None:
    """Return what was prepared before, None if that is nothing or damaged."""
    if not (folder / "manifest.json").is_file():
        return None
    try:
        return _read(folder)
    except (OSError, ValueError, KeyError, TypeError) as error:
        print(f"fedbench: {folder} is damaged and made anew: {error}", file=sys.stderr)
        return None


@contextmanager
def read_again() -> Iterator[None]:
    """Inside this block prepared data are made anew from their sources."""
    token = _again.set(True)
    try:
        yield
    finally:
        _again.reset(token)


def stamp(*files: Path) -> dict[str, str]:
    """Return size and time of change of files, by name: an ``inputs`` that changes when a file does."""
    return {str(f): f"{f.stat().st_size}:{f.stat().st_mtime_ns}" for f in files}


def _write(folder: Path, examples: Examples, depends: dict[str, str]) -> None:
    part = Path(tempfile.mkdtemp(prefix=folder.name, dir=folder.parent))
    try:
        arrays = {k: a for k in _ARRAYS if (a := getattr(examples, k)) is not None}
        for key, array in arrays.items():
            np.save(part / f"{key}.npy", array)
        facts = {k: getattr(examples, k) for k in ("classes", "names", "mean", "std", "sources")}
        facts |= {"arrays": list(arrays), "inputs": depends}
        (part / "manifest.json").write_text(json.dumps(facts, indent=1))
        part.chmod(0o755)  # mkdtemp makes it for its owner alone
        if folder.exists():
            shutil.rmtree(folder)
        part.replace(folder)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise


def _read(folder: Path) -> Examples:
    facts = json.loads((folder / "manifest.json").read_text())
    arrays = {k: np.load(folder / f"{k}.npy", mmap_mode="c") for k in facts["arrays"]}
    return Examples(
        x=arrays["x"],
        y=arrays["y"],
        classes=facts["classes"],
        owner=arrays.get("owner"),
        names=tuple(facts["names"]),
        held_out=arrays.get("held_out"),
        mean=None if facts["mean"] is None else tuple(facts["mean"]),
        std=None if facts["std"] is None else tuple(facts["std"]),
        sources=tuple(facts["sources"]),
    )
