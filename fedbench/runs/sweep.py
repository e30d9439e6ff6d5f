"""The combinations of a sweep: which runs they make, and the check of all of them."""

import sys
from collections.abc import Sequence
from itertools import product
from math import prod

from fedbench.config.compose import Composer
from fedbench.config.overrides import MOST_RUNS, Override, parse_overrides
from fedbench.config.schema import RunConfig
from fedbench.config.targets import checked_options
from fedbench.core.errors import RequestError
from fedbench.core.options import Natural
from fedbench.core.validation import validate
from fedbench.runs.cached_run import METHOD_ARGUMENTS
from fedbench.runs.executors.base import Executor
from fedbench.runs.process import answered_by, end_at_once
from fedbench.runs.run import is_done

_MANY = 20  # configurations whose check takes seconds


def combinations(overrides: Sequence[Override]) -> list[list[str]]:
    """Return the overrides of every run, the last axis varying fastest; a key that is repeated has its last values."""
    axes: dict[tuple[str, ...], list[str]] = {}
    for o in overrides:
        values = o.each()
        # of algo={a: 1},{a: 2}
        keys = parse_overrides(values[:1])[0].keys if "={" in values[0] else ()
        axes[o.text.split("=", 1)[0], *keys] = values
    return [list(combination) for combination in product(*axes.values())]


def check_combinations(
    overrides: Sequence[Override], composer: Composer, executor: Executor
) -> list[RunConfig]:
    """Check the configuration and the method of every combination, with one seed, before anything is trained.

    Args:
        overrides: The axes of the sweep and all other overrides.
        composer: Composes the configurations.
        executor: Carries them out; it warms up while this goes on.

    Returns:
        The configuration of every run that is not on disk; the seeds of a setting share one.

    Raises:
        RequestError: For a combination that is wrong, first for one whose keys or choices are.
    """
    axes = [o.each() for o in overrides]
    if (runs := prod(map(len, axes))) > MOST_RUNS:
        raise RequestError(
            f"the sweep has {runs} runs, at most {MOST_RUNS} are allowed; type fewer values"
        )
    later = [text for texts in axes for text in texts[1:] if text.startswith("seed=")]
    # the first seed is checked below
    seeds = [validate("seed", parse_overrides([text])[0].value, Natural) for text in later]
    axes = [texts[:1] if texts[0].startswith("seed=") else texts for texts in axes]
    if (count := prod(map(len, axes))) > _MANY:
        print(f"fedbench: checking {count} configurations", file=sys.stderr)
    todo: list[RunConfig] = []
    # all, before torch is imported
    for config in [composer.config(combination) for combination in product(*axes)]:
        paths = [config.path, *(config.path.with_name(f"seed_{n}") for n in seeds)]
        missing = [path for path in paths if config.force or not is_done(path)]
        if missing:
            if not todo and len(missing) * count > 1:
                executor.warm_up()
            with answered_by(end_at_once):
                # imports torch, which takes seconds
                checked_options(config.algo, "algo", METHOD_ARGUMENTS)
        todo += [config] * len(missing)
    return todo
