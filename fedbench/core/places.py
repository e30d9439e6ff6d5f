"""Where a function was written, for messages about it."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import CodeType
from typing import Any

_PACKAGE = Path(__file__).resolve().parent.parent


def place_of(function: Callable[..., Any]) -> str:
    """Return a function's name, file and first line: ``direction (median.py, line 17)``."""
    code, name = _code(function), _name(function)
    return name if code is None else f"{name} ({_short(code.co_filename)}, line {code.co_firstlineno})"


def is_own(function: Callable[..., Any]) -> bool:
    """Return whether a function was written outside fedbench."""
    code = _code(function)
    return code is not None and not Path(code.co_filename).is_relative_to(_PACKAGE)


def line_of(error: BaseException) -> str:
    """Return the innermost line outside fedbench and installed packages that an error passed: ``mine.py, line 12``.

    Without such a line it is the line that raised the error.
    """
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith("<")]
    own = [f for f in frames if not Path(f.filename).is_relative_to(_PACKAGE) and "site-packages" not in f.filename]
    return f"{_short((own or frames)[-1].filename)}, line {(own or frames)[-1].lineno}"


def _short(file: str) -> str:
    """Return a file as a message names it: relative to the working directory if it is below it."""
    path = Path(file)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else file


def _code(function: Callable[..., Any]) -> CodeType | None:
    while isinstance(function, partial):
        function = function.func
    code = getattr(function, "__code__", None) or getattr(type(function).__call__, "__code__", None)
    return code if isinstance(code, CodeType) else None


def _name(function: Callable[..., Any]) -> str:
    while isinstance(function, partial):
        function = function.func
    name: str = getattr(function, "__qualname__", type(function).__qualname__)
    return name.rpartition("<locals>.")[2]
