"""The federated data set: all examples once, and the rows that each client owns in each split.

Label noise and validation examples are changes to it; augmentation changes images as they are read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from fedbench.core.options import LabelNoise
from fedbench.core.randomness import DataPurpose, data_generator
from fedbench.core.types import upload


@dataclass(frozen=True)
class Rows:
    """The rows of the examples that each client owns, client by client.

    Attributes:
        index: [M] int64 on the device, rows of ``FederatedDataset.x``.
        starts: [N] int64 on the host; client k owns index[starts[k]:starts[k] + counts[k]].
        counts: [N] number of rows that each client owns.
    """

    index: Tensor
    starts: np.ndarray
    counts: np.ndarray

    @classmethod
    def of(cls, owned: Sequence[np.ndarray]) -> Rows:
        """Build rows from one array of row numbers per client."""
        counts = np.array([len(o) for o in owned], dtype=np.int64)
        index = np.concatenate([*owned, np.empty(0, dtype=np.int64)]).astype(np.int64, copy=False)
        return cls.cut(index, counts)

    @classmethod
    def cut(cls, index: np.ndarray, counts: np.ndarray) -> Rows:
        """Build rows from those of all clients, one after another, [M] int64, and the numbers of each, [N]."""
        return cls(torch.from_numpy(index), np.cumsum(counts) - counts, counts)

    @classmethod
    def shared(cls, rows: np.ndarray, clients: int) -> Rows:
        """Give every client the same rows, stored once."""
        zeros = np.zeros(clients, dtype=np.int64)
        return cls(torch.from_numpy(rows.astype(np.int64, copy=False)), zeros, zeros + len(rows))

    def split(self) -> list[np.ndarray]:
        """The rows of each client."""
        index = self.index.numpy(force=True)
        return [index[a : a + n] for a, n in zip(self.starts, self.counts, strict=True)]

    def where(self, mask: np.ndarray) -> Rows:
        """Those of the rows for which ``mask`` [T], by row, is True."""
        kept = mask[self.index.numpy(force=True)]
        before = np.concatenate([[0], np.cumsum(kept)])  # those that are kept of the first 0, 1, ... rows
        starts = before[self.starts]
        index = self.index[torch.from_numpy(kept).to(self.index.device)]
        return Rows(index, starts, before[self.starts + self.counts] - starts)

    def divided(self, sizes: np.ndarray, shuffle: Callable[[int, np.ndarray], None]) -> tuple[Rows, Rows]:
        """The first ``sizes`` [N] rows of each client after a shuffle, and the others, all in ascending order.

        Args:
            sizes: Number of rows in the first part.
            shuffle: Shuffles the rows of a client in place, given its number; called client by client.
        """
        index, owner = self.index.numpy(force=True).copy(), np.repeat(np.arange(len(sizes)), self.counts)
        for k, (start, n) in enumerate(zip(self.starts.tolist(), self.counts.tolist(), strict=True)):
            shuffle(k, index[start : start + n])
        first, span = np.arange(len(index)) < np.repeat(self.starts + sizes, self.counts), int(index.max(initial=0)) + 1
        parts = ((first, sizes), (~first, self.counts - sizes))
        cut, rest = (Rows.cut(np.sort(owner[m] * span + index[m]) % span, n) for m, n in parts)  # client by client
        return cut, rest

    def positions(self, ids: np.ndarray) -> np.ndarray:
        """The positions in ``index`` of the rows of the clients ``ids``, client by client in that order."""
        n = self.counts[ids]
        starts = np.repeat(self.starts[ids] - np.concatenate([[0], np.cumsum(n)[:-1]]), n)
        positions: np.ndarray = starts + np.arange(n.sum())
        return positions

    def of_clients(self, ids: np.ndarray) -> Tensor:
        """The rows of the clients ``ids``, client by client in that order, [Σ n]."""
        everyone = len(ids) == len(self.counts) and np.array_equal(ids, np.arange(len(ids)))
        if everyone and len(self.index) == self.counts.sum():
            return self.index
        return self.index[upload(self.positions(ids), self.index.device)]

    def to(self, device: torch.device) -> Rows:
        """The rows with the index on ``device``."""
        return replace(self, index=self.index.to(device))


@dataclass(frozen=True)
class FederatedDataset:
    """T examples on one device, and the clients that own them for training and for testing.

    Immutable: a change of labels or of owners is a new data set.

    Attributes:
        x: [T, ...]; uint8 images are normalised when they are read; integers of one dimension are tokens, read as
            int64; anything else is used as it is.
        y: [T] int64 labels in [0, classes), or [T, length]: one label per token.
        train: The training rows of every client.
        test: The test rows of every client; a client may have none.
        tokens: Number of different tokens; None if x holds no tokens.
        vectors: Returns the embedding of every token, [tokens, dimensions] float32.
        table: The embeddings, where the model reads vectors instead of tokens.
        validation: The rows of every client that are held out from training, apart from ``train``; a client may have
            none. None if none are held out.
        work_values: Number of values that the model computes for one example, if far larger than the example; else 0.
        central: Whether every client has the same test rows.
        names: [N] names of the clients.
        classes: Number of classes.
        mean: Mean per channel, in units of the full range 255; for uint8 images only.
        std: Standard deviation per channel, likewise.
        dtype: Type of what ``features`` returns.
        sources: What the examples were read from, for the record of the run.
        unofficial: Those of ``sources`` whose files differ from the published checksums.
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
    work_values: int = 0
    validation: Rows | None = None

    @property
    def num_clients(self) -> int:
        """Number of clients N."""
        return len(self.names)

    @property
    def shares_examples(self) -> bool:
        """Whether an example is a training example of several clients."""
        rows = self.train.index.numpy(force=True)
        return len(np.unique(rows)) < len(rows)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one example, as the model reads it."""
        own = tuple(self.x.shape[1:])
        return own if self.table is None else (*own, self.table.shape[1])

    def features(self, rows: Tensor, change: Callable[[Tensor], Tensor] | None = None) -> Tensor:
        """The examples ``rows [...]`` as the model reads them, [..., *shape] in ``dtype``.

        Args:
            rows: Rows of the examples.
            change: Function applied to the examples as they are stored.
        """
        x = self.x.index_select(0, rows.flatten()).view(*rows.shape, *self.x.shape[1:])
        x = x if change is None else change(x)
        if self.table is not None:
            return self.table.index_select(0, x.flatten().long()).view(*rows.shape, *self.shape)
        if self.mean is None or self.std is None:
            return x if x.is_floating_point() else x.long()
        side = (-1,) + (1,) * (len(self.shape) - 1)
        scale = 1 / (255 * self.std)
        return x.to(self.dtype).mul_(scale.view(side)).sub_((self.mean / self.std).view(side))

    def labels(self, rows: Tensor) -> Tensor:
        """The labels of ``rows [...]``; of sequences with a label per token [..., length]."""
        return self.y.index_select(0, rows.flatten()).view(*rows.shape, *self.y.shape[1:])

    def relabelled(self, y: Tensor) -> FederatedDataset:
        """The data set with other labels [T]."""
        return replace(self, y=y)

    def to(self, device: torch.device, dtype: torch.dtype) -> FederatedDataset:
        """The data set on ``device``, with features of ``dtype``."""
        x = self.x.to(device, dtype) if self.x.is_floating_point() else self.x.to(device)
        scale = [None if v is None else v.to(device, dtype) for v in (self.mean, self.std)]
        return replace(
            self,
            x=x,
            y=self.y.to(device),
            train=self.train.to(device),
            test=self.test.to(device),
            validation=None if self.validation is None else self.validation.to(device),
            mean=scale[0],
            std=scale[1],
            table=None if self.table is None else self.table.to(device, dtype),
            dtype=dtype,
        )


def with_label_noise(data: FederatedDataset, noise: LabelNoise, seed: int) -> tuple[FederatedDataset, np.ndarray]:
    """The data with noisy training labels, and the noise level of each client [N].

    Test labels are unchanged (Xu et al., CVPR 2022, Sec. 4.1; over the data's own number of classes).
    """
    rng = data_generator(seed, DataPurpose.LABEL_NOISE)
    count, rows = data.num_clients, data.train.index.numpy(force=True)
    level = np.where(rng.random(count) < noise.clients, rng.uniform(noise.level, 1, count), 0.0)
    y = data.y.numpy(force=True).copy()
    clean = y[rows]
    rate = np.repeat(level, data.train.counts).reshape(-1, *[1] * (clean.ndim - 1))  # per token for sequences
    hit = rng.random(clean.shape) < rate
    drawn = rng.integers(0, data.classes, clean.shape) if noise.kind == "uniform" else (clean + 1) % data.classes
    y[rows] = np.where(hit, drawn, clean)
    wrong = (y[rows] != clean).sum()
    note = f"label noise: {(level > 0).sum()} of {count} clients, {wrong} of {clean.size} training labels"
    noisy = data.relabelled(torch.from_numpy(y).to(data.y.device))
    return replace(noisy, sources=(*data.sources, note)), level


def with_validation(data: FederatedDataset, fraction: float, seed: int) -> FederatedDataset:
    """The data set with a fraction of every client's training examples held out; test examples stay.

    A client with n training examples holds out int(fraction n) of them, drawn at random, and keeps at least one. The
    draw of a client depends on the seed, on its number and on n alone. Where training labels are noisy, so are those
    of the held-out examples.

    Args:
        data: The data set, on the host.
        fraction: Fraction of the training examples to hold out, in [0, 1).
        seed: Random seed of the data.
    """
    n = data.train.counts
    # 0.7 * 10 is a little less than 7
    sizes = np.minimum((fraction * n + 1e-9).astype(np.int64), np.maximum(0, n - 1))

    def shuffle(client: int, rows: np.ndarray) -> None:
        if sizes[client]:  # a generator of its own takes longer than the rest
            data_generator(seed, DataPurpose.VALIDATION, client).shuffle(rows)

    held_out, train = data.train.divided(sizes, shuffle)
    return replace(data, train=train, validation=held_out)


@dataclass(frozen=True)
class Augmentation:
    """Augmentation of training images, as torchvision's RandomCrop with padding and RandomHorizontalFlip.

    Attributes:
        crop: Pixels of black padding on every side, before an image of the original size is cut out; 0 is none.
        flip: Whether images are mirrored with probability 1/2.
    """

    crop: int = 0
    flip: bool = False

    def __call__(self, x: Tensor, key: Tensor) -> Tensor:
        """The images x [..., C, H, W] augmented, each by its key [...], a non-negative int64."""
        images, keys = x.reshape(-1, *x.shape[-3:]), key.reshape(-1, 1)
        height, width = images.shape[2:]
        down, across = torch.arange(height, device=x.device), torch.arange(width, device=x.device)
        span = 2 * self.crop + 1
        mirrored = (keys // (span * span)) % 2 * self.flip
        rows = keys % span + down  # [n, H], in the padded image
        columns = (keys // span) % span + torch.where(mirrored == 1, width - 1 - across, across)  # [n, W]
        padded = F.pad(images, (self.crop,) * 4)
        n = torch.arange(len(images), device=x.device)[:, None, None]
        cut = padded[n, :, rows[:, :, None], columns[:, None, :]]  # [n, H, W, C]
        return cut.permute(0, 3, 1, 2).reshape(x.shape)
