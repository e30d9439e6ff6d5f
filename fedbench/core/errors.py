"""Exceptions for invalid requests and failed processes, and formatting of values in messages."""

import difflib
import json
import reprlib
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

_REPR = reprlib.Repr()  # messages stay short, whatever a file contains
_REPR.maxstring = _REPR.maxother = 300
_REPR.maxlist = _REPR.maxtuple = _REPR.maxdict = _REPR.maxset = 20
_LONGEST_WORD = 200  # characters of a name that are compared with known names
# name of the package for pip; `fedbench` on the public index is a different project
DISTRIBUTION = "fedbench-harness"


class RequestError(ValueError):
    """An invalid request; the message states the given value, the allowed values and a remedy.

    The command line prints only the message and exits with status 2.
    """


class LostProcess(Exception):
    """Another process of the same run has disappeared."""


class FailedElsewhere(Exception):
    """Another process of the same run has failed; the message names it and the reason."""


class WrongValue(RequestError):
    """An invalid value of an argument or of a configuration key.

    Args:
        name: Name of the argument, or the dotted key.
        fault: The rest of the message: the allowed values, the given value and the remedy.
    """

    def __init__(self, name: str, fault: str) -> None:
        super().__init__(f"{name} {fault}")
        self.name, self.fault = name, fault


@contextmanager
def arguments_of(section: str) -> Iterator[None]:
    """Name the full key in messages about invalid arguments.

    ``momentum must be ...`` becomes ``local.momentum must be ...``.

    Args:
        section: Section of the configuration that contains the arguments. Names with a dot are
            already full keys.
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
    """Return a value for display in a message: strings in quotes, null and true as typed."""
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    return shown(value)


def shown(value: object) -> str:
    """Return the ``repr`` of a value, shortened if it is long or deep.

    The value may come from an arbitrary file.
    """
    try:
        return _REPR.repr(value)
    except ValueError:  # an integer with more digits than Python prints
        return f"an integer with more than {sys.get_int_max_str_digits()} digits"


def reason_of(error: Exception) -> str:
    """Return the message of an error in one short line, or its class if the message is empty.

    Control characters are escaped, because the text may come from a server and a terminal would
    interpret them.
    """
    return one_line(str(error)) or type(error).__name__


def one_line(text: str) -> str:
    """Return a text of arbitrary origin in one short line, with control characters escaped."""
    words = " ".join(text.split())
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in words[:300])


def nearest(given: str, known: Iterable[str]) -> str:
    """Return ``'; did you mean X?'`` with the closest known name, or an empty string."""
    matches = difflib.get_close_matches(given[:_LONGEST_WORD], list(known), n=1)
    return f"; did you mean {matches[0]}?" if matches else ""
