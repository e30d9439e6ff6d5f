"""What functions of the user's own must return, checked in their first call: keys, shapes, types and finite numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedbench.core.algorithm import Algorithm, Averaging, Descent, ServerStep, Stage
from fedbench.core.errors import RequestError
from fedbench.core.optim import Optimizer
from fedbench.core.places import is_own, line_of, place_of
from fedbench.core.types import ClientInfo
from fedbench.simulation.memory import allocation_failed

_MODERATE = 1e6  # numbers above this are a run that diverges, from which no function can be asked for finite results


@dataclass(frozen=True)
class Rule:
    """What a function must return: a tensor, or a dictionary of tensors.

    Forms are shapes with a letter for each dimension, alternatives apart by "|": "P | C P". P is the number of
    parameters, C of clients in the call; "*" is any size, "..." any further dimensions.

    Attributes:
        what: The result in words.
        forms: The tensor, or every entry of the dictionary; None is any.
        entry: Name and forms of an entry that must be there, of the type of the model.
        like: Position of the argument whose keys, shapes and types must come back.
        state: Whether the result is a dictionary.
        remedy: A hint for the message.
    """

    what: str
    forms: str | None = None
    entry: tuple[str, str] | None = None
    like: int | None = None
    state: bool = True
    remedy: str = ""


_MEAN = "; reduce the uploads [C, ...] over the cohort, as cohort.p @ uploads['delta'] does"
_LOCALS = "the local variables of the clients at work; a number of a client is [C, 1]"
_RULES: dict[str, tuple[Rule, ...]] = {
    "server_init": (Rule("the server's state", entry=("w", "P")),),
    "client_init": (Rule("the state of one client", "| *"),),
    "broadcast": (Rule("the message, from which clients start", entry=("w", "P")),),
    "start": (Rule("the local variables, for all clients or each", "* | 1 * | C *", ("w", "P | 1 P | C P")),),
    "step": (Rule(_LOCALS, "C ...", ("w", "C P")),),
    "finish": (
        Rule("the upload, one row per client; a number of a client is [C, 1]", "C ..."),
        Rule("the client state, as client_init makes it", like=1),
    ),
    "personal.finish": (Rule("an empty upload, {}: a personal phase sends nothing", "0"), Rule("the client state")),
    "update": (Rule("the server's state, as before: {**server, 'w': ...}", entry=("w", "P"), like=0, remedy=_MEAN),),
    "deploy": (Rule("the model, or one for each client", "P | N P", state=False),),
    "instruct": (Rule("a number for each client of the cohort", "C"),),
    "propose": (Rule("models to measure, of the type of server['w']", entry=("trials", "J P")),),
    "gradient": (Rule("one vector per client at work", "C P", state=False),),
    "extra": (Rule("a term of the gradient for each client at work", "C P | 1 P | P", state=False),),
    "optimizer": (Rule("the direction, as the gradient", like=0, state=False), Rule("the new entries of its state")),
    "weights": (Rule("the weights of the clients, such as cohort.p", "C", state=False),),
    "direction": (Rule("the direction of the server's step", "P", state=False, remedy=_MEAN),),
    "exposes": (Rule("a vector per client of the cohort", "C P", state=False),),
}  # fmt: skip


def checked_stages(stages: list[Stage]) -> list[Stage]:
    """The stages with the user's own functions checked in their first call."""
    return [stage._replace(algorithm=checked(stage.algorithm)) for stage in stages]


