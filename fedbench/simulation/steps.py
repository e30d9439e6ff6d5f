"""Plain local steps, which an oracle takes in place."""

from __future__ import annotations

from typing import cast

from fedbench.core.algorithm import Descent, Step
from fedbench.core.types import Batch, ClientInfo, Descending, Oracle, State


def in_place(step: Step, oracle: Oracle) -> bool:
    """Return whether ``descend_`` can take this step."""
    return isinstance(step, Descent) and step.plain and isinstance(oracle, Descending)


def descend_(step: Step, oracle: Oracle, msg: State, local: State, batch: Batch, info: ClientInfo) -> None:
    """Change ``local["w"]`` as ``step`` would, up to rounding, without storing the gradient.

    Args:
        step: A step that is ``in_place`` with this oracle.
        oracle: Takes the step.
        msg: The broadcast.
        local: Local variables of the clients at work, [A, ...].
        batch: Their batches.
        info: Their facts, leaves [A, 1].
    """
    plain = cast(Descent, step)  # a check against a protocol would cost more than a small step
    extra = None if plain.extra is None else plain.extra(msg, local, info)
    cast(Descending, oracle).descend_(local["w"], batch, info.lr)
    if extra is not None:
        local["w"].addcmul_(info.lr, extra, value=-1)
