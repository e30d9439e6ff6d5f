"""Parts of a model: what clients keep, and running statistics, around a method."""

from collections.abc import Sequence, Set
from dataclasses import dataclass, replace
from math import ceil

import torch
from torch import Tensor, nn

from fedbench.config.schema import RunConfig
from fedbench.core.algorithm import WHOLE_MODEL, Algorithm, Descent, Stage
from fedbench.core.config_values import config_value
from fedbench.core.errors import RequestError
from fedbench.core.options import Statistics
from fedbench.core.types import State
from fedbench.data.dataset import FederatedDataset
from fedbench.models.normalisation import statistics_of
from fedbench.models.parts import tensors_of
from fedbench.simulation.checks import FirstCall
from fedbench.simulation.personal import refusal, with_personal_part
from fedbench.simulation.statistics import STATISTICS, with_statistics
from fedbench.simulation.task import Task

_ROWS = 512  # examples whose features are computed at once


@dataclass(frozen=True)
class PartsPolicy:
    """Parts of the model as the configuration or else the method has them.

    Attributes:
        personal: Words and patterns of the tensors that clients keep.
        frozen: Those of the parameters that keep their initial values.
        statistics: Policy for running statistics; None if ``personal`` names the local ones.
        moving: Number of rounds in which running statistics move, or None for all of them.
    """

    personal: Sequence[str]
    frozen: Sequence[str]
    statistics: Statistics | None
    moving: int | None


def parts_policy(
    config: RunConfig,
    algorithm: Algorithm,
    model: nn.Module,
) -> PartsPolicy:
    """Return the parts of the model.

    Raises:
        RequestError: If there is a policy for running statistics, and the model has none; or a
            personal part, and the method shares nothing.
    """
    parts = config.parts
    if algorithm.personal_part == WHOLE_MODEL:
        _refuse_sharing(config)
    policy = PartsPolicy(
        algorithm.personal_part if parts.personal is None else parts.personal,
        algorithm.frozen_part if parts.frozen is None else parts.frozen,
        parts.statistics or algorithm.statistics,
        _moving_rounds(config, algorithm),
    )
    is_default = policy.statistics is None and policy.moving is None and parts.fix_after is None
    if is_default or statistics_of(model):
        return policy

    given = f"algo={config.names.algo}"
    if parts.statistics is not None:
        given = f"parts.statistics={parts.statistics}"
    elif parts.fix_after is not None:
        given = f"parts.fix_after={parts.fix_after:g}"
    raise RequestError(
        f"{given} is for running statistics, and model={config.names.model} has none; use a model "
        "with BatchNorm, such as model=mlp or resnet18_gn with model.norm=batch"
    )


def _moving_rounds(config: RunConfig, algorithm: Algorithm) -> int | None:
    """Return the number of rounds in which running statistics move, or None for all of them."""
    share = config.parts.fix_after
    if share is None:
        return algorithm.moving_rounds
    return None if share == 1 else ceil(share * config.rounds - 1e-9)


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


def frozen_tensors(
    model: nn.Module,
    policy: PartsPolicy,
    algo: str,
) -> frozenset[str]:
    """Return the names of the parameters that keep their initial values.

    Args:
        model: The model.
        policy: The parts of the model.
        algo: Name of the method, for messages.

    Raises:
        RequestError: If no parameter is left.
    """
    names = tensors_of(model, policy.frozen, "parts.frozen")
    if names >= {name for name, _ in model.named_parameters()}:
        verb = f"{' and '.join(policy.frozen)} {'is' if len(policy.frozen) == 1 else 'are'}"
        raise RequestError(
            f"{algo} would share nothing, because {verb} frozen, and "
            f"{type(model).__name__} has no other parameters; set parts.frozen=[], or use another "
            "model"
        )
    return names


def personal_tensors(
    model: nn.Module,
    policy: PartsPolicy,
    frozen: Set[str],
) -> frozenset[str]:
    """Return the names of the parameters and running statistics that clients keep.

    Args:
        model: The model.
        policy: The parts of the model.
        frozen: Names of parameters that keep their initial values.
    """
    statistics = statistics_of(model)
    if policy.personal == WHOLE_MODEL:
        trained = {name for name, p in model.named_parameters() if p.requires_grad}
        return frozenset((trained - frozen) | statistics.keys())
    personal = tensors_of(model, policy.personal, "parts.personal", statistics)
    if policy.statistics == "local":
        return personal | statistics.keys()
    if policy.statistics == "average":
        return personal - statistics.keys()
    return personal


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
        blocks.append(task.outputs(views, x).features)
    return replace(
        data,
        x=torch.cat(blocks),
        mean=None,
        std=None,
        tokens=None,
        vectors=None,
        table=None,
    )
