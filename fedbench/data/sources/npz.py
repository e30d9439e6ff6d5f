"""The user's arrays, from a NumPy archive."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from fedbench.core.errors import RequestError, shown
from fedbench.core.files import user_path
from fedbench.core.options import Count, Number, Positive
from fedbench.data.examples import Examples, are_finite, are_labels, count_of
from fedbench.data.files.readers import read_npz

_KNOWN = ("x", "y", "owner", "held_out")


def load(
    file: str,
    *,
    classes: Count | None = None,
    mean: Sequence[Number] | None = None,
    std: Sequence[Positive] | None = None,
) -> Examples:
    """Read a .npz file written by ``numpy.savez`` or ``savez_compressed``.

    The file contains ``x`` [T, ...]: byte images [T, channels, height, width] or [T, height,
    width], tokens (int64), or any other numbers, which are read as float32; and ``y`` [T], labels
    from 0. If the clients are given, it also contains ``owner`` [T], an integer or word that
    identifies each example's client. If test examples are held out, it contains ``held_out`` [T],
    true for these examples.

    Args:
        file: The archive.
        classes: Number of classes. If None, the largest label plus one.
        mean: Mean per channel of uint8 images, in units of the full range. If None, 0.
        std: Standard deviation per channel of uint8 images, in the same units. If None, 1.

    Raises:
        RequestError: If an array is missing or invalid; the message names the array and the fault.
    """
    arrays = read_npz(user_path("data.file", file), _KNOWN)
    for name in ("x", "y"):
        if name not in arrays:
            raise RequestError(
                f"{file} has no array {name}; it must contain x and y, and may contain the others"
            )

    def check(name: str, fits: object, expected: str) -> None:
        if not fits:
            array = arrays[name]
            values = shown(array.ravel()[:3].tolist())
            raise RequestError(
                f"{file}: {name} must be {expected}, got {array.dtype} {list(array.shape)} {values}"
            )

    x = arrays["x"]
    y = arrays["y"]
    real = x.ndim and x.size and x.dtype.kind in "biuf" and are_finite(x)
    check("x", real, "finite real numbers of 32 bits, of shape [T, ...] and not empty")
    shape = x.shape[:1]
    labels = y.shape == shape and y.dtype.kind in "iuf" and are_labels(y)
    check("y", labels, f"integers >= 0 of shape {list(shape)}")

    fields: dict[str, Any] = {}
    if "held_out" in arrays:
        held_out = arrays["held_out"]
        marks = held_out.shape == shape and np.isin(held_out, (0, 1)).all()
        check("held_out", marks, f"true or false, of shape {list(shape)}")
        fields["held_out"] = held_out.astype(bool)
    if "owner" in arrays:
        owner = arrays["owner"]
        words = owner.shape == shape and owner.dtype.kind in "iuU"
        check("owner", words, f"integers or words of shape {list(shape)}")
        names, fields["owner"] = np.unique(owner, return_inverse=True)
        fields["names"] = tuple(map(str, names.tolist()))

    x = _inputs(file, x)
    if x.dtype != np.uint8 and (mean is not None or std is not None):
        raise RequestError(
            "data.source.mean and data.source.std are for images of bytes; "
            f"x in {file} is {x.dtype} {list(x.shape)}"
        )
    return Examples(
        x=x,
        y=y.astype(np.int64),
        classes=count_of(y, classes, file),
        mean=mean,
        std=std,
        sources=(f"NumPy archive: {file}",),
        **fields,
    )


def _inputs(file: str, x: np.ndarray) -> np.ndarray:
    """Return x in the form that models read: images with a channel dimension, tokens, or floats."""
    grey = x.dtype == np.uint8 and x.ndim == 3
    if x.ndim == 1 or grey:
        x = x[:, None]
    if x.dtype == np.uint8 and x.ndim == 4:
        _, first, _, last = x.shape
        if last in (1, 3) and first not in (1, 3):
            raise RequestError(
                f"{file}: x {list(x.shape)} looks like images with the channels last; store "
                "[T, channels, height, width]: x.transpose(0, 3, 1, 2)"
            )
        return x
    if x.dtype in (np.int64, np.float64):
        return x
    return x.astype(np.float32)
