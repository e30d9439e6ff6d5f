"""Checks of the first result of a user's own function: keys, shapes, types and finite numbers."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, replace
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from fedbench.core.algorithm import Algorithm, Averaging, Descent, ServerStep, Trials
from fedbench.core.errors import RequestError
from fedbench.core.optim import Optimizer
from fedbench.core.types import ClientInfo, all_finite
from fedbench.core.user_code import is_own, place_of, raised
from fedbench.simulation.memory import allocation_failed

# numbers above this are a run that diverges, from which no function can be asked for finite results
_MODERATE = 1e6


class Rule(NamedTuple):
    """A result that a function must return: a tensor, or a dictionary of tensors.

    A shape has a letter for each dimension, alternatives apart by "|": "P | C P". P is the number
    of parameters, C of clients in the call; "*" is any size, "..." any further dimensions.

    Attributes:
        meaning: The result in words.
        shape: Shape of the tensor, or of every entry of the dictionary without a shape of its own.
        entries: Shapes of entries of a dictionary that must be there, of the type of the model;
            None is a tensor.
        like: Position of the argument whose keys, shapes and types must come back.
    """

    meaning: str
    shape: str = "..."
    entries: Mapping[str, str] | None = MappingProxyType({})
    like: int | None = None


_MEAN = "reduce the uploads [C, ...] over the cohort, as cohort.p @ uploads['delta'] does"
_MODEL = {"w": "P"}
# a field of a record -> what its function returns; several values are a tuple
_RULES: dict[str, tuple[Rule, ...]] = {
    "server_init": (Rule("the server's state", entries=_MODEL),),
    "client_init": (Rule("the state of one client", "| *"),),
    "broadcast": (Rule("the message, from which clients start", entries=_MODEL),),
    "start": (Rule("the local variables, for all clients or each", "* | 1 * | C *", {"w": "P | 1 P | C P"}),),
    "step": (Rule("the local variables of the clients at work, [C, 1] for numbers", "C ...", {"w": "C P"}),),
    "finish": (
        Rule("the upload, one row per client, [C, 1] for numbers", "C ..."),
        Rule("the client state, as client_init makes it", like=1),
    ),
    "personal.finish": (Rule("an empty upload, {}: a personal phase sends nothing", "0"), Rule("the client state")),
    "update": (Rule(f"the server's state, as before: {{**server, 'w': ...}}; {_MEAN}", entries=_MODEL, like=0),),
    "deploy": (Rule("the model, or one for each client", "P | N P", None),),
    "instruct": (Rule("a number for each client of the cohort", "C"),),
    "propose": (Rule("models to measure, of the type of server['w']", entries={"trials": "J P"}),),
    "gradient": (Rule("one vector per client at work", "C P", None),),
    "extra": (Rule("a term of the gradient for each client at work", "C P | 1 P | P", None),),
    "opt.update": (Rule("the direction, as the gradient", "...", None, like=0), Rule("the new entries of its state")),
    "weights": (Rule("the weights of the clients, such as cohort.p", "C", None),),
    "direction": (Rule(f"the direction of the server's step; {_MEAN}", "P", None),),
    "exposes": (Rule("a vector per client of the cohort", "C P", None),),
}  # fmt: skip
_RECORDS = (Algorithm, Descent, Averaging, ServerStep, Trials)


def checked(part: Any, path: str = "") -> Any:
    """Return a method, or a part of one, whose functions are checked in their first call if they are the user's own.

    The numbers are the same. Functions of fedbench stay as they are: its tests check them.

    Args:
        part: The method, a record or a table in it, or a function.
        path: Its place in the method, such as "update.direction".
    """
    if isinstance(part, Mapping):
        return {name: checked(value, f"{path}[{name!r}]") for name, value in part.items()}
    if isinstance(part, Optimizer):
        update = checked(part.update, f"{path}.update")
        return part if update is part.update else part._replace(update=update)
    if isinstance(part, _RECORDS):
        changed = {}
        for field in fields(part):
            value = getattr(part, field.name)
            inner = isinstance(part, Averaging) and field.name == "step"  # the method's update
            new = checked(value, path if inner else f"{path}.{field.name}".lstrip("."))
            if new is not value:
                changed[field.name] = new
        return replace(part, **changed) if changed else part
    names = path.partition("[")[0].split(".")
    rules = _RULES.get(".".join(names[-2:])) or _RULES.get(names[-1])
    if not rules or not callable(part) or not is_own(part):
        return part
    return FirstCall(part, path, partial(_fault, rules))


class FirstCall:
    """A function whose first result is checked; later calls go straight to the function.

    A thread that calls it before the first call has returned is checked too.

    Args:
        function: The function.
        role: What it is for the user, such as ``update`` or ``metrics.gini``.
        fault: Returns what is wrong with a result, given the arguments and the result; None if
            nothing is.
        named: The function that messages name; None is ``function``.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        role: str,
        fault: Callable[[tuple[Any, ...], Any], str | None],
        named: Callable[..., Any] | None = None,
    ) -> None:
        self.function, self._fault, self._done = function, fault, False
        self._place = f"{role}: {place_of(named or function)}"

    def __call__(self, *args: Any) -> Any:
        """Return the result of the function.

        Raises:
            RequestError: If the first result does not fit, or the function raises an error in its
                first call.
        """
        if self._done:
            return self.function(*args)
        states = [arg for arg in args if isinstance(arg, dict)]
        versions = [(name, v, v._version) for state in states for name, v in _tensors(state)]
        try:
            result = self.function(*args)
        except Exception as error:
            if isinstance(error, RequestError) or allocation_failed(error):
                raise
            shapes = "; ".join(kind(a) for a in args if isinstance(a, Tensor | dict | ClientInfo))
            raise RequestError(
                f"{self._place} {raised(error)} (its arguments: {shapes})"
            ) from error

        fault = self._fault(args, result)
        changed = [name for name, v, version in versions if v._version != version]
        if fault is None and changed:
            fault = f"changes {changed[0]} of its arguments in place; return a new tensor, as w = w - d instead"
        if fault is None and all(bool((v.abs() <= _MODERATE).all()) for _, v in _tensors(args)):
            infinite = [f"{name} {kind(v)}" for name, v in _tensors(result) if not all_finite(v)]
            fault = f"returned {infinite[0]} with values that are not finite" if infinite else None
        if fault is not None:
            raise RequestError(f"{self._place} {fault}")
        self._done = True
        return result


