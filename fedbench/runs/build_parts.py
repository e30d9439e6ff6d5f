"""Parts of a model: what clients keep, and running statistics, around a method."""

from collections.abc import Sequence
from dataclasses import replace
from math import ceil
from typing import NamedTuple, NoReturn

import torch
from torch import Tensor, nn

from fedbench.config.schema import RunConfig
from fedbench.core.algorithm import WHOLE_MODEL, Algorithm, Descent, Stage
from fedbench.core.config_values import config_value
from fedbench.core.errors import RequestError
from fedbench.core.types import State
from fedbench.data.dataset import FederatedDataset
from fedbench.models.normalisation import statistics_of
from fedbench.models.parts import tensors_of
from fedbench.simulation.checks import FirstCall
from fedbench.simulation.personal import refusal, with_personal_part
from fedbench.simulation.statistics import STATISTICS, with_statistics
from fedbench.simulation.task import Inputs, Task

_ROWS = 512  # examples whose features are computed at once


class Parts(NamedTuple):
    """Parts of a model, as the configuration or else the method has them."""

    personal: frozenset[str]  # parameters and running statistics that clients keep
    frozen: frozenset[str]  # parameters that keep their initial values
    moving: int | None  # number of rounds in which running statistics move; None for all of them


def parts_of(
    config: RunConfig,
    algorithm: Algorithm,
    model: nn.Module,
) -> Parts:
    """Return the parts of the model.

    Raises:
        RequestError: If there is a policy for running statistics, and the model has none; if there
            is a personal part, and the method shares nothing; if a word or pattern names nothing;
            or if all parameters are frozen.
    """
    keys = config.parts
    shares_nothing = algorithm.personal_part == WHOLE_MODEL
    if shares_nothing:
        _refuse_sharing(config)
    policy = keys.statistics or algorithm.statistics
    moving = algorithm.moving_rounds
    if keys.fix_after is not None:
        moving = None if keys.fix_after == 1 else ceil(keys.fix_after * config.rounds - 1e-9)
    statistics = statistics_of(model)
    if not statistics and (policy, moving, keys.fix_after) != (None, None, None):
        _refuse_statistics(config)

    frozen = algorithm.frozen_part if keys.frozen is None else keys.frozen
    resting = _frozen_tensors(model, frozen, config.names.algo)
    if shares_nothing:
        trained = {name for name, p in model.named_parameters() if p.requires_grad}
        return Parts(frozenset((trained - resting) | statistics.keys()), resting, moving)
    chosen = algorithm.personal_part if keys.personal is None else keys.personal
    personal = tensors_of(model, chosen, "parts.personal", statistics)
    if policy == "local":
        personal |= statistics.keys()
    elif policy == "average":
        personal -= statistics.keys()
    return Parts(personal, resting, moving)


def _refuse_statistics(config: RunConfig) -> NoReturn:
    """Refuse a policy for running statistics.

    Raises:
        RequestError: Always; the message names the key or the method that sets the policy.
    """
    parts = config.parts
    given = f"algo={config.names.algo}"
    if parts.statistics is not None:
        given = f"parts.statistics={parts.statistics}"
    elif parts.fix_after is not None:
        given = f"parts.fix_after={parts.fix_after:g}"
    raise RequestError(
        f"{given} is for running statistics, and model={config.names.model} has none; use a model "
        "with BatchNorm, such as model=mlp or resnet18_gn with model.norm=batch"
    )


def _refuse_sharing(config: RunConfig) -> None:
    """Refuse parts of the model that would be shared.

    Raises:
        RequestError: If the configuration gives such parts.
    """
    parts = config.parts
    given = ""
    if parts.personal is not None:
        given = f"parts.personal={config_value(parts.personal)}"
    elif parts.statistics == "average":
        given = "parts.statistics=average"
    if given:
        raise RequestError(
            f"{config.names.algo} leaves all parameters with the clients, got {given}; remove it, "
            "or use another method"
        )


