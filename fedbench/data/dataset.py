"""The federated data set: all examples, stored once, and each client's rows in each split."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedbench.core.randomness import DataPurpose, data_generator
from fedbench.core.types import to_device


@dataclass(frozen=True)
class Rows:
    """The rows of the examples that each client owns, client by client.

    Attributes:
        index: [M] int64 on the device, rows of ``FederatedDataset.x``.
        starts: [N] int64 on the host; client k owns index[starts[k]:starts[k] + counts[k]].
        counts: [N] number of rows of each client.
    """

    index: Tensor
    starts: np.ndarray
    counts: np.ndarray

    @classmethod
    def of(cls, owned: Sequence[np.ndarray]) -> Rows:
        """Build the rows from one array of row numbers per client."""
        counts = np.array([len(rows) for rows in owned])
        return cls.from_flat(np.concatenate(owned, dtype=np.int64), counts)

    @classmethod
    def from_flat(
        cls,
        index: np.ndarray,
        counts: np.ndarray,
    ) -> Rows:
        """Build the rows from the concatenated rows of all clients.

        Args:
            index: [M] int64 rows, client by client.
            counts: [N] number of rows of each client.
        """
        starts = np.cumsum(counts) - counts
        return cls(torch.from_numpy(index), starts, counts)

    @classmethod
    def shared(
        cls,
        rows: np.ndarray,
        clients: int,
    ) -> Rows:
        """Build rows that all clients share, stored once."""
        starts = np.zeros(clients, dtype=np.int64)
        counts = np.full(clients, len(rows))
        return cls(torch.from_numpy(rows), starts, counts)

    @property
    def owners(self) -> np.ndarray:
        """Client of each row in ``index``, [M], provided that no rows are shared."""
        clients = np.arange(len(self.counts))
        return np.repeat(clients, self.counts)

    def label_counts(
        self,
        y: np.ndarray,
        classes: int,
    ) -> np.ndarray:
        """Count the rows of each label y [T] per client, [N, classes]."""
        labels = y[self.index.numpy(force=True)]
        cells = self.owners * classes + labels
        counts = np.bincount(cells, minlength=len(self.counts) * classes)
        return counts.reshape(-1, classes)

    def split(self) -> list[np.ndarray]:
        """Return the rows of each client."""
        index = self.index.numpy(force=True)
        ends = self.starts + self.counts
        bounds = zip(self.starts, ends, strict=True)
        return [index[start:end] for start, end in bounds]

    def where(self, mask: np.ndarray) -> Rows:
        """Return the rows for which ``mask`` [T] is True."""
        kept = mask[self.index.numpy(force=True)]
        index = self.index[to_device(kept, self.index.device)]

        kept_before = np.append(0, np.cumsum(kept))  # number kept among the first 0, 1, ... rows
        starts = kept_before[self.starts]
        ends = kept_before[self.starts + self.counts]
        return Rows(index, starts, ends - starts)

    def divide(
        self,
        sizes: np.ndarray,
        shuffle: Callable[[int, np.ndarray], None],
    ) -> tuple[Rows, Rows]:
        """Return the first ``sizes`` [N] rows of each client after a shuffle, and the others.

        The rows of a client are in ascending order in both parts.

        Args:
            sizes: Number of rows of each client in the first part.
            shuffle: Function of a client's number and rows that shuffles the rows in place. It is
                called client by client.
        """
        index = self.index.numpy(force=True).copy()
        ends = self.starts + self.counts
        bounds = np.stack([self.starts, ends], axis=1).tolist()
        for client, (start, end) in enumerate(bounds):
            shuffle(client, index[start:end])

        cuts = np.repeat(self.starts + sizes, self.counts)
        in_rest = np.arange(len(index)) >= cuts
        order = np.lexsort((index, self.owners, in_rest))
        first, rest = np.split(index[order], [sizes.sum()])
        return (
            Rows.from_flat(first, sizes),
            Rows.from_flat(rest, self.counts - sizes),
        )

    def of_clients(self, ids: np.ndarray) -> Tensor:
        """Return the rows of the clients ``ids``, client by client in this order, [Σ n]."""
        everyone = np.array_equal(ids, np.arange(len(self.counts)))
        if everyone and len(self.index) == self.counts.sum():
            return self.index

        counts = self.counts[ids]
        shifts = self.starts[ids] - (np.cumsum(counts) - counts)
        positions = np.repeat(shifts, counts) + np.arange(counts.sum())
        chosen = to_device(positions, self.index.device)
        return self.index[chosen]

    def select(self, ids: np.ndarray) -> Rows:
        """Return the rows of the clients ``ids`` only."""
        index = self.of_clients(ids).numpy()
        return Rows.from_flat(index, self.counts[ids])

    def without(self, ids: np.ndarray) -> Rows:
        """Return the same rows for all clients but ``ids``, which have none."""
        counts = self.counts.copy()
        counts[ids] = 0
        others = np.flatnonzero(counts)
        starts = np.cumsum(counts) - counts
        return Rows(self.of_clients(others), starts, counts)

    def to(self, device: torch.device) -> Rows:
        """Return the same rows with their index moved to ``device``."""
        return replace(self, index=self.index.to(device))


@dataclass(frozen=True)
class FederatedDataset:
    """T examples on one device, and the clients that own them for training and testing.

    The data set is immutable: changing labels or owners creates a new one.

    Attributes:
        x: [T, ...]. uint8 images are normalised when read, one-dimensional integers are tokens and
            read as int64, and anything else is used unchanged.
        y: [T] int64 labels in [0, classes), or [T, length] with one label per token.
        train: The training rows of every client.
        test: The test rows of every client; a client may have none.
        tokens: Number of distinct tokens, or None if x does not contain tokens.
        vectors: Function that returns the embeddings of all tokens, [tokens, dimensions] float32.
        table: The embeddings, if the model reads vectors instead of tokens.
        validation: The rows of every client that are held out from ``train`` for validation; a
            client may have none. None if no rows are held out.
        central: Whether all clients have the same test rows.
        names: [N] names of the clients.
        classes: Number of classes.
        mean: Mean per channel, in units of the full range 255; for uint8 images only.
        std: Standard deviation per channel, in the same units; for uint8 images only.
        dtype: Type of the examples that ``features`` returns.
        sources: Descriptions of the origin of the examples, for the record of the run.
        unofficial: Entries of ``sources`` whose files differ from the published checksums.
    """

    x: Tensor
    y: Tensor
    train: Rows
    test: Rows
    names: tuple[str, ...]
    classes: int
    mean: Tensor | None = None
    std: Tensor | None = None
    dtype: torch.dtype = torch.float32
    sources: tuple[str, ...] = ()
    unofficial: tuple[str, ...] = ()
    central: bool = False
    tokens: int | None = None
    vectors: Callable[[], np.ndarray] | None = None
    table: Tensor | None = None
    validation: Rows | None = None

    @cached_property
    def class_counts(self) -> Tensor:
        """Number of training examples of each class per client, [N, classes], of ``dtype``."""
        labels = self.y.numpy(force=True)
        counts = self.train.label_counts(labels, self.classes)
        return to_device(counts, self.x.device, self.dtype)

    @property
    def num_clients(self) -> int:
        """Number of clients N."""
        return len(self.names)

    @property
    def shares_examples(self) -> bool:
        """Whether any example is a training example of several clients."""
        rows = self.train.index.numpy(force=True)
        return len(np.unique(rows)) < len(rows)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one example as read by the model."""
        stored = tuple(self.x.shape[1:])
        if self.table is None:
            return stored
        return (*stored, self.table.shape[1])

    def features(
        self,
        rows: Tensor,
        change: Callable[[Tensor], Tensor] | None = None,
        normalised: bool = False,
    ) -> Tensor:
        """Return the examples ``rows [...]`` as read by the model, [..., *shape] in ``dtype``.

        Args:
            rows: Rows of the examples.
            change: Function applied to the examples.
            normalised: Whether ``change`` takes normalised images instead of stored ones.
        """
        x = _take(self.x, rows)
        if change is not None and not normalised:
            x = change(x)
        if self.table is not None:
            return _take(self.table, x.long())
        if self.mean is None or self.std is None:
            if x.is_floating_point():
                return x
            return x.long()

        channels = (-1, *[1] * (len(self.shape) - 1))
        scale = 1 / (255 * self.std)
        shift = self.mean / self.std
        images = x.to(self.dtype)
        images.mul_(scale.view(channels))
        images.sub_(shift.view(channels))
        return change(images) if change is not None and normalised else images

    def labels(self, rows: Tensor) -> Tensor:
        """Return the labels of ``rows [...]``: [...], or [..., length] with one label per token."""
        return _take(self.y, rows)

    def relabelled(self, y: Tensor) -> FederatedDataset:
        """Return the data set with new labels [T]."""
        return replace(self, y=y)

    def to(
        self,
        device: torch.device,
        dtype: torch.dtype,
    ) -> FederatedDataset:
        """Return the data set on ``device``, with features of ``dtype``."""
        changes: dict[str, Any] = {"dtype": dtype}
        for name in (field.name for field in fields(self)):
            value = getattr(self, name)
            if isinstance(value, Rows):
                changes[name] = value.to(device)
            elif isinstance(value, Tensor):
                wanted = dtype if value.is_floating_point() else None
                changes[name] = value.to(device, wanted)
        return replace(self, **changes)


