"""Examples as a source returns them, with the clients that own them where the data say so."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from fedbench.core.errors import RequestError

_LARGEST = 2**53  # label; up to here floats and ints agree
_FEW = 1000  # classes that are accepted without data.classes


@dataclass(frozen=True)
class Examples:
    """T examples with labels.

    Attributes:
        x: [T, ...] float, uint8 images [T, channels, height, width], or integers [T, length]:
            tokens.
        y: [T] labels in [0, classes), or [T, length]: one label per token.
        classes: Number of classes.
        owner: [T] index of the client each example belongs to; None if a partition assigns the
            examples.
        names: Names of the clients, if ``owner`` is given.
        held_out: [T] True for the official test examples; None if the source has none.
        mean: Mean per channel, in units of the full range, for uint8 images; None means 0.
        std: Standard deviation per channel, likewise; None means 1.
        sources: What was read, for the record of the run.
        unofficial: Those of ``sources`` whose files differ from the published checksums.
        tokens: Number of different tokens; None means the largest token plus one, if ``x`` holds
            integers.
        vectors: Returns the embedding of every token, [tokens, dimensions] float32.
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
        """[T] True for the official test examples; all False if the source has none."""
        if self.held_out is None:
            return np.zeros(len(self.y), dtype=bool)
        return self.held_out


class Part(NamedTuple):
    """Examples of one client: x [n, ...], y [n].

    ``held_out`` is whether they are test examples; None if nothing says so.
    """

    name: str
    held_out: bool | None
    x: np.ndarray
    y: np.ndarray


def join(parts: Sequence[Part], **fields: Any) -> Examples:
    """Return the examples of all parts; clients are numbered by first appearance.

    Args:
        parts: The parts, of which some may be empty; either all or none say whether they are test
            examples.
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
    """Return names of ``count`` clients: the word and a number, padded so that they sort."""
    width = len(str(count - 1))
    return tuple(f"{word}_{k:0{width}d}" for k in range(count))


def keep(
    y: np.ndarray, classes: Sequence[int] | None, count: int
) -> tuple[np.ndarray, np.ndarray, int]:
    """Return the rows whose label is kept, their new labels, and the number of classes.

    Args:
        y: [T] labels in [0, count).
        classes: Labels to keep; the first becomes 0, the next 1, and so on. None keeps all
            unchanged.
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
    """Return whether the numbers y are non-negative integers and small enough to be labels."""
    in_range = (y >= 0) & (y <= _LARGEST)
    return bool((in_range & (y == np.floor(y))).all())


def are_finite(x: np.ndarray) -> bool:
    """Return whether the numbers x stay finite in float32, in which models compute."""
    if x.dtype.kind != "f":
        return True
    most = np.finfo(np.float32).max
    return bool((np.abs(x) <= most).all())


def count_of(y: np.ndarray, classes: int | None, where: str) -> int:
    """Return the number of classes: ``classes``, or the largest label plus one.

    Args:
        y: Labels: integers from 0, at least one of them.
        classes: Value of data.classes; None if not set.
        where: Origin of the labels, for messages.

    Raises:
        RequestError: If a label is not below ``classes``, or is implausibly large.
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
