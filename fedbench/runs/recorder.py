"""Writes a run as it happens; it is complete when DONE exists, and readable without the code that made it.

Only ``rounds.jsonl`` grows in place; a resumed run cuts it back to its checkpoint. All other files are replaced.
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from fedbench.core.files import (
    NotWritten,
    file_checksum,
    replace_file,
    replacing,
    to_disk,
    with_checksum,
    writing,
)
from fedbench.runs.checkpoints import Checkpoint, Checkpoints
from fedbench.runs.run import DONE, DamagedRun, Fields

if TYPE_CHECKING:
    from torch import Tensor

STATE = "state"  # directory of the state that a longer run continues from
_FILES = ("config.yaml", "meta.json", "rounds.jsonl", "clients.parquet", "model.safetensors", "personal.safetensors")


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

    Methods raise NotWritten if a file cannot be written.

    Args:
        path: The run's directory, created if it does not exist.
    """

    def __init__(self, path: Path) -> None:
        path.mkdir(parents=True, exist_ok=True)
        self.path = path
        self.checkpoints = Checkpoints(path / "checkpoint", path / "rounds.jsonl")

    def clear(self) -> None:
        """Remove the files of an earlier run."""
        with writing(self.path):
            for name in (DONE, *_FILES, *_documents()):
                (self.path / name).unlink(missing_ok=True)
            for folder in (self.checkpoints.folder, self.path / STATE):
                shutil.rmtree(folder, ignore_errors=True)
        self.checkpoints = Checkpoints(self.checkpoints.folder, self.checkpoints.rounds)

    def write_config(self, config: Fields) -> None:
        """Write the resolved configuration."""
        replace_file(self.path / "config.yaml", yaml.safe_dump(config, sort_keys=False), lasting=True)

    def write_meta(self, meta: Fields) -> None:
        """Write ``meta.json``, the facts of the run."""
        replace_file(self.path / "meta.json", to_json(meta, indent=2) + "\n", lasting=True)

    def write_document(self, name: str, content: Fields) -> None:
        """Write the document of a diagnostic to ``<name>.json``."""
        replace_file(self.path / f"{name}.json", to_json(content) + "\n")

    def append(self, row: Fields) -> None:
        """Append a line to ``rounds.jsonl``."""
        rounds = self.checkpoints.rounds
        with writing(rounds), rounds.open("a", encoding="utf-8") as file:
            file.write(to_json(row) + "\n")

    def keep_clients(self, round: int, columns: Mapping[str, Any]) -> None:
        """Keep the per-client table of a round until the run is done."""
        import pandas as pd

        lists = {k: list(v) if isinstance(v, tuple) else v for k, v in columns.items()}
        with writing(self.checkpoints.folder):
            self.checkpoints.folder.mkdir(exist_ok=True)
        content = pd.DataFrame({"round": round, **lists}).to_parquet(index=False)
        replace_file(self.checkpoints.folder / f"clients_{round:09d}.parquet", content)

    def load(self) -> Checkpoint | None:
        """Return the checkpoint of an unfinished run and cut its files back to it; None if there is no checkpoint.

        Raises:
            DamagedRun: If a part of the checkpoint, or what rounds.jsonl had when it was written, is missing or has
                changed.
        """
        try:
            return self.checkpoints.load()
        except NotWritten:
            raise  # the checkpoint is whole
        except (OSError, ValueError) as error:
            raise DamagedRun(f"{self.path}: {error}") from error

    def finish(self, model: Mapping[str, Tensor], personal: Mapping[str, Tensor] | None, meta: Fields) -> None:
        """Write the model, the clients' own models if any, the per-client table, the final facts, and last DONE.

        DONE has the checksums of all these files; they are on the disk, in the sense of fsync, before it is.
        """
        import pandas as pd

        from fedbench.runs.tensors import save_tensors  # imports torch

        for name, tensors in (("model", model), ("personal", personal)):
            if tensors is not None:
                with replacing(self.path / f"{name}.safetensors") as part:
                    save_tensors(tensors, part)
        if tables := self.checkpoints.tables:
            content = pd.concat([pd.read_parquet(table) for table in tables]).to_parquet(index=False)
            replace_file(self.path / "clients.parquet", content)
        self.write_meta(meta)
        with writing(self.path):
            files = [file for name in (*_FILES, *_documents()) if (file := self.path / name).exists()]
            for file in files:
                to_disk(file)
            done = with_checksum({"sealed": {file.name: file_checksum(file) for file in files}})
            replace_file(self.path / DONE, done, lasting=True)
            to_disk(self.path)


def put_away(path: Path, state_of: int | None) -> None:
    """Remove the checkpoint of a finished run, or keep it as the state that a longer run continues from.

    Args:
        path: The run's directory.
        state_of: The round whose checkpoint is kept; None for none.
    """
    folder = path / "checkpoint"
    if state_of is not None and Checkpoints(folder, path / "rounds.jsonl").round == state_of:
        shutil.rmtree(path / STATE, ignore_errors=True)
        shutil.rmtree(folder / "client_states", ignore_errors=True)  # the memory of the run; the checkpoint has a copy
        folder.replace(path / STATE)
    shutil.rmtree(folder, ignore_errors=True)


def _documents() -> list[str]:
    from fedbench.simulation.diagnostics import DIAGNOSTICS  # imports torch

    return [f"{name}.json" for name in DIAGNOSTICS]
