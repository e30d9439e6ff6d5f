"""Cache of prepared data: memory-mapped arrays, valid while their source files are unchanged.

Reading hundreds of thousands of images from text or archives takes minutes, and twice their size in
memory. Cached arrays are verified by checksums, at half a second per GB, and then read page by
page.
"""

import hashlib
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import numpy as np

from fedbench import __version__
from fedbench.core.atomic_files import replaced_folder, waiting_lock
from fedbench.core.checksums import check_files, file_checksum, read_with_checksum, with_checksum
from fedbench.core.files import reading
from fedbench.data.examples import Examples

_FORMAT = 7  # version of the cached files; a new number rebuilds them


def prepared(
    data_dir: Path,
    name: str,
    paths: Sequence[Path],
    options: Mapping[str, object],
    make: Callable[[], Examples],
) -> Examples:
    """Return the examples that ``make`` reads, from the cache if they were read before.

    The cache is ``data_dir/prepared``. The arrays are mapped copy-on-write: changes stay in memory
    and never reach the disk. Entries of other fedbench versions are ignored, and unreadable entries
    are rebuilt. If ``data_dir`` is not writable, the examples are returned uncached, with a warning
    on standard error.

    Args:
        data_dir: Directory of all data sets.
        name: Name of the data set.
        paths: Files and directories from which the examples are read. The cache is valid as long as
            these files, and all files in these directories, keep their names, sizes and times.
        options: Everything else on which the examples depend.
        make: Function that reads the examples.
    """
    with reading(name):
        files = sorted(stamp for path in paths for stamp in _stamps(path))
    depends = {"format": _FORMAT, "fedbench": __version__, "files": files, **options}
    text = json.dumps(depends, sort_keys=True, default=str)
    digest = hashlib.sha256(text.encode()).hexdigest()[:12]
    folder = data_dir / "prepared" / f"{name}-{digest}"
    with ExitStack() as stack:
        with suppress(OSError):  # data can be read even if the directory is not writable
            folder.parent.mkdir(parents=True, exist_ok=True)
            # otherwise, the runs of a sweep would prepare the same data in parallel
            stack.enter_context(waiting_lock(folder.with_suffix(".lock"), f"preparing {name}"))
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


def _stamps(entry: Path | os.DirEntry[str]) -> Iterator[str]:
    """Yield stamps of a file or a directory tree, which change whenever any part of it changes.

    Every write, replacement, copy or chmod updates a file's change time (ctime), which, unlike the
    modification time, cannot be set. Inode numbers would add nothing, and network file systems may
    change them. 100,000 files take half a second; reading them would take minutes.
    """
    facts = entry.stat()
    yield f"{os.fspath(entry)}:{facts.st_size}:{facts.st_mtime_ns}:{facts.st_ctime_ns}"
    if entry.is_dir():
        with os.scandir(entry) as entries:
            for inner in entries:
                yield from _stamps(inner)


def _write(folder: Path, examples: Examples) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    with replaced_folder(folder) as part:
        facts = {}
        for key, value in vars(examples).items():
            if isinstance(value, np.ndarray):
                np.save(part / f"{key}.npy", value)
            else:
                facts[key] = value
        files = sorted(part.iterdir())
        facts["arrays"] = {file.name: file_checksum(file) for file in files}
        (part / "facts.json").write_text(with_checksum(facts), encoding="utf-8")


def _read(folder: Path) -> Examples:
    facts = read_with_checksum(folder / "facts.json")
    checksums = facts.pop("arrays")
    check_files(folder, checksums)
    fields: dict[str, Any] = {}
    for name in checksums:
        fields[Path(name).stem] = np.load(folder / name, mmap_mode="c")
    for key, value in facts.items():
        fields[key] = tuple(value) if isinstance(value, list) else value
    return Examples(**fields)
