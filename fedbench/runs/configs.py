"""The configuration of a run as it was written, checked, with functions by their present path."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from fedbench.config.names import present, renamed
from fedbench.core.trees import Tree, from_json, from_yaml
from fedbench.runs.facts import check_config

_SEED = re.compile(r"^seed: (0|[1-9][0-9]{0,15})$", re.MULTILINE)
_SEED_OF_JSON = re.compile(r'"seed": (0|[1-9][0-9]{0,15})(?=[,}])')
_ANY_SEED = 10**17  # stands for the seed of a run where its configuration is kept
_KEPT = 64  # configurations of which further seeds are expected


def config_of(text: str) -> Tree:
    """Return the configuration in a file; those of several seeds of a setting share their values.

    Reading YAML is most of the time that a report needs per run, and the seeds of a setting differ in one line.

    Raises:
        ValueError: If it is not that of a run.
        yaml.YAMLError: If it is not YAML.
    """
    seeds = _SEED.findall(text)
    shared = _shared(_SEED.sub("seed: 0", text)) if len(seeds) == 1 else None
    if shared is None or shared.get("seed") != 0:  # the line is part of something else
        return checked(from_yaml(text))
    return {**shared, "seed": int(seeds[0])}


def config_of_json(text: str) -> Tree:
    """Return the configuration in a text of JSON; as those in files, those of several seeds share their values.

    They do if the run's seed is the first ``"seed": `` of the text, as in all that fedbench writes.

    Raises:
        ValueError: If it is not that of a run.
    """
    seed = _SEED_OF_JSON.search(text)
    if seed is None or str(_ANY_SEED) in text:
        return checked(from_json(text))
    try:
        shared = _shared_json(f'{text[: seed.start()]}"seed": {_ANY_SEED}{text[seed.end() :]}')
    except ValueError:
        shared = {}  # the message is that about the text itself, below
    if isinstance(stands := shared.get("seed"), int) and stands == _ANY_SEED:
        return {**shared, "seed": int(seed[1])}
    return checked(from_json(text))  # the number is that of a section, such as the data's


def checked(config: Any) -> Tree:
    """Return a configuration with functions by their present path.

    Raises:
        ValueError: If it is not that of a run.
    """
    check_config(config)
    found: Tree = renamed(config, present)
    return found


@lru_cache(_KEPT)
def _shared_json(text: str) -> Tree:
    return checked(from_json(text))


@lru_cache(_KEPT)
def _shared(text: str) -> Tree:
    return checked(from_yaml(text))
