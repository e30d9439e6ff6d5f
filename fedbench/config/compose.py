"""One composed configuration carried out: between Hydra and ``execute``."""

from __future__ import annotations

import re
import sys
import traceback
from itertools import pairwise
from pathlib import Path
from typing import Any

import yaml
from omegaconf import DictConfig, OmegaConf, open_dict

from fedbench.config.schema import Request, config_dir, make_request, merge_presets, options
from fedbench.core.errors import RequestError, integer, nearest
from fedbench.core.trees import Tree, leaves
from fedbench.runs.execute import Outcome, execute
from fedbench.runs.sweep_notes import Note, leave

_VALUED = ("--config-dir", "-cd")
_GROUPS = ("algo", "data", "model", "experiment")


class Job:
    """What Hydra runs, once or for every combination of a sweep.

    A plain run keeps its status and error here, since Hydra hands nothing back; a job of a sweep may be in another
    process, leaves a note in the sweep's directory, and never stops the others.

    Args:
        loud: print the traceback of a failed job of a sweep.
    """

    def __init__(self, loud: bool) -> None:
        self.loud, self.status = loud, 0
        self.error: Exception | None = None

    def run(self, cfg: DictConfig) -> None:
        """Carry out one configuration."""
        from hydra.core.hydra_config import HydraConfig
        from hydra.types import RunMode

        hydra = HydraConfig.get()
        if hydra.mode == RunMode.MULTIRUN:
            leave(Path(hydra.sweep.dir), _noted(cfg, int(hydra.job.num), list(hydra.overrides.task), self.loud))
            return
        try:
            self.status = 0 if _carry_out(_request(cfg)).status == "done" else 1
        except Exception as error:
            self.error = explain(error)


def _noted(cfg: DictConfig, number: int, overrides: list[str], loud: bool) -> Note:
    path: str | None = None
    try:
        request = _request(cfg)
        path = str(request.path)
        outcome = _carry_out(request)
        return Note(number, overrides, outcome.status, str(outcome.run.path), None)
    except Exception as caught:
        error = explain(caught)
        if isinstance(error, RequestError):
            return Note(number, overrides, "refused", None, str(error))
        if loud:
            traceback.print_exc()
        made = path if path and (Path(path) / "meta.json").exists() else None
        return Note(number, overrides, "failed", made, f"{type(error).__name__}: {error}")


def _carry_out(request: Request) -> Outcome:
    outcome = execute(request)
    print(outcome.line())
    for remark in outcome.run.meta.get("remarks", []):
        print(f"fedbench: {remark}", file=sys.stderr)
    print(outcome.run.path, flush=True)
    return outcome


def _request(cfg: DictConfig) -> Request:
    from hydra.core.hydra_config import HydraConfig

    hydra = HydraConfig.get()
    names = {g: hydra.runtime.choices.get(g) for g in _GROUPS}
    baseline = None
    if names["experiment"]:
        chosen = [f"{g}={names[g]}" for g in ("experiment", "algo")]
        baseline = _plain(_compose(chosen))
    return make_request(_plain(cfg), names, list(hydra.overrides.task), baseline)


def _plain(cfg: DictConfig) -> Tree:
    tree = OmegaConf.to_container(cfg, resolve=True, throw_on_missing=True)
    assert isinstance(tree, dict)
    return {str(k): v for k, v in tree.items()}


def _compose(overrides: list[str], **kwargs: Any) -> DictConfig:
    from hydra import compose, initialize_config_dir
    from hydra.core.global_hydra import GlobalHydra

    if GlobalHydra.instance().is_initialized():
        return compose("config", overrides, **kwargs)
    with initialize_config_dir(str(config_dir()), version_base="1.3"):
        return compose("config", overrides, **kwargs)


def compose_tree(overrides: list[str]) -> Tree:
    """Return the checked configuration that overrides make, presets merged in.

    Raises:
        RequestError: for an unknown key or a value out of range.
    """
    return compose_request(overrides).config


def compose_request(overrides: list[str]) -> Request:
    """Return the checked request that overrides make; what departs from the experiment is not looked up.

    Raises:
        RequestError: for an unknown key or a value out of range.
    """
    try:
        cfg = _compose(overrides, return_hydra_config=True)
        names = {g: cfg.hydra.runtime.choices.get(g) for g in _GROUPS}
        with open_dict(cfg):
            del cfg["hydra"]
        return make_request(_plain(cfg), names, overrides)
    except Exception as error:
        raise explain(error) from error


