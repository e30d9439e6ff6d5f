"""Residual networks (He et al., CVPR 2016) with GroupNorm or BatchNorm.

GroupNorm is from Wu & He, ECCV 2018.
"""

import importlib
from collections.abc import Sequence
from types import ModuleType
from typing import Literal

import torch
from torch import nn

from fedbench.models.base import ModelTraits, require_images

_BOXES = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
_declared: list[torch.library.Library] = []  # a declaration exists as long as its Library object


def torchvision_models() -> ModuleType:
    """Import the module ``torchvision.models``, which takes a second, and return it.

    A torchvision built for CUDA does not import with a CPU build of torch: "operator
    torchvision::nms does not exist". Models use none of torchvision's operators, so declaring their
    schemas is enough.
    """
    try:
        return importlib.import_module("torchvision.models")
    except RuntimeError:
        _declared.append(torch.library.Library("torchvision", "FRAGMENT"))
        for name in ("nms", "qnms"):
            _declared[0].define(name + _BOXES)
        return importlib.import_module("torchvision.models")


def resnet(
    input_shape: Sequence[int],
    classes: int,
    depth: Literal[18, 50] = 18,
    stem: Literal["3x3", "7x7"] = "3x3",
    groups: Literal[1, 2, 4, 8, 16, 32, 64] = 2,  # divisors of the smallest number of channels
    norm: Literal["group", "batch"] = "group",
) -> nn.Module:
    """Return torchvision's ResNet with GroupNorm or, as in the original, BatchNorm.

    With GroupNorm, an example's output does not depend on the other examples in the batch.

    Args:
        input_shape: Shape of one image, (channels, height, width).
        classes: Number of classes.
        depth: Number of layers, 18 or 50.
        stem: First convolution: "7x7" is the original one, with stride 2 and pooling; "3x3", with
            stride 1 and no pooling, is for small images.
        groups: Number of channel groups of GroupNorm, which normalises the channels of a group
            together.
        norm: Kind of the normalisation layers, "group" or "batch".

    Raises:
        RequestError: If the examples are not images.
    """
    require_images(input_shape)
    make = getattr(torchvision_models(), f"resnet{depth}")

    def norm_layer(channels: int) -> nn.Module:
        return nn.GroupNorm(groups, channels) if norm == "group" else nn.BatchNorm2d(channels)

    model: nn.Module = make(num_classes=classes, norm_layer=norm_layer)
    channels = input_shape[0]
    if stem == "3x3":
        model.conv1 = nn.Conv2d(channels, 64, 3, padding=1, bias=False)
        model.maxpool = nn.Identity()
    elif channels != 3:
        model.conv1 = nn.Conv2d(
            channels,
            64,
            7,
            stride=2,
            padding=3,
            bias=False,
        )
    # set as a plain attribute of the module
    model.traits = ModelTraits(initialisation="he", head="fc")  # type: ignore[assignment]
    return model
