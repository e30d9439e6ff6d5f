"""Bundles: the evidence of a published report, in its folder ``evidence``.

| file | content |
| --- | --- |
| ``runs/<experiment>/<digest>.parquet`` | runs of an experiment, a row per run |
| ``bundle.json`` | the format, the SHA-256 of all other files, and messages about runs that could not be read |

A row has the run's ``path``, the JSON texts ``config``, ``meta`` and ``documents``, and three
tables as lists:

| column | rows |
| --- | --- |
| ``rounds`` | the kept rounds, with all their keys |
| ``curves`` | all evaluated rounds, with the keys that are kept at all of them |
| ``clients`` | the kept rounds and clients |

A file is written once: publishing further runs adds files and leaves the others as they are, so a
clone grows by these runs alone. Numbers have full precision, and a report of the bundle equals the
report that it was published with.
"""

import hashlib
import json
import re
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
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
FORMAT = 2
DOCUMENTS = ("moments",)  # of diagnostics, that are kept
_MANIFEST = "bundle.json"
_RUNS = "runs"  # folder of the Parquet files
_TEXTS = ("config", "meta", "documents")
_TABLES = ("rounds", "curves", "clients")
_DIRECTORIES = ("results_dir", "data_dir")  # of one machine, so no part of a published run
_FOLDERS = re.compile(  # in JSON, those of absolute paths
    r"""
    (?<=["']) ~?/ (?:[^"'/:;]+/)+ (?=[^"'/:;]+["'])  # in quotes, perhaps with blanks
    | (?: (?<=\\[nrt]) | (?<![\w.:/~}]) ) ~?/ (?:[^\s/"',\\]+/)+ (?=[^\s/"])  # but in no address
    """,
    re.X,
)
# of a file: its folders, and a slash at the end
_BESIDES_NAME = re.compile(r"[^,\[]*/(?=[^/,\]])|/+$")
_NO_ROUND = pa.table({"round": pa.array([], pa.int64())})


@dataclass(frozen=True)
class Kept:
    """What a bundle keeps of a run, besides its last round, the per-client table of that, and documents.

    Attributes:
        curves: Keys that are kept at all evaluated rounds; None for all keys.
        rounds: Rounds that are kept with all their keys.
        client_rounds: Rounds whose per-client table is kept; None for all that the run has.
        clients: Clients that are kept in all rounds of the per-client table.
    """

    curves: Collection[str] | None = None
    rounds: Collection[int] = ()
    client_rounds: Collection[int] | None = None
    clients: Collection[Hashable] = ()


def is_bundle(folder: Path) -> bool:
    """Return whether a folder has a bundle, be it damaged."""
    return (folder / FOLDER).exists()


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
                raise ValueError(
                    f"it has format {facts['format']!r}, and this version reads {FORMAT}"
                )
            for name, digest in facts["files"].items():
                if hashlib.sha256((self.place / name).read_bytes()).hexdigest() != digest:
                    raise ValueError(f"{name} is not the file that {_MANIFEST} was written for")
        self.damaged: list[str] = facts["damaged"]
        self.files = [self.place / name for name in facts["files"]]

    def runs(self) -> list[Run]:
        """Return all runs by ascending path."""
        runs = [run for file in self.files for run in ExperimentFile(file).runs(self)]
        return sorted(runs, key=lambda run: run.path)


