"""Functions that a configuration names by ``_target_``: found, checked against their signature, and called."""

from __future__ import annotations

import importlib
import inspect
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fedbench.config.names import present, within_fedbench
from fedbench.config.user_code import forget_other_code
from fedbench.core.errors import RequestError, arguments_of, install_hint, nearest, typed
from fedbench.core.files import Tree


@dataclass(frozen=True)
class Component:
    """A section of the configuration that names a function.

    Attributes:
        target: Dotted name of the function, the key ``_target_``; None if no function is named.
        options: The other keys: arguments of the function.
    """

    target: str | None
    options: Tree

    @classmethod
    def of(cls, section: Tree) -> Component:
        """Return the component of a section."""
        return cls(section.get("_target_"), {k: v for k, v in section.items() if k != "_target_"})


def call(component: Component, what: str, **given: Any) -> Any:
    """Call the function of a component with its options and with those of ``given`` that it accepts.

    Args:
        component: The function and its options.
        what: Its dotted key, for messages.
        given: Arguments that do not come from the configuration.

    Raises:
        RequestError: If the function does not exist, a key is unknown or missing, the function rejects a value, or a
            function of the user's own raises an error.
    """
    function = function_of(component.target, what)
    name, where = function.__name__, _at(component.target, what)
    takes = {k: p for k, p in inspect.signature(function).parameters.items() if p.kind is not p.VAR_KEYWORD}
    anything = len(takes) < len(inspect.signature(function).parameters)
    known = [k for k in takes if k not in given]
    for key in component.options:
        if key not in known and not anything:
            allowed = ", ".join(known) or "none"
            hint = nearest(key, known)
            raise RequestError(f"{where}unknown key {what}.{key}; {name} has the keys {allowed}{hint}")
    missing = [k for k in known if takes[k].default is inspect.Parameter.empty and k not in component.options]
    if missing:
        raise RequestError(f"{where}{name} needs {missing[0]}, which is not set; type +{what}.{missing[0]}=...")
    try:
        with arguments_of(what):
            return function(**{k: v for k, v in given.items() if k in takes}, **component.options)
    except RequestError:
        raise
    except Exception as error:
        if component.target is None or within_fedbench(component.target):
            raise
        raise _error_of_own(error, component.target, what) from error


def _at(target: str | None, what: str) -> str:
    """Return the target as the start of a message if it is not fedbench's own; nothing otherwise."""
    return "" if target is None or within_fedbench(target) else f"{what}._target_={target}: "


def function_of(target: str | None, what: str) -> Callable[..., Any]:
    """Return the function of a dotted name, its present one or the one of its first release.

    Args:
        target: The name.
        what: Dotted key of the component, for messages.

    Raises:
        RequestError: If it does not exist.
    """
    if not isinstance(target, str) or "." not in target:
        raise RequestError(f"{what}._target_ must name a function as package.module.function, got {typed(target)}")
    module, name = present(target).rsplit(".", 1)
    try:
        if not within_fedbench(target):
            forget_other_code(module)
        imported = importlib.import_module(module)
    except Exception as error:
        clear = _import_error(error, target, what)
        if clear is None:
            raise
        raise clear from error
    function: Callable[..., Any] | None = getattr(imported, name, None)
    if not callable(function):
        known = [k for k, v in vars(imported).items() if callable(v)]
        raise RequestError(f"{what}._target_={target}: {module} has no function {name}{nearest(name, known)}")
    return function


def _import_error(error: Exception, target: str, what: str) -> RequestError | None:
    """Return the error for a module that cannot be imported; None if the fault is fedbench's own."""
    missing = error.name if isinstance(error, ModuleNotFoundError) else None
    if missing and f"{target}.".startswith(f"{missing}."):
        return RequestError(f"{what}._target_={target}: there is no module {missing}")
    if missing and missing.split(".")[0] != "fedbench":
        extra = f"; run: {install_hint(missing)}" if missing in {"tensorboard", "mlflow"} else ""
        return RequestError(f"{what} needs the package {missing}, which is not installed{extra}")
    if within_fedbench(target):
        return None
    return _error_of_own(error, target, what)


def _error_of_own(error: Exception, target: object, what: str) -> RequestError:
    """Return the error for an exception of user code, with its place."""
    text = " ".join(str(error).split())
    return RequestError(f"{what}._target_={target}: {_line_of(error)}: {type(error).__name__}: {text}")


def _line_of(error: Exception) -> str:
    """The file and line of user code, or of a library, that raised an error."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}, line {error.lineno}"
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith("<")]
    return f"{frames[-1].filename}, line {frames[-1].lineno}"
