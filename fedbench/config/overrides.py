"""Overrides (``KEY=VALUE``) in Hydra's grammar, and the config groups from which they choose."""

from __future__ import annotations

import difflib
import re
import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedbench.config.identity import DATA_FILES
from fedbench.core.config_values import config_value, leaves
from fedbench.core.errors import RequestError, shown
from fedbench.core.files import reading

if TYPE_CHECKING:
    from hydra.core.override_parser.types import Override as HydraOverride

SCENARIOS = ("availability", "attack", "defence", "privacy", "compression")
ADDITIONS = ("objective", *SCENARIOS)  # groups whose choice "none" leaves the section empty
GROUPS = ("algo", "data", "model", "experiment", "tracker", "debug", *ADDITIONS)
LISTED = ("algo", "data", "model", "experiment")  # groups that `fedbench list` shows
_PACKAGE = Path(__file__).resolve().parent.parent
# fedbench's config tree: inside an installed package, next to the package in a checkout
CONFIG_DIR = _PACKAGE / "conf" if (_PACKAGE / "conf").is_dir() else _PACKAGE.parent / "conf"
_MOST_SIMILAR = 6  # maximum number of choices in a hint
_OPTIONAL = ("experiment", "debug")  # groups without a default choice
# keys whose values are paths; they are quoted because Hydra's grammar does not allow ~
_PATHS = (
    "results_dir",
    "data_dir",
    "init.path",
    "data.partition.file",
    *(f"data.{name}" for name in DATA_FILES),
)
_SAFE = re.compile(r"[\w./:@%+-]*", re.ASCII)
_WORDS = ("null", "true", "false", "nan", "inf")  # not strings in Hydra's grammar
# maximum number of runs in a sweep and of values in a range; all are listed before a run starts
MOST_RUNS = 100_000


@dataclass(frozen=True)
class Override:
    """One override.

    Attributes:
        text: The override in Hydra's grammar.
        key: The key or config group, without signs and package: ``algo.mu``, ``data/partition``.
        added: Whether the key is added (``+key=value``).
        value: The parsed value; None for a sweep.
        sweeps: Whether the override has several values.
        values: The values of a sweep, as strings; empty if they cannot be listed, as for
            ``interval(0,1)``.
        chooses: Whether the override chooses from a config group or configures Hydra, rather than
            setting a key.
        keys: The configuration keys that are set: ``algo={a: 1, b: 2}`` sets algo.a and algo.b.
    """

    text: str
    key: str
    added: bool
    value: Any
    sweeps: bool
    values: tuple[str, ...]
    chooses: bool
    keys: tuple[str, ...]

    def each(self) -> list[str]:
        """Return one override text per value, or an empty list if the values cannot be listed."""
        name = self.text.split("=", 1)[0]
        return [f"{name}={v}" for v in self.values] if self.sweeps else [self.text]


def parse_overrides(texts: Iterable[str]) -> list[Override]:
    """Return parsed overrides; ``experiment=null`` and ``debug=null`` cancel an earlier choice.

    Raises:
        RequestError: If a string is not an override, deletes a key, or assigns a config group
            anything but one choice.
    """
    overrides: list[Override] = []
    for text in texts:
        group, _, value = text.partition("=")
        if group in _OPTIONAL and (
            value in ("null", "None", "") or text in ("debug=true", "debug=false")
        ):
            overrides = [o for o in overrides if o.key != group]
        else:
            # the group metrics has only the user's files and no default, so a choice is added
            adds = group == "metrics" and not value.startswith("{")
            overrides.append(_parsed(f"+{text}" if adds else text))
    return overrides


def warn_of_replaced(overrides: Sequence[Override]) -> None:
    """Tell the user which overrides are replaced by later ones of the same key."""
    last: dict[str, Override] = {}
    for o in overrides:
        for key in o.keys:
            earlier = last.get(key, o)
            if earlier.text != o.text:
                print(f"fedbench: {o.text} replaces {earlier.text}", file=sys.stderr)
            last[key] = o


def _parsed(text: str) -> Override:
    from hydra.core.override_parser.types import ValueType

    name, _, typed = text.partition("=")
    is_quoted = typed.startswith(("'", '"', "$"))
    is_grammar = is_quoted or _SAFE.fullmatch(typed) or "," in typed
    if name.lstrip("+") in _PATHS and not is_grammar:
        text = f"{name}={quoted(typed)}"

    parsed = by_hydra(text)
    key = parsed.key_or_group
    sweeps = parsed.is_sweep_override()
    value: Any = parsed.value()
    if parsed.is_delete():
        raise RequestError(
            f"{text}: keys cannot be removed; give the key another value, such as its default"
        )

    is_group = key in GROUPS or "/" in key
    if is_group and isinstance(value, list):
        several = ",".join(map(str, value))
        raise RequestError(
            f"{key} takes one choice, got {typed}; to run each of them, type -m {key}={several}, "
            "or use fedbench.sweep in Python"
        )
    is_empty = value in (None, "") and key in GROUPS
    if is_group and (is_empty or isinstance(value, bool | int | float)):
        raise unknown_choice(key, typed, options(key))
    if parsed.is_range_sweep():
        length = abs(value.stop - value.start)
        if not length <= MOST_RUNS * abs(value.step):
            raise RequestError(
                f"{text} has more than {MOST_RUNS} values; type a narrower range or a larger step"
            )

    keys: tuple[str, ...] = (key,)
    if isinstance(value, dict):
        keys = tuple(f"{key}.{name}" for name in value)
    listed = parsed.is_discrete_sweep() and parsed.value_type != ValueType.GLOB_CHOICE_SWEEP
    return Override(
        text=text,
        key=key,
        added=parsed.is_add() or parsed.is_force_add(),
        value=None if sweeps else value,
        sweeps=sweeps,
        values=tuple(parsed.sweep_string_iterator()) if listed else (),
        chooses=key.startswith("hydra.") or (is_group and not isinstance(value, dict)),
        keys=keys,
    )


