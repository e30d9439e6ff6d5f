"""The exceptions for requests and processes that fail, and values as messages show them."""

import difflib
import json
import reprlib
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

_REPR = reprlib.Repr()  # messages stay short, whatever a file contains
_REPR.maxstring = _REPR.maxother = 300
_REPR.maxlist = _REPR.maxtuple = _REPR.maxdict = _REPR.maxset = 20
_LONGEST_WORD = 200  # characters of a name that similar ones are looked for
# what pip installs; `fedbench` on the public index is another project
DISTRIBUTION = "fedbench-harness"


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
    """Let messages about wrong arguments name the full key.

    ``momentum must be ...`` becomes ``local.momentum must be ...``.

    Args:
        section: The section of the configuration that the arguments come from. Names with a dot are
            full keys already.
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
    """Return a value as a message shows it: text in quotes, null and true as they are typed."""
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    return shown(value)


def shown(value: object) -> str:
    """Return the ``repr`` of a value, shortened if it is long or deep.

    Values come from files of any content.
    """
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


def nearest(given: str, known: Iterable[str]) -> str:
    """Return ``'; did you mean X?'`` with the known name closest to ``given``, or nothing."""
    matches = difflib.get_close_matches(given[:_LONGEST_WORD], list(known), n=1)
    return f"; did you mean {matches[0]}?" if matches else ""
