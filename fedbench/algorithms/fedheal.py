"""FedHEAL."""

from collections.abc import Sequence
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from fedbench.algorithms.shared.mixtures import normalized
from fedbench.core.algorithm import Algorithm, descent
from fedbench.core.errors import RequestError
from fedbench.core.optim import Optimizer
from fedbench.core.options import UnitInterval
from fedbench.core.types import ClientInfo, State, lengths, weighted_sum

REVISION = 2
_ROUNDING = 1e-6  # a share that equals the threshold may exceed it by rounding


def fedheal(
    local: Optimizer,
    *,
    beta: UnitInterval = 0.4,
    threshold: float = 0.3,
    distance: Literal["whole", "tensor"] = "whole",
    tensors: Sequence[int] | None = None,
) -> Algorithm:
    """FedHEAL: only parameters with consistent signs, weighted by the length of the updates.

    Source: Chen et al., CVPR 2024.

    Client: s_k [P] is the share of its earlier participations with Δ_k >= 0. From the second
    participation on, it sends only the coordinates in which the share of the current sign is above
    the threshold (mask m_k). Server: d_k = ||m_k Δ_k||, δ_k <- (1-β) δ_k + β d_k/Σd,
    π_k <- π_k + δ_k, initially 1/C, p_k ∝ π_k; per coordinate w <- w - Σ p_k m_k Δ_k / Σ p_k m_k.

    Args:
        local: The local solver.
        beta: Weight β in [0, 1] of the current distances.
        threshold: Share of earlier participations with the current sign above which a coordinate is
            sent.
        distance: "whole" is the norm of the flat update (the paper); "tensor" is the sum of the
            norms of the model's tensors (the authors' code).
        tensors: Number of values in each tensor of the model, set by the run.

    Identity: threshold < 0 and β = 0 is FedAvg with uniform weights; with threshold >= 1, a client
    sends nothing after its first round. Deviation: shares count a client's own participations,
    whereas the authors' code counts global rounds.
    """
    if distance == "tensor" and tensors is None:
        raise RequestError(
            "distance=tensor needs the sizes of the model's tensors: pass tensors=[...]"
        )

    def server_init(w: Tensor, num_clients: int) -> State:
        zeros = w.new_zeros(num_clients, dtype=torch.float64)
        return {"w": w, "increment": zeros, "gained": zeros}  # δ, and π - 1/C

    def finish(
        msg: State,
        client: State,
        local: State,
        info: ClientInfo,
    ) -> tuple[State, State]:
        delta = msg["w"] - local["w"]
        count = client["count"]
        ups = (client["share"] * count).round()  # whole numbers, so that equal shares compare equal
        up = delta >= 0
        same = torch.where(up, ups, count - ups)
        mask = (same > (threshold + _ROUNDING) * count) | (count == 0)
        upload = {"delta": delta * mask, "mask": packed(mask)}
        return upload, {"share": (ups + up) / (count + 1), "count": count + 1}

    def update(
        server: State,
        uploads: State,
        cohort: ClientInfo,
    ) -> State:
        delta = uploads["delta"]
        parts = [delta] if distance == "whole" else delta.split(tensors, 1)
        distances = torch.stack([lengths(part) for part in parts])
        length = normalized(distances.sum(0))
        increment = (1 - beta) * server["increment"][cohort.id] + beta * length
        gained = server["gained"][cohort.id] + increment
        p = normalized(1 / len(delta) + gained)
        total = weighted_sum(p, unpacked(uploads["mask"], delta.shape[1]))
        # NaN is kept: the run counts as diverged
        d = torch.where(total == 0, 0.0, weighted_sum(p, delta) / total)
        return {
            "w": server["w"] - d.to(delta.dtype),
            "increment": server["increment"].index_copy(0, cohort.id, increment),
            "gained": server["gained"].index_copy(0, cohort.id, gained),
        }

    return Algorithm(
        **descent(local),
        server_init=server_init,
        client_init=lambda w: {"share": torch.zeros_like(w), "count": w.new_zeros(1)},
        finish=finish,
        update=update,
        weights="uniform",
        kinds=("masks",),
    )


def packed(mask: Tensor) -> Tensor:
    """Pack a bool mask [C, P] into bytes [C, ceil(P/8)], uint8, lowest bit first."""
    padded = F.pad(mask.to(torch.uint8), (0, -mask.shape[1] % 8))
    bits = padded.view(len(mask), -1, 8)
    return (bits << _places(mask)).sum(2, dtype=torch.uint8)


def unpacked(packs: Tensor, size: int) -> Tensor:
    """Unpack the bool mask [C, size] from the bytes of ``packed``."""
    bits = (packs.unsqueeze(2) >> _places(packs)) & 1
    return bits.view(len(packs), -1)[:, :size].bool()


def _places(on: Tensor) -> Tensor:
    """Return the places of the bits in a byte, [8], on the device of a tensor."""
    return torch.arange(8, dtype=torch.uint8, device=on.device)
