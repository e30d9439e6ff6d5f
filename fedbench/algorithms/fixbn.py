"""FixBN (Zhong et al., 2023): FedAvg; from half of the rounds on, statistics are constants."""

from fedbench.core.algorithm import Algorithm, Weights, descent
from fedbench.core.optim import Optimizer


def fixbn(
    local: Optimizer,
    *,
    weights: Weights = "size",
) -> Algorithm:
    """FixBN: FedAvg that stops to move the running statistics of BatchNorm.

    They are averaged in the first rounds. Then they are constants: BatchNorm normalises by them in
    training as well, and they are not sent. The share of the first rounds is ``parts.fix_after``,
    by default half. The paper's local momentum that lasts over the rounds is not part of it.

    Source: Zhong, Chen and Chao, 2023 (arXiv 2303.06530).

    Args:
        local: The local solver.
        weights: Weights p_k, by number of training examples ("size") or "uniform".

    Identity: with ``parts.fix_after=1`` the method is FedAvg.
    """
    return Algorithm(**descent(local), weights=weights, fix_after=0.5)
