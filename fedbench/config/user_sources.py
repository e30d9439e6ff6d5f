"""The user's code: the path from which it is imported and the source files that identify it."""

import hashlib
import importlib
import site
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, lru_cache
from importlib.metadata import packages_distributions, version
from pathlib import Path

_PYTHONS = (
    *map(sysconfig.get_path, ("stdlib", "platstdlib", "purelib", "platlib")),
    site.getusersitepackages(),
)
_INSTALLED = {Path(path).resolve() for path in _PYTHONS}
user_folder: ContextVar[Path | None] = ContextVar(
    "configuration directory of the user", default=None
)
_distributions = cache(packages_distributions)  # takes 0.1 s
_imported: dict[Path, str] = {}  # source file -> its digest when it was imported


@contextmanager
def user_code_from(folder: Path | None) -> Iterator[None]:
    """Append a configuration directory to Python's path within this block.

    ``_target_`` can then name code in this directory. The directory comes last in the path, so that
    its files never replace an installed module. After the block, its modules are unloaded, so that
    the next run reads the current files, and previously loaded modules of the same names are
    restored.
    """
    if folder is None:
        yield
        return
    root = folder.resolve()
    path = list(sys.path)
    before = dict(sys.modules)
    sys.path.append(str(root))
    token = user_folder.set(root)
    try:
        yield
    finally:
        user_folder.reset(token)
        sys.path[:] = path
        for name, module in list(sys.modules.items()):
            file = getattr(module, "__file__", None)
            is_new = before.get(name) is not module
            if is_new and file is not None and Path(file).is_relative_to(root):
                del sys.modules[name]
        for name, module in before.items():
            sys.modules.setdefault(name, module)


def source_files(module: str) -> dict[str, Path]:
    """Return the source files of a user's module, by name relative to its directory on the path.

    If the module is in the configuration directory, these are all Python files in that directory;
    otherwise, all files of its package, or its only file. The result is empty for modules of Python
    itself and of installed packages.

    Raises:
        ModuleNotFoundError: If the top-level module or package does not exist.
    """
    top = module.partition(".")[0]
    importlib.invalidate_caches()  # a file may just have been written
    # importlib.util.find_spec would return the module imported earlier, perhaps from another
    # directory
    specs = (finder.find_spec(top, None) for finder in sys.meta_path)
    spec = next(filter(None, specs), None)
    if spec is None:
        raise ModuleNotFoundError(f"No module named {top!r}", name=top)
    packages = [Path(place).absolute() for place in spec.submodule_search_locations or ()]
    origin = packages[0] if packages else Path(spec.origin or "").absolute()
    base = origin.parent
    if _is_installed(base) or not (packages or origin.suffix == ".py"):
        return {}
    folders = {package: package.parent for package in packages}  # package -> root of relative names
    if base.resolve() == user_folder.get():
        folders = {base: base}
    files = {}
    for folder, root in folders.items():
        for file in folder.rglob("*.py"):
            name = file.relative_to(root)
            if not any(part.startswith(".") for part in name.parts):
                files[name] = file
    if not files:
        return {origin.name: origin}
    return {name.as_posix(): files[name] for name in sorted(files)}


def marks(module: str) -> dict[str, str]:
    """Return the digests of a module's source files by name, or the version of its distribution.

    Raises:
        ModuleNotFoundError: If the top-level module or package does not exist.
    """
    if files := source_files(module):
        return {name: file_digest(file) for name, file in files.items()}
    top = module.partition(".")[0]
    return {name: version(name) for name in _distributions().get(top, ())}


def forget_other_code(module: str) -> None:
    """Unload user code if it was not loaded from its current source, so it is imported again.

    A run then uses the code that its identity covers. Modules of the same name may have been loaded
    from another directory, or from the same files before an edit.

    Raises:
        ModuleNotFoundError: If the top-level module or package does not exist.
    """
    sources = source_files(module)
    digests = {file: file_digest(file) for file in sources.values()}
    loaded: dict[str, bool] = {}  # module -> whether its current source is loaded
    for path, file in sources.items():
        name = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        origin = getattr(sys.modules.get(name), "__file__", None)
        if origin and name != "__main__" and not _is_installed(Path(origin)):
            loaded[name] = Path(origin) == file and _imported.get(file) == digests[file]
    if not all(loaded.values()):
        for name in loaded:
            del sys.modules[name]
    _imported.update(digests)


def _is_installed(path: Path) -> bool:
    """Return whether a path belongs to Python itself or to an installed package."""
    return any(path.resolve().is_relative_to(root) for root in _INSTALLED)


def file_digest(file: Path) -> str:
    """Return the SHA-256 of a file's content."""
    facts = file.stat()
    return _sha256(
        file.absolute(),
        facts.st_size,
        facts.st_mtime_ns,
        facts.st_ino,
    )


# the settings of a sweep share their files, possibly thousands of images
@lru_cache(maxsize=100_000)
def _sha256(
    file: Path,
    size: int,
    changed: int,
    node: int,
) -> str:
    with file.open("rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()
