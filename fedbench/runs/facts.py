"""What the files of a run must have in them, checked before anything is computed from it.

A directory of results also has what other programs, other versions and damaged disks have left there. Every check
raises ``ValueError`` with the fault, so that such a run is left out with its reason and the others are read.
"""

from __future__ import annotations

import math
import re
import stat
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedbench.core.trees import Tree, leaves

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

_STATUSES = ("running", "interrupted", "done", "diverged", "failed")
_NAMES = ("experiment", "data", "model", "algo", "hash")  # parts of names of files and ids
_LONGEST = 150  # bytes of a name: names of files end at 255
_LARGEST_FILE = 2**22  # bytes of config.yaml or meta.json
_MOST = 100_000  # values in one of them; a few lines of YAML can expand to billions
_DEEPEST = 50  # levels of nesting
_LARGEST = 2**53  # up to here every integer is a float
_METRIC = re.compile(
    r"(train|test)_loss|accuracy_\w+|angle_\w+|kl_\w+|improved_clients|update_norm|clients|(bytes|seconds)_\w+"
)


def text_of(path: Path) -> str:
    """Return the text of a small file.

    Raises:
        OSError: If it cannot be read.
        ValueError: If it is no file, too large, or not UTF-8.
    """
    facts = path.stat()
    if not stat.S_ISREG(facts.st_mode):
        raise ValueError(f"{path.name} is not a file")
    if facts.st_size > _LARGEST_FILE:
        raise ValueError(f"{path.name} has {facts.st_size} bytes; at most {_LARGEST_FILE} are read")
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path.name} is not UTF-8 text: {error}") from error


# ---- config.yaml and meta.json


def check_plain(name: str, tree: Any) -> None:
    """Check that a document is a mapping of names to numbers, text, booleans, null, and lists and mappings of these."""
    if not isinstance(tree, dict):
        raise ValueError(f"{name} must be a mapping, got {_shown(tree)}")
    todo: list[tuple[Any, int]] = [(tree, 1)]
    count = 0
    while todo:
        value, depth = todo.pop()
        count += 1
        if count > _MOST or depth > _DEEPEST:
            raise ValueError(f"{name} has more than {_MOST} values or {_DEEPEST} levels")
        kind = type(value)  # documents consist of these very types; there are thousands of them, so no isinstance
        if kind is dict:
            if len({type(k) for k in value} - {int}) > 1 or not all(isinstance(k, str | int) for k in value):
                raise ValueError(f"{name} has keys that are not names, among {_shown(list(value))}")
            todo += [(k, depth + 1) for k in value if isinstance(k, str)]
            todo += [(v, depth + 1) for v in value.values()]
        elif kind is list:
            todo += [(v, depth + 1) for v in value]
        elif kind is str:
            value.encode()  # half a surrogate pair cannot be written anywhere
        elif kind is int:
            if abs(value) > 1e300:
                raise ValueError(f"{name} has an integer of {value.bit_length()} bits")
        elif value is not None and kind not in (bool, float):
            raise ValueError(f"{name} has a {kind.__name__}: {_shown(value)}")


def check_config(config: Tree) -> None:
    """Check the resolved configuration of a run."""
    check_plain("config.yaml", config)
    flat = leaves(config)
    for key, (fits, words) in _AMOUNTS.items():
        if key in flat and not fits(flat[key]):
            raise ValueError(f"config.yaml: {key} must be {words}, got {_shown(flat[key])}")
    if flat.get("rounds") is None:
        raise ValueError("config.yaml: rounds is missing")


def check_meta(meta: Tree, config: Tree) -> None:
    """Check the facts of a run with a configuration."""
    check_plain("meta.json", meta)
    for key in ("algo", "hash", "status"):
        meta_value = meta.get(key)
        if not isinstance(meta_value, str) or not meta_value:
            raise ValueError(f"meta.json: {key} must be text, got {_shown(meta_value)}")
    if meta["status"] not in _STATUSES:
        raise ValueError(f"meta.json: status must be one of {', '.join(_STATUSES)}; got {_shown(meta['status'])}")
    if not _is_integer(meta.get("seed")) or not 0 <= meta["seed"] <= _LARGEST:
        raise ValueError(f"meta.json: seed must be an integer, got {_shown(meta.get('seed'))}")
    for key in _NAMES:
        _check_name(key, meta.get(key))
    for key, (fits, words) in _FACTS.items():
        if key in meta and not fits(meta[key]):
            raise ValueError(f"meta.json: {key} must be {words}, got {_shown(meta[key])}")
    for key, change in meta.get("departures", {}).items():
        known = _AMOUNTS.get(key)
        if known and not all(v is None or known[0](v) for v in change):
            raise ValueError(f"meta.json: departures: {key} must be {known[1]}, got {_shown(change)}")
    if (files := meta.get("files")) and (unknown := files.keys() - leaves(config).keys()):
        raise ValueError(f"meta.json: files has keys that config.yaml lacks: {_shown(sorted(unknown))}")


def _check_name(key: str, value: object) -> None:
    if value is None and key == "experiment":
        return
    if not isinstance(value, str) or not value.isprintable() or len(value.encode()) > _LONGEST:
        raise ValueError(f"meta.json: {key} must be text of at most {_LONGEST} printable bytes, got {_shown(value)}")


def _shown(value: object) -> str:
    """Return a value as a message shows it, whatever its size."""
    text = (
        repr(value)
        if not isinstance(value, dict | list) or len(value) < 9
        else f"{type(value).__name__} of {len(value)}"
    )
    return text.encode("ascii", "backslashreplace").decode() if len(text) < 60 else f"{ascii(text[:60])[1:-1]}..."


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= _LARGEST


