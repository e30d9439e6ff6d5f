"""Descriptions of the user's functions and of their errors, for messages."""

import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

_PACKAGE = Path(__file__).resolve().parent.parent


def is_own(function: Callable[..., Any]) -> bool:
    """Return whether a function was written outside fedbench."""
    plain = function.func if isinstance(function, partial) else function
    return not str(getattr(plain, "__module__", "")).startswith("fedbench.")


def place_of(function: Callable[..., Any]) -> str:
    """Return a function's name, file and first line: ``direction (median.py, line 17)``."""
    plain = function.func if isinstance(function, partial) else function
    kind = type(plain)
    full = getattr(plain, "__qualname__", kind.__qualname__)
    _, _, name = full.rpartition("<locals>.")
    called = getattr(kind.__call__, "__code__", None)
    code = getattr(plain, "__code__", called)
    if code is None:
        return str(name)
    return f"{name} ({_short(code.co_filename)}, line {code.co_firstlineno})"


def raised(error: Exception) -> str:
    """Return an error's message and innermost line outside fedbench and installed packages."""
    message = " ".join(str(error).split())
    if isinstance(error, SyntaxError):
        file, line = str(error.filename), error.lineno
    else:
        frames = [
            frame
            for frame in traceback.extract_tb(error.__traceback__)
            if not frame.filename.startswith("<")
        ]
        own = [frame for frame in frames if not _is_library(frame.filename)]
        innermost = (own or frames)[-1]
        file, line = innermost.filename, innermost.lineno
    return f"raised {type(error).__name__} in {_short(file)}, line {line}: {message}"


def _is_library(file: str) -> bool:
    return "site-packages" in file or Path(file).is_relative_to(_PACKAGE)


def _short(file: str) -> str:
    """Return a file's path for a message, relative to the working directory if it is below it."""
    path, folder = Path(file), Path.cwd()
    return str(path.relative_to(folder)) if path.is_relative_to(folder) else file
