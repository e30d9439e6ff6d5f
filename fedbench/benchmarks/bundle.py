"""Published runs of a benchmark: a bundle that is written here and read anywhere.

A published folder is a bundle (:mod:`fedbench.runs.bundle`) with the last round of every run and a
further file, ``benchmark.json``: the licence, the definition of the benchmark, and the entries with
their searches. A reader checks all of it (:mod:`fedbench.benchmarks.check_entry`).
"""

import hashlib
import json
import re
import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from pydantic import TypeAdapter

from fedbench.benchmarks.check_entry import check_entry
from fedbench.benchmarks.definition import Benchmark
from fedbench.benchmarks.entries import Entry, Trial
from fedbench.benchmarks.execution import BenchmarkContext
from fedbench.core.atomic_files import replaced_folder, waiting_lock, writing
from fedbench.core.config_values import Tree, leaves
from fedbench.core.errors import RequestError, shown
from fedbench.core.files import existing_directory, reading
from fedbench.data.files.fetch import Remote, check_data_dir, checksum, offline, retrieve
from fedbench.runs.bundle import (
    FOLDER,
    MANIFEST,
    MOST_BYTES,
    MOST_MANIFEST_BYTES,
    Bundle,
    Kept,
    as_published,
    is_bundle,
    read_manifest,
    without_folders,
    write_bundle,
)
from fedbench.runs.run import Run
from fedbench.tuning.space import Values

LICENCE = "CC0-1.0"
_BENCHMARK = "benchmark.json"
_FORMAT = 1  # of benchmark.json
_PAGE = ("index.html", "numbers.csv", "gains.csv")  # beside the bundle; readers leave them alone
_CACHE = "baselines"  # below the directory of the data sets
_TEXTS = {"title", "lead", "changes", "about"}  # of a definition; they change no number
_KEPT = Kept(curves=(), client_rounds=())
_REMEDY = "ask the publisher for the folder as `fedbench publish` wrote it"
_OTHER_FOLDER = "name another folder"


@dataclass(frozen=True)
class _PublishedEntry:
    """An entry in ``benchmark.json``, with the paths of its runs in the bundle."""

    setting: str
    method: str
    digests: tuple[str, ...]
    space: tuple[str, ...]
    trials: tuple[Trial, ...]
    chosen: Values | None
    reason: str
    runs: tuple[str, ...]
    held_out: tuple[str, ...]


_ENTRIES = TypeAdapter(list[_PublishedEntry])


# ---- writing


def write_baselines(
    entries: Sequence[Entry],
    folder: Path,
    shared: BenchmarkContext,
    licence: str = LICENCE,
) -> None:
    """Publish entries of a benchmark in a folder.

    Equal entries give equal bytes, and further entries add files for their runs. Names of folders
    on this machine are left out.

    Args:
        entries: The entries, without those that were published by others.
        folder: The folder. It is replaced in one step.
        shared: The benchmark, and the composer of its configurations.
        licence: Identifier of the licence, as in the list of SPDX.

    Raises:
        RequestError: If an entry is wrong or not of this version, or the folder contains anything
            but a bundle of this benchmark.
    """
    _refuse_other_content(folder, shared.benchmark)
    published = []
    runs: dict[str, Run] = {}
    for entry in sorted(entries, key=lambda entry: (entry.setting, entry.method)):
        with reading(_name(entry), "cannot be published", "run the benchmark again"):
            if reason := check_entry(entry, shared):
                raise ValueError(reason)
        for run in (*entry.runs, *entry.held_out):
            runs[_path(run)] = as_published(run)
        changed = {
            "reason": without_folders(entry.reason),
            "runs": tuple(map(_path, entry.runs)),
            "held_out": tuple(map(_path, entry.held_out)),
        }
        published.append(vars(entry) | changed)
    content = {
        "format": _FORMAT,
        "licence": licence,
        "benchmark": _as_data(shared.benchmark),
        "entries": _ENTRIES.dump_python(_ENTRIES.validate_python(published), mode="json"),
    }
    text = json.dumps(content, indent=1) + "\n"
    with replaced_folder(folder) as new:
        write_bundle(new, runs, lambda _: _KEPT, texts={_BENCHMARK: text})


