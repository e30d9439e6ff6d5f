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

    Afterwards its modules are forgotten: the next run reads the files as they are then.
    """
    if folder is None:
        yield
        return
    root, before = folder.resolve(), set(sys.modules)
    sys.path.insert(0, str(root))
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.path.remove(str(root))
        for name in set(sys.modules) - before:
            file = getattr(sys.modules[name], "__file__", None)
            if file is not None and Path(file).is_relative_to(root):
                del sys.modules[name]
