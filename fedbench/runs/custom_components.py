"""What a source or a model of the user's own must be; looked at before anything is trained."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fedbench.core.errors import RequestError
from fedbench.data.dataset import FederatedDataset
from fedbench.data.examples import Examples
from fedbench.simulation.checks import kind, place_of, raised
from fedbench.simulation.engine import allocation_failed
from fedbench.simulation.task import Task

_FEW = 2  # examples that a model is tried on


def checked_examples(found: object, source: Callable[..., Any]) -> Examples:
    """What a source returned, if its arrays fit together.

    Raises:
        RequestError: Naming the function, the array and the fault.
    """
    where = f"data.source: {place_of(source)} returned"
    if not isinstance(found, Examples):
        raise RequestError(f"{where} {kind(found)}; expected fedbench.data.examples.Examples")
    for name, expected in _faults(found):
        value = getattr(found, name)
        span = f", {value.min()} to {value.max()}" if _integers(value) and value.size else ""
        raise RequestError(f"{where} {name} {kind(value)}{span}; expected {expected}")
    return found


def _faults(e: Examples) -> Iterator[tuple[str, str]]:
    """The fields of examples that do not fit, with what is expected of them."""
    if not isinstance(e.x, np.ndarray) or not e.x.ndim or e.x.dtype.kind not in "biuf" or not np.isfinite(e.x).all():
        yield "x", "a NumPy array of finite numbers, one entry per example"
    if not _integers(e.y) or not len(e.y) or e.y.min() < 0 or e.y.max() >= e.classes:
        yield "y", f"a NumPy array of integers from 0 to classes - 1 = {e.classes - 1}, at least one"
    count, clients = len(e.y), len(e.names)
    if len(e.x) != count:
        yield "x", f"as many examples as y has, {count}"
    if e.held_out is not None and kind(e.held_out) != f"[{count}] bool":
        yield "held_out", f"[{count}] bool, True for test examples"
    if e.owner is not None and (not _integers(e.owner) or e.owner.shape != (count,)):
        yield "owner", f"integers of shape [{count}], the client of each example"
    elif e.owner is not None and (e.owner.min() < 0 or e.owner.max() >= clients):
        yield "owner", f"indices into names, of which there are {clients}"


def _integers(value: object) -> bool:
    return isinstance(value, np.ndarray) and value.ndim > 0 and value.dtype.kind in "iu"


def checked_module(found: object, maker: Callable[..., Any]) -> nn.Module:
    """What the function or class of a model made, if it is a module.

    Raises:
        RequestError: If it is something else.
    """
    if not isinstance(found, nn.Module):
        raise RequestError(f"model: {place_of(maker)} made {type(found).__name__}; expected a torch.nn.Module")
    return found


@torch.no_grad()
def check_logits(task: Task, data: FederatedDataset, w: Tensor, mode: str) -> None:
    """Try a model of the user's own on two examples, in one piece and, where the engine will, vectorised over clients.

    Args:
        task: The model.
        data: The data set, in the form in which the model reads it.
        w: The initial model [P].
        mode: The engine mode, as configured.

    Raises:
        RequestError: If the model raises an error, or returns anything but logits.
    """
    rows = torch.arange(min(_FEW, len(data.y)), device=data.x.device)
    x, y = data.features(rows), data.labels(rows)
    where, wanted = f"model: {place_of(type(task.model).forward)}", [*y.shape, data.classes]
    how = f"examples {list(x.shape)}"
    try:
        logits: Any = task.predict(w, x)
        if mode == "stacked":
            how = "vectorised over clients; engine.mode=loop takes one client after another"
            task.apply_each(task.layout.views(w.expand(_FEW, -1).contiguous()), torch.stack([x] * _FEW))
    except Exception as error:
        if isinstance(error, RequestError) or allocation_failed(error):
            raise
        raise RequestError(f"{where} {raised(error)} ({how})") from error
    if not isinstance(logits, Tensor) or list(logits.shape) != wanted:
        got = list(logits.shape) if isinstance(logits, Tensor) else kind(logits)
        per = "example" if y.dim() == 1 else "token"
        raise RequestError(f"{where} returned {got} for {how}; expected logits {wanted}, a row per {per}")
    if not bool(torch.isfinite(logits).all()):
        raise RequestError(f"{where} returned logits {wanted} of the initial model that are not finite")
