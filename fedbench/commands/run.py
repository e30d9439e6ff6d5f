"""``fedbench KEY=VALUE ...``: run one experiment, or show its configuration (``--cfg job``)."""

from collections.abc import Sequence
from pathlib import Path

import yaml

from fedbench.commands.result import CommandResult
from fedbench.config.compose import Composer
from fedbench.config.overrides import parse_overrides, warn_of_replaced
from fedbench.runs.cached_run import announce_earlier_names, cached_run


def execute(
    overrides: Sequence[str],
    config_dir: Path | None = None,
    cfg: str | None = None,
    resolve: bool = False,
) -> CommandResult:
    """Run one experiment, or show its configuration.

    Args:
        overrides: The overrides of the run.
        config_dir: The user's directory with config files and modules.
        cfg: If ``job``, the configuration is shown.
        resolve: Whether to show the configuration with interpolations replaced by their values.

    Returns:
        The result. Its status is 1 if the run diverged.

    Raises:
        RequestError: If the request is invalid.
    """
    composer = Composer(config_dir)
    if cfg or resolve:
        tree, _ = composer.composed(overrides, resolve=resolve)
        print(yaml.safe_dump(tree, sort_keys=False, allow_unicode=True), end="")
        return CommandResult()

    config = composer.config(overrides)
    warn_of_replaced(parse_overrides(overrides))
    announce_earlier_names([config])
    outcome = cached_run(config)
    outcome.say()
    return CommandResult(0 if outcome.run.meta["status"] == "done" else 1)
