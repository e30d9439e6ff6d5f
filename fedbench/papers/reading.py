"""Reading of plain YAML values into frozen dataclasses.

The fields of a class define the keys that an entry must have (no default) and may have, their types the values:
``str``, ``int``, ``float``, ``bool``, ``Any``, ``Literal``, ``X | None``, ``tuple[X, ...]``, ``tuple[X, X]``,
``dict[str, X]``, other such classes, and unions of classes with a key ``kind``. ``Annotated`` adds ``Ref``,
``AtLeast``, ``RunField``, ``Many`` or ``Called``.
A class may have two methods of its own: a class method ``read(value, where, known)`` if the form of its YAML differs
from its fields, and ``validate(where, known)`` for rules that involve several fields.
"""

from __future__ import annotations

import math
import types
from collections.abc import Collection, Mapping
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from functools import cache
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from fedbench.core.errors import RequestError, nearest
from fedbench.core.metrics import is_field

Known = Mapping[str, Mapping[str, Any]]  # section of the paper -> id -> entry, for the sections read so far


@dataclass(frozen=True)
class Ref:
    """The value is an id of a section that has already been read."""

    section: str


@dataclass(frozen=True)
class AtLeast:
    """The number has a lower bound."""

    bound: float


class RunField:
    """The value names a number that runs have."""


class Many:
    """A single value is read as a list of one."""


@dataclass(frozen=True)
class Called:
    """The name of an entry of the list, or of a key of the mapping, in messages."""

    name: str


def read(kind: Any, value: Any, where: str, known: Known) -> Any:
    """Return a YAML value, checked and converted to a type; the other arguments are as for ``fill``.

    Raises:
        RequestError: With the place of the first fault and what is allowed there.
    """
    origin, args = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _annotated(args[0], args[1:], value, where, known)
    if origin is Literal:
        return one_of(where, value, args)
    if origin in (Union, types.UnionType):
        inner = [a for a in args if a is not type(None)]
        if value is None and inner != list(args):
            return None
        return read(inner[0], value, where, known) if len(inner) == 1 else _tagged(inner, value, where, known)
    if origin is tuple:
        return _list(args, value, where, known)
    if origin is dict:
        return _dict(args, value, where, known)
    if is_dataclass(kind):
        return kind.read(value, where, known) if hasattr(kind, "read") else fill(kind, value, where, known)
    return _plain(kind, value, where)


def one_of(where: str, value: Any, allowed: Collection[Any]) -> Any:
    """Return ``value`` if it is allowed.

    Raises:
        RequestError: If it is not; the message has the allowed values and the nearest one.
    """
    if not isinstance(value, str | int | float | None) or value not in allowed:
        words = ["null" if a is None else str(a) for a in allowed]
        raise RequestError(f"{where} must be one of {', '.join(words)}; got {value!r}{nearest(str(value), words)}")
    return value


def entries(kind: Any, section: str, value: Any, known: Known) -> dict[str, Any]:
    """Return the entries of a section by id.

    Raises:
        RequestError: If the section is not a list, an entry has a fault, or two entries share an id.
    """
    if not isinstance(value, list):
        raise RequestError(f"{section} must be a list, [] if there are no entries; got {value!r}")
    out: dict[str, Any] = {}
    for number, item in enumerate(value, 1):
        name = item["id"] if isinstance(item, Mapping) and "id" in item else f"entry {number}"
        entry = read(kind, item, f"{section}: {name}", known)
        if entry.id in out:
            raise RequestError(f"{section}: two entries have the id {entry.id}")
        out[entry.id] = entry
    return out


def _annotated(kind: Any, rules: tuple[Any, ...], value: Any, where: str, known: Known) -> Any:
    bound = next((r.bound for r in rules if isinstance(r, AtLeast)), None)
    if bound is not None:
        return _number(kind, value, where, bound)
    called = next((r.name for r in rules if isinstance(r, Called)), "")
    if called:
        form = _list if get_origin(kind) is tuple else _dict
        return form(get_args(kind), value, where, known, called)
    if any(isinstance(r, Many) for r in rules):
        value = value if isinstance(value, list) else [value]
    out = read(kind, value, where, known)
    for rule in rules:
        if isinstance(rule, Ref):
            one_of(where, out, known[rule.section])
        if isinstance(rule, RunField) and not is_field(out):
            raise RequestError(f"{where} must be a number that runs have, such as train_loss; got {out!r}")
    return out


