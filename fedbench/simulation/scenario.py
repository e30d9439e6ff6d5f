"""Scenarios around a method in a round: who takes part, which results arrive, and what is sent."""

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

# the first character of entries of states and messages that belong to a scenario, not to the method
OWN = "~"
# entry of the server's state: rounds in which the result of each client has arrived [N]
REPORTS = f"{OWN}reports"

# ids [n] -> the model that they are judged on, [P], or each one's own, [n, P]
Models = Callable[[np.ndarray], torch.Tensor]


@dataclass(frozen=True, kw_only=True)
class RoundPlan:
    """One round of a method: who takes part, what they do, and what is sent.

    Attributes:
        algorithm: The method as it is carried out.
        seed: Random seed of the run.
        round: Rounds done before, over all stages.
        server: The server's state before the round.
        able: Numbers of training examples [N], 0 for clients that cannot be drawn.
        ids: The clients whose results arrive [C], ascending.
        receivers: The clients that get the broadcast [S].
        tau: Numbers of local steps of ``ids`` [C].
        steps: Local steps of all clients, also of those whose results are lost; without those of a
            second local phase.
        bytes_down: The size of a broadcast to a number of clients.
        bytes_up: The size of uploads of some clients.
        idle: The server's state after a round without results.
        reported: What the server is told of measurements at the clients ``ids`` [C], by name.
        notes: Numbers for the record of the round, by column.
        kept: Entries of the server's state after the round, whatever the method does.
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
    notes: dict[str, float] = field(default_factory=dict)
    kept: State = field(default_factory=dict)

    def remembered(self, server: State) -> State:
        """Return the server's state after the round with what the scenario keeps and records."""
        notes = {}
        for name, number in self.notes.items():
            notes[OWN + name] = server["w"].new_tensor(number, dtype=torch.float64)
        return server | self.kept | notes


class Attackers:
    """Clients that count in no metric over clients, and their report; here there are none."""

    @property
    def who(self) -> np.ndarray:
        """The attackers, ascending."""
        return np.arange(0)

    def changed(self, data: FederatedDataset) -> FederatedDataset:
        """Return the data set that the run is carried out on."""
        return data

    def measured(
        self,
        models: Models,
        measurements: Measurements,
        data: FederatedDataset,
        judged: np.ndarray,
    ) -> dict[str, float]:
        """Return further columns of an evaluated round.

        Args:
            models: Returns the models of clients.
            measurements: Carries them out.
            data: The data set.
            judged: The clients that are evaluated.
        """
        return {}


class Scenario:
    """The conditions around a method. This one changes nothing; others override its methods.

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
        """Return the method with the states that the scenario keeps of server and clients."""
        return algo

    def reachable(
        self,
        round: int,
        able: np.ndarray,
    ) -> np.ndarray:
        """Return ``able`` [N], numbers of training examples, with 0 for unreachable clients."""
        return able

    def sampler(self, sampler: Sampler) -> Sampler:
        """Return the sampler of cohorts, given that of the run."""
        return sampler

    def plan(self, plan: RoundPlan) -> RoundPlan:
        """Return the round as it is carried out, given the one in which nothing goes wrong."""
        return plan


def round_columns(server: State) -> dict[str, float]:
    """Return the numbers that a scenario has left in the server's state, as columns of a round."""
    columns = {}
    for name, v in server.items():
        if name.startswith(OWN) and v.dim() == 0:
            columns[name.removeprefix(OWN)] = float(v)
    return columns


def client_columns(server: State, ids: np.ndarray) -> dict[str, np.ndarray]:
    """Return the columns of the table of clients that a scenario has left in the server's state."""
    if REPORTS not in server:
        return {}
    return {REPORTS.removeprefix(OWN): server[REPORTS].numpy(force=True)[ids]}
