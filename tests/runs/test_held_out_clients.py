"""Clients that never train: they are in no cohort, and are evaluated apart."""

import numpy as np
import pytest
from command_line import FAST, rows_of
from safetensors.torch import load_file

import fedbench
from fedbench.core.errors import RequestError

KEYS = f"{' '.join(FAST)} model=mlp"


def run(path, keys):
    return fedbench.run(f"{KEYS} results_dir={path} {keys}")


def test_they_train_nothing_and_are_no_part_of_the_other_metrics(tmp_path):
    done = run(tmp_path, "algo=fedper evaluate.held_out_clients=3 keep_clients=all")
    ids = done.meta["held_out_clients"]
    assert len(ids) == 3
    assert [row["clients"] for row in rows_of(done.path)] == [0, 5, 5, 5, 5]
    assert set(done.clients().client) == set(range(8)) - set(ids)
    body = load_file(done.path / "model.safetensors")
    sent = body["layers.0.weight"].numel() + body["layers.0.bias"].numel()
    assert done.last_round()["bytes_up"] == 4 * 5 * 4 * sent
    heads = load_file(done.path / "personal.safetensors")["layers.1.weight"]
    moved = [k for k in range(8) if not heads[k].equal(body["layers.1.weight"])]
    assert moved == sorted(set(range(8)) - set(ids))
    last = done.clients().query("round == 4")
    assert done.last_round()["accuracy_mean"] == pytest.approx(last.accuracy.mean())


@pytest.mark.parametrize("tuning", ["", "finetune.epochs=2", "finetune.epochs=1 algo=fedbabu"])
def test_they_are_judged_like_the_others(tmp_path, tuning):
    """On a trained model, with their own training examples: those of a run where they count."""
    trained = run(tmp_path, "").path / "model.safetensors"
    keys = f"rounds=0 init.path={trained} data.validation=0.2 {tuning}"
    everyone = run(tmp_path, keys).clients().set_index("client")
    done = run(tmp_path, f"{keys} evaluate.held_out_clients=0.3")
    ids = done.meta["held_out_clients"]
    assert len(ids) == 3  # of 2.4, rounded up
    row = done.last_round()
    for names, prefix in ((ids, "held_out_"), (everyone.index.difference(ids), "")):
        some = everyone.loc[names]
        assert row[f"{prefix}accuracy_mean"] == pytest.approx(some.accuracy.mean())
        assert row[f"{prefix}val_accuracy_mean"] == pytest.approx(some.val_accuracy.mean())
        for split in ("train", "test"):
            loss = np.average(some[f"{split}_loss"], weights=some[f"n_{split}"])
            assert row[f"{prefix}{split}_loss"] == pytest.approx(loss, rel=1e-5)
        if tuning:
            before = some.untuned_accuracy.mean()
            assert row[f"{prefix}untuned_accuracy_mean"] == pytest.approx(before)
    assert ("held_out_finetune_steps" in row) == bool(tuning)


def test_the_draw_is_that_of_the_seed(tmp_path):
    def drawn(keys):
        return run(tmp_path, f"evaluate.held_out_clients=3 {keys}").meta["held_out_clients"]

    assert drawn("algo=fedavg") == drawn("algo=scaffold") != drawn("algo=fedavg seed=1")


def test_samples_and_attackers_are_drawn_among_the_others(tmp_path):
    keys = "evaluate.held_out_clients=4 evaluate.clients=3 attack=flip attack.clients=1"
    done = run(tmp_path, keys)
    ids = set(done.meta["held_out_clients"])
    judged = set(done.clients().client)
    attackers = set(done.meta["attackers"])
    assert 2 <= len(judged) <= 3
    assert len(attackers) == 1
    assert not ids & judged
    assert not ids & attackers
    assert not judged & attackers


def test_the_identity_of_a_run(tmp_path):
    def digest(keys):
        return run(tmp_path, f"rounds=0 {keys}").meta["hash"]

    held_out = "evaluate.held_out_clients"
    assert digest("") == digest(f"{held_out}=null") != digest(f"{held_out}=1")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("8", "leaves none of the 8 clients with training examples to train"),
        ("0.9", "leaves none of the 8 clients"),
        ("0", r"evaluate\.held_out_clients must be"),
        ("1.5", r"evaluate\.held_out_clients must be"),
        ("-2", r"evaluate\.held_out_clients must be"),
    ],
)
def test_what_is_refused(tmp_path, value, message):
    with pytest.raises(RequestError, match=message):
        run(tmp_path, f"evaluate.held_out_clients={value}")
