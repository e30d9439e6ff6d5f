"""The forms in which a run can be carried out on a GPU; measurement chooses one of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from torch import nn

from fedbench.config.schema import EngineConfig
from fedbench.core.errors import RequestError
from fedbench.data.dataset import FederatedDataset
from fedbench.simulation.forms import Form
from fedbench.simulation.task import Task
from fedbench.simulation.unfold import unfoldable

_STREAMS = (2, 4)

StepMode = Literal["loop", "stacked", "unfold"]


def candidates(task: Task, data: FederatedDataset, config: EngineConfig) -> list[Form]:
    """Return the forms on one stream, or on as many as the user asks for, that fit a task and what the user has pinned.

    The first is the plainest: one that every model can be carried out in if nothing is pinned.

    Args:
        task: The model and its loss.
        data: The data set.
        config: The choices of the user; None and "auto" leave a choice open.
    """
    graphs = (False, True) if config.graphs is None else (config.graphs,)
    workers = config.workers or 1
    return [
        Form(mode, captured, layout, workers)
        for mode in _modes(task, config)
        for captured in graphs
        for layout in _layouts(mode, task, data, config)
    ]


def on_more_streams(form: Form, config: EngineConfig) -> list[Form]:
    """Return a form that trains one client at a time on several streams, if their number is left open."""
    if config.workers is not None or form.mode != "loop":
        return []
    return [replace(form, workers=n) for n in _STREAMS]


def refuse_misplaced(task: Task, data: FederatedDataset, config: EngineConfig) -> None:
    """Refuse choices that a device, the examples or a model cannot follow.

    Raises:
        RequestError: If there is one.
    """
    if config.graphs and task.device.type != "cuda":
        raise RequestError(
            f"engine.graphs=true needs a CUDA device, and this run is on {task.device.type}; use engine.graphs=auto"
        )
    if config.channels_last is None:
        return
    given = f"engine.channels_last={str(config.channels_last).lower()}"
    if len(data.shape) != 3:
        raise RequestError(
            f"{given} is for images, got examples of shape {list(data.shape)}; use engine.channels_last=auto"
        )
    if not _convolves(task.model):
        raise RequestError(
            f"{given} is for models with convolutions, and {type(task.model).__name__} has none; "
            "use engine.channels_last=auto"
        )
    if config.mode not in ("auto", "loop"):
        raise RequestError(
            f"{given} is for clients one after another, and changes nothing with engine.mode={config.mode}; "
            "use engine.mode=loop or engine.channels_last=auto"
        )


def _modes(task: Task, config: EngineConfig) -> Sequence[StepMode]:
    if config.mode in ("loop", "stacked", "unfold"):
        return (config.mode,)
    if config.channels_last is not None:
        return ("loop",)  # which alone follows it
    return ("loop", "stacked", "unfold") if unfoldable(task.model) else ("loop", "stacked")


def _layouts(mode: StepMode, task: Task, data: FederatedDataset, config: EngineConfig) -> Sequence[bool | None]:
    """Return the memory layouts to try: both where cuDNN convolves the images of one client at a time."""
    open_choice = config.channels_last is None and mode == "loop" and len(data.shape) == 3 and _convolves(task.model)
    return (False, True) if open_choice else (config.channels_last,)


def _convolves(model: nn.Module) -> bool:
    return any(isinstance(module, nn.Conv2d) for module in model.modules())
