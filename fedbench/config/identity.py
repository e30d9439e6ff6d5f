"""Identity of a setting, independent of the seed, the machine and the location of the code.

The digest covers the values of the configuration, the contents of the user files and the source of
the user code named in it, the stable names (:mod:`fedbench.config.targets`) of fedbench's own
functions, and the revisions of its methods and losses. It covers neither fedbench's version nor the
paths of its modules. docs/adr/0011-identity.md gives the reasons.
"""

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, reduce
from operator import getitem
from pathlib import Path
from typing import Any, TypeAlias

from fedbench.config.targets import HISTORY, present, stable, within_fedbench
from fedbench.config.user_sources import file_digest, marks
from fedbench.core.config_values import Tree, leaves
from fedbench.core.errors import RequestError
from fedbench.core.files import reading, user_path
from fedbench.core.validation import whole

KeyPath: TypeAlias = tuple[Any, ...]  # the keys from the root of the configuration to a value

IDENTITY_FORMAT = 1
"""Version of the rules in this module. From version 2 on, it is part of the digest.

Increase it when the results of every configuration change, for example because random streams or
the training loop change; all finished runs are then trained again. If one method changes, increase
the ``REVISION`` in its file instead. If only the location of code changes, add a row to
``history.yaml``.
"""

# keys of data that name the user's files or directories
DATA_FILES = ("file", "root", "json_train", "json_test", "train", "test")
# keys that select recorded values: part of a run's identity, because its files differ, but never a
# departure from a paper
REPORTING_KEYS = frozenset({"eval_every", "keep_clients", "improved_clients", "metrics"})
# the seed, and keys and sections that do not change results (except engine.precision); values that
# eval_train_every omits in some rounds are unchanged in all other rounds
_NEUTRAL = (
    "seed.",
    "device.",
    "eval_train_every.",
    "data_dir.",
    "results_dir.",
    "force.",
    "tracker.",
    "engine.",
    "data.download.",
    "data.mirrors.",
    "keep_state.",
    "tuned_by.",
    "tuned_on.",
)
_PACKAGE = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Identity:
    """Identity of a setting.

    Attributes:
        digest: Ten hexadecimal digits, the same for all seeds.
        facts: Entries for ``meta.json``: ``identity_format``; ``revision``, the revision of each
            fedbench method by configuration key; ``files``, the digest of each user file by
            configuration key; and ``code``, the SHA-256 of each source file of user code, or the
            version of the installed package that contains it.
    """

    digest: str
    facts: Tree


def identify(config: Tree) -> Identity:
    """Return the identity of a checked configuration.

    Raises:
        RequestError: If a user file cannot be read, or user code cannot be found.
    """
    files = _user_files(config)
    tree = _numbers(config)
    code: dict[str, dict[str, str]] = {}
    revisions: dict[str, int] = {}
    for path, section in _sections(tree):
        target = str(section.get("_target_", ""))
        module, dot, _ = target.rpartition(".")
        key = _dotted(path)
        if dot and not within_fedbench(module):
            try:
                code[module] = marks(module)
            except ModuleNotFoundError as error:
                raise RequestError(
                    f"{key}._target_={target}: there is no module {error.name}"
                ) from error
        elif dot and path[:1] in (("algo",), ("objective",)):
            revisions[key] = _revision(present(target))
            if revisions[key] > 1:
                section["_revision_"] = revisions[key]

    for (*above, last), digest in files.items():
        reduce(getitem, above, tree)[last] = digest
    tree["init"] = tree["init"]["path"]
    hashes = {module: _hash(sources) for module, sources in code.items() if sources}
    if hashes:
        tree["code"] = hashes
    if IDENTITY_FORMAT > 1:
        tree["identity_format"] = IDENTITY_FORMAT
    source_digests: dict[str, str] = {}
    for sources in code.values():
        source_digests |= sources
    facts = {
        "identity_format": IDENTITY_FORMAT,
        "revision": revisions,
        "files": {_dotted(path): digest for path, digest in files.items()},
        "code": source_digests,
    }
    return Identity(_hash(_canonical(tree))[:10], facts)


def _dotted(path: KeyPath) -> str:
    return ".".join(map(str, path))


def setting(config: Tree) -> Tree:
    """Return the dotted keys that define the setting, without the seed and neutral keys."""
    return leaves(_numbers(config))


def _numbers(section: Tree, prefix: str = "") -> Tree:
    """Return a configuration without the seed, neutral keys and later keys at neutral values.

    Later keys were added after the first release. With its neutral value, a key changes nothing:
    fedbench behaves as it did before the key existed.
    """
    target = section.get("_target_")
    added = {}
    if isinstance(target, str):
        added = HISTORY["options"].get(stable(target), {})
    later = HISTORY["keys"] | {f"{prefix}{name}": value for name, value in added.items()}

    tree: Tree = {}
    for name, value in section.items():
        key = f"{prefix}{name}"
        if isinstance(value, dict) and value:
            if nested := _numbers(value, f"{key}."):
                tree[name] = nested
            continue
        is_neutral = f"{key}.".startswith(_NEUTRAL) and key != "engine.precision"
        # earlier name of tuned_by
        is_neutral = is_neutral or (key == "objective" and isinstance(value, str))
        is_earlier = key in later and value == later[key]
        if not is_neutral and not is_earlier:
            tree[name] = value
    return tree


