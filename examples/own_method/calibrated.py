"""A loss of your own: logits calibrated by a client's class counts (FedLC; Zhang et al., 2022)."""

from collections.abc import Mapping

from torch import Tensor

from fedbench import Algorithm, Objective, descent
from fedbench.core.objective import cross_entropy
from fedbench.core.optim import SGD, Optimizer
from fedbench.core.options import NonNegative
from fedbench.core.types import Batch, ClientInfo, Outputs, State


def calibrated(local: Optimizer = SGD, *, tau: NonNegative = 1.0) -> Algorithm:
    """Return FedAvg on the cross-entropy of the logits l_c - τ n_c^(-1/4).

    Args:
        local: The local solver of the run.
        tau: Strength τ of the calibration.
    """

    def values(
        own: Outputs,
        others: Mapping[str, Outputs],
        batch: Batch,
        local_variables: State,
        info: ClientInfo,
    ) -> Tensor:
        counts = info.probe["labels"].clamp(min=0.1)  # [A, classes]
        shifts = tau * counts**-0.25
        return cross_entropy(own.logits - shifts.unsqueeze(1), batch.y)  # [A, B]

    return Algorithm(**descent(local), objective=Objective(values, class_counts=True))