def _is_count(value: object) -> bool:
    return _is_number(value) and isinstance(value, int | float) and value >= 1 and float(value).is_integer()


def _is_time(value: object) -> bool:
    try:
        return isinstance(value, str) and datetime.fromisoformat(value) is not None
    except ValueError:
        return False


def _is_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(v, str) for v in value)


def _is_texts_by_name(value: object) -> bool:
    return isinstance(value, dict) and all(isinstance(k, str) and isinstance(v, str) for k, v in value.items())


def _is_changes(value: object) -> bool:
    return isinstance(value, dict) and all(isinstance(v, list) and len(v) == 2 for v in value.values())


def _or_null(fits: Callable[[object], bool]) -> Callable[[object], bool]:
    return lambda value: value is None or fits(value)


def _is_epochs(value: object) -> bool:
    return _is_number(value) or (isinstance(value, list) and bool(value) and all(map(_is_number, value)))


_Rule = tuple[Callable[[object], bool], str]
# keys that reports compute with: others are only shown
_AMOUNTS: Mapping[str, _Rule] = {
    "rounds": (lambda v: v == 0 or _is_count(v), "an integer"),
    "eval_every": (_is_count, "an integer >= 1"),
    "participation": (_is_number, "a number"),
    "local.epochs": (_or_null(_is_epochs), "a number, or a list of two"),
    "local.steps": (_or_null(_is_count), "an integer >= 1"),
    "local.batch_size": (lambda v: v == "full" or _is_count(v), "full or an integer >= 1"),
    "data.clients": (_or_null(_is_count), "an integer >= 1"),
    "data.seed": (_or_null(_is_integer), "an integer"),
}
_FACTS: Mapping[str, _Rule] = {
    "rounds": (_or_null(lambda v: v == 0 or _is_count(v)), "an integer"),
    "departures": (_is_changes, "a mapping of keys to pairs"),
    "overrides": (_is_texts, "a list of texts"),
    "sources": (_is_texts, "a list of texts"),
    "unofficial": (_is_texts, "a list of texts"),
    "remarks": (_is_texts, "a list of texts"),
    "files": (_is_texts_by_name, "a mapping of keys to digests"),
    "code": (lambda v: isinstance(v, dict), "a mapping"),
    "revision": (lambda v: isinstance(v, dict), "a mapping"),
    "versions": (_is_texts_by_name, "a mapping of names to versions"),
    "started": (_is_time, "a time, such as 2026-01-31T12:00:00+00:00"),
}


# ---- rounds.jsonl and clients.parquet


def is_metric(key: str) -> bool:
    """Return whether a key of ``rounds.jsonl`` is a number of fedbench's own; others may have any value."""
    return _METRIC.fullmatch(key) is not None


def check_row(row: object) -> None:
    """Check a line of ``rounds.jsonl``."""
    if not isinstance(row, dict):
        raise ValueError(f"a line is no object but {_shown(row)}")
    number = row.get("round")
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number <= _LARGEST:
        raise ValueError(f"round must be an integer, got {_shown(number)}")
    for key, value in row.items():
        if value is None or key == "round":
            continue
        if is_metric(key) and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise ValueError(f"round {number} has the {key} {_shown(value)}, which is not a number")
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"round {number} has the {key} {value}, which is not finite")
        if isinstance(value, int) and abs(value) >= 2**63:
            raise ValueError(f"round {number} has a {key} of {value.bit_length()} bits")
        if key.startswith(("accuracy_", "val_accuracy_")) and not _is_share(value):
            raise ValueError(f"round {number} has the {key} {value}, which is not between 0 and 1")
        if isinstance(value, str | dict | list):
            check_plain("a line", {key: value})


def _is_share(value: float) -> bool:
    return -1e-9 <= value <= 1 + 1e-9


def check_rounds(columns: Mapping[str, np.ndarray]) -> None:
    """Check all rounds of a run: a value per round for every key."""
    numbers = columns.get("round")
    if numbers is None or numbers.dtype.kind != "i" or not len(numbers):
        raise ValueError("a line has no round that is an integer")
    if numbers[0] < 0 or (numbers[1:] <= numbers[:-1]).any():
        raise ValueError("its rounds are not in ascending order")
    for key in columns:
        if key.startswith(("accuracy_", "val_accuracy_")):
            values = columns[key].astype(float)
            wrong = (values < -1e-9) | (values > 1 + 1e-9)  # not so of NaN, a round without the value
            if wrong.any():
                row = int(wrong.argmax())
                check_row({"round": int(numbers[row]), key: float(values[row])})


def check_clients(table: pd.DataFrame) -> None:
    """Check the per-client table of a run."""
    for key in ("round", "client", "n_train", "n_test", "correct", "accuracy", "test_loss", "train_loss"):
        if key in table and table[key].dtype.kind not in "iuf" and table[key].notna().any():
            raise ValueError(f"{key} must be numbers, got {table[key].dtype}")
    for key in ("round", "client"):
        if key not in table or table[key].dtype.kind not in "iu":
            raise ValueError(f"it has no column {key} of integers")
    if not len(table):
        raise ValueError("it is empty")
    if "accuracy" in table and not table["accuracy"].dropna().between(-1e-9, 1 + 1e-9).all():
        raise ValueError("it has an accuracy that is not between 0 and 1")


def check_document(name: str, content: object) -> None:
    """Check the document of a diagnostic."""
    check_plain(f"{name}.json", content)
    if name != "moments" or not isinstance(content, dict):
        return
    matrix = content.get("cka")
    rows = matrix if isinstance(matrix, list) else [None]
    if not all(isinstance(row, list) and len(row) == len(rows) and all(map(_or_null(_is_number), row)) for row in rows):
        raise ValueError(f"cka must be a square matrix of numbers, got {_shown(matrix)}")
