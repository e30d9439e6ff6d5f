"""A federated method as a record of pure functions whose defaults are FedAvg (ADR 0002).

Client functions read as for one client and broadcast over a cohort: a vector is [..., P], a
client's number [..., 1]. Nothing in them mixes clients; only ``update`` reduces over the cohort.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypedDict, get_args

import numpy as np
import torch
from torch import Tensor

from fedbench.core.optim import SGD, Optimizer
from fedbench.core.randomness import Sampler
from fedbench.core.types import (
    After,
    Batch,
    Broadcast,
    ClientInfo,
    ClientInit,
    Deliver,
    Deploy,
    Direction,
    Expose,
    Extra,
    Finish,
    Gradient,
    Instruct,
    Kind,
    Need,
    Oracle,
    Propose,
    ServerInit,
    Start,
    State,
    Step,
    Update,
    Weighting,
    weighted_sum,
)
from fedbench.core.validation import choice

Weights = Literal["size", "uniform"]


class LocalPart(TypedDict):
    """The fields of an ``Algorithm`` that a local solver fills."""

    start: Start
    step: Step


class ServerPart(TypedDict):
    """The fields of an ``Algorithm`` that a server optimizer fills."""

    server_init: ServerInit
    update: Update


@dataclass(frozen=True)
class ProximalTerm:
    """The gradient strength · (w - w^t + offset) of a proximal term; an ``Extra``.

    w^t is the broadcast model.

    Attributes:
        strength: Factor of the term.
        offset: Name of the local variable [C, P] that holds the offset, constant during the local
            phase; None is 0.
    """

    strength: float
    offset: str | None = None

    def __call__(
        self,
        msg: State,
        local: State,
        info: ClientInfo,
    ) -> Tensor:
        """Return the term, [C, P]."""
        apart = local["w"] - msg["w"]
        if self.offset is not None:
            apart.add_(local[self.offset])
        return apart.mul_(self.strength)


@dataclass(frozen=True)
class GradientShift:
    """A term that stays the same during the local phase; an ``Extra``.

    Attributes:
        name: Name of the local variable [C, P] that holds it.
    """

    name: str

    def __call__(
        self,
        msg: State,
        local: State,
        info: ClientInfo,
    ) -> Tensor:
        """Return the term, [C, P]."""
        return local[self.name]


@dataclass(frozen=True)
class Descent:
    """The step w <- w - rate · opt(gradient).

    It is a type of its own because an engine may have a faster way to take it.

    Attributes:
        opt: The optimizer.
        gradient: The vector handed to the optimizer; None is ∇F_k(w; batch) plus ``extra``.
        lr: The rate; None is the run's η_l.
        extra: Term added to the gradient, or None.
        scale: Name of the local variable [C, 1] that the rate is multiplied by; None is 1.
    """

    opt: Optimizer = SGD
    gradient: Gradient | None = None
    lr: float | None = None
    extra: Extra | None = None
    scale: str | None = None

    @property
    def plain(self) -> bool:
        """Whether the step is w <- w - η_l (∇F_k(w; batch) + extra)."""
        unchanged = (self.gradient, self.lr, self.scale) == (None, None, None)
        return self.opt is SGD and unchanged

    def __call__(
        self,
        oracle: Oracle,
        msg: State,
        local: State,
        batch: Batch,
        info: ClientInfo,
    ) -> State:
        """Return the local variables after the step."""
        if self.gradient is not None:
            g = self.gradient(oracle, msg, local, batch, info)
        else:
            g = oracle.grad(local["w"], batch)
            if self.extra is not None:
                g = g + self.extra(msg, local, info)

        d, new = self.opt.update(g, local)
        if self.scale is not None:
            d = d * local[self.scale].to(d.dtype)
        if self.lr is None:
            w = torch.addcmul(
                local["w"],
                info.lr,
                d,
                value=-1,
            )
        else:
            w = torch.sub(local["w"], d, alpha=self.lr)
        return {**local, **new, "w": w}


def descent(
    opt: Optimizer = SGD,
    gradient: Gradient | None = None,
    lr: float | None = None,
    extra: Extra | None = None,
    scale: str | None = None,
    variables: Start = lambda msg, client, info: {},
) -> LocalPart:
    """Return the local solver w <- w - η_l · opt(gradient).

    Its state is reset at the start of every round.

    Compiled code can carry out an ``extra`` that is a ``ProximalTerm`` or a ``GradientShift``. An
    ``extra`` is ignored if ``gradient`` is given.

    Args:
        opt: As for ``Descent``.
        gradient: As for ``Descent``.
        lr: As for ``Descent``.
        extra: As for ``Descent``.
        scale: As for ``Descent``.
        variables: Makes further local variables at the beginning of local work, such as those that
            ``extra`` and ``scale`` name.
    """

    def start(
        msg: State,
        client: State,
        info: ClientInfo,
    ) -> State:
        return {
            "w": msg["w"],
            **opt.init(msg["w"]),
            **variables(msg, client, info),
        }

    step = Descent(opt, gradient, lr, extra, scale)
    return {"start": start, "step": step}


def by_weight(server: State, cohort: ClientInfo) -> Tensor:
    """Return the aggregation weights p_k, [C]: a ``Weighting``."""
    return cohort.p


@dataclass(frozen=True)
class Averaging:
    """An ``Update`` that uses some uploads only through sums Σ ω_k u_k.

    The weights are known before the local work. It is a type of its own because an engine can add
    up these uploads as clients finish.

    Attributes:
        step: The server's step; it sees these sums [P] in place of the uploads [C, P].
        weights: The weights ω of each such upload, by its name.
        rule: What a scenario puts in the place of ``summed``, such as a robust rule; None in
            methods.
    """

    step: Update
    weights: Mapping[str, Weighting]
    rule: Update | None = None

    def __call__(
        self,
        server: State,
        uploads: State,
        cohort: ClientInfo,
    ) -> State:
        """Return the server's state after the step, from the uploads of all clients [C, ...]."""
        return self.step(server, self.summed(server, uploads, cohort), cohort)

    def summed(
        self,
        server: State,
        uploads: State,
        cohort: ClientInfo,
    ) -> State:
        """Return the uploads of all clients [C, ...] with these sums [P] in their places."""
        if self.rule is not None:
            return self.rule(server, uploads, cohort)
        sums = {}
        for name, weighting in self.weights.items():
            values = uploads[name]
            total = weighted_sum(weighting(server, cohort), values)
            sums[name] = total.to(values.dtype)
        return uploads | sums


