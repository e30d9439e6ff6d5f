"""Values of a YAML file as dataclasses, checked by pydantic: a fault is reported with its place and what is allowed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BeforeValidator, ConfigDict, TypeAdapter, ValidationError, ValidationInfo

from fedbench.core.errors import RequestError, nearest
from fedbench.core.metrics import is_field

T = TypeVar("T")
Known = Mapping[str, Mapping[str, Any]]  # section of a paper -> id -> entry, of the sections that have been read


class Entry:
    """A dataclass that a YAML file has instances of: it has no keys but its fields."""

    __pydantic_config__ = ConfigDict(extra="forbid", allow_inf_nan=False)

    def validate(self, known: Known) -> None:
        """Check what involves several fields or other sections, once all fields have been read.

        Raises:
            ValueError: With the fault.
        """


def parse(kind: type[T], value: Any, where: str = "", known: Known | None = None) -> T:
    """Return a YAML value as an instance of a type.

    Args:
        kind: The type, an ``Entry`` or any other that pydantic reads.
        value: The value.
        where: Name of its place, for messages.
        known: The sections that it may refer to; None if its references are not checked.

    Raises:
        RequestError: With the first fault.
    """
    try:
        made: T = _adapter(kind).validate_python(value, context=known)
        if isinstance(made, Entry):
            made.validate(known or {})
        return made
    except ValidationError as error:
        raise RequestError(_fault(error, where, kind)) from error
    except ValueError as error:
        raise RequestError(_joined(where, str(error))) from error


def entries(kind: type[T], section: str, value: Any, known: Known) -> dict[str, T]:
    """Return the entries of a section by id.

    Raises:
        RequestError: If the section is not a list, an entry has a fault, or two entries share an id.
    """
    if not isinstance(value, list):
        raise RequestError(f"{section} must be a list, [] if there are no entries; got {value!r}")
    found: dict[str, T] = {}
    for number, item in enumerate(value, 1):
        name = item["id"] if isinstance(item, Mapping) and "id" in item else f"entry {number}"
        entry = parse(kind, item, f"{section}: {name}", known)
        if name in found:
            raise RequestError(f"{section}: two entries have the id {name}")
        found[name] = entry
    return found


def one_of(value: Any, allowed: Collection[Any], name: str = "") -> Any:
    """Return a value, called ``name`` in messages, if it is allowed.

    Raises:
        ValueError: If it is not, with the allowed values and the nearest one.
    """
    if value not in allowed:
        words = [str(a) for a in allowed]
        said = f"must be one of {', '.join(words)}; got {value!r}{nearest(str(value), words)}"
        raise ValueError(f"{name} {said}" if name else said)
    return value


def id_in(section: str) -> AfterValidator:
    """Return the rule that a value is an id of a section that has been read."""

    def checked(value: str, info: ValidationInfo) -> str:
        return value if info.context is None else str(one_of(value, info.context[section]))

    return AfterValidator(checked)


def _field(value: str) -> str:
    if not is_field(value):
        raise ValueError(f"must be a number that runs have, such as train_loss; got {value!r}")
    return value


RunField = Annotated[str, AfterValidator(_field)]
ListOrOne = BeforeValidator(lambda value: value if isinstance(value, list | tuple) else [value])

TableId = Annotated[str, id_in("tables")]
FigureId = Annotated[str, id_in("figures")]
SetupId = Annotated[str, id_in("setups")]
MetricId = Annotated[str, id_in("metrics")]
MethodId = Annotated[str, id_in("methods")]
Methods = Annotated[tuple[MethodId, ...], ListOrOne]


_adapter: Callable[[Any], TypeAdapter[Any]] = cache(TypeAdapter)


def _fault(error: ValidationError, where: str, kind: Any) -> str:
    """Return the first fault with its place; items of lists are counted from 1."""
    first = error.errors(include_url=False)[0]
    parts = [part for part in first["loc"] if part != "[key]"]
    words = {"missing": "lacks {}", "unexpected_keyword_argument": "unknown key {!r}"}
    said = words[first["type"]].format(parts.pop()) if first["type"] in words else ""
    for part in parts:
        where = f"{where} {part + 1}" if isinstance(part, int) else _joined(where, part)
    if said:
        known = [f.name for f in fields(kind)] if is_dataclass(kind) and len(first["loc"]) == 1 else []
        return _joined(where, said + nearest(str(first["loc"][-1]), known))
    if first["type"] == "value_error":
        return _joined(where, str(first["ctx"]["error"]))
    return _joined(where, f"{first['msg'].replace('Input should be', 'must be')}; got {first['input']!r}")


def _joined(where: str, what: str) -> str:
    return f"{where}: {what}" if where and what else where or what
