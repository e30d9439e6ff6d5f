"""Describe a federated data set: its numbers, and pictures of its labels and examples."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch

from fedbench.data.dataset import FederatedDataset

_ROWS = 400  # most columns in the picture of labels: with more clients, neighbours share one
_GRID = (4, 10)  # example images, rows and columns


def label_counts(data: FederatedDataset) -> np.ndarray:
    """Count the examples of each class per client, [N, classes]: training, and test unless it is central."""
    counts = np.zeros((data.num_clients, data.classes), dtype=np.int64)
    y = data.y.numpy(force=True).reshape(len(data.y), -1)[:, 0]  # the first label of a sequence
    for rows in (data.train,) if data.central else (data.train, data.test):
        owner = np.repeat(np.arange(data.num_clients), rows.counts)
        np.add.at(counts, (owner, y[rows.index.numpy(force=True)]), 1)
    return counts


def label_entropy(counts: np.ndarray) -> np.ndarray:
    """The entropy of each client's labels in nats, [N]; 0 for a client without examples."""
    share = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    terms = np.where(share > 0, share * np.log(np.where(share > 0, share, 1)), 0)
    entropy: np.ndarray = -terms.sum(1)
    return entropy


def owned(data: FederatedDataset) -> int:
    """The number of examples that clients train on or are tested on."""
    train, test = data.train.counts, data.test.counts
    return int(train.sum() + (test[0] if data.central else test.sum()))


def facts(data: FederatedDataset) -> dict[str, str]:
    """The facts about a data set, in the order to print them."""
    train, test = data.train.counts, data.test.counts
    sizes = train if data.central else train + test
    tested, whose = (test[0], ", the same for all clients") if data.central else (test.sum(), "")
    entropy = label_entropy(label_counts(data))
    average = f"mean {sizes.mean():.2f}, STD {sizes.std():.2f} (of the population), least {sizes.min()}, "
    most = np.log(data.classes)
    idle = f", {(train == 0).sum()} without training examples" if (train == 0).any() else ""
    return {
        "clients": f"{data.num_clients}{idle}",
        "examples": f"{owned(data)} ({train.sum()} to train on, {tested} to test on{whose}); "
        f"{len(data.y)} in the source",
        "shape": f"{list(data.shape)} {str(data.x.dtype).removeprefix('torch.')}, {data.classes} classes",
        "per client": f"{average}median {np.median(sizes):g}, most {sizes.max()}",
        "labels": f"entropy per client {entropy.mean():.3f} nats on average, ln {data.classes} = {most:.3f}",
        **{f"source {k + 1}": source for k, source in enumerate(data.sources)},
    }


def pictures(data: FederatedDataset, folder: Path, title: str) -> list[Path]:
    """Write ``labels.png`` (classes by clients), and ``examples.png`` or ``examples.txt``; return their paths."""
    from matplotlib.figure import Figure  # late: it takes half a second

    folder.mkdir(parents=True, exist_ok=True)
    labels = folder / "labels.png"
    _label_picture(Figure(figsize=(7, 5), layout="constrained"), label_counts(data), title).savefig(labels, dpi=120)
    if len(data.shape) == 3:
        path = folder / "examples.png"
        _image_picture(Figure(figsize=(8, 3.6), layout="constrained"), data, title).savefig(path, dpi=120)
        return [labels, path]
    path = folder / "examples.txt"
    path.write_text("\n".join(_lines(data)) + "\n", encoding="utf-8")
    return [labels, path]


def _lines(data: FederatedDataset) -> list[str]:
    """The first training example and its label for some clients, spread over all; tokens as words."""
    able = np.flatnonzero(data.train.counts)
    chosen = able[np.linspace(0, len(able) - 1, min(_GRID[1], len(able))).astype(int)]
    rows = data.train.index[torch.from_numpy(data.train.starts[chosen])]
    known = data.vocabulary() if data.vocabulary else ()
    between = "" if all(len(word) == 1 for word in known) else " "

    def words(tokens: int | list[int]) -> str:
        return json.dumps(between.join(w for t in np.atleast_1d(tokens) if (w := known[t])), ensure_ascii=False)

    lines = []
    for k, x, y in zip(chosen, data.features(rows).tolist(), data.labels(rows).tolist(), strict=True):
        label = words(y) if known and data.classes == len(known) else y
        lines.append(f"{data.names[k]}: label {label}: {words(x) if known else x}")
    return lines


def _label_picture(figure, counts: np.ndarray, title: str):  # type: ignore[no-untyped-def]  # matplotlib has no stubs
    """Draw the share of each class in each client's examples, in colours that the colour-blind can read."""
    from matplotlib.colors import PowerNorm
    from matplotlib.ticker import MaxNLocator

    groups = np.array_split(counts, min(_ROWS, len(counts)))
    shown = np.stack([g.sum(0) for g in groups])
    share = shown / np.maximum(shown.sum(1, keepdims=True), 1)
    axes = figure.subplots()
    scale = {"cmap": "viridis", "norm": PowerNorm(0.5, 0, 1)}  # makes the .016 of each of 62 even classes visible
    image = axes.imshow(share.T, aspect="auto", interpolation="nearest", origin="lower", **scale)
    figure.colorbar(image, ax=axes, label="share of the client's examples")
    each = "" if len(groups) == len(counts) else f" (about {len(counts) / len(groups):.0f} to a column)"
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(integer=True))
    axes.set(xlabel=f"clients{each}", ylabel="class", title=f"{title}: labels")
    return figure


def _image_picture(figure, data: FederatedDataset, title: str):  # type: ignore[no-untyped-def]
    """Draw the first training images of some clients, spread over all: a row per client."""
    rows, columns = _GRID
    able = np.flatnonzero(data.train.counts)
    chosen = able[np.linspace(0, len(able) - 1, min(rows, len(able))).astype(int)]
    axes = figure.subplots(len(chosen), columns, squeeze=False)
    for axis in axes.flat:
        axis.axis("off")
    for line, k in zip(axes, chosen, strict=True):
        for axis, row in zip(line, data.train.of_clients(np.array([k]))[:columns], strict=False):
            picture = data.x[row].numpy(force=True)
            picture = picture if len(picture) == 3 else picture[:1]  # RGB, or the first channel
            span = max(float(picture.max() - picture.min()), 1e-12)
            scaled = picture if picture.dtype == np.uint8 else (picture - picture.min()) / span
            axis.imshow(np.moveaxis(scaled, 0, -1).squeeze(), cmap="gray")
            axis.set_title(str(int(data.y[row])), fontsize=8, pad=2)
        line[0].text(-0.15, 0.5, data.names[k], rotation=90, va="center", ha="right", transform=line[0].transAxes)
    figure.suptitle(f"{title}: first training images of {len(chosen)} clients", fontsize=10)
    return figure


def as_lines(table: Mapping[str, str]) -> str:
    """One aligned line per entry."""
    width = max(map(len, table))
    return "\n".join(f"{k:<{width}}  {v}" for k, v in table.items())
