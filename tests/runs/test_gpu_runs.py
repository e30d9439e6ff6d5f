"""Whole runs on a pretended GPU, from the request to the files: the results of a CPU, interrupted, short of memory."""

import json

import numpy as np
import pytest
import torch
from pretend_gpu import PretendGpu
from safetensors.torch import load_file

import fedbench
from fedbench.core.errors import RequestError
from fedbench.data.dataset import FederatedDataset
from fedbench.runs import measured_choice, train
from fedbench.simulation import batches, oracles, probes

DENSE = ["algo=scaffold", "data.clients=6", "participation=3", "engine.client_state=host"]
COMMON = ["rounds=3", "eval_every=1", "engine.precision=float64", "local.steps=3"]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(measured_choice, "_SECONDS", 0)
    monkeypatch.setattr(train, "_CHECKPOINT_SHARE", 0)
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", False)  # as torch begins
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", True)


def images(tmp_path):
    """Arguments for a CNN on images stored as bytes, with crops and flips."""
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (48, 3, 8, 8), dtype=np.uint8)
    np.savez(tmp_path / "images.npz", x=x, y=np.arange(48) % 3, owner=np.arange(48) % 4)
    model = ["model=cnn", "model.channels=[4]", "model.kernel=3", "model.hidden=6"]
    return ["data=npz", f"data.file={tmp_path / 'images.npz'}", *model, "local.crop=2", "local.flip=true"]


def run(*args, device="cuda", where="gpu"):
    return fedbench.run([*COMMON, *args, f"device={device}", f"results_dir={where}"])


def interrupted(monkeypatch, at, *args):
    """Interrupt a run at its evaluation number ``at``."""
    real, calls = train.evaluate, []

    def interrupting(*given):
        calls.append(1)
        if len(calls) == at:
            raise KeyboardInterrupt
        return real(*given)

    with monkeypatch.context() as patch:
        patch.setattr(train, "evaluate", interrupting)
        with pytest.raises(KeyboardInterrupt):
            run(*args)


def same_models(a, b):
    models = [load_file(r.path / "model.safetensors") for r in (a, b)]
    for name, v in models[0].items():
        torch.testing.assert_close(models[1][name], v, rtol=1e-9, atol=1e-9, msg=name)
    return True


def engine_of(run):
    return json.loads((run.path / "meta.json").read_text())["engine"]


def test_a_dense_model_with_states_on_the_host(monkeypatch):
    """Partial participation; interrupted, and resumed in the form that was measured."""
    wanted = run(*DENSE, device="cpu", where="cpu")
    assert engine_of(wanted)["chosen_by"] == "rule"
    with PretendGpu({}, {}) as gpu:
        interrupted(monkeypatch, 3, *DENSE)
        found = run(*DENSE)
    assert gpu.faults == []
    assert found.meta["client_state"]["place"] == "host"
    assert same_models(wanted, found)
    assert (torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark) == (True, False)
    engine = engine_of(found)
    assert engine["chosen_by"] == "resumed"
    forms = {"loop", "loop, graphs", "stacked", "stacked, graphs"}
    assert forms < engine["measured"].keys()
    assert "left_out" not in engine
    (kept,) = (p for p in (found.path / "../../../../../cache").resolve().rglob("*.json"))
    assert json.loads(kept.read_text())["kept"]["form"]["mode"] == engine["mode"]


def test_a_cnn_on_images_that_stay_bytes(tmp_path, monkeypatch):
    """What is converted in a round is a batch of a client, not the data set."""
    args, seen = images(tmp_path), []
    wanted = run(*args, device="cpu", where="cpu")
    real = FederatedDataset.features

    def watched(self, rows, change=None):
        seen.append((self.x.dtype, self.x.device.type, rows.numel(), change is not None))
        return real(self, rows, change)

    monkeypatch.setattr(FederatedDataset, "features", watched)
    monkeypatch.setattr(batches, "_BLOCK_BYTES", 1)  # the examples of one step at a time
    pinned = ["engine.graphs=true", "engine.mode=loop", "engine.workers=1"]
    with PretendGpu({}, {}) as gpu:
        interrupted(monkeypatch, 3, *args, *pinned)
        found = run(*args, *pinned)
    assert gpu.faults == []
    assert {s[:2] for s in seen} == {(torch.uint8, "cuda")}
    assert {rows for *_, rows, augmented in seen if augmented} == {9}  # of 12 of a client for training, in one batch
    assert same_models(wanted, found)
    assert engine_of(found)["measured"].keys() == {"loop, graphs, channels first", "loop, graphs, channels last"}


@pytest.mark.parametrize("where", ["training", "measurement", "evaluation", "probe"])
def test_memory_runs_out(monkeypatch, where):
    """More than two clients, or 12 examples, at once are too many; the result is the same, and it is noted."""
    args = ["algo=adafedadam", "data.clients=5", "engine.mode=stacked", "engine.graphs=false", "engine.workers=1"]
    wanted = run(*args, device="cpu", where="cpu")
    failed = []

    def short(real, too_many):
        def call(*given, **options):
            if too_many(*given):
                failed.append(where)
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
            return real(*given, **options)

        return call

    clients = {"measurement": 2, "training": 2}.get(where)
    if clients is not None:
        oracle = oracles.DenseOracle
        trial = where == "training"  # all candidates have enough memory
        room = {"now": 1000 if trial else clients}
        many = lambda self, w, *rest: len(w) > room["now"]  # noqa: E731
        monkeypatch.setattr(oracle, "descend_", short(oracle.descend_, many))
        settle = measured_choice.FormChoice.settle
        monkeypatch.setattr(
            measured_choice.FormChoice, "settle", lambda self, saved: (settle(self, saved), room.update(now=clients))[0]
        )
    elif where == "evaluation":
        monkeypatch.setattr(probes, "_per_example", short(probes._per_example, lambda logits, *rest: len(logits) > 12))
    else:
        oracle = oracles.DenseOracle
        many = lambda self, w, batch: batch.y.numel() > 12  # noqa: E731
        monkeypatch.setattr(oracle, "loss_and_grad", short(oracle.loss_and_grad, many))
    with PretendGpu({}, {}):
        found = run(*args)
    assert same_models(wanted, found)
    assert failed
    engine = engine_of(found)
    if where == "measurement":  # the peak is that of two clients, and only the chunks of the run are larger
        assert engine["memory_errors"] == len(failed) - 1
    else:
        assert engine["memory_errors"] == len(failed)
    assert engine["cohort_size"] <= 2 or clients is None


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["engine.mode=compiled"], "engine.mode=compiled is not available: it is for linear models and MLPs .* a CPU"),
        (["engine.mode=unfold"], "engine.mode=unfold is for models with convolutions"),
        (["engine.channels_last=true"], "engine.channels_last=true is for images"),
    ],
)
def test_requests_that_do_not_fit_are_refused_on_a_gpu_too(args, message):
    with PretendGpu({}, {}), pytest.raises(RequestError, match=message):
        run(*DENSE, *args)
