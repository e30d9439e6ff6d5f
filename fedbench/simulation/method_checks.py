"""What the functions of a method must return, checked in their first call: keys, shapes, types and finite numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from fedbench.core.algorithm import Algorithm, Averaging, Descent, Pull, ServerStep, Shift, Stage, Trials
from fedbench.core.optim import Optimizer
from fedbench.core.places import is_own
from fedbench.simulation.first_call import Complaint, FirstCall, kind

_REDUCE = "; reduce the uploads [C, ...] over the cohort, as cohort.p @ uploads['delta'] does"
_EACH = "one row per client, [C, ...]"
_ONE_FOR_ALL = "a number of a client is [C, 1]"


def checked_stages(stages: list[Stage]) -> list[Stage]:
    """Return the stages with the functions of their methods checked in their first call."""
    return [stage._replace(algorithm=checked(stage.algorithm)) for stage in stages]


def checked(algo: Algorithm, role: str = "") -> Algorithm:
    """Return a method whose functions are checked in their first call; it computes the same numbers.

    A local step stays a ``Descent`` and a server step an ``Averaging``, since an engine knows these; their parts are
    checked.

    Args:
        algo: The method.
        role: What it is inside of another method, for messages: "setup" or "personal".
    """
    sizes = _Sizes()
    prefix = f"{role}." if role else ""

    def first(name: str, check: _Check, fixed: Mapping[int, str] | None = None) -> Any:
        return FirstCall(getattr(algo, name), prefix + name, check, fixed)

    return replace(
        algo,
        server_init=first("server_init", _server_init),
        client_init=first("client_init", _client_init),
        broadcast=first("broadcast", sizes.broadcast, {0: "server"}),
        start=first("start", _start, {0: "the message", 1: "the client state"}),
        step=_checked_step(algo, prefix),
        finish=first("finish", _personal_finish if role == "personal" else _finish, {0: "the message", 2: "local"}),
        update=_checked_update(algo.update, prefix, sizes),
        deploy=first("deploy", sizes.deploy),
        instruct=None if algo.instruct is None else first("instruct", _instruct, {0: "server"}),
        trials=_checked_trials(algo.trials, prefix),
        setup=None if algo.setup is None else checked(algo.setup, "setup"),
        personal=None if algo.personal is None else checked(algo.personal, "personal"),
        exposes={k: FirstCall(f, f"{prefix}exposes[{k!r}]", _expose) for k, f in algo.exposes.items()},
        remarks=first("remarks", _remarks),
    )


_Check = Callable[[tuple[Any, ...], Any, Complaint], None]


@dataclass
class _Sizes:
    """The number of parameters, known from the first broadcast on."""

    w: Tensor | None = None

    def broadcast(self, args: tuple[Any, ...], result: Any, say: Complaint) -> None:
        self.w = args[0]["w"]
        _model(say.state(result, "the message"), self.w, say, "the model [P], which clients start from")

    def deploy(self, args: tuple[Any, ...], result: Any, say: Complaint) -> None:
        w, wanted = args[0]["w"], "the model [P], or [N, P] with one for each client"
        if not isinstance(result, Tensor) or result.dim() not in (1, 2) or result.shape[-1:] != w.shape:
            say.fail(kind(result), f"{wanted}, P = {len(w)}")

    def direction(self, args: tuple[Any, ...], result: Any, say: Complaint) -> None:
        if not isinstance(result, Tensor) or result.dim() != 1 or (self.w is not None and result.shape != self.w.shape):
            size = "[P]" if self.w is None else f"[{len(self.w)}]"
            say.fail(kind(result), f"the direction {size} of the server's step{_REDUCE}")


def _checked_step(algo: Algorithm, prefix: str) -> Any:
    step = algo.step
    if not isinstance(step, Descent):
        check = _single_step if prefix == "setup." else _step
        return FirstCall(step, f"{prefix}step", check, {1: "the message", 2: "local"})
    extra, gradient = step.extra, step.gradient
    if extra is not None and not isinstance(extra, Pull | Shift):
        extra = FirstCall(extra, f"{prefix}extra", _extra, {0: "the message", 1: "local"})
    if gradient is not None:
        gradient = FirstCall(gradient, f"{prefix}gradient", _gradient, {1: "the message", 2: "local"})
    return replace(step, opt=_checked_optimizer(step.opt, f"{prefix}local optimizer"), extra=extra, gradient=gradient)


def _checked_trials(trials: Trials | None, prefix: str) -> Trials | None:
    if trials is None:
        return None
    return replace(trials, propose=FirstCall(trials.propose, f"{prefix}propose", _propose, {0: "server", 1: "uploads"}))


def _checked_update(update: Any, prefix: str, sizes: _Sizes) -> Any:
    if isinstance(update, Averaging):
        step = _checked_update(update.step, prefix, sizes)
        return Averaging(
            step, {k: FirstCall(f, f"{prefix}weights of {k!r}", _weights) for k, f in update.weights.items()}
        )
    if isinstance(update, ServerStep):
        direction = FirstCall(update.direction, f"{prefix}direction", sizes.direction, {0: "uploads"})
        update = replace(update, opt=_checked_optimizer(update.opt, f"{prefix}server optimizer"), direction=direction)
    return FirstCall(update, f"{prefix}update", _update, {0: "server", 1: "uploads"})


def _checked_optimizer(opt: Optimizer, role: str) -> Optimizer:
    """Return the optimizer; one of fedbench's own as it is, since an engine may know it."""
    return opt._replace(update=FirstCall(opt.update, role, _optimizer, {1: "its state"})) if is_own(opt.update) else opt


