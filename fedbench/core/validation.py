"""Validation of values against annotations, with pydantic, and messages about invalid values.

This module does not need torch: the command line reads configurations before it imports torch.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from itertools import chain
from types import SimpleNamespace
from typing import Any, TypeVar, get_type_hints

from pydantic import ConfigDict, PydanticUserError, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from fedbench.core.errors import WrongValue, nearest, typed

T = TypeVar("T")

STRICT = ConfigDict(strict=True, allow_inf_nan=False, arbitrary_types_allowed=True)
_INPUT = "Input should be "  # pydantic begins its messages with this text
_EXPECTED = {  # pydantic error type -> requirement on the value
    "greater_than": "> {gt:.12g}",
    "greater_than_equal": ">= {ge:.12g}",
    "less_than": "< {lt:.12g}",
    "less_than_equal": "<= {le:.12g}",
    "int_type": "an integer",
    "float_type": "a number",
    "bool_type": "true or false",
    "string_type": "text",
    "list_type": "a list",
    "tuple_type": "a list",
    "dict_type": "a section with keys",
    "dataclass_type": "a section with keys",
    "string_pattern_mismatch": "text that matches {pattern}",
}


def validate(
    name: str,
    value: Any,
    kind: Any,
    remedy: str = "",
) -> Any:
    """Return a value after validating and converting it according to a type.

    Args:
        name: Name of the argument or key, for the message.
        value: The value.
        kind: The type, such as ``Annotated[float, Gt(0)]``.
        remedy: Advice for the user, for the message.

    Raises:
        RequestError: If the value is invalid; the message states the value, the allowed values and
            the remedy.
    """
    return _validate(
        name,
        value,
        TypeAdapter(kind, config=STRICT),
        remedy,
    )


def checked(
    function: Callable[..., Any],
    options: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the options of a function, each validated against its argument's annotation.

    Annotations that cannot be resolved, such as names imported only for type checkers, are ignored.

    Raises:
        RequestError: If a value does not match its annotation.
    """
    adapters = _adapters(function)
    return {
        name: _validate(name, value, adapters[name]) if name in adapters else value
        for name, value in options.items()
    }


def _validate(
    name: str,
    value: Any,
    adapter: TypeAdapter[Any],
    remedy: str = "",
) -> Any:
    try:
        return adapter.validate_python(value)
    except ValidationError as error:
        raise WrongValue(name, fault(error, remedy)) from error


@lru_cache(maxsize=1024)
def _adapters(function: Callable[..., Any]) -> dict[str, TypeAdapter[Any]]:
    """Return a validator for each argument whose annotation can be resolved."""
    made = inspect.getattr_static(function, "__init__") if isinstance(function, type) else function
    names = getattr(inspect.unwrap(made), "__globals__", {})
    adapters = {}
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.annotation is parameter.empty:
            continue
        annotated = SimpleNamespace(__annotations__={name: parameter.annotation})
        try:
            hint = get_type_hints(annotated, names, include_extras=True)[name]
            adapters[name] = TypeAdapter(hint, config=STRICT)
        except (AttributeError, NameError, SyntaxError, TypeError, PydanticUserError):
            continue  # a string, an unknown name, or a class that pydantic does not support
    return adapters


def whole(value: Any) -> Any:
    """Return 1000 for 1000.0, and any other value unchanged."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def choice(
    name: str,
    value: object,
    allowed: Iterable[T],
) -> T:
    """Return ``value`` if it is one of ``allowed``.

    Raises:
        RequestError: If it is not. The message lists the allowed values and suggests the closest
            one.
    """
    allowed = list(allowed)
    if value not in allowed:
        raise WrongValue(name, _must_be(one_of(allowed), value, map(str, allowed)))
    return value


# ---- messages


def fault(error: ValidationError, remedy: str = "") -> str:
    """Return a message about the first value that pydantic rejects.

    An example is ``must be auto or > 0, got -1``.
    """
    errors = error.errors(include_url=False)
    first = errors[0]
    if first["type"] == "value_error":
        message = first["ctx"]["error"]
        return getattr(message, "fault", str(message))
    value = first["input"]
    if first["type"] not in _EXPECTED and not first["msg"].startswith(_INPUT):
        return f"{first['msg']}; got {typed(value)}"
    # a union has one error per member; literals come first
    parts = [e for e in errors if e["input"] is value]
    literals = [e for e in parts if e["type"] == "literal_error"]
    others = [e for e in parts if e["type"] != "literal_error"]
    expected = map(_expected, [*literals, *others])
    words = chain.from_iterable(map(_words, literals))
    message = _must_be(" or ".join(dict.fromkeys(expected)), value, words)
    return f"{message}; {remedy}" if remedy else message


def place_and_fault(error: ValidationError, place: str) -> str:
    """Return the first fault with its location; list items are counted from 1."""
    first = error.errors(include_url=False)[0]
    parts = [part for part in first["loc"] if part != "[key]"]
    if first["type"] == "missing":
        message = f"lacks {parts.pop()}"
    elif first["type"] == "unexpected_keyword_argument":
        message = f"unknown key {parts.pop()!r}"
    elif first["type"] == "value_error":
        message = str(first["ctx"]["error"]).strip()
    else:
        message = fault(error)
    for part in parts:
        if isinstance(part, int):
            place = f"{place} {part + 1}"
        else:
            place = f"{place}: {part}".removeprefix(": ")
    return f"{place}: {message}".removeprefix(": ")


def one_of(allowed: Iterable[object]) -> str:
    """Return the list of allowed values for a message."""
    words = [value if isinstance(value, str) else typed(value) for value in allowed]
    return words[0] if len(words) == 1 else f"one of {', '.join(words)}"


def _must_be(
    expected: str,
    value: object,
    words: Iterable[str],
) -> str:
    separator = ";" if "," in expected else ","
    return f"must be {expected}{separator} got {typed(value)}{nearest(str(value), words)}"


def _expected(error: ErrorDetails) -> str:
    if error["type"] == "literal_error":
        return one_of(_words(error))
    if error["type"] in _EXPECTED:
        return _EXPECTED[error["type"]].format(**error.get("ctx", {}))
    return error["msg"].removeprefix(_INPUT).replace("an instance of Sequence", "a list")


def _words(error: ErrorDetails) -> list[str]:
    """Return the values of a ``Literal``, which pydantic formats as ``'a', 'b' or 1``."""
    listed: str = error["ctx"]["expected"]
    return listed.replace(" or ", ", ").replace("'", "").split(", ")
