"""The user's own arrays, from a NumPy archive."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedbench.core.errors import RequestError
from fedbench.core.files import user_path
from fedbench.core.options import Count
from fedbench.data.examples import Examples, are_finite, are_labels, count_of, per_channel
from fedbench.data.files.readers import read_npz

_KNOWN = ("x", "y", "owner", "names", "held_out")


def load(
    file: str,
    *,
    classes: Count | None = None,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
) -> Examples:
    """Read a .npz file as ``numpy.savez`` or ``savez_compressed`` writes it.

    Its arrays: ``x`` [T, ...], images of bytes [T, channels, height, width] or [T, height, width], tokens (int64), or
    any other numbers, read as float32; ``y`` [T], labels from 0. For given clients: ``owner`` [T], the client of every
    example, as an index into ``names`` if that exists, or as any number or word. For held-out test examples:
    ``held_out`` [T], true for these.

    Args:
        file: The archive.
        classes: Number of classes; None means the largest label plus one.
        mean: Mean per channel of uint8 images, in units of the full range; None means 0.
        std: Standard deviation per channel, likewise; None means 1.

    Raises:
        RequestError: If an array is missing or invalid; the message names the array and the fault.
    """
    arrays = read_npz(user_path("data.file", file), _KNOWN)
    if missing := [k for k in ("x", "y") if k not in arrays]:
        raise RequestError(f"{file} has no array {missing[0]}; it must contain x and y, and may contain the others")
    x, y = _numbers(file, arrays["x"]), arrays["y"]
    if y.shape != (len(x),) or y.dtype.kind not in "iuf" or not len(y) or not are_labels(y):
        raise RequestError(
            f"{file}: y must be integers >= 0 of shape [{len(x)}] and not empty, got {y.dtype} {list(y.shape)} "
            f"{y.ravel()[:3]}"
        )
    y = y.astype(np.int64)
    owner, names = _owners(file, arrays, len(y))
    held_out = arrays.get("held_out")
    if held_out is not None and (held_out.shape != y.shape or not np.isin(held_out, (0, 1)).all()):
        got = f"{held_out.dtype} {list(held_out.shape)}"
        raise RequestError(f"{file}: held_out must be true or false, of shape [{len(y)}], got {got}")
    images = x.dtype == np.uint8
    if not images and (mean is not None or std is not None):
        raise RequestError(
            f"data.source.mean and data.source.std are for images of bytes; x in {file} is {x.dtype} {list(x.shape)}"
        )
    return Examples(
        x=x,
        y=y,
        classes=count_of(y, classes, file),
        owner=owner,
        names=names,
        held_out=None if held_out is None else held_out.astype(bool),
        mean=per_channel("mean", mean, x.shape[1], 0.0) if images else None,
        std=per_channel("std", std, x.shape[1], 1.0) if images else None,
        sources=(f"NumPy archive: {file}",),
    )


def _numbers(file: str, x: np.ndarray) -> np.ndarray:
    if x.ndim < 1 or x.dtype.kind not in "biuf" or (len(x) and not x.size) or not are_finite(x):
        raise RequestError(
            f"{file}: x must be finite real numbers of 32 bits and of shape [T, ...], got {x.dtype} {list(x.shape)}"
        )
    if x.dtype == np.uint8 and x.ndim == 4 and x.shape[3] in (1, 3) and x.shape[1] not in (1, 3):
        raise RequestError(
            f"{file}: x {list(x.shape)} looks like images with the channels last; store [T, channels, height, width]: "
            "x.transpose(0, 3, 1, 2)"
        )
    if x.dtype == np.uint8 and x.ndim == 3:  # grey
        return x[:, None]
    if x.dtype == np.int64 or (x.dtype == np.uint8 and x.ndim == 4):
        return x
    x = x if x.dtype == np.float64 else x.astype(np.float32)
    return x[:, None] if x.ndim == 1 else x


def _owners(file: str, arrays: dict[str, np.ndarray], count: int) -> tuple[np.ndarray | None, tuple[str, ...]]:
    owner, names = arrays.get("owner"), arrays.get("names")
    if owner is None:
        if names is not None:
            raise RequestError(f"{file} has names but no owner; add owner [T] or remove names")
        return None, ()
    if owner.shape != (count,) or owner.dtype.kind not in "iuSU":
        raise RequestError(
            f"{file}: owner must be integers or words of shape [{count}], got {owner.dtype} {list(owner.shape)}"
        )
    if names is None:
        names, owner = np.unique(owner, return_inverse=True)
    elif names.ndim != 1:
        raise RequestError(f"{file}: names must be of shape [N], got {list(names.shape)}")
    elif owner.dtype.kind not in "iu" or owner.min() < 0 or owner.max() >= len(names) or len({*names}) < len(names):
        raise RequestError(
            f"{file}: owner must be indices from 0 to {len(names) - 1} into names, and names must be distinct"
        )
    texts = (n.decode("utf-8", "replace") if isinstance(n, bytes) else str(n) for n in names.tolist())
    return owner.reshape(-1).astype(np.int64), tuple(texts)
