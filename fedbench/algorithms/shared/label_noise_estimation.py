"""Estimation of wrong labels from model outputs (FedCorr, Xu et al., CVPR 2022; authors' code)."""

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from fedbench.core.types import PredictFn, State, to_device

_ROWS = 1024  # number of rows of the distance matrix computed at once


def mean_lid(outputs: Tensor, neighbours: int) -> Tensor:
    """Return the mean local intrinsic dimension of n softmax outputs [n, K].

    The result has shape [], float64; it is 0 for fewer than three outputs.

    The score of an example is -k / Σ_j ln(r_j / (r_k + 1e-6)), with the distances r_1 <= ... <= r_k
    to its k nearest neighbours and k = min(neighbours, n - 1). For k = 1, the ratio differs from 1
    only by the 1e-6, and the score is meaningless: it would be up to 1e6 times the distance and
    would rank a client with two examples above all others.
    """
    n = len(outputs)
    k = min(neighbours, n - 1)
    if k < 2:
        return outputs.new_zeros((), dtype=torch.float64)
    p = outputs.double()
    scores = []
    for start in range(0, n, _ROWS):
        part = p[start : start + _ROWS]
        distance = torch.cdist(part, p, compute_mode="donot_use_mm_for_euclid_dist")
        itself = torch.arange(start, start + len(part), device=p.device)
        to_others = distance.scatter(1, itself[:, None], torch.inf)
        nearest = to_others.topk(k, largest=False).values  # ascending
        ratios = nearest / (nearest[:, -1:] + 1e-6)
        scores.append(-k / ratios.log().sum(1))
    return torch.cat(scores).mean()


def note_visit(
    server: State,
    ids: np.ndarray,
    y: Tensor,
    predict_fn: PredictFn,
    neighbours: int,
) -> State:
    """Return the server state updated with the score and losses of the client just visited.

    "lid" [N] increases by the client's score; "loss" [T] receives the losses of its examples.
    """
    predictions = predict_fn(server["w"], ids, y)
    outputs = predictions.logits.softmax(1)
    score = mean_lid(outputs, neighbours).view(1)
    # softmax outputs are used as logits, as in the authors' code; only the order matters
    losses = F.cross_entropy(outputs.double(), predictions.y, reduction="none")
    none = y.new_zeros(len(y), dtype=torch.float64)
    loss = server.get("loss", none)
    visited = to_device(ids, y.device)
    return {
        **server,
        "lid": server["lid"].index_add(0, visited, score),
        "loss": loss.index_copy(0, predictions.rows, losses),
    }


def estimate_levels(
    server: State,
    y: Tensor,
    predict_fn: PredictFn,
) -> State:
    """Return the server state with "level" [N], the share of wrong labels of each client.

    A mixture of two Gaussians is fitted to the clients' scores, and the clients in its higher
    component are noisy; clients without a score (fewer than three examples) count as clean. A noisy
    client's level is the share of its losses in the higher component of a second mixture, fitted to
    these losses.
    """
    scores = server["lid"].numpy(force=True)
    able = np.flatnonzero(scores > 0)
    level = np.zeros(len(scores))
    for k in able[high_component(scores[able])]:
        client = np.array([k])
        rows = predict_fn(server["w"], client, y).rows
        losses = server["loss"][rows].numpy(force=True)
        level[k] = high_component(losses).mean()
    return {**server, "level": torch.from_numpy(level).to(server["lid"])}


def nearly_clean(server: State) -> np.ndarray:
    """Return a mask [N] of the clients with a noise level of at most 0.1."""
    low: np.ndarray = server["level"].numpy(force=True) <= 0.1
    return low


def corrected(
    server: State,
    y: Tensor,
    predict_fn: PredictFn,
    confidence: float,
    share: float | None = None,
) -> Tensor:
    """Return the labels [T], with confident examples of noisy clients relabelled by the model.

    Args:
        server: Server state: "w" is the predicting model, and "level" is above 0 for noisy clients.
        y: Labels [T].
        predict_fn: Evaluates the model on training examples.
        confidence: Probability above which a prediction is confident.
        share: Fraction of a client's n · level largest losses that may be corrected. If None, all
            examples may be corrected.
    """
    level = server["level"].numpy(force=True)
    for k in np.flatnonzero(level > 0):
        client = np.array([k])
        rows, logits, labels = predict_fn(server["w"], client, y)
        probability, prediction = logits.softmax(1).max(1)
        replaced = probability > confidence
        if share is not None:
            count = int(len(rows) * level[k] * share + 1e-9)
            losses = server["loss"][rows]
            order = torch.argsort(losses, descending=True, stable=True)
            largest = order[:count]
            replaced &= torch.zeros_like(replaced).index_fill(0, largest, True)
        new_labels = torch.where(replaced, prediction, labels)
        y = y.index_copy(0, rows, new_labels)
    return y


def high_component(values: np.ndarray) -> np.ndarray:
    """Return a mask of the values [n] in the higher component of a mixture of two Gaussians.

    The higher component is the one with the larger mean. With fewer than two distinct values, no
    value belongs to it.
    """
    if len(np.unique(values)) < 2:
        return np.zeros(len(values), dtype=bool)
    from sklearn.mixture import GaussianMixture  # imported late, because it takes seconds

    column = values.reshape(-1, 1)
    fitted = GaussianMixture(n_components=2, random_state=0).fit(column)
    higher = int(np.argmax(fitted.means_[:, 0]))
    high: np.ndarray = fitted.predict(column) == higher
    return high
