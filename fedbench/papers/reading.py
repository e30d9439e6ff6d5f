"""A paper's YAML, read and looked through: what is missing, unknown or leads nowhere is told before anything is run.

The checks of claims are looked through where they are carried out (``fedbench.analysis.checks``).
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from fedbench.core.errors import RequestError, nearest

Values = Mapping[str, Any]

_SECTIONS = ("metrics", "methods", "setups", "tables", "figures", "claims", "gaps", "contradictions")
# of an entry: keys that it must have, and that it may have
_ENTRIES: dict[str, tuple[str, str]] = {
    "metrics": ("id label direction field", "factor definition fraction"),
    "methods": ("id label algo", "keys set gradients"),
    "setups": ("id title experiment clients seeds samples flops", "gaps profiles departs"),
    "tables": ("id caption setups columns rows", "round"),
    "figures": ("id caption kind", "spec runs"),
    "claims": ("id text reference printed check", ""),
    "gaps": ("id field adopted why confidence", ""),
    "contradictions": ("id statement resolution", ""),
}
# of a kind of figure: keys that its spec must have, and that it may have
_SPECS: dict[str, tuple[str, str]] = {
    "curves": ("setups fields", "distribution"),
    "distribution": ("setups", ""),
    "sweep": ("setups fields parameter", ""),
    "front": ("setups fields sweep", ""),
    "labels": ("setups", ""),
    "two_clients": ("setups", ""),
    "cka": ("setups", ""),
    "functions": ("rounds beta", ""),
    "schematic": ("", ""),
}
_MAPPINGS = ("keys", "set", "profiles", "values", "hyperparameters", "spec")
_LISTS = ("setups", "columns", "rows", "runs", "departs", "authors", "fields")
_TEXTS = (
    "id",
    "label",
    "title",
    "caption",
    "text",
    "reference",
    "algo",
    "experiment",
    "why",
    "adopted",
    "name",
    "setup",
)
# numbers: from which on they are possible, and whether they are whole
_NUMBERS = {
    "seeds": (1, True), "samples": (1, True), "clients": (1, True), "flops": (0, False), "factor": (0, False),
    "gradients": (0, False), "fraction": (0, False),
}  # fmt: skip
_PROFILES = ("cpu", "smoke")
_PRINTED = ("supports", "contradicts", "mixed", "not tabulated")
# what a run has per evaluated round, and what is derived from that
_FIELD = re.compile(
    r"accuracy_(mean|std|variance|min|max)|accuracy_(worst|best)(5|10|20|30)|accuracy_(mean|std|worst30)_weighted|"
    r"angle_degrees|kl_uniform|(train|test)_loss|train_perplexity|error_(mean|rsd)(_weighted)?|improved_clients|"
    r"update_norm|clients|bytes_(up|down)|seconds_(train|eval)|client:\d+"
)


def is_field(name: object) -> bool:
    """Whether a name is that of a number that a run has, or that is derived from such."""
    return isinstance(name, str) and _FIELD.fullmatch(name) is not None


def read(path: Path) -> Values:
    """Return the content of a paper's file.

    Raises:
        RequestError: naming the file, the entry and the first fault.
    """
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        raise RequestError(f"{path.name} is no YAML: {' '.join(str(error).split())}") from error
    for fault in _faults(content, path.stem):
        raise RequestError(f"{path.name}: {fault}")
    return dict(content)


def _faults(c: Any, name: str) -> Iterator[str]:
    """Give the faults in an order in which what a later one needs is there."""
    yield from _keys("the file", c, ("paper", *_SECTIONS))
    yield from _keys("paper", c["paper"], ("id", "name", "title", "authors", "year", "venue"))
    if c["paper"]["id"] != name:
        yield f"the id of a paper is the name of its file, {name}; got {c['paper']['id']!r}"
    for section in _SECTIONS:
        yield from _section(section, c[section])
    for m in c["metrics"]:
        yield from _metric(m)
    for s in c["setups"]:
        yield from _setup(s, c)
    for t in c["tables"]:
        yield from _table(t, c)
    for f in c["figures"]:
        yield from _figure(f, c)
    for q in c["claims"]:
        yield from _one(f"claims: {q['id']}: printed", q["printed"], _PRINTED)
        if not isinstance(q["check"], Mapping | None):
            yield f"claims: {q['id']}: check must be a mapping with kind, or null; got {q['check']!r}"


def _section(section: str, entries: Any) -> Iterator[str]:
    if not isinstance(entries, list):
        yield f"{section} must be a list, [] if there are none; got {entries!r}"
    needed, allowed = (words.split() for words in _ENTRIES[section])
    for number, entry in enumerate(entries, 1):
        known = isinstance(entry, Mapping) and "id" in entry
        yield from _keys(f"{section}: {entry['id'] if known else f'entry {number}'}", entry, needed, allowed)
    for name, times in Counter(e["id"] for e in entries).items():
        if times > 1:
            yield f"{section}: the id {name} is there {times} times"


def _keys(where: str, entry: Any, needed: Sequence[str], allowed: Sequence[str] = ()) -> Iterator[str]:
    if not isinstance(entry, Mapping):
        yield f"{where} must be a mapping with {', '.join(needed)}; got {entry!r}"
    for key in needed:
        if key not in entry:
            yield f"{where} lacks {key}; it needs {', '.join(needed)}" + (
                f", and may have {', '.join(allowed)}" if allowed else ""
            )
    for key, value in entry.items():
        yield from _one(f"{where}: key", key, [*needed, *allowed])
        yield from _type(f"{where}: {key}", key, value)


def _type(where: str, key: str, value: Any) -> Iterator[str]:
    if key in _MAPPINGS and not isinstance(value, Mapping):
        yield f"{where} must be a mapping, {{}} if it is empty; got {value!r}"
    if key in _LISTS and not isinstance(value, list):
        yield f"{where} must be a list, as in [{value}]; got {value!r}"
    if key in _TEXTS and not isinstance(value, str):
        yield f"{where} must be text; got {value!r}"
    if key in _NUMBERS and not (key == "clients" and value is None):
        least, whole = _NUMBERS[key]
        if not _is_number(value) or value < least or (whole and not isinstance(value, int)):
            yield f"{where} must be a {'whole ' if whole else ''}number >= {least}; got {value!r}"


def _one(where: str, value: Any, known: Collection[Any]) -> Iterator[str]:
    if value not in known:
        words = [str(k) for k in known]
        yield f"{where} must be one of {', '.join(words)}; got {value!r}{nearest(str(value), words)}"


def _all(where: str, values: Any, known: Collection[Any]) -> Iterator[str]:
    if not isinstance(values, list):
        yield f"{where} must be a list; got {values!r}"
    for value in values:
        yield from _one(where, value, known)


def _ids(c: Values, section: str) -> list[str]:
    return [e["id"] for e in c[section]]


def _metric(m: Values) -> Iterator[str]:
    where = f"metrics: {m['id']}"
    yield from _one(f"{where}: direction", m["direction"], ("higher", "lower", None))
    if not is_field(m["field"]):
        yield f"{where}: field {m['field']!r} is none of a run's numbers, such as accuracy_mean or client:0"
    if re.match("accuracy_(worst|best)", m["field"]) and not 0 < m.get("fraction", 0) < 1:
        yield f"{where} needs fraction, the share of the clients in the tail, such as 0.3; got {m.get('fraction')!r}"


def _setup(s: Values, c: Values) -> Iterator[str]:
    where = f"setups: {s['id']}"
    yield from _all(f"{where}: gaps", s.get("gaps", []), _ids(c, "gaps"))
    for name, profile in s.get("profiles", {}).items():
        yield from _one(f"{where}: profile", name, _PROFILES)
        yield from _keys(f"{where}: profile {name}", profile, (), ("set", "seeds"))


def _row(where: str, r: Values, c: Values) -> Iterator[str]:
    yield from _one(f"{where}: algo", r["algo"], _ids(c, "methods"))
    method = next(m for m in c["methods"] if m["id"] == r["algo"])
    for name in r.get("hyperparameters", {}):
        if name not in method.get("keys", {}):
            yield (
                f"{where}: nothing says which config key the hyperparameter {name} is; add it to keys of the method "
                f"{method['id']}, as in keys: {{lr: local.lr}}"
            )


def _table(t: Values, c: Values) -> Iterator[str]:
    where = f"tables: {t['id']}"
    yield from _all(f"{where}: setups", t["setups"], _ids(c, "setups"))
    yield from _all(f"{where}: columns", t["columns"], _ids(c, "metrics"))
    yield from _one(f"{where}: round", t.get("round", "last"), ("last", "best"))
    for number, r in enumerate(t["rows"], 1):
        row = f"{where}: row {number}"
        yield from _keys(row, r, ("setup", "algo"), ("hyperparameters", "values"))
        yield from _one(f"{row}: setup", r["setup"], t["setups"])
        yield from _row(row, r, c)
        for column, value in r.get("values", {}).items():
            yield from _one(f"{row}: column", column, t["columns"])
            if not all(_is_number(x) for x in (value if isinstance(value, list) and len(value) == 2 else [value])):
                yield f"{row}: {column} must be a number or [number, ±]; got {value!r}"


def _is_number(x: Any) -> bool:
    return isinstance(x, int | float) and not isinstance(x, bool) and math.isfinite(x)


def _figure(f: Values, c: Values) -> Iterator[str]:
    where, spec = f"figures: {f['id']}", f.get("spec", {})
    yield from _one(f"{where}: kind", f["kind"], _SPECS)
    needed, allowed = (words.split() for words in _SPECS[f["kind"]])
    yield from _keys(f"{where}: spec", spec, needed, allowed)
    yield from _all(f"{where}: setups", spec.get("setups", []), _ids(c, "setups"))
    for field in spec.get("fields", []):
        if not is_field(field):
            yield f"{where}: field {field!r} is none of a run's numbers, such as train_loss or accuracy_mean"
    if f["kind"] == "front":
        if len(spec["fields"]) != 2:
            yield f"{where}: a front has two fields, the axes; got {spec['fields']!r}"
        yield from _keys(f"{where}: sweep", spec["sweep"], ("algo", "parameter"))
        yield from _one(f"{where}: sweep: algo", spec["sweep"]["algo"], _ids(c, "methods"))
    parameter = (
        spec["parameter"] if f["kind"] == "sweep" else spec["sweep"]["parameter"] if f["kind"] == "front" else None
    )
    if parameter is not None and not any(parameter in r.get("hyperparameters", {}) for r in f.get("runs", [])):
        yield f"{where}: no run has the parameter {parameter!r} among its hyperparameters"
    if f.get("runs") and not spec.get("setups"):
        yield f"{where}: spec lacks setups, in which the runs are"
    for number, r in enumerate(f.get("runs", []), 1):
        yield from _keys(f"{where}: run {number}", r, ("algo",), ("hyperparameters",))
        yield from _row(f"{where}: run {number}", r, c)
