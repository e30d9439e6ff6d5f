"""Writes a run as it happens; it is complete when DONE exists, and readable without the code that made it.

Only ``rounds.jsonl`` grows in place; a resumed run cuts it back to its checkpoint. All other files are replaced.
"""

from __future__ import annotations

import errno
import json
import math
import os
import shutil
from collections.abc import Callable, Mapping
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from fedbench.core.sealing import seal, to_disk, to_text
from fedbench.core.writing import NotWritten, replace_bytes, replace_file, replacing, writing
from fedbench.runs.checkpoints import Checkpoint, Checkpoints
from fedbench.runs.run import DONE, DamagedRun, Fields

if TYPE_CHECKING:
    from torch import Tensor

STATE = "state"  # directory of the state that a longer run goes on from
_MODELS = ("model.safetensors", "personal.safetensors")
_SEALED = {"config.yaml", "meta.json", "rounds.jsonl", "clients.parquet", *_MODELS}  # and the documents of diagnostics


def to_json(value: Mapping[str, Any], indent: int | None = None) -> str:
    """Return JSON text; numbers that JSON cannot express (NaN, infinities) become null."""
    return json.dumps(_finite(value), indent=indent, allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {k: _finite(v) for k, v in value.items()}
    return [_finite(v) for v in value] if isinstance(value, list | tuple) else value


class Recorder:
    """Writes one run.

    Args:
        path: The run's directory, created if it does not exist.
    """

    def __init__(self, path: Path) -> None:
        path.mkdir(parents=True, exist_ok=True)
        self.path = path
        self._rounds: FileIO | None = None
        self._needed: set[str] = set()  # names of files that the run must have at its end
        self._checkpoints = Checkpoints(path / "checkpoint", path / "rounds.jsonl")

    def clear(self) -> None:
        """Remove the files of an earlier run."""
        from fedbench.simulation.diagnostics import DIAGNOSTICS  # imports torch

        documents = (f"{name}.json" for name in ("meta", *DIAGNOSTICS))
        with writing(self.path):
            for name in (DONE, "rounds.jsonl", "clients.parquet", *_MODELS, "config.yaml", *documents):
                (self.path / name).unlink(missing_ok=True)
        for folder in (self._checkpoints.folder, self.path / STATE):
            shutil.rmtree(folder, ignore_errors=True)
        self._checkpoints = Checkpoints(self._checkpoints.folder, self._checkpoints.rounds)

    def write_config(self, config: Fields) -> None:
        """Write the resolved configuration."""
        self._needed.add("config.yaml")
        replace_file(self.path / "config.yaml", yaml.safe_dump(config, sort_keys=False), lasting=True)

    def write_meta(self, meta: Fields) -> None:
        """Write ``meta.json``, the facts of the run."""
        replace_file(self.path / "meta.json", to_json(meta, indent=2) + "\n", lasting=True)

    def write_document(self, name: str, content: Fields) -> None:
        """Write the document of a diagnostic to ``<name>.json``."""
        replace_file(self.path / f"{name}.json", to_json(content) + "\n")

    def append(self, row: Fields) -> None:
        """Append a line to ``rounds.jsonl``, or nothing of it if there is no space."""
        line, place = (to_json(row) + "\n").encode(), self.path / "rounds.jsonl"
        with writing(place, len(line)):
            if self._rounds is None:
                self._rounds = place.open("ab", buffering=0)
                self._needed.add(place.name)
            whole = self._rounds.tell()
            try:
                written = 0
                while written < len(line):  # on a disk that is almost full, the first call writes a part
                    written += self._rounds.write(line[written:])
            except OSError:
                self._rounds.truncate(whole)
                raise

    def keep_clients(self, round: int, columns: Mapping[str, Any]) -> None:
        """Keep the per-client table of a round until the run is done."""
        import pandas as pd

        table = pd.DataFrame(
            {"round": round, **{k: list(v) if isinstance(v, tuple) else v for k, v in columns.items()}}
        )
        with writing(self._checkpoints.folder):
            self._checkpoints.folder.mkdir(exist_ok=True)
        replace_bytes(self._checkpoints.folder / f"clients_{round:09d}.parquet", table.to_parquet(index=False))

    @property
    def begun(self) -> bool:
        """Whether the directory has a checkpoint."""
        return self._checkpoints.exists

    def adopt(self, other: Checkpoints, wanted: Callable[[Fields], bool]) -> int:
        """Begin with the checkpoint of another run and return its round.

        Args:
            other: The checkpoint.
            wanted: Returns whether this run records a row of the other one.

        Raises:
            OSError: If it cannot be copied.
            ValueError: If it has changed since it was written.
        """
        self.clear()
        return self._checkpoints.adopt(other, lambda line: wanted(json.loads(line)))

    def save(self, checkpoint: Checkpoint) -> None:
        """Write a checkpoint in place of the previous one."""
        self._checkpoints.save(checkpoint)

    def load(self) -> Checkpoint | None:
        """Return the checkpoint of an unfinished run and cut its files back to it; None if there is no checkpoint.

        Raises:
            DamagedRun: If a part of the checkpoint, or what rounds.jsonl had when it was written, is missing or has
                changed.
            NotWritten: If the files cannot be cut back.
        """
        try:
            return self._checkpoints.load()
        except NotWritten:
            raise  # the checkpoint is whole
        except (OSError, ValueError) as error:
            raise DamagedRun(f"{self.path}: {error}") from error

    def finish(
        self,
        model: Mapping[str, Tensor],
        personal: Mapping[str, Tensor] | None,
        meta: Fields,
        keep_state: bool = False,
    ) -> None:
        """Write the model, the clients' own models if any, the per-client table, the final facts, and last DONE.

        DONE has the checksums of all these files; they are on the disk, in the sense of fsync, before it is. The
        checkpoint is removed after it, or kept as the state that a longer run goes on from.

        Raises:
            NotWritten: If a file cannot be written, or one that was written is gone.
        """
        import pandas as pd

        from fedbench.runs.tensors import save_tensors  # imports torch
        from fedbench.simulation.diagnostics import DIAGNOSTICS

        self.close()
        for name, tensors in (("model", model), ("personal", personal)):
            if tensors is not None:
                with replacing(self.path / f"{name}.safetensors", sum(v.nbytes for v in tensors.values())) as part:
                    save_tensors(tensors, part)
        if kept := self._checkpoints.tables:
            table = pd.concat([pd.read_parquet(k) for k in kept])
            replace_bytes(self.path / "clients.parquet", table.to_parquet(index=False))
        self.write_meta(meta | {"sealed": True})
        sealed = {}
        with writing(self.path):
            for file in sorted(p for p in self.path.iterdir() if p.name in _SEALED or p.stem in DIAGNOSTICS):
                sealed[file.name] = seal(file)
                to_disk(file)
            for name in sorted(self._needed - sealed.keys()):  # somebody has moved the directory away meanwhile
                raise NotWritten(self.path / name, FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT)))
            replace_file(self.path / DONE, to_text({"sealed": sealed}), lasting=True)
            to_disk(self.path)
        put_away(self.path, keep_state)

    def close(self) -> None:
        """Close ``rounds.jsonl``."""
        if self._rounds is not None:
            self._rounds.close()
            self._rounds = None


def put_away(path: Path, keep_state: bool) -> None:
    """Remove the checkpoint of a finished run, or keep it as the state that a longer run goes on from."""
    folder = path / "checkpoint"
    if keep_state and folder.exists():
        shutil.rmtree(path / STATE, ignore_errors=True)
        shutil.rmtree(folder / "client_states", ignore_errors=True)  # the memory of the run; the checkpoint has a copy
        folder.replace(path / STATE)
    shutil.rmtree(folder, ignore_errors=True)
