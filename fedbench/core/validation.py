"""Checks of values by annotations, with pydantic, and the messages about wrong ones.

Nothing here needs torch: the command line reads a configuration before it imports torch.
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
_INPUT = "Input should be "  # how pydantic begins a message
_EXPECTED = {  # type of pydantic's error -> what the value must be
    "greater_than": "> {gt:g}",
    "greater_than_equal": ">= {ge:g}",
    "less_than": "< {lt:g}",
    "less_than_equal": "<= {le:g}",
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
    """Return a value as a type declares it.

    Args:
        name: Name of the argument or key, for the message.
        value: The value.
        kind: The type, such as ``Annotated[float, Gt(0)]``.
        remedy: What to type instead, for the message.

    Raises:
        RequestError: With the value, what is allowed and the remedy.
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
    """Return the options of a function, each as the annotation of its argument declares it.

    An annotation that cannot be read, such as a name that is imported for type checkers alone,
    declares nothing.

    Raises:
        RequestError: If a value is not what is declared.
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
    """Return what checks each argument whose annotation can be read."""
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
            continue  # text, a name that is not there, or a class that pydantic does not know
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
        RequestError: If it is not; the message has the allowed values and the nearest one.
    """
    allowed = list(allowed)
    if value not in allowed:
        raise WrongValue(name, _must_be(one_of(allowed), value, map(str, allowed)))
    return value


# ---- messages


def fault(error: ValidationError, remedy: str = "") -> str:
    """Return the fault at the first place that pydantic objects to.

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
    # an error for each part of a union; words come first
    parts = [e for e in errors if e["input"] is value]
    literals = [e for e in parts if e["type"] == "literal_error"]
    others = [e for e in parts if e["type"] != "literal_error"]
    expected = map(_expected, [*literals, *others])
    words = chain.from_iterable(map(_words, literals))
    message = _must_be(" or ".join(dict.fromkeys(expected)), value, words)
    return f"{message}; {remedy}" if remedy else message


def one_of(allowed: Iterable[object]) -> str:
    """Return allowed values as a message lists them."""
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
    """Return the values of a ``Literal``, which pydantic lists as ``'a', 'b' or 1``."""
    listed: str = error["ctx"]["expected"]
    return listed.replace(" or ", ", ").replace("'", "").split(", ")
