"""What functions of the user's own must return, checked in their first call: keys, shapes, types and finite numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedbench.core.algorithm import Algorithm, Averaging, Descent, ServerStep, Trials
from fedbench.core.errors import RequestError
from fedbench.core.optim import Optimizer
from fedbench.core.types import ClientInfo
from fedbench.core.user_code import is_own, place_of, raised
from fedbench.simulation.memory import allocation_failed

_MODERATE = 1e6  # numbers above this are a run that diverges, from which no function can be asked for finite results


class Rule(NamedTuple):
    """What a function must return: a tensor, or a dictionary of tensors.

    A shape has a letter for each dimension, alternatives apart by "|": "P | C P". P is the number of parameters, C of
    clients in the call; "*" is any size, "..." any further dimensions.

    Attributes:
        what: The result in words.
        shape: Shape of the tensor, or of every entry of the dictionary.
        entry: Name and shape of an entry that must be there, of the type of the model.
        like: Position of the argument whose keys, shapes and types must come back.
        state: Whether the result is a dictionary.
    """

    what: str
    shape: str = "..."
    entry: tuple[str, str] | None = None
    like: int | None = None
    state: bool = True


_MEAN = "reduce the uploads [C, ...] over the cohort, as cohort.p @ uploads['delta'] does"
# a field of a record -> what its function returns; several values are a tuple
_RULES: dict[str, tuple[Rule, ...]] = {
    "server_init": (Rule("the server's state", entry=("w", "P")),),
    "client_init": (Rule("the state of one client", "| *"),),
    "broadcast": (Rule("the message, from which clients start", entry=("w", "P")),),
    "start": (Rule("the local variables, for all clients or each", "* | 1 * | C *", ("w", "P | 1 P | C P")),),
    "step": (Rule("the local variables of the clients at work, [C, 1] for numbers", "C ...", ("w", "C P")),),
    "finish": (
        Rule("the upload, one row per client, [C, 1] for numbers", "C ..."),
        Rule("the client state, as client_init makes it", like=1),
    ),
    "personal.finish": (Rule("an empty upload, {}: a personal phase sends nothing", "0"), Rule("the client state")),
    "update": (Rule(f"the server's state, as before: {{**server, 'w': ...}}; {_MEAN}", entry=("w", "P"), like=0),),
    "deploy": (Rule("the model, or one for each client", "P | N P", state=False),),
    "instruct": (Rule("a number for each client of the cohort", "C"),),
    "propose": (Rule("models to measure, of the type of server['w']", entry=("trials", "J P")),),
    "gradient": (Rule("one vector per client at work", "C P", state=False),),
    "extra": (Rule("a term of the gradient for each client at work", "C P | 1 P | P", state=False),),
    "opt.update": (Rule("the direction, as the gradient", like=0, state=False), Rule("the new entries of its state")),
    "weights": (Rule("the weights of the clients, such as cohort.p", "C", state=False),),
    "direction": (Rule(f"the direction of the server's step; {_MEAN}", "P", state=False),),
    "exposes": (Rule("a vector per client of the cohort", "C P", state=False),),
}  # fmt: skip
_RECORDS = (Algorithm, Descent, Averaging, ServerStep, Trials)


def checked(part: Any, path: str = "") -> Any:
    """A method, or a part of one, whose functions are checked in their first call if they are the user's own.

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
        of = {f.name: getattr(part, f.name) for f in fields(part)}
        inner = isinstance(part, Averaging)  # its step is the method's update
        new = {k: checked(v, path if inner and k == "step" else f"{path}.{k}".lstrip(".")) for k, v in of.items()}
        return replace(part, **new) if any(new[k] is not v for k, v in of.items()) else part
    names = path.partition("[")[0].split(".")
    rules = _RULES.get(".".join(names[-2:])) or _RULES.get(names[-1])
    return FirstCall(part, path, partial(_fault, rules)) if rules and callable(part) and is_own(part) else part


