"""A federated method as a record of pure functions; the defaults are FedAvg (ADR 0002).

Client functions are written for one client and broadcast over a cohort: a vector has shape
[..., P], a scalar per client [..., 1]. They never mix clients; only ``update`` reduces over the
cohort.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, TypedDict, get_args

import numpy as np
import torch
from torch import Tensor

from fedbench.core.errors import WrongValue
from fedbench.core.objective import Objective
from fedbench.core.optim import SGD, Optimizer
from fedbench.core.options import Statistics
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
WHOLE_MODEL = ("*",)  # a ``personal_part`` that shares nothing


class LocalPart(TypedDict):
    """Fields of an ``Algorithm`` that a local solver provides."""

    start: Start
    step: Step


class ServerPart(TypedDict):
    """Fields of an ``Algorithm`` that a server optimizer provides."""

    server_init: ServerInit
    update: Update


@dataclass(frozen=True)
class ProximalTerm:
    """The gradient strength · (w - w^t + offset) of a proximal term; an ``Extra``.

    w^t is the broadcast model.

    Attributes:
        strength: Factor of the term.
        offset: Name of the local variable [C, P] that holds the offset, constant during the local
            phase. If None, the offset is 0.
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
    """A gradient term that is constant during the local phase; an ``Extra``.

    Attributes:
        name: Name of the local variable [C, P] that holds the term.
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

    It is a separate type because an engine may have a faster implementation of the step.

    Attributes:
        opt: The optimizer.
        gradient: Computes the vector passed to the optimizer. If None, ∇F_k(w; batch) plus
            ``extra``.
        lr: The learning rate. If None, the run's η_l.
        extra: Term added to the gradient, or None.
        scale: Name of the local variable [C, 1] that multiplies the rate. If None, the factor is 1.
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

    The state of the solver is reset at the start of every round.

    Compiled code supports an ``extra`` that is a ``ProximalTerm`` or a ``GradientShift``. ``extra``
    is ignored if ``gradient`` is given.

    Args:
        opt: As for ``Descent``.
        gradient: As for ``Descent``.
        lr: As for ``Descent``.
        extra: As for ``Descent``.
        scale: As for ``Descent``.
        variables: Creates further local variables at the start of local training, such as those
            named by ``extra`` and ``scale``.
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
    """An ``Update`` that uses some uploads only through their sums Σ ω_k u_k.

    The weights are known before local training. It is a separate type because an engine can add up
    these uploads as clients finish.

    Attributes:
        step: The server step; it receives these sums [P] in place of the uploads [C, P].
        weights: The weights ω of each summed upload, by name.
        rule: A scenario's replacement for ``summed``, such as a robust rule; None in methods.
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
        """Return the server state after the step, given the uploads of all clients [C, ...]."""
        return self.step(server, self.summed(server, uploads, cohort), cohort)

    def summed(
        self,
        server: State,
        uploads: State,
        cohort: ClientInfo,
    ) -> State:
        """Return the uploads of all clients [C, ...], some of them replaced by their sums [P]."""
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

    It is a separate type so that its parts can be checked.

    Attributes:
        opt: The optimizer.
        lr: Server step size η_g.
        direction: Computes the vector passed to the optimizer.
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
        """Return the server state after the step."""
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
        lr: Server step size η_g.
        direction: Computes the vector passed to the optimizer; by default Σ p_k Δ_k.
        averaged: Uploads that ``direction`` receives as sums [P], with their weights
            (``Averaging``).
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
    """Return the already averaged pseudo-gradient: a ``Direction``."""
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
    """Start from the broadcast model, with the variables of the client state: a ``start``."""
    return {"w": msg["w"], **client}