class ExperimentFile:
    """A Parquet file with runs of an experiment; a column is read when a run asks for it.

    Args:
        path: The file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._column = cache(self._read_column)

    def runs(self, bundle: Bundle) -> Iterator[Run]:
        """Yield the runs in the order of the file."""
        rows = pq.read_table(self.path, columns=["path", *_TEXTS]).to_pylist()
        for number, row in enumerate(rows):
            config, meta, documents = (json.loads(row[name]) for name in _TEXTS)
            config, meta = with_present_names(config, meta)
            yield BundledRun(
                bundle.home / row["path"], config, meta, bundle.root, self, number, documents
            )

    def part(self, name: str, number: int) -> pa.Table:
        """Return one of the tables of a run.

        Args:
            name: Name of the table: ``rounds``, ``curves`` or ``clients``.
            number: Row of the run.
        """
        return pa.Table.from_struct_array(self._column(name)[number].values)

    def _read_column(self, name: str) -> pa.ListArray:
        return pq.read_table(self.path, columns=[name])[name].combine_chunks()


@dataclass(frozen=True)
class BundledRun(Run):
    """A run of a bundle, which keeps some of its rounds with all keys, and some keys at all rounds.

    Attributes:
        report: Directory of the published report.
        file: The file that has the run.
        number: The run's row in the file.
        documents: Its documents by name.
    """

    report: Path
    file: ExperimentFile = field(compare=False)
    number: int
    documents: Fields

    @property
    def place(self) -> Path:
        """Directory of the published report."""
        return self.report

    @property
    def done(self) -> bool:
        """Whether the run is complete."""
        return self.meta["status"] in ("done", "diverged")

    @property
    def begun(self) -> bool:
        """Whether a round is kept."""
        return len(self.file.part("rounds", self.number)) > 0

    @property
    def has_clients(self) -> bool:
        """Whether there is a per-client table."""
        return len(self.file.part("clients", self.number)) > 0

    def _frame(self, name: str) -> pd.DataFrame:
        frame: pd.DataFrame = self.file.part(name, self.number).to_pandas()
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
        rows = self.file.part("rounds", self.number)
        last: Fields = rows.slice(len(rows) - 1).to_pylist()[0]
        return last

    def clients(self) -> pd.DataFrame:
        """Return the per-client table of the kept rounds."""
        return self._frame("clients")

    def document(self, name: str) -> Fields | None:
        """Return the document of a diagnostic."""
        document: Fields | None = self.documents.get(name)
        return document


def as_published(run: Run) -> Run:
    """Return a run that names no directories of this machine; its facts have the digests of user files."""
    config = {k: v for k, v in run.config.items() if k not in _DIRECTORIES}
    typed = [
        text for text in run.meta.get("overrides", ()) if text.partition("=")[0] not in _DIRECTORIES
    ]
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
) -> None:
    """Write the bundle of a published report.

    Args:
        folder: Directory of the report.
        runs: Its runs by their paths below the directory of runs.
        keep: What is kept of a finished run; of others, only configuration and facts are.
        damaged: Messages about runs that cannot be read.
    """
    place = folder / FOLDER
    contents: dict[str, bytes] = {}
    pending = {path: _row(path, run, keep) for path, run in runs.items()}

    for file in sorted((place / _RUNS).rglob("*.parquet")):
        content = file.read_bytes()
        if _digest(content) != file.stem:
            continue
        written = pq.read_table(pa.BufferReader(content))
        rows = [pending[path] for path in written["path"].to_pylist() if path in pending]
        if _experiment_table(rows).equals(written):
            contents[file.relative_to(place).as_posix()] = content
            for row in rows:
                del pending[row["path"]]

    for experiment in dict.fromkeys(run.meta["experiment"] for run in runs.values()):
        rows = [row for path, row in pending.items() if runs[path].meta["experiment"] == experiment]
        if rows:
            content = _parquet(_experiment_table(rows))
            contents[f"{_RUNS}/{experiment or 'others'}/{_digest(content)}.parquet"] = content

    facts = {
        "format": FORMAT,
        "damaged": damaged,
        "files": {
            name: hashlib.sha256(content).hexdigest() for name, content in sorted(contents.items())
        },
    }
    for old in place.rglob("*"):
        if old.is_file() and old.relative_to(place).as_posix() not in contents:
            old.unlink()
    for name, content in contents.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        replace_file(place / name, content)
    place.mkdir(parents=True, exist_ok=True)
    # last: half a bundle has none
    replace_file(place / _MANIFEST, (json.dumps(facts, indent=1) + "\n").encode())


def _row(path: str, run: Run, keep: Callable[[Run], Kept]) -> Fields:
    """Return the row of a run: texts, and the tables that it has as Arrow tables."""
    documents: dict[str, Fields] = {}
    tables: dict[str, pa.Table] = {}
    if run.done:
        known = {name: run.document(name) for name in DOCUMENTS}
        documents = {name: document for name, document in known.items() if document is not None}
        tables = _tables(run, keep(run))
    texts = {"config": run.config, "meta": run.meta, "documents": documents}
    return {
        "path": path,
        **{name: json.dumps(content) for name, content in texts.items()},
        **tables,
    }


def _experiment_table(rows: Sequence[Fields]) -> pa.Table:
    """Return the table of an experiment, a row per run; keys that a run does not have are null."""
    columns = {
        name: pa.array([row[name] for row in rows], pa.string()) for name in ("path", *_TEXTS)
    }
    for name in _TABLES:
        tables = [row.get(name, _NO_ROUND) for row in rows]
        joined = pa.concat_tables(
            [_NO_ROUND, *tables], promote_options="permissive"
        ).to_struct_array()
        offsets = np.cumsum([0, *map(len, tables)], dtype=np.int32)
        columns[name] = pa.ListArray.from_arrays(offsets, joined.combine_chunks())
    return pa.table(columns)


def _parquet(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd", compression_level=19, use_dictionary=False)
    return bytes(sink.getvalue())


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:10]


def _tables(run: Run, kept: Kept) -> dict[str, pa.Table]:
    """Return what is kept of the tables of a finished run."""
    rounds = run.rounds()
    frames = {"rounds": rounds[rounds["round"].isin([rounds["round"].max(), *kept.rounds])]}

    names = list(rounds.columns) if kept.curves is None else sorted(kept.curves)
    if isinstance(run, BundledRun):  # which has no others any more
        names = [name for name in names if name in run.file.part("curves", run.number).column_names]
    if names:
        frames["curves"] = run.curves(names)

    if run.has_clients:
        clients = run.clients()
        if kept.client_rounds is not None:
            kept_rounds = [clients["round"].max(), *kept.client_rounds]
            clients = clients[
                clients["round"].isin(kept_rounds) | clients["client"].isin(kept.clients)
            ]
        frames["clients"] = clients

    tables = {
        name: pa.Table.from_pandas(frame, preserve_index=False) for name, frame in frames.items()
    }
    return {name: table.replace_schema_metadata(None) for name, table in tables.items()}
