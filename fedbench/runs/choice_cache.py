"""Choices of forms that were measured on this machine, kept in the user's cache: a JSON file for each case."""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fedbench.core.user_cache import user_cache


class ChoiceCache:
    """The kept choice of one case.

    A file that cannot be read counts as missing, and a cache that cannot be written to is reported on stderr;
    the choice is then measured again.

    Args:
        case: Everything that the choice depends on; values that JSON can express.
    """

    def __init__(self, case: Mapping[str, Any]) -> None:
        self.case = dict(case)
        self._path = self._located()

    @contextmanager
    def held(self, device: str) -> Iterator[None]:
        """Keep other processes from measuring on the same device at the same time, which would disturb both.

        Args:
            device: What tells the device from the others of this machine, under whatever index it is visible.
        """
        from filelock import FileLock

        path = self._path
        if path is None:
            yield
            return
        with FileLock(path.with_name(f"{hashlib.sha256(device.encode()).hexdigest()[:16]}.lock")):
            yield

    def read(self) -> dict[str, Any] | None:
        """Return what was kept for this case; None if there is nothing, or nothing that can be read."""
        path = self._path
        if path is None or not path.exists():
            return None
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            print(f"fedbench: {path} is corrupt; measuring again ({error})", file=sys.stderr)
            return None
        same = isinstance(content, dict) and content.get("case") == self.case
        kept = content.get("kept") if same else None
        return kept if isinstance(kept, dict) else None

    def write(self, kept: Mapping[str, Any]) -> None:
        """Keep ``kept`` for this case, in one step."""
        path = self._path
        if path is None:
            return
        text = json.dumps({"case": self.case, "kept": dict(kept)}, indent=2) + "\n"
        try:
            with tempfile.TemporaryDirectory(dir=path.parent) as folder:
                part = Path(folder) / path.name
                part.write_text(text, encoding="utf-8")
                part.replace(path)
        except OSError as error:
            print(f"fedbench: the choice of a form cannot be kept in {path.parent}: {error}", file=sys.stderr)

    def _located(self) -> Path | None:
        """Return the file of this case, or None if there is no cache to keep it in."""
        digest = hashlib.sha256(json.dumps(self.case, sort_keys=True).encode()).hexdigest()[:16]
        try:
            return user_cache("forms") / f"{digest}.json"
        except (OSError, RuntimeError) as error:  # RuntimeError: no home directory
            print(f"fedbench: the choice of a form cannot be kept: {error}", file=sys.stderr)
            return None
