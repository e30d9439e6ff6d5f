"""Override text (``KEY=VALUE``) in Hydra's grammar, parsed for the command line, sweeps, papers and Python.

Paths are quoted before Hydra reads them, whose grammar lacks ``~``. Slips that Hydra would accept, or explain badly,
are refused.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from fedbench.config.groups import GROUPS, options, unknown_choice
from fedbench.config.identity import DATA_FILES
from fedbench.core.errors import RequestError, shown
from fedbench.core.files import config_value, leaves

if TYPE_CHECKING:
    from hydra.core.override_parser.types import Override as HydraOverride

_OPTIONAL_GROUPS = ("experiment", "debug")  # groups without a default choice
_SWITCHED = {"debug": ("true", "false")}  # of which the command line knows what they mean
_PATHS = ("results_dir", "data_dir", "init.path", "data.partition.file", *(f"data.{name}" for name in DATA_FILES))
_SAFE = re.compile(r"[\w./:@%+-]*", re.ASCII)
_WORDS = ("null", "true", "false", "nan", "inf")  # not strings in Hydra's grammar


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
        """An override text per value, none if the values of a sweep cannot be listed."""
        name = self.text.split("=", 1)[0]
        return [f"{name}={v}" for v in self.values] if self.sweeps else [self.text]


def parse_overrides(texts: Iterable[str]) -> list[Override]:
    """Parsed overrides; ``experiment=null`` and ``debug=null`` take back an earlier choice and are left out.

    Raises:
        RequestError: If a text is not an override, deletes a key, or gives a config group anything but a choice.
    """
    found: list[Override] = []
    for text in texts:
        group, _, value = text.partition("=")
        if group in _OPTIONAL_GROUPS and value in ("null", "None", "", *_SWITCHED.get(group, ())):
            found = [o for o in found if o.key != group]
        else:
            found.append(_parse(text))
    return found


def _parse(text: str) -> Override:
    from hydra.core.override_parser.types import ValueType

    name, equals, value = text.partition("=")
    bare = name.lstrip("+")
    if equals and not bare:
        raise RequestError(f"{text!r} is not an override; overrides are KEY=VALUE, such as rounds=10")
    if name.startswith("~"):
        raise RequestError(f"{text}: keys cannot be removed; give the key another value, such as its default")
    if equals and value.endswith(",") and value[0] not in "'\"":
        raise RequestError(f"{text!r} ends with a comma; did you mean {name}={value.rstrip(',')}?")
    if bare in _PATHS and "," not in value and value[:1] not in ("'", '"', "$") and not _SAFE.fullmatch(value):
        text = f"{name}={quoted(value)}"
    parsed = by_hydra(text)
    parsed_value: Any = parsed.value()
    sweeps = parsed.is_sweep_override()
    listed = parsed.is_discrete_sweep() and parsed.value_type != ValueType.GLOB_CHOICE_SWEEP
    override = Override(
        text,
        parsed.key_or_group,
        added=parsed.is_add() or parsed.is_force_add(),
        value=None if sweeps else parsed_value,
        sweeps=sweeps,
        values=tuple(parsed.sweep_string_iterator()) if listed else (),
        bounds=(float(parsed_value.start), float(parsed_value.end)) if parsed.is_interval_sweep() else None,
        tags=frozenset(getattr(parsed_value, "tags", ())),
    )
    if override.group:
        _refuse_bad_choice(override, value)
    return override


def _refuse_bad_choice(o: Override, given: str) -> None:
    """Refuse what Hydra would take for the value of a group: a list, a number, nothing."""
    if "null" in o.values and o.key in _OPTIONAL_GROUPS:
        raise RequestError(f"{o.key}=null cannot be one of several choices; sweep without {o.key} separately")
    if any(v.startswith("[") for v in o.values) or isinstance(o.value, list):
        names = [str(v) for v in o.value] if isinstance(o.value, list) else ["A", "B"]
        many = f"-m {o.key}={','.join(names)}"
        raise RequestError(f"{o.key} takes one choice, got {given}; to run each of them, type {many}")
    nothing = o.value in (None, "") and not o.sweeps and o.key in GROUPS
    if nothing or isinstance(o.value, bool | int | float):
        raise unknown_choice(o.key, given, options(o.key))


@lru_cache(maxsize=1024)
def by_hydra(text: str) -> HydraOverride:
    """An override as Hydra parses it.

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
            fault = "is not an override; overrides are KEY=VALUE, such as rounds=10"
        elif not re.fullmatch(r"\+{0,2}[\w./@:-]+", key):
            fault = f"cannot be read as KEY=VALUE: {shown(key)} is not a key"
        else:
            remedy = f"quote values with brackets, commas or other special characters: \"{key}='{value[:300]}'\""
            fault = f"cannot be read as KEY=VALUE; {remedy}"
        raise RequestError(f"{shown(text)} {fault}") from error


def to_overrides(given: str | Sequence[str] | Mapping[str, Any]) -> list[str]:
    """Override texts for what Python code passes to ``fedbench.run``: one string, several, or a nested mapping.

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
    return texts


def as_value(value: object) -> str:
    """A Python value in Hydra's grammar: strings that it would read as something else are quoted.

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
    """A text in quotes, so that Hydra's grammar takes it as it is."""
    escaped = re.sub(r"(\\*)'", lambda m: m[1] * 2 + "\\'", text)
    trailing = len(escaped) - len(escaped.rstrip("\\"))
    return f"'{escaped}{escaped[len(escaped) - trailing :]}'"
