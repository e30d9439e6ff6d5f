"""Checks of the first result of a user's function: keys, shapes, types and finite numbers."""

import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedbench.core.algorithm import Algorithm, Averaging, Descent, ServerStep, Trials
from fedbench.core.config_values import read_yaml
from fedbench.core.errors import RequestError
from fedbench.core.objective import Objective
from fedbench.core.optim import Optimizer
from fedbench.core.types import Batch, ClientInfo, all_finite
from fedbench.core.user_code import is_own, place_of, raised
from fedbench.simulation.memory import allocation_failed

DRAWS = (
    "draws from a global generator of random numbers, so that runs would not be repeatable; use "
    "the key, generator or seed that it is given"
)
# larger values mean that the run diverges; functions need not return finite results then
_MODERATE = 1e6


class Rule(NamedTuple):
    """A rule for the result of a function: a tensor, or a dictionary of tensors.

    A shape contains a letter for each dimension; "|" separates alternatives, as in "P | C P". P is
    the number of parameters, C the number of clients in the call, and B the number of examples per
    client; "*" stands for any size and "..." for any further dimensions.

    Attributes:
        meaning: Description of the result.
        shape: Shape of the tensor, or of every dictionary entry that is not listed in ``entries``.
        entries: Shapes of the required dictionary entries, which have the type of the model. If
            None, the result is a tensor.
        like: Position of the argument whose keys, shapes and types the result must have.
        floating: Whether a tensor of any floating-point type is required.
    """

    meaning: str
    shape: str = "..."
    entries: Mapping[str, str] | None = None
    like: int | None = None
    floating: bool = False


# the parts of a method whose fields are functions, or further parts
_RECORDS = (Algorithm, Descent, Averaging, ServerStep, Trials, Objective)


@cache
def _rules() -> dict[str, list[Rule]]:
    """Return the rules of each field's function, one for each value that it returns."""
    fields = read_yaml(Path(__file__).with_name("results.yaml"))
    rules = {}
    for field, values in fields.items():
        rules[field] = [Rule(**value) for value in values]
    return rules


def checked(part: Any, path: str = "") -> Any:
    """Return a method, or a part of it, with checks of the first call of the user's functions.

    The results are the same. Functions of fedbench are returned unchanged, because its tests check
    them.

    Args:
        part: The method, a record or a table in it, or a function.
        path: Path of the part in the method, such as "update.direction".
    """
    if isinstance(part, Mapping):
        return {name: checked(value, f"{path}[{name!r}]") for name, value in part.items()}
    if isinstance(part, Optimizer):
        update = checked(part.update, f"{path}.update")
        return part if update is part.update else part._replace(update=update)
    if isinstance(part, _RECORDS):
        return _checked_record(part, path)

    if not callable(part) or not is_own(part):
        return part
    field = path.partition("[")[0]
    parent, _, name = field.rpartition(".")
    record = parent.rpartition(".")[2]
    rules = _rules().get(f"{record}.{name}", _rules().get(name))
    if rules is None:
        return part
    # a loss may be infinite on padding
    return FirstCall(part, path, partial(_fault, rules), finite=name != "values")


def _checked_record(part: Any, path: str) -> Any:
    """Return a record of functions with checks, or the same object if none is the user's."""
    changed = {}
    for field in fields(part):
        value = getattr(part, field.name)
        place = f"{path}.{field.name}".lstrip(".")
        if isinstance(part, Averaging) and field.name == "step":
            place = path  # the method's update

        new = checked(value, place)
        if new is not value:
            changed[field.name] = new
    return replace(part, **changed) if changed else part


