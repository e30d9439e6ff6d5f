"""The options of a method, as far as they can be judged before data are read."""

from __future__ import annotations

import inspect

from fedbench.config.schema import RunConfig
from fedbench.config.targets import Component, checked_options, function_of

ARGUMENTS = ("local", "rounds", "clients", "examples", "tensors")  # given to a method that takes them (ADR 0002)


def method_parts(config: RunConfig) -> dict[str, Component]:
    """Return the method and those of its options that are methods themselves, by dotted key."""
    parts = {"algo": config.algo}
    for name, value in config.algo.options.items():
        if isinstance(value, dict) and "_target_" in value:
            parts[f"algo.{name}"] = Component.of(f"algo.{name}", value)
    return parts


def check_method(config: RunConfig) -> None:
    """Check the options of the method by its signature.

    Raises:
        RequestError: If a key is unknown or missing, or a value is not what its annotation declares.
    """
    for key, component in method_parts(config).items():
        checked_options(component, key, ARGUMENTS)


def depends_on_rounds(config: RunConfig) -> str:
    """Return what makes a run one for its number of rounds: its schedule, noise or method; empty if nothing does."""
    if config.local.schedule.depends_on_rounds:
        return "local.schedule=cosine"
    if "privacy" in config.scenarios and config.scenarios["privacy"].options.get("epsilon") is not None:
        return "privacy.epsilon"  # the noise is what spends it in the planned rounds
    functions = (function_of(component.target, key) for key, component in method_parts(config).items())
    takes_rounds = any("rounds" in inspect.signature(function).parameters for function in functions)
    return config.names.algo if takes_rounds else ""
