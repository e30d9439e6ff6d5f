"""A run that is short of memory trains fewer clients at once, says so once, and records it."""

import torch
from command_line import FAST, interrupted, meta_of, model_of
from safetensors.torch import load_file

from fedbench.core import algorithm
from fedbench.runs import build_engine
from fedbench.simulation.oracles import make_oracle

STACKED = [*FAST, "engine.mode=stacked", "engine.precision=float64"]


def short_of_memory(monkeypatch, most):
    """Let steps of more than ``most`` clients fail; return the numbers that were tried."""
    tried = []

    def short(task, mode, lanes):
        oracle = make_oracle(task, mode, lanes)
        plain = oracle.descend_

        def descend_(w, batch, lr):
            tried.append(len(w))
            if len(w) > most:
                raise RuntimeError("DefaultCPUAllocator: can't allocate memory")
            plain(w, batch, lr)

        oracle.descend_ = descend_
        return oracle

    monkeypatch.setattr(build_engine, "make_oracle", short)
    return tried


def test_it_continues_with_less_and_says_so_once(fed, train, tmp_path, monkeypatch):
    ample = train(*STACKED, "results_dir=ample")
    assert "memory_errors" not in meta_of(ample)["engine"]
    tried = short_of_memory(monkeypatch, 2)
    status, out, err = fed(*STACKED)
    assert status == 0
    assert err.count("memory ran out") == 1
    path = tmp_path / out[-1]
    engine = meta_of(path)["engine"]
    assert engine["cohort_size"] <= 2
    assert engine["memory_errors"] == sum(n > 2 for n in tried) > 1
    found, wanted = (load_file(p / "model.safetensors") for p in (path, ample))
    assert all(torch.allclose(found[k], wanted[k], rtol=1e-12, atol=1e-14) for k in wanted)


def test_a_resumed_run_remembers(fed, train, tmp_path, monkeypatch):
    """It is bit-exact, and makes no attempt that fails."""
    tried = short_of_memory(monkeypatch, 2)
    whole = train(*STACKED, "results_dir=whole")
    interrupted(fed, monkeypatch, 4, *STACKED)
    tried.clear()
    status, out, err = fed(*STACKED)
    assert status == 0
    assert max(tried) <= 2
    assert "memory ran out" not in err
    path = tmp_path / out[-1]
    assert model_of(path) == model_of(whole)
    assert meta_of(path)["engine"] == meta_of(whole)["engine"]


def test_memory_that_runs_out_elsewhere_names_the_uploads(fed, monkeypatch):
    def fails(*given):
        raise MemoryError("no memory for the sum")

    monkeypatch.setattr(algorithm, "server_descent", lambda *_: {"update": fails})
    status, _, err = fed(*FAST)
    assert status == 1
    assert "lower participation" in err
    assert "no memory for the sum" in err
