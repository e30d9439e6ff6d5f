"""From the configuration of the scenarios to what surrounds the method of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedbench.config.targets import Component, call, within_fedbench
from fedbench.core.algorithm import Stage
from fedbench.scenarios.allowed import refuse
from fedbench.scenarios.draws import Population
from fedbench.scenarios.surroundings import Surroundings
from fedbench.simulation.turn import Attackers

_LAYERS = ("attack", "compression", "privacy", "defence")  # the order in which a message passes them


def surround(
    asked: Mapping[str, Component], algo: Component, stages: Sequence[Stage], population: Population
) -> Surroundings:
    """Return what surrounds a method.

    Args:
        asked: The scenarios that were chosen, by group.
        algo: The configuration of the method.
        stages: The stages of the method.
        population: All clients.

    Raises:
        RequestError: If a value is wrong, or a scenario does not go with the method or with another one.
    """
    parts: dict[str, Any] = {}
    for group, one in asked.items():  # attack is before defence
        attackers = len(parts["attack"].who) if "attack" in parts else 0
        parts[group] = call(one, group, population=population, attackers=attackers)
    name = str(algo.target).rpartition(".")[2]
    needs = {need: key for part in parts.values() for need, key in part.needs.items()}
    for stage in stages:
        refuse(name, stage, needs, own=not within_fedbench(str(algo.target)))
    layers = [parts[group] for group in _LAYERS if group in parts]
    draw = getattr(parts.get("privacy"), "draw", None)
    return Surroundings(population, parts.get("availability"), draw, layers, parts.get("attack", Attackers()))
