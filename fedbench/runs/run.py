"""A run on disk: its configuration, facts and measurements."""

from __future__ import annotations

import html
import io
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from fedbench.config.targets import present, renamed
from fedbench.core.atomic_files import NotWritten
from fedbench.core.checksums import check_files, content_checksum, read_with_checksum
from fedbench.core.config_values import Tree, from_yaml, leaves
from fedbench.core.errors import reason_of
from fedbench.core.metrics import metric_texts

if TYPE_CHECKING:
    import pandas as pd

Fields = dict[str, Any]
DONE = "DONE"  # file of a complete run, written last
CHECKPOINT = "checkpoint"  # directory with the data needed to resume an incomplete run
LOCK = ".lock"  # lock file, held by the process that is working on the run
STATE = "state"  # directory of the checkpoint from which a longer run continues
# directory in a checkpoint with memory-mapped client states of the process working on the run
CLIENT_STATES = "client_states"
MANIFEST = "manifest.json"  # file of a checkpoint with the checksums of its other files
_END = 2**16  # bytes at the end of rounds.jsonl that are searched for the last line
_IDENTITY = ("experiment", "data", "model", "algo", "hash", "seed")


REMEDY = "force=true"  # repairs a damaged run


class DamagedRun(Exception):
    """A run with unreadable files; the message states the directory, the fault and the remedy."""


def is_done(path: Path) -> bool:
    """Return whether the run in a directory is complete: trained to its last round, or diverged."""
    return (path / DONE).exists()


def error_text(error: BaseException) -> str:
    """Return the message of the error that ended a run."""
    return str(error) if isinstance(error, NotWritten) else f"{type(error).__name__}: {error}"


def run_folders(root: Path) -> list[Path]:
    """Return the directories at and below ``root`` that contain a run, in sorted order."""
    files = (*root.rglob("meta.json"), *root.rglob(DONE))
    return sorted({file.parent for file in files})


def begun_runs(root: Path) -> list[Path]:
    """Return the directories of the runs below a directory that have been started, sorted."""
    return [path for path in run_folders(root) if is_run(path)]


def is_run(path: Path) -> bool:
    """Return whether a directory contains a run that has been started."""
    return is_done(path) or (path / "config.yaml").exists()


def checked_checkpoint(folder: Path) -> dict[str, Any]:
    """Return the manifest of a checkpoint, after checking that no file has changed.

    Raises:
        OSError: If a file of the checkpoint cannot be read.
        ValueError: If a file of the checkpoint has changed.
    """
    content = read_with_checksum(folder / MANIFEST)
    check_files(folder, content["sealed"])
    return content