def checked(algo: Algorithm, prefix: str = "") -> Algorithm:
    """A method whose functions are checked in their first call if they are the user's own; the numbers are the same.

    A local step stays a ``Descent`` and a server step an ``Averaging``, since an engine knows these; their parts are
    checked. Functions of fedbench stay as they are: its tests check them.

    Args:
        algo: The method.
        prefix: What it is inside of another method, for messages: "setup." or "personal.".
    """

    def own(function: Any, role: str, rule: str = "") -> Any:
        if not is_own(function):
            return function
        return FirstCall(
            function, f"{prefix}{role}", partial(_fault, _RULES.get(prefix + role) or _RULES[rule or role])
        )

    def optimizer(opt: Optimizer, side: str) -> Optimizer:
        return opt._replace(update=own(opt.update, f"{side} optimizer", "optimizer")) if is_own(opt.update) else opt

    def step_of(update: Any) -> Any:
        if isinstance(update, Averaging):
            weights = {k: own(f, f"weights of {k!r}", "weights") for k, f in update.weights.items()}
            return Averaging(step_of(update.step), weights)
        if isinstance(update, ServerStep):
            return replace(update, opt=optimizer(update.opt, "server"), direction=own(update.direction, "direction"))
        return own(update, "update")

    step = algo.step
    if isinstance(step, Descent):
        parts = {name: own(f, name) for name in ("extra", "gradient") if (f := getattr(step, name)) is not None}
        step = replace(step, opt=optimizer(step.opt, "local"), **parts)
    else:
        step = own(step, "step")
    plain = ("server_init", "client_init", "broadcast", "start", "finish", "deploy")
    return replace(
        algo,
        **{name: own(getattr(algo, name), name) for name in plain},
        step=step,
        update=step_of(algo.update),
        instruct=None if algo.instruct is None else own(algo.instruct, "instruct"),
        trials=None if algo.trials is None else replace(algo.trials, propose=own(algo.trials.propose, "propose")),
        setup=None if algo.setup is None else checked(algo.setup, "setup."),
        personal=None if algo.personal is None else checked(algo.personal, "personal."),
        exposes={k: own(f, f"exposes[{k!r}]", "exposes") for k, f in algo.exposes.items()},
    )


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
        return self.function(*args) if self._done else self._first(args)

    def _first(self, args: tuple[Any, ...]) -> Any:
        given = [(name, v, v._version) for state in args if isinstance(state, dict) for name, v in _tensors(state)]
        try:
            result = self.function(*args)
        except Exception as error:
            if isinstance(error, RequestError) or allocation_failed(error):
                raise
            shapes = "; ".join(kind(a) for a in args if isinstance(a, Tensor | dict | ClientInfo))
            text = f"raised {type(error).__name__} in {line_of(error)}: {' '.join(str(error).split())}"
            raise RequestError(f"{self._where} {text} (its arguments: {shapes})") from error
        fault = self._fault(args, result)
        changed = [name for name, v, version in given if v._version != version]
        if fault is None and changed:
            fault = f"changes {changed[0]} of its arguments in place; return a new tensor, as w = w - d instead"
        if fault is None and all(_moderate(v) for a in args for _, v in _tensors(a)):
            fault = _not_finite(result)
        if fault is not None:
            raise RequestError(f"{self._where} {fault}")
        self._done = True
        return result


def _fault(rules: tuple[Rule, ...], args: tuple[Any, ...], result: Any) -> str | None:
    """What is wrong with the result of a function; by several rules it must be a tuple with a part for each."""
    if len(rules) == 1:
        return _misfit(rules[0], args, result)
    if not isinstance(result, tuple) or len(result) != len(rules):
        return f"returned {kind(result)}; expected two values: ({'), ('.join(r.what for r in rules)})"
    return next((fault for rule, part in zip(rules, result, strict=True) if (fault := _misfit(rule, args, part))), None)


def _misfit(rule: Rule, args: tuple[Any, ...], result: Any) -> str | None:
    """What is wrong with a result or a part of it, or None."""
    sizes = _sizes(args)
    before: Any = None if rule.like is None else args[rule.like]
    got, wanted = kind(result), ""
    if not rule.state:
        wanted = _wanted(rule, "", result, before, sizes) if isinstance(result, Tensor) else "a tensor"
    elif not isinstance(result, dict):
        wanted = "a dictionary of tensors"
    elif rule.entry is not None and rule.entry[0] not in result:
        wanted = f"an entry {rule.entry[0]!r}: {_text(rule.entry[1], sizes)}"
    elif before is not None and before.keys() != result.keys():
        got, wanted = (", ".join(map(repr, state)) or "no entries" for state in (result, before))
    else:
        for name, v in result.items():
            if wanted := _wanted(rule, name, v, before and before[name], sizes):
                got = f"{name!r} {kind(v)}"
                break
    return f"returned {got}; expected {wanted} ({rule.what}){rule.remedy}" if wanted else None


