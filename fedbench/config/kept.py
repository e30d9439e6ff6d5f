"""Compositions of fedbench's own config files, kept in the user's cache: a JSON file for each list of choices.

Hydra takes 0.2 s for a composition, and a plan of all papers has sixty of them. What is kept has interpolations as they
are written, so that it depends on the files and on Hydra alone, and holds no value of the environment. Each file has a
checksum over its content, its overrides, and the config files that it is of.
"""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import cached_property
from pathlib import Path

from fedbench.config.compose import libraries
from fedbench.config.places import config_dir
from fedbench.config.schema import Choices
from fedbench.core.trees import Tree, from_json
from fedbench.core.user_cache import user_cache

Written = tuple[Tree, Choices]  # a configuration with interpolations as they are written, and the choices of the groups


class KeptCompositions:
    """The kept compositions of the config tree as it is now.

    A file that cannot be read, has been changed, or is of other config files or overrides is replaced.
    """

    def of(self, texts: Sequence[str], compose: Callable[[], Written]) -> Written:
        """Return what is kept for some overrides, or else what ``compose`` returns, which is kept from then on."""
        path = self._path(texts)
        kept = self._read(path, texts)
        if kept is None:
            kept = compose()
            self._write(path, texts, kept)
        return kept

    @cached_property
    def _state(self) -> str:
        """What a composition depends on: the content of all config files, and the versions of Hydra and OmegaConf."""
        root = config_dir()
        digest = hashlib.sha256(libraries().encode())
        for file in sorted(root.rglob("*.yaml")):
            content = file.read_bytes()
            digest.update(f"\n{file.relative_to(root).as_posix()} {len(content)}\n".encode() + content)
        return digest.hexdigest()

    @cached_property
    def _folder(self) -> Path | None:
        try:
            return user_cache("compositions")
        except (OSError, RuntimeError) as error:  # RuntimeError: no home directory
            print(f"fedbench: compositions of config files cannot be kept: {error}", file=sys.stderr)
            return None

    def _path(self, texts: Sequence[str]) -> Path | None:
        name = hashlib.sha256(json.dumps(list(texts)).encode()).hexdigest()[:16]
        return None if self._folder is None else self._folder / f"{name}.json"

    def _read(self, path: Path | None, texts: Sequence[str]) -> Written | None:
        if path is None or not path.exists():
            return None
        try:
            content = from_json(path.read_bytes())
            if content["state"] != self._state:
                return None
            if content["checksum"] != self._checksum(texts, content["written"], content["names"]):
                raise ValueError("its checksum is wrong")
            return dict(content["written"]), Choices(**content["names"])
        except (OSError, ValueError, TypeError, KeyError) as error:
            print(f"fedbench: {path} is corrupt and is replaced ({error})", file=sys.stderr)
            return None

    def _checksum(self, texts: Sequence[str], written: Tree, names: Tree) -> str:
        return hashlib.sha256(json.dumps([self._state, list(texts), written, names]).encode()).hexdigest()

    def _write(self, path: Path | None, texts: Sequence[str], kept: Written) -> None:
        if path is None:
            return
        written, names = kept[0], asdict(kept[1])
        checksum = self._checksum(texts, written, names)
        content = {"state": self._state, "checksum": checksum, "written": written, "names": names}
        text = json.dumps(content)
        if json.loads(text) != content:
            return  # JSON has no such keys, as a number would be
        try:
            with tempfile.TemporaryDirectory(dir=path.parent) as folder:
                part = Path(folder) / path.name
                part.write_text(text, encoding="utf-8")
                part.replace(path)
        except OSError as error:
            print(f"fedbench: compositions of config files cannot be kept in {path.parent}: {error}", file=sys.stderr)
