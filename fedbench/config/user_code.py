"""User code: where it is imported from, and its source files, whose content is part of a run's identity.

The files are found without importing them.
"""

from __future__ import annotations

import ast
import importlib
import site
import sys
import sysconfig
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

from fedbench.core.errors import RequestError

_SCHEME = ("stdlib", "platstdlib", "purelib", "platlib")
_INSTALLED = {Path(p).resolve() for p in (*map(sysconfig.get_path, _SCHEME), site.getusersitepackages())}


@contextmanager
def user_code_from(folder: Path | None) -> Iterator[None]:
    """Put a directory at the end of Python's path inside this block, so that ``_target_`` finds what it contains.

    It comes last, so that a file in it never takes the place of an installed module. Afterwards its modules are
    forgotten, so that the next run reads the files as they are then, and modules that were loaded under the same names
    before are back.
    """
    if folder is None:
        yield
        return
    root, before = folder.resolve(), dict(sys.modules)
    sys.path.append(str(root))
    importlib.invalidate_caches()
    try:
        yield
    finally:
        del sys.path[len(sys.path) - 1 - sys.path[::-1].index(str(root))]  # it may be on the path before, too
        for name, module in list(sys.modules.items()):
            file = getattr(module, "__file__", None)
            if before.get(name) is not module and file is not None and Path(file).is_relative_to(root):
                del sys.modules[name]
        for name, module in before.items():
            sys.modules.setdefault(name, module)


def source_files(module: str) -> dict[str, Path]:
    """Return the source files of a module and of what it imports from its own directory, transitively.

    The directory is the one on Python's path that contains the module or its outermost package. Imports of an
    installed module are not followed.

    Args:
        module: The dotted name, outside fedbench.

    Returns:
        The files by their names relative to the directory, in the order of the names.

    Raises:
        ModuleNotFoundError: If there is no such module; ``name`` is the part that is missing.
    """
    base, origin = _base(module)
    if base is None:
        return {origin.name: origin} if origin.is_file() else {}
    found = _along(base, module)
    if found is None:
        raise ModuleNotFoundError(f"No module named {module!r}", name=_missing(base, module))
    if is_installed(base):
        return {file.relative_to(base).as_posix(): file for file in found}
    files: dict[str, Path] = {}
    waiting = list(found)
    while waiting:
        file = waiting.pop()
        name = file.relative_to(base).as_posix()
        if name in files:
            continue
        files[name] = file
        for imported in _imports(file, base):
            if imported.split(".")[0] != "fedbench":
                waiting += _along(base, imported) or []
    return dict(sorted(files.items()))


def versions(files: Iterable[Path], module: str) -> dict[str, str]:
    """Return name and version of the distributions that a module with these files comes from; none for user code."""
    if not all(map(is_installed, files)):
        return {}
    return {name: _metadata().version(name) for name in _distributions().get(module.split(".")[0], ())}


@cache
def _distributions() -> Mapping[str, list[str]]:
    found: Mapping[str, list[str]] = _metadata().packages_distributions()
    return found


def _metadata() -> ModuleType:
    """Return the module that knows installed packages: it takes 0.06 s to import, and most commands do without it."""
    return importlib.import_module("importlib.metadata")


def is_installed(path: Path) -> bool:
    """Return whether a path belongs to Python itself or to an installed package."""
    return any(path.resolve().is_relative_to(root) for root in _INSTALLED)


def _base(module: str) -> tuple[Path | None, Path]:
    """Return the directory on Python's path that a module is imported from, and the file of its outermost package.

    The directory is None for modules that are compiled, or built into Python.

    Raises:
        ModuleNotFoundError: If there is no such top-level module or package.
    """
    spec = _spec(module.split(".")[0])
    places = spec.submodule_search_locations
    origin = Path(spec.origin or "").absolute()
    if not places and origin.suffix != ".py":
        return None, origin
    bases = [Path(p).absolute().parent for p in (places or [str(origin)])]
    return next((b for b in bases if _along(b, module) is not None), bases[0]), origin


def _spec(top: str) -> ModuleSpec:
    """Return where Python finds a top-level module or package now; one imported before may be of another directory."""
    importlib.invalidate_caches()  # a file may have been written a moment ago
    specs = (finder.find_spec(top, None) for finder in sys.meta_path)
    spec = next((s for s in specs if s is not None), None)
    if spec is None:
        raise ModuleNotFoundError(f"No module named {top!r}", name=top)
    return spec


def _along(base: Path, module: str) -> list[Path] | None:
    """Return the files that importing ``module`` from ``base`` runs, packages first; None if it does not exist."""
    found: list[Path] = []
    folder = base
    parts = module.split(".")
    for depth, part in enumerate(parts, 1):
        package, file = folder / part / "__init__.py", folder / f"{part}.py"
        if package.is_file():
            found.append(package)
        elif file.is_file():
            return [*found, file] if depth == len(parts) else None
        elif not (folder / part).is_dir():  # a directory without __init__.py is a namespace package
            return None
        folder = folder / part
    return found


def _missing(base: Path, module: str) -> str:
    """Return the shortest prefix of ``module`` that does not exist."""
    parts = module.split(".")
    prefixes = [".".join(parts[:n]) for n in range(1, len(parts) + 1)]
    return next((p for p in prefixes if _along(base, p) is None), module)


def _imports(file: Path, base: Path) -> Iterator[str]:
    """Yield the dotted names, seen from ``base``, that a file imports anywhere in it.

    Raises:
        RequestError: If the file is not Python.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # importing the file shows them
            tree = ast.parse(file.read_bytes(), filename=str(file))
    except (SyntaxError, ValueError) as error:
        raise RequestError(f"{file} is not valid Python: {error}") from error
    package = file.parent.relative_to(base).parts
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: max(0, len(package) - node.level + 1)] if node.level else ()
            origin = ".".join([*above, *([node.module] if node.module else [])])
            yield from ([origin] if origin else [])
            yield from (f"{origin}.{alias.name}".lstrip(".") for alias in node.names)