def _wanted(rule: Rule, name: str, v: Any, old: Tensor | None, sizes: dict[str, Any]) -> str:
    """What a tensor of a result should be instead, or "" if it fits."""
    if not isinstance(v, Tensor):
        return "names with tensors"
    if rule.entry is not None and name == rule.entry[0]:
        fits = _fits(v, rule.entry[1], sizes) and v.dtype == sizes.get("type", v.dtype)
        return "" if fits else f"{_type(sizes['type'])} {_text(rule.entry[1], sizes)}"
    if rule.forms is not None:
        return "" if _fits(v, rule.forms, sizes) else _text(rule.forms, sizes)
    if old is None:
        return ""
    first = int(old.dim() > 0 and not len(old))  # a table that begins without rows keeps its columns
    return "" if v.dtype == old.dtype and v.shape[first:] == old.shape[first:] else kind(old)


def _sizes(args: tuple[Any, ...]) -> dict[str, Any]:
    """The sizes that letters stand for, and the type of the model, as far as the arguments show them."""
    models = [a.get("w") if isinstance(a, dict) else a for a in args if isinstance(a, dict | Tensor)]
    w = next((m for m in models if isinstance(m, Tensor)), None)
    known: dict[str, Any] = {} if w is None else {"P": w.shape[-1], "type": w.dtype}
    cohort = next((a for a in args if isinstance(a, ClientInfo)), None)
    return known if cohort is None else known | {"C": len(cohort.id)}


def _fits(v: Tensor, forms: str, sizes: dict[str, Any]) -> bool:
    """Whether a tensor has one of the forms."""
    for form in forms.split("|"):
        letters = form.split()
        open_end = letters[-1:] == ["..."]
        letters = letters[: len(letters) - open_end]
        long_enough = v.dim() >= len(letters) if open_end else v.dim() == len(letters)
        lengths = [int(letter) if letter.isdigit() else sizes.get(letter) for letter in letters]
        if long_enough and all(n in (None, size) for n, size in zip(lengths, v.shape, strict=False)):
            return True
    return False


def _text(forms: str, sizes: dict[str, Any]) -> str:
    """Forms for a message: ``[P] or [C, P] with C = 7, P = 21``."""
    shapes = " or ".join(f"[{', '.join(form.split())}]" for form in forms.split("|"))
    known = ", ".join(f"{letter} = {sizes[letter]}" for letter in "CP" if letter in forms and letter in sizes)
    return f"{shapes} with {known}" if known else shapes


def _not_finite(result: Any) -> str | None:
    for name, v in _tensors(result):
        if v.is_floating_point() and not bool(torch.isfinite(v).all()):
            count = int((~torch.isfinite(v)).sum())
            return f"returned {name} {kind(v)} with {count} values that are not finite; expected finite numbers"
    return None


def _moderate(v: Tensor) -> bool:
    return not v.is_floating_point() or not v.numel() or bool(v.abs().max() <= _MODERATE)


def _tensors(value: Any) -> Iterator[tuple[str, Tensor]]:
    """The tensors in a result or an argument, with their names."""
    if isinstance(value, Tensor):
        yield "a tensor", value
    elif isinstance(value, dict):
        yield from ((repr(k), v) for k, v in value.items() if isinstance(v, Tensor))
    elif isinstance(value, ClientInfo):
        yield from (*_tensors(value.probe), ("lr", value.lr))
    elif type(value) is tuple:
        for part in value:
            yield from _tensors(part)


def _type(dtype: torch.dtype) -> str:
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
