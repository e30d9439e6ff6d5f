"""The network of pfl-research's CIFAR-10 benchmark for fedbench."""

from collections.abc import Sequence

import torch.nn.functional as F
from torch import Tensor, nn

from fedbench.core.randomness import dropout
from fedbench.models.base import ModelTraits


class SimpleCNN(nn.Module):
    """Two unpadded 3x3 convolutions, pooling, and a hidden linear layer, with dropout.

    Args:
        input_shape: Shape of one image, (3, 32, 32).
        classes: Number of classes.
    """

    traits = ModelTraits(random=True)

    def __init__(self, input_shape: Sequence[int], classes: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(input_shape[0], 32, 3)
        self.second = nn.Conv2d(32, 64, 3)
        self.hidden = nn.Linear(12544, 128)
        self.out = nn.Linear(128, classes)

    def forward(self, x: Tensor, key: Tensor | None = None) -> Tensor:
        """Return logits [B, classes]; ``key`` is that of the step's dropout, or None."""
        x = self.second(self.first(x).relu())
        x = F.max_pool2d(x, 2).relu()  # in the other order, the values are the same
        if key is not None:
            x = dropout(x, 0.25, key, 0)
        x = self.hidden(x.flatten(1)).relu()
        if key is not None:
            x = dropout(x, 0.5, key, 1)
        return self.out(x)
