"""Functions named in the config tree."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from typing import Any

from fedbench.core.errors import RequestError, install_hint, nearest
from fedbench.core.trees import Tree


def call(section: Tree, what: str, **given: Any) -> Any:
    """Call ``section._target_`` with the section's other keys and those of ``given`` that it takes.

    Raises:
        RequestError: if there is no such function, or keys are unknown or missing.
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
    """Return the function that ``section._target_`` names.

    Raises:
        RequestError: if there is none.
    """
    target = section.get("_target_")
    if not isinstance(target, str) or "." not in target:
        raise RequestError(f"{what}._target_ must name a function as package.module.function, got {target!r}")
    module, name = target.rsplit(".", 1)
    try:
        function: Callable[..., Any] = getattr(importlib.import_module(module), name)
    except ModuleNotFoundError as error:
        if error.name and target.startswith(error.name):
            raise RequestError(f"{what}._target_={target}: there is no module {error.name}") from error
        extra = f"; run: {install_hint(error.name)}" if error.name in {"tensorboard", "mlflow"} else ""
        raise RequestError(f"{what} needs the package {error.name}, which is not installed{extra}") from error
    except AttributeError as error:
        raise RequestError(f"{what}._target_={target}: {module} has no {name}") from error
    return function
