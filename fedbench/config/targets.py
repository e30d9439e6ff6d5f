"""Functions that a configuration names in ``_target_``: their names, options and calls.

The stable name of a fedbench function is its dotted path at its first release. From then on it is
an opaque identifier: it is part of a run's identity, and it remains valid in stored runs and in
users' YAML files. A user's function is identified by its source code (``user_sources``).
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedbench.config.user_sources import forget_other_code
from fedbench.core.config_values import Tree, read_yaml
from fedbench.core.errors import (
    RequestError,
    WrongValue,
    arguments_of,
    install_hint,
    nearest,
    typed,
)
from fedbench.core.user_code import raised
from fedbench.core.validation import checked

# earlier names and behaviour that stored runs may depend on
HISTORY: Tree = read_yaml(Path(__file__).with_name("history.yaml"))
MOVED: dict[str, str] = HISTORY["moved"]
# package -> extra that installs it
_EXTRAS = {"tensorboard": "tensorboard", "mlflow": "mlflow", "dp_accounting": "privacy"}


# ---- names


def present(target: str, table: dict[str, str] = MOVED) -> str:
    """Return a function's current dotted path, given its stable or current name."""
    module, dot, function = target.rpartition(".")
    return table.get(target) or table.get(module, module) + dot + function


def stable(target: str) -> str:
    """Return a function's stable name, given its stable or current name."""
    return present(target, {today: first for first, today in MOVED.items()})


def within_fedbench(target: object) -> bool:
    """Return whether a ``_target_`` names a fedbench function."""
    return str(target).split(".")[0] == "fedbench"


def renamed(tree: Any, name: Callable[[str], str]) -> Any:
    """Return a configuration with ``name`` applied to every ``_target_``, at any depth."""
    if isinstance(tree, list):
        return [renamed(value, name) for value in tree]
    if not isinstance(tree, dict):
        return tree
    copy = {key: renamed(value, name) for key, value in tree.items()}
    if isinstance(tree.get("_target_"), str):
        copy["_target_"] = name(tree["_target_"])
    return copy


# ---- calling functions


@dataclass(frozen=True)
class Component:
    """A section of the configuration that names a function.

    Attributes:
        target: Dotted name of the function (the key ``_target_``), or None if none is named.
        options: The other keys, which are arguments of the function.
    """

    target: str | None
    options: Tree

    @classmethod
    def of(cls, key: str, section: object) -> Component:
        """Return the component defined by a section.

        Args:
            key: Dotted key of the section, for messages.
            section: The section.

        Raises:
            RequestError: If the value is not a section.
        """
        if not isinstance(section, dict):
            raise WrongValue(
                key, f"must be a section with keys, got {typed(section)}; see `fedbench --cfg job`"
            )
        options = dict(section)
        target = options.pop("_target_", None)
        return cls(target, options)

    def inner(self, key: str) -> dict[str, Component]:
        """Return the options that are themselves components.

        Args:
            key: Dotted key of this component.
        """
        return {
            name: Component.of(f"{key}.{name}", option)
            for name, option in self.options.items()
            if isinstance(option, dict) and "_target_" in option
        }


def checked_options(
    component: Component, key: str, given: Collection[str] = ()
) -> tuple[Callable[..., Any], Tree]:
    """Return a component's function and its options, checked against the signature only.

    Args:
        component: The function and its options; an option may itself be a component.
        key: Dotted key of the component, for messages.
        given: Names of the arguments that do not come from the configuration.

    Raises:
        RequestError: If the function does not exist, a key is unknown or missing, or a value does
            not match its annotation.
    """
    function = function_of(component.target, key)
    place = _place(component, key)
    parameters = inspect.signature(function).parameters.values()
    named = [p for p in parameters if p.kind is not p.VAR_KEYWORD and p.name not in given]
    names = [p.name for p in named]
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters)
    for name in component.options:
        if name not in names and not takes_any:
            allowed = ", ".join(names) or "none"
            hint = nearest(name, names)
            raise RequestError(
                f"{place}unknown key {key}.{name}; {function.__name__} has the keys {allowed}{hint}"
            )
    for p in named:
        if p.default is p.empty and p.name not in component.options:
            raise RequestError(
                f"{place}{function.__name__} needs {p.name}, which is not set; "
                f"type +{key}.{p.name}=..."
            )

    inner = component.inner(key)
    for name, part in inner.items():
        checked_options(part, f"{key}.{name}", given)
    plain = {name: value for name, value in component.options.items() if name not in inner}
    with arguments_of(key):
        return function, checked(function, plain)


def call(component: Component, key: str, **given: Any) -> Any:
    """Call a component's function with its options and the arguments in ``given`` that it accepts.

    Args:
        component: The function and its options; an option that is itself a component is called
            first, in the same way.
        key: Dotted key of the component, for messages.
        given: Arguments that do not come from the configuration.

    Raises:
        RequestError: If an option is invalid or rejected by the function, or a user's function
            raises an error.
    """
    function, options = checked_options(component, key, given)
    for name, part in component.inner(key).items():
        options[name] = call(part, f"{key}.{name}", **given)
    accepted = inspect.signature(function).parameters.keys() & given.keys()
    try:
        with arguments_of(key):
            return function(**{name: given[name] for name in accepted}, **options)
    except RequestError:
        raise
    except Exception as error:
        if within_fedbench(component.target):
            raise
        raise RequestError(f"{_place(component, key)}{raised(error)}") from error


def _place(component: Component, key: str) -> str:
    """Return the prefix of a message about a user's function; empty for a fedbench function."""
    return "" if within_fedbench(component.target) else f"{key}._target_={component.target}: "


def function_of(target: str | None, key: str) -> Callable[..., Any]:
    """Return the function with a dotted name.

    Args:
        target: The function's stable or current name.
        key: Dotted key of the component, for messages.

    Raises:
        RequestError: If the function does not exist or its module cannot be imported.
    """
    if not isinstance(target, str) or "." not in target:
        raise RequestError(
            f"{key}._target_ must name a function as package.module.function, got {typed(target)}"
        )
    module, name = present(target).rsplit(".", 1)
    place = f"{key}._target_={target}: "
    is_own = not within_fedbench(target)
    try:
        if is_own:
            forget_other_code(module)
        imported = importlib.import_module(module)
    except Exception as error:
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing and f"{target}.".startswith(f"{missing}."):
            raise RequestError(f"{place}there is no module {missing}") from error
        if is_own:
            raise RequestError(f"{place}{raised(error)}") from error
        if missing:
            extra = f"; run: {install_hint(_EXTRAS[missing])}" if missing in _EXTRAS else ""
            raise RequestError(
                f"{key} needs the package {missing}, which is not installed{extra}"
            ) from error
        raise
    function: Callable[..., Any] | None = getattr(imported, name, None)
    if not callable(function):
        known = [k for k, v in vars(imported).items() if callable(v)]
        raise RequestError(f"{place}{module} has no function {name}{nearest(name, known)}")
    return function
