"""A data set that ``save_to_disk`` of the library ``datasets`` has written; nothing is downloaded."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from functools import partial
from io import BytesIO
from typing import Any

import numpy as np
from PIL import Image, ImageOps

from fedbench.core.errors import RequestError, install_hint, nearest
from fedbench.core.files import reading, user_path
from fedbench.core.options import Count
from fedbench.data.examples import Examples, per_channel
from fedbench.data.files.readers import open_image
from fedbench.data.sources._images import decode


def load(
    root: str,
    *,
    x: str = "image",
    y: str = "label",
    owner: str | None = None,
    train: str = "train",
    test: str | None = "test",
    size: Count | None = None,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
) -> Examples:
    """Read one column as inputs and one as labels.

    Images are read as grey if the first one is, else as RGB. Numbers, of the same shape for all examples, are read as
    float32. Labels are integers from 0, or words, which are numbered in alphabetical order.

    Args:
        root: Directory that ``save_to_disk`` wrote: one data set, or several splits.
        x: Column of the inputs.
        y: Column of the labels.
        owner: Column with the client of every example; None if a partition assigns the examples.
        train: Split of the training examples, if there are splits.
        test: Split of the held-out test examples; None, or a split that does not exist, holds none out.
        size: Side in pixels that images are cropped and scaled to; None requires images of equal size.
        mean: Mean per channel of images, in units of the full range; None means 0.5.
        std: Standard deviation per channel, likewise; None means 0.5.

    Raises:
        RequestError: If the library is not installed, or the directory, a split, a column or its content does not fit.
    """
    parts = _parts(root, train, test)
    known = list(parts[0].column_names)
    for key, column in (("x", x), ("y", y), ("owner", owner)):
        if column is not None and column not in known:
            hint = nearest(column, known)
            raise RequestError(f"data.source.{key}={column}: {root} has the columns {', '.join(known)}{hint}")
    labels, classes = _labels(parts, y)
    names, place = np.unique(_column(parts, owner).astype(str), return_inverse=True) if owner else (np.array([]), None)
    images = type(parts[0].features[x]).__name__ == "Image"
    inputs = _images(parts, x, size) if images else _column(parts, x, np.float32)
    inputs, sizes = inputs[:, None] if inputs.ndim == 1 else inputs, [len(p) for p in parts]
    return Examples(
        x=inputs,
        y=labels,
        classes=classes,
        owner=None if place is None else place.reshape(-1),
        names=tuple(str(n) for n in names),
        held_out=np.repeat([False, True], sizes) if len(parts) > 1 else None,
        mean=per_channel("mean", mean, inputs.shape[1], 0.5) if images else None,
        std=per_channel("std", std, inputs.shape[1], 0.5) if images else None,
        sources=(f"datasets directory: {root}, {' + '.join(map(str, sizes))} examples",),
    )


def _parts(root: str, train: str, test: str | None) -> list[Any]:
    """The training split and, if it exists, the test split."""
    try:
        load_from_disk = importlib.import_module("datasets").load_from_disk
    except ModuleNotFoundError as error:
        raise RequestError(f"data=huggingface needs the package datasets; run: {install_hint('hf')}") from error
    with reading(f"data.root={root}", "was not written by save_to_disk of datasets"):
        found = load_from_disk(str(user_path("data.root", root)))
    if not isinstance(found, dict):
        return [found]
    if train not in found:
        raise RequestError(f"data.source.train={train}: {root} has the splits {', '.join(found)}")
    return [found[train], *([found[test]] if test in found and test != train else [])]


def _column(parts: Sequence[Any], name: str, kind: type | None = None) -> np.ndarray:
    """The values of a column of words or numbers, [T, ...]."""
    with reading(f"the column {name}", "must have words, or numbers of one shape, or images"):
        values = np.concatenate([np.stack(list(p.with_format("numpy")[name][:])) for p in parts])
        return values if kind is None else values.astype(kind)


def _labels(parts: Sequence[Any], name: str) -> tuple[np.ndarray, int]:
    values = _column(parts, name)
    if values.dtype.kind in "OSU":
        words, y = np.unique(values.astype(str), return_inverse=True)
        return y.reshape(-1), len(words)
    if values.ndim != 1 or values.dtype.kind not in "iub" or not len(values) or values.min() < 0:
        raise RequestError(f"data.source.y={name}: labels must be words or integers >= 0, got {values[:3]}")
    return values.astype(np.int64), max(int(values.max()) + 1, getattr(parts[0].features[name], "num_classes", 0))


def _images(parts: Sequence[Any], name: str, size: int | None) -> np.ndarray:
    raw: list[dict[str, Any]] = []
    for part in parts:  # undecoded: each is {"bytes": ..., "path": ...}
        raw += list(part.cast_column(name, type(part.features[name])(decode=False))[name])

    def opened(t: int) -> Image.Image:
        return open_image(BytesIO(raw[t]["bytes"]) if raw[t]["bytes"] is not None else raw[t]["path"])

    names = [f"{name} of example {t}" for t in range(len(raw))]
    if size is None:
        return decode(names, None, None, opened=opened, remedy="set data.size")
    fit = partial(ImageOps.fit, size=(size, size), method=Image.Resampling.BILINEAR)
    return decode(names, None, (size, size), opened=opened, change=fit)
