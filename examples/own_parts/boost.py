"""An attack: the attackers send the mean of the honest vectors plus a constant."""

from dataclasses import dataclass

from torch import Tensor

from fedbench.core.types import ClientInfo
from fedbench.scenarios.attack import Attack


@dataclass(frozen=True, kw_only=True)
class Boost(Attack):
    """Attackers send μ + offset, where μ is the mean of the honest vectors.

    Attributes:
        offset: Constant that is added to every coordinate.
    """

    offset: float = 10.0

    def forged(
        self, own: Tensor, honest: Tensor, attackers: ClientInfo, draw: int, place: int
    ) -> Tensor:
        """Return the vectors that the attackers send, [a, P]; own is [a, P], honest is [h, P]."""
        mean = honest.double().mean(0)
        return (mean + self.offset).to(own.dtype).expand_as(own)
