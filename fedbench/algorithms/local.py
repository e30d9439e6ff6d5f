"""Local training: every client trains a model of its own, and nothing is sent."""

from fedbench.core.algorithm import WHOLE_MODEL, Algorithm, descent
from fedbench.core.optim import Optimizer


def local(local: Optimizer) -> Algorithm:
    """Local training: all parameters are personal, and the clients exchange nothing.

    A client trains its own model in the rounds in which it is sampled, so it takes as many steps as
    in FedAvg. Clients are evaluated on their own models.

    Args:
        local: The local solver.

    Identity: FedAvg with a single client, for every client; with full batches, the personal models
    of Ditto with λ = 0.
    """
    return Algorithm(
        **descent(local),
        weights="uniform",
        personal_part=WHOLE_MODEL,
        kinds=("apart",),
    )
