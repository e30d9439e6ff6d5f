"""The types that all layers share.

Shapes: N clients, C the cohort of a round, A <= C those still at work, P parameters, B examples of
a batch. Δ_k = w - w_k is the pseudo-gradient of client k and always points uphill.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Literal, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

State = dict[str, Tensor]
_PIECE = 2**22  # values of models that are checked, or turned into float64, at once


class Batch(NamedTuple):
    """One batch of each of A clients. Rows with weight 0 are padding."""

    x: Tensor  # [A, B, ...]
    y: Tensor  # [A, B], of sequences with a label per token [A, B, L]
    weight: Tensor  # [A, B]: 1 / (number of real examples) on real examples, 0 on padding
    # [A] int64: keys of the draws of this training step; None draws nothing
    key: Tensor | None = None
    step: int = 0  # number of the local step in the round, the same for all clients


class Predictions(NamedTuple):
    """The outputs of a model on M training examples, client by client."""

    rows: Tensor  # [M] rows of the data set
    logits: Tensor  # [M, classes]
    y: Tensor  # [M]


class Oracle(Protocol):
    """First-order information of A clients, each at its own model ``w [A, P]`` on its own batch.

    The loss of a client is the mean over the real examples of its batch.
    """

    def grad(self, w: Tensor, batch: Batch) -> Tensor:
        """Return the gradients [A, P]."""
        return self.loss_and_grad(w, batch)[1]

    def loss_and_grad(
        self,
        w: Tensor,
        batch: Batch,
    ) -> tuple[Tensor, Tensor]:
        """Return the losses [A, 1] and the gradients [A, P]."""
        ...

    def logits(self, w: Tensor, x: Tensor) -> Tensor:
        """Return the logits [A, B, classes] of the examples x [A, B, ...]."""
        ...

    def descend_(
        self,
        w: Tensor,
        batch: Batch,
        lr: Tensor,
    ) -> None:
        """Change w [A, P] into w - lr · ∇F_k(w; batch), in place; lr [A, 1].

        An oracle that does not need the whole gradient at once saves its memory.
        """
        w.addcmul_(lr, self.grad(w, batch), value=-1)


@dataclass(frozen=True)
class ClientInfo:
    """Facts about each client of a cohort in one round.

    On the server every tensor is [C] (a probed gradient [C, P]); client functions see
    ``columns()``: [C, 1].

    Attributes:
        id: Index of the client in the data set, int64.
        n: Number of training examples.
        p: Aggregation weight; the weights of a cohort sum to 1.
        steps: Number of local steps of this round, τ_k.
        lr: Learning rate of the local solver, η_l.
        per_epoch: Number of batches of a local epoch.
        key: Key of the client's own draws in this round, non-negative int64
            (``fedbench.core.randomness.fold_in``).
        probe: Measurements that the algorithm asked for (``Algorithm.needs``).
    """

    id: Tensor
    n: Tensor
    p: Tensor
    steps: Tensor
    lr: Tensor
    per_epoch: Tensor
    key: Tensor
    probe: State = field(default_factory=dict)

    def columns(self) -> ClientInfo:
        """Return the view for client functions: numbers as [C, 1], gradients unchanged."""
        return self._map(lambda v: v.unsqueeze(1) if v.dim() == 1 else v)

    def take(self, rows: Tensor | slice) -> ClientInfo:
        """Return the clients at positions ``rows``, in that order; those of a slice as views."""
        return self._map(lambda v: v[rows])

    def _map(self, f: Callable[[Tensor], Tensor]) -> ClientInfo:
        tensors = {a.name: getattr(self, a.name) for a in fields(self)}
        probe = tensors.pop("probe")
        changed = {name: f(tensor) for name, tensor in tensors.items()}
        changed_probe = {name: f(tensor) for name, tensor in probe.items()}
        return ClientInfo(**changed, probe=changed_probe)


# ---- the functions of a method (fedbench.core.algorithm)

Need = Literal["loss", "grad", "accuracy", "loss_init", "loss_after", "accuracy_after"]
# what the server's step does with what clients send, where scenarios have to know it
# (docs/scenarios.md)
Kind = Literal[
    "numbers",  # numbers, such as losses or numbers of steps, or single updates enter it
    "weights",  # it weighs the clients
    "every",  # it needs every vector by itself
    "several",  # several vectors of different units enter it
    "masks",  # uploads are masked
    "integrates",  # it keeps a mean of client states that only increments change
    "replaces",  # uploads replace values of the server
    "moments",  # second moments are sent in both directions
    "moments down",  # second moments are in the broadcast alone
    "equal steps",  # all clients have to take the same number of steps
    "visits",  # every client is visited once, alone
]

# (w [P], N) -> the server's state, which holds the model under "w"
ServerInit = Callable[[Tensor, int], State]
# w [P] -> the state of one client; the loop keeps the states of all clients as [N, ...]
ClientInit = Callable[[Tensor], State]
# server state -> everything that a client may know of the server in this round
Broadcast = Callable[[State], State]
# (message, client state, info) -> local variables, which hold the model under "w"
Start = Callable[[State, State, ClientInfo], State]
# one local step: (oracle, message, local variables, batch, info) -> local variables
Step = Callable[[Oracle, State, State, Batch, ClientInfo], State]
# (message, client state, local variables, info) -> (upload, client state)
Finish = Callable[[State, State, State, ClientInfo], tuple[State, State]]
# (server state, uploads [C, ...], client states [C, ...], cohort [C]) -> the uploads that arrive,
# new client states
Deliver = Callable[[State, State, State, ClientInfo], tuple[State, State]]
# (server state, uploads [C, ...], cohort [C]) -> server state
Update = Callable[[State, State, ClientInfo], State]
# (server state, client states [N, ...]) -> the model that clients are judged on, [P], or each
# client's own, [N, P]
Deploy = Callable[[State, State], Tensor]
# (uploads [C, ...], client states after the round [C, ...]) -> a vector per client of the cohort,
# [C, P]
Expose = Callable[[State, State], Tensor]
# (oracle, message, local variables, batch, info) -> the vector handed to the local solver, [C, P]
Gradient = Callable[[Oracle, State, State, Batch, ClientInfo], Tensor]
# (message, local variables, info) -> a term added to the gradient of a batch, [C, P]
Extra = Callable[[State, State, ClientInfo], Tensor]
# (uploads [C, ...], cohort [C]) -> the uphill direction handed to the server's optimizer, [P]
Direction = Callable[[State, ClientInfo], Tensor]
# (server state, cohort [C] with what is measured at the broadcast model) -> weights of the clients,
# [C]
Weighting = Callable[[State, ClientInfo], Tensor]
# (server state, cohort [C] with what is measured at the broadcast model) -> numbers for the
# clients, [C] each
Instruct = Callable[[State, ClientInfo], State]
# (server state, uploads, cohort [C]) -> models to measure, "trials" [J, P], and what ``update``
# needs of their making
Propose = Callable[[State, State, ClientInfo], State]
# (model w [P], clients [c], labels [T]) -> its outputs on all their training examples
PredictFn = Callable[[Tensor, np.ndarray, Tensor], Predictions]
# (round of the stage, cohort, server state, client states [N, ...], labels [T], predict_fn) -> new
# states and labels
After = Callable[[int, np.ndarray, State, State, Tensor, PredictFn], tuple[State, State, Tensor]]


def nbytes(tensors: Mapping[str, Tensor]) -> int:
    """Return the total size of the tensors in bytes."""
    return sum(v.numel() * v.element_size() for v in tensors.values())


def to_device(
    values: np.ndarray,
    device: torch.device,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """Return an array as a tensor on ``device``, of ``dtype`` if given.

    On a CPU it may share the array's memory.

    The host does not wait for a GPU to finish what it has been given: ordinary memory is staged
    before the call returns, so that the array may change or go away, and the copy takes its place
    among the operations on the device.
    """
    return torch.from_numpy(values).to(device, dtype, non_blocking=True)


def all_finite(models: Tensor) -> bool:
    """Return whether models [..., P] are finite, without a temporary tensor of their size."""
    if bool(torch.isfinite(models.sum(-1)).all()):
        # no sum is finite that has NaN or an infinity in it, but the sum of large numbers may be
        # infinite
        return True
    pieces = models.reshape(-1).split(_PIECE)
    return all(bool(torch.isfinite(piece).all()) for piece in pieces)


def lengths(rows: Tensor) -> Tensor:
    """Return the Euclidean norms of rows [C, P], [C] float64."""
    norms: Tensor = torch.linalg.vector_norm(rows, dim=1, dtype=torch.float64)
    return norms


def weighted_sum(weights: Tensor, values: Tensor) -> Tensor:
    """Return Σ ω_k v_k [..., P] in float64, ω [..., C] and v [C, P], in blocks of columns."""
    width = max(1, _PIECE // max(1, len(values)))
    blocks = values.split(width, 1)
    sums = [weights.double() @ block.double() for block in blocks]
    return torch.cat(sums, -1)
