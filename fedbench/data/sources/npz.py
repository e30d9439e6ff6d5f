"""The user's own arrays, from a NumPy archive."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fedbench.core.errors import RequestError
from fedbench.core.files import user_path
from fedbench.data.examples import Examples, are_finite, are_labels, count_of, per_channel
from fedbench.data.files.readers import read_npz

_KNOWN = ("x", "y", "owner", "names", "held_out")


def load(
    file: str,
    *,
    classes: int | None = None,
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
    arrays = _arrays(user_path("data.file", file))
    if arrays["x"].ndim and arrays["y"].ndim and len(arrays["x"]) != len(arrays["y"]):
        raise RequestError(
            f"{file}: x has {len(arrays['x'])} examples and y {len(arrays['y'])}; both must have the same"
        )
    x, y = _numbers(file, arrays["x"]), _labels(file, arrays["y"])
    if not len(y):
        raise RequestError(f"{file}: x and y have no examples; they must have the same number, at least 1")
    count = count_of(y, classes, file)
    owner, names = _owners(file, arrays, len(y))
    images = x.dtype == np.uint8
    if not images and (mean is not None or std is not None):
        raise RequestError(
            f"data.source.mean and data.source.std are for images of bytes; x in {file} is {x.dtype} {list(x.shape)}"
        )
    return Examples(
        x=x,
        y=y,
        classes=count,
        owner=owner,
        names=names,
        held_out=_held_out(file, arrays, len(y)),
        mean=per_channel("mean", mean, x.shape[1], 0.0) if images else None,
        std=per_channel("std", std, x.shape[1], 1.0) if images else None,
        sources=(f"NumPy archive: {file}",),
    )


def _arrays(path: Path) -> dict[str, np.ndarray]:
    if not path.is_file():
        raise RequestError(f"data.file={path} does not exist; it must be a .npz file with the arrays x and y")
    arrays = read_npz(path, _KNOWN)
    if missing := [k for k in ("x", "y") if k not in arrays]:
        optional = ", ".join(k for k in _KNOWN if k not in ("x", "y"))
        raise RequestError(f"{path} has no array {missing[0]}; it must contain x and y, and may contain {optional}")
    return arrays


def _numbers(file: str, x: np.ndarray) -> np.ndarray:
    if x.ndim < 1 or x.dtype.kind not in "biuf" or (len(x) and not x.size):
        raise RequestError(f"{file}: x must be real numbers of shape [T, ...], got {x.dtype} {list(x.shape)}")
    if x.dtype == np.uint8 and x.ndim == 4 and x.shape[3] in (1, 3) and x.shape[1] not in (1, 3):
        raise RequestError(
            f"{file}: x {list(x.shape)} looks like images with the channels last; store [T, channels, height, width]: "
            "x.transpose(0, 3, 1, 2)"
        )
    if x.dtype == np.uint8 and x.ndim == 3:  # grey
        return x[:, None]
    if x.dtype == np.int64 or (x.dtype == np.uint8 and x.ndim == 4):
        return x
    if not are_finite(x):
        raise RequestError(f"{file}: x contains values that are not finite numbers of 32 bits")
    x = x.astype(np.float32) if x.dtype != np.float64 else x
    return x[:, None] if x.ndim == 1 else x


def _labels(file: str, y: np.ndarray) -> np.ndarray:
    if y.ndim != 1 or y.dtype.kind not in "iuf" or not are_labels(y):
        raise RequestError(
            f"{file}: y must be integers >= 0 of shape [T], got {y.dtype} {list(y.shape)} {y.ravel()[:3]}"
        )
    return y.astype(np.int64)


def _owners(file: str, arrays: dict[str, np.ndarray], count: int) -> tuple[np.ndarray | None, tuple[str, ...]]:
    if "owner" not in arrays:
        if "names" in arrays:
            raise RequestError(f"{file} has names but no owner; add owner [T] or remove names")
        return None, ()
    owner = arrays["owner"]
    if owner.shape != (count,) or owner.dtype.kind not in "iuSU":
        raise RequestError(
            f"{file}: owner must be integers or words of shape [{count}], got {owner.dtype} {list(owner.shape)}"
        )
    if "names" not in arrays:
        found, place = np.unique(owner, return_inverse=True)
        return place.reshape(-1), tuple(_text(n) for n in found)
    names = tuple(_text(n) for n in arrays["names"].ravel())
    if owner.dtype.kind in "iu" and not len(names):
        raise RequestError(f"{file}: names must have at least one name")
    if owner.dtype.kind not in "iu" or owner.min() < 0 or owner.max() >= len(names) or len(set(names)) < len(names):
        raise RequestError(
            f"{file}: owner must be indices from 0 to {len(names) - 1} into names, and names must be distinct"
        )
    return owner.astype(np.int64), names


def _held_out(file: str, arrays: dict[str, np.ndarray], count: int) -> np.ndarray | None:
    held_out = arrays.get("held_out")
    if held_out is None:
        return None
    if held_out.shape != (count,) or not np.isin(held_out, (0, 1)).all():
        raise RequestError(
            f"{file}: held_out must be true or false, of shape [{count}], got {held_out.dtype} {list(held_out.shape)}"
        )
    return held_out.astype(bool)


def _text(name: object) -> str:
    return name.decode("utf-8", "replace") if isinstance(name, bytes) else str(name)
