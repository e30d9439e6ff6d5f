"""The scenarios of a run around its method: one round in the order in which things happen to clients and messages.

Reached, sampled, reported; broadcast; local work; messages of attackers; compression, after which the server sees
decoded vectors; clipping; what is done before the sum; the rule in its place, or noise; the method's step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
import torch

from fedbench.config.targets import Component, call, within_fedbench
from fedbench.core.algorithm import Algorithm, Stage
from fedbench.core.config_values import Tree
from fedbench.core.randomness import Purpose
from fedbench.core.types import ClientInfo, State, Weighting, nbytes
from fedbench.scenarios.allowed import refuse
from fedbench.scenarios.availability import Availability
from fedbench.scenarios.population import Population, of_clients, uniform
from fedbench.simulation.scenario import OWN, REPORTS, Attackers, Draw, RoundPlan, Scenario, Steps

_LAYERS = ("attack", "compression", "privacy", "defence")  # the order in which a message passes them
_EMPTY = f"{OWN}empty_rounds"  # entry of the server's state: rounds in which no result has arrived


class RoundContext(NamedTuple):
    """A round of a scenario.

    Attributes:
        seed: Random seed of the run.
        round: Rounds done before, over all stages.
        ids: The clients whose results arrive [C], ascending.
        receivers: Those that receive the broadcast [S].
        server: The server's state before the round.
    """

    seed: int
    round: int
    ids: np.ndarray
    receivers: np.ndarray
    server: State


# (message or server state, uploads [c, ...], states of the senders [c, ...], their ids [c]) -> uploads, states
Send: TypeAlias = Callable[[State, State, State, torch.Tensor], tuple[State, State]]


class Layer(Protocol):
    """A scenario that wraps a method. States and messages of its own have names that begin with ``OWN``."""

    def wrap(self, algo: Algorithm, context: RoundContext) -> Algorithm:
        """The method with this layer around it, for one round."""

    def plan(self, plan: RoundPlan, context: RoundContext) -> RoundPlan:
        """The round with what changes in its costs, in a round without results, and in the record."""
        return plan


@dataclass(frozen=True)
class ScenarioStack(Scenario):
    """The scenarios of a run.

    Attributes:
        population: All clients.
        availability: Who takes part; None is everybody that is sampled.
        draw: Draws the cohort instead of the run's sampler, from (round, training examples [N]); None leaves it.
        layers: What wraps the method, the innermost first.
        attackers: The clients that attack.
    """

    population: Population
    availability: Availability | None = None
    draw: Callable[[int, np.ndarray], np.ndarray] | None = None
    layers: Sequence[Layer] = ()
    attackers: Attackers = field(default_factory=Attackers)

    @property
    def facts(self) -> Tree:
        """What ``meta.json`` records of the scenarios: the ``facts`` of the layers that have some."""
        return {k: v for layer in self.layers for k, v in getattr(layer, "facts", {}).items()}

    keeps = (REPORTS, _EMPTY)

    def lasting(self, algo: Algorithm) -> Algorithm:
        """The method with the states that the scenarios keep of the server and of every client."""
        algo = self._wrapped(algo, RoundContext(self.population.seed, 0, np.arange(0), np.arange(0), {}))
        if self.availability is None:
            return algo

        def server_init(w: torch.Tensor, num_clients: int) -> State:
            zeros = torch.zeros(num_clients, dtype=torch.int64, device=w.device)
            return algo.server_init(w, num_clients) | {REPORTS: zeros, _EMPTY: zeros.sum()}

        return replace(algo, server_init=server_init)

    def plan(self, algo: Algorithm, round: int, able: np.ndarray, draw: Draw, steps: Steps, server: State) -> RoundPlan:
        """The round after ``round`` rounds; arguments as for ``Scenario``."""
        seed, here = self.population.seed, self.availability or Availability()
        if here.chances is not None:
            drawn = uniform(of_clients(seed, Purpose.REACHED, np.arange(len(able)), round=round))
            able = able * (drawn < here.chances(round))
        sampled = draw(able) if self.draw is None else self.draw(round, able)
        arrived = uniform(of_clients(seed, Purpose.LOST, sampled, round=round)) >= here.lost
        done, notes = steps(sampled), dict[str, float]()
        if here.late is not None:
            late, done, notes = here.late(round, sampled, done)
            arrived, done = arrived & (here.partial | ~late), np.maximum(done, int(here.partial))
        context = RoundContext(seed, round, sampled[arrived], sampled, server)
        algo, kept = self._reweighted(self._wrapped(algo, context), context), State()
        if self.availability is not None:
            notes |= {"sampled": len(sampled), "reported": len(context.ids), "reachable": int((able > 0).sum())}
            reports, arrivals = server[REPORTS], torch.from_numpy(np.isin(np.arange(len(able)), context.ids))
            kept = {REPORTS: reports + arrivals.to(reports.device), _EMPTY: server[_EMPTY] + (not len(context.ids))}
        plan = RoundPlan(
            algo, context.ids, sampled, done[arrived], int(done.sum()), bytes_up=_size, notes=notes, kept=kept
        )
        for layer in self.layers:
            plan = layer.plan(plan, context)
        return plan

    def _wrapped(self, algo: Algorithm, context: RoundContext) -> Algorithm:
        algo = _apart(algo)
        for layer in self.layers:
            algo = layer.wrap(algo, context)
        return algo

    def _reweighted(self, algo: Algorithm, context: RoundContext) -> Algorithm:
        """The method with the weights of those who report, if these are not to sum to 1."""
        if self.availability is None or self.availability.weights == "renormalise" or not len(context.ids):
            return algo
        weight = self.population.n if algo.weights == "size" else np.ones(len(self.population.n))
        factor = float(weight[context.ids].sum() / weight[context.receivers].sum())
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
