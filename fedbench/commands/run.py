"""``fedbench KEY=VALUE ...`` runs one experiment; ``--cfg job`` shows its configuration instead."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from fedbench.commands.flags import Flags
from fedbench.core.errors import RequestError, nearest
from fedbench.core.trees import leaves
from fedbench.runs.execute import Outcome
from fedbench.runs.interrupts import at_once
from fedbench.runs.start import start

_INFO = ("all", "config", "defaults", "defaults-tree", "plugins", "searchpath")


def run(overrides: Sequence[str], config_dir: Path | None) -> int:
    """Run one experiment and return the exit status: 1 if it diverged.

    Raises:
        RequestError: If the request is wrong.
    """
    for text in overrides:
        if text.lstrip("+").startswith(("hydra.", "hydra/")) and not text.startswith("hydra.searchpath"):
            raise RequestError(f"{text} configures a sweep; add -m, or remove it")
    outcome = start(overrides, config_dir)
    report(outcome)
    return 0 if outcome.status == "done" else 1


def report(outcome: Outcome) -> None:
    """Print one line about a finished run, its remarks, and its directory as the last line."""
    print(outcome.line())
    for remark in outcome.run.meta.get("remarks", []):
        print(f"fedbench: {remark}", file=sys.stderr)
    print(outcome.run.path, flush=True)


def show(overrides: Sequence[str], flags: Flags, config_dir: Path | None) -> str:
    """Return the configuration of a run as YAML with the comments of the config files.

    The experiment's presets are merged in, which Hydra's own printout would leave out.

    Args:
        overrides: ``KEY=VALUE`` texts.
        flags: ``package`` selects a part, ``resolve`` resolves interpolations.
        config_dir: A config tree of the user's own.

    Raises:
        RequestError: If a key, a choice or the selected part is unknown.
    """
    with at_once():
        from omegaconf import OmegaConf

        from fedbench.config.comments import annotate, comments
        from fedbench.config.compose import Composer
        from fedbench.config.explain import explain
        from fedbench.config.places import config_dir as fedbench_configs

    tree, choices = Composer(config_dir).unresolved(overrides)
    shown = OmegaConf.create(tree)
    try:
        if flags.resolve:
            OmegaConf.resolve(shown)
    except Exception as error:
        raise explain(error, lambda: list(leaves(tree))) from error
    roots = [fedbench_configs(), *([config_dir] if config_dir else [])]
    notes = comments(choices, roots, tree)
    if flags.package is None:
        return annotate(OmegaConf.to_yaml(shown), notes)
    part = OmegaConf.select(shown, flags.package)
    if part is None:
        known = list(leaves(tree))
        raise RequestError(
            f"--package {flags.package}: the configuration has no such key{nearest(flags.package, [*tree, *known])}"
        )
    return annotate(OmegaConf.to_yaml(part), notes, flags.package) if OmegaConf.is_config(part) else f"{part}\n"


def ask_hydra(overrides: Sequence[str], flags: Flags, config_dir: Path | None) -> None:
    """Let Hydra answer ``--info`` and ``--shell-completion``.

    Raises:
        RequestError: If ``--info`` is asked for something unknown.
    """
    from fedbench.config.compose import Composer
    from fedbench.config.overrides import parse_overrides

    composer = Composer(config_dir)
    with composer.hydra() as hydra:
        if flags.completion:
            hydra.shell_completion("config", list(overrides))
            return
        if flags.info not in _INFO:
            raise RequestError(f"--info shows one of {', '.join(_INFO)}; got {flags.info}")
        typed = [o.text for o in parse_overrides(overrides)]
        hydra.show_info(flags.info, "config", [*typed, *composer.search_path()])