@dataclass(frozen=True)
class Run:
    """A run in its directory.

    Methods that read files raise DamagedRun if a file cannot be read, or if the run is complete and
    the file has changed since it was written.

    Attributes:
        path: The run's directory. For a run in a bundle, the directory that it would have below the
            bundle, or below the results directory whose published reports include the bundle.
        config: The resolved configuration. Each ``_target_`` is the present path of its function.
        meta: The facts of the run. In ``departures``, each ``_target_`` is a present path as well.
    """

    path: Path
    config: Fields
    meta: Fields

    def __repr__(self) -> str:
        name = f"{self.meta['experiment'] or self.meta['data']} {self.meta['algo']}"
        facts = [f"{self.outcome}, {self.config['rounds']} rounds"]
        try:
            if self.counts and (accuracy := self.last_round()["accuracy_mean"]) is not None:
                facts.append(f"accuracy {100 * accuracy:.2f} %")
        except DamagedRun:
            facts.append("damaged")
        return f"<Run {name} seed {self.meta['seed']}: {', '.join(facts)}>"

    def _repr_html_(self) -> str:
        """Return the numbers of the last evaluated round as a table, which a notebook shows."""
        try:
            numbers = metric_texts(self.last_round()) if self.begun else {}
        except DamagedRun as error:
            numbers = {"damaged": str(error)}
        rows = []
        for label, text in numbers.items():
            rows.append(f"<tr><th>{html.escape(label)}</th><td>{html.escape(text)}</td></tr>")
        return f"<table><caption>{html.escape(repr(self))}</caption>{''.join(rows)}</table>"

    @property
    def place(self) -> Path:
        """The existing directory: the run's own, or that of the report in which it is published."""
        return self.path

    @property
    def identity(self) -> tuple[Any, ...]:
        """The setting and the seed, which are the same for copies of the run."""
        return tuple(self.meta.get(k) for k in _IDENTITY)

    @property
    def done(self) -> bool:
        """Whether the run is complete: trained to its last round, or diverged."""
        return is_done(self.path)

    @property
    def outcome(self) -> str:
        """The outcome of the run: done, diverged, failed or not finished."""
        status = str(self.meta["status"])
        if status in ("running", "interrupted") or (status == "done" and not self.done):
            return "not finished"
        return status

    @property
    def counts(self) -> bool:
        """Whether averages include the run: it is complete and did not diverge."""
        return self.outcome == "done"

    @property
    def unofficial(self) -> tuple[str, ...]:
        """Notes on data that were read from files other than the publisher's."""
        return tuple(self.meta.get("unofficial", ()))

    @property
    def sampled(self) -> tuple[str, ...]:
        """A note for tables on the evaluated sample of clients; empty if all were evaluated."""
        size = self.meta.get("evaluated_clients")
        if size is None:
            return ()
        return (f"evaluated on a sample of {size} of {self.meta['clients']} clients",)

    @property
    def seconds(self) -> float:
        """Seconds of training and evaluation."""
        last = self.last_round()
        return float(last["seconds_train"] + last["seconds_eval"])

    @cached_property
    def flat(self) -> Tree:
        """The configuration by dotted key; it must not be modified."""
        return leaves(self.config)

    @cached_property
    def series(self) -> dict[str, pd.Series]:
        """Cache of series over the rounds computed from the run's files; initially empty."""
        return {}

    @property
    def begun(self) -> bool:
        """Whether a round has been recorded."""
        file = self.path / "rounds.jsonl"
        return self.done or (file.exists() and file.stat().st_size > 0)

    @property
    def has_clients(self) -> bool:
        """Whether the run has a per-client table."""
        return self._has("clients.parquet")

    def _has(self, name: str) -> bool:
        """Return whether the run has a file or, if it is complete, had it when it ended."""
        with _reading(self.path / DONE):
            sealed = _sealed(self.path)
        if sealed is None:
            return (self.path / name).exists()
        return name in sealed

    def rounds(self) -> pd.DataFrame:
        """Return one row per evaluated round; a key that is null in all rounds contains None.

        For a run in a bundle, the rows are the rounds that are kept with all their keys.
        """
        return self._rounds.copy()

    @cached_property
    def _rounds(self) -> pd.DataFrame:
        import pyarrow.json

        with _reading(self.path / "rounds.jsonl") as file:
            content = _content(file)
            whole = content[: content.rfind(b"\n") + 1]
            if not whole:
                raise ValueError("it has no round")
            # a single block, so that each column has one type
            options = pyarrow.json.ReadOptions(use_threads=False, block_size=len(whole))
            rows = pyarrow.json.read_json(io.BytesIO(whole), read_options=options)
            table: pd.DataFrame = rows.to_pandas()
            rounds = table["round"]
            if not rounds.is_monotonic_increasing or not rounds.is_unique:
                raise ValueError("its rounds do not ascend: two processes have written to it")
            last = int(rounds.iloc[-1])
            expected = self.meta.get("rounds", last)
            if self.done and expected != last:
                raise ValueError(f"it ends with round {last}, and the run with round {expected}")
            return table

    def curves(self, names: Sequence[str]) -> pd.DataFrame:
        """Return the column ``round`` and the given keys for all evaluated rounds.

        Keys that are missing in the run are left out.

        Raises:
            RequestError: If the run is in a bundle that keeps one of the keys for some rounds only.
        """
        columns = dict.fromkeys(("round", *names))
        return self._rounds[[name for name in columns if name in self._rounds]]

    def last_round(self) -> Fields:
        """Return the last evaluated round, a line of ``rounds.jsonl``."""
        return dict(self._last_round)

    @cached_property
    def _last_round(self) -> Fields:
        with _reading(self.path / "rounds.jsonl") as file:
            row = _last_line(_content(file))
            if row is None:
                raise ValueError("it has no round")
            return row

    def clients(self) -> pd.DataFrame:
        """Return the per-client table of all kept rounds."""
        import pandas as pd

        with _reading(self.path / "clients.parquet") as file:
            return pd.read_parquet(io.BytesIO(_content(file)))

    def last_clients(self) -> pd.DataFrame:
        """Return the per-client table of the last kept round."""
        table = self.clients()
        return table[table["round"].eq(table["round"].max())]

    def accuracy_of(self, client: int) -> float | None:
        """Return a client's accuracy in the last kept round, in [0, 1], or None if missing."""
        table = self.last_clients()
        accuracy = table.loc[table["client"] == client, "accuracy"].dropna()
        return float(accuracy.iloc[0]) if len(accuracy) else None

    def document(self, name: str) -> Fields | None:
        """Return the document of a diagnostic, or None if the run has none."""
        if not self._has(f"{name}.json"):
            return None
        with _reading(self.path / f"{name}.json") as file:
            document: Fields = json.loads(_content(file))
            return document

    def verify(self) -> None:
        """Compare all files of a complete run with their checksums.

        The checksums are those in DONE and those in the manifest of a kept state.

        Raises:
            DamagedRun: If a file is missing or has changed.
        """
        with _reading(self.path / DONE) as file:
            check_files(self.path, read_with_checksum(file)["sealed"])
        if (self.path / STATE).exists():
            with _reading(self.path / STATE):
                checked_checkpoint(self.path / STATE)


