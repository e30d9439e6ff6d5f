"""Local steps on another loss than the cross-entropy."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fedbench.core.algorithm import Algorithm, Descent, Stage
from fedbench.core.types import Batch, ClientInfo, Loss, Oracle, OracleWrapper, Outputs, State
from fedbench.simulation.statistics import trained_models
from fedbench.simulation.wrapping import hiding

BROADCAST = "broadcast"  # local variable: the model from which the client started the round
PREVIOUS = "previous"  # client state: the last local model
TRAINED = "trained"  # client state: 1 after the client's first round, before it 0


@dataclass(eq=False)
class ObjectiveOracle(OracleWrapper):
    """An oracle of another loss in one local step.

    Attributes:
        loss: The loss, given the outputs of the clients' models.
    """

    loss: Loss

    def loss_and_grad(
        self,
        w: Tensor,
        batch: Batch,
        loss: Loss | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Return the losses [A, 1] and the gradients [A, P]."""
        return self.oracle.loss_and_grad(w, batch, loss or self.loss)


def with_objective(stage: Stage, size: int) -> Stage:
    """Return a stage whose local steps see the method's objective instead of the cross-entropy.

    Args:
        stage: The stage.
        size: Number of values of a client's model, with its personal part and its statistics.
    """
    if stage.algorithm.objective is None:
        return stage

    def changed(round: int, server: State) -> Algorithm:
        return _around(stage.at(round, server), size)

    return stage._replace(
        algorithm=_around(stage.algorithm, size),
        changes=changed if stage.changes is not None else None,
    )


def _around(algo: Algorithm, size: int) -> Algorithm:
    """Return a method with its objective in its local steps; ``size`` as for ``with_objective``."""
    objective = algo.objective
    assert objective is not None
    if PREVIOUS in objective.models:
        algo = _with_previous_model(algo, size)

    def start(
        msg: State,
        client: State,
        info: ClientInfo,
    ) -> State:
        local = algo.start(msg, client, info)
        if BROADCAST not in objective.models:
            return local
        return {BROADCAST: trained_models(local), **local}

    def step(
        oracle: Oracle,
        msg: State,
        local: State,
        batch: Batch,
        info: ClientInfo,
    ) -> State:
        others: dict[str, Outputs] = {}
        for name in objective.models:
            others[name] = oracle.outputs(local[name], batch.x)

        def loss(own: Outputs) -> Tensor:
            return objective.values(own, others, batch, local, info)

        return algo.step(ObjectiveOracle(oracle, loss), msg, local, batch, info)

    return replace(
        algo,
        start=start,
        step=step,
        class_counts=algo.class_counts or objective.class_counts,
    )


def _with_previous_model(algo: Algorithm, size: int) -> Algorithm:
    """Return a method whose clients keep their last local model."""
    method = hiding(algo, PREVIOUS, TRAINED)

    def start(
        msg: State,
        client: State,
        info: ClientInfo,
    ) -> State:
        local = method.start(msg, client, info)
        previous = torch.where(client[TRAINED] > 0, client[PREVIOUS], trained_models(local))
        return {**local, PREVIOUS: previous}

    def finish(
        msg: State,
        client: State,
        local: State,
        info: ClientInfo,
    ) -> tuple[State, State]:
        uploads, states = method.finish(msg, client, local, info)
        ones = torch.ones_like(client[TRAINED])
        return uploads, {**states, PREVIOUS: trained_models(local), TRAINED: ones}

    return replace(
        method,
        client_init=lambda w: {
            **algo.client_init(w),
            PREVIOUS: w.new_zeros(size),
            TRAINED: w.new_zeros(1),
        },
        start=start,
        finish=finish,
    )


def refusal(algo: Algorithm) -> str:
    """Return the reason why the loss of a method's local steps is fixed; empty if it is not."""
    if algo.objective is not None:
        return "has a loss of its own already, and a run has one"
    if algo.personal is not None:
        return "has a second local phase on the cross-entropy"
    free = isinstance(algo.step, Descent) and algo.step.gradient is None
    if not free and not algo.any_loss:
        return "uses the cross-entropy of a batch in its local steps"
    return ""
