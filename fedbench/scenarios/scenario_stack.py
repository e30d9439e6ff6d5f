"""The scenarios of a run around its method: one round in the order in which things happen to clients and messages.

Reached, sampled, reported; broadcast; local work; messages of attackers; compression, after which the server sees
decoded vectors; clipping; what is done before the sum; the rule in its place, or noise; the method's step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeAlias

import numpy as np
import torch

from fedbench.config.targets import Component, call, within_fedbench
from fedbench.core.algorithm import Algorithm, Stage
from fedbench.core.config_values import Tree
from fedbench.core.randomness import Purpose, Sampler
from fedbench.core.types import ClientInfo, State, Weighting, nbytes
from fedbench.scenarios.allowed import refuse
from fedbench.scenarios.availability import Availability
from fedbench.scenarios.population import Population, of_clients, uniform
from fedbench.simulation.scenario import OWN, REPORTS, Attackers, RoundPlan, Scenario

_LAYERS = ("attack", "compression", "privacy", "defence")  # the order in which a message passes them
_EMPTY = f"{OWN}empty_rounds"  # entry of the server's state: rounds in which no result has arrived


# (message or server state, uploads [c, ...], states of the senders [c, ...], their ids [c]) -> uploads, states
Send: TypeAlias = Callable[[State, State, State, torch.Tensor], tuple[State, State]]


class Layer(Protocol):
    """A scenario that wraps a method. States and messages of its own have names that begin with ``OWN``."""

    def wrap(self, algo: Algorithm, plan: RoundPlan) -> Algorithm:
        """The method with this layer around it, for one round."""

    def plan(self, plan: RoundPlan) -> RoundPlan:
        """The round with what changes in its costs, in a round without results, and in the record."""
        return plan


@dataclass(frozen=True)
class ScenarioStack(Scenario):
    """The scenarios of a run.

    Attributes:
        population: All clients.
        availability: Who takes part; None is everybody that is sampled.
        draw: Draws the cohorts instead of the run's sampler; None leaves it to that one.
        layers: What wraps the method, the innermost first.
        attackers: The clients that attack.
    """

    population: Population
    availability: Availability | None = None
    draw: Sampler | None = None
    layers: Sequence[Layer] = ()
    attackers: Attackers = field(default_factory=Attackers)

    @property
    def facts(self) -> Tree:
        """What ``meta.json`` records of the scenarios: the ``facts`` of the layers that have some."""
        return {k: v for layer in self.layers for k, v in getattr(layer, "facts", {}).items()}

    keeps = (REPORTS, _EMPTY)

    def lasting(self, algo: Algorithm) -> Algorithm:
        """The method with the states that the scenarios keep of the server and of every client."""
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
        algo = self._wrapped(plan)
        if self.availability is None:
            return algo

        def server_init(w: torch.Tensor, num_clients: int) -> State:
            zeros = torch.zeros(num_clients, dtype=torch.int64, device=w.device)
            return algo.server_init(w, num_clients) | {REPORTS: zeros, _EMPTY: zeros.sum()}

        return replace(algo, server_init=server_init)

    def reachable(self, round: int, able: np.ndarray) -> np.ndarray:
        """Return ``able`` [N] with 0 for clients that cannot be reached in this round."""
        if self.availability is None or self.availability.chances is None:
            return able
        hashes = of_clients(self.population.seed, Purpose.REACHED, np.arange(len(able)), round=round)
        reached: np.ndarray = able * (uniform(hashes) < self.availability.chances(round))
        return reached

    def sampler(self, sampler: Sampler) -> Sampler:
        """Return the sampler of cohorts, given that of the run."""
        return self.draw or sampler

    def plan(self, plan: RoundPlan) -> RoundPlan:
        """Return the round as it is carried out, given the one in which nothing goes wrong."""
        availability, sampled, steps = self.availability or Availability(), plan.ids, plan.tau
        arrived = uniform(of_clients(plan.seed, Purpose.LOST, sampled, round=plan.round)) >= availability.lost
        notes: dict[str, float] = {}
        kept: State = {}
        if availability.late is not None:
            late, steps, notes = availability.late(plan.round, sampled, steps)
            arrived = arrived & (availability.partial | ~late)
            steps = np.maximum(steps, int(availability.partial))
        ids = sampled[arrived]
        if self.availability is not None:
            notes |= {"sampled": len(sampled), "reported": len(ids), "reachable": int((plan.able > 0).sum())}
            reports = plan.server[REPORTS]
            arrivals = torch.from_numpy(np.isin(np.arange(len(plan.able)), ids))
            kept = {
                REPORTS: reports + arrivals.to(reports.device),
                _EMPTY: plan.server[_EMPTY] + (not len(ids)),
            }
        plan = replace(
            plan, ids=ids, tau=steps[arrived], steps=int(steps.sum()), bytes_up=_size, notes=notes, kept=kept
        )
        plan = replace(plan, algorithm=self._reweighted(self._wrapped(plan), plan))
        for layer in self.layers:
            plan = layer.plan(plan)
        return plan

    def _wrapped(self, plan: RoundPlan) -> Algorithm:
        algo = _apart(plan.algorithm)
        for layer in self.layers:
            algo = layer.wrap(algo, plan)
        return algo

    def _reweighted(self, algo: Algorithm, plan: RoundPlan) -> Algorithm:
        """The method with the weights of those who report, if these are not to sum to 1."""
        if self.availability is None or self.availability.weights == "renormalise" or not len(plan.ids):
            return algo
        weight = self.population.n if algo.weights == "size" else np.ones(len(self.population.n))
        factor = float(weight[plan.ids].sum() / weight[plan.receivers].sum())
        factor /= 1.0 if self.availability.weights == "zero" else 1 - self.availability.lost

        def times(weighting: Weighting) -> Weighting:
            return lambda server, cohort: weighting(server, cohort) * factor

        weights = {k: times(f) for k, f in algo.averaging.weights.items()}
        return replace(algo, update=replace(algo.averaging, weights=weights))


def build_scenarios(
    asked: Mapping[str, Component], algo: Component, stages: Sequence[Stage], population: Population
) -> ScenarioStack:
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
    return ScenarioStack(population, parts.get("availability"), draw, layers, parts.get("attack", Attackers()))


def _size(uploads: State) -> int:
    """The size in bytes of what clients send; what scenarios add to it for the server costs nothing."""
    return nbytes(shown(uploads))


def _apart(algo: Algorithm, first: bool = True) -> Algorithm:
    """The method, which neither sees nor loses the states that scenarios keep beside its own.

    Of what scenarios have added to the uploads, numbers and what is in the server's state get there.

    Args:
        algo: The method, or its second local phase or first exchange.
        first: Whether the states of clients that leave it have those of scenarios, too.
    """
    update = algo.averaging

    def finish(msg: State, client: State, local: State, info: ClientInfo) -> tuple[State, State]:
        uploads, states = algo.finish(msg, shown(client), local, info)
        return uploads, hidden(client) | states if first else states

    def step(server: State, uploads: State, cohort: ClientInfo) -> State:
        new = {k: v for k, v in hidden(uploads).items() if k in server or not v.dim()}
        return update.step(shown(server), shown(uploads), cohort) | hidden(server) | new

    return replace(
        algo,
        start=lambda msg, client, info: algo.start(msg, shown(client), info),
        finish=finish,
        broadcast=lambda server: algo.broadcast(shown(server)),
        update=replace(update, step=step),
        personal=algo.personal and _apart(algo.personal, first=False),
        setup=algo.setup and _apart(algo.setup, first=False),
    )


def sending(algo: Algorithm, send: Send) -> Algorithm:
    """The method whose messages pass ``send`` on their way to the server, together with the senders' states.

    Where something needs the messages of the whole cohort (``Algorithm.deliver``), they pass after it; otherwise as
    each part of the cohort ends its work.
    """
    inner, whole = algo.finish, algo.deliver
    if whole is not None:

        def deliver(server: State, uploads: State, states: State, cohort: ClientInfo) -> tuple[State, State]:
            return send(server, *whole(server, uploads, states, cohort), cohort.id)

        return replace(algo, deliver=deliver)

    def finish(msg: State, client: State, local: State, info: ClientInfo) -> tuple[State, State]:
        return send(msg, *inner(msg, client, local, info), info.id.squeeze(1))

    return replace(algo, finish=finish)


def hidden(state: State) -> State:
    """Return the entries that belong to scenarios."""
    return {k: v for k, v in state.items() if k.startswith(OWN)}


def shown(state: State) -> State:
    """Return the entries that a method knows."""
    return {k: v for k, v in state.items() if not k.startswith(OWN)}
