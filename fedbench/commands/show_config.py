"""``fedbench --cfg job KEY=VALUE ...`` shows the configuration of a run."""

from __future__ import annotations

from argparse import Namespace

from omegaconf import OmegaConf

from fedbench.config.comments import annotate, comments
from fedbench.config.compose import Composer
from fedbench.config.groups import config_dir
from fedbench.config.hints import explain
from fedbench.core.errors import RequestError
from fedbench.core.files import leaves


def carry_out(asked: Namespace) -> int:
    """Print the configuration of a run as YAML with the comments of the config files.

    The experiment's presets are merged in, which Hydra's own printout would leave out.

    Raises:
        RequestError: If a key or a choice is unknown.
    """
    if asked.multirun:
        raise RequestError("--cfg job shows one configuration and cannot be combined with -m")
    if asked.jobs is not None:
        raise RequestError(f"--jobs {asked.jobs} cannot be combined with --cfg job; remove one of them")
    tree, choices = Composer(asked.config_dir).unresolved(asked.overrides)
    shown = OmegaConf.create(tree)
    try:
        if asked.resolve:
            OmegaConf.resolve(shown)
    except Exception as error:
        raise explain(error, lambda: list(leaves(tree))) from error
    roots = [config_dir(), *([asked.config_dir] if asked.config_dir else [])]
    print(annotate(OmegaConf.to_yaml(shown), comments(choices, roots)), end="")
    return 0
