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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

import numpy as np
from filelock import FileLock

from fedbench import __version__
from fedbench.core.errors import RequestError
from fedbench.data.examples import Examples
from fedbench.data.files.download import checksum

_FORMAT = 4  # of the files below; another number makes new ones
_ARRAYS = ("x", "y", "owner", "held_out")
_again: ContextVar[bool] = ContextVar("_again", default=False)


def prepared(
    data_dir: Path, name: str, paths: Sequence[Path], options: Mapping[str, str], make: Callable[[], Examples]
) -> Examples:
    """Return the examples that ``make`` reads, from ``data_dir/prepared`` if they were read before.

    Args:
        data_dir: the directory of all data sets.
        name: of the data set.
        paths: files, and directories of files, that the examples are read from. Prepared data are used again as long as
            files have their size and time of change, and directories have neither gained nor lost a file: what is
            changed inside them only ``read_again`` notices.
        options: what else the examples depend on.
        make: reads the examples.

    The arrays are mapped copy-on-write: they can be changed in memory, never on disk. What an older version of fedbench
    prepared is not used, and what is damaged is made anew. Where ``data_dir`` cannot be written the examples are handed
    over as read, and a note on standard error says so.
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
    """Inside this block prepared data are made anew from their sources; ``ChangedFiles`` if these have changed."""
    token = _again.set(True)
    try:
        yield
    finally:
        _again.reset(token)


def _stamp(path: Path) -> str:
    """Return what changes when a file does, or when a directory gains or loses a file."""
    facts = path.stat()
    return str(facts.st_mtime_ns) if path.is_dir() else f"{facts.st_size}:{facts.st_mtime_ns}"


def digest_of(path: Path) -> str:
    """Return "sha256 ..." of a file, or of the names and contents of all files below a directory."""
    if not path.is_dir():
        return f"sha256 {checksum(path, 'sha256')}"
    whole = hashlib.sha256()
    for file in sorted(p for p in path.rglob("*") if p.is_file()):
        content = file.read_bytes()
        whole.update(f"{file.relative_to(path).as_posix()}\0{len(content)}\0".encode())
        whole.update(content)
    return f"sha256 {whole.hexdigest()} of names and contents"


class ChangedFiles(RequestError):
    """What prepared data were made from is not as it was."""


def _refuse_changes(folder: Path, sums: dict[str, str]) -> None:
    """Raise ``ChangedFiles`` if files are not as they were when the data in ``folder`` were prepared."""
    if not _kept(folder):
        return
    before = json.loads((folder / "manifest.json").read_text())["checksums"]
    changed = [p for p, digest in sums.items() if before.get(p, digest) != digest]
    if changed:
        raise ChangedFiles(
            f"{', '.join(changed)}: not as it was when the data were prepared; if that is meant, remove {folder}"
        )


def _write(folder: Path, examples: Examples, depends: dict[str, str], sums: dict[str, str]) -> None:
    part = Path(tempfile.mkdtemp(prefix=folder.name, dir=folder.parent))
    try:
        arrays = {k: a for k in _ARRAYS if (a := getattr(examples, k)) is not None}
        for key, array in arrays.items():
            np.save(part / f"{key}.npy", array)
        facts = {k: getattr(examples, k) for k in ("classes", "names", "mean", "std", "sources", "unofficial")}
        facts |= {"arrays": list(arrays), "inputs": depends, "checksums": sums}
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
        unofficial=tuple(facts["unofficial"]),
    )
