"""Python files of the user's own, next to the config files that name them."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def own_code(folder: Path | None) -> Iterator[None]:
    """Put a directory on Python's path inside this block, so that ``_target_`` finds what it contains.

    Afterwards its modules are forgotten, so that the next run reads the files as they are then, and modules that were
    loaded under the same names before are back.
    """
    if folder is None:
        yield
        return
    root, before = folder.resolve(), dict(sys.modules)
    sys.path.insert(0, str(root))
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.path.remove(str(root))
        for name, module in list(sys.modules.items()):
            file = getattr(module, "__file__", None)
            if before.get(name) is not module and file is not None and Path(file).is_relative_to(root):
                del sys.modules[name]
        for name, module in before.items():
            sys.modules.setdefault(name, module)