class FirstCall:
    """A function whose first result is checked; later calls go straight to the function.

    A thread that calls it before the first call has returned is checked too.

    Args:
        function: The function.
        role: What it is for the user, such as ``update`` or ``metrics.gini``.
        fault: Returns what is wrong with a result, given the arguments and the result; None if nothing is.
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
        self._where = f"{role}: {place_of(named or function)}"

    def __call__(self, *args: Any) -> Any:
        """The result of the function.

        Raises:
            RequestError: If the first result does not fit, or the function raises an error in its first call.
        """
        if self._done:
            return self.function(*args)
        given = [(name, v, v._version) for state in args if isinstance(state, dict) for name, v in _tensors(state)]
        try:
            result = self.function(*args)
        except Exception as error:
            if isinstance(error, RequestError) or allocation_failed(error):
                raise
            shapes = "; ".join(kind(a) for a in args if isinstance(a, Tensor | dict | ClientInfo))
            raise RequestError(f"{self._where} {raised(error)} (its arguments: {shapes})") from error
        fault = self._fault(args, result)
        changed = [name for name, v, version in given if v._version != version]
        if fault is None and changed:
            fault = f"changes {changed[0]} of its arguments in place; return a new tensor, as w = w - d instead"
        if fault is None and all(bool((v.abs() <= _MODERATE).all()) for a in args for _, v in _tensors(a)):
            wild = next(((name, v) for name, v in _tensors(result) if not bool(torch.isfinite(v).all())), None)
            fault = wild and f"returned {wild[0]} {kind(wild[1])} with values that are not finite"
        if fault is not None:
            raise RequestError(f"{self._where} {fault}")
        self._done = True
        return result


def _fault(rules: tuple[Rule, ...], args: tuple[Any, ...], result: Any) -> str | None:
    """What is wrong with the result of a function; by several rules it must be a tuple with a part for each."""
    parts = result if len(rules) > 1 else (result,)
    if not isinstance(parts, tuple) or len(parts) != len(rules):
        return f"returned {kind(result)}; expected two values: ({'), ('.join(r.what for r in rules)})"
    for rule, part in zip(rules, parts, strict=True):
        if misfit := _misfit(rule, args, part):
            return f"returned {misfit[0]}; expected {misfit[1]} ({rule.what})"
    return None


def _misfit(rule: Rule, args: tuple[Any, ...], result: Any) -> tuple[str, str] | None:
    """What was returned, and what is expected instead; None if the result fits."""
    models = [a.get("w") if isinstance(a, dict) else a for a in args if isinstance(a, dict | Tensor)]
    w = next((m for m in models if isinstance(m, Tensor)), None)
    cohort = next((a for a in args if isinstance(a, ClientInfo)), None)
    sizes = ({} if cohort is None else {"C": len(cohort.id)}) | ({} if w is None else {"P": w.shape[-1]})
    if not isinstance(result, dict if rule.state else Tensor):
        return kind(result), "a dictionary of tensors" if rule.state else "a tensor"
    before: Any = None if rule.like is None else args[rule.like]
    entries: Any = result if rule.state else {"": result}
    if rule.state and before is not None and before.keys() != entries.keys():
        return ", ".join(map(repr, entries)) or "no entries", ", ".join(map(repr, before)) or "no entries"
    if rule.entry is not None and rule.entry[0] not in entries:
        return kind(result), f"an entry {rule.entry[0]!r}: {_text(rule.entry[1], sizes)}"
    for name, v in entries.items():
        got = f"{name!r} {kind(v)}".removeprefix("'' ")
        if not isinstance(v, Tensor):
            return got, "names with tensors"
        dtype, shape = None, rule.shape
        if rule.entry is not None and name == rule.entry[0]:
            dtype, shape = None if w is None else w.dtype, rule.entry[1]
        elif before is not None:
            old = before[name] if rule.state else before
            # a table that begins without rows keeps its columns
            dtype, shape = old.dtype, " ".join(str(n or "*") for n in old.shape)
        if v.dtype != (dtype or v.dtype) or not any(_fits(v, form.split(), sizes) for form in shape.split("|")):
            return got, f"{_type(dtype)} {_text(shape, sizes)}".removeprefix("None ")
    return None


def _fits(v: Tensor, letters: list[str], sizes: Mapping[str, int]) -> bool:
    """Whether a tensor has a shape."""
    if letters[-1:] == ["..."]:
        letters = letters[:-1] + ["*"] * (v.dim() - len(letters) + 1)
    lengths = [int(letter) if letter.isdigit() else sizes.get(letter) for letter in letters]
    return len(lengths) == v.dim() and all(n in (None, size) for n, size in zip(lengths, v.shape, strict=True))


def _text(shape: str, sizes: Mapping[str, int]) -> str:
    """A shape for a message: ``[P] or [C, P] with C = 7, P = 21``."""
    forms = " or ".join(f"[{', '.join(form.split())}]" for form in shape.split("|"))
    known = ", ".join(f"{letter} = {sizes[letter]}" for letter in "CP" if letter in shape and letter in sizes)
    return f"{forms} with {known}" if known else forms


def _tensors(value: Any) -> Iterator[tuple[str, Tensor]]:
    """The tensors of real numbers in a result or an argument, with their names."""
    if isinstance(value, Tensor) and value.is_floating_point():
        yield "a tensor", value
    elif isinstance(value, dict):
        yield from ((repr(k), v) for k, v in value.items() if isinstance(v, Tensor) and v.is_floating_point())
    elif isinstance(value, ClientInfo):
        yield from _tensors(value.probe | {"lr": value.lr})
    elif type(value) is tuple:
        for part in value:
            yield from _tensors(part)


def _type(dtype: torch.dtype | None) -> str:
    return str(dtype).removeprefix("torch.")


def kind(value: object) -> str:
    """Type and shape of a value: ``[10, 610] float32``."""
    match value:
        case Tensor():
            return f"{list(value.shape)} {_type(value.dtype)}"
        case np.ndarray():
            return f"{list(value.shape)} {value.dtype}"
        case dict():
            return "{" + ", ".join(f"{k}: {kind(v)}" for k, v in value.items()) + "}" if value else "an empty dict"
        case tuple():
            return "tuple of " + (", ".join(kind(v) for v in value) or "nothing")
        case ClientInfo():
            return f"cohort of {len(value.id)} clients"
    return "None" if value is None else type(value).__name__
