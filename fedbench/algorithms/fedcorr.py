"""FedCorr."""

from importlib.util import find_spec
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

from fedbench.algorithms.shared.label_noise_estimation import (
    corrected,
    estimate_levels,
    nearly_clean,
    note_visit,
)
from fedbench.algorithms.shared.mixup import with_mixup
from fedbench.core.algorithm import Algorithm, Stage, descent
from fedbench.core.errors import RequestError, WrongValue, install_hint, typed
from fedbench.core.optim import Optimizer
from fedbench.core.options import Count, Natural, NonNegative, PositiveShare, UnitInterval
from fedbench.core.randomness import one_by_one, sample_cohort
from fedbench.core.types import Batch, ClientInfo, Gradient, Oracle, PredictFn, State

REVISION = 2
Changed: TypeAlias = tuple[State, State, Tensor]


def fedcorr(
    rounds: int,
    clients: int,
    local: Optimizer,
    *,
    iterations: Natural | None = None,
    rounds1: Natural | None = None,
    frac2: PositiveShare | None = None,
    relabel_ratio: UnitInterval = 0.5,
    confidence_thres: UnitInterval = 0.5,
    beta: NonNegative = 5.0,
    neighbours: Count = 20,
    mixup: bool = True,
    server: Algorithm | None = None,
) -> list[Stage]:
    """FedCorr: training after noisy clients are detected and their labels corrected.

    Source: Xu et al., CVPR 2022, Alg. 1; authors' code.

    Stage 1, repeated ``iterations`` times: the model visits every client once, one per round, with
    the local loss F_k + β μ_k ||w - w^t|| (not squared; the second term is omitted in the first
    batch of an epoch). The noise levels μ_k are then estimated from scores and losses
    (``shared.label_noise_estimation``). On each noisy client, confident examples among those with
    the μ_k n_k relabel_ratio largest losses are relabelled. Stage 2: ``rounds1`` rounds on clients
    with level <= 0.1, after which all confident examples of noisy clients are relabelled. Stage 3:
    the remaining rounds on all clients.

    Args:
        rounds: Total number of rounds of all stages.
        clients: Number of clients with training examples.
        local: The local solver.
        iterations: Number of iterations of stage 1. If None, as many as fit into half of the
            rounds, but at least 1.
        rounds1: Number of rounds of stage 2. If None, half of the rounds that remain after stage 1.
        frac2: Fraction of clients that take part in stages 2 and 3. If None, the run's
            participation.
        relabel_ratio: Fraction of the μ_k n_k examples that may be relabelled in stage 1.
        confidence_thres: Probability above which an example is confident.
        beta: Strength β of the pull in stage 1.
        neighbours: Number of neighbours for the local intrinsic dimension.
        mixup: Whether local steps use mixed examples, with weights from Beta(1, 1).
        server: The method of stages 2 and 3. If None, FedAvg.

    Identity: without iterations and mixup, FedCorr is the method of stages 2 and 3. Deviation:
    scores and losses are those of the server's model after a visit, which is the local model unless
    messages are compressed or clipped.
    """
    turns = max(1, rounds // 2 // clients) if iterations is None else iterations
    first = turns * clients
    second = max(0, rounds - first) // 2 if rounds1 is None else rounds1
    if first + second > rounds:
        raise RequestError(
            f"rounds={rounds} is too few for fedcorr: {turns} iterations of a round for each of "
            f"{clients} clients and rounds1={second} make {first + second}; raise rounds, "
            "or lower data.clients or algo.iterations"
        )
    sampler = None if frac2 is None else sample_cohort(frac2)
    _require_scikit_learn()

    def after_visit(
        t: int,
        ids: np.ndarray,
        server: State,
        client_states: State,
        y: Tensor,
        predict_fn: PredictFn,
    ) -> Changed:
        server = note_visit(server, ids, y, predict_fn, neighbours)
        if (t + 1) % clients == 0:  # end of an iteration
            server = estimate_levels(server, y, predict_fn)
            y = corrected(server, y, predict_fn, confidence_thres, relabel_ratio)
            if t + 1 == first and second == 0:
                y = corrected(server, y, predict_fn, confidence_thres)
            client_states = {
                **client_states,
                "mu": server["level"].unsqueeze(1).to(client_states["mu"].dtype),
            }
        return server, client_states, y

    def after_second(
        t: int,
        ids: np.ndarray,
        server: State,
        client_states: State,
        y: Tensor,
        predict_fn: PredictFn,
    ) -> Changed:
        if t + 1 == second:
            y = corrected(server, y, predict_fn, confidence_thres)
        return server, client_states, y

    def server_init(w: Tensor, num_clients: int) -> State:
        zeros = w.new_zeros(num_clients, dtype=torch.float64)
        return {"w": w, "lid": zeros, "level": zeros}

    visit = Algorithm(
        **descent(local, pulled_gradient(beta), variables=lambda msg, client, info: client),
        server_init=server_init,
        client_init=lambda w: {"mu": w.new_zeros(1)},
        kinds=("visits",),
    )
    if not isinstance(server, Algorithm | None):
        raise WrongValue(
            "server", f"must be null or a method with its _target_, got {typed(server)}"
        )
    later = server or Algorithm(**descent(local))
    if mixup:
        visit, later = with_mixup(visit), with_mixup(later)
    return [
        Stage(visit, first, one_by_one, after=after_visit),
        Stage(later, second, sampler, nearly_clean, after_second, keep=("level",)),
        Stage(later, rounds - first - second, sampler),
    ]


def _require_scikit_learn() -> None:
    """Report a missing package now rather than in the middle of a run; importing takes seconds."""
    if find_spec("sklearn") is None:
        hint = install_hint("fedcorr")
        raise RequestError(
            f"fedcorr needs the package scikit-learn, which is not installed; run: {hint}"
        )


def pulled_gradient(strength: float) -> Gradient:
    """Return the gradient of F_k(w) + strength · μ_k ||w - w^t|| (not squared).

    μ_k is the local variable "mu". The second term is omitted in the first batch of every epoch, as
    in the FedCorr authors' code.
    """

    def gradient(
        oracle: Oracle,
        msg: State,
        local: State,
        batch: Batch,
        info: ClientInfo,
    ) -> Tensor:
        apart = local["w"] - msg["w"]
        length = torch.linalg.vector_norm(apart, dim=-1, keepdim=True)
        weight = strength * local["mu"] * (batch.step % info.per_epoch > 0)
        pull = weight / torch.where(length > 0, length, 1.0) * apart
        return oracle.grad(local["w"], batch) + pull

    return gradient
