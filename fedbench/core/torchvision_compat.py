"""torchvision, imported when it is needed, even if its compiled part does not match the installed torch.

A torchvision built for CUDA next to a CPU build of torch cannot load its operators; it registers shape functions for
``torchvision::nms`` nevertheless, so that its import fails with "operator torchvision::nms does not exist".
Data sets, models and transforms need none of these operators; declaring their schemas is enough.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import torch

from fedbench.core.errors import RequestError

_BOXES = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
_SCHEMAS = {"nms": _BOXES, "qnms": _BOXES}
_declared: list[torch.library.Library] = []  # a declaration lives as long as its Library object


def torchvision() -> ModuleType:
    """Return the module torchvision.

    Raises:
        RequestError: if it is not installed.
    """
    if "torchvision" not in sys.modules:
        spec = importlib.util.find_spec("torchvision")
        if spec is None or not spec.submodule_search_locations:
            raise RequestError("torchvision is not installed; run: pip install torchvision")
        if not _operators_load(Path(spec.submodule_search_locations[0])):
            library = torch.library.Library("torchvision", "FRAGMENT")
            for name, schema in _SCHEMAS.items():
                library.define(name + schema)
            _declared.append(library)
    return importlib.import_module("torchvision")


def _operators_load(package: Path) -> bool:
    for path in sorted(p for p in package.glob("_C*") if p.suffix in {".so", ".pyd", ".dylib"}):
        try:
            torch.ops.load_library(path)
        except OSError:
            continue
        return True
    return False
