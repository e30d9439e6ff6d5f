"""Bundles: the evidence behind a published report, stored in its folder ``evidence``.

| file | content |
| --- | --- |
| ``runs/<experiment>/<digest>.parquet`` | runs of an experiment, one row per run |
| ``bundle.json`` | the format, the SHA-256 of all other files, and messages about damaged runs |

A row contains the run's ``path``, the JSON texts ``config``, ``meta`` and ``documents``, and three
tables as lists:

| column | rows |
| --- | --- |
| ``rounds`` | the kept rounds, with all their keys |
| ``curves`` | all evaluated rounds, with the keys that are kept for all rounds |
| ``clients`` | the kept rounds and clients |

Files are written once: publishing further runs adds files and leaves existing files unchanged, so a
clone grows only by the new runs. Numbers have full precision, and a report created from the bundle
equals the report with which the bundle was published.
"""

import hashlib
import json
import re
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
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
DOCUMENTS = ("moments",)  # kept documents of diagnostics
_MANIFEST = "bundle.json"
_RUNS = "runs"  # folder of the Parquet files
_TEXTS = ("config", "meta", "documents")
_TABLES = ("rounds", "curves", "clients")
_DIRECTORIES = ("results_dir", "data_dir")  # local to one machine, so removed from published runs
_FOLDERS = re.compile(  # folders of absolute paths in JSON
    r"""
    (?<=["']) ~?/ (?:[^"'/:;]+/)+ (?=[^"'/:;]+["'])  # in quotes, perhaps with blanks
    | (?: (?<=\\[nrt]) | (?<![\w.:/~}]) ) ~?/ (?:[^\s/"',\\]+/)+ (?=[^\s/"])  # but in no address
    """,
    re.X,
)
# the parts of a file's path other than its name: folders, and a slash at the end
_BESIDES_NAME = re.compile(r"[^,\[]*/(?=[^/,\]])|/+$")
_NO_ROUND = pa.table({"round": pa.array([], pa.int64())})


@dataclass(frozen=True)
class Kept:
    """The parts of a run that a bundle keeps.

    The last round, its per-client table and documents are always kept.

    Attributes:
        curves: Keys that are kept for all evaluated rounds. If None, all keys.
        rounds: Rounds that are kept with all their keys.
        client_rounds: Rounds whose per-client table is kept. If None, all rounds in the run's
            table.
        clients: Clients that are kept in all rounds of the per-client table.
    """

    curves: Collection[str] | None = None
    rounds: Collection[int] = ()
    client_rounds: Collection[int] | None = None
    clients: Collection[Hashable] = ()


def is_bundle(folder: Path) -> bool:
    """Return whether a folder contains a bundle, even a damaged one."""
    return (folder / FOLDER).exists()


class Bundle:
    """The runs of a bundle; tables are read on demand.

    Args:
        root: Directory of the published report.
        home: Directory to which the paths of the runs are relative. If None, ``root``.

    Attributes:
        damaged: Messages about runs that could not be read when the bundle was written.

    Raises:
        RequestError: If a file is missing or has changed since it was written.
    """

    def __init__(
        self,
        root: Path,
        home: Path | None = None,
    ) -> None:
        self.root = root
        self.home = root if home is None else home
        place = root / FOLDER
        remedy = (
            "restore the folder from version control, or write it again with: "
            f"fedbench report RUNS --into {root}"
        )
        with reading(place, remedy=remedy):
            facts = json.loads((place / _MANIFEST).read_text(encoding="utf-8"))
            version = facts["format"]
            if version != FORMAT:
                raise ValueError(f"it has format {version!r}, and this version reads {FORMAT}")
            for name, digest in facts["files"].items():
                if _sha256((place / name).read_bytes()) != digest:
                    raise ValueError(f"{name} is not the file that {_MANIFEST} was written for")
        self.damaged: list[str] = facts["damaged"]
        self._files = [place / name for name in facts["files"]]

    def runs(self) -> list[Run]:
        """Return all runs, sorted by path."""
        runs: list[Run] = []
        for file in self._files:
            rows = pq.read_table(file, columns=["path", *_TEXTS]).to_pylist()
            for number, row in enumerate(rows):
                config, meta, documents = (json.loads(row[name]) for name in _TEXTS)
                config, meta = with_present_names(config, meta)
                path = self.home / row["path"]
                runs.append(BundledRun(path, config, meta, self.root, file, number, documents))
        return sorted(runs, key=lambda run: run.path)


