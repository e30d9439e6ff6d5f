"""Override text (``KEY=VALUE``), parsed in one place for the command line, sweeps, papers and Python.

Hydra's grammar is the base. Before Hydra reads an override, paths with characters that its grammar reserves are quoted,
and slips that it would accept, or explain badly, are refused.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedbench.config.groups import GROUPS, LISTED, options
from fedbench.config.identity import USER_FILES
from fedbench.core.errors import RequestError, nearest, shown
from fedbench.core.trees import config_value, leaves

if TYPE_CHECKING:
    from hydra.core.override_parser.types import Override as HydraOverride

_MOST_LISTED = 30  # choices that a message lists
_OPTIONAL_GROUPS = ("experiment", "debug")  # groups without a default choice
_DIRECTORIES = ("results_dir", "data_dir")
_PATHS = (*_DIRECTORIES, *USER_FILES)
_WORDS = ("null", "true", "false", "nan", "inf")  # not strings in Hydra's grammar
_SAFE = re.compile(r"[\w./:@%+-]*", re.ASCII)


@dataclass(frozen=True)
class Override:
    """One override.

    Attributes:
        text: The override in Hydra's grammar.
        key: The key or config group, without signs and package: ``algo.mu``, ``data/partition``.
        added: Whether the key is added (``+key=value``).
        value: The parsed value; None for a sweep.
        sweeps: Whether the override has several values.
        values: The texts of a sweep's values; empty if they cannot be listed, as those of ``interval(0,1)``.
        bounds: The bounds of ``interval(a,b)``; None for all other overrides.
        tags: The tags of a sweep, such as ``log`` of ``tag(log, interval(0.001,1))``.
    """

    text: str
    key: str
    added: bool
    value: Any
    sweeps: bool
    values: tuple[str, ...]
    bounds: tuple[float, float] | None = None
    tags: frozenset[str] = frozenset()

    @property
    def group(self) -> bool:
        """Whether the key is a config group."""
        return self.key in GROUPS or "/" in self.key

    @property
    def keys(self) -> list[str]:
        """The configuration keys that the override sets: ``algo={a: 1, b: 2}`` sets algo.a and algo.b."""
        return [f"{self.key}.{k}" for k in self.value] if isinstance(self.value, dict) else [self.key]

    def each(self) -> list[str]:
        """Return an override text per value, none if the values of a sweep cannot be listed."""
        name = self.text.split("=", 1)[0]
        return [f"{name}={v}" for v in self.values] if self.sweeps else [self.text]


def parse_overrides(texts: Iterable[str]) -> list[Override]:
    """Return parsed overrides; ``experiment=null`` and ``debug=null`` take back an earlier choice and are left out.

    Raises:
        RequestError: If a text is not an override, deletes a key, or gives a config group anything but a choice.
    """
    found: list[Override] = []
    for text in texts:
        if (parsed := _parse(text)) is not None:
            found.append(parsed)
        else:
            group = text.partition("=")[0].lstrip("+")
            found = [o for o in found if o.key != group]
    return found


def to_overrides(given: str | Sequence[str] | Mapping[str, Any]) -> list[str]:
    """Return override texts for what Python code passes to ``fedbench.run``: one string, several, or a nested mapping.

    Args:
        given: ``"algo=fedavg rounds=5"`` is split as a shell would; ``{"local": {"lr": 0.1}}`` is ``local.lr=0.1``.

    Raises:
        RequestError: If it is something else, or asks for what only the command does.
    """
    if isinstance(given, Mapping):
        texts = [f"{key}={as_value(value)}" for key, value in leaves(given).items()]
    elif isinstance(given, str):
        try:
            texts = shlex.split(given)
        except ValueError as error:
            raise RequestError(f"{given!r} cannot be split into overrides: {error}") from error
    elif isinstance(given, Sequence):
        texts = [str(text) for text in given]
    else:
        raise RequestError(f"overrides must be a string, several strings or a mapping, got {given!r}")
    for text in texts:
        if text in ("-m", "--multirun"):
            raise RequestError(
                f"{text}: fedbench.run runs one configuration; call it in a loop, or sweep with the command fedbench -m"
            )
        if text.lstrip("+~").startswith(("hydra.", "hydra/")):
            raise RequestError(
                f"{text}: fedbench.run takes no keys of Hydra; results_dir=DIR is where runs are written, and the "
                "argument config_dir is where your own config files are"
            )
    return texts


def _as_path(key: str, value: str) -> str:
    """Return a path in Hydra's grammar; in paths of data that do not exist as a whole, commas separate several."""
    several = key not in _DIRECTORIES and "," in value and not _exists(value)
    return ",".join(quoted(part) for part in value.split(",")) if several else quoted(value)


def _exists(value: str) -> bool:
    try:
        return Path(value).expanduser().exists()
    except (OSError, RuntimeError):  # too long for a path, or in a home directory that cannot be found
        return False


def as_value(value: object) -> str:
    """Return a Python value in Hydra's grammar: strings that it would read as something else are quoted.

    NumPy's scalars count as the Python values that they hold.
    """
    if hasattr(value, "item") and hasattr(value, "dtype"):
        value = value.item()
    if isinstance(value, float):
        return repr(value)  # 1.0 stays a float
    if value is None or isinstance(value, int):
        return config_value(value)
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "[" + ",".join(as_value(v) for v in value) + "]"
    text = str(value)
    plain = re.fullmatch(r"[A-Za-z_~/][\w./~-]*", text, re.ASCII) and text.lower() not in _WORDS
    return text if plain else quoted(text)