def _model(state: dict[str, Tensor], w: Tensor, say: Complaint, letters: str, remedy: str = "") -> None:
    if "w" not in state:
        say.fail(kind(state), f"an entry 'w': {letters}")
    say.like("'w'", state["w"], w, letters, remedy)


def _server_init(args: tuple[Any, ...], result: Any, say: Complaint) -> None:
    _model(say.state(result, "the server's state"), args[0], say, "the initial model [P]")


def _client_init(args: tuple[Any, ...], result: Any, say: Complaint) -> None:
    for key, v in say.state(result, "the state of one client").items():
        if v.dim() > 1:
            say.fail(f"{key!r} {kind(v)}", "a vector [P] or a number [1], of one client")


def _start(args: tuple[Any, ...], result: Any, say: Complaint) -> None:
    msg, _, info = args
    state, count = say.state(result, "the local variables"), len(info.id)
    if "w" not in state:
        say.fail(kind(state), "an entry 'w': the model that local steps start from, such as message['w']")
    for key, v in state.items():
        if v.dim() > 2 or (v.dim() == 2 and len(v) not in (1, count)):
            say.fail(f"{key!r} {kind(v)}", f"one for all clients, [P] or [1], or {_EACH} with C = {count}")
    w = state["w"]
    if w.shape[-1:] != msg["w"].shape or w.dtype != msg["w"].dtype:
        say.fail(f"'w' {kind(w)}", f"{kind(msg['w'])}, or the same for each client")


def _step(args: tuple[Any, ...], result: Any, say: Complaint) -> None:
    local = args[2]
    state = say.state(result, "the local variables")
    _model(state, local["w"], say, "the models of the clients at work, [A, P]")
    if missing := [k for k in local if k not in state]:
        say.fail(kind(state), f"{missing[0]!r} too, as start gave it; return {{**local, 'w': ...}}")
    _single_step(args, result, say)


def _single_step(args: tuple[Any, ...], result: Any, say: Complaint) -> None:
    """A step after which ``finish`` follows; it may drop what that does not need."""
    count = len(args[2]["w"])
    for key, v in say.state(result, "the local variables").items():
        if v.dim() < 1 or len(v) != count:
            say.fail(f"{key!r} {kind(v)}", f"one row per client at work, [A, ...] with A = {count}; {_ONE_FOR_ALL}")