def _frozen_tensors(
    model: nn.Module,
    frozen: Sequence[str],
    algo: str,
) -> frozenset[str]:
    """Return the names of the parameters that keep their initial values.

    Args:
        model: The model.
        frozen: Words and patterns of the parameters.
        algo: Name of the method, for messages.

    Raises:
        RequestError: If no parameter is left.
    """
    names = tensors_of(model, frozen, "parts.frozen")
    if names >= {name for name, _ in model.named_parameters()}:
        verb = f"{' and '.join(frozen)} {'is' if len(frozen) == 1 else 'are'}"
        raise RequestError(
            f"{algo} would share nothing, because {verb} frozen, and "
            f"{type(model).__name__} has no other parameters; set parts.frozen=[], or use another "
            "model"
        )
    return names


def with_parts(
    config: RunConfig,
    stages: Sequence[Stage],
    task: Task,
    data: FederatedDataset,
    w: Tensor,
    moving: int | None,
) -> Stage:
    """Return the stage of a method for a model with personal parts or running statistics.

    Args:
        config: The configuration.
        stages: The stages of the method, which must have one.
        task: The model.
        data: The federated data set.
        w: The initial model [P].
        moving: Number of rounds in which running statistics move, or None for all of them.

    Raises:
        RequestError: If the method, the data or the run needs a whole model.
    """
    is_personal = bool(task.personal.names or task.local.names)
    remedy = "use a model with GroupNorm or without normalisation"
    part = "running statistics are allowed"
    if is_personal:
        remedy = "set parts.personal=[], or to other parts, or use another model"
        part = "part of the model can be personal"
    if fault := _fault(stages, task):
        raise RequestError(f"{config.names.algo} {fault}, so no {part}; {remedy}")
    if task.local.names and data.central:
        raise RequestError(
            "a central test set is for one model, and each client has statistics of its own; set "
            "parts.statistics=average or another data.local_test"
        )

    stage = stages[0]
    _, own, local, averaged = w.split(
        [task.shared.size, task.personal.size, task.local.size, task.averaged.size]
    )
    algorithm = stage.algorithm
    if len(own):
        algorithm = with_personal_part(algorithm, own)
    if not len(local) and not len(averaged):
        return stage._replace(algorithm=algorithm)

    def at(round: int, server: State) -> Algorithm:
        constant = None
        if moving is not None and round >= moving:
            constant = server.get(STATISTICS, averaged)
        return with_statistics(algorithm, local, averaged, constant)

    return stage._replace(algorithm=at(0, {}), changes=at)


def _fault(stages: Sequence[Stage], task: Task) -> str:
    """Return the reason why a method needs a whole model; empty if it does not."""
    stage = stages[0]
    if not task.shared.size and stage.algorithm.personal_part != WHOLE_MODEL:
        return "would share nothing"
    if len(stages) > 1:
        return "has several stages, and personal parts and statistics are for one"
    if stage.after is not None:
        return "relabels examples by one model for all clients"
    step = stage.algorithm.step
    function = step.gradient if isinstance(step, Descent) else step
    # a step of the user may take w for the shared part
    if isinstance(function, FirstCall) and not stage.algorithm.parts:
        return "has a local step of your own, without parts=True"
    if stage.algorithm.own_head and not task.personal.names:
        return refusal(replace(stage.algorithm, whole=""))
    return refusal(stage.algorithm)


@torch.no_grad()
def features_of(
    task: Task,
    data: FederatedDataset,
    w: Tensor,
) -> FederatedDataset:
    """Return the data set with the features of all examples under a model w [P] in their place."""
    views = task.layout.views(w)
    blocks = []
    for rows in torch.arange(len(data.y), device=data.x.device).split(_ROWS):
        x = task.images(data.features(rows))
        blocks.append(task.outputs(Inputs(views, x)).features)
    return replace(
        data,
        x=torch.cat(blocks),
        mean=None,
        std=None,
        tokens=None,
        vectors=None,
        table=None,
    )
