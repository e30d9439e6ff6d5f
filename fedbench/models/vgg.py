"""VGG-11 (Simonyan & Zisserman, ICLR 2015, configuration A) for small images."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from fedbench.core.torchvision_compat import torchvision
from fedbench.models.base import ModelTraits, require_images
from fedbench.models.cnn import PooledConv

_POOLINGS = 5


class VGG11(nn.Module):
    """torchvision's eight convolutions without normalisation, and one linear layer in place of its three.

    AdaFedAdam (Ju et al. 2023) trains "VGG11 with slight modifications" whose figure is lost; for images of 32 x 32
    this is 512 values into a linear layer. Pooling comes before ReLU: the same function, on a quarter of the values.

    Args:
        input_shape: Shape of one image, (channels, height, width), with at least 32 pixels a side.
        classes: Number of classes.

    Raises:
        RequestError: If the examples are not images, or are too small for five poolings.
    """

    traits = ModelTraits(initialisation="he")

    def __init__(self, input_shape: Sequence[int], classes: int) -> None:
        super().__init__()
        require_images(input_shape, 2**_POOLINGS)
        layers = list(torchvision().models.vgg11().features)
        for k, layer in enumerate(layers):
            if isinstance(layer, nn.Conv2d) and isinstance(layers[k + 2], nn.MaxPool2d):  # with the ReLU between them
                pooled = PooledConv(layer.in_channels if k else input_shape[0], layer.out_channels, 3)
                layers[k : k + 3] = [pooled, nn.Identity(), nn.Identity()]  # their places name the parameters
        self.features = nn.Sequential(*layers)
        sides = [s // 2**_POOLINGS for s in input_shape[1:]]
        self.classifier = nn.Linear(512 * sides[0] * sides[1], classes)

    def forward(self, x: Tensor) -> Tensor:
        """Map images [B, channels, height, width] to logits [B, classes]."""
        logits: Tensor = self.classifier(self.features(x).flatten(1))
        return logits
