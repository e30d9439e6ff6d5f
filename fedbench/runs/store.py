"""A run on disk: appended as it happens, complete when DONE exists, readable without the code that made it.

Each file is written under a temporary name and renamed, so that neither a reader nor a run that is killed leaves or
finds half of a file. Only ``rounds.jsonl`` grows in place; a resumed run cuts it back to its checkpoint.
"""

from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TextIO

import yaml

from fedbench.config.names import present, renamed
from fedbench.core.errors import shown
from fedbench.core.sealing import check, from_text, seal, to_disk, to_text
from fedbench.core.trees import from_json, from_yaml
from fedbench.runs.checkpoints import Checkpoint, Checkpoints

if TYPE_CHECKING:
    import pandas as pd
    from torch import Tensor

Fields = dict[str, Any]
_IDENTITY = ("experiment", "data", "model", "algo", "hash", "seed")
_DONE = "DONE"  # written last
_END = 16384  # bytes of rounds.jsonl in which its last line is looked for first
_MODELS = ("model.safetensors", "personal.safetensors")
_SEALED = {"config.yaml", "meta.json", "rounds.jsonl", "clients.parquet", *_MODELS}  # and the documents of diagnostics


def replace_file(path: Path, text: str) -> None:
    """Write ``text`` to ``path`` in one step."""
    replace_bytes(path, text.encode())


def replace_bytes(path: Path, content: bytes) -> None:
    """Write ``content`` to ``path`` in one step."""
    with _replacing(path) as part:
        part.write_bytes(content)


@contextmanager
def _replacing(path: Path) -> Iterator[Path]:
    """Give a temporary path, which replaces ``path`` at the end of this block, and is removed if that fails."""
    part = path.with_name(path.name + ".part")
    try:
        yield part
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)  # on a full disk, half of a large file would stay in the way
        raise


