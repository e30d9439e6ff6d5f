"""Types shared by all layers.

Shapes: N clients, C clients in the cohort of a round, A <= C clients that are still training, P
parameters, B examples in a batch. Δ_k = w - w_k is the pseudo-gradient of client k and always
points uphill.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Literal, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

State = dict[str, Tensor]
_PIECE = 2**22  # number of model values that are checked, or converted to float64, at once


class Batch(NamedTuple):
    """One batch for each of A clients. Rows with weight 0 are padding."""

    x: Tensor  # [A, B, ...]
    y: Tensor  # [A, B], or [A, B, L] for sequences with a label per token
    weight: Tensor  # [A, B]: 1 / (number of real examples) on real examples, 0 on padding
    # [A] int64: keys of the random draws of this training step; None if nothing is drawn
    key: Tensor | None = None
    step: int = 0  # index of the local step in the round, the same for all clients
    # whether BatchNorm normalises by the batch; gradients then have the running statistics after
    # the pass in their places, which are 0 otherwise
    training: bool = False


class Predictions(NamedTuple):
    """Outputs of a model on M training examples, client by client."""

    rows: Tensor  # [M] rows of the data set
    logits: Tensor  # [M, classes]
    y: Tensor  # [M]


class Outputs(NamedTuple):
    """Outputs of a model of each client on its batch."""

    logits: Tensor  # [A, B, classes]
    features: Tensor  # [A, B, D], the inputs of the model's head


# outputs of the clients' models -> losses of their examples [A, B], or of the clients [A, 1]
Loss = Callable[[Outputs], Tensor]


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
        loss: Loss | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Return the losses [A, 1] and the gradients [A, P]; of another loss, if one is given."""
        ...

    def logits(self, w: Tensor, x: Tensor) -> Tensor:
        """Return the logits [A, B, classes] of the examples x [A, B, ...]."""
        ...

    def outputs(self, w: Tensor, x: Tensor) -> Outputs:
        """Return the outputs on the examples x [A, B, ...], as in an evaluation."""
        ...

    def descend_(
        self,
        w: Tensor,
        batch: Batch,
        lr: Tensor,
    ) -> None:
        """Update w [A, P] in place to w - lr · ∇F_k(w; batch); lr [A, 1].

        An oracle that does not need the whole gradient at once can save its memory here.
        """
        w.addcmul_(lr, self.grad(w, batch), value=-1)


