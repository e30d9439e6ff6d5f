"""The examples do what they say."""

import importlib.util
import runpy
import sys

import numpy as np
import pytest
import torch
import yaml
from command_line import FAST, run_dir
from safetensors.torch import load_file
from tools import ROOT, federation, final, make

from fedbench.core.optim import sgd
from fedbench.simulation.local_work import LocalWork

EXAMPLES = ROOT / "examples"


def test_every_example_is_tested():
    assert {p.name for p in EXAMPLES.iterdir() if not p.name.startswith("__")} == {
        "carried_momentum", "naive_fedavg.py", "notebook.py", "own_method", "own_parts",
    }  # fmt: skip


def test_the_notebook(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names = runpy.run_path(str(EXAMPLES / "notebook.py"))
    assert len(names["results"].runs) == 6
    table = capsys.readouterr().out
    for algo, part in names["last"].groupby("algo"):
        assert algo in table
        assert f"{part['accuracy_mean'].mean():.6f}" in table


def test_naive_fedavg_is_fedavg():
    """On the same clients, from the same model, in float64."""
    naive = runpy.run_path(str(EXAMPLES / "naive_fedavg.py"))
    data = federation(sizes=(3, 8, 5))
    clients = []
    for k in range(3):
        rows = data.train.of_clients(np.array([k]))
        clients.append((data.x[rows].double().numpy(), data.y[rows].numpy()))
    w = torch.linspace(-1, 1, 3 * 6 + 3, dtype=torch.float64)
    work = LocalWork(lr=0.1, batch_size=None, epochs=(4, 4))
    ours = final(make("fedavg"), data, rounds=5, work=work, w=w)
    theirs = naive["fedavg"](clients, w.numpy(), classes=3, rounds=5, lr=0.1, steps=4)
    np.testing.assert_allclose(ours.numpy(), theirs, rtol=1e-12)


def test_naive_fedavg_runs_alone(capsys):
    runpy.run_path(str(EXAMPLES / "naive_fedavg.py"), run_name="__main__")
    assert capsys.readouterr().out.startswith("[")


@pytest.mark.parametrize(
    "method", sorted(p.stem for p in (EXAMPLES / "carried_momentum" / "algo").glob("*.yaml"))
)
def test_carried_momentum_without_momentum_is_the_method(fed, tmp_path, method):
    """A solver without a state carries nothing on; with momentum the runs differ."""
    own, plain = (
        ["--config-dir", str(EXAMPLES / "carried_momentum")],
        method.removeprefix("carried_"),
    )
    models = {}
    for momentum in (0, 0.9):
        for name, flags in ((method, own), (plain, [])):
            args = [*flags, *FAST, f"algo={name}", f"local.momentum={momentum}", *_same(method)]
            status, out, err = fed(*args)
            assert status == 0, err
            models[name, momentum] = load_file(run_dir(tmp_path, out) / "model.safetensors")["bias"]
    assert torch.equal(models[method, 0], models[plain, 0])
    assert not torch.equal(models[method, 0.9], models[plain, 0.9])


def _same(method):
    """The settings of the YAML file, for the plain method too."""
    section = yaml.safe_load(
        (EXAMPLES / "carried_momentum" / "algo" / f"{method}.yaml").read_text()
    )
    return [
        f"algo.{k}={'null' if v is None else v}"
        for k, v in section.items()
        if k not in ("_target_", "method")
    ]


def test_carried_momentum_is_one_uninterrupted_sgd(monkeypatch):
    """One client with FedAvg: two rounds of two steps are one round of four."""
    monkeypatch.syspath_prepend(str(EXAMPLES / "carried_momentum"))
    spec = importlib.util.find_spec("carried")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    data, momentum = federation(sizes=(9,)), sgd(momentum=0.9)
    work = {n: LocalWork(lr=0.1, batch_size=None, epochs=(n, n)) for n in (2, 4)}
    parts = final(module.carried(momentum, method="fedavg"), data, rounds=2, work=work[2])
    whole = final(make("fedavg", momentum), data, rounds=1, work=work[4])
    torch.testing.assert_close(parts, whole, rtol=1e-12, atol=0)
    assert "carried" not in sys.modules
