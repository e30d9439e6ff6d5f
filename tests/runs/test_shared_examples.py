"""Clients that share examples (``as_published``): changes of their labels are refused."""

import numpy as np
import pytest
from command_line import meta_of

SHARED = (
    "data/partition=consecutive_classes",
    "data.partition.as_published=true",
    "data.partition.mu=2",
)


@pytest.fixture
def npz(tmp_path):
    """Three classes of 60 points."""
    y = np.repeat([0, 1, 2], 60)
    x = np.random.default_rng(0).normal(size=(180, 4)).astype(np.float32) + y[:, None]
    np.savez(tmp_path / "d.npz", x=x, y=y)
    return (
        "data=npz",
        f"data.file={tmp_path / 'd.npz'}",
        "data.clients=6",
        "model=linear",
        "local.lr=0.1",
        "rounds=2",
    )


def test_a_run_says_that_clients_share_examples(train, npz):
    notes = meta_of(train("algo=fedavg", *npz, *SHARED))["sources"]
    assert any("shared by clients: " in note for note in notes)


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        (
            ("algo=fedavg", "data.noise.clients=0.5"),
            "data.noise needs examples that belong to one client each",
        ),
        (
            ("algo=fedcorr", "rounds=8"),
            "fedcorr relabels examples by their losses, and some belong to several clients",
        ),
    ],
)
def test_what_changes_labels_is_refused(refuse, train, npz, extra, message):
    err = refuse(*npz, *extra, *SHARED)
    assert message in err
    assert "data.partition.as_published=false" in err
    train(*npz, *extra, SHARED[0], SHARED[2])