def to_json(value: Mapping[str, Any], indent: int | None = None) -> str:
    """Return JSON text; numbers that JSON cannot express (NaN, infinities) become null."""
    return json.dumps(_finite(value), indent=indent, allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {k: _finite(v) for k, v in value.items()}
    return [_finite(v) for v in value] if isinstance(value, list | tuple) else value


def is_done(path: Path) -> bool:
    """Return whether the run in a directory is complete: trained to its last round, or diverged."""
    return (path / _DONE).exists()


class DamagedRun(Exception):
    """A run's files cannot be read; the message gives the directory, the fault and the remedy."""


def _damaged(path: Path, fault: object) -> DamagedRun:
    return DamagedRun(f"{path}: {fault}; force=true trains it again")


class Recorder:
    """Writes one run.

    Args:
        path: The run's directory, created if it does not exist.
    """

    def __init__(self, path: Path) -> None:
        path.mkdir(parents=True, exist_ok=True)
        self.path = path
        self._rounds: TextIO | None = None
        self._checkpoints = Checkpoints(path / "checkpoint", path / "rounds.jsonl")

    def clear(self) -> None:
        """Remove the files of an earlier run."""
        from fedbench.simulation.diagnostics import DIAGNOSTICS  # imports torch

        documents = (f"{name}.json" for name in ("meta", *DIAGNOSTICS))
        for name in (_DONE, "rounds.jsonl", "clients.parquet", *_MODELS, "config.yaml", *documents):
            (self.path / name).unlink(missing_ok=True)
        shutil.rmtree(self._checkpoints.folder, ignore_errors=True)
        self._checkpoints = Checkpoints(self._checkpoints.folder, self._checkpoints.rounds)

    def write_config(self, config: Fields) -> None:
        """Write the resolved configuration."""
        replace_file(self.path / "config.yaml", yaml.safe_dump(config, sort_keys=False))

    def write_meta(self, meta: Fields) -> None:
        """Write ``meta.json``, the facts of the run."""
        replace_file(self.path / "meta.json", to_json(meta, indent=2) + "\n")

    def write_document(self, name: str, content: Fields) -> None:
        """Write the document of a diagnostic to ``<name>.json``."""
        replace_file(self.path / f"{name}.json", to_json(content) + "\n")

    def append(self, row: Fields) -> None:
        """Append a line to ``rounds.jsonl``."""
        if self._rounds is None:
            self._rounds = (self.path / "rounds.jsonl").open("a", encoding="utf-8")
        self._rounds.write(to_json(row) + "\n")
        self._rounds.flush()

    def keep_clients(self, round: int, columns: Mapping[str, Any]) -> None:
        """Keep the per-client table of a round until the run is done."""
        import pandas as pd

        self._checkpoints.folder.mkdir(exist_ok=True)
        table = pd.DataFrame(
            {"round": round, **{k: list(v) if isinstance(v, tuple) else v for k, v in columns.items()}}
        )
        with _replacing(self._checkpoints.folder / f"clients_{round:09d}.parquet") as part:
            table.to_parquet(part, index=False)

    def save(self, checkpoint: Checkpoint) -> None:
        """Write a checkpoint in place of the previous one."""
        self._checkpoints.save(checkpoint)

    def load(self) -> Checkpoint | None:
        """Return the checkpoint of an unfinished run and cut its files back to it; None if there is no checkpoint.

        Raises:
            DamagedRun: If a part of the checkpoint, or what rounds.jsonl had when it was written, is missing or has
                changed.
        """
        try:
            return self._checkpoints.load()
        except (OSError, ValueError) as error:
            raise DamagedRun(f"{self.path}: {error}") from error

    def finish(self, model: Mapping[str, Tensor], personal: Mapping[str, Tensor] | None, meta: Fields) -> None:
        """Write the model, the clients' own models if any, the per-client table, the final facts, and last DONE.

        DONE has the checksums of all these files; they are on the disk, in the sense of fsync, before it is.
        """
        import pandas as pd

        from fedbench.runs.tensors import save_tensors  # imports torch
        from fedbench.simulation.diagnostics import DIAGNOSTICS

        self.close()
        for name, tensors in (("model", model), ("personal", personal)):
            if tensors is not None:
                with _replacing(self.path / f"{name}.safetensors") as part:
                    save_tensors(tensors, part)
        if kept := self._checkpoints.tables:
            with _replacing(self.path / "clients.parquet") as part:
                pd.concat([pd.read_parquet(k) for k in kept]).to_parquet(part, index=False)
        self.write_meta(meta | {"sealed": True})
        sealed = {}
        for file in sorted(p for p in self.path.iterdir() if p.name in _SEALED or p.stem in DIAGNOSTICS):
            sealed[file.name] = seal(file)
            to_disk(file)
        replace_file(self.path / _DONE, to_text({"sealed": sealed}))
        to_disk(self.path / _DONE)
        to_disk(self.path)
        shutil.rmtree(self._checkpoints.folder, ignore_errors=True)

    def close(self) -> None:
        """Close ``rounds.jsonl``."""
        if self._rounds is not None:
            self._rounds.close()
            self._rounds = None


class Records(Protocol):
    """What a run has recorded, wherever it is stored. Methods raise DamagedRun if a file cannot be read."""

    @property
    def done(self) -> bool:
        """Whether the run is complete: trained to its last round, or diverged."""

    @property
    def begun(self) -> bool:
        """Whether a round has been recorded."""

    @property
    def has_clients(self) -> bool:
        """Whether there is a per-client table."""

    def rows(self, which: slice = slice(None)) -> list[Fields]:
        """Return the stored rows of the evaluated rounds, in order, the last one among them."""

    def curves(self, names: Sequence[str]) -> pd.DataFrame:
        """Return the column ``round`` and these keys at all evaluated rounds; keys never measured are left out."""

    def clients(self) -> pd.DataFrame:
        """Return the per-client table of all rounds that the run kept."""

    def clients_at(self, rounds: Collection[int] = ()) -> pd.DataFrame:
        """Return the per-client table of the last kept round, and of those of ``rounds`` that are stored."""

    def document(self, name: str) -> Fields | None:
        """Return the document of a diagnostic; None if the run has none."""


class RunFolder:
    """The records in a run's own directory."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._compared: dict[str, tuple[int, int]] = {}  # files that had their checksums: size and time
        self._frame: tuple[tuple[int, int], pd.DataFrame] | None = None  # all rounds, of rounds.jsonl as it was then

    @property
    def done(self) -> bool:
        """Whether the run is complete."""
        return is_done(self.path)

    @property
    def begun(self) -> bool:
        """Whether a round has been recorded."""
        return (self.path / "rounds.jsonl").exists()

    @property
    def has_clients(self) -> bool:
        """Whether there is a per-client table."""
        return (self.path / "clients.parquet").exists()

    @property
    def sealed(self) -> bool:
        """Whether DONE has checksums of the run's files."""
        return self.done and (self.path / _DONE).stat().st_size > 0

    def verify(self, *names: str) -> None:
        """Compare files with their checksums in DONE; without names, all that have one.

        Raises:
            DamagedRun: If one of them is missing or has changed.
        """
        stamps = {n: self._stamp(n) for n in names if (self.path / n).exists()}
        known = all(self._compared.get(n) == stamps.get(n, ()) for n in names)
        if (names and known) or not self.sealed:
            return
        try:
            sealed = from_text((self.path / _DONE).read_text(encoding="utf-8"))["sealed"]
            check(self.path, sealed, [n for n in names if n in sealed] if names else None)
            self._compared |= stamps
        except (OSError, ValueError, KeyError) as error:
            raise _damaged(self.path, error) from error

    def _stamp(self, name: str) -> tuple[int, int]:
        facts = (self.path / name).stat()
        return facts.st_size, facts.st_mtime_ns

    def rows(self, which: slice = slice(None)) -> list[Fields]:
        """Return the rows of the evaluated rounds."""
        self.verify("rounds.jsonl")
        try:
            rows: list[Fields] = [from_json(line) for line in self._lines(which)[which]]
            if not rows:
                raise ValueError("it is empty")
        except (OSError, ValueError) as error:
            raise _damaged(self.path, f"rounds.jsonl: {error}") from error
        return rows

    def _lines(self, which: slice) -> list[bytes]:
        """Return the lines of rounds.jsonl; if the last one is wanted, only those of the file's end."""
        with (self.path / "rounds.jsonl").open("rb") as file:
            if which == slice(-1, None):
                file.seek(max(0, file.seek(0, os.SEEK_END) - _END))
                if len(lines := file.read().splitlines()) > 1:
                    return lines
                file.seek(0)
            return file.read().splitlines()

    def curves(self, names: Sequence[str]) -> pd.DataFrame:
        """Return these keys at all evaluated rounds."""
        import pandas as pd

        file = self.path / "rounds.jsonl"
        stamp = self._stamp(file.name) if file.exists() else (0, 0)
        if self._frame is None or self._frame[0] != stamp:
            rows = self.rows()
            keys = dict.fromkeys(key for row in rows for key in row)
            self._frame = stamp, pd.DataFrame({k: [row.get(k) for row in rows] for k in keys})
        table = self._frame[1]
        return table[[name for name in dict.fromkeys(("round", *names)) if name in table]].copy()

    def clients(self) -> pd.DataFrame:
        """Return the per-client table of the kept rounds."""
        import pandas as pd

        self.verify("clients.parquet")
        try:
            table = pd.read_parquet(self.path / "clients.parquet")
            if "round" not in table:
                raise ValueError("it has no column round")
            return table
        except (OSError, ValueError) as error:
            raise _damaged(self.path, f"clients.parquet: {error}") from error

    def clients_at(self, rounds: Collection[int] = ()) -> pd.DataFrame:
        """Return the per-client table of the last kept round and of others."""
        table = self.clients()
        at: pd.DataFrame = table[table["round"].isin([table["round"].max(), *rounds])]
        return at

    def document(self, name: str) -> Fields | None:
        """Return the document of a diagnostic."""
        self.verify(f"{name}.json")
        path = self.path / f"{name}.json"
        return from_json(path.read_text(encoding="utf-8")) if path.exists() else None


@dataclass(frozen=True)
class Run:
    """One run on disk.

    Attributes:
        path: The run's directory; for a run of a bundle, the one that it would have below the bundle.
        config: The resolved configuration; each ``_target_`` is the present path of its function.
        meta: The facts of the run; likewise in ``departures``.
        stored: Its records elsewhere than in its directory; None for those in its directory.
    """

    path: Path
    config: Fields
    meta: Fields
    stored: Records | None = field(default=None, compare=False)

    @cached_property
    def records(self) -> Records:
        """The run's records."""
        return RunFolder(self.path) if self.stored is None else self.stored

    @property
    def done(self) -> bool:
        """Whether the run is complete: trained to its last round, or diverged."""
        return self.records.done

    @property
    def counts(self) -> bool:
        """Whether the run is complete and did not diverge, so that its numbers enter means."""
        return self.outcome == "done"

    @property
    def outcome(self) -> str:
        """What became of the run: done, diverged, failed or not finished."""
        status = str(self.meta["status"])
        unfinished = status in ("running", "interrupted") or (status == "done" and not self.done)
        return "not finished" if unfinished else status

    @property
    def unofficial(self) -> tuple[str, ...]:
        """Sentences on data that were read from other files than the publisher's.

        In runs made before meta.json had the key ``unofficial``, the only trace is a phrase in ``sources``; it is
        searched for here and nowhere else.
        """
        if "unofficial" in self.meta:
            return tuple(self.meta["unofficial"])
        return tuple(s for s in self.meta.get("sources", ()) if "not the official" in s)

    def verify(self) -> None:
        """Compare all files of a complete run with the checksums in DONE; those of older runs have none.

        Raises:
            DamagedRun: If one of them is missing or has changed.
        """
        records = self.records
        if not isinstance(records, RunFolder) or not records.done:  # a bundle has been compared as a whole
            return
        if self.meta.get("sealed") and not records.sealed:
            raise _damaged(self.path, f"{_DONE} is empty")
        records.verify()

    def _compared(self, rows: list[Fields]) -> list[Fields]:
        """Return rows of which the last one is the run's; refuse what cannot be so, in runs without checksums too."""
        try:
            for row in rows:
                _refuse_impossible(row)
            if self.done and (last := rows[-1]["round"]) != self.meta.get("rounds", last):
                raise ValueError(f"it ends with round {last}, and the run with round {self.meta['rounds']}")
        except (ValueError, KeyError, TypeError) as error:
            raise _damaged(self.path, f"rounds.jsonl: {error}") from error
        return rows

    def rounds(self) -> pd.DataFrame:
        """Return one row per evaluated round; for a run of a bundle, per round that is kept with all its keys.

        Raises:
            DamagedRun: If rounds.jsonl cannot be read or has changed.
        """
        import pandas as pd

        return pd.DataFrame(self._compared(self.records.rows()))

    def curves(self, names: Sequence[str]) -> pd.DataFrame:
        """Return the column ``round`` and these keys at all evaluated rounds; keys never measured are left out.

        Raises:
            DamagedRun: If rounds.jsonl cannot be read.
            RequestError: If the run is one of a bundle without these curves.
        """
        return self.records.curves(names)

    def last_round(self) -> Fields:
        """Return the last evaluated round.

        Raises:
            DamagedRun: If rounds.jsonl has no round that can be read.
        """
        return self._compared(self.records.rows(slice(-1, None)))[0]

    def document(self, name: str) -> Fields | None:
        """Return the document of a diagnostic; None if the run has none.

        Raises:
            DamagedRun: If it cannot be read or has changed.
        """
        return self.records.document(name)

    def clients(self) -> pd.DataFrame:
        """Return the per-client table of the kept rounds.

        Raises:
            DamagedRun: If clients.parquet cannot be read.
            RequestError: If the run is one of a bundle with fewer rounds of them.
        """
        return self.records.clients()

    def clients_at(self, rounds: Collection[int] = ()) -> pd.DataFrame:
        """Return the per-client table of the last kept round, and of those of ``rounds`` that are stored.

        Raises:
            DamagedRun: If clients.parquet cannot be read.
        """
        return self.records.clients_at(rounds)


def _refuse_impossible(row: Fields) -> None:
    """Refuse a line of rounds.jsonl with an accuracy that is none."""
    for key, value in row.items():
        if key.startswith("accuracy_") and value is not None and not -1e-9 <= value <= 1 + 1e-9:
            raise ValueError(f"round {row['round']} has the {key} {value}, which is not between 0 and 1")


class ResultStore:
    """Reads the runs below a directory; after an iteration, ``damaged`` has what was left out and why.

    Each message begins with the run's path. All paths in it are relative to the directory, since reports publish it.

    Runs that cannot be read are left out, and so are copies: of runs with one identity and one seed, only the first
    counts.

    Args:
        root: The directory.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.damaged: list[str] = []

    @property
    def place(self) -> Path:
        """Directory of the plan and of the label counts."""
        return self.root

    def __iter__(self) -> Iterator[Run]:
        self.damaged = []
        seen: dict[tuple[Any, ...], Path] = {}
        for meta in sorted(self.root.rglob("meta.json")):
            if not (meta.parent / "config.yaml").exists():
                continue
            try:
                run = read_run(meta.parent)
                if run.done:
                    run.last_round()
            except DamagedRun as error:
                self.damaged.append(self._without_root(str(error)))
                continue
            if run.done:
                first = seen.setdefault(tuple(run.meta.get(k) for k in _IDENTITY), run.path)
                if first != run.path:
                    text = f"{run.path}: a copy of {first}: the same setting and the same seed"
                    self.damaged.append(self._without_root(text))
                    continue
            yield run

    def _without_root(self, text: str) -> str:
        return text.replace(f"{self.root}{os.sep}", "")


def _check_names(meta: Fields) -> None:
    """Refuse facts that do not say which run they are of: another program's, or of a name that is null."""
    for key in ("algo", "hash", "status", "data", "model"):
        if not isinstance(value := meta.get(key, "" if key in ("data", "model") else None), str):
            raise ValueError(f"meta.json: {key} must be text, got {value!r}")
    if not isinstance(meta.get("experiment"), str | None):
        raise ValueError(f"meta.json: experiment must be text or null, got {shown(meta['experiment'])}")
    if not isinstance(meta.get("seed"), int):
        raise ValueError(f"meta.json: seed must be an integer, got {meta.get('seed')!r}")


def read_run(path: Path) -> Run:
    """Return the run in the directory ``path``.

    Raises:
        DamagedRun: If its configuration or its facts cannot be read.
    """
    try:
        config = from_yaml((path / "config.yaml").read_text(encoding="utf-8"))
        meta = from_json((path / "meta.json").read_text(encoding="utf-8"))
        return as_run(path, config, meta)
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise DamagedRun(f"{path}: {' '.join(str(error).split())}; force=true trains it again") from error


def as_run(path: Path, config: Any, meta: Any, stored: Records | None = None) -> Run:
    """Return the run with a configuration and facts as they were written.

    Raises:
        ValueError: If they are not those of a run.
    """
    if not isinstance(config, dict) or not isinstance(meta, dict):
        raise ValueError("config.yaml or meta.json is empty")
    _check_names(meta)
    if "departures" in meta:
        meta["departures"] = _departures_today(meta["departures"])
    return Run(path, renamed(config, present), meta, stored)


def _departures_today(departures: Fields) -> Fields:
    """Return what departs from an experiment, with functions by their present path."""
    return {
        key: [present(v) if isinstance(v, str) else v for v in change] if key.endswith("._target_") else change
        for key, change in departures.items()
    }
