"""Functions that a configuration names by ``_target_``: their names, where their code is, and calling them.

The stable name of one of fedbench's own functions is its dotted path at its first release. It is an opaque identifier
from then on: it is what enters the identity of a run, and what runs on disk and users' own YAML files may contain
forever. A function of the user's own is identified by the source that it comes with.
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
import site
import sys
import sysconfig
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from fedbench.core.config_values import Tree
from fedbench.core.errors import RequestError, WrongValue, arguments_of, install_hint, nearest, typed
from fedbench.core.user_code import raised
from fedbench.core.validation import checked

# Module at its first release -> module today. A row may also name a single function, with its full path on both sides.
# Moving a module takes one row here; moving it again changes the right side. Of rows with one right side the last is
# the first name.
MOVED: dict[str, str] = {
    "fedbench.algorithms.fedadagrad.fedadagrad": "fedbench.algorithms.fedadam.fedadagrad",
    "fedbench.algorithms.fedams.fedams": "fedbench.algorithms.fedadam.fedams",
    "fedbench.algorithms.fedyogi.fedyogi": "fedbench.algorithms.fedadam.fedyogi",
    "fedbench.algorithms.mofedsam.mofedsam": "fedbench.algorithms.fedsam.mofedsam",
    "fedbench.data.partition": "fedbench.data.partitions.basic",
    "fedbench.data.partition_dirichlet": "fedbench.data.partitions.dirichlet",
    "fedbench.data.partition_label": "fedbench.data.partitions.label",
    "fedbench.data.partitions.index_file.indices": "fedbench.data.partitions.given.indices",
    "fedbench.data.partitions.quantity.lognormal_sizes": "fedbench.data.partitions.basic.lognormal_sizes",
    "fedbench.data.partition_quantity.lognormal_sizes": "fedbench.data.partitions.basic.lognormal_sizes",
    "fedbench.data.partitions.quantity.power_law_sizes": "fedbench.data.partitions.basic.power_law_sizes",
    "fedbench.data.partition_quantity.power_law_sizes": "fedbench.data.partitions.basic.power_law_sizes",
    "fedbench.models.lenet.LeNet": "fedbench.models.cnn.LeNet",
    "fedbench.runs.trackers.mlflow.MlflowTracker": "fedbench.runs.trackers.MlflowTracker",
    "fedbench.trackers.mlflow.MlflowTracker": "fedbench.runs.trackers.MlflowTracker",
    "fedbench.runs.trackers.tensorboard.TensorboardTracker": "fedbench.runs.trackers.TensorboardTracker",
    "fedbench.trackers.tensorboard.TensorboardTracker": "fedbench.runs.trackers.TensorboardTracker",
    "fedbench.runs.trackers.wandb.WandbTracker": "fedbench.runs.trackers.WandbTracker",
    "fedbench.trackers.wandb.WandbTracker": "fedbench.runs.trackers.WandbTracker",
}
_EXTRAS = {"tensorboard": "tensorboard", "mlflow": "mlflow", "dp_accounting": "privacy"}  # package -> extra with it
_PYTHONS = (*map(sysconfig.get_path, ("stdlib", "platstdlib", "purelib", "platlib")), site.getusersitepackages())
_INSTALLED = {Path(path).resolve() for path in _PYTHONS}
user_folder: ContextVar[Path | None] = ContextVar("configuration directory of the user", default=None)
_imported: dict[Path, str] = {}  # source file -> its digest when it was imported


# ---- names


def present(target: str, table: dict[str, str] = MOVED) -> str:
    """The dotted path of a function today, given its stable or its present name."""
    module, dot, function = target.rpartition(".")
    return table.get(target) or table.get(module, module) + dot + function


def stable(target: str) -> str:
    """The stable name of a function, given its stable or its present name."""
    return present(target, {today: first for first, today in MOVED.items()})


def within_fedbench(target: str) -> bool:
    """Whether a ``_target_`` names a function of fedbench itself, not one of the user's own."""
    return target.split(".")[0] == "fedbench"


def renamed(tree: Any, name: Callable[[str], str]) -> Any:
    """A configuration with ``name`` applied to every ``_target_``, at any depth."""
    if isinstance(tree, dict):
        return {k: name(v) if k == "_target_" and isinstance(v, str) else renamed(v, name) for k, v in tree.items()}
    return [renamed(v, name) for v in tree] if isinstance(tree, list) else tree


