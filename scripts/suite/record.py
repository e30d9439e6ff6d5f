"""The results of a part on disk: one JSON file, replaced in one step whenever a piece is done."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from fedbench.core.writing import replace_file
from fedbench.runs.environment import environment, utc_now
from fedbench.runs.recorder import to_json

ROOT = Path(__file__).resolve().parent.parent.parent
_CODE = ("fedbench/**/*.py", "fedbench/**/*.cpp", "scripts/*", "scripts/suite/*.py", "conf/**/*.yaml")


def code_digest() -> str:
    """Return a digest of the code that is measured: it needs no git, and differs where a file has been changed."""
    total = hashlib.sha256()
    for path in sorted({p for pattern in _CODE for p in ROOT.glob(pattern) if p.is_file()}):
        total.update(f"{path.relative_to(ROOT)}\0".encode() + path.read_bytes())
    return total.hexdigest()[:16]


class Record:
    """The results of one part.

    A piece is done if nothing in it is wrong or left over, and it was measured on the same kind of device, and with the
    same code unless ``keep`` is given.

    Args:
        folder: The directory of the results.
        letter: The letter of the part.
        device: The device.
        code: Digest of the code.
        keep: Whether results of other code count too.
    """

    def __init__(self, folder: Path, letter: str, device: torch.device, code: str, keep: bool) -> None:
        self.path, self.letter, self.keep = folder / f"{letter}.json", letter, keep
        there = device.type != "cuda" or torch.cuda.is_available()  # a listing needs no GPU
        facts = environment(device if there else torch.device("cpu")) | ({} if there else {"device_name": None})
        self._facts = {k: facts[k] for k in ("device_name", "git_commit", "git_dirty")} | {"code": code}
        self._whole = {"device": facts["device"], "platform": facts["platform"], "versions": facts["versions"]}
        found = json.loads(self.path.read_text(encoding="utf-8")) if self.path.exists() else {}
        self.title: str = found.get("title", "")
        self.pieces: dict[str, dict[str, Any]] = found.get("pieces", {})

    def begin(self, title: str) -> None:
        """Set the title of the part, and forget how an earlier process of it ended."""
        self.title = title
        self.pieces.pop(PROCESS, None)

    def done(self, piece: str) -> bool:
        """Return whether a piece need not be carried out."""
        found = self.pieces.get(piece)
        return not (found is None or found.get("wrong") or found.get("unfinished")) and self._same(found)

    def left_over(self, piece: str) -> dict[str, Any]:
        """Return what a piece with a rest left has found so far; nothing of other code or another device."""
        found = self.pieces.get(piece, {})
        return found if found.get("unfinished") and self._same(found) else {}

    def _same(self, found: Mapping[str, Any]) -> bool:
        same = [] if self._facts["device_name"] is None else ["device_name"]  # unknown where there is none
        return all(found[k] == self._facts[k] for k in (same if self.keep else [*same, "code"]))

    def put(self, piece: str, outcome: Mapping[str, Any]) -> None:
        """Save the outcome of a piece."""
        self.pieces[piece] = {**outcome, **self._facts, "ended": utc_now()}
        seconds = sum(p.get("seconds", 0.0) for p in self.pieces.values())
        whole = {"part": self.letter, "title": self.title, **self._whole, **self._facts, "seconds": seconds}
        replace_file(self.path, to_json({**whole, "pieces": self.pieces}, indent=1) + "\n")


PROCESS = "(process)"
"""The piece under which the end of a part's process is recorded, if that was not an orderly one."""
