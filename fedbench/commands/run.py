"""``fedbench KEY=VALUE ...`` runs one experiment."""

from __future__ import annotations

import sys
from argparse import Namespace

from fedbench.config.compose import Composer
from fedbench.config.user_code import user_code_from
from fedbench.core.errors import RequestError
from fedbench.runs.cached_run import Outcome, cached_run


def carry_out(asked: Namespace) -> int:
    """Run one experiment and return the exit status: 1 if it diverged.

    Raises:
        RequestError: If the request is wrong.
    """
    if asked.jobs is not None:
        raise RequestError(f"--jobs {asked.jobs} is the number of runs of a sweep at a time; add -m, or remove it")
    if asked.resolve:
        raise RequestError("--resolve needs --cfg job")
    for text in asked.overrides:
        if text.lstrip("+").startswith(("hydra.", "hydra/")) and not text.startswith("hydra.searchpath"):
            raise RequestError(f"{text} configures a sweep; add -m, or remove it")
    with user_code_from(asked.config_dir):
        outcome = cached_run(Composer(asked.config_dir).config(asked.overrides))
    report(outcome)
    return 0 if outcome.status == "done" else 1


def report(outcome: Outcome) -> None:
    """Print one line about a finished run, its remarks, and its directory as the last line."""
    print(outcome.line())
    for remark in outcome.run.meta.get("remarks", []):
        print(f"fedbench: {remark}", file=sys.stderr)
    print(outcome.run.path, flush=True)
