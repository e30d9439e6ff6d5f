"""Bundles: the evidence behind a published report, stored in its folder ``evidence``.

| file | content |
| --- | --- |
| ``runs/<experiment>/<digest>.parquet`` | runs of an experiment, one row per run |
| ``bundle.json`` | the format, the SHA-256 of all other files, and messages about damaged runs |

Further JSON files may be next to ``bundle.json``. A row contains the run's ``path``, the JSON texts
``config``, ``meta`` and ``documents``, and three tables as lists:

| column | rows |
| --- | --- |
| ``rounds`` | the kept rounds, with all their keys |
| ``curves`` | all evaluated rounds, with the keys that are kept for all rounds |
| ``clients`` | the kept rounds and clients |

Files are written once: publishing further runs adds files and leaves existing files unchanged, so a
clone grows only by the new runs. Numbers have full precision, and a report created from the bundle
equals the report with which the bundle was published.

A bundle may come from anybody, so it is only data. Names of files stay below its folder, sizes are
limited before anything is read, tables have the columns above, and nothing that a bundle
names is imported.
"""

import hashlib
import json
import re
import stat
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from pathlib import Path, PurePosixPath

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from fedbench.core.atomic_files import replace_file
from fedbench.core.config_values import Tree, config_value
from fedbench.core.errors import RequestError, shown
from fedbench.core.files import reading
from fedbench.runs.run import Fields, Run, with_present_names

