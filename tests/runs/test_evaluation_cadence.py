"""The training examples are evaluated less often than the test examples, and nothing else changes."""

import json

import pandas as pd
import pytest
from command_line import FAST, run_dir

LONG = [FAST[0], "rounds=7"]


def rounds(tmp_path, out):
    path = run_dir(tmp_path, out)
    return path, [json.loads(line) for line in (path / "rounds.jsonl").read_text().splitlines()]


def test_training_losses_are_those_of_every_round_where_they_are_measured(fed, tmp_path):
    everywhere, all_rows = rounds(tmp_path, fed(*LONG, "eval_train_every=1", "results_dir=a")[1])
    some, rows = rounds(tmp_path, fed(*LONG, "eval_train_every=3", "results_dir=b")[1])
    assert everywhere.parts[-2] == some.parts[-2], "the cadence is no part of the setting"
    assert [r["round"] for r in rows if r["train_loss"] is not None] == [0, 3, 6, 7]
    for row, full in zip(rows, all_rows, strict=True):
        wanted = full | {"train_loss": full["train_loss"] if row["round"] in (0, 3, 6, 7) else None}
        assert {k: v for k, v in row.items() if "seconds" not in k} == {
            k: v for k, v in wanted.items() if "seconds" not in k
        }


@pytest.mark.parametrize("option", ["keep_clients=all", "keep_clients=[2,5]"])
def test_rounds_whose_clients_are_kept_are_measured_in_full(fed, tmp_path, option):
    path, rows = rounds(tmp_path, fed(*LONG, option)[1])
    kept = pd.read_parquet(path / "clients.parquet")
    assert kept["train_loss"].notna().all()
    measured = {r["round"] for r in rows if r["train_loss"] is not None}
    assert measured == {0, 7} | set(kept["round"])


def test_improved_clients_need_no_training_losses_of_the_round(fed, tmp_path):
    """The share is that of a run that measures all training losses in every round."""
    shares = []
    for every in (1, 4):
        _, rows = rounds(
            tmp_path, fed(*LONG, "improved_clients=true", f"eval_train_every={every}", f"results_dir=every{every}")[1]
        )
        shares.append([r["improved_clients"] for r in rows])
    assert shares[0] == shares[1]
    assert all(isinstance(share, float) for share in shares[0][1:])


def test_a_done_run_with_fewer_training_losses_says_so(fed):
    """Those of every second round are among those of every round, and not the other way round."""
    assert fed(*LONG, "eval_train_every=4")[2] == ""
    for every, said in ((4, False), (8, False), (2, True), (1, True), (6, True)):
        status, out, err = fed(*LONG, f"eval_train_every={every}")
        assert status == 0
        assert "done already" in out[0]
        assert ("training losses with eval_train_every=4" in err) == said
