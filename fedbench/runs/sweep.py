"""The runs of a sweep: combinations of its axes, and their checked configurations."""

from collections.abc import Sequence
from itertools import product
from math import prod

from fedbench.config.compose import Composer, refuse_repeated_groups
from fedbench.config.overrides import MOST_RUNS, Override, parse_overrides
from fedbench.config.schema import RunConfig
from fedbench.core.errors import RequestError
from fedbench.runs.cached_run import announce_earlier_names, check_method, is_cached


def combinations(overrides: Sequence[Override]) -> list[list[str]]:
    """Return the overrides of every run; the last axis varies fastest.

    If a key is repeated, its last values count.

    Raises:
        RequestError: If there are too many runs.
    """
    axes: dict[tuple[str, ...], list[str]] = {}
    for o in overrides:
        values = o.each()
        name, _, _ = o.text.partition("=")
        keys: tuple[str, ...] = ()
        if "={" in values[0]:  # such as algo={a: 1},{a: 2}
            keys = parse_overrides(values[:1])[0].keys
        axes[name, *keys] = values
    runs = prod(map(len, axes.values()))
    if runs > MOST_RUNS:
        raise RequestError(
            f"the sweep has {runs} runs, at most {MOST_RUNS} are allowed; type fewer values"
        )
    return [list(combination) for combination in product(*axes.values())]


def sweep_configs(
    overrides: Sequence[Override],
    composer: Composer,
) -> list[RunConfig]:
    """Return the configurations of all runs of a sweep, after checking their methods.

    Args:
        overrides: The axes of the sweep and all other overrides.
        composer: Composer of the configurations.

    Raises:
        RequestError: If a combination is invalid; invalid keys and choices are reported first.
    """
    refuse_repeated_groups(overrides)
    # compose all before torch is imported
    configs = [composer.config(run) for run in combinations(overrides)]
    announce_earlier_names(configs)
    settings = {}
    for config in configs:
        if not is_cached(config):
            settings[config.digest] = config
    for config in settings.values():
        check_method(config)
    return configs
