"""Functions whose first result is checked: what came, what is expected, and where the function is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor

from fedbench.core.errors import RequestError
from fedbench.core.places import is_own, line_of, place_of
from fedbench.core.types import ClientInfo
from fedbench.simulation.memory import allocation_failed

_MODERATE = 1e6  # numbers above this are a run that diverges, from which no function can be asked for finite results


class FirstCall:
    """A function whose first result is checked; later calls go straight to the function.

    A thread that calls it before the first call has returned is checked too. Under CUDA graphs the check takes place
    before a step is captured.

    Args:
        function: The function.
        role: What it is in the method, such as ``update`` or ``direction of the server``.
        check: Looks at the arguments and the result and calls ``fail`` of its third argument if they do not fit.
        fixed: Names of the arguments, by position, that the function may not change.
        named: The function that messages name; None is ``function``.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        role: str,
        check: Callable[[tuple[Any, ...], Any, Complaint], None],
        fixed: Mapping[int, str] | None = None,
        named: Callable[..., Any] | None = None,
    ) -> None:
        self.function, self._named, self._check = function, named or function, check
        self._complaint = Complaint(self._named, role)
        self._fixed, self._done = fixed or {}, False

    def __call__(self, *args: Any) -> Any:
        """Return what the function returns.

        Raises:
            RequestError: If the first result does not fit, or the function raises an error in its first call.
        """
        return self.function(*args) if self._done else self._first(args)

    def _first(self, args: tuple[Any, ...]) -> Any:
        if torch.cuda.is_available() and torch.cuda.is_current_stream_capturing():
            return self.function(*args)
        versions = {i: _versions(args[i]) for i in self._fixed}
        try:
            result = self.function(*args)
        except Exception as error:
            if isinstance(error, RequestError) or not is_own(self._named) or allocation_failed(error):
                raise
            raise self._complaint.raised(error, args) from error
        self._check(args, result, self._complaint)
        for i, name in self._fixed.items():
            for key, version in _versions(args[i]).items():
                if versions[i].get(key, version) != version:
                    self._complaint.say(f"changes {name}[{key!r}] in place; return a new tensor, as w = w - d instead")
        if is_own(self._named) and _moderate(args):
            self._complaint.require_finite(result)
        self._done = True
        return result


class Complaint:
    """Messages about one function.

    Args:
        function: The function.
        role: What it is in the method.
    """

    def __init__(self, function: Callable[..., Any], role: str) -> None:
        self._function, self._role = function, role

    def fail(self, got: str, expected: str) -> NoReturn:
        """Say what was returned and what is expected.

        Raises:
            RequestError: Always.
        """
        self.say(f"returned {got}; expected {expected}")

    def say(self, fault: str) -> NoReturn:
        """Name the function and its fault.

        Raises:
            RequestError: Always.
        """
        raise RequestError(f"{self._role}: {place_of(self._function)} {fault}")

    def raised(self, error: Exception, args: tuple[Any, ...]) -> RequestError:
        """Return the error for an exception inside the function, with the shapes that it was given."""
        given = "; ".join(text for a in args if (text := shown(a)))
        text = " ".join(str(error).split())
        return RequestError(
            f"{self._role}: {place_of(self._function)} raised {type(error).__name__} in {line_of(error)}: {text} "
            f"(its arguments: {given})"
        )

    def state(self, value: object, what: str) -> dict[str, Tensor]:
        """Return ``value`` if it is a dictionary of tensors.

        Raises:
            RequestError: If it is not.
        """
        if not isinstance(value, dict):
            self.fail(kind(value), f"{what}: a dictionary of tensors")
        for key, v in value.items():
            if not isinstance(key, str) or not isinstance(v, Tensor):
                self.fail(f"{key!r}: {kind(v)} in {what}", "names with tensors")
        return value

    def like(self, key: str, value: Tensor, wanted: Tensor, letters: str, remedy: str = "") -> None:
        """Check shape and type of one tensor.

        Raises:
            RequestError: If they differ from those of ``wanted``; ``letters`` says what its dimensions are.
        """
        if value.shape != wanted.shape or value.dtype != wanted.dtype:
            self.fail(f"{key} {kind(value)}", f"{kind(wanted)}, {letters}{remedy}")

    def require_finite(self, result: object) -> None:
        """Check that every number of a result is finite.

        Raises:
            RequestError: If one is not.
        """
        for key, v in _tensors(result):
            if v.is_floating_point() and not bool(torch.isfinite(v).all()):
                count = int((~torch.isfinite(v)).sum())
                self.fail(f"{key} {kind(v)} with {count} values that are not finite", "finite numbers from finite ones")


def kind(value: object) -> str:
    """Return type and shape of a value: ``[10, 610] float32``."""
    if isinstance(value, Tensor):
        return f"{list(value.shape)} {str(value.dtype).removeprefix('torch.')}"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k}: {kind(v)}" for k, v in value.items()) + "}"
    if isinstance(value, tuple | list):
        return f"{type(value).__name__} of " + ", ".join(kind(v) for v in value) if value else f"empty {type(value)}"
    if isinstance(value, np.ndarray):
        return f"{list(value.shape)} {value.dtype}"
    return "None" if value is None else type(value).__name__


def shown(value: object) -> str:
    """Return the shapes in an argument; nothing where it has none."""
    if isinstance(value, ClientInfo):
        return f"cohort of {len(value.id)} clients"
    return kind(value) if isinstance(value, Tensor | dict) else ""


def _tensors(value: object) -> list[tuple[str, Tensor]]:
    if isinstance(value, Tensor):
        return [("a tensor", value)]
    if isinstance(value, dict):
        return [(f"{k!r}", v) for k, v in value.items() if isinstance(v, Tensor)]
    if isinstance(value, ClientInfo):
        return [*_tensors(value.probe), ("lr", value.lr)]
    return [pair for v in value for pair in _tensors(v)] if type(value) in (tuple, list) else []  # type: ignore[attr-defined]


def _versions(value: object) -> dict[str, int]:
    """Return the counters of changes in place of the tensors of a state."""
    return {k: v._version for k, v in value.items() if isinstance(v, Tensor)} if isinstance(value, dict) else {}


def _moderate(args: tuple[Any, ...]) -> bool:
    """Return whether all numbers in the arguments are finite and moderate."""
    floats = [v for a in args for _, v in _tensors(a) if v.is_floating_point() and v.numel()]
    return all(bool(v.abs().max() <= _MODERATE) for v in floats)
