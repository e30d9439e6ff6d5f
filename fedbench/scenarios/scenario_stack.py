"""Composition of a run's scenarios around its method.

Each round applies these steps in order: availability and sampling of clients; broadcast; local
work; replacement of the attackers' messages; compression, after which the server sees decoded
vectors; clipping; preprocessing of the vectors; the rule in place of the sum, or noise; the
method's server step.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from fedbench.config.targets import Component, call, within_fedbench
from fedbench.core.algorithm import Algorithm, Stage
from fedbench.core.config_values import Tree
from fedbench.core.randomness import Sampler
from fedbench.core.types import ClientInfo, State, nbytes
from fedbench.scenarios.allowed import Demand, refuse
from fedbench.scenarios.availability import EMPTY_ROUNDS, Availability
from fedbench.scenarios.layers import Layer, hidden, shown
from fedbench.scenarios.population import Population
from fedbench.simulation.scenario import (
    REPORTS,
    Attackers,
    RoundPlan,
    Scenario,
)

# order in which the scenarios act on a message from a client to the server
_ORDER = ("attack", "compression", "privacy", "defence", "availability")


@dataclass(frozen=True)
class ScenarioStack(Scenario):
    """The scenarios of a run.

    Attributes:
        population: All clients.
        layers: The scenarios around the method, innermost first.
    """

    population: Population
    layers: Sequence[Layer] = ()

    keeps = (REPORTS, EMPTY_ROUNDS)

    @cached_property
    def availability(self) -> Availability:
        """The availability of clients; by default, every sampled client reports."""
        return next(
            (layer for layer in self.layers if isinstance(layer, Availability)), Availability()
        )

    @cached_property
    def attackers(self) -> Attackers:
        """The clients that attack."""
        return next((layer for layer in self.layers if isinstance(layer, Attackers)), Attackers())

    @property
    def facts(self) -> Tree:
        """Facts about the scenarios for ``meta.json``."""
        facts: Tree = {}
        for layer in self.layers:
            facts |= layer.facts
        return facts

    def with_states(self, algo: Algorithm) -> Algorithm:
        """Return the method with the scenarios' own server and client states."""
        none = np.arange(0)
        plan = RoundPlan(
            algorithm=algo,
            seed=self.population.seed,
            round=0,
            server={},
            able=none,
            ids=none,
            receivers=none,
            tau=none,
            steps=0,
        )
        return self._wrapped(plan)

    def reachable(
        self,
        round: int,
        able: np.ndarray,
    ) -> np.ndarray:
        """Return ``able`` [N] with 0 for clients that cannot be reached in this round."""
        return self.availability.reachable(self.population.seed, round, able)

    def sampler(self, sampler: Sampler) -> Sampler:
        """Return the sampler of cohorts, given the run's sampler."""
        for layer in self.layers:
            sampler = layer.sampler(sampler)
        return sampler

    def plan(self, plan: RoundPlan) -> RoundPlan:
        """Return the round plan under the scenarios, given the plan without scenarios."""
        # entries that scenarios add to uploads for the server's use are not counted
        plan = replace(
            self.availability.arrivals(plan), bytes_up=lambda uploads: nbytes(shown(uploads))
        )
        plan = replace(plan, algorithm=self._wrapped(plan))
        for layer in self.layers:
            plan = layer.plan(plan)
        return plan

    def _wrapped(self, plan: RoundPlan) -> Algorithm:
        algo = _apart(plan.algorithm)
        for layer in self.layers:
            algo = layer.wrap(algo, plan)
        return algo


def build_scenarios(
    choices: Mapping[str, Component],
    algo: Component,
    stages: Sequence[Stage],
    population: Population,
) -> ScenarioStack:
    """Return the scenarios around a method.

    Args:
        choices: The chosen scenarios, by group.
        algo: Configuration of the method.
        stages: Stages of the method.
        population: All clients.

    Raises:
        RequestError: If a value is invalid, or a scenario cannot be combined with the method or
            with another scenario.
    """
    stack = ScenarioStack(population)
    for group in _ORDER:
        if group in choices:
            attackers = len(stack.attackers.who)
            layer: Layer = call(
                choices[group],
                group,
                population=population,
                attackers=attackers,
            )
            stack = replace(stack, layers=[*stack.layers, layer])

    target = str(algo.target)
    name = target.rpartition(".")[2]
    needs: dict[Demand, str] = {}
    if population.selection:
        needs["selection"] = population.selection
    for layer in stack.layers:
        needs |= layer.needs
    for stage in stages:
        refuse(name, stage, needs, own=not within_fedbench(target))
    return stack


def _apart(algo: Algorithm, main: bool = True) -> Algorithm:
    """Return the method with the states of scenarios hidden from it but preserved.

    Scenarios add entries to the uploads. Scalars, and entries that the server's state already
    contains, are copied to the server's state. ``client_init``, ``deploy``, ``instruct`` and
    ``remarks`` see all states.

    Args:
        algo: The method, or its second local phase or first exchange.
        main: Whether this is the main local phase, which passes on the scenarios' client states.
    """
    update = algo.averaging

    def finish(
        msg: State,
        client: State,
        local: State,
        info: ClientInfo,
    ) -> tuple[State, State]:
        uploads, states = algo.finish(msg, shown(client), local, info)
        return uploads, hidden(client) | states if main else states

    def step(
        server: State,
        uploads: State,
        cohort: ClientInfo,
    ) -> State:
        added = hidden(uploads)
        kept = {}
        for name, v in added.items():
            if name in server or not v.dim():
                kept[name] = v
        stepped = update.step(shown(server), shown(uploads), cohort)
        return stepped | hidden(server) | kept

    return replace(
        algo,
        start=lambda msg, client, info: algo.start(msg, shown(client), info),
        finish=finish,
        broadcast=lambda server: algo.broadcast(shown(server)),
        update=replace(update, step=step),
        personal=algo.personal and _apart(algo.personal, main=False),
        setup=algo.setup and _apart(algo.setup, main=False),
    )
