"""Recurrent networks: long short-term memory (Hochreiter & Schmidhuber, 1997) over tokens."""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from fedbench.core.errors import RequestError
from fedbench.core.options import Count, HalfOpenUnit
from fedbench.core.randomness import dropout
from fedbench.models.base import ModelTraits
from fedbench.models.dense import apply_layers, linear_layers


class Layer(nn.LSTM):
    """One LSTM layer, [B, L, inputs] -> [B, L, hidden], from a state of zeros.

    If ``elementary`` is True, the recursion uses elementary operations, which can be vectorised
    over clients; otherwise it uses torch's fused kernel, which cannot.
    """

    elementary = False
    weight_ih_l0: Tensor
    weight_hh_l0: Tensor
    bias_ih_l0: Tensor
    bias_hh_l0: Tensor

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__(inputs, hidden, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]  # states stay inside
        """Return the output at every token."""
        if not self.elementary:
            out: Tensor = super().forward(x)[0]
            return out
        drive = x @ self.weight_ih_l0.T + (self.bias_ih_l0 + self.bias_hh_l0)
        h = c = torch.zeros_like(drive[:, 0, : self.hidden_size])
        outputs = []
        for t in range(x.shape[1]):
            gates = drive[:, t] + h @ self.weight_hh_l0.T
            i, f, g, o = gates.chunk(4, -1)
            kept = torch.sigmoid(f) * c
            c = kept + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
            outputs.append(h)
        return torch.stack(outputs, 1)


class LSTM(nn.Module):
    """Embedding, LSTM layers and linear layers.

    Args:
        input_shape: Shape of one example, (length,).
        classes: Number of classes.
        tokens: Number of different tokens.
        vectors: Embedding vectors of the tokens, [tokens, dimensions], or None if the data set has
            none.
        embedding: Dimensions of a learned embedding, "frozen" (lookup of the data set's vectors,
            which are not parameters), or "trained" (an embedding initialised with these vectors).
        hidden: Size of every LSTM layer.
        layers: Number of LSTM layers.
        dense: Sizes of the linear layers with ReLU before the output layer.
        dropout: Fraction of the values dropped in training, after the embedding and after every
            LSTM layer.
        every: Whether to return logits for every token instead of only for the last one.

    Raises:
        RequestError: If the examples are not tokens, the data set has no vectors, or a size is out
            of range.
    """

    def __init__(
        self,
        input_shape: Sequence[int],
        classes: int,
        tokens: int | None,
        vectors: Tensor | None,
        *,
        embedding: Literal["frozen", "trained"] | Count,
        hidden: Count,
        layers: Count,
        dense: Sequence[Count] = (),
        dropout: HalfOpenUnit = 0.0,
        every: bool = False,
    ) -> None:
        super().__init__()
        if tokens is None or len(input_shape) != 1:
            raise RequestError(
                f"this model needs tokens, got examples of shape {list(input_shape)}; "
                "use data=shakespeare, sent140 or wikitext2, or another model"
            )
        self.frozen = embedding == "frozen"
        if not isinstance(embedding, str):
            size = embedding
        elif vectors is None:
            raise RequestError(
                f"model.embedding={embedding}, but this data set has no vectors; give a size"
            )
        else:
            size = vectors.shape[1]
        if not self.frozen:
            self.embedding = nn.Embedding(tokens, size)
        inputs = [size, *[hidden] * (layers - 1)]
        self.lstms = nn.ModuleList(Layer(width, hidden) for width in inputs)
        self.dense = linear_layers([hidden, *dense, classes])
        self.dropout = dropout
        self.every = every
        begin = {}
        if embedding == "trained" and vectors is not None:
            begin["embedding.weight"] = vectors
        self.traits = ModelTraits(
            random=dropout > 0,
            per_token=every,
            begin=begin,
            table=vectors if self.frozen else None,
            # this gives blocks of 64 texts, which were the fastest
            work_values=input_shape[0] * max(hidden // 2, classes if every else 0),
        )

    def forward(self, x: Tensor, key: Tensor | None = None) -> Tensor:
        """Map tokens [B, L], or their vectors [B, L, D], to logits [B, classes] or [B, L, classes].

        Args:
            x: The examples.
            key: Integer key of the random draws of this training step. If None, dropout is off.
        """
        h = x if self.frozen else self.embedding(x)
        h = self._dropped(h, key, 0)
        for k, lstm in enumerate(self.lstms):
            h = self._dropped(lstm(h), key, k + 1)
        if not self.every:
            h = h[:, -1]
        return apply_layers(self.dense, h)

    def _dropped(self, h: Tensor, key: Tensor | None, place: int) -> Tensor:
        if key is None or not self.dropout:
            return h
        return dropout(h, self.dropout, key, place)
