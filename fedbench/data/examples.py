"""What a source returns: examples, and the clients that own them where the data say so."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Examples:
    """T examples with labels.

    Attributes:
        x: [T, ...] float, uint8 images [T, channels, height, width], or integers [T, length]: tokens.
        y: [T] labels in [0, classes), or [T, length]: one label per token.
        classes: Number of classes.
        owner: [T] index of the client each example belongs to; None if a partition assigns the examples.
        names: Names of the clients, if ``owner`` is given.
        held_out: [T] True for the official test examples; None if the source has none.
        mean: Mean per channel, in units of the full range, for uint8 images.
        std: Standard deviation per channel, likewise.
        sources: What was read, for the record of the run.
        unofficial: Those of ``sources`` whose files differ from the published checksums.
        vocabulary: Returns the word, or the character, of every token; None if ``x`` holds no tokens.
        tokens: Number of different tokens; None means the largest token plus one, if ``x`` holds integers.
        vectors: Returns the embedding of every token, [tokens, dimensions] float32.
    """

    x: np.ndarray
    y: np.ndarray
    classes: int
    owner: np.ndarray | None = None
    names: tuple[str, ...] = ()
    held_out: np.ndarray | None = None
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    sources: tuple[str, ...] = ()
    unofficial: tuple[str, ...] = ()
    vocabulary: Callable[[], Sequence[str]] | None = None
    tokens: int | None = None
    vectors: Callable[[], np.ndarray] | None = None


def origin(name: str, genuine: bool) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the fields ``sources`` and ``unofficial`` of files that agree with the published checksums or do not."""
    note = f"{name}: {'official files' if genuine else 'not the official files (md5 differs)'}"
    return (note,), () if genuine else (note,)