@lru_cache(maxsize=1024)
def by_hydra(text: str) -> HydraOverride:
    """Return an override parsed by Hydra.

    Raises:
        RequestError: If the text is not in Hydra's grammar.
    """
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    key, equals, value = text.partition("=")
    try:
        text.encode()  # reject lone surrogates, which cannot be stored in a file
        return OverridesParser.create().parse_override(text if key else "")
    # ValueError: a number with thousands of digits, or a lone surrogate
    except (HydraException, RecursionError, ValueError) as error:
        fault = "is not an override; overrides are KEY=VALUE, such as rounds=10"
        if key and equals:
            example = f"\"{key}='{value[:300]}'\""
            remedy = f"quote values with brackets, commas or other special characters: {example}"
            if value.endswith(","):
                remedy = "remove the comma at the end, and spaces after commas"
            fault = f"cannot be read as KEY=VALUE; {remedy}"
        raise RequestError(f"{shown(text)} {fault}") from error


def to_overrides(given: str | Sequence[str] | Mapping[str, Any]) -> list[str]:
    """Return, as strings, the overrides given by a string, several strings or a nested mapping.

    Args:
        given: ``"algo=fedavg rounds=5"`` is split as by a shell; ``{"local": {"lr": 0.1}}`` becomes
            ``local.lr=0.1``.

    Raises:
        RequestError: If ``given`` has another type or cannot be split.
    """
    if isinstance(given, Mapping):
        return [f"{key}={as_value(value)}" for key, value in leaves(given).items()]
    if isinstance(given, str):
        with reading(repr(given), "cannot be split into overrides"):
            return shlex.split(given)
    if isinstance(given, Sequence):
        return [str(text) for text in given]
    raise RequestError(f"overrides must be a string, several strings or a mapping, got {given!r}")


def as_value(value: object) -> str:
    """Return a Python value in Hydra's grammar; strings that could be misread are quoted.

    NumPy numbers and arrays are converted to Python values.
    """
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, float):
        return repr(value)  # 1.0 stays a float
    if value is None or isinstance(value, int):
        return config_value(value)
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "[" + ",".join(as_value(v) for v in value) + "]"
    text = str(value)
    plain = re.fullmatch(r"[A-Za-z_/][\w./-]*", text, re.ASCII) and text.lower() not in _WORDS
    return text if plain else quoted(text)


def quoted(text: str) -> str:
    """Return a string in quotes, so that Hydra reads it literally."""
    doubled = re.sub(r"(\\*)('|$)", r"\1\1\2", text)  # backslashes before a quote or at the end
    return "'" + doubled.replace("'", "\\'") + "'"


# ---- choices and keys that exist


def options(group: str, where: Path | None = None) -> list[str]:
    """Return the choices in a config group, as typed on the command line.

    Args:
        group: The group, such as ``algo`` or ``data/partition``.
        where: Config tree to search instead of fedbench's own.
    """
    root = (where or CONFIG_DIR) / group
    files = root.rglob("*.yaml") if group == "experiment" else root.glob("*.yaml")
    # files that begin with an underscore are only included by other files
    named = (f for f in files if not f.name.startswith("_"))
    return sorted(f.relative_to(root).as_posix().removesuffix(".yaml") for f in named)


def choice_files(group: str, config_dir: Path | None) -> dict[str, Path]:
    """Return the files of a group in fedbench's and the user's config tree, by choice."""
    roots = [CONFIG_DIR] if config_dir is None else [CONFIG_DIR, config_dir]
    return {name: root / group / f"{name}.yaml" for root in roots for name in options(group, root)}


def unknown_choice(
    group: str,
    name: str,
    known: Sequence[str],
) -> RequestError:
    """Return the error for an unknown choice in a config group, with similar choices."""
    given = f"{group}={name} is unknown" if name else f"{group} needs a choice"
    similar = [choice for choice in known if name and choice.startswith(name)]
    # cifar10_iid before cifar100_lda0.1 for cifar10, then short names first
    similar.sort(key=lambda choice: (choice[len(name) :][:1].isalnum(), len(choice)))
    similar = similar or difflib.get_close_matches(name, known, 1)
    hint = f"; did you mean {' or '.join(similar[:_MOST_SIMILAR])}?" if similar else "."
    choices = f"`fedbench list {group}`" if group in LISTED else ", ".join(known)
    own = f"; one of your own is {group}/{name}.yaml in DIR, with --config-dir DIR" if name else ""
    if group == "objective" and name.startswith("val_"):  # the earlier name of a key
        own = f"; the metric by which values are tuned is tuned_by={name}"
    return RequestError(f"{given}{hint} Choices: {choices}{own}")
