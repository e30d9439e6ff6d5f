"""Identity of a run: what makes two runs one setting, whatever the seed, the machine and the place of the code."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedbench.core.trees import Tree

# keys that change no number of a run; of the engine only precision does
_APART = {"seed", "device", "data_dir", "results_dir", "force", "tracker"}
WATCHING = frozenset({"eval_every", "keep_clients", "improved_clients"})  # what is observed, not what is computed


@dataclass(frozen=True)
class Identity:
    """Identity of a setting.

    Attributes:
        digest: Ten hexadecimal digits, the same for all seeds.
    """

    digest: str


def identify(config: Tree) -> Identity:
    """Return the identity of a checked configuration."""
    return Identity(hashlib.sha256(json.dumps(core(config), sort_keys=True).encode()).hexdigest()[:10])


def core(config: Tree) -> Tree:
    """Return what makes the setting: without what does not change its numbers, and files by their content."""
    core = {k: v for k, v in config.items() if k not in _APART}
    core["data"] = {k: v for k, v in core["data"].items() if k != "download"}
    core["engine"] = {"precision": config["engine"]["precision"]}
    core["init"] = _fingerprint(config["init"]["path"])
    paths = {v for k in ("train", "test", "root") if isinstance(v := config["data"].get(k), str)}
    marks = {p: _fingerprint(p) for p in paths}
    plain: Tree = _plain(core, marks)
    return plain


def _plain(value: Any, marks: Mapping[str, str | None]) -> Any:
    """Return ``value`` with whole floats as ints (q=1 and q=1.0 are one setting) and paths as fingerprints."""
    if isinstance(value, dict):
        return {str(k): _plain(v, marks) for k, v in value.items()}
    if isinstance(value, list):
        return [_plain(v, marks) for v in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return marks.get(value, value) if isinstance(value, str) else value


def _fingerprint(where: str | None) -> str | None:
    """Return a hash of a file, or of a directory's names, sizes and JSON files; the path if it is neither."""
    if where is None:
        return None
    path = Path(where).expanduser()
    if path.is_file():
        with path.open("rb") as f:
            return hashlib.file_digest(f, "sha256").hexdigest()
    if not path.is_dir():
        return where
    digest = hashlib.sha256()
    for file in sorted(p for p in path.rglob("*") if p.is_file()):
        content = _fingerprint(str(file)) if file.suffix == ".json" else ""
        digest.update(f"{file.relative_to(path)}:{file.stat().st_size}:{content}\n".encode())
    return digest.hexdigest()