def check_sweep(args: list[str]) -> None:
    """Look at every value of every axis of a sweep once, the other axes at their first, before anything is trained.

    Raises:
        RequestError: for the first that is wrong, with the combination that shows it.
    """
    from hydra.core.override_parser.overrides_parser import OverridesParser

    config = [v for a, v in pairwise(args) if a in ("--config-dir", "-cd")]
    rest = [a for i, a in enumerate(args) if not a.startswith("-") and (i == 0 or args[i - 1] not in _VALUED)]
    try:
        parsed = OverridesParser.create().parse_overrides(rest)
    except Exception as error:
        raise explain(error) from error
    axes = [
        [f"{o.get_key_element()}={v}" for v in o.sweep_string_iterator()]
        if o.is_sweep_override()
        else [o.input_line or ""]
        for o in parsed
    ]
    first = [values[0] for values in axes]
    extra = [f"hydra.searchpath=[file://{Path(config[0]).resolve()}]"] if config else []
    for n, values in enumerate(axes):
        for value in values if n == 0 else values[1:]:
            if value.startswith("seed=") and value != values[0]:
                integer("seed", yaml.safe_load(value.removeprefix("seed=")))
                continue
            chosen = [*first[:n], value, *first[n + 1 :]]
            compose_tree([*chosen, *extra])


def show(args: list[str]) -> str | None:
    """Return the text of ``--cfg job``, presets merged in, or None if the arguments do not ask for it.

    Hydra's own printout would leave out what an experiment sets for the chosen algorithm.
    """
    import argparse

    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--cfg", "-c")
    parser.add_argument("--package", "-p")
    parser.add_argument("--resolve", action="store_true")
    parser.add_argument("--config-dir", "-cd")
    known, rest = parser.parse_known_args(args)
    if known.cfg is not None and known.cfg != "job":
        raise RequestError(f"--cfg shows the job, got --cfg {known.cfg}; use --cfg job")
    if known.cfg is None:
        return None
    if flags := [a for a in rest if a.startswith("-")]:
        raise RequestError(f"--cfg job shows one configuration and does not go with {flags[0]}")
    if known.config_dir:
        rest.append(f"hydra.searchpath=[file://{Path(known.config_dir).resolve()}]")
    try:
        cfg = _compose(rest, return_hydra_config=True)
    except Exception as error:
        raise explain(error) from error
    algo = str(cfg.hydra.runtime.choices.algo)
    overrides = list(cfg.hydra.overrides.task)
    tree = OmegaConf.to_container(cfg, resolve=False)
    assert isinstance(tree, dict)
    merged = merge_presets({str(k): v for k, v in tree.items() if k != "hydra"}, algo, overrides)
    shown = OmegaConf.create(merged)
    if known.resolve:
        OmegaConf.resolve(shown)
    if known.package:
        part = OmegaConf.select(shown, known.package)
        if part is None:
            raise RequestError(f"there is no {known.package}{nearest(known.package, _keys())}")
        return OmegaConf.to_yaml(part) if OmegaConf.is_config(part) else f"{part}\n"
    return OmegaConf.to_yaml(shown)


def explain(error: Exception) -> Exception:
    """Return what Hydra or OmegaConf objects to, in one line."""
    from hydra.errors import HydraException, MissingConfigException, OverrideParseException
    from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException

    if not isinstance(error, HydraException | OmegaConfBaseException):
        return error
    if isinstance(error, MissingConfigException) and error.missing_cfg_file and error.options:
        file = str(error.missing_cfg_file)  # experiments have folders, other groups have groups inside
        group, _, name = file.partition("/") if file.startswith("experiment/") else file.rpartition("/")
        known = sorted({*error.options, *options(group)})
        return RequestError(f"{group}={name} is unknown; {group} is one of {', '.join(known)}{nearest(name, known)}")
    if isinstance(error, MissingMandatoryValue):
        return RequestError(f"{error.full_key} must be set: {error.full_key}=...")
    if isinstance(error, OverrideParseException):
        key, _, value = error.override.partition("=")
        quoted = f"; what has spaces, brackets or other signs is typed as \"{key}='{value}'\"" if value else ""
        return RequestError(f"{error.override!r} cannot be read as KEY=VALUE{quoted}")
    text = str(error)
    if found := re.search(r"Ambiguous value for argument '([^']*)'", text):
        key = found[1].split("=")[0]
        return RequestError(f"{key} has several values; add -m to run them all, or write a list as KEY=[A,B]")
    if found := re.search(r"Could not override 'data/partition(@[^']*)?'", text):
        return RequestError("this data set says itself which client owns what; leave data/partition out")
    if found := re.search(r"Could not override '([^']*)'", text):
        return RequestError(f"unknown key {found[1]}{nearest(found[1], _keys())}; `fedbench --cfg job` shows the keys")
    return RequestError(" ".join(text.split("\nSee https")[0].split()))


def _keys() -> list[str]:
    return list(leaves(_plain(_compose([]))))
