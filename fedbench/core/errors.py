"""The exception for a wrong request, the checks that raise it, and what messages say of values and functions."""

from __future__ import annotations

import difflib
import math
import re
import reprlib
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from operator import ge, gt, le, lt
from pathlib import Path
from typing import Any, TypeVar, cast

T = TypeVar("T")

_PACKAGE = Path(__file__).resolve().parent.parent
_LARGEST = 1e30  # absolute value of any number: its neighbours still fit into float32
_LARGEST_INTEGER = 2**53  # up to here every integer is a float
_REPR = reprlib.Repr()  # messages stay short, whatever a file contains
_REPR.maxstring = _REPR.maxother = 300
_REPR.maxlist = _REPR.maxtuple = _REPR.maxdict = _REPR.maxset = 20
_LONGEST_WORD = 200  # characters of a name that similar ones are looked for
DISTRIBUTION = "fedbench-harness"  # what pip installs; `fedbench` on the public index is another project


class RequestError(ValueError):
    """A wrong request: the message says what was given, what is allowed and what to type instead.

    The command line prints the message alone and exits with status 2.
    """


class LostProcess(Exception):
    """Another process of the same run is gone."""


class FailedElsewhere(Exception):
    """Another process of the same run has failed; the message says which and why."""


class WrongValue(RequestError):
    """A wrong value of one argument, or of one key of the configuration.

    Args:
        name: Name of the argument, or dotted key.
        fault: The rest of the message: what is allowed, what was given and what to type.
    """

    def __init__(self, name: str, fault: str) -> None:
        super().__init__(f"{name} {fault}")
        self.name, self.fault = name, fault


@contextmanager
def arguments_of(section: str) -> Iterator[None]:
    """Let messages about wrong arguments name the full key: ``momentum must be ...`` becomes ``local.momentum ...``.

    Args:
        section: The section of the configuration that the arguments come from. Names with a dot are full keys already.
    """
    try:
        yield
    except WrongValue as error:
        if "." in error.name:
            raise
        raise WrongValue(f"{section}.{error.name}", error.fault) from error


def install_hint(extra: str) -> str:
    """Return the command that installs an optional part of fedbench, quoted for the shell.

    Args:
        extra: Name of the extra, as in ``pyproject.toml``.
    """
    return f"pip install '{DISTRIBUTION}[{extra}]'"


def typed(value: object) -> str:
    """Return a value as a message shows it: null, true and false as they are typed, text in quotes."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return shown(value)


def shown(value: object) -> str:
    """Return the ``repr`` of a value, shortened if it is long or deep: values come from files of any content."""
    try:
        return _REPR.repr(value)
    except ValueError:  # an integer with more digits than Python prints
        return f"an integer with more than {sys.get_int_max_str_digits()} digits"


def reason_of(error: Exception) -> str:
    """Return what an error says, in one short line; its class if it says nothing.

    Control characters are escaped: the text may be that of a server, and a terminal obeys them.
    """
    text = " ".join(str(error).split()) or type(error).__name__
    return repr(text)[1:-1][:300]


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


def nearest(given: str, known: Iterable[str]) -> str:
    """Return ``'; did you mean X?'`` for the known given closest to ``given``, or an empty string."""
    found = difflib.get_close_matches(given[:_LONGEST_WORD], list(known), n=1)
    return f"; did you mean {found[0]}?" if found else ""


def is_own(function: Callable[..., Any]) -> bool:
    """Whether a function was written outside fedbench."""
    plain = function.func if isinstance(function, partial) else function
    return not str(getattr(plain, "__module__", "")).startswith("fedbench.")


def place_of(function: Callable[..., Any]) -> str:
    """A function's name, file and first line, for messages: ``direction (median.py, line 17)``."""
    plain = function.func if isinstance(function, partial) else function
    name = getattr(plain, "__qualname__", type(plain).__qualname__).rpartition("<locals>.")[2]
    code = getattr(plain, "__code__", None) or getattr(type(plain).__call__, "__code__", None)
    return name if code is None else f"{name} ({_short(code.co_filename)}, line {code.co_firstlineno})"


def raised(error: Exception) -> str:
    """An error and the innermost line outside fedbench and installed packages that it passed, for messages."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith("<")]
    own = [f for f in frames if not Path(f.filename).is_relative_to(_PACKAGE) and "site-packages" not in f.filename]
    last, text = (own or frames)[-1], " ".join(str(error).split())
    return f"raised {type(error).__name__} in {_short(last.filename)}, line {last.lineno}: {text}"


def _short(file: str) -> str:
    """A file as a message names it: relative to the working directory if it is below it."""
    path = Path(file)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else file
