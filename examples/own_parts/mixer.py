"""A custom model with a norm, and a parameter whose initial value fedbench cannot know."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from fedbench.core.errors import RequestError
from fedbench.core.options import Count
from fedbench.models.base import ModelTraits


class Mixer(nn.Module):
    """Two linear layers with LayerNorm, a learned scale and ReLU between them, for vectors.

    Args:
        input_shape: Shape of one example.
        classes: Number of classes.
        width: Units of the hidden layer.
    """

    def __init__(self, input_shape: Sequence[int], classes: int, width: Count = 16) -> None:
        super().__init__()
        if len(input_shape) != 1:
            raise RequestError(
                f"model=mixer reads vectors, got examples of shape {list(input_shape)}"
            )
        self.inner = nn.Linear(input_shape[0], width)
        self.norm = nn.LayerNorm(width)
        self.scale = nn.Parameter(torch.empty(width))
        self.outer = nn.Linear(width, classes)
        # fedbench initialises linear layers and norms itself, and needs the value of others
        self.traits = ModelTraits(begin={"scale": torch.ones(width, device="cpu")})

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits [B, classes] of examples x [B, features]."""
        hidden = self.norm(self.inner(x))
        return self.outer((self.scale * hidden).relu())
