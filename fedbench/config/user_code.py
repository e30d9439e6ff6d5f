"""Code and files of the user: where code is imported from, and the digests that are part of a run's identity."""

from __future__ import annotations

import hashlib
import importlib
import site
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, lru_cache
from importlib.machinery import ModuleSpec
from pathlib import Path

from fedbench.core.errors import RequestError

_SCHEME = ("stdlib", "platstdlib", "purelib", "platlib")
_INSTALLED = {Path(p).resolve() for p in (*map(sysconfig.get_path, _SCHEME), site.getusersitepackages())}
_config_dir: ContextVar[Path | None] = ContextVar("configuration directory of the user", default=None)
_imported: dict[Path, str] = {}  # source file -> its digest when it was imported


@contextmanager
def user_code_from(folder: Path | None) -> Iterator[None]:
    """Put a configuration directory at the end of Python's path inside this block, so that ``_target_`` finds its code.

    It comes last, so that a file in it never takes the place of an installed module. Afterwards its modules are
    forgotten, so that the next run reads the files as they are then, and modules that were loaded under the same names
    before are back.
    """
    if folder is None:
        yield
        return
    root, before = folder.resolve(), dict(sys.modules)
    sys.path.append(str(root))
    token = _config_dir.set(root)
    try:
        yield
    finally:
        _config_dir.reset(token)
        del sys.path[len(sys.path) - 1 - sys.path[::-1].index(str(root))]  # it may be on the path before, too
        for name, module in list(sys.modules.items()):
            file = getattr(module, "__file__", None)
            if before.get(name) is not module and file is not None and Path(file).is_relative_to(root):
                del sys.modules[name]
        for name, module in before.items():
            sys.modules.setdefault(name, module)


def source_files(module: str) -> dict[str, Path]:
    """The source files that stand for a module of the user's own, by name relative to its directory on Python's path.

    They are all Python files of the configuration directory if the module lies there, and elsewhere those of its
    package, or its own file. There are none for modules of Python and of installed packages.

    Raises:
        ModuleNotFoundError: If there is no such top-level module or package.
    """
    spec = _spec(module.partition(".")[0])
    packages = [Path(place).absolute() for place in spec.submodule_search_locations or ()]
    origin = Path(spec.origin or "").absolute()
    base = packages[0].parent if packages else origin.parent
    if is_installed(base) or not (packages or origin.suffix == ".py"):
        return {}
    if base.resolve() == _config_dir.get():
        roots, found = [base], [file for file in base.rglob("*.py") if not _is_hidden(file.relative_to(base))]
    else:
        roots = [package.parent for package in packages] or [base]
        found = [file for package in packages for file in package.rglob("*.py")] or [origin]
    names = {next(file.relative_to(root) for root in roots if file.is_relative_to(root)): file for file in found}
    return {name.as_posix(): names[name] for name in sorted(names)}


def _is_hidden(name: Path) -> bool:
    return any(part.startswith(".") for part in name.parts)


def marks(module: str) -> dict[str, str]:
    """What identifies a module: digests of its source files by name, or the version of the package it comes with.

    Raises:
        ModuleNotFoundError: If there is no such top-level module or package.
    """
    if files := source_files(module):
        return {name: file_digest(file) for name, file in files.items()}
    from importlib.metadata import version

    return {name: version(name) for name in _distributions().get(module.partition(".")[0], ())}


def forget_other_code(module: str) -> None:
    """Let user code be imported again unless its present source is what is loaded: a run has the code of its identity.

    Modules of the same name may have been loaded from another directory, or from these files before an edit.

    Raises:
        ModuleNotFoundError: If there is no such top-level module or package.
    """
    found = source_files(module).items()
    files = {name.removesuffix(".py").removesuffix("/__init__").replace("/", "."): file for name, file in found}
    digests = {file: file_digest(file) for file in files.values()}
    origins = {name: getattr(sys.modules[name], "__file__", None) for name in files if name in sys.modules}
    loaded = {name: Path(origin) for name, origin in origins.items() if origin and not is_installed(Path(origin))}
    if any(file != files[name] or _imported.get(file) != digests[file] for name, file in loaded.items()):
        for name in loaded.keys() - {"__main__"}:
            del sys.modules[name]
    _imported.update(digests)


def is_installed(path: Path) -> bool:
    """Whether a path belongs to Python itself or to an installed package."""
    return any(path.resolve().is_relative_to(root) for root in _INSTALLED)


def _spec(top: str) -> ModuleSpec:
    """Where Python finds a top-level module or package now; one imported before may be of another directory."""
    importlib.invalidate_caches()  # a file may have been written a moment ago
    spec = next((s for finder in sys.meta_path if (s := finder.find_spec(top, None)) is not None), None)
    if spec is None:
        raise ModuleNotFoundError(f"No module named {top!r}", name=top)
    return spec


@cache
def _distributions() -> Mapping[str, list[str]]:
    from importlib.metadata import packages_distributions

    found: Mapping[str, list[str]] = packages_distributions()
    return found


def content_digest(path: Path, apart: Path | None = None) -> str:
    """SHA-256 of a file's content, or of the relative names and contents of all files in a directory.

    Args:
        path: A file or a directory.
        apart: A directory below ``path`` that does not count, such as that of the results.

    Raises:
        RequestError: If the path cannot be read.
    """
    try:
        if path.is_file():
            return file_digest(path)
        digest = hashlib.sha256()
        for name, file in _files(path, "", frozenset() if apart is None else frozenset({apart.resolve()})):
            digest.update(f"{name}:{file_digest(file)}\n".encode())
        return digest.hexdigest()
    except OSError as error:
        raise RequestError(f"{path} cannot be read: {error}") from error


def file_digest(file: Path) -> str:
    """SHA-256 of a file's content."""
    facts = file.stat()
    return _sha256(file.absolute(), facts.st_size, facts.st_mtime_ns, facts.st_ino)


@lru_cache(maxsize=100_000)  # the settings of a sweep share their files, which may be thousands of images
def _sha256(file: Path, size: int, changed: int, node: int) -> str:
    with file.open("rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()


def _files(here: Path, name: str, above: frozenset[Path]) -> Iterator[tuple[str, Path]]:
    """Yield the files at and below a path with their relative names, in the order of the names."""
    if here.is_file():
        yield name, here
    elif here.is_dir() and (real := here.resolve()) not in above:  # a link to a directory around it never ends
        for entry in sorted(here.iterdir(), key=lambda p: p.name):
            yield from _files(entry, f"{name}/{entry.name}".lstrip("/"), above | {real})
