"""Describe a federated data set: its numbers, and pictures of its labels and examples."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

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
    tested = f"{test[0]} to test on, the same for all clients" if data.central else f"{test.sum()} to test on"
    entropy = label_entropy(label_counts(data))
    idle = f", {(train == 0).sum()} without training examples" if (train == 0).any() else ""
    spread = f"mean {sizes.mean():.2f}, STD {sizes.std():.2f} (of the population), least {sizes.min()}"
    return {
        "clients": f"{data.num_clients}{idle}",
        "examples": f"{owned(data)} ({train.sum()} to train on, {tested}); {len(data.y)} in the source",
        "shape": f"{list(data.shape)} {str(data.x.dtype).removeprefix('torch.')}, {data.classes} classes",
        "per client": f"{spread}, median {np.median(sizes):g}, most {sizes.max()}",
        "labels": f"entropy per client {entropy.mean():.3f} nats on average; of {data.classes} even classes it is "
        f"{np.log(data.classes):.3f}",
        **{f"source {k + 1}": source for k, source in enumerate(data.sources)},
    }


def pictures(data: FederatedDataset, folder: Path, title: str) -> list[Path]:
    """Write ``labels.png`` (classes by clients), and ``examples.png`` of images; return their paths."""
    from matplotlib import rc_context

    folder.mkdir(parents=True, exist_ok=True)
    with rc_context({"text.parse_math": False}):  # a name with two dollar signs is no formula
        drawn = {folder / "labels.png": _draw_labels(label_counts(data), title)}
        if len(data.shape) == 3:
            drawn[folder / "examples.png"] = _draw_images(data, title)
    for path, figure in drawn.items():
        figure.savefig(path, dpi=120)
    return list(drawn)


def _draw_labels(counts: np.ndarray, title: str) -> Any:
    """A figure of the share of each class in each client's examples, in colours that the colour-blind can read."""
    from matplotlib.colors import PowerNorm
    from matplotlib.figure import Figure

    groups = np.array_split(counts, min(_ROWS, len(counts)))
    shown = np.stack([g.sum(0) for g in groups])
    share = shown / np.maximum(shown.sum(1, keepdims=True), 1)
    figure = Figure(figsize=(7, 5), layout="constrained")
    axes = figure.subplots()
    norm = PowerNorm(0.5, 0, 1)  # makes the .016 of each of 62 even classes visible
    image = axes.imshow(share.T, aspect="auto", interpolation="nearest", origin="lower", cmap="viridis", norm=norm)
    figure.colorbar(image, ax=axes, label="share of the client's examples")
    each = "" if len(groups) == len(counts) else f" (about {len(counts) / len(groups):.0f} to a column)"
    axes.set(xlabel=f"clients{each}", ylabel="class", title=f"{title}: labels")
    return figure


def _draw_images(data: FederatedDataset, title: str) -> Any:
    """A figure of the first training images of some clients, a row per client."""
    from matplotlib.figure import Figure

    rows, columns = _GRID
    able = np.flatnonzero(data.train.counts)
    chosen = able[np.linspace(0, len(able) - 1, min(rows, len(able))).astype(int)]  # spread over all
    figure = Figure(figsize=(8, 3.6), layout="constrained")
    axes = figure.subplots(len(chosen), columns, squeeze=False)
    for line, k in zip(axes, chosen, strict=True):
        for axis, row in zip(line, data.train.of_clients(np.array([k])), strict=False):
            picture = data.x[row].numpy(force=True)
            rgb = np.moveaxis(picture, 0, -1) if len(picture) == 3 else picture[0]  # or the first channel
            axis.imshow(rgb, cmap="gray")
            axis.set_title(str(int(data.y[row])), fontsize=8, pad=2)
        line[0].text(-0.15, 0.5, data.names[k], rotation=90, va="center", ha="right", transform=line[0].transAxes)
        for axis in line:
            axis.axis("off")
    figure.suptitle(f"{title}: first training images of {len(chosen)} clients", fontsize=10)
    return figure
