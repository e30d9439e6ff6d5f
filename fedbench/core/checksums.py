"""Checksums of files and documents."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def file_checksum(path: Path) -> list[Any]:
    """Return the size and the SHA-256 of a file.

    Raises:
        OSError: If the file cannot be read.
    """
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        return [file.tell(), digest]


def content_checksum(content: bytes) -> list[Any]:
    """Return the size and the SHA-256 of a file's content, as ``file_checksum`` does."""
    return [len(content), hashlib.sha256(content).hexdigest()]


def check_files(folder: Path, checksums: Mapping[str, Any]) -> None:
    """Compare files in a directory with their checksums.

    Raises:
        OSError: If a file cannot be read.
        ValueError: If a file has changed.
    """
    for name, expected in checksums.items():
        if file_checksum(folder / name) != expected:
            raise ValueError(f"{name} has changed since it was written: its checksum differs")


def with_checksum(content: Mapping[str, Any]) -> str:
    """Return a JSON document that contains its own checksum."""
    text = json.dumps(content, allow_nan=False)
    document = {"sha256": _sha256(text), "content": text}
    return json.dumps(document) + "\n"


def read_with_checksum(path: Path) -> dict[str, Any]:
    """Return the content of a document that ``with_checksum`` wrote to a file.

    Raises:
        OSError: If the file cannot be read.
        ValueError: If the file has changed.
    """
    try:
        outer = json.loads(path.read_text(encoding="utf-8"))
        if _sha256(outer["content"]) != outer["sha256"]:
            raise ValueError("its checksum differs")
        content: dict[str, Any] = json.loads(outer["content"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path.name} has changed since it was written: {error}") from error
    return content


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
