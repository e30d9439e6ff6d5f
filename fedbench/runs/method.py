"""From a configuration to the method of a run, without the imports of ``build``: wrong keys are refused sooner."""

from __future__ import annotations

from dataclasses import asdict, replace

from fedbench.config.schema import RunConfig
from fedbench.config.targets import Component, call
from fedbench.core.algorithm import Algorithm, Stage
from fedbench.core.errors import RequestError
from fedbench.core.optim import sgd

_STAND_INS: dict[str, object] = {"clients": 1, "examples": [1], "tensors": [1]}  # where nothing is run


def method_of(config: RunConfig, **facts: object) -> Algorithm | list[Stage]:
    """The method, or its stages; without facts of the data and the model a quick check of the keys.

    Args:
        config: The configuration.
        facts: Those of ``_STAND_INS`` that are known: the number of clients with training examples, the training
            examples of every client, and the sizes of the model's tensors (ADR 0002).

    Raises:
        RequestError: If values do not fit the method.
    """
    given = {"local": sgd(**asdict(config.local.solver)), "rounds": config.rounds, **_STAND_INS, **facts}
    options = dict(config.algo.options)
    for key, section in config.algo.options.items():
        if isinstance(section, dict) and "_target_" in section:  # an option that is a method itself
            inner = Component.of(f"algo.{key}", section)
            options[key] = call(inner, f"algo.{key}", **given)
            if not isinstance(options[key], Algorithm):
                raise RequestError(f"algo.{key} must be a method of one stage, got {inner.target}")
    made: object = call(replace(config.algo, options=options), "algo", **given)
    if isinstance(made, Algorithm) or (isinstance(made, list) and all(isinstance(s, Stage) for s in made)):
        return made
    raise RequestError(
        f"algo._target_={config.algo.target} must return an Algorithm or a list of Stages, got {type(made).__name__}"
    )
