"""Checks of the values of arguments and configuration keys.

Nothing here needs torch: the command line reads a configuration before it imports torch.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from operator import ge, gt, le, lt
from types import NoneType, SimpleNamespace, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from fedbench.core.errors import WrongValue, nearest, typed

T = TypeVar("T")

_LARGEST = 1e30  # absolute value of any number: its neighbours still fit into float32

_LARGEST_INTEGER = 2**53  # up to here every integer is a float

_CONSTRUCTOR = "__init__"


def number(
    name: str,
    value: object,
    *,
    above: float | None = None,
    at_least: float | None = None,
    below: float | None = None,
    at_most: float | None = None,
    remedy: str = "",
    instead: str = "",
) -> float:
    """Return ``value`` as a float if it is a number within the bounds and at most 1e30 in absolute value.

    Args:
        name: Name of the argument or key, for the message.
        value: The value to check.
        above: Largest number that is too small.
        at_least: Smallest number allowed.
        below: Smallest number that is too large.
        at_most: Largest number allowed.
        remedy: What to type, for the message.
        instead: What else the key takes, such as ``auto``, for the message; the caller has looked for it.

    Raises:
        RequestError: With the value, the bounds and the remedy.
    """
    x = float(value) if isinstance(value, int | float) and not isinstance(value, bool) else math.nan
    every = ((">", above, gt), (">=", at_least, ge), ("<", below, lt), ("<=", at_most, le))
    bounds = [(sign, bound, holds) for sign, bound, holds in every if bound is not None]
    if not abs(x) <= _LARGEST or not all(holds(x, bound) for _, bound, holds in bounds):  # so of NaN
        limits = [f"{sign} {bound:g}" for sign, bound, _ in bounds]
        if abs(x) > _LARGEST and at_most is None and below is None:
            limits.append(f"at most {_LARGEST:g} in absolute value")
        what = f"{instead} or " if instead else ""
        what += "" if bounds and not math.isnan(x) else "a number "
        expected = f"{what}{' and '.join(limits)}".rstrip()
        tail = f"; {remedy}" if remedy else ""
        raise WrongValue(name, f"must be {expected}, got {typed(value)}{tail}")
    return x


def integer(name: str, value: object, *, at_least: float | None = 0, remedy: str = "", instead: str = "") -> int:
    """Return ``value`` as an int if it is an integer >= ``at_least``; 1000.0 is one.

    Args:
        name: Name of the argument or key, for the message.
        value: The value to check.
        at_least: The smallest integer allowed; None is no bound.
        remedy: What to type, for the message.
        instead: What else the key takes, such as ``auto``, for the message; the caller has looked for it.

    Raises:
        RequestError: With the value, the bounds and the remedy.
    """
    n = int(value) if isinstance(value, int) or (isinstance(value, float) and value.is_integer()) else None
    least = -_LARGEST_INTEGER if at_least is None else at_least
    if n is None or isinstance(value, bool) or not least <= n <= _LARGEST_INTEGER:
        low = f" >= {least}" if at_least is not None or (n is not None and n < least) else ""
        most = f" and <= {_LARGEST_INTEGER}" if n is not None and n > _LARGEST_INTEGER else ""
        tail = f"; {remedy}" if remedy else ""
        other = f"{instead} or " if instead else ""
        raise WrongValue(name, f"must be {other}an integer{low}{most}, got {typed(value)}{tail}")
    return n


def sizes(name: str, value: object) -> list[int]:
    """Return ``value`` as a list if it is a list of integers above 0; it may be empty.

    Raises:
        RequestError: If it is not.
    """
    if not isinstance(value, list | tuple):
        raise WrongValue(name, f"must be a list of sizes, got {typed(value)}; one layer is [{value}], none is []")
    return [integer(name, v, at_least=1) for v in value]


def boolean(name: str, value: object) -> bool:
    """Return ``value`` if it is true or false.

    Raises:
        RequestError: If it is not.
    """
    if not isinstance(value, bool):
        raise WrongValue(name, f"must be true or false, got {typed(value)}")
    return value


def choice(name: str, value: object, allowed: Iterable[T]) -> T:
    """Return ``value`` if it is one of ``allowed``.

    Raises:
        RequestError: If it is not; the message has the allowed values and the nearest one.
    """
    allowed = list(allowed)
    if not any(a == value and isinstance(a, bool) == isinstance(value, bool) for a in allowed):  # True == 1
        options = ", ".join(a if isinstance(a, str) else typed(a) for a in allowed)
        hint = nearest(str(value), map(str, allowed))
        raise WrongValue(name, f"must be one of {options}; got {typed(value)}{hint}")
    return cast(T, value)


def text(
    name: str, value: object, *, what: str, pattern: str = ".+", made: Callable[[str, str], Any] | None = None
) -> Any:
    """Return ``value``, or what ``made`` makes of it, if it is text that matches ``pattern``.

    Raises:
        RequestError: If it is not ``what`` it should be.
    """
    if not isinstance(value, str) or not re.fullmatch(pattern, value):
        raise WrongValue(name, f"must be {what}, got {typed(value)}")
    return value if made is None else made(name, value)


def several(name: str, value: object, *, what: str, check: Callable[[str, Any], Any] = integer) -> tuple[Any, ...]:
    """Return the checked values of a list.

    Raises:
        RequestError: If it is no list, or one of them is wrong.
    """
    if not isinstance(value, list):
        raise WrongValue(name, f"must be {what}, got {typed(value)}")
    return tuple(check(name, v) for v in value)


@dataclass(frozen=True)
class Range:
    """The bounds of a number, in the annotation of an option: ``Annotated[float, Range(at_least=0, below=1)]``."""

    above: float | None = None
    at_least: float | None = None
    below: float | None = None
    at_most: float | None = None


class Check(partial[Any]):
    """A function of a key and a value that returns what the value stands for, in the annotation of a key."""


def checked(function: Callable[..., Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a function, with each value as the annotation of its argument declares it.

    ``float``, ``int``, both also with a ``Range``, ``bool``, ``Literal`` and ``None`` are checked, and unions of words
    and one of the others; an integer for a ``float`` becomes one. The function checks what any other annotation
    stands for, and what depends on several arguments. An annotation that cannot be read, such as a name that is
    imported for type checkers alone, declares nothing.

    Raises:
        RequestError: If a value is not what is declared.
    """
    made = getattr(function, _CONSTRUCTOR) if isinstance(function, type) else function
    names = getattr(inspect.unwrap(made), "__globals__", {})
    parameters = inspect.signature(function).parameters
    hints = {name: _read(parameters[name].annotation, names) for name in options if name in parameters}
    return {name: declared(name, value, hints.get(name)) for name, value in options.items()}