def _finish(args: tuple[Any, ...], result: Any, say: Complaint) -> None:
    _, before, _, info = args
    if not isinstance(result, tuple) or len(result) != 2:
        say.fail(kind(result), "two dictionaries, (upload, client state): return {'delta': ...}, client")
    upload, after = say.state(result[0], "the upload"), say.state(result[1], "the client state")
    count = len(info.id)
    for key, v in upload.items():
        if v.dim() < 1 or len(v) != count:
            say.fail(f"{key!r} {kind(v)} in the upload", f"{_EACH} with C = {count}; {_ONE_FOR_ALL}")
    if after.keys() != before.keys():
        names = ", ".join(map(repr, before)) or "no entries, since client_init returns none"
        say.fail(f"a client state with {', '.join(map(repr, after)) or 'no entries'}", f"{names}")
    for key, v in after.items():
        say.like(f"{key!r} in the client state", v, before[key], _EACH)


def _personal_finish(args: tuple[Any, ...], result: Any, say: Complaint) -> None:
    _finish(args, result, say)
    if result[0]:
        say.fail(f"an upload {kind(result[0])}", "an empty one, {}, since a personal phase sends nothing")


def _update(args: tuple[Any, ...], result: Any, say: Complaint) -> None:
    before, state = args[0], say.state(result, "the server's state")
    _model(state, before["w"], say, "the model [P]", _REDUCE)
    if state.keys() != before.keys():
        names = ", ".join(map(repr, before))
        say.fail(f"{', '.join(map(repr, state))}", f"the entries of the state before, {names}: {{**server, 'w': ...}}")
    for key, v in state.items():
        if len(before[key].shape) and not len(before[key]):  # a table that begins without rows
            say.like(repr(key), v[:0], before[key], "a table with the columns that it had before")
        else:
            say.like(repr(key), v, before[key], "as it was before")


def _instruct(args: tuple[Any, ...], result: Any, say: Complaint) -> None:
    count = len(args[1].id)
    for key, v in say.state(result, "numbers for the clients").items():
        if v.shape != (count,):
            say.fail(f"{key!r} {kind(v)}", f"a number for each client of the cohort, [C] with C = {count}")


def _propose(args: tuple[Any, ...], result: Any, say: Complaint) -> None:
    w, v = args[0]["w"], say.state(result, "the models to measure").get("trials")
    if v is None or v.dim() != 2 or not len(v) or v.shape[1:] != w.shape or v.dtype != w.dtype:
        got = kind(result) if v is None else f"'trials' {kind(v)}"
        say.fail(got, f"an entry 'trials': models [J, P], P = {len(w)}, of the type of server['w']")


def _gradient(args: tuple[Any, ...], result: Any, say: Complaint) -> None:
    w = args[2]["w"]
    if not isinstance(result, Tensor):
        say.fail(kind(result), "a tensor [A, P], one vector per client at work")
    say.like("a tensor", result, w, "one vector [P] per client at work, [A, P]")


def _extra(args: tuple[Any, ...], result: Any, say: Complaint) -> None:
    w = args[1]["w"]
    if not isinstance(result, Tensor) or result.dtype != w.dtype or not _broadcasts(result, w):
        say.fail(kind(result), f"{kind(w)}, a term of the gradient for each client at work, [A, P]")


def _broadcasts(value: Tensor, wanted: Tensor) -> bool:
    return value.shape in (wanted.shape, wanted.shape[-1:], (1, *wanted.shape[-1:]))


def _optimizer(args: tuple[Any, ...], result: Any, say: Complaint) -> None:
    if not isinstance(result, tuple) or len(result) != 2 or not isinstance(result[0], Tensor):
        say.fail(kind(result), "(direction, the new entries of its state)")
    say.like("a direction", result[0], args[0], "as the gradient")
    say.state(result[1], "its state")


def _weights(args: tuple[Any, ...], result: Any, say: Complaint) -> None:
    count = len(args[1].id)
    if not isinstance(result, Tensor) or result.shape != (count,):
        say.fail(kind(result), f"the weights of the clients, [C] with C = {count}, such as cohort.p")


def _expose(args: tuple[Any, ...], result: Any, say: Complaint) -> None:
    if not isinstance(result, Tensor) or result.dim() != 2:
        say.fail(kind(result), "a vector per client of the cohort, [C, P]")


def _remarks(args: tuple[Any, ...], result: Any, say: Complaint) -> None:
    if not isinstance(result, list) or not all(isinstance(text, str) for text in result):
        say.fail(kind(result), "a list of sentences")
