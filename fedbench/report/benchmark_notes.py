"""What people write about a benchmark: title, command and comments, in ``notes.yaml`` next to its data."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import yaml

from fedbench.core.errors import RequestError
from fedbench.core.trees import from_yaml

NOTES = "notes.yaml"


@dataclass(frozen=True)
class Notes:
    """What people write about a benchmark, in ``notes.yaml`` next to its data.

    Attributes:
        title: Title of the page.
        lead: Line below it.
        command: The command that repeats the benchmark.
        facts: Further facts, as (name, text).
        surprised: What was not expected, as (name, text).
    """

    title: str
    lead: str = ""
    command: str = ""
    facts: tuple[tuple[str, str], ...] = ()
    surprised: tuple[tuple[str, str], ...] = ()


def read_notes(file: Path) -> Notes:
    """Return the notes in a YAML file: title, lead, command, and mappings of texts under facts and surprised.

    Raises:
        RequestError: If the file cannot be read, has other keys or has no title.
    """
    try:
        tree = from_yaml(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise RequestError(f"{file} cannot be read: {' '.join(str(error).split())}") from error
    known = set(Notes.__dataclass_fields__)
    if not isinstance(tree, dict) or "title" not in tree or set(tree) - known:
        raise RequestError(
            f"{file} must be a mapping with title and, optionally, {', '.join(sorted(known - {'title'}))}"
        )
    title, lead, command = (str(tree.get(k) or "").strip() for k in ("title", "lead", "command"))
    facts, surprised = (_pairs(file, k, tree.get(k) or {}) for k in ("facts", "surprised"))
    return Notes(title, lead, command, facts, surprised)


def _pairs(file: Path, key: str, entries: object) -> tuple[tuple[str, str], ...]:
    if not isinstance(entries, dict):
        raise RequestError(f"{file}: {key} must be a mapping of names to texts, got {entries!r}")
    return tuple((str(name), str(text).strip()) for name, text in entries.items())
