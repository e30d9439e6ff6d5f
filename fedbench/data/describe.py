"""Description of a federated data set: its statistics and a plot of its labels."""

from pathlib import Path

import numpy as np
from scipy.special import entr

from fedbench.data.dataset import FederatedDataset


def label_counts(data: FederatedDataset) -> np.ndarray:
    """Count the examples of each class per client, [N, classes].

    Test examples are included unless all clients share them.
    """
    labels = data.y.numpy(force=True)
    if labels.ndim > 1:
        labels = labels[:, 0]  # the first label of each sequence
    counts = data.train.label_counts(labels, data.classes)
    if not data.central:
        counts += data.test.label_counts(labels, data.classes)
    return counts


def label_entropy(counts: np.ndarray) -> np.ndarray:
    """Return the label entropy of each client in nats, [N]; 0 for a client without examples."""
    entropy: np.ndarray = entr(_shares(counts)).sum(1)
    return entropy


def _shares(counts: np.ndarray) -> np.ndarray:
    """Return the class shares in each row of counts [N, classes]; all 0 in an empty row."""
    sizes = counts.sum(1, keepdims=True)
    shares: np.ndarray = counts / np.maximum(sizes, 1)
    return shares


def owned(data: FederatedDataset) -> int:
    """Return the number of examples on which clients train, are validated or are tested."""
    tests = data.test.counts
    number = data.train.counts.sum() + (tests[0] if data.central else tests.sum())
    if data.validation is not None:
        number += data.validation.counts.sum()
    return int(number)


def facts(data: FederatedDataset) -> dict[str, str]:
    """Return the facts about a data set, in the order in which they are printed."""
    train = data.train.counts
    test = data.test.counts
    sizes = train + test
    tests = f"{test.sum()} to test on"
    if data.central:
        sizes = train
        tests = f"{test[0]} to test on, the same for all clients"
    if data.validation is not None:
        tests = f"{data.validation.counts.sum()} to validate on, {tests}"
    untrained = (train == 0).sum()
    note = f", {untrained} without training examples" if untrained else ""
    dtype = str(data.x.dtype).removeprefix("torch.")
    entropy = label_entropy(label_counts(data)).mean()
    table = {
        "clients": f"{data.num_clients}{note}",
        "examples": (
            f"{owned(data)} ({train.sum()} to train on, {tests}); {len(data.y)} in the source"
        ),
        "shape": f"{list(data.shape)} {dtype}, {data.classes} classes",
        "per client": (
            f"mean {sizes.mean():.2f}, STD {sizes.std():.2f} (of the population), "
            f"least {sizes.min()}, median {np.median(sizes):g}, most {sizes.max()}"
        ),
        "labels": (
            f"entropy per client {entropy:.3f} nats on average; of {data.classes} even classes "
            f"it is {np.log(data.classes):.3f}"
        ),
    }
    for k, source in enumerate(data.sources, 1):
        table[f"source {k}"] = source
    return table


def draw_labels(data: FederatedDataset, path: Path, title: str) -> None:
    """Plot the share of each class in each client's examples, in colour-blind-safe colours."""
    from matplotlib import rc_context
    from matplotlib.colors import PowerNorm
    from matplotlib.figure import Figure

    shares = _shares(label_counts(data))
    with rc_context({"text.parse_math": False}):  # a name with two dollar signs is not a formula
        figure = Figure(figsize=(7, 5), layout="constrained")
        axes = figure.subplots()
        norm = PowerNorm(0.5, 0, 1)  # makes the share .016 of 62 equal classes visible
        image = axes.imshow(shares.T, aspect="auto", origin="lower", norm=norm)
        figure.colorbar(image, ax=axes, label="share of the client's examples")
        axes.set(xlabel="clients", ylabel="class", title=f"{title}: labels")
        figure.savefig(path, dpi=120)
