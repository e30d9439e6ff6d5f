"""Losses of the local steps that replace the cross-entropy."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from torch import Tensor

from fedbench.core.errors import WrongValue
from fedbench.core.types import Batch, ClientInfo, Outputs, State
from fedbench.core.validation import choice

OtherModel = Literal["broadcast", "previous"]
# (outputs of the model, outputs of the other models, batch, local variables, info) -> losses of the
# examples [A, B], or of the clients [A, 1]
Values = Callable[[Outputs, Mapping[str, Outputs], Batch, State, ClientInfo], Tensor]


@dataclass(frozen=True)
class Objective:
    """A loss of the local steps.

    The loss of a client is the mean of the values of the real examples in its batch, or the
    client's own value. It is differentiated through the model's own outputs; those of other models
    are constants. Measurements, evaluation and fine-tuning use the cross-entropy.

    Attributes:
        values: Computes the losses.
        models: Other models that see the same batch, as in an evaluation. "broadcast": the model
            from which the client started the round; "previous": the client's last local model, or,
            in its first round, the model from which it starts.
        features: Whether ``values`` acts through the features alone, besides the cross-entropy.
            They must then depend on parameters that are trained.
        class_counts: Whether ``values`` uses ``info.probe["labels"]`` [A, K], the number of the
            client's training examples of each class.
    """

    values: Values
    models: tuple[OtherModel, ...] = ()
    features: bool = False
    class_counts: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.models, tuple):
            raise WrongValue("models", f"must be a tuple of names, got {self.models!r}")
        for model in self.models:
            choice("models", model, get_args(OtherModel))


def cross_entropy(logits: Tensor, y: Tensor) -> Tensor:
    """Return the cross-entropy of every example, [..., B], in nats.

    Args:
        logits: Logits [..., B, K]; a class with the logit -∞ is left out.
        y: Labels [..., B].
    """
    of_label = logits.gather(-1, y.unsqueeze(-1)).squeeze(-1)
    return logits.logsumexp(-1) - of_label
