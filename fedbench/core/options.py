"""Options that Python code and configurations share, checked in one place.

Nothing here needs torch: the command line reads a configuration before it imports torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fedbench.core.errors import WrongValue, boolean, choice, number


@dataclass(frozen=True)
class SgdOptions:
    """The options of ``fedbench.core.optim.sgd``.

    Attributes:
        momentum: Momentum ρ in [0, 1).
        nesterov: Whether the momentum is Nesterov's.
        weight_decay: Weight λ of the L2 term λ/2 ||w||², whose gradient is added.
        clip_norm: Euclidean norm to which longer gradients are scaled (per client); None does not clip.

    Raises:
        RequestError: If a value is out of range, or ``nesterov`` is set without momentum.
    """

    momentum: float = 0.0
    nesterov: bool = False
    weight_decay: float = 0.0
    clip_norm: float | None = None

    def __post_init__(self) -> None:
        number("momentum", self.momentum, at_least=0, below=1)
        number("weight_decay", self.weight_decay, at_least=0)
        if self.clip_norm is not None:
            number("clip_norm", self.clip_norm, above=0, remedy="use null for no clipping")
        if boolean("nesterov", self.nesterov) and self.momentum == 0:
            raise WrongValue("nesterov", "must be false without momentum, got true; set a momentum above 0 too")


@dataclass(frozen=True)
class LabelNoise:
    """The amount and the kind of label noise.

    Attributes:
        clients: Probability that a client is noisy (FedCorr's ρ).
        level: Lowest noise level of a noisy client; its own is drawn from U(level, 1) (FedCorr's τ).
        kind: "uniform" redraws each label with that probability, uniformly over all classes, so that it may come out
            right; "pair" replaces it by the next class with that probability.
    """

    clients: float
    level: float
    kind: Literal["uniform", "pair"]

    def __post_init__(self) -> None:
        number("clients", self.clients, at_least=0, at_most=1)
        number("level", self.level, at_least=0, at_most=1)
        choice("kind", self.kind, ("uniform", "pair"))