def _take(values: Tensor, rows: Tensor) -> Tensor:
    """Return the given rows [...] of values [T, ...], with shape [..., ...]."""
    chosen = values.index_select(0, rows.flatten())
    return chosen.view(*rows.shape, *values.shape[1:])


def with_validation(
    data: FederatedDataset,
    fraction: float,
    seed: int,
) -> FederatedDataset:
    """Hold out a fraction of every client's training examples; test examples are unchanged.

    A client with n training examples holds out int(fraction n) of them, drawn at random, and keeps
    at least one. A client's draw depends only on the seed, the client's number and n. If training
    labels are noisy, the labels of held-out examples are noisy too.

    Args:
        data: The data set, on the host.
        fraction: Fraction of the training examples to hold out, in [0, 1).
        seed: Random seed of the data.
    """
    n = data.train.counts
    most = np.maximum(0, n - 1)
    sizes = np.minimum(share_of(n, fraction), most)

    def shuffle(client: int, rows: np.ndarray) -> None:
        if sizes[client]:  # creating a generator takes longer than the rest
            rng = data_generator(seed, DataPurpose.VALIDATION, client)
            rng.shuffle(rows)

    held_out, train = data.train.divide(sizes, shuffle)
    return replace(data, train=train, validation=held_out)


def share_of(counts: np.ndarray, fraction: float) -> np.ndarray:
    """Return int(fraction n) for counts n [N]."""
    share = fraction * counts + 1e-9  # 0.7 * 10 is a little less than 7
    return share.astype(np.int64)
