"""Import torchvision, also one whose compiled operators do not match the installed torch.

A torchvision built for CUDA cannot load its operators with a CPU build of torch, and its import fails with "operator
torchvision::nms does not exist". Models need none of these operators; declaring their schemas is enough.
"""

from __future__ import annotations

import importlib
from types import ModuleType

import torch

_BOXES = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
_declared: list[torch.library.Library] = []  # a declaration lives as long as its Library object


def torchvision() -> ModuleType:
    """The module torchvision, which takes a second to import."""
    try:
        return importlib.import_module("torchvision")
    except RuntimeError:
        library = torch.library.Library("torchvision", "FRAGMENT")
        for name in ("nms", "qnms"):
            library.define(name + _BOXES)
        _declared.append(library)
        return importlib.import_module("torchvision")
