"""Facts and pictures of a data set."""

import numpy as np
import pytest
import torch
from tools import federation

from fedbench.data.dataset import with_validation
from fedbench.data.describe import draw_labels, facts, label_counts, label_entropy


def labelled(sizes, tests, y):
    return federation(sizes=sizes, tests=tests).relabelled(torch.tensor(y))


def test_counts_and_entropy_by_hand():
    """Client 0: labels 0 0 1 and 1 to test on; client 1: 2 alone; the rest is ln 2 and 0."""
    data = labelled(
        (3, 1),
        (1, 0),
        [0, 0, 1, 1, 2],
    )
    counts = label_counts(data)
    assert counts.tolist() == [[2, 2, 0], [0, 0, 1]]
    assert label_entropy(counts) == pytest.approx([np.log(2), 0])


def test_facts_by_hand():
    data = facts(labelled((3, 1, 0), (1, 0, 0), [0, 0, 1, 1, 2]))
    assert data["clients"] == "3, 1 without training examples"
    assert data["examples"] == "5 (4 to train on, 1 to test on); 5 in the source"
    amounts = "mean 1.67, STD 1.70 (of the population), least 0, median 1, most 4"
    assert data["per client"] == amounts
    assert data["labels"].startswith("entropy per client 0.231 nats")  # ln 2 / 3


def test_validation_examples_are_counted():
    data = with_validation(federation(sizes=(10, 10), tests=(2, 2)), 0.2, seed=0)
    counted = "24 (16 to train on, 4 to validate on, 4 to test on); 24 in the source"
    assert facts(data)["examples"] == counted


def test_the_picture_shows_the_labels(tmp_path):
    """It is dark but where the client's only class is bright."""
    from matplotlib.image import imread

    data = labelled(
        (6, 6),
        (0, 0),
        [0] * 6 + [2] * 6,
    )
    draw_labels(data, tmp_path / "labels.png", r"a$\frac%$b")  # a name that is no formula
    red, green, blue, _ = np.moveaxis(
        imread(tmp_path / "labels.png"),
        -1,
        0,
    )
    assert len(red) == 600
    # the top of viridis
    bright = (red > 0.9) & (green > 0.85) & (blue < 0.3)
    assert 0.1 < bright.mean() < 0.5
