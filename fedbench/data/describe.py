"""Describe a federated data set: its numbers, and pictures of its labels and examples."""

from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import entr

from fedbench.data.dataset import FederatedDataset

_GRID = (4, 10)  # clients and images of each in the picture of examples


def label_counts(data: FederatedDataset) -> np.ndarray:
    """Count the examples of each class per client, [N, classes]: training, and test unless it is central."""
    first_labels = data.y.numpy(force=True).reshape(len(data.y), -1)[:, 0]  # of sequences
    counts = data.train.label_counts(first_labels, data.classes)
    if not data.central:
        counts += data.test.label_counts(first_labels, data.classes)
    return counts


def label_entropy(counts: np.ndarray) -> np.ndarray:
    """Return the entropy of each client's labels in nats, [N]; 0 for a client without examples."""
    entropy: np.ndarray = entr(_shares(counts)).sum(1)
    return entropy


def _shares(counts: np.ndarray) -> np.ndarray:
    """Return the share of each class in each row of counts [N, classes]; 0 in a row without examples."""
    shares: np.ndarray = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    return shares


def owned(data: FederatedDataset) -> int:
    """Return the number of examples that clients train on or are tested on."""
    tests = data.test.counts
    return int(data.train.counts.sum() + (tests[0] if data.central else tests.sum()))


def facts(data: FederatedDataset) -> dict[str, str]:
    """Return the facts about a data set, in the order to print them."""
    train, test = data.train.counts, data.test.counts
    sizes = train if data.central else train + test
    tests = (
        f"{test[0]} to test on, the same for all clients"
        if data.central
        else f"{test.sum()} to test on"
    )
    entropy = label_entropy(label_counts(data)).mean()
    most_entropy = np.log(data.classes)
    untrained = (train == 0).sum()
    note = f", {untrained} without training examples" if untrained else ""
    spread = (
        f"mean {sizes.mean():.2f}, STD {sizes.std():.2f} (of the population), least {sizes.min()}"
    )
    dtype = str(data.x.dtype).removeprefix("torch.")
    table = {
        "clients": f"{data.num_clients}{note}",
        "examples": f"{owned(data)} ({train.sum()} to train on, {tests}); {len(data.y)} in the source",
        "shape": f"{list(data.shape)} {dtype}, {data.classes} classes",
        "per client": f"{spread}, median {np.median(sizes):g}, most {sizes.max()}",
        "labels": f"entropy per client {entropy:.3f} nats on average; of {data.classes} even classes it is "
        f"{most_entropy:.3f}",
    }
    return table | {f"source {k}": source for k, source in enumerate(data.sources, 1)}


def pictures(data: FederatedDataset, folder: Path, title: str) -> list[Path]:
    """Write ``labels.png`` (classes by clients), and ``examples.png`` of images; return their paths."""
    from matplotlib import rc_context

    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / "labels.png"]
    with rc_context({"text.parse_math": False}):  # a name with two dollar signs is no formula
        _draw_labels(label_counts(data), title).savefig(paths[0], dpi=120)
        if len(data.shape) == 3:
            paths.append(folder / "examples.png")
            _draw_images(data, title).savefig(paths[1], dpi=120)
    return paths


def _draw_labels(counts: np.ndarray, title: str) -> Any:
    """Draw the share of each class in each client's examples, in colours that the colour-blind can read."""
    from matplotlib.colors import PowerNorm
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 5), layout="constrained")
    axes = figure.subplots()
    norm = PowerNorm(0.5, 0, 1)  # makes the .016 of each of 62 even classes visible
    image = axes.imshow(_shares(counts).T, aspect="auto", origin="lower", norm=norm)
    figure.colorbar(image, ax=axes, label="share of the client's examples")
    axes.set(xlabel="clients", ylabel="class", title=f"{title}: labels")
    return figure


def _draw_images(data: FederatedDataset, title: str) -> Any:
    """Draw the first training images of the first clients, a row per client."""
    from matplotlib.figure import Figure

    rows, columns = _GRID
    trained = np.flatnonzero(data.train.counts)
    clients = trained[:rows]
    figure = Figure(figsize=(8, 3.6), layout="constrained")
    axes = figure.subplots(len(clients), columns, squeeze=False)
    for axis in axes.flat:
        axis.set(xticks=[], yticks=[], frame_on=False)
    for line, client in zip(axes, clients, strict=True):
        line[0].set_ylabel(data.names[client])
        for axis, row in zip(line, data.train.of_clients(np.array([client])), strict=False):
            channels = data.x[row].numpy(force=True)
            picture = channels.transpose(1, 2, 0) if len(channels) == 3 else channels[0]
            axis.imshow(picture, cmap="gray")
            axis.set_title(str(int(data.y[row])), fontsize=8, pad=2)
    figure.suptitle(f"{title}: first training images of {len(clients)} clients", fontsize=10)
    return figure