@lru_cache(maxsize=64)
def _column(file: Path, name: str) -> pa.ListArray:
    """Return a column of a Parquet file; the cache is safe, as file names contain a digest."""
    return pq.read_table(file, columns=[name])[name].combine_chunks()


@dataclass(frozen=True, repr=False)
class BundledRun(Run):
    """A run in a bundle, which keeps some rounds with all keys, and some keys for all rounds.

    Attributes:
        report: Directory of the published report.
        file: The Parquet file that contains the run.
        number: The run's row in the file.
        documents: Documents of the run by name.
    """

    report: Path
    file: Path = field(compare=False)
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
        """Whether at least one round is kept."""
        return len(self._table("rounds")) > 0

    @property
    def has_clients(self) -> bool:
        """Whether the run has a per-client table."""
        return len(self._table("clients")) > 0

    def _table(self, name: str) -> pa.Table:
        """Return one of the tables of the run: ``rounds``, ``curves`` or ``clients``."""
        return pa.Table.from_struct_array(_column(self.file, name)[self.number].values)

    def _frame(self, name: str) -> pd.DataFrame:
        frame: pd.DataFrame = self._table(name).to_pandas()
        return frame

    @cached_property
    def _rounds(self) -> pd.DataFrame:
        return self._frame("rounds")

    @cached_property
    def kept_curves(self) -> pd.DataFrame:
        """All evaluated rounds, with the keys that are kept for all rounds."""
        return self._frame("curves")

    def curves(self, names: Sequence[str]) -> pd.DataFrame:
        """Return the given keys for all evaluated rounds.

        Raises:
            RequestError: If one of the keys was measured but is kept for some rounds only.
        """
        known = list(self.kept_curves.columns)
        for name in names:
            if name not in known and self._last_round.get(name) is not None:
                kept = ", ".join(key for key in known if key != "round") or "nothing"
                raise RequestError(
                    f"{self.path}: {name} is kept at some rounds only; at all rounds the bundle "
                    f"has {kept}; report from the runs themselves"
                )
        columns = dict.fromkeys(("round", *names))
        return self.kept_curves[[name for name in columns if name in known]]

    @cached_property
    def _last_round(self) -> Fields:
        rows: list[Fields] = self._table("rounds").to_pylist()
        return rows[-1]

    def clients(self) -> pd.DataFrame:
        """Return the per-client table of the kept rounds."""
        return self._frame("clients")

    def document(self, name: str) -> Fields | None:
        """Return the document of a diagnostic."""
        document: Fields | None = self.documents.get(name)
        return document


def as_published(run: Run) -> Run:
    """Return a copy of a run without the names of directories on this machine.

    The facts of the run keep the digests of user files.
    """
    config = dict(run.config)
    for key in _DIRECTORIES:
        config.pop(key, None)
    overrides = []
    for text in run.meta.get("overrides", ()):
        key, _, _ = text.partition("=")
        if key not in _DIRECTORIES:
            overrides.append(text)

    meta = {**run.meta, "overrides": overrides}
    content = json.dumps([config, meta], ensure_ascii=False)
    for key in run.meta.get("files", ()):
        for file in np.ravel(run.flat[key]):
            content = content.replace(file, re.sub(".*/(?=.)", "", file))
    config, meta = json.loads(_FOLDERS.sub("", content))
    return replace(run, config=config, meta=meta)


