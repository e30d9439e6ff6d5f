"""A data set written by ``save_to_disk`` of the library ``datasets``."""

import importlib
from collections.abc import Sequence
from functools import partial
from io import BytesIO
from typing import Any

import numpy as np
from PIL import Image, ImageOps

from fedbench.core.errors import RequestError, install_hint
from fedbench.core.files import reading, user_path
from fedbench.core.options import Count, Number, Positive
from fedbench.data.examples import Examples
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
    mean: Sequence[Number] | None = None,
    std: Sequence[Positive] | None = None,
) -> Examples:
    """Read one column as inputs and one as labels.

    Images are read as greyscale if the first image is greyscale, and as RGB otherwise. Numbers must
    have the same shape for all examples and are read as float32. Labels are non-negative integers,
    or words, which are numbered in alphabetical order.

    Args:
        root: Directory written by ``save_to_disk``, with one data set or several splits.
        x: Column of the inputs.
        y: Column of the labels.
        owner: Column with the client of every example, or None if a partition assigns the examples.
        train: Split of the training examples, if there are splits.
        test: Split of the held-out test examples. If None or missing in the data set, no examples
            are held out.
        size: Side in pixels of the square to which images are cropped and scaled. If None, all
            images must have the same size.
        mean: Mean per channel of images, in units of the full range. If None, 0.5.
        std: Standard deviation per channel of images, in the same units. If None, 0.5.

    Raises:
        RequestError: If the library is not installed, or the directory, a split, a column or its
            content is unsuitable.
    """
    parts = _splits(root, train, test)
    features = parts[0].features
    for column in (x, y, owner):
        if column is not None and column not in features:
            raise RequestError(
                f"{root} has no column {column}; its columns are {', '.join(features)}"
            )

    fields: dict[str, Any] = {}
    if owner is not None:
        clients = _column(parts, owner).astype(str)
        names, fields["owner"] = np.unique(clients, return_inverse=True)
        fields["names"] = tuple(names.tolist())
    if type(features[x]).__name__ == "Image":
        inputs = _images(parts, x, size)
        half = (0.5,) * inputs.shape[1]
        fields["mean"] = half if mean is None else mean
        fields["std"] = half if std is None else std
    else:
        inputs = _column(parts, x, np.float32)
        if inputs.ndim == 1:
            inputs = inputs[:, None]
    if len(parts) > 1:
        fields["held_out"] = np.arange(len(inputs)) >= len(parts[0])
    labels, classes = _labels(parts, y)
    sizes = " + ".join(str(len(part)) for part in parts)
    return Examples(
        x=inputs,
        y=labels,
        classes=classes,
        sources=(f"datasets directory: {root}, {sizes} examples",),
        **fields,
    )


def _splits(
    root: str,
    train: str,
    test: str | None,
) -> list[Any]:
    """Return the training split and, if it exists, the test split."""
    try:
        datasets = importlib.import_module("datasets")
    except ModuleNotFoundError as error:
        raise RequestError(
            f"data=huggingface needs the package datasets; run: {install_hint('hf')}"
        ) from error
    with reading(f"data.root={root}", "was not written by save_to_disk of datasets"):
        content = datasets.load_from_disk(str(user_path("data.root", root)))
    if not isinstance(content, dict):
        return [content]
    if train not in content:
        raise RequestError(f"data.source.train={train}: {root} has the splits {', '.join(content)}")
    if test is None or test == train or test not in content:
        return [content[train]]
    return [content[train], content[test]]


def _column(
    parts: Sequence[Any],
    name: str,
    dtype: type | None = None,
) -> np.ndarray:
    """Return the values of a column of words or numbers, [T, ...]."""
    with reading(f"the column {name}", "must have words, or numbers of one shape, or images"):
        columns = [part.with_format("numpy")[name][:] for part in parts]
        values = np.stack([value for column in columns for value in column])
        return values if dtype is None else values.astype(dtype)


def _labels(parts: Sequence[Any], name: str) -> tuple[np.ndarray, int]:
    """Return the labels [T] and the number of classes; words are numbered alphabetically."""
    values = _column(parts, name)
    if values.dtype.kind in "OSU":
        words, y = np.unique(values.astype(str), return_inverse=True)
        return y, len(words)
    integers = values.ndim == 1 and values.dtype.kind in "iub"
    if not integers or not len(values) or values.min() < 0:
        raise RequestError(
            f"data.source.y={name}: labels must be words or integers >= 0, got {values[:3]}"
        )
    count = int(values.max()) + 1
    declared = getattr(parts[0].features[name], "num_classes", 0)
    return values.astype(np.int64), max(count, declared)


def _images(
    parts: Sequence[Any],
    name: str,
    size: int | None,
) -> np.ndarray:
    """Return the images of a column at their original size, or cropped and scaled to a square."""
    files: list[dict[str, Any]] = []
    for part in parts:
        undecoded = type(part.features[name])(decode=False)
        files += part.cast_column(name, undecoded)[name]  # each is {"bytes": ..., "path": ...}
    index = {f"{name} of example {t}": file for t, file in enumerate(files)}

    def opened(label: str) -> Image.Image:
        file = index[label]
        if file["bytes"] is None:
            return open_image(file["path"])
        return open_image(BytesIO(file["bytes"]))

    if size is None:
        return decode([*index], None, None, opened=opened, remedy="set data.size")
    square = (size, size)
    fit = partial(ImageOps.fit, size=square, method=Image.Resampling.BILINEAR)
    return decode([*index], None, square, opened=opened, change=fit)