@contextmanager
def _reading(file: Path) -> Iterator[Path]:
    """Turn errors that occur while reading a run's file into ``DamagedRun``."""
    try:
        yield file
    except (OSError, ValueError, KeyError, TypeError, yaml.YAMLError) as error:
        fault = getattr(error, "strerror", None) or reason_of(error)
        damaged = Path(getattr(error, "filename", None) or file)
        message = f"{file.parent}: {damaged.name}: {fault}; {REMEDY} trains it again"
        raise DamagedRun(message) from error


def _sealed(path: Path) -> Fields | None:
    """Return the checksums of a complete run's files by name, or None if it is not complete."""
    if not is_done(path):
        return None
    sealed: Fields = read_with_checksum(path / DONE)["sealed"]
    return sealed


def _content(file: Path) -> bytes:
    """Return the content of a run's file, which must match its checksum if the run is complete.

    Raises:
        OSError: If the file cannot be read.
        ValueError: If the file has changed since it was written.
    """
    sealed = _sealed(file.parent)  # read first: once DONE exists, nothing more is written
    content = file.read_bytes()
    if sealed is not None and content_checksum(content) != sealed.get(file.name):
        raise ValueError("it has changed since it was written: its checksum differs")
    return content


def read_run(path: Path) -> Run:
    """Return the run in the directory ``path``.

    Raises:
        DamagedRun: If the configuration or the facts of the run cannot be read, or if the run is
            complete and they have changed.
    """
    with _reading(path / "config.yaml") as file:
        config = from_yaml(_content(file).decode())
        if not isinstance(config, dict) or not isinstance(config.get("rounds"), int):
            raise ValueError("rounds is missing")
    with _reading(path / "meta.json") as file:
        meta = json.loads(_content(file))
        for key in ("status", *_IDENTITY):
            if key not in meta:
                raise ValueError(f"{key} is missing")
    return Run(path, *with_present_names(config, meta))


def with_present_names(config: Fields, meta: Fields) -> tuple[Fields, Fields]:
    """Return the configuration and the facts of a run, with the present paths of functions."""
    departures = {}
    for key, change in meta.get("departures", {}).items():
        departures[key] = change
        if key.endswith("._target_"):
            departures[key] = [present(v) if isinstance(v, str) else v for v in change]
    if departures:
        meta = meta | {"departures": departures}
    return renamed(config, present), meta


def last_row(file: Path) -> Fields | None:
    """Return the last complete line of a ``rounds.jsonl``, or None if there is no line or file.

    Raises:
        OSError: If the file cannot be read.
        ValueError: If the line is not JSON.
    """
    if not file.exists():
        return None
    with file.open("rb") as content:
        content.seek(max(0, file.stat().st_size - _END))
        return _last_line(content.read())


def _last_line(content: bytes) -> Fields | None:
    """Return the last complete line in a part of ``rounds.jsonl``, or None if there is none."""
    whole, _, _ = content.rpartition(b"\n")
    _, _, last = whole.rpartition(b"\n")
    row: Fields | None = json.loads(last) if last else None
    return row