# ---- calling functions


@dataclass(frozen=True)
class Component:
    """A section of the configuration that names a function.

    Attributes:
        target: Dotted name of the function, the key ``_target_``; None if no function is named.
        options: The other keys: arguments of the function.
    """

    target: str | None
    options: Tree

    @classmethod
    def of(cls, key: str, section: object) -> Component:
        """The component of a section with this dotted key.

        Raises:
            RequestError: If it is not a section.
        """
        if not isinstance(section, dict):
            raise WrongValue(key, f"must be a section with keys, got {typed(section)}; see `fedbench --cfg job`")
        return cls(section.get("_target_"), {k: v for k, v in section.items() if k != "_target_"})

    def inner(self, key: str) -> dict[str, Component]:
        """Return the options that are components themselves.

        Args:
            key: Dotted key of this component.
        """
        return {
            name: Component.of(f"{key}.{name}", option)
            for name, option in self.options.items()
            if isinstance(option, dict) and "_target_" in option
        }


def checked_options(component: Component, key: str, given: Collection[str] = ()) -> tuple[Callable[..., Any], Tree]:
    """Return the function of a component and its options, checked by its signature alone.

    Args:
        component: The function and its options; an option may be a component itself.
        key: Its dotted key, for messages.
        given: Names of the arguments that do not come from the configuration.

    Raises:
        RequestError: If the function does not exist, a key is unknown or missing, or a value is not what its annotation
            declares.
    """
    function = function_of(component.target, key)
    place = _place(component, key)
    parameters = inspect.signature(function).parameters.values()
    named = [p for p in parameters if p.kind is not p.VAR_KEYWORD and p.name not in given]
    names = [p.name for p in named]
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters)
    for name in component.options:
        if name not in names and not takes_any:
            allowed = ", ".join(names) or "none"
            hint = nearest(name, names)
            raise RequestError(f"{place}unknown key {key}.{name}; {function.__name__} has the keys {allowed}{hint}")
    for p in named:
        if p.default is p.empty and p.name not in component.options:
            raise RequestError(f"{place}{function.__name__} needs {p.name}, which is not set; type +{key}.{p.name}=...")

    inner = component.inner(key)
    for name, part in inner.items():
        checked_options(part, f"{key}.{name}", given)
    with arguments_of(key):
        options = checked(function, {name: value for name, value in component.options.items() if name not in inner})
    return function, options


def call(component: Component, key: str, **given: Any) -> Any:
    """Call the function of a component with its options and with those of ``given`` that it accepts.

    Args:
        component: The function and its options; an option that is a component is called first, in the same way.
        key: Its dotted key, for messages.
        given: Arguments that do not come from the configuration.

    Raises:
        RequestError: If an option is wrong, the function rejects it, or a function of the user's own raises an error.
    """
    function, options = checked_options(component, key, given)
    for name, part in component.inner(key).items():
        options[name] = call(part, f"{key}.{name}", **given)
    accepted = inspect.signature(function).parameters.keys() & given.keys()
    try:
        with arguments_of(key):
            return function(**{name: given[name] for name in accepted}, **options)
    except RequestError:
        raise
    except Exception as error:
        if within_fedbench(str(component.target)):
            raise
        raise RequestError(f"{_place(component, key)}{raised(error)}") from error


def _place(component: Component, key: str) -> str:
    """Return the beginning of a message about a function of the user's own; empty for those of fedbench."""
    return "" if within_fedbench(str(component.target)) else f"{key}._target_={component.target}: "


