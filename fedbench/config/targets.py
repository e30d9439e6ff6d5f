"""Functions that a configuration names by ``_target_``: found, checked against their signature, and called."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fedbench.config.contents import file_digest
from fedbench.config.names import present, within_fedbench
from fedbench.config.user_code import is_installed, source_files
from fedbench.core.errors import RequestError, install_hint, nearest
from fedbench.core.trees import Tree

_imported: dict[str, dict[Path, str]] = {}  # module of user code -> digests of its source files when it was imported


def call(section: Tree, what: str, **given: Any) -> Any:
    """Call ``section._target_`` with the section's other keys and with those of ``given`` that it accepts.

    Args:
        section: A section of the configuration with ``_target_``.
        what: Its dotted key, for messages.
        given: Arguments that do not come from the configuration.

    Raises:
        RequestError: If the function does not exist, or a key is unknown or missing.
    """
    function = function_of(section, what)
    name = function.__name__
    takes = {k: p for k, p in inspect.signature(function).parameters.items() if p.kind is not p.VAR_KEYWORD}
    anything = len(takes) < len(inspect.signature(function).parameters)
    options = {k: v for k, v in section.items() if k != "_target_"}
    known = [k for k in takes if k not in given]
    for key in options:
        if key not in known and not anything:
            allowed = ", ".join(known) or "none"
            raise RequestError(f"unknown key {what}.{key}; {name} has the keys {allowed}{nearest(key, known)}")
    missing = [k for k in known if takes[k].default is inspect.Parameter.empty and k not in options]
    if missing:
        raise RequestError(f"{what}.{missing[0]} is not set and {name} needs it")
    return function(**{k: v for k, v in given.items() if k in takes}, **options)


def function_of(section: Tree, what: str) -> Callable[..., Any]:
    """Return the function that ``section._target_`` names, by its present path or by the one of its first release.

    Raises:
        RequestError: If it does not exist.
    """
    target = section.get("_target_")
    if not isinstance(target, str) or "." not in target:
        raise RequestError(f"{what}._target_ must name a function as package.module.function, got {target!r}")
    module, name = present(target).rsplit(".", 1)
    try:
        if not within_fedbench(target):
            _forget_if_edited(module)
        function: Callable[..., Any] = getattr(importlib.import_module(module), name)
    except ModuleNotFoundError as error:
        if error.name and target.startswith(error.name):
            raise RequestError(f"{what}._target_={target}: there is no module {error.name}") from error
        extra = f"; run: {install_hint(error.name)}" if error.name in {"tensorboard", "mlflow"} else ""
        raise RequestError(f"{what} needs the package {error.name}, which is not installed{extra}") from error
    except AttributeError as error:
        raise RequestError(f"{what}._target_={target}: {module} has no {name}") from error
    return function


def _forget_if_edited(module: str) -> None:
    """Let a module of user code be imported again if its source changed: a run must have the code of its identity.

    Raises:
        ModuleNotFoundError: If there is no such module.
    """
    files = [file for file in source_files(module).values() if not is_installed(file)]
    digests = {file: file_digest(file) for file in files}
    if not digests or _imported.get(module) == digests:
        return
    _imported[module] = digests
    for name, loaded in list(sys.modules.items()):
        file = getattr(loaded, "__file__", None)
        if name == module or (name != "__main__" and file is not None and Path(file) in digests):
            del sys.modules[name]
