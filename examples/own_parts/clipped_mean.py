"""A defence: the mean of the vectors after clipping their lengths."""

from dataclasses import dataclass

from torch import Tensor

from fedbench.core.options import Positive
from fedbench.scenarios.defence import Defence


@dataclass(frozen=True, kw_only=True)
class ClippedMean(Defence):
    """The mean of the vectors, each clipped to a multiple of the median length.

    Attributes:
        factor: The multiple.
    """

    factor: Positive = 1.0
    bound = (2, 1)  # of C >= 2 f + 1 vectors, f may be attackers'

    def combined(self, rows: Tensor, p: Tensor, f: int, centre: Tensor) -> Tensor:
        """Return the vector [P] that replaces the mean of rows [C, P]."""
        rows = rows.double()
        length = rows.norm(dim=1)  # [C]
        radius = self.factor * length.quantile(0.5)
        scale = (radius / length.clamp(min=1e-30)).clamp(max=1)
        return (scale[:, None] * rows).mean(0)
