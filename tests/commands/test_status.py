"""``fedbench status`` and ``fedbench show``: runs on disk, and their processes."""

import json

import numpy as np
import pytest
from command_line import FAST, interrupted, rows_of
from fake_runs import edit, fake
from filelock import FileLock

import fedbench
from fedbench.commands.show import sparkline
from fedbench.runs.run import read_run
from fedbench.runs.status import RunStatus, is_held, status_of


@pytest.fixture
def unfinished(tmp_path):
    """A run whose meta.json says that it is running.

    It is at round 100 of 1000 after 15 s of training and 5 s of evaluation.
    """
    (path,) = fake(
        tmp_path / "results",
        None,
        "fedavg",
        seeds=(0,),
        status="running",
    )
    rows = [
        {"round": 0, "seconds_train": 0.0, "seconds_eval": 1.0, "accuracy_mean": 0.5},
        {"round": 100, "seconds_train": 15.0, "seconds_eval": 5.0, "accuracy_mean": 0.5},
    ]
    (path / "rounds.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_a_run_whose_lock_is_held_is_running_and_the_rest_takes_as_long_per_round(unfinished):
    with FileLock(unfinished / ".lock"):
        found = status_of(unfinished)
    assert found.state == "running"
    assert found.round == 100
    assert found.rounds == 1000
    assert found.left == 900 * 20.0 / 100


def test_a_run_that_says_running_and_has_no_process_is_named(unfinished, fed):
    assert status_of(unfinished).state == "process gone"
    (unfinished / ".lock").touch()  # left by a process that was killed
    assert status_of(unfinished).state == "process gone"
    status, out, _ = fed("status")
    assert status == 0
    assert out[1].split()[:5] == [
        "process",
        "gone",
        "100/1000",
        "50.00",
        "%",
    ]
    assert out[-1] == "1 run: 1 process gone"


def test_asking_does_not_take_the_lock(unfinished):
    (unfinished / ".lock").touch()
    assert not is_held(unfinished)
    with FileLock(unfinished / ".lock", timeout=0):
        assert is_held(unfinished)


def test_a_line_that_is_being_written_does_not_count(unfinished):
    with (unfinished / "rounds.jsonl").open("a") as file:
        file.write('{"round": 200, "acc')
    assert status_of(unfinished).round == 100


def test_nothing_is_left_of_a_run_that_has_ended_and_nothing_known_of_one_that_begins(tmp_path):
    assert RunStatus(tmp_path, "diverged", 5, 10, None, 1.0).left is None
    assert RunStatus(tmp_path, "running", 0, 10, None, 1.0).left is None


def test_states_of_real_runs(fed, train, monkeypatch):
    train(*FAST)
    interrupted(fed, monkeypatch, 3, *FAST, "seed=1")  # rounds 0 and 1 are recorded
    assert fed(*FAST, "seed=2", "local.lr=1e20", "local.weight_decay=1")[0] == 1
    status, out, _ = fed("status")
    assert status == 0
    assert out[-1] == "3 runs: 1 interrupted, 1 diverged, 1 done"
    assert out[1].split()[:2] == ["interrupted", "1/4"]
    assert "interrupted: the same command resumes it" in out
    assert len([line for line in fed("status", "--all")[1] if "seed_" in line]) == 3
    train(*FAST, "seed=1")
    assert fed("status")[1][-1] == "3 runs: 1 diverged, 2 done"


def test_verify_finds_a_bit_that_has_changed(fed, train):
    """Nothing else notices: the model can still be read."""
    file = train(*FAST) / "model.safetensors"
    assert fed("status", "--verify")[0] == 0
    model = bytearray(file.read_bytes())
    model[-1] ^= 1
    file.write_bytes(model)
    assert fed("status")[1][-1] == "1 run: 1 done"
    status, out, _ = fed("status", "--verify")
    assert status == 1
    assert out[-1] == "1 run: 1 damaged"
    assert "model.safetensors has changed since it was written" in out[1]


def test_a_directory_without_runs_has_no_status(refuse, tmp_path):
    (tmp_path / "empty").mkdir()
    refuse("status", "empty")


def test_show(fed, train):
    path = train(*FAST, "local.lr=0.05")
    status, out, _ = fed("show", "results")  # which has one run
    assert status == 0
    assert out[1] == "  done, round 4 of 4"
    assert "  fedbench data.clients=8 rounds=4 local.lr=0.05" in out
    assert "Round 4, and the rounds before it; bytes and seconds are sums" in out
    accuracy = read_run(path).last_round()["accuracy_mean"]
    words = ["mean", "accuracy", f"{100 * accuracy:.2f}", "%"]
    assert words in [line.split()[:4] for line in out]
    (line,) = [line for line in out if "load_run" in line]
    run = eval(
        line.split(": ", 1)[1],
        {"fedbench": fedbench},
    )
    assert len(run.rounds()) == 5  # rounds 0 to 4


def test_show_needs_one_run(train, refuse):
    train(*FAST)
    train(*FAST, "seed=1")
    message = "results has 2 runs; name one of them, such as results/synthetic_leaf"
    assert message in refuse("show", "results")


def test_a_run_is_shown_with_its_curves(fed, tmp_path):
    (path,) = fake(tmp_path, None, "fedavg", seeds=(0,))
    rows = rows_of(path)
    rows[-1]["train_loss"] = float("inf")
    edit(
        path / "rounds.jsonl",
        lambda _: "".join(json.dumps(row) + "\n" for row in rows),
    )
    status, lines, _ = fed("show", str(path))
    assert status == 0
    (accuracy,) = [line for line in lines if line.startswith("  mean accuracy  ")]
    curve = sparkline(np.array([row["accuracy_mean"] for row in rows]))
    assert accuracy.endswith(f" {curve}")
    assert "training loss" not in "\n".join(lines)  # it has no number in the last round


def test_a_curve_in_blocks_spans_its_own_values():
    """The lowest value has step 0 and the highest 7; one half is step round(3.5) = 4."""
    assert sparkline(np.array([0.0, 0.5, 1.0])) == "▁▅█"
    assert sparkline(np.array([3.0, 3.0])) == "▁▁"


def test_a_block_is_the_mean_of_a_span_of_rounds():
    """64 values in 32 blocks: pairs of 0, 0 and of 2, 4 have the means 0 and 3.

    The curve spans 0 to 4, so 3 is step round(7 * 3/4) = 5 of 0 to 7.
    """
    assert sparkline(np.array([0.0, 0.0, 2.0, 4.0] * 16)) == "▁▆" * 16
