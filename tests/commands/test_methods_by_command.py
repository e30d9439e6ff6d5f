"""Methods by the command alone: the files that it writes, against plain loops in NumPy."""

import json

import numpy as np
import pytest
import reference
from command_line import run_dir
from safetensors.numpy import load_file, save_file

FAIR = "fedfv propfair gifair fedmdfg drfa fedheal"
OTHERS = "feddyn fedexp fedcm mimelite fedsam mofedsam fedspeed pfedme apfl"
SIZES, FEATURES, CLASSES = (1, 20, 5, 9), 4, 3


def written(folder):
    """Clients [(x, y)] and a first model, in the files that the command reads; the clients' names are not in order."""
    rng = np.random.default_rng(0)
    clients = [
        (
            rng.normal(size=(n, FEATURES)),
            (rng.integers(CLASSES) + rng.integers(2, size=n)) % CLASSES,
        )
        for n in SIZES
    ]
    users = dict(
        zip(
            ("d", "b", "c", "a"),
            clients,
            strict=True,
        )
    )
    content = {
        "users": list(users),
        "num_samples": list(SIZES),
        "user_data": {u: {"x": x.tolist(), "y": y.tolist()} for u, (x, y) in users.items()},
    }
    (folder / "data.json").write_text(json.dumps(content))
    weight, bias = rng.normal(size=(CLASSES, FEATURES)), rng.normal(size=CLASSES)
    save_file({"weight": weight, "bias": bias}, folder / "init.safetensors")
    return clients, np.concatenate([weight.ravel(), bias])


def read(path, rows=()):
    """The models in a file, as vectors."""
    held = load_file(path)
    return np.concatenate(
        [
            held["weight"].reshape(*rows, -1),
            held["bias"].reshape(*rows, -1),
        ],
        -1,
    )


@pytest.mark.parametrize("name", f"{FAIR} {OTHERS}".split())
def test_the_files_of_a_run_hold_what_the_definition_gives(fed, tmp_path, name):
    """Clients of 1 to 20 examples, two local steps of full batches: the model, and those of the clients' own."""
    clients, start = written(tmp_path)
    status, out, err = fed(
        f"algo={name}", "data=leaf_json", "data.train=data.json", "data.test=data.json", "data.classes=3", "rounds=5",
        "model=linear", "init.path=init.safetensors", "engine.precision=float64", "local.batch_size=full",
        "local.epochs=2", "local.lr=0.05", "eval_every=5",
    )  # fmt: skip
    assert status == 0, err
    path = run_dir(tmp_path, out)
    found = reference.run(
        name,
        clients,
        start,
        5,
        0.05,
        [2] * len(clients),
    )
    w, own = found if isinstance(found, tuple) else (found, None)
    assert read(path / "model.safetensors") == pytest.approx(w, abs=1e-10)
    assert (path / "personal.safetensors").exists() == (own is not None)
    if own is not None:
        assert read(path / "personal.safetensors", (len(clients),)) == pytest.approx(
            np.array(own), abs=1e-10
        )
