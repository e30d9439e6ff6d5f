"""Personal parts of a model: clients keep them, and a method acts on the shared part alone.

The local model of a client is [shared part | personal part], [P]. Messages, uploads, the server's
state and the method's own client states are vectors of the shared part, [S].
"""

from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from fedbench.core.algorithm import Algorithm, Descent
from fedbench.core.types import ClientInfo, State

PERSONAL = "personal_part"  # the client state that holds it


def with_personal_part(algo: Algorithm, initial: Tensor) -> Algorithm:
    """Return a method whose clients train the whole model and exchange its shared part.

    Terms that the method adds to a gradient are 0 on the personal part, for which there is no
    global model. A client that has not taken part has the initial personal part.

    Args:
        algo: The method; ``refusal`` must be empty.
        initial: Initial values of the personal part [L].
    """
    length = len(initial)
    step = algo.step
    added = step.extra if isinstance(step, Descent) else None

    def client_init(w: Tensor) -> State:
        return {**algo.client_init(w), PERSONAL: initial}

    def start(
        msg: State,
        client: State,
        info: ClientInfo,
    ) -> State:
        whole = completed(msg["w"], client)
        return algo.start(msg | {"w": whole}, _without(client), info)

    def extra(
        msg: State,
        local: State,
        info: ClientInfo,
    ) -> Tensor:
        assert added is not None
        of_shared = added(msg, _shared(local, length), info)
        return F.pad(of_shared, (0, length))

    def finish(
        msg: State,
        client: State,
        local: State,
        info: ClientInfo,
    ) -> tuple[State, State]:
        uploads, states = algo.finish(msg, _without(client), _shared(local, length), info)
        return uploads, {**states, PERSONAL: local["w"][..., -length:]}

    def deploy(server: State, clients: State) -> Tensor:
        return completed(algo.deploy(server, _without(clients)), clients)

    if isinstance(step, Descent) and added is not None:
        step = replace(step, extra=extra)
    return replace(
        algo,
        client_init=client_init,
        start=start,
        step=step,
        finish=finish,
        deploy=deploy,
    )


def completed(w: Tensor, clients: State) -> Tensor:
    """Return the clients' models [C, P]: a shared part [S], and the personal part of each client.

    Without personal parts, the result is w.
    """
    own = clients.get(PERSONAL)
    if own is None:
        return w
    own = own.to(w.device)
    return torch.cat([w.expand(len(own), -1), own], 1)


def whole_model(w: Tensor, client: State) -> Tensor:
    """Return a client's model [P] from its shared part w [S] and the client's state."""
    return torch.cat([w, client[PERSONAL]]) if PERSONAL in client else w


def refusal(algo: Algorithm) -> str:
    """Return the reason why a method cannot have personal parts; empty if it can."""
    if algo.personal is not None:
        return "has personal models already"
    if algo.trials is not None:
        return "measures one model for all clients"
    if algo.setup is not None:
        return "exchanges whole models before the first round"
    return algo.whole


def _without(client: State) -> State:
    """Return the client states of the method itself."""
    return {name: v for name, v in client.items() if name != PERSONAL}


def _shared(local: State, length: int) -> State:
    """Return local variables, with vectors of the whole model cut to the shared part."""
    size = local["w"].shape[-1]
    cut = {}
    for name, v in local.items():
        cut[name] = v[..., :-length] if v.shape[-1] == size else v
    return cut
