"""First-order optimizers as pairs of pure functions, shared by clients and server.

``update`` maps a gradient and a state to a direction and the optimizer's new state; the caller
takes the step w <- w - rate · direction. The state passed to ``update`` also contains the current
model under ``"w"``. All operations broadcast: w and g may be [P] (server) or [C, P] (a cohort).
"""

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from fedbench.core.errors import RequestError
from fedbench.core.options import SgdOptions
from fedbench.core.types import State

_ADAPTIVE = ("adaptive steps",)


class Optimizer(NamedTuple):
    """An optimizer: a pair of pure functions.

    ``init(w)`` returns a state. ``update(g, state)`` returns a direction and the new entries of the
    state.

    ``passes(τ)`` returns the change of w after τ steps along a constant gradient, in units of rate
    times gradient: the a_k of FedNova. It is None if the direction is not linear in the gradients.
    ``parts`` names the additions to a plain step: "momentum", "weight decay", "clipping", "adaptive
    steps". ``rule`` contains the options of an optimizer of the ``sgd`` family; None for others.
    """

    init: Callable[[Tensor], State]
    update: Callable[[Tensor, State], tuple[Tensor, State]]
    passes: Callable[[Tensor], Tensor] | None = None
    parts: tuple[str, ...] = ()
    rule: SgdOptions | None = None


SGD = Optimizer(
    init=lambda w: {},
    update=lambda g, s: (g, {}),
    passes=lambda tau: tau,
    rule=SgdOptions(),
)


def without(
    opt: Optimizer,
    method: str,
    reason: str,
    *parts: str,
) -> Optimizer:
    """Return ``opt`` if it uses none of ``parts``; by default, it must take plain steps.

    Raises:
        RequestError: If ``opt`` uses one of ``parts``; the message states the method, the
            incompatible setting and the reason.
    """
    remedies = {
        "momentum": "local.momentum=0",
        "weight decay": "local.weight_decay=0",
        "clipping": "local.clip_norm=null",
        "adaptive steps": "another local solver",
    }
    for part in parts or remedies:
        if part in opt.parts:
            raise RequestError(
                f"{method} cannot be combined with local {part}: {reason}; use {remedies[part]}"
            )
    return opt


def chain(first: Optimizer, then: Optimizer) -> Optimizer:
    """Return an optimizer that passes the direction of ``first`` to ``then`` as the gradient."""

    def update(g: Tensor, state: State) -> tuple[Tensor, State]:
        d, a = first.update(g, state)
        d, b = then.update(d, {**state, **a})
        return d, {**a, **b}

    rule = None
    if (
        first.rule
        and then.rule
        and not (first.rule.momentum or then.rule.clip_norm or then.rule.weight_decay)
    ):
        # ``sgd`` also applies clipping and decay before momentum
        rule = replace(first.rule, momentum=then.rule.momentum, nesterov=then.rule.nesterov)
    return Optimizer(
        lambda w: {**first.init(w), **then.init(w)},
        update,
        parts=first.parts + then.parts,
        rule=rule,
    )


def sgd(
    momentum: float = 0.0,
    nesterov: bool = False,
    weight_decay: float = 0.0,
    clip_norm: float | None = None,
) -> Optimizer:
    """Return SGD with the order of operations of ``torch.optim.SGD``: clip, decay, momentum.

    b <- ρ b + g (so b = g in the first step); the direction is b, or g + ρ b with ``nesterov``. For
    arguments and errors, see ``SgdOptions``.
    """
    rule = SgdOptions(momentum, nesterov, weight_decay, clip_norm)
    if not (momentum or weight_decay or clip_norm):
        return SGD

    def init(w: Tensor) -> State:
        return {"momentum": torch.zeros_like(w)} if momentum else {}

    def update(g: Tensor, state: State) -> tuple[Tensor, State]:
        if clip_norm is not None:
            length = torch.linalg.vector_norm(g, dim=-1, keepdim=True)
            # a length of 0 is safe: the factor is 1
            g = g * (clip_norm / length.clamp_min(clip_norm))
        if weight_decay:
            g = torch.add(g, state["w"], alpha=weight_decay)
        if not momentum:
            return g, {}
        b = torch.add(g, state["momentum"], alpha=momentum)
        d = torch.add(g, b, alpha=momentum) if nesterov else b
        return d, {"momentum": b}

    def passes(tau: Tensor) -> Tensor:
        # b_t = (1 - ρ^t)/(1 - ρ) under a constant unit gradient; a = Σ_{t=1}^τ b_t, and with
        # Nesterov Σ_{t=2}^{τ+1} b_t
        start = 1 if nesterov else 0
        # the subtraction below cancels: at ρ = 0.999, float32 would leave no correct digit
        m = tau.double() + start
        power_sum = momentum * (1 - momentum**m) / (1 - momentum)
        a = (m - power_sum) / (1 - momentum) - start
        return a.to(tau.dtype)

    named = {"momentum": momentum, "weight decay": weight_decay, "clipping": clip_norm}
    parts = tuple(name for name, value in named.items() if value)
    return Optimizer(init, update, passes, parts, rule)


