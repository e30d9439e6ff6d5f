"""The user's own arrays, from a NumPy archive."""

from collections.abc import Callable, Sequence

import numpy as np

from fedbench.core.errors import RequestError, shown
from fedbench.core.files import user_path
from fedbench.core.options import Count, Number, Positive
from fedbench.data.examples import Examples, are_finite, are_labels, count_of
from fedbench.data.files.readers import read_npz

_KNOWN = ("x", "y", "owner", "names", "held_out")


def load(
    file: str,
    *,
    classes: Count | None = None,
    mean: Sequence[Number] | None = None,
    std: Sequence[Positive] | None = None,
) -> Examples:
    """Read a .npz file as ``numpy.savez`` or ``savez_compressed`` writes it.

    Its arrays: ``x`` [T, ...], images of bytes [T, channels, height, width] or [T, height, width],
    tokens (int64), or any other numbers, read as float32; ``y`` [T], labels from 0. For given
    clients: ``owner`` [T], the client of every example, as an index into ``names`` if that exists,
    or as any number or word. For held-out test examples: ``held_out`` [T], true for these.

    Args:
        file: The archive.
        classes: Number of classes; None means the largest label plus one.
        mean: Mean per channel of uint8 images, in units of the full range; None means 0.
        std: Standard deviation per channel, likewise; None means 1.

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
    labels = y.shape == x.shape[:1] and y.dtype.kind in "iuf" and are_labels(y)
    check("y", labels, f"integers >= 0 of shape [{len(x)}]")
    held_out = arrays.get("held_out")
    if held_out is not None:
        marks = held_out.shape == y.shape and np.isin(held_out, (0, 1)).all()
        check("held_out", marks, f"true or false, of shape [{len(y)}]")
        held_out = held_out.astype(bool)

    x = _inputs(file, x)
    if x.dtype != np.uint8 and (mean is not None or std is not None):
        raise RequestError(
            "data.source.mean and data.source.std are for images of bytes; "
            f"x in {file} is {x.dtype} {list(x.shape)}"
        )
    owner = arrays.get("owner")
    names: tuple[str, ...] = ()
    if owner is not None:
        owner, names = _owners(check, owner, arrays.get("names"), len(y))
    elif "names" in arrays:
        raise RequestError(f"{file} has names but no owner; add owner [T] or remove names")
    return Examples(
        x=x,
        y=y.astype(np.int64),
        classes=count_of(y, classes, file),
        owner=owner,
        names=names,
        held_out=held_out,
        mean=mean,
        std=std,
        sources=(f"NumPy archive: {file}",),
    )


def _inputs(file: str, x: np.ndarray) -> np.ndarray:
    """Return x as models read it: images with a dimension for channels, tokens, or floats."""
    if x.dtype == np.uint8 and x.ndim == 4 and x.shape[3] in (1, 3) and x.shape[1] not in (1, 3):
        raise RequestError(
            f"{file}: x {list(x.shape)} looks like images with the channels last; store "
            "[T, channels, height, width]: x.transpose(0, 3, 1, 2)"
        )
    if x.ndim == 1 or (x.dtype == np.uint8 and x.ndim == 3):  # numbers, or grey images
        x = x[:, None]
    images = x.dtype == np.uint8 and x.ndim == 4
    return x if images or x.dtype in (np.int64, np.float64) else x.astype(np.float32)


def _owners(
    check: Callable[..., None], owner: np.ndarray, names: np.ndarray | None, count: int
) -> tuple[np.ndarray, tuple[str, ...]]:
    """Return the client of each example and the names of the clients."""
    words = owner.shape == (count,) and owner.dtype.kind in "iuU"
    check("owner", words, f"integers or words of shape [{count}]")
    if names is None:
        names, owner = np.unique(owner, return_inverse=True)
    else:
        distinct = names.ndim == 1 and names.dtype.kind in "iuU" and len({*names}) == len(names)
        check("names", distinct, "distinct words, of shape [N]")
        indices = owner.dtype.kind in "iu" and 0 <= owner.min() <= owner.max() < len(names)
        check("owner", indices, f"indices from 0 to {len(names) - 1} into names")
    return owner.astype(np.int64), tuple(map(str, names.tolist()))