def _list(args: tuple[Any, ...], value: Any, where: str, known: Known, called: str = "") -> tuple[Any, ...]:
    if not isinstance(value, list):
        raise RequestError(f"{where} must be a list, as in [{value}]; got {value!r}")
    if args[-1] is not Ellipsis and len(value) != len(args):
        raise RequestError(f"{where} must be a list of {len(args)}; got {value!r}")
    base = where.rsplit(": ", 1)[0]
    places = [f"{base}: {called} {n}" if called else where for n in range(1, len(value) + 1)]
    return tuple(read(args[0], v, place, known) for v, place in zip(value, places, strict=True))


def _dict(args: tuple[Any, ...], value: Any, where: str, known: Known, called: str = "") -> dict[Any, Any]:
    if not isinstance(value, Mapping):
        raise RequestError(f"{where} must be a mapping, {{}} if it is empty; got {value!r}")
    base = f"{where.rsplit(': ', 1)[0]}: {called}" if called else f"{where}: key"
    keys = [read(args[0], k, base, known) for k in value]
    place = f"{base} " if called else f"{where}: "
    return {k: read(args[1], v, f"{place}{k}", known) for k, v in zip(keys, value.values(), strict=True)}


def _tagged(kinds: list[Any], value: Any, where: str, known: Known) -> Any:
    """Return an entry whose key ``kind`` says which of several classes it is."""
    if not isinstance(value, Mapping):
        raise RequestError(f"{where} must be a mapping with kind, or null; got {value!r}")
    by_name = {k.kind: k for k in kinds}
    return fill(by_name[one_of(f"{where}: kind", value.get("kind"), by_name)], value, where, known, skip=("kind",))


def fill(kind: Any, value: Any, where: str, known: Known, skip: Collection[str] = ()) -> Any:
    """Return an instance of a dataclass with the checked values of a mapping as its fields.

    Args:
        kind: The dataclass.
        value: The YAML value, which must be a mapping.
        where: Name of the place, for messages.
        known: Sections that references may name.
        skip: Keys of the mapping that are not fields.

    Raises:
        RequestError: With the first fault.
    """
    needed = [f.name for f in fields(kind) if not _has_default(f)]
    allowed = [f.name for f in fields(kind) if _has_default(f)]
    if not isinstance(value, Mapping):
        names = [*skip, *needed] or allowed
        raise RequestError(f"{where} must be a mapping with {', '.join(names)}; got {value!r}")
    for key in needed:
        if key not in value:
            optional = f", and may have {', '.join(allowed)}" if allowed else ""
            raise RequestError(f"{where} lacks {key}; it needs {', '.join(needed)}{optional}")
    given = {k: v for k, v in value.items() if k not in skip}
    for key in given:
        one_of(f"{where}: key", key, [*skip, *needed, *allowed])
    types_of = _types(kind)
    made = kind(**{k: read(types_of[k], v, f"{where}: {k}", known) for k, v in given.items()})
    if hasattr(made, "validate"):
        made.validate(where, known)
    return made


def _has_default(f: Field[Any]) -> bool:
    return f.default is not MISSING or f.default_factory is not MISSING


@cache
def _types(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind, include_extras=True)


def _plain(kind: Any, value: Any, where: str) -> Any:
    if kind in (int, float):
        return _number(kind, value, where, None)
    if kind is str and not isinstance(value, str):
        raise RequestError(f"{where} must be text; got {value!r}")
    if kind is bool and not isinstance(value, bool):
        raise RequestError(f"{where} must be true or false; got {value!r}")
    return value


def _number(kind: Any, value: Any, where: str, bound: float | None) -> int | float:
    fits = isinstance(value, int if kind is int else int | float) and not isinstance(value, bool)
    if not fits or not math.isfinite(value) or (bound is not None and value < bound):
        name = "an integer" if kind is int else "a number"
        least = "" if bound is None else f" >= {bound:g}"
        raise RequestError(f"{where} must be {name}{least}; got {value!r}")
    return int(value) if kind is int else float(value)