def _name(entry: Entry | _PublishedEntry) -> str:
    return f"{entry.method} in {entry.setting}"


def _path(run: Run) -> str:
    """Return the path of a run in the bundle, which has no name of a folder on this machine."""
    facts = run.meta
    return f"{facts['experiment']}/{facts['algo']}/{facts['hash']}/seed_{facts['seed']}"


def _as_data(benchmark: Benchmark) -> Tree:
    data: Tree = TypeAdapter(Benchmark).dump_python(benchmark, mode="json")
    return data


def _refuse_other_content(folder: Path, benchmark: Benchmark) -> None:
    """Raise a RequestError if a folder has files other than those of a bundle of the benchmark."""
    files = {path for path in folder.rglob("*") if not path.is_dir()}
    files -= {folder / name for name in _PAGE}
    if is_bundle(folder):
        bundle = Bundle(folder, remedy=_OTHER_FOLDER)
        _published_entries(bundle, benchmark, _OTHER_FOLDER)
        files -= {folder / FOLDER / name for name in (MANIFEST, *bundle.names)}
    if folder.is_file() or files:
        raise RequestError(
            f"{min(files, default=folder)} is no part of published runs; {_OTHER_FOLDER}"
        )


# ---- reading


def read_baselines(
    place: str | Path,
    shared: BenchmarkContext,
    data_dir: Path,
    without: Collection[str] = (),
) -> list[Entry]:
    """Return the published entries of a benchmark after checking them.

    Entries of methods that are unknown here, or that have another search space, other defaults or
    other code here, are left out with a note on standard error.

    Args:
        place: A published folder: a directory, or an address of http or https. From an address it
            is downloaded, and kept below ``data_dir``. ``#sha256=...`` at the end of an address
            requires this SHA-256 of the manifest.
        shared: The benchmark, and the composer of its configurations.
        data_dir: Directory of the data sets.
        without: Methods whose entries are not read, such as the user's own.

    Raises:
        RequestError: If the folder cannot be read or downloaded, is of another benchmark or
            version, or contains anything that is wrong.
    """
    address = str(place)
    remedy = _REMEDY
    if address.startswith(("http://", "https://")):
        folder = _downloaded(address, data_dir)
        remedy = f"{_REMEDY}, and remove {folder} to download it again"
    else:
        folder = existing_directory("--baselines", place)
        if not is_bundle(folder):
            raise RequestError(
                f"--baselines {folder} has no folder {FOLDER} with published runs; "
                f"fedbench publish {folder} --into FOLDER publishes results"
            )
    bundle = Bundle(folder, remedy=remedy)
    runs: dict[str, Run] = {}
    with reading(f"{address}: its runs", "are refused", remedy):
        for run in bundle.runs():
            path = run.path.relative_to(folder).as_posix()
            if path in runs:
                raise ValueError(f"two runs have the same path, {path}")
            runs[path] = run
    entries: list[Entry] = []
    names = set()
    for published in _published_entries(bundle, shared.benchmark, remedy):
        if published.method in without:
            continue
        name = _name(published)
        with reading(f"{address}: {name}", "is refused", remedy):
            if name in names or published.setting not in shared.benchmark.settings:
                raise ValueError("the setting is unknown, or has the method twice")
            names.add(name)
            fields = vars(published) | {
                "runs": tuple(runs[path] for path in published.runs),
                "held_out": tuple(runs[path] for path in published.held_out),
            }
            entry = Entry(**fields, published=True)
            reason = check_entry(entry, shared)
        if reason:
            print(f"fedbench: {address}: {name} is left out: {reason}", file=sys.stderr)
        else:
            entries.append(entry)
    return entries


