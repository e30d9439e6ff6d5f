"""Options shared by Python code and configurations, checked in one place.

This module does not need torch: the command line reads configurations before it imports torch.
"""

import math
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from fedbench.core.errors import WrongValue
from fedbench.core.validation import checked, whole

_LARGEST = 1e30  # the neighbouring values and the reciprocal are still finite in float32
_LARGEST_INTEGER = 2**53  # up to this value, every integer is exactly representable as a float

Number = Annotated[
    float,
    Field(strict=True, allow_inf_nan=False, ge=-_LARGEST, le=_LARGEST),
]
Positive = Annotated[Number, Field(gt=0)]
NonNegative = Annotated[Number, Field(ge=0)]
UnitInterval = Annotated[Number, Field(ge=0, le=1)]
PositiveShare = Annotated[Number, Field(gt=0, le=1)]
HalfOpenUnit = Annotated[Number, Field(ge=0, lt=1)]  # such as a momentum
OpenUnit = Annotated[Number, Field(gt=0, lt=1)]
Integer = Annotated[
    int,
    BeforeValidator(whole),
    Field(strict=True, ge=-_LARGEST_INTEGER, le=_LARGEST_INTEGER),
]
Count = Annotated[Integer, Field(ge=1)]
Natural = Annotated[Integer, Field(ge=0)]
Seed = Annotated[Natural, Field(lt=2**32)]  # NumPy's and scikit-learn's generators take no others
Rounds = Annotated[tuple[Count, ...], Field(strict=False)]

Statistics = Literal["average", "local"]  # running statistics: sent, or kept by the clients
CropMode = Literal["black", "mean", "reflect"]
ScheduleName = Literal["constant", "decay", "step", "cosine"]

_RULES_WITH = {
    "decay_factor": ("decay", "step"),
    "decay_every": ("decay",),
    "decay_at": ("step",),
    "decay_to": ("cosine",),
}


@dataclass(frozen=True)
class SgdOptions:
    """The options of ``fedbench.core.optim.sgd``.

    Attributes:
        momentum: Momentum ρ in [0, 1).
        nesterov: Whether to use Nesterov momentum.
        weight_decay: Weight λ of the L2 term λ/2 ||w||², whose gradient is added.
        clip_norm: Euclidean norm to which longer gradients are scaled (per client). If None,
            gradients are not clipped.

    Raises:
        RequestError: If a value is out of range, or ``nesterov`` is set without momentum.
    """

    momentum: HalfOpenUnit = 0.0
    nesterov: bool = False
    weight_decay: NonNegative = 0.0
    clip_norm: Positive | None = None

    def __post_init__(self) -> None:
        checked(SgdOptions, vars(self))
        if self.nesterov and self.momentum == 0:
            raise WrongValue(
                "nesterov", "must be false without momentum, got true; set a momentum above 0 too"
            )


@dataclass(frozen=True)
class LabelNoise:
    """Amount and kind of label noise.

    Attributes:
        clients: Probability that a client is noisy (FedCorr's ρ).
        level: Lowest noise level of a noisy client. Each noisy client's level is drawn from
            U(level, 1) (FedCorr's τ).
        kind: "uniform" redraws each label, with probability equal to the client's level, uniformly
            over all classes, and may draw the correct one; "pair" replaces the label with the next
            class, with the same probability.
    """

    clients: UnitInterval
    level: UnitInterval
    kind: Literal["uniform", "pair"]

    def __post_init__(self) -> None:
        checked(LabelNoise, vars(self))


@dataclass(frozen=True)
class Schedule:
    """Schedule of the local learning rate over rounds.

    The rate is constant within a round.

    In the round after t rounds, counted over all stages of a method, the rate is η_l times

    - "constant": 1;
    - "decay": φ^⌊t / decay_every⌋, φ = ``decay_factor``;
    - "step": φ^(number of entries of ``decay_at`` that are at most t);
    - "cosine": f + (1 - f)(1 + cos(πt/T))/2 with f = ``decay_to`` and T = ``rounds``, as in
      ``torch.optim.lr_scheduler.CosineAnnealingLR`` with ``eta_min`` = f η_l.

    Attributes:
        schedule: The rule.
        decay_factor: Factor φ in (0, 1]; for "decay" and "step".
        decay_every: Number of rounds between decays; for "decay".
        decay_at: Numbers of rounds after which the rate decays, ascending; for "step".
        decay_to: Fraction f in [0, 1) of the initial rate that "cosine" decays to.
        rounds: Number of rounds T of the run.

    Raises:
        RequestError: If a value is out of range, is missing, or belongs to another rule.
    """

    schedule: ScheduleName = "constant"
    decay_factor: PositiveShare | None = None
    decay_every: Count = 1
    decay_at: Rounds | None = None
    decay_to: HalfOpenUnit = 0.0
    rounds: int = 0

    def __post_init__(self) -> None:
        checked(Schedule, vars(self))
        for name, rules in _RULES_WITH.items():
            is_set = getattr(self, name) != getattr(Schedule, name)
            if is_set and self.schedule not in rules:
                raise WrongValue(
                    name,
                    f"belongs to local.schedule={' and '.join(rules)}, and local.schedule is "
                    f"{self.schedule}; leave it out, or use local.schedule={rules[0]}",
                )
        if self.schedule in _RULES_WITH["decay_factor"] and self.decay_factor is None:
            raise WrongValue(
                "decay_factor",
                f"must be > 0 and <= 1, got null; local.schedule={self.schedule} multiplies the "
                "learning rate by it; 0.99, for example",
            )
        if self.schedule == "step":
            rounds = list(self.decay_at or ())
            if not rounds or rounds != sorted(set(rounds)):
                raise WrongValue(
                    "decay_at",
                    f"must be an ascending list of rounds, such as [50,75], got {rounds}",
                )

    @property
    def depends_on_rounds(self) -> bool:
        """Whether the rates of a round depend on the total number of rounds."""
        return self.schedule == "cosine"

    def factor(self, round: int) -> float:
        """Return the factor on the learning rate in the round after ``round`` completed rounds."""
        if self.schedule == "cosine":
            angle = math.pi * round / max(1, self.rounds)
            return self.decay_to + (1 - self.decay_to) * (1 + math.cos(angle)) / 2
        if self.decay_factor is None:
            return 1.0
        if self.decay_at is not None:
            passed = [t for t in self.decay_at if t <= round]
            return self.decay_factor ** len(passed)
        return self.decay_factor ** (round // self.decay_every)


CONSTANT = Schedule()
