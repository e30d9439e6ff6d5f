"""Losses that a method and the evaluation share: neither the model nor a row depends on when they were measured."""

import json

import pytest
from command_line import FAST, run_dir

from fedbench.runs import training as runner

LONG = [FAST[0], "rounds=7", "participation=1.0"]
METHODS = [
    ["algo=adafedadam"],  # gradients
    ["algo=qfedavg", "engine.mode=loop", "participation=0.5", "improved_clients=true"],
]


def files(tmp_path, out):
    """The rows without the clocks, and the bytes of the model."""
    path = run_dir(tmp_path, out)
    rows = [json.loads(line) for line in (path / "rounds.jsonl").read_text().splitlines()]
    kept = [{k: v for k, v in row.items() if "seconds" not in k} for row in rows]
    return kept, (path / "model.safetensors").read_bytes()


@pytest.mark.parametrize("method", METHODS)
def test_the_model_does_not_depend_on_the_cadence(fed, tmp_path, method):
    cadences = (["eval_train_every=1"], ["eval_train_every=3"], ["eval_every=4"])
    found = [
        files(tmp_path, fed(*LONG, *method, *c, f"results_dir=part{i}")[1])
        for i, c in enumerate(cadences)
    ]
    assert found[0][1] == found[1][1] == found[2][1]
    losses = [
        {row["round"]: row["train_loss"] for row in rows if row["train_loss"]} for rows, _ in found
    ]
    assert losses[0].keys() == set(range(8))
    assert all(losses[0].items() >= few.items() for few in losses[1:])
    improved = [[row["improved_clients"] for row in rows] for rows, _ in found[:2]]
    assert improved[0] == improved[1]


@pytest.mark.parametrize("method", METHODS)
def test_rows_of_a_resumed_run_are_those_of_a_run_in_one_piece(fed, tmp_path, monkeypatch, method):
    monkeypatch.setattr(runner, "_CHECKPOINT_EVERY", 0)  # a checkpoint after every round
    options = [*LONG, *method, "eval_train_every=1"]
    whole = files(tmp_path, fed(*options, "results_dir=whole")[1])
    real, rounds = runner.evaluate, []

    def interrupting(*args):
        rounds.append(1)
        if len(rounds) in (3, 5):  # rounds 2, and 3 after resuming
            raise KeyboardInterrupt
        return real(*args)

    monkeypatch.setattr(runner, "evaluate", interrupting)
    statuses = [fed(*options, "results_dir=parts") for _ in range(3)]
    assert [s[0] for s in statuses] == [130, 130, 0]
    assert len(rounds) == 10, "the last rounds alone are run again"
    assert files(tmp_path, statuses[-1][1]) == whole
