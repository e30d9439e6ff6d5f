"""The round loop, and FedAvg, from which every method differs in a few functions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np

from vectors.models import Array, Labels
from vectors.problems import Batch, Problem, Round

# named vectors and numbers: a message, an upload, a state
State = dict[str, Any]


@dataclass
class Visit:
    """The part of one client in one round.

    Attributes:
        k: Id of the client.
        x: Inputs of its training examples.
        y: Their labels.
        message: What it receives.
        state: What it keeps, before the round.
        batches: Indices of the examples of every local step.
        personal: Those of a second local training, if the method has one.
        t: Number of rounds before this one.
        steps: The values recorded after every local step, by name.
        personal_steps: Those of the second local training.
        local: Further results of the local training, for the upload or the new state.
        upload: What it sends.
        new_state: What it keeps, after the round.
    """

    k: int
    x: Array
    y: Labels
    message: State
    state: State
    batches: list[Batch]
    personal: list[Batch]
    t: int
    steps: dict[str, list[Any]] = field(default_factory=dict)
    personal_steps: dict[str, list[Any]] = field(default_factory=dict)
    local: State = field(default_factory=dict)
    upload: State = field(default_factory=dict)
    new_state: State = field(default_factory=dict)

    def record(self, **values: Any) -> None:
        """Record the local variables after a step."""
        for name, value in values.items():
            self.steps.setdefault(name, []).append(value)

    @property
    def n(self) -> int:
        """Number of training examples."""
        return len(self.y)

    @property
    def tau(self) -> int:
        """Number of local steps."""
        return len(self.batches)


@dataclass
class Record:
    """A round: what the clients did, and the server after it.

    Attributes:
        visits: The clients of the cohort.
        server: The server's state after the round.
        states: The states of all clients after the round.
        model: The model that is judged [P], or one of every client [N, P].
    """

    visits: list[Visit]
    server: State
    states: list[State]
    model: Array


class Method:
    """FedAvg.

    Attributes:
        defaults: The options and their defaults.
        everyone: Whether all clients must take part in every round.
        setup: Whether the clients measure something before the first round.
        symbols: Meanings of the names in the vectors that differ from FedAvg's.
        formulas: The method, an update or a remark a line.
    """

    defaults: ClassVar[Mapping[str, Any]] = {}
    everyone: bool = False
    setup: ClassVar[bool] = False
    symbols: ClassVar[Mapping[str, str]] = {}
    formulas: ClassVar[tuple[str, ...]] = ()

    def __init__(
        self,
        problem: Problem,
        options: Mapping[str, Any],
        lr: float = 0.5,
        momentum: float = 0.0,
    ) -> None:
        unknown = options.keys() - self.defaults.keys()
        assert not unknown, f"{type(self).__name__} has no options {sorted(unknown)}"
        self.problem = problem
        self.model = problem.model
        self.data = problem.data.clients
        self.count = len(self.data)
        self.n = np.array([len(y) for _, y in self.data], dtype=float)
        self.lr = lr
        self.momentum = momentum
        self.total = 0  # number of rounds, once the loop has begun
        self.options = {**self.defaults, **options}
        self.o = SimpleNamespace(**self.options)

    # ---- functions of the server

    def server_init(self, w: Array) -> State:
        """Return the server's first state."""
        return {"w": w}

    def message(self, server: State, k: int) -> State:
        """Return what client k receives."""
        return {"w": server["w"]}

    def server_step(self, server: State, visits: list[Visit]) -> State:
        """Return the server's state after a round."""
        d = self.mean(visits, "delta")
        return {**server, "w": server["w"] - self.options.get("server_lr", 1.0) * d}

    def judged(self, server: State, states: list[State]) -> Array:
        """Return the model that is judged [P], or one of every client [N, P]."""
        w: Array = server["w"]
        return w

    # ---- functions of a client

    def client_init(self, k: int, w: Array) -> State:
        """Return the first state of client k."""
        return {}

    def train(self, visit: Visit) -> Array:
        """Take the local steps, record them, and return the local model."""
        w: Array = visit.message["w"]
        buffer = np.zeros_like(w)
        for batch in visit.batches:
            buffer = self.buffering * buffer + self.gradient(visit, w, batch)
            w = w - self.rate(visit) * buffer
            visit.record(w=w)
        return w

    @property
    def buffering(self) -> float:
        """Momentum of the local steps."""
        return self.momentum

    def gradient(self, visit: Visit, w: Array, batch: Batch) -> Array:
        """Return the gradient of a local step."""
        return self.batch_gradient(visit, w, batch)

    def rate(self, visit: Visit) -> float:
        """Return the rate of a client's steps."""
        return self.lr

    def finish(self, visit: Visit, w: Array) -> None:
        """Set the client's upload and its new state, given its local model."""
        visit.upload = {"delta": visit.message["w"] - w}
        visit.new_state = visit.state

    # ---- functions that methods use

    def batch_gradient(self, visit: Visit, w: Array, batch: Batch) -> Array:
        """Return the gradient of the mean loss of a batch."""
        return self.model.gradient(w, visit.x[batch], visit.y[batch])

    def full_gradient(self, visit: Visit, w: Array) -> Array:
        """Return the gradient of the mean loss of all training examples of a client."""
        return self.model.gradient(w, visit.x, visit.y)

    def full_loss(self, visit: Visit, w: Array) -> float:
        """Return the mean loss of all training examples of a client."""
        return self.model.loss(w, visit.x, visit.y)

    def share(self, visits: list[Visit], weights: str | None = None) -> Array:
        """Return the weights p_k of a cohort: by size, or uniform."""
        by_size = (weights or self.options.get("weights", "uniform")) == "size"
        n = np.array([v.n if by_size else 1.0 for v in visits])
        return n / n.sum()

    def mean(self, visits: list[Visit], name: str, weights: str | None = None) -> Array:
        """Return the weighted mean of an upload."""
        total: Array = self.share(visits, weights) @ stacked(visits, name)
        return total

    # ---- the loop

    def set_up(self, server: State, visits: list[Visit]) -> State:
        """Return the server's state after the exchange before the first round."""
        raise NotImplementedError

    def run(self, rounds: list[Round]) -> tuple[Record, list[Record]]:
        """Return the records of the start and of the rounds."""
        w0 = self.problem.w0
        server = self.server_init(w0)
        states = [self.client_init(k, w0) for k in range(self.count)]
        first: list[Visit] = []
        if self.setup:
            batches = self.problem.setup()
            for k in range(self.count):
                first.append(self._visit(k, server, {}, batches[k], [], 0))
            server = self.set_up(server, first)

        self.total = len(rounds)
        start = Record(first, server, states, self.judged(server, states))
        records = []
        for t, plan in enumerate(rounds):
            visits = []
            for k in plan.cohort:
                second = plan.personal[k] if plan.personal else []
                visits.append(self._visit(k, server, states[k], plan.batches[k], second, t))
            self.prepare(server, visits)
            for visit in visits:
                self.finish(visit, self.train(visit))
            server = self.server_step(server, visits)
            states = list(states)
            for visit in visits:
                states[visit.k] = visit.new_state
            records.append(Record(visits, server, states, self.judged(server, states)))
        return start, records

    def prepare(self, server: State, visits: list[Visit]) -> None:
        """Give the clients numbers that depend on the whole cohort."""

    def _visit(
        self,
        k: int,
        server: State,
        state: State,
        batches: list[Batch],
        personal: list[Batch],
        t: int,
    ) -> Visit:
        x, y = self.data[k]
        return Visit(k, x, y, self.message(server, k), state, batches, personal, t)


def stacked(visits: list[Visit], name: str) -> Array:
    """Return an upload of all clients of a cohort, [C, ...]."""
    return np.array([v.upload[name] for v in visits])