class FirstCall:
    """A function whose first result is checked; later calls go straight to the function.

    Calls from other threads are also checked until the first call has returned.

    An error in a later call names the function as well.

    Args:
        function: The function.
        role: Role of the function in messages, such as ``update`` or ``metrics.gini``.
        fault: Function that returns the fault of a result, or None, from the arguments and the
            result.
        named: Function that messages name. If None, ``function``.
        finite: Whether the result must be finite if the arguments are moderate.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        role: str,
        fault: Callable[[tuple[Any, ...], Any], str | None],
        named: Callable[..., Any] | None = None,
        finite: bool = True,
    ) -> None:
        self.function = function
        self._finite = finite
        self._fault = fault
        self._done = False
        self._place = f"{role}: {place_of(named or function)}"

    def __call__(self, *args: Any) -> Any:
        """Return the result of the function.

        Raises:
            RequestError: If the first result does not fit, or the function raises an error in its
                first call.
            RuntimeError: If the function raises an error in a later call.
        """
        if self._done:
            try:
                return self.function(*args)
            except Exception as error:
                if isinstance(error, RequestError) or allocation_failed(error):
                    raise
                raise RuntimeError(f"{self._place} {raised(error)}") from error

        before = tuple(dict(arg) if isinstance(arg, dict) else arg for arg in args)
        versions = [(name, v, v._version) for name, v in _tensors(args)]
        drawn = generator_states()
        try:
            result = self.function(*args)
        except Exception as error:
            if isinstance(error, RequestError) or allocation_failed(error):
                raise
            shown = [kind(arg) for arg in before if isinstance(arg, Tensor | dict | ClientInfo)]
            message = f"{raised(error)} (its arguments: {'; '.join(shown)})"
            raise RequestError(f"{self._place} {message}") from error

        fault = _changed(versions) or _changed_entries(before, args) or self._fault(before, result)
        if generator_states() != drawn:
            fault = DRAWS
        if self._finite:
            fault = fault or _infinite(args, result)
        if fault is not None:
            raise RequestError(f"{self._place} {fault}")
        self._done = True
        return result


def _changed(versions: list[tuple[str, Tensor, int]]) -> str | None:
    """Return the fault of a function that changed an argument in place, or None."""
    for name, v, version in versions:
        if v._version != version:
            return (
                f"changes {name} of its arguments in place; "
                "return a new tensor, as w = w - d instead"
            )
    return None


def _changed_entries(before: tuple[Any, ...], after: tuple[Any, ...]) -> str | None:
    """Return the fault of a function that changed a dictionary among its arguments, or None."""
    for old, new in zip(before, after, strict=True):
        if not isinstance(old, dict):
            continue
        for name in {**old, **new}:
            if old.get(name) is not new.get(name):
                return (
                    f"changes the entry {name!r} of its arguments; "
                    "return a new dictionary, as {**state, 'm': m} instead"
                )
    return None


def _infinite(args: tuple[Any, ...], result: Any) -> str | None:
    """Return the fault of a non-finite result if the arguments are moderate, or None."""
    for _, v in _tensors(args):
        if not (v.abs() <= _MODERATE).all():
            return None
    for name, v in _tensors(result):
        if not all_finite(v):
            return f"returned {name} {kind(v)} with values that are not finite"
    return None


def _fault(
    rules: list[Rule],
    args: tuple[Any, ...],
    result: Any,
) -> str | None:
    """Return the fault of a function's result, or None; several rules require a tuple."""
    parts = result if len(rules) > 1 else (result,)
    if not isinstance(parts, tuple) or len(parts) != len(rules):
        meanings = "), (".join(rule.meaning for rule in rules)
        return f"returned {kind(result)}; expected two values: ({meanings})"

    for rule, part in zip(rules, parts, strict=True):
        misfit = _misfit(rule, args, part)
        if misfit is not None:
            return f"returned {misfit} ({rule.meaning})"
    return None


def _misfit(
    rule: Rule,
    args: tuple[Any, ...],
    result: Any,
) -> str | None:
    """Return "RESULT; expected FORM" for a message; None if the result fits."""
    sizes = _sizes(args)
    before = None if rule.like is None else args[rule.like]
    if rule.entries is None:
        if not isinstance(result, Tensor):
            return f"{kind(result)}; expected a tensor"
        form = Form(rule.shape, floating=rule.floating) if before is None else _form(before)
        return form.misfit(kind(result), result, sizes)

    if not isinstance(result, dict):
        return f"{kind(result)}; expected a dictionary of tensors"
    if before is not None and before.keys() != result.keys():
        return f"{_names(result)}; expected {_names(before)}"
    model = _model(args)
    dtype = None if model is None else model.dtype
    required = {name: Form(shape, dtype) for name, shape in rule.entries.items()}
    for name, form in required.items():
        if name not in result:
            return f"{kind(result)}; expected an entry {name!r}: {form.text(sizes)}"

    for name, v in result.items():
        returned = f"{name!r} {kind(v)}"
        if not isinstance(v, Tensor):
            return f"{returned}; expected names with tensors"
        other = Form(rule.shape) if before is None else _form(before[name])
        form = required.get(name, other)
        misfit = form.misfit(returned, v, sizes)
        if misfit is not None:
            return misfit
    return None


def _model(args: tuple[Any, ...]) -> Tensor | None:
    """Return the largest model among the arguments of a function, or None.

    A message has the shared part of a model, and local variables the whole.
    """
    models = [arg.get("w") if isinstance(arg, dict) else arg for arg in args]
    tensors = [w for w in models if isinstance(w, Tensor)]
    return max(tensors, key=lambda w: w.shape[-1], default=None)


