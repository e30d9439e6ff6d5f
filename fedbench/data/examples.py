"""Examples as returned by a source, with their owners if the source names them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from fedbench.core.errors import RequestError

_LARGEST = 2**53  # largest label; up to this value, floats represent all integers exactly
_FEW = 1000  # maximum number of classes accepted without data.classes


@dataclass(frozen=True)
class Examples:
    """T examples with labels.

    Attributes:
        x: [T, ...] floats, uint8 images [T, channels, height, width], or integer tokens [T,
            length].
        y: [T] labels in [0, classes), or [T, length] with one label per token.
        classes: Number of classes.
        owner: [T] index of the client that owns each example, or None if a partition assigns the
            examples.
        names: Names of the clients, if ``owner`` is given.
        held_out: [T] True for the official test examples, or None if the source has none.
        mean: Mean per channel of uint8 images, in units of the full range. If None, 0.
        std: Standard deviation per channel of uint8 images, in the same units. If None, 1.
        sources: Descriptions of the origin of the examples, for the record of the run.
        unofficial: Entries of ``sources`` whose files differ from the published checksums.
        tokens: Number of distinct tokens. If None and ``x`` contains integers, the largest token
            plus one.
        vectors: Function that returns the embeddings of all tokens, [tokens, dimensions] float32.
    """

    x: np.ndarray
    y: np.ndarray
    classes: int
    owner: np.ndarray | None = None
    names: tuple[str, ...] = ()
    held_out: np.ndarray | None = None
    mean: Sequence[float] | None = None
    std: Sequence[float] | None = None
    sources: tuple[str, ...] = ()
    unofficial: tuple[str, ...] = ()
    tokens: int | None = None
    vectors: Callable[[], np.ndarray] | None = None

    @property
    def tested(self) -> np.ndarray:
        """Mask [T] of the official test examples; all False if the source has none."""
        if self.held_out is None:
            return np.zeros(len(self.y), dtype=bool)
        return self.held_out


class Part(NamedTuple):
    """Examples of one client: x [n, ...], y [n].

    ``held_out`` states whether they are test examples; it is None if the source does not say.
    """

    name: str
    held_out: bool | None
    x: np.ndarray
    y: np.ndarray


def join(parts: Sequence[Part], **fields: Any) -> Examples:
    """Return the examples of all parts; clients are numbered by first appearance.

    Args:
        parts: The parts; some may be empty. ``held_out`` is None in all parts or in none.
        fields: The other fields of the examples.
    """
    index: dict[str, int] = {}
    owners = [index.setdefault(part.name, len(index)) for part in parts]
    lengths = [len(part.y) for part in parts]
    marks = [part.held_out for part in parts]
    held_out = None
    if None not in marks:
        held_out = np.repeat(np.array(marks, dtype=bool), lengths)
    labels = np.concatenate([part.y for part in parts])
    inputs = [part.x for part in parts if len(part.y)]
    return Examples(
        x=np.concatenate(inputs),
        y=labels.astype(np.int64),
        owner=np.repeat(owners, lengths),
        names=tuple(index),
        held_out=held_out,
        **fields,
    )


def numbered(word: str, count: int) -> tuple[str, ...]:
    """Return names for ``count`` clients that sort in order: the word and a zero-padded number."""
    width = len(str(count - 1))
    return tuple(f"{word}_{k:0{width}d}" for k in range(count))


def keep(
    y: np.ndarray, classes: Sequence[int] | None, count: int
) -> tuple[np.ndarray, np.ndarray, int]:
    """Return the rows whose labels are kept, their new labels, and the number of classes.

    Args:
        y: [T] labels in [0, count).
        classes: Labels to keep; the first becomes 0, the next 1, and so on. If None, all labels are
            kept unchanged.
        count: Number of classes of the data set.

    Raises:
        RequestError: If ``classes`` is not a list of distinct labels of the data set.
    """
    if y.size and not 0 <= y.min() <= y.max() < count:
        raise RequestError(
            f"the files contain labels from {y.min()} to {y.max()}, expected 0 to {count - 1}"
        )
    if classes is None:
        return np.arange(len(y)), y, count

    distinct = {*classes}
    if not distinct or len(distinct) < len(classes) or not distinct <= {*range(count)}:
        raise RequestError(
            f"data.source.classes must be distinct labels from 0 to {count - 1}, such as [0,1], "
            f"or null for all; got {classes!r}"
        )
    new = np.full(count, -1)
    new[[*classes]] = np.arange(len(classes))
    rows = np.flatnonzero(new[y] >= 0)
    return rows, new[y[rows]], len(classes)


def are_labels(y: np.ndarray) -> bool:
    """Return whether the numbers y are non-negative integers small enough to be labels."""
    in_range = (y >= 0) & (y <= _LARGEST)
    return bool((in_range & (y == np.floor(y))).all())


def are_finite(x: np.ndarray) -> bool:
    """Return whether the numbers x are finite in float32, the type in which models compute."""
    if x.dtype.kind != "f":
        return True
    most = np.finfo(np.float32).max
    return bool((np.abs(x) <= most).all())


def count_of(y: np.ndarray, classes: int | None, where: str) -> int:
    """Return the number of classes: ``classes``, or the largest label plus one.

    Args:
        y: Labels: at least one non-negative integer.
        classes: Value of data.classes, or None if not set.
        where: Origin of the labels, for messages.

    Raises:
        RequestError: If a label is not below ``classes``, or if it is implausibly large.
    """
    count = int(y.max()) + 1
    if classes is not None:
        if classes < count:
            raise RequestError(
                f"data.classes={classes}, but {where} has the label {count - 1}; raise it or omit "
                "it"
            )
        return classes
    if count > _FEW:
        raise RequestError(
            f"{where} has the label {count - 1}; number labels from 0, and set data.classes if "
            f"there are more than {_FEW} classes"
        )
    return count