def quoted(text: str) -> str:
    """Return a text in quotes, so that Hydra's grammar takes it as it is."""
    escaped = re.sub(r"(\\*)'", lambda m: m[1] * 2 + "\\'", text)
    trailing = len(escaped) - len(escaped.rstrip("\\"))
    return f"'{escaped}{escaped[len(escaped) - trailing :]}'"


def unknown_choice(group: str, name: str, known: Sequence[str]) -> RequestError:
    """Return the error for a choice that a config group does not have, with what was probably meant."""
    similar = [k for k in known if k.startswith(name)] or [k for k in known if name in k]
    hint = nearest(name, known)
    if len(name) > 2 and similar and (len(similar) > 1 or not hint):
        shown = similar if len(similar) <= 6 else [*similar[:6], "..."]
        one_of = "" if len(similar) == 1 else "one of "
        hint = f"; did you mean {one_of}{', '.join(shown)}?"
    given = f"{group}={name} is unknown" if name else f"{group} needs a choice"
    own = f"; to use {name}.yaml of your own, add --config-dir DIR" if name and group in LISTED else ""
    if group in LISTED and hint:
        return RequestError(f"{given}{hint} Or see `fedbench list {group}`")
    if group in LISTED and len(known) > _MOST_LISTED:
        return RequestError(f"{given}; see `fedbench list {group}`{own}")
    return RequestError(f"{given}{hint}{' It' if hint else f'; {group}'} is one of {', '.join(known)}{own}")


def _parse(text: str) -> Override | None:
    name, equals, value = text.partition("=")
    bare = name.lstrip("+")
    if equals and bare in GROUPS and value in ("null", "None", "", "false", "true"):
        if bare == "debug" or (bare in _OPTIONAL_GROUPS and value in ("null", "None", "")):
            return None
        raise unknown_choice(bare, value, options(bare))
    if equals and not bare:
        raise RequestError(f"{text!r} is not an override; overrides are KEY=VALUE, such as rounds=10")
    if name.startswith("~"):
        raise RequestError(f"{text}: keys cannot be removed; give the key another value, such as its default")
    if equals and bare in _PATHS and value[:1] not in ("'", '"', "$") and not _SAFE.fullmatch(value):
        text = f"{name}={_as_path(bare, value)}"
    elif equals and value.endswith(","):
        raise RequestError(f"{text!r} ends with a comma; did you mean {name}={value.rstrip(',')}?")
    parsed = by_hydra(text)
    override = Override(
        text,
        parsed.key_or_group,
        added=parsed.is_add() or parsed.is_force_add(),
        value=None if parsed.is_sweep_override() else parsed.value(),
        sweeps=parsed.is_sweep_override(),
        values=_texts(parsed),
        **_drawn(parsed),
    )
    if override.group:
        _refuse_bad_choices(override, parsed)
    return override


@lru_cache(maxsize=1024)
def by_hydra(text: str) -> HydraOverride:
    """Return an override as Hydra parses it.

    Raises:
        RequestError: If the text is not in Hydra's grammar.
    """
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    try:
        return OverridesParser.create().parse_override(text)
    except (HydraException, RecursionError, ValueError) as error:  # ValueError: a number of thousands of digits
        key, equals, value = text.partition("=")
        if not equals:
            raise RequestError(
                f"{shown(text)} is not an override; overrides are KEY=VALUE, such as rounds=10"
            ) from error
        if not re.fullmatch(r"\+{0,2}[\w./@:-]+", key):
            raise RequestError(f"{shown(text)} cannot be read as KEY=VALUE: {shown(key)} is not a key") from error
        remedy = f"quote values with spaces, brackets or other special characters: \"{key}='{value[:300]}'\""
        raise RequestError(f"{shown(text)} cannot be read as KEY=VALUE; {remedy}") from error


def _texts(parsed: HydraOverride) -> tuple[str, ...]:
    from hydra.core.override_parser.types import ValueType

    listed = parsed.is_discrete_sweep() and parsed.value_type != ValueType.GLOB_CHOICE_SWEEP
    return tuple(parsed.sweep_string_iterator()) if listed else ()


def _drawn(parsed: HydraOverride) -> dict[str, Any]:
    """Return the bounds of an interval and the tags of a sweep, if the override has any."""
    if not parsed.is_sweep_override():
        return {}
    sweep: Any = parsed.value()
    tags = frozenset(getattr(sweep, "tags", ()))
    if not parsed.is_interval_sweep():
        return {"tags": tags}
    return {"bounds": (float(sweep.start), float(sweep.end)), "tags": tags}


def _refuse_bad_choices(override: Override, parsed: HydraOverride) -> None:
    """Refuse what Hydra would take for the value of a group: a list, a number."""
    key = override.key
    if "null" in override.values and key in _OPTIONAL_GROUPS:
        raise RequestError(f"{key}=null cannot be one of several choices; sweep without {key} separately")
    if any(v.startswith("[") for v in override.values) or isinstance(override.value, list):
        names = [str(v) for v in override.value] if isinstance(override.value, list) else ["A", "B"]
        given = override.text.split("=", 1)[1]
        raise RequestError(f"{key} takes one choice, got {given}; to run each of them, type -m {key}={','.join(names)}")
    if not override.sweeps and isinstance(override.value, bool | int | float):
        raise unknown_choice(key, override.text.split("=", 1)[1], options(key))
