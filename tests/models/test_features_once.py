"""A frozen body under a trained head: features are computed once, and nothing else changes."""

import pytest
import torch
from command_line import FAST
from safetensors.torch import load_file, save_file

import fedbench
from fedbench.runs import build as building
from fedbench.simulation.task import Task

FROZEN = f"{' '.join(FAST)} participation=3 engine.precision=float64 model=mlp"


def outcome(path, keys):
    run = fedbench.run(f"{FROZEN} {keys} results_dir={path}")
    return run, load_file(run.path / "model.safetensors")


@pytest.fixture
def calls(monkeypatch):
    """The forward passes of whole models, by their number of examples."""
    seen = []
    whole = Task._call

    def call(self, model, inputs):
        if not self._on_features:
            seen.append(len(inputs.x))
        return whole(self, model, inputs)

    monkeypatch.setattr(Task, "_call", call)
    return seen


@pytest.mark.parametrize(
    "keys",
    [
        "algo=fedavg",
        "algo=scaffold engine.mode=loop",
        "algo=fedlc",
        "algo=fedrod",
        "algo=term local.momentum=0.0 attack=flip",
    ],
)
def test_the_run_is_that_without_it(tmp_path, monkeypatch, keys):
    keys = f"{keys} parts.frozen=[body]"
    once, model = outcome(tmp_path / "once", keys)
    monkeypatch.setattr(building, "_same_features", lambda *_: False)
    every, other = outcome(tmp_path / "every", keys)
    assert (
        model.keys()
        == other.keys()
        == {f"layers.{k}.{v}" for k in (0, 1) for v in ("weight", "bias")}
    )
    for name, v in model.items():
        torch.testing.assert_close(v, other[name], rtol=1e-9, atol=1e-11)
    for column in ("bytes_up", "bytes_down"):
        assert once.rounds()[column].tolist() == every.rounds()[column].tolist()
    assert once.last_round()["test_loss"] == pytest.approx(every.last_round()["test_loss"])


def test_every_example_goes_through_the_body_once(tmp_path, calls):
    run, _ = outcome(tmp_path, "algo=fedavg parts.frozen=[body]")
    examples = sum(run.clients()["n_train"]) + sum(run.clients()["n_test"])
    assert sum(calls) == examples


@pytest.mark.parametrize(
    "keys",
    [
        "parts.frozen=[layers.0.weight]",  # a bias of the body is trained
        "parts.frozen=[body,layers.1.bias]",
        "parts.frozen=[body] finetune.epochs=1",
    ],
)
def test_features_that_change_are_computed_every_time(tmp_path, calls, keys):
    run, _ = outcome(tmp_path, f"algo=fedavg {keys}")
    assert sum(calls) > 2 * (sum(run.clients()["n_train"]) + sum(run.clients()["n_test"]))


def test_a_trained_body_can_be_given(tmp_path):
    """The body of ``init.path`` stays as it is, and compiled code may train the head."""
    _, trained = outcome(tmp_path, "algo=fedavg")
    file = tmp_path / "body.safetensors"
    save_file(trained, file)
    keys = f"algo=fedavg init.path={file} parts.frozen=[body] rounds=2"
    _, model = outcome(tmp_path, keys)
    assert torch.equal(model["layers.0.weight"], trained["layers.0.weight"])
    assert not torch.equal(model["layers.1.weight"], trained["layers.1.weight"])
