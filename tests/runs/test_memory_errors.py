"""A run in which memory runs out goes on with less at once, says so once, and records what it used."""

import json

import torch
from command_line import FAST, interrupted, run_dir
from safetensors.torch import load_file

from fedbench.runs import build_engine
from fedbench.simulation.oracles import make_oracle

STACKED = [*FAST, "engine.mode=stacked", "engine.precision=float64"]


def short_of_memory(monkeypatch, most):
    """Let steps of more than ``most`` clients fail; return the numbers of clients that were tried."""
    tried = []

    def short(task, mode):
        oracle = make_oracle(task, mode)
        plain = oracle.descend_

        def descend_(w, batch, lr):
            tried.append(len(w))
            if len(w) > most:
                raise RuntimeError(
                    "DefaultCPUAllocator: can't allocate memory: you tried to allocate 7 bytes"
                )
            plain(w, batch, lr)

        oracle.descend_ = descend_
        return oracle

    monkeypatch.setattr(build_engine, "make_oracle", short)
    return tried


def meta_of(path):
    return json.loads((path / "meta.json").read_text())


def test_it_goes_on_and_says_so_once(fed, tmp_path, monkeypatch):
    _, out, _ = fed(*STACKED, "results_dir=ample")
    ample = run_dir(tmp_path, out)
    assert "memory_errors" not in meta_of(ample)["engine"]
    with monkeypatch.context() as patch:
        tried = short_of_memory(patch, 2)
        status, out, err = fed(*STACKED)
    assert status == 0
    assert err.count("memory ran out") == 1
    path = run_dir(tmp_path, out)
    engine = meta_of(path)["engine"]
    assert engine["cohort_size"] <= 2
    assert engine["memory_errors"] == sum(n > 2 for n in tried) > 1
    found, wanted = (load_file(p / "model.safetensors") for p in (path, ample))
    assert all(torch.allclose(found[k], wanted[k], rtol=1e-12, atol=1e-14) for k in wanted)


def test_a_resumed_run_remembers(fed, tmp_path, monkeypatch):
    """It is the same, bit for bit, as one that was not interrupted, and makes no attempt that fails."""
    with monkeypatch.context() as patch:
        tried = short_of_memory(patch, 2)
        _, out, _ = fed(*STACKED, "results_dir=whole")
        interrupted(fed, patch, 4, *STACKED)
        tried.clear()
        status, again, err = fed(*STACKED)
    assert status == 0
    assert max(tried) <= 2
    assert "memory ran out" not in err
    whole, path = run_dir(tmp_path, out), run_dir(tmp_path, again)
    assert (path / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()
    assert meta_of(path)["engine"] == meta_of(whole)["engine"]


def test_what_does_not_fit_at_all_is_a_clear_error(fed, tmp_path, monkeypatch):
    short_of_memory(monkeypatch, 0)
    status, _, err = fed(*STACKED)
    assert status == 1
    assert "the local phase of one client does not fit into memory" in err
    assert "use a smaller local.batch_size, model or participation" in err
    (meta,) = tmp_path.rglob("meta.json")
    assert json.loads(meta.read_text())["status"] == "failed"


def test_memory_that_runs_out_elsewhere_names_the_uploads(fed, monkeypatch):
    from fedbench.algorithms import fedavg

    def fails(*given):
        raise MemoryError("no memory for the sum")

    monkeypatch.setattr(fedavg, "server_descent", lambda lr: {"update": fails})
    status, _, err = fed(*FAST)
    assert status == 1
    assert "lower participation" in err
    assert "no memory for the sum" in err
