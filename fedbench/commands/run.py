"""``fedbench KEY=VALUE ...`` runs one experiment; with ``--cfg job`` it shows the configuration."""

from __future__ import annotations

from argparse import Namespace

import yaml

from fedbench.config.comments import annotate, comments
from fedbench.config.compose import Composer
from fedbench.config.overrides import CONFIG_DIR
from fedbench.runs.cached_run import cached_run


def execute(args: Namespace) -> int:
    """Run one experiment, or show its configuration, and return the exit status: 1 if the run diverged.

    Raises:
        RequestError: If the request is wrong.
    """
    composer = Composer(args.config_dir)
    if args.cfg or args.resolve:
        tree, choices = composer.composed(args.overrides, resolve=args.resolve)
        roots = [CONFIG_DIR, *([args.config_dir] if args.config_dir else [])]
        text = yaml.safe_dump(tree, sort_keys=False, allow_unicode=True)
        print(annotate(text, comments(choices, roots)), end="")
        return 0
    outcome = cached_run(composer.config(args.overrides))
    outcome.say()
    return 0 if outcome.run.meta["status"] == "done" else 1