def named_files(run: Run) -> Tree:
    """Return the user files of a run by dotted key, as file names with abbreviated digests."""
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
        runs: Runs of the report by path below the directory of runs.
        keep: Function that returns the kept parts of a finished run. For other runs, only the
            configuration and the facts are kept.
        damaged: Messages about runs that cannot be read.
    """
    place = folder / FOLDER
    pending = {path: _row(path, run, keep) for path, run in runs.items()}
    contents = _written_before(place, pending)
    by_experiment: dict[str, list[Fields]] = {}
    for path, row in pending.items():
        experiment = runs[path].meta["experiment"] or "others"
        by_experiment.setdefault(experiment, []).append(row)
    for experiment, rows in by_experiment.items():
        content = _parquet(_experiment_table(rows))
        contents[f"{_RUNS}/{experiment}/{_short_digest(content)}.parquet"] = content

    for old in place.rglob("*"):
        if old.is_file() and old.relative_to(place).as_posix() not in contents:
            old.unlink()
    digests = {}
    for name, content in sorted(contents.items()):
        digests[name] = _sha256(content)
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        replace_file(place / name, content)

    facts = {"format": FORMAT, "damaged": damaged, "files": digests}
    place.mkdir(parents=True, exist_ok=True)
    # written last, so that an incomplete bundle has no manifest
    replace_file(place / _MANIFEST, json.dumps(facts, indent=1) + "\n")


def _written_before(
    place: Path,
    pending: dict[str, Fields],
) -> dict[str, bytes]:
    """Return the contents of up-to-date files, and remove their runs from ``pending``.

    Args:
        place: Directory of the bundle.
        pending: Rows of all runs by path.
    """
    contents: dict[str, bytes] = {}
    for file in sorted((place / _RUNS).rglob("*.parquet")):
        content = file.read_bytes()
        if _short_digest(content) != file.stem:
            continue
        written = pq.read_table(pa.BufferReader(content))
        paths = [path for path in written["path"].to_pylist() if path in pending]
        if _experiment_table([pending[path] for path in paths]).equals(written):
            contents[file.relative_to(place).as_posix()] = content
            for path in paths:
                del pending[path]
    return contents


def _row(
    path: str,
    run: Run,
    keep: Callable[[Run], Kept],
) -> Fields:
    """Return the row of a run: JSON texts, and the run's tables as Arrow tables."""
    documents: dict[str, Fields] = {}
    tables: dict[str, pa.Table] = {}
    if run.done:
        tables = _tables(run, keep(run))
        for name in DOCUMENTS:
            if (document := run.document(name)) is not None:
                documents[name] = document
    return {
        "path": path,
        "config": json.dumps(run.config),
        "meta": json.dumps(run.meta),
        "documents": json.dumps(documents),
        **tables,
    }


def _experiment_table(rows: Sequence[Fields]) -> pa.Table:
    """Return the table of an experiment, one row per run; keys missing in a run are null."""
    columns = {}
    for name in ("path", *_TEXTS):
        texts = [row[name] for row in rows]
        columns[name] = pa.array(texts, pa.string())
    for name in _TABLES:
        tables = [row.get(name, _NO_ROUND) for row in rows]
        joined = pa.concat_tables([_NO_ROUND, *tables], promote_options="permissive")
        lengths = map(len, tables)
        offsets = np.cumsum([0, *lengths], dtype=np.int32)
        structs = joined.to_struct_array().combine_chunks()
        columns[name] = pa.ListArray.from_arrays(offsets, structs)
    return pa.table(columns)


def _parquet(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(
        table,
        sink,
        compression="zstd",
        compression_level=19,
        use_dictionary=False,
    )
    return bytes(sink.getvalue())


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _short_digest(content: bytes) -> str:
    return _sha256(content)[:10]


def _tables(run: Run, kept: Kept) -> dict[str, pa.Table]:
    """Return the kept parts of the tables of a finished run."""
    rounds = run.rounds()
    chosen = [rounds["round"].max(), *kept.rounds]
    frames = {"rounds": rounds[rounds["round"].isin(chosen)]}

    names = list(rounds.columns) if kept.curves is None else sorted(kept.curves)
    if isinstance(run, BundledRun):  # the bundle contains no other curves
        names = [name for name in names if name in run.kept_curves]
    if names:
        frames["curves"] = run.curves(names)

    if run.has_clients:
        clients = run.clients()
        if kept.client_rounds is not None:
            chosen = [clients["round"].max(), *kept.client_rounds]
            in_rounds = clients["round"].isin(chosen)
            clients = clients[in_rounds | clients["client"].isin(kept.clients)]
        frames["clients"] = clients

    tables = {}
    for name, frame in frames.items():
        table = pa.Table.from_pandas(frame, preserve_index=False)
        tables[name] = table.replace_schema_metadata(None)
    return tables
