"""Layers: scenarios around a method, with states and messages separate from the method's."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

from torch import Tensor

from fedbench.core.algorithm import Algorithm
from fedbench.core.config_values import Tree
from fedbench.core.errors import WrongValue
from fedbench.core.randomness import Sampler
from fedbench.core.types import State
from fedbench.core.user_code import is_own
from fedbench.scenarios.allowed import Demand
from fedbench.simulation.scenario import OWN, RoundPlan

# (message or server state, uploads [c, ...], states of the senders [c, ...], their ids [c]) ->
# uploads, states
Send: TypeAlias = Callable[[State, State, State, Tensor], tuple[State, State]]


class Layer:
    """A scenario around a method. The base class changes nothing; layers override its methods.

    The names of a layer's own states and messages begin with ``OWN``.
    """

    @property
    def needs(self) -> Mapping[Demand, str]:
        """Demands on the method, each with the configuration key that causes it."""
        return {}

    @property
    def facts(self) -> Tree:
        """Facts for ``meta.json``."""
        return {}

    def sampler(self, sampler: Sampler) -> Sampler:
        """Return the sampler of cohorts, given the run's sampler."""
        return sampler

    def wrap(
        self,
        algo: Algorithm,
        plan: RoundPlan,
    ) -> Algorithm:
        """Return the method with this layer around it, for one round."""
        return algo

    def plan(self, plan: RoundPlan) -> RoundPlan:
        """Return the round plan with this layer's costs, records and effect on empty rounds."""
        return plan


def sending(algo: Algorithm, send: Send) -> Algorithm:
    """Return the method with messages that pass through ``send`` on their way to the server.

    The senders' states pass through ``send``, too. If the method or an inner layer needs the
    messages of the whole cohort (``Algorithm.deliver``), ``send`` runs after it; otherwise ``send``
    runs on each part of the cohort that finishes its work.
    """
    finish, deliver = algo.finish, algo.deliver
    if deliver is None:
        return replace(
            algo,
            finish=lambda msg, client, local, info: send(
                msg, *finish(msg, client, local, info), info.id.squeeze(1)
            ),
        )
    return replace(
        algo,
        deliver=lambda server, uploads, states, cohort: send(
            server, *deliver(server, uploads, states, cohort), cohort.id
        ),
    )


def cause(
    part: object,
    hook: Callable[..., Any],
    key: str,
    value: str,
    unset: str = "none",
) -> str:
    """Return the configuration key, with its value, that selects the effect of a part.

    The result is empty if nothing is selected.

    Args:
        part: A part of a scenario.
        hook: Its method that a subclass outside fedbench may override.
        key: The key that selects a built-in effect.
        value: The value of the key.
        unset: The value that selects nothing.

    Raises:
        RequestError: If a subclass overrides ``hook`` and the key selects a built-in effect.
    """
    if not is_own(hook):
        return "" if value == unset else f"{key}={value}"
    section = key.rpartition(".")[0]
    target = f"{section}._target_={type(part).__module__}.{type(part).__qualname__}"
    if value != unset:
        raise WrongValue(key, f"must be {unset} with {target}, got {value}")
    return target


def hidden(state: State) -> State:
    """Return the entries that belong to scenarios."""
    return {k: v for k, v in state.items() if k.startswith(OWN)}


def shown(state: State) -> State:
    """Return the entries that belong to the method."""
    return {k: v for k, v in state.items() if not k.startswith(OWN)}