def _sizes(args: tuple[Any, ...]) -> dict[str, int]:
    """Return the sizes for which letters stand: C clients, P parameters, B examples."""
    sizes = {}
    for arg in args:
        if isinstance(arg, ClientInfo):
            sizes["C"] = len(arg.id)
        if isinstance(arg, Batch):
            sizes["B"] = arg.weight.shape[1]
    model = _model(args)
    if model is not None:
        sizes["P"] = model.shape[-1]
    return sizes


class Form(NamedTuple):
    """Shape of a tensor, as in ``Rule``, and its type; None allows any, or any floating-point."""

    shape: str
    dtype: torch.dtype | None = None
    floating: bool = False

    def misfit(
        self,
        name: str,
        v: Tensor,
        sizes: Mapping[str, int],
    ) -> str | None:
        """Return "NAME; expected FORM" for a message; None if the tensor fits.

        Args:
            name: Description of the tensor in messages.
            v: The tensor.
            sizes: Sizes for which the letters of the shape stand.
        """
        forms = self.shape.split("|")
        fits = any(_fits(v, form.split(), sizes) for form in forms)
        if self.floating:
            fits = fits and v.is_floating_point()
        if fits and self.dtype in (None, v.dtype):
            return None
        return f"{name}; expected {self.text(sizes)}"

    def text(self, sizes: Mapping[str, int]) -> str:
        """Return the form for a message: ``float64 [P] or [C, P] with C = 7, P = 21``."""
        forms = [f"[{', '.join(form.split())}]" for form in self.shape.split("|")]
        text = " or ".join(forms)
        if self.dtype is not None:
            text = f"{self.dtype} {text}".removeprefix("torch.")
        if self.floating:
            text = f"floating-point {text}"
        known = [f"{letter} = {n}" for letter, n in sizes.items() if letter in self.shape]
        if known:
            text += f" with {', '.join(known)}"
        return text


def _form(v: Tensor) -> Form:
    """Return the form of a tensor; a dimension of size 0, as in an empty table, may grow."""
    return Form(" ".join(str(n or "*") for n in v.shape), v.dtype)


def _fits(
    v: Tensor,
    letters: list[str],
    sizes: Mapping[str, int],
) -> bool:
    """Return whether a tensor has a shape."""
    shape = list(v.shape)
    if letters[-1:] == ["..."]:
        letters = letters[:-1]
        shape = shape[: len(letters)]
    if len(letters) != len(shape):
        return False

    for letter, size in zip(letters, shape, strict=True):
        expected = int(letter) if letter.isdigit() else sizes.get(letter, size)
        if size != expected:
            return False
    return True


def _names(state: Mapping[str, Any]) -> str:
    return ", ".join(map(repr, state)) or "no entries"


def _tensors(value: Any) -> Iterator[tuple[str, Tensor]]:
    """Yield the floating-point tensors in a result or in arguments, with their names."""
    if isinstance(value, Tensor) and value.is_floating_point():
        yield "a tensor", value
    elif isinstance(value, dict):
        for name, v in value.items():
            for _, tensor in _tensors(v):
                yield repr(name), tensor
    elif isinstance(value, ClientInfo):
        yield from _tensors(value.probe | {"lr": value.lr})
    elif type(value) is tuple:
        for part in value:
            yield from _tensors(part)


def generator_states() -> tuple[Any, ...]:
    """Return the states of the global generators of random numbers on the CPU."""
    of_numpy = str(np.random.get_state(legacy=False))  # noqa: NPY002 - it is the global one
    return torch.get_rng_state().numpy().tobytes(), of_numpy, random.getstate()


@contextmanager
def repeatable(place: str) -> Iterator[None]:
    """Raise a RequestError if this block draws from a global generator of random numbers."""
    before = generator_states()
    yield
    if generator_states() != before:
        raise RequestError(f"{place} {DRAWS}")


def kind(value: object) -> str:
    """Return the type and shape of a value: ``[10, 610] float32``."""
    match value:
        case None:
            return "None"
        case Tensor() | np.ndarray():
            return f"{list(value.shape)} {value.dtype}".replace("torch.", "")
        case {}:
            entries = ", ".join(f"{k}: {kind(v)}" for k, v in value.items())
            return f"{{{entries}}}" if entries else "an empty dict"
        case tuple():
            return "tuple of " + (", ".join(map(kind, value)) or "nothing")
        case ClientInfo():
            return f"cohort of {len(value.id)} clients"
    return type(value).__name__
