"""Local steps on another loss than the cross-entropy."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fedbench.core.algorithm import Algorithm, Descent, Stage
from fedbench.core.types import Batch, ClientInfo, Loss, Oracle, OracleWrapper, Outputs, State
from fedbench.simulation.statistics import with_own_statistics

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
    ) -> tuple[Tensor, Tensor]:
        """Return the losses [A, 1] and the gradients [A, P]."""
        return self.oracle.differentiate(w, batch, self.loss)


def with_objective(stage: Stage, size: int) -> Stage:
    """Return a stage whose local steps see the method's objective instead of the cross-entropy.

    Args:
        stage: The stage.
        size: Number of values of a client's model, with its personal part and its statistics.
    """
    if stage.algorithm.objective is None:
        return stage
    changes = stage.changes
    if changes is None:
        return stage._replace(algorithm=_around(stage.algorithm, size))

    def changed(round: int, server: State) -> Algorithm:
        return _around(changes(round, server), size)

    return stage._replace(algorithm=_around(stage.algorithm, size), changes=changed)


def _around(algo: Algorithm, size: int) -> Algorithm:
    """Return a method with its objective in its local steps; ``size`` as above."""
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
        return {BROADCAST: _model(local), **local} if BROADCAST in objective.models else local

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

    def client_init(w: Tensor) -> State:
        return {**algo.client_init(w), PREVIOUS: w.new_zeros(size), TRAINED: w.new_zeros(1)}

    def start(
        msg: State,
        client: State,
        info: ClientInfo,
    ) -> State:
        local = algo.start(msg, _without(client), info)
        previous = torch.where(client[TRAINED] > 0, client[PREVIOUS], _model(local))
        return {**local, PREVIOUS: previous}

    def finish(
        msg: State,
        client: State,
        local: State,
        info: ClientInfo,
    ) -> tuple[State, State]:
        uploads, states = algo.finish(msg, _without(client), local, info)
        ones = torch.ones_like(client[TRAINED])
        return uploads, {**states, PREVIOUS: _model(local), TRAINED: ones}

    def deploy(server: State, clients: State) -> Tensor:
        return algo.deploy(server, _without(clients))

    return replace(
        algo,
        client_init=client_init,
        start=start,
        finish=finish,
        deploy=deploy,
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


def _model(local: State) -> Tensor:
    """Return the clients' models [C, P], with their running statistics."""
    return with_own_statistics(local["w"], {}, local)


def _without(client: State) -> State:
    """Return the client states of the method itself."""
    return {name: v for name, v in client.items() if name not in (PREVIOUS, TRAINED)}
