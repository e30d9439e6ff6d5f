"""What a source hands over: examples, and who they belong to where that is given by nature."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Examples:
    """T examples with labels.

    Attributes:
        x: [T, ...] float, uint8 images [T, channels, height, width], or whole numbers [T, length]: tokens.
        y: [T] labels in [0, classes), or [T, length]: one per token.
        classes: number of labels.
        owner: [T] index of the client each example belongs to; None if a partition has to say.
        names: of the clients, if ``owner`` is given.
        held_out: [T] True for the test examples that the source itself sets apart; None if it does not.
        mean: per channel, in units of the full range, for uint8 images.
        std: per channel, likewise.
        sources: what was read, for the record of the run.
        unofficial: The sentences of ``sources`` on files that are not the publisher's.
        vocabulary: makes the words, or the characters, that tokens number; None if ``x`` holds no tokens.
        tokens: number of different tokens; None is the largest one plus one, if ``x`` holds whole numbers.
        vectors: makes what tokens stand for, [tokens, dimensions] float32.
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