def upload_with(*names: str) -> Finish:
    """Return a ``finish`` that uploads Δ_k and some local variables.

    The new client state consists of the local variables with the names of the old one.
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
    """Candidate models from the uploads, evaluated by clients before the server step (ADR 0002).

    ``update`` receives the losses F_k on all training examples as ``cohort.probe["loss_trials"]``
    [C, J], float64, and the values returned by ``propose`` among the uploads.

    Attributes:
        propose: Builds the J models, under "trials" [J, P]. It receives the same uploads as
            ``update``.
        drawn: Whether a second cohort evaluates the models. It is as large as the first, drawn
            uniformly and independently of it, and its clients are ``cohort.probe["trial_id"]`` [C].
            Otherwise, the cohort itself evaluates them.
        vectors: Number of vectors [P] sent to each client, from which the client builds all models.
            If None, J.
    """

    propose: Propose
    drawn: bool = False
    vectors: int | None = None


_LOCAL = descent()
_SERVER = server_descent()


@dataclass(frozen=True, kw_only=True)
class Algorithm:
    """A federated method. All defaults are those of FedAvg.

    Attributes:
        server_init: Creates the server state.
        client_init: Creates the state that a client keeps between rounds (FedAvg: none).
        broadcast: The message sent to the clients.
        start: The local variables at the start of local training.
        step: One local step on one batch.
        finish: The upload, and the client state after the round.
        deliver: A scenario's transformation of the whole cohort's uploads before they reach the
            server; None in methods.
        update: The server step.
        deploy: The model to evaluate, or one model per client. It may be called with the states of
            only some clients.
        needs: Quantities measured for the cohort on all training examples and passed on in
            ``info.probe``: "loss" (F_k(w), float64), "accuracy" (a fraction) and "grad" (∇F_k(w))
            at the broadcast w; "loss_init" (F_k at the initial model of the run); "loss_after" and
            "accuracy_after" at w_k, for ``update`` only.
        weights: Aggregation weights p_k, "size" (n_k over the cohort's total) or "uniform" (1/C).
        setup: An exchange before the first round: one step of every client, then an ``update`` of
            the server; or None.
        instruct: Computes numbers for the clients of a cohort before local training; they are added
            to ``info.probe``. Only here can a client's number depend on the whole cohort, as ranks
            do. Vectors "w" [C, P] are models that are sent in the place of the broadcast's, one to
            each client. None if there are no such numbers.
        trials: Models that clients evaluate before ``update``; None if there are none.
        personal: A second local phase from the same broadcast, whose ``finish`` must upload
            nothing; None if there is none.
        personal_epochs: Number of epochs of the second phase. If None, that of the first phase.
        personal_part: Words and patterns (``fedbench.models.parts``) of the parameters that clients
            keep, unless ``parts.personal`` is given; ``WHOLE_MODEL`` if clients share nothing.
        statistics: Policy for running statistics, unless ``parts.statistics`` is given: clients
            keep them ("local"), or the server averages them with the weights p_k ("average"). If
            None, they are averaged, and the model need not have any.
        moving_rounds: Number of rounds in which running statistics move, unless
            ``parts.fix_after`` is given; later they are constants. If None, all rounds, and the
            model need not have any. A factory that computes it takes ``rounds``.
        frozen_part: Words and patterns of the parameters that keep their initial values in
            training, unless ``parts.frozen`` is given.
        finetune_epochs: Number of epochs for which every client trains its model before it is
            evaluated, unless ``finetune.epochs`` is given.
        whole_epochs: Least number of epochs of a round, which must then be equal for all clients.
            If None, any number of steps is allowed.
        whole: Reason why no part of the model can be personal; "" if parts can be.
        parts: Whether a step of your own works on whole models [A, P], although the message has
            only the shared part [S]. fedbench's own steps do.
        own_head: Client state with a head of the client's own beside the model's; "" if there is
            none. The model may then have running statistics.
        objective: The loss of the local steps; None for the cross-entropy.
        any_loss: Whether the local steps allow any loss although they are no ``Descent``, or one
            with a ``gradient`` of its own. A ``Descent`` without a ``gradient`` always does.
        class_counts: Whether client functions receive ``info.probe["labels"]`` [C, K], the number
            of the client's training examples of each class.
        everyone: Reason why every client must take part in every round; "" if cohorts may be
            sampled.
        uniform: Reason why cohorts must be sampled uniformly; "" if they may be sampled by size.
        remarks: Returns remarks for the user on a finished run, given the final server state.
        exposes: Vectors for diagnostics, by name: "moments" are the clients' first moments.
        blends_examples: Whether local steps use weighted means of examples, which do not exist for
            tokens.
        kinds: Ways in which the server step uses client uploads, unless ``update`` already shows
            them; they decide which scenarios are allowed (``fedbench.scenarios.allowed``).
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
    personal_part: tuple[str, ...] = ()
    statistics: Statistics | None = None
    moving_rounds: int | None = None
    frozen_part: tuple[str, ...] = ()
    finetune_epochs: int = 0
    whole_epochs: int | None = None
    whole: str = ""
    parts: bool = False
    own_head: str = ""
    objective: Objective | None = None
    any_loss: bool = False
    class_counts: bool = False
    everyone: str = ""
    uniform: str = ""
    remarks: Callable[[State], list[str]] = lambda server: []
    exposes: Mapping[str, Expose] = field(default_factory=dict)
    blends_examples: bool = False
    kinds: tuple[Kind, ...] = ()

    def __post_init__(self) -> None:
        choice("weights", self.weights, get_args(Weights))
        if not isinstance(self.needs, Set):
            raise WrongValue("needs", f"must be a set, such as {{'loss'}}, got {self.needs!r}")
        for need in self.needs:
            choice("needs", need, get_args(Need))
        for kind in self.kinds:
            choice("kinds", kind, get_args(Kind))

    @property
    def averaging(self) -> Averaging:
        """``update`` as an ``Averaging``, possibly without summed uploads."""
        if isinstance(self.update, Averaging):
            return self.update
        return Averaging(self.update, {})


def averaging_method(
    local: Optimizer,
    server_lr: float,
    weights: Weights,
    server: Optimizer = SGD,
    **fields: Any,
) -> Algorithm:
    """Return a method with a local solver, whose server moves along d = Σ p_k Δ_k.

    Args:
        local: The local solver.
        server_lr: Server step size η_g.
        weights: Weights p_k.
        server: The server's optimizer; by default w <- w - η_g d.
        fields: Other fields of the method, which may replace these.
    """
    method = Algorithm(
        **descent(local),
        **server_descent(server, server_lr),
        weights=weights,
    )
    return replace(method, **fields)


class Stage(NamedTuple):
    """Consecutive rounds of one algorithm.

    Most methods have a single stage; a factory may return a list of stages.

    Attributes:
        algorithm: The algorithm; the model is passed from one stage to the next.
        rounds: Number of rounds.
        sampler: Draws the cohorts. If None, the run's sampler.
        eligible: Maps the server state to a mask [N] of the clients that may be drawn. If None, or
            if no client is selected, all clients with training examples may be drawn.
        after: Called after every round in which a result arrived; may change states and labels.
        keep: Entries of the server and client states that are carried over from the previous stage.
            Carried-over entries of the server state are hidden from the method.
        changes: The algorithm in a round, given the number of rounds done and the server state,
            with the same states as ``algorithm``. If None, it is ``algorithm`` in every round.
    """

    algorithm: Algorithm
    rounds: int
    sampler: Sampler | None = None
    eligible: Callable[[State], np.ndarray] | None = None
    after: After | None = None
    keep: tuple[str, ...] = ()
    changes: Callable[[int, State], Algorithm] | None = None

    def at(self, round: int, server: State) -> Algorithm:
        """Return the algorithm in the round after ``round`` rounds, given the server state."""
        if self.changes is None:
            return self.algorithm
        return self.changes(round, server)
