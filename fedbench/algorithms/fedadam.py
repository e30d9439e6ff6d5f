"""FedAdam and related methods: adaptive server optimizers (Reddi et al., ICLR 2021), and FedAMS."""

from typing import Literal

from fedbench.core.algorithm import Algorithm, Weights, averaging_method
from fedbench.core.optim import Optimizer, adagrad, adam, amsgrad, yogi
from fedbench.core.options import HalfOpenUnit, NonNegative, Positive


def fedadagrad(
    local: Optimizer,
    *,
    server_lr: Positive = 0.1,
    beta1: HalfOpenUnit = 0.0,
    tau: Positive = 1e-3,
    v0: NonNegative | None = None,
    weights: Weights = "size",
) -> Algorithm:
    """FedAdagrad: Adagrad on d = Σ p_k Δ_k.

    Source: Reddi et al., ICLR 2021, Alg. 2.

    m <- β1 m + (1-β1) d; v <- v + d²; w <- w - η_g m / (√v + τ).

    Args:
        local: The local solver.
        server_lr: Server step size η_g.
        beta1: Decay β1 of the first moment; 0 in the paper's experiments.
        tau: Constant τ added to the denominator.
        v0: Initial value of v. If None, τ².
        weights: Weights p_k, by number of training examples ("size", as in the paper's experiments)
            or "uniform" (as printed in Alg. 2).

    Identity: the first step is η_g (1-β1) d / (√(v0 + d²) + τ).
    """
    server = adagrad(beta1, tau, v0)
    return averaging_method(local, server_lr, weights, server)


def fedadam(
    local: Optimizer,
    *,
    server_lr: Positive = 0.1,
    beta1: HalfOpenUnit = 0.9,
    beta2: HalfOpenUnit = 0.99,
    tau: Positive = 1e-3,
    v0: NonNegative | None = None,
    bias_correction: bool = False,
    eps_inside: bool = False,
    weights: Weights = "size",
) -> Algorithm:
    """FedAdam: Adam on d = Σ p_k Δ_k without bias correction, with v initially τ².

    Source: Reddi et al., ICLR 2021, Alg. 2.

    m <- β1 m + (1-β1) d; v <- β2 v + (1-β2) d²; w <- w - η_g m / (√v + τ). Two other methods have
    the same name: ``torch.optim.Adam`` on d (AdaFedAdam paper: server_lr=1e-3 beta2=.999 tau=1e-8
    v0=0 bias_correction=true) and τ inside the square root (AdaFed paper, Eqs. 28-30:
    eps_inside=true).

    Args:
        local: The local solver.
        server_lr: Server step size η_g.
        beta1: Decay β1 of the first moment.
        beta2: Decay β2 of the second moment.
        tau: Constant τ added to the denominator.
        v0: Initial value of v. If None, τ².
        bias_correction: Whether to use m/(1-β1^t) and v/(1-β2^t).
        eps_inside: Whether the denominator is √(v + τ) instead of √v + τ.
        weights: Weights p_k, by number of training examples ("size", as in the paper's experiments)
            or "uniform" (as printed in Alg. 2).

    Identity: with v0 = 0, bias_correction and τ = ε, the method is ``torch.optim.Adam`` with d as
    the gradient.
    """
    server = adam(beta1, beta2, tau, v0, bias_correction, eps_inside)
    return averaging_method(local, server_lr, weights, server)


def fedyogi(
    local: Optimizer,
    *,
    server_lr: Positive = 0.1,
    beta1: HalfOpenUnit = 0.9,
    beta2: HalfOpenUnit = 0.99,
    tau: Positive = 1e-3,
    v0: NonNegative | None = None,
    weights: Weights = "size",
) -> Algorithm:
    """FedYogi: Yogi on d = Σ p_k Δ_k, without bias correction.

    Source: Reddi et al., ICLR 2021, Alg. 2.

    m <- β1 m + (1-β1) d; v <- v - (1-β2) d² sign(v - d²); w <- w - η_g m / (√v + τ).

    Args:
        local: The local solver.
        server_lr: Server step size η_g.
        beta1: Decay β1 of the first moment.
        beta2: Decay β2 of the second moment.
        tau: Constant τ added to the denominator.
        v0: Initial value of v. If None, τ².
        weights: Weights p_k, by number of training examples ("size", as in the paper's experiments)
            or "uniform" (as printed in Alg. 2).

    Identity: once v equals d² in a coordinate, it keeps this value, because sign(0) = 0.
    """
    server = yogi(beta1, beta2, tau, v0)
    return averaging_method(local, server_lr, weights, server)


def fedams(
    local: Optimizer,
    *,
    server_lr: Positive = 0.1,
    beta1: HalfOpenUnit = 0.9,
    beta2: HalfOpenUnit = 0.99,
    tau: Positive = 1e-3,
    option: Literal[1, 2] = 1,
    bias_correction: bool = False,
    weights: Weights = "uniform",
) -> Algorithm:
    """FedAMS: Adam on d = Σ p_k Δ_k with a denominator that never decreases.

    Source: Wang, Lin & Chen, ICML 2022, Alg. 1.

    m <- β1 m + (1-β1) d; v <- β2 v + (1-β2) d², both initially 0. Option 1: v̂ <- max(v̂, v, τ),
    w <- w - η_g m / √v̂. Option 2 (FedAMSGrad, Tong et al.): v̂ <- max(v̂, v), w <- w - η_g m /
    (√v̂ + τ).

    Args:
        local: The local solver.
        server_lr: Server step size η_g.
        beta1: Decay β1 of the first moment.
        beta2: Decay β2 of the second moment.
        tau: The paper's ε; with option 1, a lower bound on v̂, so that √τ is the smallest
            denominator.
        option: Number of the option, 1 or 2.
        bias_correction: Whether to use m/(1-β1^t) and √v̂/√(1-β2^t), as in the authors' code but
            not in the paper.
        weights: Weights p_k, "uniform" (paper) or by number of training examples ("size").

    Identity: as long as no coordinate of v has decreased, option 2 is FedAdam with v0 = 0.
    """
    server = amsgrad(
        beta1,
        beta2,
        tau,
        floor_inside=option == 1,
        bias_correction=bias_correction,
    )
    return averaging_method(local, server_lr, weights, server)
