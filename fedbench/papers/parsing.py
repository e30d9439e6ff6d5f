"""Parsing of YAML values into dataclasses with pydantic.

Errors name the place of a fault and the allowed values.
"""

from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    GetCoreSchemaHandler,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
)
from pydantic_core import CoreSchema, core_schema

from fedbench.core.errors import RequestError
from fedbench.core.metrics import is_field
from fedbench.core.validation import choice, place_and_fault

T = TypeVar("T")
# section of a paper -> id -> entry, for the sections read so far
Known = Mapping[str, Mapping[str, Any]]


class Entry:
    """Base class of YAML entries, whose only keys are the fields of the dataclass."""

    __pydantic_config__ = ConfigDict(extra="forbid", allow_inf_nan=False)

    def validate(self, known: Known) -> None:
        """Check constraints between fields or with other sections, after all fields are read.

        Raises:
            ValueError: If a constraint is violated.
        """

    @classmethod
    def __get_pydantic_core_schema__(
        cls,
        source: Any,
        handler: GetCoreSchemaHandler,
    ) -> CoreSchema:
        """Add ``validate`` to the checks of pydantic."""
        return core_schema.with_info_after_validator_function(_validated, handler(source))


def _validated(entry: Any, info: ValidationInfo) -> Any:
    entry.validate(info.context or {})
    return entry


def parse(
    kind: type[T],
    value: Any,
    where: str = "",
    known: Mapping[str, Any] | None = None,
) -> T:
    """Return a YAML value as an instance of a type.

    Args:
        kind: The type, an ``Entry`` or any other type that pydantic can read.
        value: The value.
        where: Location of the value, for messages.
        known: Sections that the value may refer to; the value's own sections are added to them. If
            None, references are not checked.

    Raises:
        RequestError: If the value is invalid; the message states the first fault.
    """
    try:
        made: T = TypeAdapter(kind).validate_python(value, context=known)
    except ValidationError as error:
        raise RequestError(place_and_fault(error, where)) from error
    return made


def id_in(section: str) -> AfterValidator:
    """Return a validator that accepts only ids of a section, if the section has been read."""

    def checked(value: str, info: ValidationInfo) -> str:
        known: Known = info.context or {}
        return choice("", value, known[section]) if section in known else value

    return AfterValidator(checked)


def _by_id(value: Any) -> Any:
    if not isinstance(value, list):
        raise ValueError(f"must be a list, [] if there are no entries; got {value!r}")
    entries: dict[str, Any] = {}
    for number, item in enumerate(value, 1):
        name = item["id"] if isinstance(item, Mapping) and "id" in item else f"entry {number}"
        if name in entries:
            raise ValueError(f"two entries have the id {name}")
        entries[name] = item
    return entries


def _remember(value: T, info: ValidationInfo) -> T:
    if info.context is not None:
        info.context[info.field_name] = value
    return value


def _field(value: str) -> str:
    if not is_field(value):
        raise ValueError(f"must be a number that runs have, such as train_loss; got {value!r}")
    return value


# later sections may refer to it
Section = Annotated[dict[str, T], BeforeValidator(_by_id), AfterValidator(_remember)]
RunField = Annotated[str, AfterValidator(_field)]
ListOrOne = BeforeValidator(lambda value: value if isinstance(value, list | tuple) else [value])

TableId = Annotated[str, id_in("tables")]
FigureId = Annotated[str, id_in("figures")]
SetupId = Annotated[str, id_in("setups")]
MetricId = Annotated[str, id_in("metrics")]
MethodId = Annotated[str, id_in("methods")]
Methods = Annotated[tuple[MethodId, ...], ListOrOne]