@dataclass(frozen=True)
class ServerStep:
    """The server step w <- w - η_g · opt(direction(uploads)).

    It is a type of its own so that its parts can be checked.

    Attributes:
        opt: The optimizer.
        lr: The server's step size η_g.
        direction: The vector handed to the optimizer.
    """

    opt: Optimizer
    lr: float
    direction: Direction

    def __call__(
        self,
        server: State,
        uploads: State,
        cohort: ClientInfo,
    ) -> State:
        """Return the server's state after the step."""
        d, new = self.opt.update(self.direction(uploads, cohort), server)
        w = torch.add(server["w"], d, alpha=-self.lr)
        return {**server, **new, "w": w}


def server_descent(
    opt: Optimizer = SGD,
    lr: float = 1.0,
    direction: Direction | None = None,
    averaged: Mapping[str, Weighting] | None = None,
) -> ServerPart:
    """Return the server step w <- w - η_g · opt(direction(uploads)).

    Args:
        opt: The optimizer.
        lr: The server's step size η_g.
        direction: The vector handed to the optimizer; by default Σ p_k Δ_k.
        averaged: Uploads that ``direction`` sees as sums [P] with these weights (``Averaging``).
    """
    if direction is None:
        direction = _delta
        averaged = averaged or {"delta": by_weight}

    def server_init(w: Tensor, num_clients: int) -> State:
        return {"w": w, **opt.init(w)}

    update: Update = ServerStep(opt, lr, direction)
    if averaged is not None:
        update = Averaging(update, averaged)
    return {"server_init": server_init, "update": update}


def _delta(uploads: State, cohort: ClientInfo) -> Tensor:
    """Return the average of the pseudo-gradients, which has been formed already: a ``Direction``."""
    return uploads["delta"]


def upload_delta(
    msg: State,
    client: State,
    local: State,
    info: ClientInfo,
) -> tuple[State, State]:
    """Upload Δ_k = w - w_k and leave the client state unchanged: the default ``finish``."""
    return {"delta": msg["w"] - local["w"]}, client


def start_from_client(
    msg: State,
    client: State,
    info: ClientInfo,
) -> State:
    """Begin at the broadcast model, with the variables of the client state: a ``start``."""
    return {"w": msg["w"], **client}


def upload_with(*names: str) -> Finish:
    """Return a ``finish`` that uploads Δ_k and some local variables.

    It keeps the local variables that make up the client state.
    """

    def finish(
        msg: State,
        client: State,
        local: State,
        info: ClientInfo,
    ) -> tuple[State, State]:
        delta, _ = upload_delta(msg, client, local, info)
        uploads = {name: local[name] for name in names}
        kept = {name: local[name] for name in client}
        return delta | uploads, kept

    return finish


