"""Identity of a run: what makes two runs one setting, whatever the seed, the machine and the place of the code.

The digest covers the values of the configuration, the content of the user files and the source of the user code that it
names, and the stable names (:mod:`fedbench.config.names`) and revisions of fedbench's own functions. It covers neither
fedbench's version nor the paths of its modules. docs/adr/0011-identity.md gives the reasons.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from fedbench.config.names import present, renamed, stable, within_fedbench
from fedbench.config.user_code import content_digest, marks
from fedbench.core.errors import RequestError
from fedbench.core.files import Tree, leaves, user_path

IDENTITY_FORMAT = 1
"""Version of the rules in this module. It enters the digest from 2 on.

Raise it when the same configuration comes to mean different numbers for every run, for example because random streams
or the loop change; all finished runs are then trained again. If one method changes, raise the ``REVISION`` of its file
instead. If nothing but the place of code changes, add a row to ``names.MOVED``.
"""

# keys that name files or directories of the user
USER_FILES = (
    "init.path", "data.file", "data.root", "data.json_train", "data.json_test", "data.train", "data.test",
    "data.partition.file",
)  # fmt: skip
# what is recorded of a run: part of its identity, since the files differ, but never a departure from a paper
REPORTING_KEYS = frozenset({"eval_every", "keep_clients", "improved_clients", "metrics"})
# keys and sections that change no numbers, the precision of the engine aside; a number that eval_train_every leaves out
# of a round is missing there and the same elsewhere
_NON_RESULT_KEYS = (
    "device", "eval_train_every", "data_dir", "results_dir", "force", "tracker", "engine",
    "data.download", "data.mirrors", "keep_state", "objective", "tuned_on",
)  # fmt: skip
# Options that fedbench's own functions gained after their first release, each with the value that is what they did
# before. With this value an option is no part of a setting, so that runs made before it existed stay the same runs.
ADDED: dict[str, Tree] = {
    "fedbench.data.sources.mnist.load": {"standardise": "channel"},
    "fedbench.data.partitions.label.consecutive_classes": {"as_published": False},
}
# keys that came after runs were made, with the value under which a run is the one that it was without the key
_DEFAULTS_ADDED_LATER: Tree = {
    "data.validation": 0,
    "local.schedule": "constant", "local.decay_factor": None, "local.decay_every": 1, "local.decay_at": None,
    "local.decay_to": 0,
}  # fmt: skip
_PACKAGE = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Identity:
    """Identity of a setting.

    Attributes:
        digest: Ten hexadecimal digits, the same for all seeds.
        facts: What ``meta.json`` records: ``identity_format``; ``revision`` of each of fedbench's own methods by
            configuration key; ``files``, the digest of each user file by configuration key; and ``code``, the SHA-256
            of each source file of user code, or the version of the package that it is installed with.
    """

    digest: str
    facts: Tree


def identify(config: Tree) -> Identity:
    """The identity of a checked configuration.

    Raises:
        RequestError: If a user file cannot be read, or user code cannot be found.
    """
    files, code = _user_files(config), _user_code(config)
    methods = {what: target for what, target in _targets(config["algo"], "algo") if within_fedbench(target)}
    revisions = {what: _revision(target) for what, target in methods.items()}
    tree = renamed(_with_contents(config, files), stable)
    tree["algo"] = _revised(tree["algo"], "algo", revisions)
    if code:
        tree["code"] = {module: _hash(content) for module, content in code.items()}
    if IDENTITY_FORMAT > 1:
        tree["identity_format"] = IDENTITY_FORMAT
    return Identity(
        digest=_hash(tree)[:10],
        facts={
            "identity_format": IDENTITY_FORMAT,
            "revision": revisions,
            "files": files,
            "code": {name: mark for content in code.values() for name, mark in content.items()},
        },
    )


def core(config: Tree) -> Tree:
    """The configuration without what changes no number, with user files by content.

    Raises:
        RequestError: If a user file cannot be read.
    """
    return _with_contents(config, _user_files(config))


def setting(config: Tree) -> Tree:
    """The dotted keys of a configuration that make its setting: all but the seed and what changes no numbers."""
    return leaves(_relevant(config))


def changes_no_numbers(key: str) -> bool:
    """Whether a dotted key says where or how a run is carried out; its numbers do not depend on it."""
    return key != "engine.precision" and any(key == k or key.startswith(f"{k}.") for k in _NON_RESULT_KEYS)


def _relevant(section: Tree, prefix: str = "") -> Tree:
    """A configuration without the seed, what changes no numbers, and options that do what was done before them."""
    target = section.get("_target_")
    added = ADDED.get(present(target), {}) if isinstance(target, str) else {}
    later = _DEFAULTS_ADDED_LATER | {f"{prefix}{name}": value for name, value in added.items()}
    tree: Tree = {}
    for name, value in section.items():
        key = f"{prefix}{name}"
        if isinstance(value, dict) and value:
            if nested := _relevant(value, f"{key}."):
                tree[name] = nested
        elif not (key == "seed" or changes_no_numbers(key) or (key in later and value == later[key])):
            tree[name] = value
    return tree


def _with_contents(config: Tree, files: Mapping[str, str]) -> Tree:
    tree = renamed(_relevant(config), present)
    for key, digest in files.items():
        *above, last = key.split(".")
        section = tree
        for part in above:
            section = section[part]
        section[last] = digest
    tree["init"] = tree["init"]["path"]
    plain: Tree = _plain(tree)
    return plain


def _hash(tree: Tree) -> str:
    return hashlib.sha256(json.dumps(tree, sort_keys=True).encode()).hexdigest()


def _plain(value: Any) -> Any:
    """The value with whole floats as ints: q=1 and q=1.0 are one setting."""
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_plain(v) for v in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _user_files(config: Tree) -> dict[str, str]:
    """Digests of the files and directories of the user that a configuration names and that exist, by dotted key.

    Below a function of the user's own, these are also the strings that look like a path and name an existing one.
    """
    data, source = config["data"], config["data"]["source"]
    named = {"init.path": config["init"]["path"]}
    for key in (k.removeprefix("data.") for k in USER_FILES if k.startswith("data.")):
        named[f"data.{key}"] = data.get(key)
        if key in data or key not in ("train", "test"):  # elsewhere these are splits of data.source
            named[f"data.source.{key}"] = source.get(key)
    rule = data.get("partition") or {}
    named["data.partition.file"] = rule.get("file") if within_fedbench(str(rule.get("_target_"))) else None
    for what in ("algo", "model", "data"):
        named |= dict(_paths_of_own(config[what], what))
    if not within_fedbench(str(source.get("_target_"))):
        named |= {f"data.{k}": v for k, v in data.items() if _looks_like_path(v) and v in source.values()}
    paths = {key: path for key, value in named.items() if (path := _existing(value)) is not None}
    apart = user_path("results_dir", config["results_dir"])
    return {key: content_digest(path, apart) for key, path in paths.items()}


def _existing(value: object) -> Path | None:
    """The path that a value names, if there is a file or directory."""
    if value in (None, ""):
        return None
    try:
        path = Path(str(value)).expanduser()
        return path if path.exists() else None
    except (OSError, RuntimeError):  # a text that is too long for a path, or a home that is not there
        return None


def _paths_of_own(section: Tree, what: str) -> Iterator[tuple[str, str]]:
    own = "_target_" in section and not within_fedbench(str(section["_target_"]))
    for key, value in section.items():
        if isinstance(value, dict):
            yield from _paths_of_own(value, f"{what}.{key}")
        elif own and key != "_target_" and _looks_like_path(value):
            yield f"{what}.{key}", value


def _looks_like_path(value: object) -> bool:
    """Whether a value has a separator or a suffix: ``sum`` is a word, whatever files there are.

    The working directory and those around it, such as ``/``, are no data.
    """
    if not isinstance(value, str) or ("/" not in value and not Path(value).suffix):
        return False
    path = _existing(value)
    return path is None or not Path.cwd().is_relative_to(path.resolve())


def _targets(section: Tree, what: str) -> Iterator[tuple[str, str]]:
    """Yield the configuration key and the ``_target_`` of a section and of the sections in it."""
    if isinstance(target := section.get("_target_"), str):
        yield what, present(target)
    for key, value in section.items():
        if isinstance(value, dict):
            yield from _targets(value, f"{what}.{key}" if what else key)


def _user_code(config: Tree) -> dict[str, dict[str, str]]:
    """What identifies each module outside fedbench that a configuration names (``user_code.marks``).

    Raises:
        RequestError: If there is no such module.
    """
    code: dict[str, dict[str, str]] = {}
    for what, target in _targets(_relevant(config), ""):
        module = target.rpartition(".")[0]
        if not module or within_fedbench(target):
            continue
        try:
            code[module] = marks(module)
        except ModuleNotFoundError as error:
            raise RequestError(f"{what}._target_={target}: there is no module {error.name}") from error
    return {module: content for module, content in code.items() if content}


@cache
def _revision(target: str) -> int:
    """The constant ``REVISION`` of the file of one of fedbench's own methods, which is not imported; else 1.

    A method's revision is raised when its results change, also by a change of what it imports.
    """
    file = _PACKAGE.parent / (target.rpartition(".")[0].replace(".", "/") + ".py")
    found = re.search(r"^REVISION = (\d+)\b", file.read_text(encoding="utf-8"), re.M) if file.is_file() else None
    return int(found[1]) if found else 1


def _revised(section: Tree, what: str, revisions: Mapping[str, int]) -> Tree:
    """The section with the revisions above 1 of its methods."""
    tree = {k: _revised(v, f"{what}.{k}", revisions) if isinstance(v, dict) else v for k, v in section.items()}
    return {**tree, "_revision_": revisions[what]} if revisions.get(what, 1) > 1 else tree
