"""Functions of the user's own, as messages show them."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

_PACKAGE = Path(__file__).resolve().parent.parent


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
