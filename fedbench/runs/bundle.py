"""Bundles: what a report needs of its runs, as four Parquet tables in the folder ``evidence`` of a published report.

| file | content |
| --- | --- |
| ``runs.parquet`` | a row per run: its path, and JSON texts: ``config``, ``meta``, ``documents`` |
| ``rounds.parquet`` | a row per kept round with all its keys; ``run`` is the number of the row in ``runs.parquet`` |
| ``curves.parquet`` | a row per evaluated round, with the keys that are kept at all of them |
| ``clients.parquet`` | a row per run, kept round and client |
| ``bundle.json`` | the format, the SHA-256 of all other files, and messages about runs that could not be read |
| ``labels/`` | as in a directory of runs, if the report uses them |

Numbers have full precision: a report of the bundle has those of the report that it was published with.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from fedbench.core.atomic_files import replace_file
from fedbench.core.config_values import Tree, config_value
from fedbench.core.errors import RequestError
from fedbench.core.files import reading
from fedbench.runs.run import Fields, Run, with_present_names

FOLDER = "evidence"
FORMAT = 1
_MANIFEST = "bundle.json"
_DIRECTORIES = ("results_dir", "data_dir")  # of one machine, so no part of a published run
_TABLES = ("runs", "rounds", "curves", "clients")
_FOLDERS = re.compile(  # in JSON, those of absolute paths
    r"""
    (?<=["']) ~?/ (?:[^"'/:;]+/)+ (?=[^"'/:;]+["'])  # in quotes, perhaps with blanks
    | (?: (?<=\\[nrt]) | (?<![\w.:/~}]) ) ~?/ (?:[^\s/"',\\]+/)+ (?=[^\s/"])  # but in no address
    """,
    re.X,
)
_BESIDES_NAME = re.compile(r"[^,\[]*/(?=[^/,\]])|/+$")  # of a file: its folders, and a slash at the end
DOCUMENTS = ("moments",)  # of diagnostics, that are kept
_NO_RUNS = pa.table({"run": pa.array([], pa.int64())})


@dataclass(frozen=True)
class Kept:
    """What a bundle keeps of a run, besides its last round, the per-client table of that, and documents.

    Attributes:
        curves: Keys that are kept at all evaluated rounds; None for all keys.
        rounds: Rounds that are kept with all their keys.
        client_rounds: Rounds whose per-client table is kept; None for all that the run has.
    """

    curves: Collection[str] | None = None
    rounds: Collection[int] = ()
    client_rounds: Collection[int] | None = None


def is_bundle(folder: Path) -> bool:
    """Return whether a folder has a bundle, be it damaged."""
    return (folder / FOLDER / "runs.parquet").exists() or (folder / FOLDER / _MANIFEST).exists()


class Bundle:
    """The runs of a bundle; a table is read when a run asks for it.

    Args:
        root: Directory of the published report.
        home: Directory below which the runs have their paths; None for ``root``.

    Attributes:
        damaged: Messages about runs that could not be read when the bundle was written.

    Raises:
        RequestError: If a file is missing or is not the one that was written.
    """

    def __init__(self, root: Path, home: Path | None = None) -> None:
        self.root, self.home = root, root if home is None else home
        self.place = root / FOLDER
        remedy = f"restore the folder from version control, or write it again with: fedbench report RUNS --into {root}"
        with reading(self.place, remedy=remedy):
            facts = json.loads((self.place / _MANIFEST).read_text(encoding="utf-8"))
            if facts["format"] != FORMAT:
                raise ValueError(f"it has format {facts['format']!r}, and this version reads {FORMAT}")
            if lacks := {f"{name}.parquet" for name in _TABLES} - facts["files"].keys():
                raise ValueError(f"{_MANIFEST} has no checksum of {min(lacks)}")
            for name, digest in facts["files"].items():
                if hashlib.sha256((self.place / name).read_bytes()).hexdigest() != digest:
                    raise ValueError(f"{name} is not the file that {_MANIFEST} was written for")
        self.damaged: list[str] = list(facts["damaged"])
        self._table = cache(self._read_table)

    def runs(self) -> list[Run]:
        """Return all runs."""
        found: list[Run] = []
        for number, row in enumerate(pq.read_table(self.place / "runs.parquet").to_pylist()):
            config, meta, documents = (json.loads(row[name]) for name in ("config", "meta", "documents"))
            present = with_present_names(config, meta)
            found.append(BundledRun(self.home / row["path"], *present, self, number, documents))
        return found

    def part(self, name: str, number: int) -> pa.Table:
        """Return the rows of a run in one of the tables, as an Arrow table without the column ``run``."""
        table, runs = self._table(name)
        first, end = np.searchsorted(runs, (number, number + 1))
        return table.slice(first, end - first)

    def _read_table(self, name: str) -> tuple[pa.Table, np.ndarray]:
        """Return a table, and the number of the run of every row, ascending."""
        table = pq.read_table(self.place / f"{name}.parquet")
        return table.drop_columns(["run"]), table["run"].to_numpy()


@dataclass(frozen=True)
class BundledRun(Run):
    """A run of a bundle, which keeps some of its rounds with all keys, and some keys at all rounds.

    Attributes:
        bundle: The bundle.
        number: The run's row in ``runs.parquet``.
        documents: Its documents by name.
    """

    bundle: Bundle = field(compare=False)
    number: int
    documents: Fields

    @property
    def place(self) -> Path:
        """Directory of the published report."""
        return self.bundle.root

    @property
    def done(self) -> bool:
        """Whether the run is complete."""
        return self.meta["status"] in ("done", "diverged")

    @property
    def begun(self) -> bool:
        """Whether a round is kept."""
        return len(self.bundle.part("rounds", self.number)) > 0

    @property
    def has_clients(self) -> bool:
        """Whether there is a per-client table."""
        return len(self.bundle.part("clients", self.number)) > 0

    def _frame(self, name: str) -> pd.DataFrame:
        frame: pd.DataFrame = self.bundle.part(name, self.number).to_pandas()
        return frame

    @cached_property
    def _rounds(self) -> pd.DataFrame:
        return self._frame("rounds")

    @cached_property
    def _curves(self) -> pd.DataFrame:
        return self._frame("curves")

    def curves(self, names: Sequence[str]) -> pd.DataFrame:
        """Return these keys at all evaluated rounds.

        Raises:
            RequestError: If one of them was measured and is kept at some rounds only.
        """
        known, last = self._curves.columns, self._last_round
        for name in names:
            if name not in known and last.get(name) is not None:
                kept = ", ".join(key for key in map(str, known) if key != "round")
                raise RequestError(
                    f"{self.path}: {name} is kept at some rounds only; at all rounds the bundle has "
                    f"{kept or 'nothing'}; report from the runs themselves"
                )
        return self._curves[[name for name in dict.fromkeys(("round", *names)) if name in known]]

    @cached_property
    def _last_round(self) -> Fields:
        rows = self.bundle.part("rounds", self.number)
        last: Fields = rows.slice(len(rows) - 1).to_pylist()[0]
        return last

    def clients(self) -> pd.DataFrame:
        """Return the per-client table of the kept rounds."""
        return self._frame("clients")

    def document(self, name: str) -> Fields | None:
        """Return the document of a diagnostic."""
        found: Fields | None = self.documents.get(name)
        return found


def as_published(run: Run) -> Run:
    """Return a run that names no directories of this machine; its facts have the digests of user files."""
    config = {k: v for k, v in run.config.items() if k not in _DIRECTORIES}
    typed = [text for text in run.meta.get("overrides", ()) if text.partition("=")[0] not in _DIRECTORIES]
    content = json.dumps([config, {**run.meta, "overrides": typed}], ensure_ascii=False)
    for key in run.meta.get("files", ()):
        for file in np.ravel(run.flat[key]):
            content = content.replace(file, re.sub(".*/(?=.)", "", file))
    config, meta = json.loads(_FOLDERS.sub("", content))
    return replace(run, config=config, meta=meta)


def named_files(run: Run) -> Tree:
    """Return the user files of a run by dotted key: their names and the start of their digests."""
    return {
        key: f"{_BESIDES_NAME.sub('', config_value(run.flat[key]))} ({digest[:10]})"
        for key, digest in run.meta.get("files", {}).items()
    }


def write_bundle(
    folder: Path,
    runs: Mapping[str, Run],
    keep: Callable[[Run], Kept],
    damaged: Sequence[str] = (),
    files: Mapping[str, bytes] | None = None,
) -> None:
    """Write the bundle of a published report.

    Args:
        folder: Directory of the report.
        runs: Its runs by their paths below the directory of runs.
        keep: What is kept of a finished run; of others, only configuration and facts are.
        damaged: Messages about runs that cannot be read.
        files: Further files by name below the bundle: the label counts.
    """
    contents = _tables(runs, keep) | dict(files or {})
    facts = {
        "format": FORMAT,
        "damaged": list(damaged),
        "files": {name: hashlib.sha256(content).hexdigest() for name, content in sorted(contents.items())},
    }
    place = folder / FOLDER
    for old in place.rglob("*"):
        if old.is_file() and old.relative_to(place).as_posix() not in contents:
            old.unlink()
    for name, content in contents.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        replace_file(place / name, content)
    replace_file(place / _MANIFEST, (json.dumps(facts, indent=1) + "\n").encode())  # last: half a bundle has none


def _tables(runs: Mapping[str, Run], keep: Callable[[Run], Kept]) -> dict[str, bytes]:
    """Return the content of the Parquet files; keys that a run lacks are null there."""
    rows: list[Fields] = []
    parts: dict[str, list[pa.Table]] = {name: [_NO_RUNS] for name in _TABLES[1:]}
    for number, (path, run) in enumerate(runs.items()):
        texts = {"config": run.config, "meta": run.meta, "documents": {}}
        if run.done:
            texts["documents"] = {name: found for name in DOCUMENTS if (found := run.document(name)) is not None}
            for name, frame in _frames(run, keep(run)).items():
                table = pa.Table.from_pandas(frame.assign(run=number), preserve_index=False)
                parts[name].append(table.replace_schema_metadata(None))
        rows.append({"path": path, **{name: json.dumps(content) for name, content in texts.items()}})
    schema = pa.schema([(name, pa.string()) for name in ("path", "config", "meta", "documents")])
    tables = {name: pa.concat_tables(found, promote_options="permissive") for name, found in parts.items()}
    contents = {}
    for name, table in {"runs": pa.Table.from_pylist(rows, schema), **tables}.items():
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink, compression="zstd", compression_level=19)  # bundles are written once
        contents[f"{name}.parquet"] = bytes(sink.getvalue())
    return contents


def _frames(run: Run, kept: Kept) -> dict[str, pd.DataFrame]:
    """Return what is kept of the tables of a run."""
    rounds = run.rounds()
    names = list(rounds.columns) if kept.curves is None else sorted(kept.curves)
    if isinstance(run, BundledRun):  # which has no others any more
        names = [name for name in names if name in run.bundle.part("curves", run.number).column_names]
    found = {"rounds": rounds[rounds["round"].isin([rounds["round"].max(), *kept.rounds])]}
    if names:
        found["curves"] = run.curves(names)
    if run.has_clients:
        found["clients"] = run.clients() if kept.client_rounds is None else run.clients_at(kept.client_rounds)
    return found