def _published_entries(
    bundle: Bundle,
    benchmark: Benchmark,
    remedy: str,
) -> list[_PublishedEntry]:
    """Return the entries in ``benchmark.json``.

    Raises:
        RequestError: If the file is missing or malformed, or is of another benchmark, another
            version or another definition of the same version.
    """
    text = bundle.text(_BENCHMARK)
    with reading(bundle.root / FOLDER / _BENCHMARK, "is refused", remedy):
        content = json.loads(text)
        if content["format"] != _FORMAT:
            raise ValueError(f"it has format {content['format']!r} instead of {_FORMAT}")
        published = content["benchmark"]
        label = f"{published['name']}@{published['version']}"
        if label != benchmark.label:
            raise ValueError(
                f"it is of {shown(label)} instead of {benchmark.label}; results of different "
                "benchmarks or versions are never compared"
            )
        _check_definition(published, _as_data(benchmark))
        entries: list[_PublishedEntry] = _ENTRIES.validate_python(content["entries"])
        return entries


def _check_definition(published: Tree, own: Tree) -> None:
    """Raise a ValueError if two definitions of one version differ in more than their texts."""
    given, expected = leaves(published), leaves(own)
    for key in sorted(given.keys() | expected.keys()):
        is_text = _TEXTS & set(key.split("."))
        if not is_text and given.get(key) != expected.get(key):
            raise ValueError(
                f"{key} of its definition is {shown(given.get(key))} instead of "
                f"{shown(expected.get(key))}, without another version"
            )


# ---- downloading


def _downloaded(address: str, data_dir: Path) -> Path:
    """Return a copy of the published folder at an address, downloading files that have changed.

    An interrupted download leaves the earlier copy. Without a connection, FEDBENCH_OFFLINE=1 reads
    that copy.

    Raises:
        RequestError: If a file cannot be downloaded, or differs from its checksum.
    """
    base, _, pin = address.partition("#")
    url = base.rstrip("/")
    if pin and not re.fullmatch("sha256=[0-9a-f]{64}", pin):
        raise RequestError(
            f"--baselines {address}: after # must be sha256= and 64 digits of 0-9a-f"
        )
    digest = pin.removeprefix("sha256=")
    folder = data_dir / _CACHE / hashlib.sha256(url.encode()).hexdigest()[:16]
    manifest = folder / FOLDER / MANIFEST
    is_wanted = manifest.is_file() and digest in ("", checksum(manifest, "sha256"))
    if offline():
        if is_wanted:
            return folder
        raise RequestError(
            f"{address} has not been downloaded, and FEDBENCH_OFFLINE disables downloads; unset it"
        )
    if digest and is_wanted:
        return folder
    check_data_dir(address, data_dir)
    with writing(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        lock = waiting_lock(folder.with_suffix(".lock"), f"downloading {url}")
    with lock, replaced_folder(folder) as new:
        _update(new / FOLDER, url, digest)
    return folder


def _update(
    place: Path,
    url: str,
    digest: str,
) -> None:
    """Download the files of a bundle that are missing or have changed, and remove all others.

    Args:
        place: Folder of the bundle.
        url: Address of the published folder.
        digest: SHA-256 of the manifest, or an empty string.
    """
    (place / MANIFEST).unlink(missing_ok=True)
    _fetch(place, url, MANIFEST, digest, MOST_MANIFEST_BYTES)
    with reading(f"{url}/{FOLDER}/{MANIFEST}", remedy=_REMEDY):
        files = read_manifest(place)["files"]
    for old in place.rglob("*"):
        if old.is_file() and old.relative_to(place).as_posix() not in {MANIFEST, *files}:
            old.unlink()
    left = MOST_BYTES
    for name, expected in files.items():
        _fetch(place, url, name, expected, left)
        left -= (place / name).stat().st_size


def _fetch(
    place: Path,
    url: str,
    name: str,
    digest: str,
    most_bytes: int,
) -> None:
    """Download a file of a bundle.

    Raises:
        RequestError: If it cannot be downloaded.
    """
    address = f"{url}/{FOLDER}/{quote(name)}"
    remote = Remote(name, (address,), f"sha256:{digest}" if digest else None, most_bytes)
    (place / name).parent.mkdir(parents=True, exist_ok=True)
    failures = retrieve(remote, place / name)
    if len(failures) == len(remote.addresses()):
        raise RequestError(
            f"{name} could not be downloaded ({'; '.join(failures)}); try again later, or download "
            "the folder yourself and name it: --baselines DIR"
        )