def _read(annotation: object, names: dict[str, Any]) -> object:
    try:
        read = get_type_hints(SimpleNamespace(__annotations__={"it": annotation}), names, include_extras=True)
    except (AttributeError, NameError, SyntaxError, TypeError):  # text, or of names that are not there
        return None
    return read["it"]


def declared(name: str, value: object, hint: object) -> Any:
    """Return a value as an annotation declares it, as ``checked`` does.

    A check in the annotation, ``Annotated[int, Check(function)]``, returns the value where no other can say it.
    """
    if get_origin(hint) is Annotated and isinstance(own := get_args(hint)[1], Check):
        return own(name, value)
    parts = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    words = [w for part in parts if get_origin(part) is Literal for w in get_args(part)]
    words += [None] if NoneType in parts else []
    others = [part for part in parts if part is not NoneType and get_origin(part) is not Literal]
    if not others:
        return choice(name, value, words)
    if len(others) > 1 or any(word == value and type(word) is type(value) for word in words):
        return value
    kind, *notes = get_args(others[0]) if get_origin(others[0]) is Annotated else (others[0],)
    bounds = asdict(next((note for note in notes if isinstance(note, Range)), Range()))
    instead = ", ".join(word if isinstance(word, str) else typed(word) for word in words)
    if kind is bool:
        return choice(name, value, [*words, True, False]) if words else boolean(name, value)
    if kind is int:
        whole = integer(name, value, at_least=bounds["at_least"], instead=instead)
        number(name, whole, **bounds, instead=instead)
        return whole
    return number(name, value, **bounds, instead=instead) if kind is float else value
