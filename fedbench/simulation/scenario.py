"""Scenarios in the round loop: participants, arriving results and messages of a round."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import torch

from fedbench.core.algorithm import Algorithm
from fedbench.core.config_values import Tree
from fedbench.core.randomness import Sampler
from fedbench.core.types import State, nbytes
from fedbench.data.dataset import FederatedDataset
from fedbench.simulation.measurements import Measurements
from fedbench.simulation.selection import Asked

# first character of the names of states and messages that belong to a scenario
OWN = "~"
# entry of the server's state: number of rounds in which each client's result has arrived [N]
REPORTS = f"{OWN}reports"

# ids [n] -> the model that is evaluated on these clients, [P], or one model per client, [n, P]
Models = Callable[[np.ndarray], torch.Tensor]


@dataclass(frozen=True, kw_only=True)
class RoundPlan:
    """Plan of one round of a method: its participants, their work and the messages.

    Attributes:
        algorithm: The method as carried out in this round.
        seed: Random seed of the run.
        round: Number of rounds done before, over all stages.
        server: The server's state before the round.
        able: Number of training examples of each client [N]; 0 for clients that cannot be sampled.
        ids: Ids of the clients whose results arrive [C], ascending.
        receivers: Ids of the clients that receive the broadcast [S].
        tau: Number of local steps of each client in ``ids`` [C].
        steps: Total number of local steps, including those of clients whose results are lost, but
            without those of a second local phase.
        bytes_down: Function that returns the size of a broadcast to a number of clients.
        bytes_up: Function that returns the size of some clients' uploads.
        idle: Function that returns the server's state after a round without results.
        reported: Function that returns the measurements, by name, that the clients ``ids`` [C]
            report to the server.
        asked: The candidates from which the clients were selected by their losses; None if no
            losses were measured.
        notes: Numbers for the record of the round, by column.
        kept: Entries of the server's state after the round, regardless of the method.
    """

    algorithm: Algorithm
    seed: int
    round: int
    server: State
    able: np.ndarray
    ids: np.ndarray
    receivers: np.ndarray
    tau: np.ndarray
    steps: int
    bytes_down: Callable[[State, int], int] = lambda message, receivers: nbytes(message) * receivers
    bytes_up: Callable[[State], int] = nbytes
    idle: Callable[[State], State] = lambda server: server
    reported: Callable[[np.ndarray, State], State] = lambda ids, probe: probe
    asked: Asked | None = None
    notes: dict[str, float] = field(default_factory=dict)
    kept: State = field(default_factory=dict)

    def remembered(self, server: State) -> State:
        """Return the server's state after the round, with the scenario's entries and notes."""
        notes = {}
        for name, number in self.notes.items():
            notes[OWN + name] = server["w"].new_tensor(number, dtype=torch.float64)
        return server | self.kept | notes


class Attackers:
    """Clients that are excluded from all metrics over clients; in this class, there are none."""

    @property
    def who(self) -> np.ndarray:
        """Ids of the attackers, ascending."""
        return np.arange(0)

    def changed(self, data: FederatedDataset) -> FederatedDataset:
        """Return the data set on which the run is carried out."""
        return data

    def reported(
        self,
        ids: np.ndarray,
        probe: State,
    ) -> State:
        """Return the measurements, by name, that the clients ``ids`` [C] report to the server."""
        return probe

    def measured(
        self,
        models: Models,
        measurements: Measurements,
        data: FederatedDataset,
        judged: np.ndarray,
    ) -> dict[str, float]:
        """Return further columns of an evaluated round.

        Args:
            models: Function that returns the models of clients.
            measurements: Object that carries out the measurements.
            data: The data set.
            judged: Ids of the clients that are evaluated.
        """
        return {}


class Scenario:
    """Conditions around a method. This class changes nothing; subclasses override its methods.

    Attributes:
        keeps: Entries of the server's state that pass from one stage to the next.
    """

    keeps: ClassVar[tuple[str, ...]] = ()

    @property
    def attackers(self) -> Attackers:
        """The clients that attack."""
        return Attackers()

    @property
    def facts(self) -> Tree:
        """Facts for ``meta.json``, known before the run starts."""
        return {}

    def with_states(self, algo: Algorithm) -> Algorithm:
        """Return the method with the scenario's own server and client states."""
        return algo

    def reachable(
        self,
        round: int,
        able: np.ndarray,
    ) -> np.ndarray:
        """Return ``able``, the numbers of training examples [N], with 0 for unreachable clients."""
        return able

    def sampler(self, sampler: Sampler) -> Sampler:
        """Return the sampler of cohorts, given the run's sampler."""
        return sampler

    def plan(self, plan: RoundPlan) -> RoundPlan:
        """Return the round plan under the scenario, given the plan without a scenario."""
        return plan


def round_columns(server: State) -> dict[str, float]:
    """Return the scalars of a scenario in the server's state, as columns of a round."""
    columns = {}
    for name, v in server.items():
        if name.startswith(OWN) and v.dim() == 0:
            columns[name.removeprefix(OWN)] = float(v)
    return columns


def client_columns(server: State, ids: np.ndarray) -> dict[str, np.ndarray]:
    """Return the columns of the client table that a scenario stores in the server's state."""
    if REPORTS not in server:
        return {}
    return {REPORTS.removeprefix(OWN): server[REPORTS].numpy(force=True)[ids]}
