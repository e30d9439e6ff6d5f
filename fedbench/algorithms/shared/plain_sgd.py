"""The local solver of methods whose rule is stated for plain steps."""

from __future__ import annotations

from fedbench.core.optim import Optimizer, without

_PARTS = ("momentum", "weight decay", "clipping", "adaptive steps")


def require_plain(local: Optimizer, method: str, reason: str) -> None:
    """Refuse a local solver that does more than a plain step.

    Raises:
        RequestError: With the method, the part that it cannot be combined with, the reason and the key to set.
    """
    without(local, *_PARTS, method=method, reason=reason)
