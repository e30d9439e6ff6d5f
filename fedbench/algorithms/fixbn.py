"""FixBN (Zhong et al., 2023): FedAvg; from half of the rounds on, statistics are constants."""

from fedbench.core.algorithm import Algorithm, Weights, descent
from fedbench.core.optim import Optimizer
from fedbench.core.options import UnitInterval


def fixbn(
    local: Optimizer,
    *,
    weights: Weights = "size",
    fix_after: UnitInterval = 0.5,
) -> Algorithm:
    """FixBN: FedAvg whose running statistics of BatchNorm are constants in the later rounds.

    In the first rounds they are averaged. Later, BatchNorm normalises by them in training as well,
    and they are not sent. The paper's local momentum that lasts over the rounds is not part of it.

    Source: Zhong, Chen and Chao, 2023 (arXiv 2303.06530).

    Args:
        local: The local solver.
        weights: Weights p_k, by number of training examples ("size") or "uniform".
        fix_after: Share of the rounds, in [0, 1], in which statistics move, unless
            ``parts.fix_after`` is given.

    Identity: with fix_after 1 the method is FedAvg.
    """
    return Algorithm(**descent(local), weights=weights, fix_after=fix_after)
