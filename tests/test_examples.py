"""The examples do what they say."""

import runpy

import numpy as np
import pytest
import torch
import yaml
from command_line import FAST, run_dir
from safetensors.torch import load_file
from tools import ROOT, federation, final, make
from toy_problems import clients_of

from fedbench.core.config_values import config_value
from fedbench.core.optim import sgd
from fedbench.simulation.local_work import LocalWork

pytestmark = pytest.mark.whole

EXAMPLES = ROOT / "examples"


def test_every_example_is_tested():
    assert {p.name for p in EXAMPLES.iterdir() if not p.name.startswith("__")} == {
        "carried_momentum", "naive_fedavg.py", "notebook.py", "own_method", "own_parts",
        "vectors",
    }  # fmt: skip


@pytest.mark.slow
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
    w = torch.linspace(
        -1,
        1,
        3 * 6 + 3,
        dtype=torch.float64,
    )
    work = LocalWork(lr=0.1, batch_size=None, epochs=(4, 4))
    ours = final(
        make("fedavg"),
        data,
        rounds=5,
        work=work,
        w=w,
    )
    theirs = naive["fedavg"](
        clients_of(data),
        w.numpy(),
        classes=3,
        rounds=5,
        lr=0.1,
        steps=4,
    )
    np.testing.assert_allclose(ours.numpy(), theirs, rtol=1e-12)


CARRIED = EXAMPLES / "carried_momentum"
METHODS = sorted(p.stem for p in (CARRIED / "algo").glob("*.yaml"))


@pytest.mark.parametrize("method", METHODS)
def test_carried_momentum_without_momentum_is_the_method(fed, tmp_path, method):
    """A solver without a state carries nothing on; with momentum the runs differ."""
    section = yaml.safe_load((CARRIED / "algo" / f"{method}.yaml").read_text())
    del section["_target_"], section["method"]
    options = [f"algo.{key}={config_value(value)}" for key, value in section.items()]

    def bias(name, momentum, *flags):
        args = [*flags, *FAST, f"algo={name}", f"local.momentum={momentum}", *options]
        status, out, err = fed(*args)
        assert status == 0, err
        return load_file(run_dir(tmp_path, out) / "model.safetensors")["bias"]

    def difference(momentum):
        carried = bias(method, momentum, "--config-dir", str(CARRIED))
        return carried - bias(method.removeprefix("carried_"), momentum)

    assert not difference(0).any()
    assert difference(0.9).any()


def test_carried_momentum_is_one_uninterrupted_sgd():
    """One client with FedAvg: two rounds of two steps are one round of four."""
    carried = runpy.run_path(str(CARRIED / "carried.py"))["carried"]
    data = federation(sizes=(9,))
    momentum = sgd(momentum=0.9)

    def trained(algo, rounds, steps):
        work = LocalWork(lr=0.1, batch_size=None, steps=steps)
        return final(algo, data, rounds=rounds, work=work)

    parts = trained(carried(momentum, method="fedavg"), rounds=2, steps=2)
    whole = trained(make("fedavg", momentum), rounds=1, steps=4)
    torch.testing.assert_close(parts, whole, rtol=1e-12, atol=0)
