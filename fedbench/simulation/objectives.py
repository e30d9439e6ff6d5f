"""Local steps on another loss than the cross-entropy."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fedbench.core.algorithm import Algorithm, Descent
from fedbench.core.types import Batch, ClientInfo, Loss, Oracle, Outputs, State

BROADCAST = "broadcast"  # local variable: the model from which the client started the round
PREVIOUS = "previous"  # client state: the last local model
TRAINED = "trained"  # client state: 1 after the client's first round, before it 0
_OWN = (BROADCAST, PREVIOUS, TRAINED)


@dataclass(eq=False)
class ObjectiveOracle(Oracle):
    """An oracle of another loss in one local step.

    Attributes:
        oracle: Oracle that carries out the passes.
        loss: The loss, given the outputs of the clients' models.
    """

    oracle: Oracle
    loss: Loss

    def loss_and_grad(
        self,
        w: Tensor,
        batch: Batch,
    ) -> tuple[Tensor, Tensor]:
        """Return the losses [A, 1] and the gradients [A, P]."""
        return self.oracle.differentiate(w, batch, self.loss)

    def differentiate(
        self,
        w: Tensor,
        batch: Batch,
        loss: Loss,
    ) -> tuple[Tensor, Tensor]:
        """Return the losses [A, 1] and the gradients [A, P] of a third loss."""
        return self.oracle.differentiate(w, batch, loss)

    def logits(self, w: Tensor, x: Tensor) -> Tensor:
        """Return the logits [A, B, classes]."""
        return self.oracle.logits(w, x)

    def outputs(self, w: Tensor, x: Tensor) -> Outputs:
        """Return the outputs, as in an evaluation."""
        return self.oracle.outputs(w, x)


def with_objective(algo: Algorithm, w: Tensor) -> Algorithm:
    """Return a method whose local steps see its objective instead of the cross-entropy.

    Args:
        algo: The method.
        w: The initial model of a client [P], with its personal part.
    """
    objective = algo.objective
    if objective is None:
        return algo
    keeps_model = PREVIOUS in objective.models

    def client_init(shared: Tensor) -> State:
        states = algo.client_init(shared)
        if keeps_model:
            states |= {PREVIOUS: w, TRAINED: w.new_zeros(1)}
        return states

    def start(
        msg: State,
        client: State,
        info: ClientInfo,
    ) -> State:
        local = algo.start(msg, _without(client), info)
        others = {BROADCAST: local["w"]}
        if keeps_model:
            trained = client[TRAINED] > 0
            others[PREVIOUS] = torch.where(trained, client[PREVIOUS], local["w"])
        return local | {name: others[name] for name in objective.models}

    def step(
        oracle: Oracle,
        msg: State,
        local: State,
        batch: Batch,
        info: ClientInfo,
    ) -> State:
        others = {name: oracle.outputs(local[name], batch.x) for name in objective.models}

        def loss(own: Outputs) -> Tensor:
            return objective.values(own, others, batch, local, info)

        return algo.step(ObjectiveOracle(oracle, loss), msg, local, batch, info)

    def finish(
        msg: State,
        client: State,
        local: State,
        info: ClientInfo,
    ) -> tuple[State, State]:
        uploads, states = algo.finish(msg, _without(client), _without(local), info)
        if keeps_model:
            ones = torch.ones_like(client[TRAINED])
            states = {**states, PREVIOUS: local["w"], TRAINED: ones}
        return uploads, states

    def deploy(server: State, clients: State) -> Tensor:
        return algo.deploy(server, _without(clients))

    return replace(
        algo,
        client_init=client_init,
        start=start,
        step=step,
        finish=finish,
        deploy=deploy,
        class_counts=algo.class_counts or objective.class_counts,
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


def _without(state: State) -> State:
    """Return the client states or local variables of the method itself."""
    return {name: v for name, v in state.items() if name not in _OWN}
