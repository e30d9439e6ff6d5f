"""From the section ``algo`` of a configuration to the stages of a method."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace

from fedbench.config.schema import RunConfig
from fedbench.config.targets import Component, call
from fedbench.core.algorithm import Algorithm, Stage
from fedbench.core.errors import RequestError
from fedbench.core.optim import sgd
from fedbench.core.randomness import cohort_size
from fedbench.data.dataset import FederatedDataset
from fedbench.simulation.checks import checked
from fedbench.simulation.task import Task

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
    solver = sgd(**asdict(config.local.solver))
    return _made(config.algo, {"local": solver, "rounds": config.rounds, **_STAND_INS, **facts})


def stages_of(config: RunConfig, data: FederatedDataset, task: Task) -> list[Stage]:
    """The stages of the method, with the user's own functions checked in their first call.

    Raises:
        RequestError: If the sampling of clients does not fit the method.
    """
    able = int((data.train.counts > 0).sum())
    made = method_of(config, clients=able, examples=data.train.counts.tolist(), tensors=task.layout.sizes)
    stages = [Stage(made, config.rounds)] if isinstance(made, Algorithm) else made
    for stage in stages:
        algorithm = stage.algorithm
        if config.sampling == "size" and algorithm.weights == "size":
            key = next((k for k, v in config.algo.options.items() if v == "size"), None)  # the option that sets them
            remedy = f"set algo.{key}=uniform, or " if key else "use "
            raise RequestError(
                f"sampling=size with weights by size counts large clients twice; {remedy}sampling=uniform"
            )
        part = cohort_size(config.participation, data.num_clients) < able
        if config.sampling == "size" and algorithm.uniform and part:
            raise RequestError(
                f"{config.names.algo} needs cohorts that are drawn uniformly: {algorithm.uniform}; use sampling=uniform"
            )
        some = stage.sampler or stage.eligible or part
        if algorithm.everyone and some:
            where = "and in every stage" if len(stages) > 1 else f"participation=1.0, got {config.participation}"
            raise RequestError(f"{config.names.algo} needs all clients in every round, {where}: {algorithm.everyone}")
    return [stage._replace(algorithm=checked(stage.algorithm)) for stage in stages]


def _made(algo: Component, given: Mapping[str, object]) -> Algorithm | list[Stage]:
    """The method of a component whose options may be methods themselves."""
    options = dict(algo.options)
    for key, section in algo.options.items():
        if isinstance(section, dict) and "_target_" in section:
            inner = Component.of(f"algo.{key}", section)
            options[key] = _method(inner, f"algo.{key}", given)
            if not isinstance(options[key], Algorithm):
                raise RequestError(f"algo.{key} must be a method of one stage, got {inner.target}")
    return _method(replace(algo, options=options), "algo", given)


def _method(component: Component, what: str, given: Mapping[str, object]) -> Algorithm | list[Stage]:
    made: object = call(component, what, **given)
    if isinstance(made, Algorithm) or (isinstance(made, list) and all(isinstance(s, Stage) for s in made)):
        return made
    raise RequestError(
        f"{what}._target_={component.target} must return an Algorithm or a list of Stages, got {type(made).__name__}"
    )
