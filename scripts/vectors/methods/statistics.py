"""Methods for models with BatchNorm, whose running statistics need a place."""

from __future__ import annotations

from math import ceil

import numpy as np

from vectors.models import Array, NormModel
from vectors.rounds import Method, State, Visit, stacked


class Normalised(Method):
    """FedAvg of a model with BatchNorm: what its variants share."""

    @property
    def network(self) -> NormModel:
        """The model."""
        assert isinstance(self.model, NormModel)
        return self.model

    def descend(self, visit: Visit, w: Array, statistics: Array, moves: bool = True) -> Array:
        """Take the local steps from a model and its statistics, and return the local model."""
        buffer = np.zeros_like(w)
        for batch in visit.batches:
            g, statistics = self.network.training_pass(
                w, statistics, visit.x[batch], visit.y[batch], moves
            )
            buffer = self.momentum * buffer + g
            w = w - self.lr * buffer
            visit.record(w=w, statistics=statistics)
        visit.local = {"statistics": statistics}
        return w

    def completed(self, models: list[Array], states: list[State]) -> Array:
        """Return the clients' models with their own statistics."""
        pairs = zip(models, states, strict=True)
        return np.array([np.concatenate([w, state["statistics"]]) for w, state in pairs])


_OWN = {
    "steps.statistics": "running means, then variances, after every local step",
    "state.statistics": "the client's running means, then variances",
    "state.took_part": "whether the client has taken part",
}
_FIRST = "first: running means 0 and variances 1"


class SiloBn(Normalised):
    """Andreux et al. 2020."""

    defaults = {"server_lr": 1.0, "weights": "size"}
    symbols = _OWN
    formulas = (
        _FIRST,
        "FedAvg of w, gamma and beta included",
        "every client keeps its own statistics",
        "judged: the server's model with the client's statistics, which follow the model",
    )

    def client_init(self, k: int, w: Array) -> State:
        return {"statistics": self.network.statistics, "took_part": 0}

    def train(self, visit: Visit) -> Array:
        return self.descend(visit, visit.message["w"], visit.state["statistics"])

    def finish(self, visit: Visit, w: Array) -> None:
        super().finish(visit, w)
        visit.new_state = {**visit.local, "took_part": 1}

    def judged(self, server: State, states: list[State]) -> Array:
        return self.completed([server["w"]] * len(states), states)


class FedBn(SiloBn):
    """Li et al. 2021."""

    defaults = {"server_lr": 1.0, "weights": "uniform"}
    symbols = {
        **_OWN,
        "receives.w": "the model without gamma and beta",
        "upload.delta": "Delta_k without gamma and beta",
        "state.personal_part": "the client's gamma, then beta",
        "server.w": "the model without gamma and beta",
    }
    formulas = (
        _FIRST,
        "FedAvg of w without gamma and beta, which every client keeps, from w^0 on",
        "every client keeps its own statistics",
        (
            "judged: the server's part with the client's gamma, beta and statistics, which follow "
            "the model"
        ),
    )

    @property
    def own(self) -> int:
        """Number of values of gamma and beta, the last ones of w."""
        return 2 * self.network.hidden

    def server_init(self, w: Array) -> State:
        return {"w": w[: -self.own]}

    def client_init(self, k: int, w: Array) -> State:
        return {"personal_part": w[-self.own :], **super().client_init(k, w)}

    def train(self, visit: Visit) -> Array:
        w = np.concatenate([visit.message["w"], visit.state["personal_part"]])
        return self.descend(visit, w, visit.state["statistics"])

    def finish(self, visit: Visit, w: Array) -> None:
        super().finish(visit, w[: -self.own])
        visit.new_state["personal_part"] = w[-self.own :]

    def judged(self, server: State, states: list[State]) -> Array:
        models = [np.concatenate([server["w"], state["personal_part"]]) for state in states]
        return self.completed(models, states)


class FixBn(Normalised):
    """Zhong, Chen and Chao 2023."""

    defaults = {"server_lr": 1.0, "weights": "size"}
    symbols = {
        "receives.statistics": "the server's running means, then variances",
        "steps.statistics": "running means, then variances, after every local step",
        "upload.statistics": "the client's running means, then variances",
        "server.statistics": "running means, then variances",
    }
    formulas = (
        _FIRST,
        "FedAvg of w, gamma and beta included",
        "rounds 1 to ceil(T / 2) of T: clients start from the server's statistics",
        "rounds 1 to ceil(T / 2): the server's new statistics are sum_k p_k s_k, s_k the client's",
        "later rounds: the server's statistics are constants, also in training",
        "judged: the model, followed by the statistics",
    )

    def server_init(self, w: Array) -> State:
        return {"w": w, "statistics": self.network.statistics}

    def message(self, server: State, k: int) -> State:
        return server

    def moves(self, t: int) -> bool:
        """Return whether statistics move in the round after t rounds."""
        return t < ceil(self.total / 2)

    def train(self, visit: Visit) -> Array:
        message = visit.message
        return self.descend(visit, message["w"], message["statistics"], self.moves(visit.t))

    def finish(self, visit: Visit, w: Array) -> None:
        super().finish(visit, w)
        if self.moves(visit.t):
            visit.upload |= visit.local

    def server_step(self, server: State, visits: list[Visit]) -> State:
        new = super().server_step(server, visits)
        if self.moves(visits[0].t):
            new["statistics"] = self.share(visits) @ stacked(visits, "statistics")
        return new

    def judged(self, server: State, states: list[State]) -> Array:
        return np.concatenate([server["w"], server["statistics"]])
