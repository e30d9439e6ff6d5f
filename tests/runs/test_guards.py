"""Numerical safety over a whole run of the paper's length."""

import numpy as np
import pytest

from fedbench.cli import main
from fedbench.runs.run import read_run


@pytest.mark.slow
def test_adafedadam_with_momentum_outlives_gradients_that_underflow(tmp_path, monkeypatch, capsys):
    """1000 rounds in float32: clients reach a loss of exactly 0.

    Without a guard, r_k = ||Δ||/||∇F|| ends in NaN.

    The accuracy is what the definition gives: a separate NumPy script of it ended at 95.8 %.
    """
    monkeypatch.chdir(tmp_path)
    args = ["experiment=adafedadam/table7_synthetic_momentum", "algo=adafedadam", "eval_every=1000"]
    assert main(args) == 0
    run = read_run(tmp_path / capsys.readouterr().out.splitlines()[-1])
    clients = run.clients()
    assert (clients.train_loss == 0).any()
    assert np.isfinite(clients.train_loss).all()
    assert 0.95 < run.last_round()["accuracy_mean_weighted"] < 0.975
