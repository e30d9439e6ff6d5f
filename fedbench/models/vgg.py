"""VGG-11 (Simonyan & Zisserman, ICLR 2015, configuration A) for small images."""

from collections import OrderedDict
from collections.abc import Sequence

from torch import Tensor, nn

from fedbench.models.base import ModelTraits, require_images
from fedbench.models.cnn import Conv

# position among torchvision's layers, which determines parameter names -> output channels, whether
# pooling follows
_CONVS = {
    0: (64, True),
    3: (128, True),
    6: (256, False),
    8: (256, True),
    11: (512, False),
    13: (512, True),
    16: (512, False),
    18: (512, True),
}
_POOLINGS = 5


class VGG11(nn.Module):
    """VGG-11 with torchvision's eight convolutions without normalisation, and one linear layer.

    AdaFedAdam (Ju et al. 2023) trains "VGG11 with slight modifications"; the figure that shows them
    is missing from our copy. For 32 x 32 images, the linear layer has 512 inputs. Pooling comes
    before ReLU: the result is the same, but ReLU processes a quarter of the values.

    Args:
        input_shape: Shape of one image, (channels, height, width), with at least 32 pixels per
            side.
        classes: Number of classes.

    Raises:
        RequestError: If the examples are not images, or are too small for five pooling layers.
    """

    traits = ModelTraits(initialisation="he")

    def __init__(self, input_shape: Sequence[int], classes: int) -> None:
        super().__init__()
        require_images(input_shape, 2**_POOLINGS)
        layers = OrderedDict[str, nn.Module]()
        channels = input_shape[0]
        for place, (outputs, pooled) in _CONVS.items():
            layers[str(place)] = Conv(channels, outputs, 3, pooled=pooled)
            channels = outputs
        self.features = nn.Sequential(layers)
        sides = [s // 2**_POOLINGS for s in input_shape[1:]]
        self.classifier = nn.Linear(channels * sides[0] * sides[1], classes)

    def forward(self, x: Tensor) -> Tensor:
        """Map images [B, channels, height, width] to logits [B, classes]."""
        logits: Tensor = self.classifier(self.features(x).flatten(1))
        return logits
