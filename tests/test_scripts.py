"""What a maintainer runs: that it measures what it says."""

import importlib.util
import sys
from importlib.machinery import SourceFileLoader

import pandas as pd
import pytest
import torch
from tools import ROOT


def script(name):
    folder = str(ROOT / "scripts")
    if folder not in sys.path:
        sys.path.insert(0, folder)
    loader = SourceFileLoader(name.removesuffix(".py"), f"{folder}/{name}")
    spec = importlib.util.spec_from_loader(loader.name, loader)
    module = importlib.util.module_from_spec(spec)
    sys.modules[loader.name] = module
    loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("name", "clients", "steps"), [("W1", 100, 871), ("W2", 200, 1934), ("W3", 10, 40), ("W4", 16, 256), ("W5", 10, 70)]
)
def test_the_workloads_are_those_that_peers_were_measured_on(name, clients, steps):
    """Client-steps of a round; W2's clients are redrawn here, so their number is only close."""
    bench = script("bench.py")
    w = bench.WORKLOADS[name]
    data = w.data()
    counts = data.train.counts[bench.sample_cohort(w.sampled)(0, data.train.counts, 0)]
    assert len(counts) == clients
    found = w.work.epochs[0] * (-(-counts // w.work.batch_size)).sum()
    assert found == steps


def test_the_yardstick_is_fedavg(monkeypatch):
    """A round of the tight loop with full batches is a round of FedAvg from the same model."""
    bench = script("bench.py")
    from dataclasses import replace

    from tools import snapshots, task_for

    from fedbench.simulation.batches import LocalWork

    data = bench.w1().to(torch.device("cpu"), torch.float32)
    w = replace(bench.WORKLOADS["W1"], work=LocalWork(0.01, 10_000))
    kept = {}
    monkeypatch.setattr(bench, "synchronize", lambda device: None)
    true = torch.zeros_like
    monkeypatch.setattr(bench.torch, "zeros_like", lambda t: kept.setdefault(tuple(t.shape), true(t)))
    torch.manual_seed(0)
    start = torch.cat([p.detach().flatten() for p in w.plain().parameters()])
    bench.tight_loop(w, data)(0)
    monkeypatch.undo()
    theirs = torch.cat([kept[10, 60].flatten(), kept[10,].flatten()])
    last = snapshots(bench.fedavg(), data, task=task_for(data), rounds=1, work=w.work, w=start)[-1]
    assert torch.allclose(last.server["w"], theirs, rtol=1e-4, atol=1e-6)


def test_compare_reports_reads_both_forms_and_notices_a_changed_number(tmp_path, capsys):
    """An older report has "mean ± STD" under the headings of the paper; numbers agree to the digits that they have."""
    compare = script("compare_reports.py")
    old, new = tmp_path / "old", tmp_path / "new"
    heads = "setup,method,settings,seeds,average %,average % paper,average % difference,average % verdict,command"
    older = f"{heads}\nOne,FedAvg,lr=1.0,3,51.24 ± 1.00,50.00,+1.24,inside,x\n"
    names = [f"accuracy_mean_{end}" for end in ("mean", "std", "paper", "difference")]
    newer = f"setup,method,algo,settings,seeds,{','.join(names)}\nOne,FedAvg,fedavg,lr=1,3,51.2371,1.0012,50.0,1.2371\n"
    for folder, text in ((old, older), (new, newer)):
        (folder / "tables").mkdir(parents=True)
        (folder / "tables" / "fedfa_table2.csv").write_text(text)
        pd.DataFrame([{"path": "a/seed_0", "accuracy_mean": 0.5, "reduced": ""}]).to_parquet(folder / "runs.parquet")
    assert compare.main([str(old), str(new)]) == 0
    assert "5 numbers of tables compared, 0 differ" in capsys.readouterr().out
    (new / "tables" / "fedfa_table2.csv").write_text(newer.replace("51.2371", "51.2571"))
    assert compare.main([str(old), str(new)]) == 1
    out = capsys.readouterr().out
    assert "fedfa_table2 One FedAvg lr=1: accuracy_mean_mean 51.24 is 51.2571" in out