@dataclass(eq=False)
class OracleWrapper(Oracle):
    """An oracle that changes some answers of another one.

    Attributes:
        oracle: The other oracle.
    """

    oracle: Oracle

    def loss_and_grad(
        self,
        w: Tensor,
        batch: Batch,
        loss: Loss | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Return the losses [A, 1] and the gradients [A, P]; of another loss, if one is given."""
        return self.oracle.loss_and_grad(w, batch, loss)

    def logits(self, w: Tensor, x: Tensor) -> Tensor:
        """Return the logits [A, B, classes] of the examples x [A, B, ...]."""
        return self.oracle.logits(w, x)

    def outputs(self, w: Tensor, x: Tensor) -> Outputs:
        """Return the outputs on the examples x [A, B, ...], as in an evaluation."""
        return self.oracle.outputs(w, x)


@dataclass(frozen=True)
class ClientInfo:
    """Facts about each client of a cohort in one round.

    On the server, every tensor has shape [C] (a probed gradient [C, P]); client functions receive
    ``columns()``, with shape [C, 1].

    Attributes:
        id: Index of the client in the data set, int64.
        n: Number of training examples.
        p: Aggregation weight; the weights of a cohort sum to 1.
        steps: Number of local steps in this round, τ_k.
        lr: Learning rate of the local solver, η_l.
        per_epoch: Number of batches in a local epoch.
        key: Key of the client's random draws in this round, non-negative int64
            (``fedbench.core.randomness.fold_in``).
        probe: Measurements requested by the algorithm (``Algorithm.needs``).
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
        """Return the view for client functions: scalars as [C, 1], gradients unchanged."""
        return self._map(lambda v: v.unsqueeze(1) if v.dim() == 1 else v)

    def take(self, rows: Tensor | slice) -> ClientInfo:
        """Return the clients at positions ``rows``, in that order; a slice gives views."""
        return self._map(lambda v: v[rows])

    def _map(self, f: Callable[[Tensor], Tensor]) -> ClientInfo:
        tensors = {a.name: getattr(self, a.name) for a in fields(self)}
        probe = tensors.pop("probe")
        changed = {name: f(tensor) for name, tensor in tensors.items()}
        changed_probe = {name: f(tensor) for name, tensor in probe.items()}
        return ClientInfo(**changed, probe=changed_probe)


# ---- the functions of a method (fedbench.core.algorithm)

Need = Literal["loss", "grad", "accuracy", "loss_init", "loss_after", "accuracy_after"]
# ways in which the server step uses client uploads that are relevant to scenarios
# (docs/scenarios.md)
Kind = Literal[
    "numbers",  # the step uses numbers, such as losses or numbers of steps, or single updates
    "weights",  # the step weights the clients
    "every",  # the step needs every single vector
    "several",  # the step uses several vectors with different units
    "masks",  # uploads are masked
    "integrates",  # the server keeps a mean of client states that changes only by increments
    "replaces",  # uploads replace server values
    "moments",  # second moments are sent in both directions
    "moments down",  # second moments are only in the broadcast
    "equal steps",  # all clients must take the same number of steps
    "statistics",  # running statistics are averaged outside of the step
    "apart",  # uploads are not averaged
    "visits",  # each round visits a single client, and every client in turn
]

# (w [P], N) -> server state, which contains the model under "w"
ServerInit = Callable[[Tensor, int], State]
# w [P] -> state of one client; the loop stores the states of all clients as [N, ...]
ClientInit = Callable[[Tensor], State]
# server state -> everything that clients may know about the server in this round
Broadcast = Callable[[State], State]
# (message, client state, info) -> local variables, which contain the model under "w"
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
# (server state, client states [N, ...]) -> model to evaluate, [P], or one model per client, [N, P]
Deploy = Callable[[State, State], Tensor]
# (uploads [C, ...], client states after the round [C, ...]) -> a vector per client of the cohort,
# [C, P]
Expose = Callable[[State, State], Tensor]
# (oracle, message, local variables, batch, info) -> vector passed to the local solver, [C, P]
Gradient = Callable[[Oracle, State, State, Batch, ClientInfo], Tensor]
# (message, local variables, info) -> term added to the gradient of a batch, [C, P]
Extra = Callable[[State, State, ClientInfo], Tensor]
# (uploads [C, ...], cohort [C]) -> uphill direction passed to the server's optimizer, [P]
Direction = Callable[[State, ClientInfo], Tensor]
# (server state, cohort [C] with measurements at the broadcast model) -> client weights, [C]
Weighting = Callable[[State, ClientInfo], Tensor]
# (server state, cohort [C] with measurements at the broadcast model) -> numbers for the clients,
# [C] each, and possibly a model for each, "w" [C, P]
Instruct = Callable[[State, ClientInfo], State]
# (server state, uploads, cohort [C]) -> models to evaluate, "trials" [J, P], and by-products that
# ``update`` needs
Propose = Callable[[State, State, ClientInfo], State]
# (model w [P], clients [c], labels [T]) -> model outputs on all training examples of these clients
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

    On a CPU, the tensor may share the array's memory.

    The host does not wait for the GPU to finish earlier work. Pageable memory is staged before the
    call returns, so the array may then be changed or freed, and the copy is queued with the other
    operations on the device.
    """
    return torch.from_numpy(values).to(device, dtype, non_blocking=True)


def all_finite(models: Tensor) -> bool:
    """Return whether models [..., P] are finite, without a temporary tensor of the same size."""
    if bool(torch.isfinite(models.sum(-1)).all()):
        # a sum with NaN or an infinity is never finite, but the sum of large numbers may be
        # infinite
        return True
    pieces = models.reshape(-1).split(_PIECE)
    return all(bool(torch.isfinite(piece).all()) for piece in pieces)


def lengths(rows: Tensor) -> Tensor:
    """Return the Euclidean norms of rows [C, P] as [C] float64."""
    norms: Tensor = torch.linalg.vector_norm(rows, dim=1, dtype=torch.float64)
    return norms


def weighted_sum(weights: Tensor, values: Tensor) -> Tensor:
    """Return Σ ω_k v_k [..., P] in float64, ω [..., C] and v [C, P], in blocks of columns."""
    width = max(1, _PIECE // max(1, len(values)))
    blocks = values.split(width, 1)
    sums = [weights.double() @ block.double() for block in blocks]
    return torch.cat(sums, -1)