def adam(
    beta1: float,
    beta2: float,
    tau: float,
    v0: float | None = 0.0,
    bias_correction: bool = False,
    eps_inside: bool = False,
) -> Optimizer:
    """Return Adam (Kingma & Ba, ICLR 2015, Alg. 1), with the variations known as FedAdam.

    m <- β1 m + (1-β1) g, v <- β2 v + (1-β2) g²; direction m̂ / (√v̂ + τ), or m̂ / √(v̂ + τ) with
    ``eps_inside``; m̂ = m/(1-β1^t), v̂ = v/(1-β2^t) with ``bias_correction``, else m and v.

    Args:
        beta1: Decay β1 of the first moment, in [0, 1).
        beta2: Decay β2 of the second moment, in [0, 1).
        tau: Constant τ > 0 in the denominator (ε in Adam).
        v0: Initial value of v. If None, τ².
        bias_correction: Whether to divide by 1-β^t, where t is the number of updates.
        eps_inside: Whether τ is inside the square root.
    """
    return _adaptive(
        beta1,
        beta2,
        tau,
        v0,
        lambda v, g2: beta2 * v + (1 - beta2) * g2,
        bias_correction,
        eps_inside,
    )


def adagrad(
    beta1: float,
    tau: float,
    v0: float | None,
) -> Optimizer:
    """Return Adagrad with momentum: m <- β1 m + (1-β1) g, v <- v + g²; direction m / (√v + τ).

    For arguments, see ``adam``.
    """
    return _adaptive(
        beta1,
        0.0,
        tau,
        v0,
        lambda v, g2: v + g2,
    )


def yogi(
    beta1: float,
    beta2: float,
    tau: float,
    v0: float | None,
) -> Optimizer:
    """Return Yogi (Zaheer et al., NeurIPS 2018): Adam with a different v, no bias correction.

    v <- v - (1-β2) g² sign(v - g²). For arguments, see ``adam``.
    """

    def grow(v: Tensor, g2: Tensor) -> Tensor:
        return v - (1 - beta2) * g2 * torch.sign(v - g2)

    return _adaptive(beta1, beta2, tau, v0, grow)


def _adaptive(
    beta1: float,
    beta2: float,
    tau: float,
    v0: float | None,
    grow: Callable[[Tensor, Tensor], Tensor],
    bias_correction: bool = False,
    eps_inside: bool = False,
) -> Optimizer:
    """Return an optimizer whose second moment follows v <- grow(v, g²)."""
    first = tau**2 if v0 is None else v0

    def init(w: Tensor) -> State:
        return {
            "m": torch.zeros_like(w),
            "v": torch.full_like(w, first),
            "t": counter(w),
        }

    def update(g: Tensor, state: State) -> tuple[Tensor, State]:
        m = beta1 * state["m"] + (1 - beta1) * g
        v = grow(state["v"], g.square())
        t = state["t"] + 1
        m_hat, v_hat = m, v
        if bias_correction:
            m_hat = m / _correction(beta1, t, g.dtype)
            v_hat = v / _correction(beta2, t, g.dtype)
        denominator = (v_hat + tau).sqrt() if eps_inside else v_hat.sqrt() + tau
        return m_hat / denominator, {"m": m, "v": v, "t": t}

    return Optimizer(init, update, parts=_ADAPTIVE)


def _correction(
    beta: float,
    t: Tensor,
    dtype: torch.dtype,
) -> Tensor:
    """Return 1 - β^t, [..., 1]."""
    return (1 - beta**t).to(dtype)


def counter(w: Tensor) -> Tensor:
    """Return a counter at 0, [..., 1] for w [..., P], in float64 like the powers of β."""
    return w.new_zeros(*w.shape[:-1], 1, dtype=torch.float64)


def amsgrad(
    beta1: float,
    beta2: float,
    tau: float,
    floor_inside: bool,
    bias_correction: bool = False,
) -> Optimizer:
    """Return AMSGrad: m, v as in Adam, from 0 without correction; the denominator never decreases.

    ``floor_inside``: v̂ <- max(v̂, v, τ), direction m / √v̂ (FedAMS, Wang, Lin & Chen, ICML 2022,
    option 1); otherwise v̂ <- max(v̂, v), direction m / (√v̂ + τ). ``bias_correction`` divides m by
    1-β1^t and √v̂ by √(1-β2^t).

    For the other arguments, see ``adam``.
    """

    def init(w: Tensor) -> State:
        zeros = torch.zeros_like(w)
        return {"m": zeros, "v": zeros, "v_max": zeros, "t": counter(w)}

    def update(g: Tensor, state: State) -> tuple[Tensor, State]:
        m = beta1 * state["m"] + (1 - beta1) * g
        v = beta2 * state["v"] + (1 - beta2) * g.square()
        v_max = torch.maximum(state["v_max"], v)
        t = state["t"] + 1
        if floor_inside:
            v_max = v_max.clamp_min(tau)
        m_hat = m
        root = v_max.sqrt()
        if bias_correction:
            m_hat = m / _correction(beta1, t, g.dtype)
            root = root / _correction(beta2, t, g.dtype).sqrt()
        denominator = root if floor_inside else root + tau
        return m_hat / denominator, {"m": m, "v": v, "v_max": v_max, "t": t}

    return Optimizer(init, update, parts=_ADAPTIVE)
