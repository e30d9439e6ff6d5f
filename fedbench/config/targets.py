"""Functions that a configuration names by ``_target_``: found, checked against their signature, and called."""

from __future__ import annotations

import importlib
import inspect
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedbench.config.contents import file_digest
from fedbench.config.names import present, within_fedbench
from fedbench.config.user_code import is_installed, source_files
from fedbench.core.errors import RequestError, arguments_of, install_hint, nearest, typed
from fedbench.core.trees import Tree

_imported: dict[Path, str] = {}  # source file of user code -> digest when it was imported


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
            _forget_other_code(module)
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
    """Return the file and line of user code, or of a library, that raised an error."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith("<")]
    return f"{frames[-1].filename}, line {frames[-1].lineno}"


def _forget_other_code(module: str) -> None:
    """Let user code be imported again unless its present source is what is loaded: a run has the code of its identity.

    Modules of the same name may have been loaded from another directory, or from these files before an edit.

    Raises:
        ModuleNotFoundError: If there is no such module.
    """
    files = {_dotted(name): file for name, file in source_files(module).items() if not is_installed(file)}
    digests = {file: file_digest(file) for file in files.values()}
    loaded = {name: getattr(sys.modules[name], "__file__", None) for name in files if name in sys.modules}
    if all(
        found is not None and Path(found) == files[name] and _imported.get(files[name]) == digests[files[name]]
        for name, found in loaded.items()
    ):
        _imported.update(digests)
        return
    _imported.update(digests)
    for name, module_ in list(sys.modules.items()):
        origin = getattr(module_, "__file__", None)
        if name != "__main__" and (name in files or (origin is not None and Path(origin) in digests)):
            del sys.modules[name]


def _dotted(name: str) -> str:
    """Return the name of the module in a source file: ``pkg/__init__.py`` is ``pkg``."""
    return name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