def _fault(rules: tuple[Rule, ...], args: tuple[Any, ...], result: Any) -> str | None:
    """Return what is wrong with the result of a function; by several rules it must be a tuple with a part for each."""
    parts = result if len(rules) > 1 else (result,)
    if not isinstance(parts, tuple) or len(parts) != len(rules):
        meanings = "), (".join(rule.meaning for rule in rules)
        return f"returned {kind(result)}; expected two values: ({meanings})"
    for rule, part in zip(rules, parts, strict=True):
        if misfit := _misfit(rule, args, part):
            returned, expected = misfit
            return f"returned {returned}; expected {expected} ({rule.meaning})"
    return None


def _misfit(rule: Rule, args: tuple[Any, ...], result: Any) -> tuple[str, str] | None:
    """Return what was returned, and what is expected instead; None if the result fits."""
    before = None if rule.like is None else args[rule.like]
    required = rule.entries
    if required is None:
        if not isinstance(result, Tensor):
            return kind(result), "a tensor"
        required = {}
        result = {"": result}
        before = {"": before} if isinstance(before, Tensor) else None
    elif not isinstance(result, dict):
        return kind(result), "a dictionary of tensors"

    if before is not None and before.keys() != result.keys():
        return _names(result), _names(before)
    models = [a.get("w") if isinstance(a, dict) else a for a in args]
    model = next((m for m in models if isinstance(m, Tensor)), None)
    cohort = next((a for a in args if isinstance(a, ClientInfo)), None)
    sizes = {} if cohort is None else {"C": len(cohort.id)}
    if model is not None:
        sizes["P"] = model.shape[-1]
    for name in required:
        if name not in result:
            return kind(result), f"an entry {name!r}: {_shape_text(required[name], sizes)}"

    for name, v in result.items():
        returned = f"{name!r} {kind(v)}".removeprefix("'' ")
        if not isinstance(v, Tensor):
            return returned, "names with tensors"
        dtype, shape = None, rule.shape
        if name in required:
            dtype, shape = None if model is None else model.dtype, required[name]
        elif before is not None:
            # a table that begins without rows keeps its columns
            dtype, shape = before[name].dtype, " ".join(str(n or "*") for n in before[name].shape)
        fits = any(_fits(v, form.split(), sizes) for form in shape.split("|"))
        if not fits or v.dtype != (dtype or v.dtype):
            return returned, f"{dtype} {_shape_text(shape, sizes)}".removeprefix(
                "None "
            ).removeprefix("torch.")
    return None


def _fits(v: Tensor, letters: list[str], sizes: Mapping[str, int]) -> bool:
    """Return whether a tensor has a shape."""
    if letters[-1:] == ["..."]:
        letters = letters[:-1] + ["*"] * (v.dim() - len(letters) + 1)
    lengths = [int(letter) if letter.isdigit() else sizes.get(letter) for letter in letters]
    return len(lengths) == v.dim() and all(
        n in (None, size) for n, size in zip(lengths, v.shape, strict=True)
    )


def _shape_text(shape: str, sizes: Mapping[str, int]) -> str:
    """Return a shape for a message: ``[P] or [C, P] with C = 7, P = 21``."""
    forms = " or ".join(f"[{', '.join(form.split())}]" for form in shape.split("|"))
    known = ", ".join(f"{letter} = {size}" for letter, size in sizes.items() if letter in shape)
    return f"{forms} with {known}" if known else forms


def _names(state: Mapping[str, Any]) -> str:
    return ", ".join(map(repr, state)) or "no entries"


def _tensors(value: Any) -> Iterator[tuple[str, Tensor]]:
    """Yield the tensors of real numbers in a result or in arguments, with their names."""
    if isinstance(value, Tensor) and value.is_floating_point():
        yield "a tensor", value
    elif isinstance(value, dict):
        for name, v in value.items():
            if isinstance(v, Tensor) and v.is_floating_point():
                yield repr(name), v
    elif isinstance(value, ClientInfo):
        yield from _tensors(value.probe | {"lr": value.lr})
    elif type(value) is tuple:
        for part in value:
            yield from _tensors(part)


def kind(value: object) -> str:
    """Return the type and shape of a value: ``[10, 610] float32``."""
    match value:
        case None:
            return "None"
        case Tensor() | np.ndarray():
            return f"{list(value.shape)} {value.dtype}".replace("torch.", "")
        case {}:
            return (
                "{" + ", ".join(f"{k}: {kind(v)}" for k, v in value.items()) + "}"
                if value
                else "an empty dict"
            )
        case tuple():
            return "tuple of " + (", ".join(map(kind, value)) or "nothing")
        case ClientInfo():
            return f"cohort of {len(value.id)} clients"
    return type(value).__name__
