"""FedRep (Collins et al., 2021): in a round, clients train their heads, then the shared body."""

import torch

from fedbench.core.algorithm import Algorithm, Descent, Weights, averaging_method
from fedbench.core.optim import Optimizer
from fedbench.core.options import Natural, Positive
from fedbench.core.types import Batch, ClientInfo, Oracle, State

_NO_HEAD = (
    "fedrep moved the shared part in all epochs and the personal part in none; set local.epochs "
    "above algo.body_epochs"
)


def fedrep(
    local: Optimizer,
    *,
    body_epochs: Natural = 1,
    server_lr: Positive = 1.0,
    weights: Weights = "uniform",
    epochs: int | None = None,
) -> Algorithm:
    """FedRep: the first epochs of a round move the personal part alone, the last ones the other.

    The personal part is ``parts.personal``, by default the head. The part that rests keeps its
    values and its momentum.

    Source: Collins et al., ICML 2021, Alg. 1; the authors' code, which weights by the number of
    examples on LEAF data.

    Args:
        local: The local solver.
        body_epochs: Number of epochs on the shared part, at most that of a round.
        server_lr: Server step size η_g.
        weights: Weights p_k, "uniform" or by number of training examples ("size").
        epochs: Number of epochs that a round is planned to have, set by the run. If None, those of
            the steps that a client takes.

    Identity: with ``parts.personal=[]`` and body_epochs equal to the epochs of a round, the method
    is FedAvg.
    """

    def step(
        oracle: Oracle,
        msg: State,
        variables: State,
        batch: Batch,
        info: ClientInfo,
    ) -> State:
        w = variables["w"]
        place = torch.arange(w.shape[-1], device=w.device)
        planned = info.steps if epochs is None else epochs * info.per_epoch
        first = planned - body_epochs * info.per_epoch  # the first step on the shared part
        moved = (place < msg["w"].shape[-1]) == (batch.step >= first)  # [A, P]

        g = oracle.grad(w, batch) * moved
        descend = Descent(local, gradient=lambda *_: g)
        new = descend(oracle, msg, variables, batch, info)
        for name, v in new.items():
            if v.shape[-1] == moved.shape[-1]:
                new[name] = torch.where(moved, v, variables[name])
        return new

    return averaging_method(
        local,
        server_lr,
        weights,
        step=step,
        personal_part=("head",),
        whole_epochs=body_epochs,
        remarks=lambda server: [_NO_HEAD] if epochs == body_epochs else [],
    )
