"""Losses that a method and the evaluation share: results do not depend on their cadence."""

import pytest
from command_line import FAST, interrupted, model_of, rows_without_clocks

LONG = [FAST[0], "rounds=7", "participation=1.0"]
METHODS = [
    ["algo=adafedadam"],  # gradients
    ["algo=qfedavg", "engine.mode=loop", "participation=0.5", "improved_clients=true"],
]


def files(path):
    """The rows without the clocks, and the bytes of the model."""
    return rows_without_clocks(path), model_of(path)


@pytest.mark.parametrize("method", METHODS)
def test_the_model_does_not_depend_on_the_cadence(train, method):
    every, third, seldom = (
        files(train(*LONG, *method, cadence, f"results_dir={cadence}"))
        for cadence in ("eval_train_every=1", "eval_train_every=3", "eval_every=4")
    )
    assert every[1] == third[1] == seldom[1]
    losses = {row["round"]: row["train_loss"] for row in every[0]}
    assert None not in losses.values()
    for rows, _ in (third, seldom):
        measured = {row["round"]: row["train_loss"] for row in rows if row["train_loss"]}
        assert measured.items() < losses.items()
    improved = [[row["improved_clients"] for row in rows] for rows, _ in (every, third)]
    assert improved[0] == improved[1]


@pytest.mark.parametrize("method", METHODS)
def test_rows_of_a_resumed_run_are_those_of_a_run_in_one_piece(fed, train, monkeypatch, method):
    args = [*LONG, *method, "eval_train_every=1"]
    whole = train(*args, "results_dir=whole")
    interrupted(fed, monkeypatch, 3, *args)
    interrupted(fed, monkeypatch, 2, *args)  # in round 3
    status, _, err = fed(*args)
    assert status == 0
    assert "resuming at round 2" in err
    assert files(train(*args)) == files(whole)
