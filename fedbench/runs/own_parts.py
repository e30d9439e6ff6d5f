"""What a source or a model of the user's own must be; looked at before anything is trained."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fedbench.core.errors import RequestError
from fedbench.core.places import line_of, place_of
from fedbench.data.dataset import FederatedDataset
from fedbench.data.examples import Examples
from fedbench.simulation.memory import allocation_failed
from fedbench.simulation.task import Task

_FEW = 2  # examples that a model is tried on


def checked_examples(found: object, source: Callable[..., Any]) -> Examples:
    """Return what a source returned, if its arrays fit together.

    Raises:
        RequestError: Naming the function, the array and the fault.
    """
    where = f"data.source: {place_of(source)} returned"
    if not isinstance(found, Examples):
        raise RequestError(f"{where} {type(found).__name__}; expected fedbench.data.examples.Examples")
    x, y = found.x, found.y
    for name, array in (("x", x), ("y", y)):
        if not isinstance(array, np.ndarray) or array.ndim < 1:
            raise RequestError(f"{where} {name} {_kind(array)}; expected a NumPy array, one entry per example")
    count = len(y)
    if len(x) != count or not count:
        raise RequestError(f"{where} x {_kind(x)} and y {_kind(y)}; expected the same number of examples, at least 1")
    if x.dtype.kind not in "biuf":
        raise RequestError(f"{where} x {_kind(x)}; expected numbers")
    if x.dtype.kind == "f" and not np.isfinite(x).all():
        raise RequestError(f"{where} x {_kind(x)} with values that are not finite")
    if y.dtype.kind not in "iu" or y.min() < 0 or y.max() >= found.classes:
        values = f", {y.min()} to {y.max()}" if y.dtype.kind in "iu" else ""
        raise RequestError(
            f"{where} y {_kind(y)}{values}; expected integers from 0 to classes - 1 = {found.classes - 1}"
        )
    _check_owners(found, count, where)
    return found


def _check_owners(found: Examples, count: int, where: str) -> None:
    owner, held_out, clients = found.owner, found.held_out, len(found.names)
    if held_out is not None and (not isinstance(held_out, np.ndarray) or _kind(held_out) != f"[{count}] bool"):
        raise RequestError(f"{where} held_out {_kind(held_out)}; expected [{count}] bool, True for test examples")
    if owner is None:
        return
    if not isinstance(owner, np.ndarray) or owner.shape != (count,) or owner.dtype.kind not in "iu":
        raise RequestError(
            f"{where} owner {_kind(owner)}; expected integers of shape [{count}], the client of each example"
        )
    if owner.min() < 0 or owner.max() >= clients:
        raise RequestError(
            f"{where} owner from {owner.min()} to {owner.max()}, but {clients} names; expected indices into names"
        )


def checked_module(found: object, maker: Callable[..., Any]) -> nn.Module:
    """Return what the function or class of a model made, if it is a module.

    Raises:
        RequestError: If it is something else.
    """
    if not isinstance(found, nn.Module):
        raise RequestError(f"model: {place_of(maker)} made {type(found).__name__}; expected a torch.nn.Module")
    return found


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
    where = f"model: {place_of(type(task.model).forward)}"
    wanted = [*y.shape, data.classes]
    with torch.no_grad():
        logits = _tried(lambda: task.predict(w, x), where, f"examples {list(x.shape)}")
        if not isinstance(logits, Tensor) or list(logits.shape) != wanted:
            got = list(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
            per = "example" if y.dim() == 1 else "token"
            raise RequestError(
                f"{where} returned {got} for examples {list(x.shape)}; expected logits {wanted}, a row per {per}"
            )
        if not bool(torch.isfinite(logits).all()):
            raise RequestError(f"{where} returned logits {wanted} of the initial model that are not finite")
        if mode == "stacked":
            each = task.layout.views(w.expand(_FEW, -1).contiguous())
            how = "vectorised over clients; engine.mode=loop takes one client after another"
            _tried(lambda: task.apply_each(each, torch.stack([x] * _FEW)), where, how)


def _tried(work: Callable[[], Any], where: str, how: str) -> Any:
    try:
        return work()
    except Exception as error:
        if isinstance(error, RequestError) or allocation_failed(error):
            raise
        text = " ".join(str(error).split())
        raise RequestError(f"{where} raised {type(error).__name__} in {line_of(error)}: {text} ({how})") from error


def _kind(value: object) -> str:
    return f"{list(value.shape)} {value.dtype}" if isinstance(value, np.ndarray) else type(value).__name__
