"""APFL."""

from torch import Tensor

from fedbench.algorithms.shared.reasons import PERSONAL
from fedbench.core.algorithm import Algorithm, Weights, start_from_client, upload_with
from fedbench.core.optim import Optimizer, without
from fedbench.core.options import UnitInterval
from fedbench.core.types import Batch, ClientInfo, Oracle, State


def apfl(
    local: Optimizer,
    *,
    alpha: UnitInterval = 0.5,
    adaptive: bool = False,
    weights: Weights = "size",
) -> Algorithm:
    """APFL: FedAvg, and on every client a mixture of the global model with a personal model v_k.

    Source: Deng, Kamani & Mahdavi, 2020.

    A local step computes both gradients on one batch before either model changes: y = α_k
    v_k + (1-α_k) x, x the moving local model; x <- x - η_l ∇F_k(x; batch), v_k <- v_k - η_l α_k
    ∇F_k(y; batch). v_k starts at w^0 and never leaves its client. Clients are evaluated on α_k
    v_k + (1-α_k) w.

    Args:
        local: The local solver, plain SGD.
        alpha: Share α of the personal model, in [0, 1]; its initial value if ``adaptive``.
        adaptive: Whether to update α_k <- clip(α_k - η_l (v_k - x) · ∇F_k(y; batch), 0, 1) before
            the first step of every round, on the batch of that step.
        weights: Weights p_k, by number of training examples ("size") or "uniform".

    Raises:
        RequestError: If the local solver is not plain SGD, because the local steps are those above.

    Identity: the global model is FedAvg's; α = 0 is FedAvg everywhere; α = 1 is separate local
    training.
    """
    without(local, "apfl", "both of its models take plain steps")

    def mixed(
        share: Tensor,
        personal: Tensor,
        x: Tensor,
    ) -> Tensor:
        return share * personal + (1 - share) * x

    def step(
        oracle: Oracle,
        msg: State,
        local: State,
        batch: Batch,
        info: ClientInfo,
    ) -> State:
        x, v, share = local["w"], local["personal"], local["alpha"]
        if adaptive and batch.step == 0:
            g = oracle.grad(mixed(share, v, x), batch)
            slope = ((v - x) * g).sum(-1, keepdim=True)
            share = (share - info.lr * slope).clamp(0, 1)
        g = oracle.grad(x, batch)
        g_mixed = oracle.grad(mixed(share, v, x), batch)
        return {
            "w": x - info.lr * g,
            "personal": v - info.lr * share * g_mixed,
            "alpha": share,
        }

    def deploy(server: State, clients: State) -> Tensor:
        v = clients["personal"]  # client states may be in host memory if there are many clients
        return mixed(clients["alpha"], v, server["w"].to(v.device))

    return Algorithm(
        client_init=lambda w: {"personal": w, "alpha": w.new_full((1,), alpha)},
        start=start_from_client,
        step=step,
        finish=upload_with(),
        deploy=deploy,
        whole=PERSONAL,
        weights=weights,
    )
