"""Writing bundles (``fedbench.runs.bundle``): what a report has read of its runs is kept, and nothing else."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedbench.core.writing import replace_bytes
from fedbench.runs.bundle import FOLDER, FORMAT, BundledRecords, manifest
from fedbench.runs.records import Fields, Records
from fedbench.runs.store import Run

if TYPE_CHECKING:
    import pandas as pd

_LEVEL = 19  # of zstd: bundles are written once
_DIRECTORIES = ("results_dir", "data_dir")  # of the machine, which are no part of a published run


class Watched:
    """The records of a run, which note what is read of them.

    Attributes:
        curves_read: Keys that were read at all evaluated rounds.
        documents_read: Names of the documents that were read.
        clients_read: Whether the per-client table of all kept rounds was read.
    """

    def __init__(self, records: Records) -> None:
        self.records = records
        self.curves_read: set[str] = set()
        self.documents_read: set[str] = set()
        self.clients_read = False

    @property
    def place(self) -> Path:
        """The directory that exists."""
        return self.records.place

    @property
    def done(self) -> bool:
        """Whether the run is complete."""
        return self.records.done

    @property
    def begun(self) -> bool:
        """Whether a round has been recorded."""
        return self.records.begun

    @property
    def has_clients(self) -> bool:
        """Whether there is a per-client table."""
        return self.records.has_clients

    def last(self) -> Fields:
        """Return the row of the last evaluated round."""
        return self.records.last()

    def rows(self, rounds: Collection[int]) -> list[Fields]:
        """Return the rows of some rounds and of the last one."""
        return self.records.rows(rounds)

    def table(self) -> pd.DataFrame:
        """Return all stored rounds."""
        return self.records.table()

    def curves(self, names: Sequence[str]) -> pd.DataFrame:
        """Return these keys at all evaluated rounds."""
        self.curves_read |= set(names)
        return self.records.curves(names)

    def keep(self, names: Collection[str]) -> None:
        """Keep these keys at all evaluated rounds; those of a run that is read from a bundle, if that has them."""
        lost = self.records.lost(names) if isinstance(self.records, BundledRecords) else ()
        self.curves([name for name in names if name not in lost])

    def clients(self) -> pd.DataFrame:
        """Return the per-client table of all kept rounds."""
        self.clients_read = True
        return self.records.clients()

    def clients_at(self, rounds: Collection[int] = ()) -> pd.DataFrame:
        """Return the per-client table of the last kept round and of others."""
        return self.records.clients_at(rounds)

    def accuracy_of(self, client: int) -> float | None:
        """Return the accuracy of a client in the last kept round."""
        return self.records.accuracy_of(client)

    def document(self, name: str) -> Fields | None:
        """Return the document of a diagnostic."""
        self.documents_read.add(name)
        return self.records.document(name)


def watched(run: Run) -> Run:
    """Return a run to publish: its records note what is read, and it names no directories of this machine."""
    config = {k: v for k, v in run.config.items() if k not in _DIRECTORIES}
    typed = [o for o in run.meta.get("overrides", ()) if o.partition("=")[0] not in _DIRECTORIES]
    meta = {**run.meta, **({"overrides": typed} if "overrides" in run.meta else {})}
    return replace(run, config=config, meta=meta, stored=Watched(run.records))


@dataclass(frozen=True)
class Entry:
    """A run to publish.

    Attributes:
        run: The run, after the report has read what it needs of it.
        path: Its path below the directory of runs.
        rounds: Rounds of which all keys are kept, in addition to the last one.
        client_rounds: Rounds of which the per-client table is kept if the run has it, in addition to the last one.
    """

    run: Run
    path: str
    rounds: frozenset[int] = frozenset()
    client_rounds: frozenset[int] = frozenset()


def write_bundle(folder: Path, entries: Sequence[Entry], damaged: Sequence[str], files: Mapping[str, bytes]) -> None:
    """Write the bundle of a published report.

    Args:
        folder: Directory of the report.
        entries: Its runs; their records are ``Watched``.
        damaged: Messages about runs that cannot be read.
        files: Further files by name below the bundle: the plan and the label counts.
    """
    contents = {**{f"{name}.parquet": content for name, content in _tables(entries).items()}, **files}
    facts = {
        "format": FORMAT,
        "damaged": list(damaged),
        "files": {name: hashlib.sha256(content).hexdigest() for name, content in sorted(contents.items())},
    }
    place = folder / FOLDER
    manifest(folder).unlink(missing_ok=True)  # written last: half a bundle has none
    for old in place.rglob("*"):
        if old.is_file() and old.relative_to(place).as_posix() not in contents:
            old.unlink()
    for name, content in contents.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        replace_bytes(place / name, content)
    replace_bytes(manifest(folder), (json.dumps(facts, indent=1) + "\n").encode())


def _tables(entries: Sequence[Entry]) -> dict[str, bytes]:
    """Return the content of the Parquet files."""
    runs: list[Fields] = []
    rounds: list[Fields] = []
    curves: list[Any] = []
    clients: list[Any] = []
    for number, entry in enumerate(entries):
        records = entry.run.records
        assert isinstance(records, Watched)
        rows = records.rows(entry.rounds) if records.done else []
        drawn = records.curves(sorted(records.curves_read)) if records.curves_read else None
        table = _clients(records, entry) if records.done and records.has_clients else None
        documents = {name: records.document(name) for name in sorted(records.documents_read)}
        rounds += [{"run": number, **row} for row in rows]
        for found, tables in ((drawn, curves), (table, clients)):
            if found is not None:
                tables.append(found.assign(run=number))
        facts = {
            "config": entry.run.config,
            "meta": entry.run.meta,
            "documents": {k: v for k, v in documents.items() if v is not None},
            "keys": list(dict.fromkeys(k for row in rows for k in row)),
            "curves": [] if drawn is None else list(drawn.columns),
            "client_columns": None if table is None else list(table.columns),
        }
        texts = {k: json.dumps(v) for k, v in facts.items()}
        runs.append({"path": entry.path, "done": records.done, "all_clients": records.clients_read, **texts})
    return {
        "runs": _of_rows(runs),
        "rounds": _of_rows(rounds),
        "curves": _of_frames(curves),
        "clients": _of_frames(clients),
    }


def _clients(records: Watched, entry: Entry) -> pd.DataFrame:
    return records.records.clients() if records.clients_read else records.clients_at(entry.client_rounds)


def _of_rows(rows: Sequence[Fields]) -> bytes:
    """Return rows as Parquet; a key whose values are not of one simple type is JSON text, which its metadata say."""
    import pyarrow as pa

    columns, fields = [], []
    for key in dict.fromkeys(k for row in rows for k in row):
        values = [row.get(key) for row in rows]
        kinds = {type(v) for v in values if v is not None}
        plain = len(kinds) < 2 and kinds <= {bool, int, float, str} and not any(_huge(v) for v in values)
        columns.append(pa.array(values if plain else [None if v is None else json.dumps(v) for v in values]))
        fields.append(pa.field(key, columns[-1].type, metadata=None if plain else {"json": "true"}))
    return _parquet(pa.table(columns, schema=pa.schema(fields)))


def _huge(value: Any) -> bool:
    return isinstance(value, int) and abs(value) >= 2**63


def _of_frames(frames: Sequence[pd.DataFrame]) -> bytes:
    """Return frames, each with the column ``run``, as one table in Parquet."""
    import pyarrow as pa

    tables = [pa.Table.from_pandas(f, preserve_index=False).replace_schema_metadata(None) for f in frames]
    empty = pa.table({"run": pa.array([], pa.int64())})
    return _parquet(pa.concat_tables(tables, promote_options="permissive") if tables else empty)


def _parquet(table: Any) -> bytes:
    """Return a table as Parquet; columns of many different numbers are split into streams of bytes."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    def many(name: str) -> bool:
        column = table[name]
        return bool(pa.types.is_floating(column.type) and 8 * len(column.unique()) > len(column))

    split = [name for name in table.column_names if many(name)]
    sink = pa.BufferOutputStream()
    pq.write_table(
        table,
        sink,
        compression="zstd",
        compression_level=_LEVEL,
        use_dictionary=[name for name in table.column_names if name not in split],
        column_encoding=dict.fromkeys(split, "BYTE_STREAM_SPLIT"),
    )
    return bytes(sink.getvalue())
