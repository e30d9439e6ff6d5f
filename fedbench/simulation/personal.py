"""Personal parts of a model: clients keep them, and a method acts on the shared part alone.

The local model of a client is [shared part | personal part], [P]. Messages, uploads, the server's
state and the method's own client states are vectors of the shared part, [S].
"""

from dataclasses import replace

import torch.nn.functional as F
from torch import Tensor

from fedbench.core.algorithm import Algorithm, Descent
from fedbench.core.types import ClientInfo, State
from fedbench.simulation.wrapping import hiding, joined

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
    method = hiding(algo, PERSONAL)
    step = algo.step
    added = step.extra if isinstance(step, Descent) else None

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
        uploads, states = method.finish(msg, client, _shared(local, length), info)
        return uploads, {**states, PERSONAL: local["w"][..., -length:]}

    if isinstance(step, Descent) and added is not None:
        step = replace(step, extra=extra)
    return replace(
        algo,
        client_init=lambda w: {**algo.client_init(w), PERSONAL: initial},
        start=lambda msg, client, info: method.start(
            msg | {"w": joined(msg["w"], client[PERSONAL])}, client, info
        ),
        step=step,
        finish=finish,
        deploy=lambda server, clients: joined(method.deploy(server, clients), clients[PERSONAL]),
    )


def refusal(algo: Algorithm) -> str:
    """Return the reason why a method cannot have personal parts; empty if it can."""
    if algo.personal is not None:
        return "has personal models already"
    if algo.trials is not None:
        return "measures one model for all clients"
    if algo.setup is not None:
        return "exchanges whole models before the first round"
    return algo.whole


def _shared(local: State, length: int) -> State:
    """Return local variables, with vectors of the whole model cut to the shared part."""
    size = local["w"].shape[-1]
    cut = {}
    for name, v in local.items():
        cut[name] = v[..., :-length] if v.shape[-1] == size else v
    return cut
