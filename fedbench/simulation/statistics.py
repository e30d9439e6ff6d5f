"""Running statistics of BatchNorm: local training moves them, and methods never see them.

Clients keep them, or the server averages them with the clients' weights p_k, outside the method's
step. During local training they are a local variable of their own, [C, B], the local ones first.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fedbench.core.algorithm import Algorithm
from fedbench.core.errors import RequestError
from fedbench.core.types import (
    Batch,
    ClientInfo,
    Loss,
    Oracle,
    OracleWrapper,
    Outputs,
    State,
    Step,
    weighted_sum,
)
from fedbench.simulation.personal import PERSONAL
from fedbench.simulation.wrapping import blind, hiding, joined

# entry of local variables, messages, uploads and the states of clients and server
STATISTICS = "statistics"
# client state [1]: 1 if the client has taken part; only with local statistics
TOOK_PART = "took_part"


@dataclass(eq=False)
class _WholeModels(OracleWrapper):
    """An oracle for models without their statistics, which it completes.

    Attributes:
        at: The local models before the step [A, P].
        statistics: Their statistics [A, B].
        moves: Whether BatchNorm normalises by the batch.
        moved: The statistics after the first gradient at the local models; None before it.
    """

    at: Tensor
    statistics: Tensor
    moves: bool
    moved: Tensor | None = None

    def loss_and_grad(
        self,
        w: Tensor,
        batch: Batch,
        loss: Loss | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Return the losses [A, 1] and the gradients [A, P]; of another loss, if one is given."""
        batch = batch._replace(training=self.moves)
        losses, gradients = self.oracle.loss_and_grad(self._whole(w), batch, loss)
        size = w.shape[1]
        if w is self.at:
            self.moved = gradients[:, size:]
        return losses, gradients[:, :size]

    def logits(self, w: Tensor, x: Tensor) -> Tensor:
        """Return the logits [A, B, classes] in evaluation mode."""
        return self.oracle.logits(self._whole(w), x)

    def outputs(self, w: Tensor, x: Tensor) -> Outputs:
        """Return the outputs in evaluation mode."""
        return self.oracle.outputs(self._whole(w), x)

    def _whole(self, w: Tensor) -> Tensor:
        return torch.cat([w, self.statistics], 1)


def with_statistics(
    algo: Algorithm,
    local: Tensor,
    averaged: Tensor,
    constant: Tensor | None = None,
) -> Algorithm:
    """Return a method whose local training moves the running statistics of the model.

    Each local step moves them once. The server's new statistics are Σ p_k s_k.

    Args:
        algo: The method.
        local: Initial values of the statistics that clients keep.
        averaged: Initial values of the others.
        constant: Present values of the others [B] in a round in which all statistics are
            constants, neither moved nor sent. If None, they move.
    """
    method = hiding(algo, STATISTICS, TOOK_PART)
    take_step = blind(algo.averaging.step, STATISTICS)
    sent = len(averaged) > 0 and constant is None
    of_client = {STATISTICS: local, TOOK_PART: local.new_zeros(1)} if len(local) else {}
    of_server = {STATISTICS: averaged} if len(averaged) else {}

    def broadcast(server: State) -> State:
        message = blind(algo.broadcast, STATISTICS)(server)
        return {**message, STATISTICS: server[STATISTICS]} if sent else message

    def start(
        msg: State,
        client: State,
        info: ClientInfo,
    ) -> State:
        own = client.get(STATISTICS, averaged.new_empty(len(info.id), 0))
        statistics = joined(own, msg.get(STATISTICS, constant))
        return {**method.start(msg, client, info), STATISTICS: statistics}

    def finish(
        msg: State,
        client: State,
        variables: State,
        info: ClientInfo,
    ) -> tuple[State, State]:
        uploads, state = method.finish(msg, client, variables, info)
        kept, other = variables[STATISTICS].split([len(local), len(averaged)], -1)
        if sent:
            uploads = {**uploads, STATISTICS: other}
        if len(local):
            state = {**state, STATISTICS: kept, TOOK_PART: kept.new_ones(len(kept), 1)}
        return uploads, state

    def update(
        server: State,
        uploads: State,
        cohort: ClientInfo,
    ) -> State:
        new = take_step(server, uploads, cohort)
        if sent:
            mean = weighted_sum(cohort.p, uploads[STATISTICS])
            return {**new, STATISTICS: mean.to(averaged.dtype)}
        return {**new, STATISTICS: server[STATISTICS]} if len(averaged) else new

    return replace(
        algo,
        server_init=lambda w, clients: {**algo.server_init(w, clients), **of_server},
        client_init=lambda w: {**algo.client_init(w), **of_client},
        broadcast=broadcast,
        start=start,
        step=moving(algo.step, constant is None),
        finish=finish,
        update=replace(algo.averaging, step=update),
        deploy=lambda server, clients: joined(
            method.deploy(server, clients),
            clients.get(STATISTICS),
            server.get(STATISTICS),
        ),
        kinds=(*algo.kinds, "statistics") if sent else algo.kinds,
    )


def moving(step: Step, moves: bool) -> Step:
    """Return a local step after which the local variables have new running statistics.

    Args:
        step: A step on models without statistics.
        moves: Whether BatchNorm normalises by the batch. If not, the statistics are constants.
    """
    step = blind(step, STATISTICS)

    def take_step(
        oracle: Oracle,
        msg: State,
        local: State,
        batch: Batch,
        info: ClientInfo,
    ) -> State:
        before = local[STATISTICS]
        whole = _WholeModels(oracle, local["w"], before, moves)
        after = step(whole, msg, local, batch, info)
        if not moves:
            return {**after, STATISTICS: before}
        if whole.moved is None:
            raise RequestError(
                "running statistics are moved by the gradient at the local model, and the method's "
                'step takes none: call oracle.grad(local["w"], batch) with this tensor itself'
            )
        return {**after, STATISTICS: whole.moved}

    return take_step


def local_models(
    w: Tensor,
    server: State,
    clients: State,
) -> Tensor:
    """Return the models that clients start from, [C, P], or [P] if they have no parts of their own.

    Args:
        w: The shared part of the model [S].
        server: State of the server.
        clients: States of the clients, [C, ...] each; or of one client.
    """
    return joined(w, clients.get(PERSONAL), clients.get(STATISTICS), server.get(STATISTICS))


def trained_models(local: State) -> Tensor:
    """Return the clients' models [C, P], with their running statistics, from local variables."""
    return joined(local["w"], local.get(STATISTICS))