FOLDER = "evidence"
FORMAT = 2
DOCUMENTS = ("moments",)  # kept documents of diagnostics
MANIFEST = "bundle.json"
MOST_BYTES = 2**30  # limit for all files of a bundle
MOST_MANIFEST_BYTES = 2**22
_MOST_FILES = 10_000
_MOST_RUNS = 100_000  # limit for a Parquet file
_MOST_VALUES = 2**28  # limit for the values in the tables of a Parquet file
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
        remedy: Advice for the user if the bundle is refused. If None, that for a report.

    Attributes:
        damaged: Messages about runs that could not be read when the bundle was written.
        names: Names of the files that the manifest lists.

    Raises:
        RequestError: If a file is missing, too large, outside the bundle's folder or changed since
            it was written.
    """

    def __init__(
        self,
        root: Path,
        home: Path | None = None,
        remedy: str | None = None,
    ) -> None:
        self.root = root
        self.home = root if home is None else home
        self._place = root / FOLDER
        self._remedy = remedy or (
            "restore the folder from version control, or write it again with: "
            f"fedbench report RUNS --into {root}"
        )
        self.names: list[str] = []
        with self._reading():
            facts = read_manifest(self._place)
            self.damaged: list[str] = facts["damaged"]
            left = MOST_BYTES
            for name, digest in facts["files"].items():
                left -= self._checked(name, digest, left)
                self.names.append(name)

    def _reading(self) -> AbstractContextManager[None]:
        return reading(self._place, remedy=self._remedy)

    def _checked(
        self,
        name: str,
        digest: str,
        most_bytes: int,
    ) -> int:
        """Check a file, and return its size.

        Raises:
            OSError: If the file cannot be read.
            ValueError: If the file is too large, outside the folder or another file.
        """
        content = _content(self._place, name, most_bytes)
        actual = _sha256(content)
        if actual != digest:
            raise ValueError(
                f"{name} is not the file that {MANIFEST} was written for: its SHA-256 is {actual} "
                f"instead of {digest}"
            )
        if _has_runs(name):
            if not digest.startswith(PurePosixPath(name).stem):
                raise ValueError(f"{name} is not named after its SHA-256, {digest}")
            _check_table(name, content)
        return len(content)

    def text(self, name: str) -> str:
        """Return the text of a further file.

        Raises:
            RequestError: If the bundle has no such file, or it cannot be read.
        """
        with self._reading():
            if name not in self.names:
                raise ValueError(f"{MANIFEST} does not list {name}")
            return (self._place / name).read_text(encoding="utf-8")

    def runs(self) -> list[Run]:
        """Return all runs, sorted by path.

        Raises:
            RequestError: If the facts of a run cannot be read.
        """
        runs: list[Run] = []
        with self._reading():
            for name in filter(_has_runs, self.names):
                runs += self._runs_in(self._place / name)
        return sorted(runs, key=lambda run: run.path)

    def _runs_in(self, file: Path) -> Iterator[Run]:
        """Yield the runs in a Parquet file."""
        rows = pq.read_table(file, columns=["path", *_TEXTS]).to_pylist()
        for number, row in enumerate(rows):
            config, meta, documents = [json.loads(row[name]) for name in _TEXTS]
            config, meta = with_present_names(config, meta)
            path = self.home / _relative(row["path"])
            yield BundledRun(path, config, meta, self.root, file, number, documents)


def read_manifest(place: Path) -> Fields:
    """Return the manifest of a bundle, after checking the names and checksums in it.

    Args:
        place: Folder of the bundle.

    Raises:
        OSError: If the manifest cannot be read.
        ValueError: If the manifest has another format, too many files, a name that leads outside
            the folder, or a checksum that is not a SHA-256.
    """
    facts = json.loads(_content(place, MANIFEST, MOST_MANIFEST_BYTES))
    version = facts["format"]
    if version != FORMAT:
        raise ValueError(f"it has format {version!r}, and this version reads {FORMAT}")
    files = facts["files"]
    if len(files) > _MOST_FILES:
        raise ValueError(f"{MANIFEST} lists {len(files)} files, and {_MOST_FILES} are allowed")
    for name, digest in files.items():
        _relative(name)
        if not re.fullmatch("[0-9a-f]{64}", digest):
            raise ValueError(f"{MANIFEST} has for {name} {shown(digest)}, which is no SHA-256")
    return dict(facts)


def _content(
    place: Path,
    name: str,
    most_bytes: int,
) -> bytes:
    """Return the content of a file below a folder.

    Raises:
        OSError: If the file cannot be read.
        ValueError: If the file is a link out of the folder, is not a regular file or is too large.
    """
    file = place / name
    if not file.resolve().is_relative_to(place.resolve()):
        raise ValueError(f"{name} is a link that leads outside the folder")
    facts = file.stat()
    if not stat.S_ISREG(facts.st_mode):
        raise ValueError(f"{name} is not a regular file")
    if facts.st_size > most_bytes:
        raise ValueError(
            f"{name} has {facts.st_size} bytes, and {most_bytes} are left of those allowed"
        )
    return file.read_bytes()


def _relative(name: str) -> str:
    """Return a path below a folder.

    Raises:
        ValueError: If the path is absolute, leads upwards or is not in its plain form.
    """
    path = PurePosixPath(name)
    is_plain = name.isprintable() and "\\" not in name and str(path) == name != "."
    if not is_plain or path.is_absolute() or ".." in path.parts:
        raise ValueError(f"the name {shown(name)} does not lead to a place below the folder")
    return name


def _has_runs(name: str) -> bool:
    return name.startswith(f"{_RUNS}/")


def _check_table(name: str, content: bytes) -> None:
    """Check the columns and the size of a Parquet file before any of its values is read.

    Raises:
        ValueError: If the file is not Parquet, is too large or has other columns.
    """
    file = pq.ParquetFile(pa.BufferReader(content))
    facts = file.metadata
    values = 0
    for group in map(facts.row_group, range(facts.num_row_groups)):
        values += group.total_byte_size
        values += sum(group.column(k).num_values for k in range(group.num_columns))
    if facts.num_rows > _MOST_RUNS or values > _MOST_VALUES:
        raise ValueError(
            f"{name} declares {facts.num_rows} runs and {values} values and bytes; {_MOST_RUNS} "
            f"and {_MOST_VALUES} are allowed"
        )
    schema = file.schema_arrow
    plain = dict.fromkeys(("path", *_TEXTS), pa.types.is_string)
    expected = plain | dict.fromkeys(_TABLES, _is_table)
    if schema.names != list(expected):
        raise ValueError(f"{name} has the columns {shown(schema.names)} instead of {[*expected]}")
    for column, is_expected in expected.items():
        if not is_expected(schema.field(column).type):
            raise ValueError(f"{name}: the column {column} has values of another type")


def _is_table(kind: pa.DataType) -> bool:
    is_table: bool = pa.types.is_list(kind) and pa.types.is_struct(kind.value_type)
    return is_table


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
    config, meta = json.loads(without_folders(content))
    return replace(run, config=config, meta=meta)


def without_folders(text: str) -> str:
    """Return a text without the folders of absolute paths."""
    return _FOLDERS.sub("", text)


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
    texts: Mapping[str, str] | None = None,
) -> None:
    """Write the bundle of a published report.

    Args:
        folder: Directory of the report.
        runs: Runs of the report by path below the directory of runs.
        keep: Function that returns the kept parts of a finished run. For other runs, only the
            configuration and the facts are kept.
        damaged: Messages about runs that cannot be read.
        texts: Texts of further files by name.
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
    for name, text in (texts or {}).items():
        contents[name] = text.encode()

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
    replace_file(place / MANIFEST, json.dumps(facts, indent=1) + "\n")


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
