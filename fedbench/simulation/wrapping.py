"""Helpers for wrappers of a method that keep their own entries in its states and messages."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

import torch
from torch import Tensor

from fedbench.core.algorithm import Algorithm

T = TypeVar("T")


def blind(function: Callable[..., T], *names: str) -> Callable[..., T]:
    """Return a function of states and messages that does not see their entries ``names``."""

    def seen(argument: Any) -> Any:
        if isinstance(argument, dict):
            return {name: v for name, v in argument.items() if name not in names}
        return argument

    return lambda *arguments: function(*map(seen, arguments))


def hiding(algo: Algorithm, *names: str) -> Algorithm:
    """Return a method that does not see the entries ``names`` before and after the local steps."""
    return replace(
        algo,
        start=blind(algo.start, *names),
        finish=blind(algo.finish, *names),
        deploy=blind(algo.deploy, *names),
    )


def joined(w: Tensor, *parts: Tensor | None) -> Tensor:
    """Return models [..., P]: their first values w [..., S], followed by those of the parts.

    One model is joined with the parts of several clients by repeating it, and vice versa. Parts
    that are None are left out; if all of them are, the result is w itself.
    """
    for part in parts:
        if part is not None:
            lead = torch.broadcast_shapes(w.shape[:-1], part.shape[:-1])
            part = part.to(w.device).expand(*lead, -1)
            w = torch.cat([w.expand(*lead, -1), part], -1)
    return w