@dataclass(frozen=True)
class Trials:
    """Models made from the uploads, which clients measure before the server's step (ADR 0002).

    ``update`` finds the losses F_k on all training examples as ``cohort.probe["loss_trials"]`` [C,
    J], float64, and what ``propose`` returned among the uploads.

    Attributes:
        propose: Makes the J models, under "trials" [J, P]. It sees the uploads as ``update`` does.
        drawn: Whether a second cohort measures them, which is as large as the first and drawn
            uniformly and independently of it; its clients are ``cohort.probe["trial_id"]`` [C].
            Otherwise the cohort does.
        vectors: Number of vectors [P] sent to each client, from which it makes all models; None is
            J.
    """

    propose: Propose
    drawn: bool = False
    vectors: int | None = None


_LOCAL = descent()
_SERVER = server_descent()


@dataclass(frozen=True, kw_only=True)
class Algorithm:
    """A federated method. Every default is FedAvg's.

    Attributes:
        server_init: Makes the state of the server.
        client_init: Makes the state that one client keeps between rounds (FedAvg: none).
        broadcast: The message sent to the clients.
        start: The local variables at the beginning of local work.
        step: One local step on one batch.
        finish: The upload, and the client state after the round.
        deliver: What a scenario does to the uploads of the whole cohort on their way to the server;
            None in methods.
        update: The server's step.
        deploy: The model that is evaluated, or one for each client, of whom it may be given the
            states of some only.
        needs: Quantities measured for the cohort on all training examples and passed on in
            ``info.probe``: "loss" (F_k(w), float64), "accuracy" (a fraction) and "grad" (∇F_k(w))
            at the broadcast w; "loss_init" (F_k at the first model of the run); "loss_after" and
            "accuracy_after" at w_k, for ``update`` only.
        weights: p_k, by "size" (n_k over the cohort's total) or "uniform" (1/C).
        setup: An exchange before the first round: one step of every client, and an ``update`` of
            the server; or None.
        instruct: Numbers for the clients of a cohort, made before their local work; they are added
            to ``info.probe``. A function of the whole cohort, such as ranks, is possible here
            alone. None if there are none.
        trials: Models that clients measure before ``update``; None if there are none.
        personal: A second local phase from the same broadcast, whose ``finish`` must upload
            nothing; None if there is none.
        personal_epochs: Epochs of the second phase; None is the epochs of the first.
        everyone: Reason why every client must take part in every round, or "" if a cohort may be
            sampled.
        uniform: Reason why sampled cohorts must be drawn uniformly, or "" if they may be drawn by
            size.
        remarks: Remarks for the user on a finished run, from the last state of the server.
        exposes: Vectors that diagnostics may look at, by name: "moments" are the clients' first
            moments.
        blends_examples: Whether local steps use weighted means of examples, which tokens do not
            have.
        kinds: What the server's step does with what clients send, as far as ``update`` does not
            show it; it decides which scenarios are allowed (``fedbench.scenarios.allowed``).
    """

    server_init: ServerInit = _SERVER["server_init"]
    client_init: ClientInit = lambda w: {}
    broadcast: Broadcast = lambda server: {"w": server["w"]}
    start: Start = _LOCAL["start"]
    step: Step = _LOCAL["step"]
    finish: Finish = upload_delta
    deliver: Deliver | None = None
    update: Update = _SERVER["update"]
    deploy: Deploy = lambda server, clients: server["w"]
    needs: Set[Need] = frozenset()
    weights: Weights = "size"
    setup: Algorithm | None = None
    instruct: Instruct | None = None
    trials: Trials | None = None
    personal: Algorithm | None = None
    personal_epochs: int | None = None
    everyone: str = ""
    uniform: str = ""
    remarks: Callable[[State], list[str]] = lambda server: []
    exposes: Mapping[str, Expose] = field(default_factory=dict)
    blends_examples: bool = False
    kinds: tuple[Kind, ...] = ()

    def __post_init__(self) -> None:
        choice("weights", self.weights, get_args(Weights))
        for kind in self.kinds:
            choice("kinds", kind, get_args(Kind))

    @property
    def averaging(self) -> Averaging:
        """``update`` as one that is handed sums of some uploads, perhaps of none."""
        if isinstance(self.update, Averaging):
            return self.update
        return Averaging(self.update, {})


class Stage(NamedTuple):
    """A number of rounds of one algorithm.

    Most methods are one stage; a factory may return a list of stages.

    Attributes:
        algorithm: The algorithm; the model passes from one stage to the next.
        rounds: Number of rounds.
        sampler: Draws the cohorts; None is the sampler of the run.
        eligible: Maps the state of the server to the clients [N] that may be drawn; all with
            training examples if it is None or selects none of these.
        after: Called after every round in which a result arrived; it may change states and labels.
        keep: Entries of the states of server and clients that pass to this stage from the one
            before. The method does not see those of the server.
    """

    algorithm: Algorithm
    rounds: int
    sampler: Sampler | None = None
    eligible: Callable[[State], np.ndarray] | None = None
    after: After | None = None
    keep: tuple[str, ...] = ()
