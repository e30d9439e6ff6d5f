"""FedRoD (Chen and Chao, 2022): a shared model on the balanced loss, and second heads."""

from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor

from fedbench.algorithms.shared.reasons import PERSONAL
from fedbench.core.algorithm import (
    Algorithm,
    Descent,
    Weights,
    descent,
    server_descent,
    upload_with,
)
from fedbench.core.errors import RequestError
from fedbench.core.objective import cross_entropy
from fedbench.core.optim import Optimizer
from fedbench.core.options import Positive
from fedbench.core.types import Batch, ClientInfo, Oracle, Outputs, State


def fedrod(
    local: Optimizer,
    *,
    start: Literal["copy", "zero"] = "copy",
    server_lr: Positive = 1.0,
    weights: Weights = "size",
    layout: Mapping[str, slice] | None = None,
) -> Algorithm:
    """FedRoD: FedAvg on the balanced softmax; clients are judged with second heads of their own.

    Source: Chen and Chao, ICLR 2022, with linear heads; PFLlib's code where the paper is
    silent.

    The shared model is trained on CE(l + ln n_c), n_c the client's training examples of class c. On
    the same batch and from the same point, the client's second head V takes a plain step of SGD on
    CE(l + Vφ), l and φ being constants. A client's model has the sum of both heads.

    Args:
        local: The local solver of the shared model.
        start: Initial second heads: a "copy" of the initial head, or "zero".
        server_lr: Server step size η_g.
        weights: Weights p_k, by number of training examples ("size") or "uniform".
        layout: Places of the model's tensors and of its head in the vector w, set by the run. If
            None, the whole model is the head.

    Raises:
        RequestError: If the model does not declare its head, or the head is not trained.

    Identity: if every client has equally many examples of every class, the shared model is that of
    FedAvg.
    """
    places = {"head": slice(None)} if layout is None else layout
    if "head" not in places:
        raise RequestError(
            "fedrod has personal models already, by second heads beside the model's own, which "
            "must be declared, trained and shared"
        )
    head = places["head"]

    def step(
        oracle: Oracle,
        msg: State,
        variables: State,
        batch: Batch,
        info: ClientInfo,
    ) -> State:
        outputs: list[Outputs] = []

        def balanced(own: Outputs) -> Tensor:
            outputs.append(own)
            counts = info.probe["labels"].unsqueeze(1)
            return cross_entropy(own.logits + counts.log(), batch.y)

        _, g = oracle.loss_and_grad(variables["w"], batch, balanced)
        descend = Descent(local, gradient=lambda *_: g)
        new = descend(oracle, msg, variables, batch, info)

        own = outputs[0]
        d = _second_gradient(variables["second"], own.logits.detach(), own.features.detach(), batch)
        second = variables["second"] - info.lr * d
        return new | {"second": second}

    def deploy(server: State, clients: State) -> Tensor:
        second = clients["second"].to(server["w"].device)
        models = server["w"].repeat(len(second), 1)
        models[:, head] += second
        return models

    return Algorithm(
        **server_descent(lr=server_lr),
        client_init=lambda w: {
            "second": w[head] if start == "copy" else torch.zeros_like(w[head]),
        },
        start=descent(local, variables=lambda msg, client, info: client)["start"],
        step=step,
        finish=upload_with(),
        deploy=deploy,
        weights=weights,
        whole=PERSONAL,
        own_head="second",
        class_counts=True,
    )


def _second_gradient(
    second: Tensor,
    logits: Tensor,
    features: Tensor,
    batch: Batch,
) -> Tensor:
    """Return the gradients [A, |head|] of the losses CE(l + Vφ + a) by second heads (V, a).

    Args:
        second: The heads, V [K, D] and a [K] as a vector; without a if it has no place.
        logits: The logits l [A, B, K].
        features: The features φ [A, B, D].
        batch: The batch.
    """
    classes = logits.shape[2]
    inputs = features.shape[2]
    weight = second[:, : classes * inputs].unflatten(1, (classes, inputs))
    bias = second[:, classes * inputs :]
    added = features @ weight.mT
    if bias.shape[1]:
        added = added + bias.unsqueeze(1)

    label = torch.nn.functional.one_hot(batch.y, classes)
    d = (torch.softmax(logits + added, 2) - label) * batch.weight.unsqueeze(2)
    by_weight = (d.mT @ features).flatten(1)
    by_bias = d.sum(1)[:, : bias.shape[1]]
    return torch.cat([by_weight, by_bias], 1)