def function_of(target: str | None, what: str) -> Callable[..., Any]:
    """The function of a dotted name, its present one or the one of its first release.

    Args:
        target: The name.
        what: Dotted key of the component, for messages.

    Raises:
        RequestError: If it does not exist.
    """
    if not isinstance(target, str) or "." not in target:
        raise RequestError(f"{what}._target_ must name a function as package.module.function, got {typed(target)}")
    module, name = present(target).rsplit(".", 1)
    own = not within_fedbench(target)
    try:
        if own:
            _forget_other_code(module)
        imported = importlib.import_module(module)
    except ModuleNotFoundError as error:
        missing = str(error.name)
        if f"{target}.".startswith(f"{missing}."):
            raise RequestError(f"{what}._target_={target}: there is no module {missing}") from error
        if own:
            raise RequestError(f"{what}._target_={target}: {raised(error)}") from error
        extra = f"; run: {install_hint(_EXTRAS[missing])}" if missing in _EXTRAS else ""
        raise RequestError(f"{what} needs the package {missing}, which is not installed{extra}") from error
    except Exception as error:
        if not own:
            raise
        raise RequestError(f"{what}._target_={target}: {raised(error)}") from error
    function: Callable[..., Any] | None = getattr(imported, name, None)
    if not callable(function):
        known = [k for k, v in vars(imported).items() if callable(v)]
        raise RequestError(f"{what}._target_={target}: {module} has no function {name}{nearest(name, known)}")
    return function


# ---- code of the user's own


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
    root, path, before = folder.resolve(), list(sys.path), dict(sys.modules)
    sys.path.append(str(root))
    token = user_folder.set(root)
    try:
        yield
    finally:
        user_folder.reset(token)
        sys.path[:] = path
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
    top = module.partition(".")[0]
    importlib.invalidate_caches()  # a file may have been written a moment ago
    # importlib.util.find_spec would give the module that was imported before, perhaps from another directory
    spec = next((s for finder in sys.meta_path if (s := finder.find_spec(top, None)) is not None), None)
    if spec is None:
        raise ModuleNotFoundError(f"No module named {top!r}", name=top)
    packages = [Path(place).absolute() for place in spec.submodule_search_locations or ()]
    origin = packages[0] if packages else Path(spec.origin or "").absolute()
    base = origin.parent
    if _is_installed(base) or not (packages or origin.suffix == ".py"):
        return {}
    if base.resolve() == user_folder.get():
        found = {file.relative_to(base): file for file in base.rglob("*.py")}
    else:
        found = {file.relative_to(p.parent): file for p in packages for file in p.rglob("*.py")}
    shown = [name for name in found if not any(part.startswith(".") for part in name.parts)]
    return {name.as_posix(): found[name] for name in sorted(shown)} or {origin.name: origin}


def marks(module: str) -> dict[str, str]:
    """What identifies a module: digests of its source files by name, or the version of the package it comes with.

    Raises:
        ModuleNotFoundError: If there is no such top-level module or package.
    """
    if files := source_files(module):
        return {name: file_digest(file) for name, file in files.items()}
    from importlib.metadata import version

    return {name: version(name) for name in _distributions().get(module.partition(".")[0], ())}


def _forget_other_code(module: str) -> None:
    """Let user code be imported again unless its present source is what is loaded: a run has the code of its identity.

    Modules of the same name may have been loaded from another directory, or from these files before an edit.

    Raises:
        ModuleNotFoundError: If there is no such top-level module or package.
    """
    found = source_files(module)
    files = {name.removesuffix(".py").removesuffix("/__init__").replace("/", "."): found[name] for name in found}
    digests = {file: file_digest(file) for file in found.values()}
    origins = {name: getattr(sys.modules.get(name), "__file__", None) for name in files.keys() - {"__main__"}}
    loaded = {name: Path(origin) for name, origin in origins.items() if origin and not _is_installed(Path(origin))}
    if any(file != files[name] or _imported.get(file) != digests[file] for name, file in loaded.items()):
        for name in loaded:
            del sys.modules[name]
    _imported.update(digests)


def _is_installed(path: Path) -> bool:
    """Whether a path belongs to Python itself or to an installed package."""
    return any(path.resolve().is_relative_to(root) for root in _INSTALLED)


@cache
def _distributions() -> Any:
    from importlib.metadata import packages_distributions

    return packages_distributions()


def file_digest(file: Path) -> str:
    """SHA-256 of a file's content."""
    facts = file.stat()
    return _sha256(file.absolute(), facts.st_size, facts.st_mtime_ns, facts.st_ino)


@lru_cache(maxsize=100_000)  # the settings of a sweep share their files, which may be thousands of images
def _sha256(file: Path, size: int, changed: int, node: int) -> str:
    with file.open("rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()
