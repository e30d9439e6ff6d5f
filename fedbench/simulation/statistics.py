"""Running statistics of BatchNorm: local training moves them, and methods never see them.

Clients keep them, or the server averages them with the clients' weights p_k, outside the method's
step. During local training they are a local variable of their own, [C, B], the local ones first.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from fedbench.core.algorithm import Algorithm
from fedbench.core.errors import RequestError
from fedbench.core.types import (
    Batch,
    ClientInfo,
    ClientInit,
    Loss,
    Oracle,
    OracleWrapper,
    Outputs,
    ServerInit,
    State,
    Step,
    weighted_sum,
)

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
    ) -> tuple[Tensor, Tensor]:
        """Return the losses [A, 1] and the gradients [A, P]."""
        return self._trained(self.oracle.loss_and_grad, w, batch)

    def differentiate(
        self,
        w: Tensor,
        batch: Batch,
        loss: Loss,
    ) -> tuple[Tensor, Tensor]:
        """Return the losses [A, 1] and the gradients [A, P] of another loss."""
        return self._trained(partial(self.oracle.differentiate, loss=loss), w, batch)

    def logits(self, w: Tensor, x: Tensor) -> Tensor:
        """Return the logits [A, B, classes] in evaluation mode."""
        return self.oracle.logits(self._whole(w), x)

    def outputs(self, w: Tensor, x: Tensor) -> Outputs:
        """Return the outputs in evaluation mode."""
        return self.oracle.outputs(self._whole(w), x)

    def _trained(
        self,
        differentiate: Callable[[Tensor, Batch], tuple[Tensor, Tensor]],
        w: Tensor,
        batch: Batch,
    ) -> tuple[Tensor, Tensor]:
        """Return losses and gradients of a training step, and keep the statistics after it."""
        batch = batch._replace(training=self.moves)
        losses, gradients = differentiate(self._whole(w), batch)
        size = w.shape[1]
        if w is self.at:
            self.moved = gradients[:, size:]
        return losses, gradients[:, :size]

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
    if len(local):
        algo = replace(algo, client_init=partial(_client_init, algo.client_init, local))
    if len(averaged):
        algo = replace(algo, server_init=partial(_server_init, algo.server_init, averaged))
    around = _Around(algo, len(local), len(averaged), constant)
    return replace(
        algo,
        broadcast=around.broadcast,
        start=around.start,
        step=around.step,
        finish=around.finish,
        update=replace(algo.averaging, step=around.update),
        deploy=around.deploy,
        kinds=(*algo.kinds, "statistics") if around.sent else algo.kinds,
    )


def _client_init(
    of_method: ClientInit,
    local: Tensor,
    w: Tensor,
) -> State:
    """Return the state of a client that has not taken part."""
    return {**of_method(w), STATISTICS: local, TOOK_PART: local.new_zeros(1)}


def _server_init(
    of_method: ServerInit,
    averaged: Tensor,
    w: Tensor,
    num_clients: int,
) -> State:
    """Return the initial state of the server."""
    return {**of_method(w, num_clients), STATISTICS: averaged}


@dataclass(frozen=True)
class _Around:
    """The functions of a method, with running statistics that they do not see.

    Attributes:
        algo: The method.
        local: Number of the statistics that clients keep.
        averaged: Number of the others.
        constant: As for ``with_statistics``.
    """

    algo: Algorithm
    local: int
    averaged: int
    constant: Tensor | None

    @property
    def sent(self) -> bool:
        """Whether statistics are sent in this round."""
        return self.averaged > 0 and self.constant is None

    def broadcast(self, server: State) -> State:
        """Return the message."""
        message = self.algo.broadcast(_without(server))
        return {**message, STATISTICS: server[STATISTICS]} if self.sent else message

    def start(
        self,
        msg: State,
        client: State,
        info: ClientInfo,
    ) -> State:
        """Return the local variables."""
        parts = []
        if self.local:
            parts.append(client[STATISTICS])
        if self.averaged:
            of_server = msg[STATISTICS] if self.constant is None else self.constant
            parts.append(of_server.expand(len(info.id), -1))
        local = self.algo.start(_without(msg), _without(client), info)
        return {**local, STATISTICS: torch.cat(parts, 1)}

    def step(
        self,
        oracle: Oracle,
        msg: State,
        local: State,
        batch: Batch,
        info: ClientInfo,
    ) -> State:
        """Return the local variables after a step."""
        take_step = moving(self.algo.step, self.constant is None)
        return take_step(oracle, msg, local, batch, info)

    def finish(
        self,
        msg: State,
        client: State,
        local: State,
        info: ClientInfo,
    ) -> tuple[State, State]:
        """Return the uploads and the state of the client."""
        uploads, state = self.algo.finish(_without(msg), _without(client), _without(local), info)
        kept, other = local[STATISTICS].split([self.local, self.averaged], -1)
        if self.sent:
            uploads = {**uploads, STATISTICS: other}
        if self.local:
            state = {**state, STATISTICS: kept, TOOK_PART: kept.new_ones(len(kept), 1)}
        return uploads, state

    def update(
        self,
        server: State,
        uploads: State,
        cohort: ClientInfo,
    ) -> State:
        """Return the server state after the method's step."""
        new = self.algo.averaging.step(_without(server), _without(uploads), cohort)
        if not self.averaged:
            return new
        statistics = server[STATISTICS]
        if self.sent:
            mean = weighted_sum(cohort.p, uploads[STATISTICS])
            statistics = mean.to(statistics.dtype)
        return {**new, STATISTICS: statistics}

    def deploy(self, server: State, clients: State) -> Tensor:
        """Return the models to evaluate."""
        w = self.algo.deploy(_without(server), _without(clients))
        return with_own_statistics(w, server, clients)


def moving(step: Step, moves: bool) -> Step:
    """Return a local step after which the local variables have new running statistics.

    Args:
        step: A step on models without statistics.
        moves: Whether BatchNorm normalises by the batch. If not, the statistics are constants.
    """

    def take_step(
        oracle: Oracle,
        msg: State,
        local: State,
        batch: Batch,
        info: ClientInfo,
    ) -> State:
        before = local[STATISTICS]
        whole = _WholeModels(oracle, local["w"], before, moves)
        after = step(whole, msg, _without(local), batch, info)
        if not moves:
            return {**after, STATISTICS: before}
        if whole.moved is None:
            raise RequestError(
                "running statistics are moved by the gradient at the local model, and the method's "
                'step takes none: call oracle.grad(local["w"], batch) with this tensor itself'
            )
        return {**after, STATISTICS: whole.moved}

    return take_step


def with_own_statistics(
    w: Tensor,
    server: State,
    clients: State,
) -> Tensor:
    """Return models with the statistics of their clients and of the server.

    Without statistics, the result is w.

    Args:
        w: One model [P], or one per client [C, P].
        server: State of the server.
        clients: States of the clients, [C, ...] each; or of one client, if w is one model.
    """
    own = clients.get(STATISTICS)
    if own is not None:
        own = own.to(w.device)
        w = torch.cat([w.expand(*own.shape[:-1], -1), own], -1)
    averaged = server.get(STATISTICS)
    if averaged is not None:
        w = torch.cat([w, averaged.expand(*w.shape[:-1], -1)], -1)
    return w


def _without(state: State) -> State:
    """Return the entries of the method itself."""
    return {name: v for name, v in state.items() if name not in (STATISTICS, TOOK_PART)}
