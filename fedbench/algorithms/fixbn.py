"""FixBN (Zhong et al., 2023): FedAvg; from half of the rounds on, statistics are constants."""

from fedbench.core.algorithm import Algorithm, Weights, averaging_method
from fedbench.core.optim import Optimizer
from fedbench.core.options import Positive


def fixbn(
    local: Optimizer,
    *,
    rounds: int,
    server_lr: Positive = 1.0,
    weights: Weights = "size",
) -> Algorithm:
    """FixBN: FedAvg whose running statistics of BatchNorm are constants in the later rounds.

    In the first half of the rounds, rounded up, they are averaged; ``parts.fix_after`` replaces the
    half. Later, BatchNorm normalises by them in training as well, and they are not sent. The
    paper's local momentum that lasts over the rounds is not implemented.

    Source: Zhong, Chen and Chao, 2023 (arXiv 2303.06530).

    Args:
        local: The local solver.
        rounds: Number of rounds of the run.
        server_lr: Server step size η_g.
        weights: Weights p_k, by number of training examples ("size") or "uniform".

    Identity: with ``parts.fix_after=1`` the method is FedAvg.
    """
    return averaging_method(
        local,
        server_lr,
        weights,
        moving_rounds=-(-rounds // 2),
    )