def _canonical(value: Any, key: str = "") -> Any:
    """Return a value in digest form: functions by stable name, whole floats as integers."""
    if isinstance(value, dict):
        return {str(k): _canonical(v, k) for k, v in value.items()}
    if isinstance(value, list):
        return [_canonical(v) for v in value]
    if key == "_target_" and isinstance(value, str):
        return stable(value)
    return whole(value)


def _hash(tree: object) -> str:
    text = json.dumps(tree, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _sections(section: Tree, path: KeyPath = ()) -> Iterator[tuple[KeyPath, Tree]]:
    """Yield a section and all its subsections, each with its keys from the root."""
    yield path, section
    for name, value in section.items():
        if isinstance(value, dict):
            yield from _sections(value, (*path, name))


@cache
def _revision(target: str) -> int:
    """Return the constant ``REVISION`` in the file of a fedbench method, or 1 if there is none.

    The file is read but not imported. A method's revision is increased when its results change,
    even if the cause is a change in imported code.
    """
    module = target.rpartition(".")[0]
    file = _PACKAGE.parent / f"{module.replace('.', '/')}.py"
    text = file.read_text(encoding="utf-8") if file.is_file() else ""
    revision = re.search(r"^REVISION = (\d+)\b", text, re.M)
    return int(revision[1]) if revision else 1


# ---- user files


def _user_files(config: Tree) -> dict[KeyPath, str]:
    """Return the digests of the existing user files named in a configuration, by key."""
    named = _declared_files(config) | _files_of_user_functions(config)
    results_dir = user_path("results_dir", config["results_dir"])
    digests = {}
    for path, value in named.items():
        digest = _digest_of(value, results_dir)
        if digest is not None:
            digests[path] = digest
    return digests


def _declared_files(config: Tree) -> dict[KeyPath, Any]:
    """Return the values of all keys that name files, by key."""
    data = config["data"]
    source = data["source"]
    named: dict[KeyPath, Any] = {("init", "path"): config["init"]["path"]}
    for name in DATA_FILES:
        named["data", name] = data.get(name)
        # otherwise, data.source.train and data.source.test name splits, not files
        if name in data or name not in ("train", "test"):
            named["data", "source", name] = source.get(name)
    partition = data.get("partition") or {}
    if within_fedbench(partition.get("_target_")):
        named["data", "partition", "file"] = partition.get("file")
    return named


def _files_of_user_functions(config: Tree) -> dict[KeyPath, Any]:
    """Return the options of the user's functions that look like paths, by key.

    Each value is a string or a list that contains strings.
    """
    named: dict[KeyPath, Any] = {}
    user_sections: list[KeyPath] = []
    for path, section in _sections({**config, "tracker": {}}):
        if "_target_" in section and not within_fedbench(section["_target_"]):
            user_sections.append(path)
        if not any(path[: len(above)] == above for above in user_sections):
            continue
        for name, value in section.items():
            if name != "_target_" and _looks_like_path(value):
                named[*path, name] = value

    data = config["data"]
    source = data["source"]
    if not within_fedbench(source.get("_target_")):
        for name, value in data.items():
            if _looks_like_path(value) and value in source.values():
                named["data", name] = value
    return named


def _digest_of(value: object, apart: Path) -> str | None:
    """Return the digest of the existing paths named by a value or list; None if there are none."""
    if isinstance(value, list):
        entries = []
        for entry in value:
            digest = _digest_of(entry, apart) if _looks_like_path(entry) else None
            entries.append(digest or entry)
        return None if entries == value else _hash(entries)
    path = _existing(value) if value else None
    return None if path is None else content_digest(path, apart)


def _existing(value: object) -> Path | None:
    """Return the path named by a value, or None if it does not exist."""
    try:
        path = Path(str(value)).expanduser()
        return path if path.exists() else None
    # the text is too long for a path, or the home directory is unknown
    except (OSError, RuntimeError):
        return None


def _looks_like_path(value: object) -> bool:
    """Return whether a value contains a path separator or a file suffix.

    A plain word such as ``sum`` is not a path, even if a file has this name. The working directory
    and its parents, such as ``/``, do not count as data.
    """
    if isinstance(value, list):
        return any(map(_looks_like_path, value))
    if not isinstance(value, str):
        return False
    if "/" not in value and not Path(value).suffix:
        return False
    path = _existing(value)
    return path is None or not Path.cwd().is_relative_to(path.resolve())


def content_digest(path: Path, apart: Path | None = None) -> str:
    """Return the SHA-256 of a file, or of the relative names and contents of a directory's files.

    Args:
        path: A file or a directory.
        apart: A directory below ``path`` to exclude, such as the results directory.

    Raises:
        RequestError: If the path cannot be read.
    """
    with reading(path):
        if path.is_file():
            return file_digest(path)
        digest = hashlib.sha256()
        excluded = set() if apart is None else {apart.resolve()}
        for name, file in _files(path, "", excluded):
            digest.update(f"{name}:{file_digest(file)}\n".encode())
        return digest.hexdigest()


def _files(
    path: Path,
    name: str,
    above: set[Path],
) -> Iterator[tuple[str, Path]]:
    """Yield the files at and below a path with their relative names, sorted by name."""
    if path.is_file():
        yield name, path
        return
    real = path.resolve()
    if path.is_dir() and real not in above:  # a link to a parent directory would never end
        for entry in sorted(path.iterdir(), key=lambda p: p.name):
            yield from _files(entry, f"{name}/{entry.name}".lstrip("/"), above | {real})
