"""What a maintainer runs: that it measures what it says."""

import importlib.util
import subprocess
import sys
from importlib.machinery import SourceFileLoader

import numpy as np
import pandas as pd
import pytest
import torch
from fake_runs import fake
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


@pytest.mark.parametrize("name", sorted(path.name for path in (ROOT / "scripts").glob("*.py")))
def test_every_script_finds_what_it_imports(name):
    assert script(name).__doc__


def test_the_fairness_benchmark_names_every_method_and_why_one_is_refused():
    benchmark = script("fairness_benchmark.py")
    assert len(benchmark.methods()) == 39
    refused = benchmark.refusals("synthetic", ["fedavg", "stem", "afl"], ["participation=10"])
    assert set(refused) == {"stem", "afl"}
    assert "needs all clients in every round" in refused["stem"]
    assert benchmark.refusals("synthetic", ["fedavg", "stem", "afl"], []) == {}


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

    from fedbench.simulation.local_work import LocalWork

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


# ---- ties at the edge of the weighted tail


def leave_clients(root, accuracy, n_test, seeds=(0, 1)):
    """Runs with these per-client results."""
    for path in fake(root, "adafedadam/table5_synthetic", "fedavg", seeds=seeds):
        table = {"round": 10, "client": range(len(accuracy)), "n_test": n_test, "accuracy": accuracy}
        pd.DataFrame(table).to_parquet(path / "clients.parquet", index=False)


def test_tails_by_position_and_shared():
    """Three of ten clients: two with accuracy 0 and weight 1, and one of four with 0.5 and weights 2, 1, 3, 6.

    The first by number gives 0.5 * 2 / 4, the lightest 0.5 * 1 / 3, the heaviest 0.5 * 6 / 8, and the shared place
    0.5 * 3 / 5 with a quarter of the weight of all four, 12.
    """
    worst_tails = script("worst_tails.py")
    accuracy = np.array([1.0, 0.5, 0.0, 0.5, 1.0, 0.5, 0.5, 1.0, 0.0, 1.0])
    weights = np.array([9.0, 2.0, 1.0, 1.0, 9.0, 3.0, 6.0, 9.0, 1.0, 9.0])
    found = worst_tails.tails(accuracy, weights)
    assert (found.by_position, found.shared, found.low, found.high) == pytest.approx((0.25, 0.3, 0.5 / 3, 0.375))
    apart = worst_tails.tails(np.linspace(0, 1, 10), weights)
    assert apart.by_position == apart.shared == apart.low == apart.high


def test_worst_tails_of_runs_next_to_published_numbers(tmp_path, capsys):
    worst_tails = script("worst_tails.py")
    accuracy = [1.0, 0.5, 0.0, 0.5, 1.0, 0.5, 0.5, 1.0, 0.0, 1.0]
    leave_clients(tmp_path / "runs", accuracy, [9, 2, 1, 1, 9, 3, 6, 9, 1, 9])
    (path, _) = sorted((tmp_path / "runs").rglob("clients.parquet"))
    digest = path.parent.parent.name
    assert worst_tails.main([str(tmp_path / "runs")]) == 0
    (line,) = capsys.readouterr().out.splitlines()[2:]
    numbers = "2 | 25.00 ± 0.00 | 30.00 ± 0.00 | +5.00 | 16.67 to 37.50"
    assert line == f"| adafedadam/table5_synthetic | FedAvg | {digest} | {numbers} |"
    rows = [
        {"experiment": "adafedadam/table5_synthetic", "algo": algo, "hash": digest, "path": f"x/{algo}/{digest}/{seed}",
         "accuracy_worst30_weighted": value}
        for algo, seed, value in (("fedavg", "seed_0", 0.25), ("fedavg", "seed_1", 0.3), ("fednova", "seed_0", 0.5))
    ]  # fmt: skip
    (tmp_path / "report").mkdir()
    pd.DataFrame(rows).to_parquet(tmp_path / "report" / "runs.parquet")
    assert worst_tails.main([str(tmp_path / "runs"), str(tmp_path / "report")]) == 0
    assert capsys.readouterr().out.splitlines()[-3:] == [
        "1 published numbers are those by position",
        "1 published numbers are those shared",
        f"not recomputed, no per-client results: adafedadam/table5_synthetic, FedNova ({digest}), 1 runs",
    ]
    assert worst_tails.main([]) == 2


@pytest.mark.parametrize(
    ("said", "status", "shown"),
    [
        ("requests.exceptions.ConnectionError: refused", 1, "their database cannot be reached"),
        ("Found 1 known vulnerability in 1 package", 1, "Found 1 known vulnerability"),
        ("No known vulnerabilities found", 0, "No known vulnerabilities found"),
    ],
)
def test_an_audit_without_a_network_says_so(tmp_path, said, status, shown):
    """Instead of a traceback; what was found is an error too."""
    fake_audit = tmp_path / "pip-audit"
    fake_audit.write_text(f"#!/bin/sh\necho Traceback >&2\necho '{said}' >&2\nexit {status}\n")
    fake_audit.chmod(0o755)
    made = ["make", "--silent", "--old-file=.venv/dev", f"BIN={tmp_path}", "vulnerabilities"]
    done = subprocess.run(made, cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode != 0) == bool(status)
    assert shown in done.stderr
    assert ("Traceback" in done.stderr) == ("exceptions" not in said)


# ---- sizes


def test_lines_of_code_leave_out_docstrings_comments_and_blank_lines(tmp_path, capsys):
    size = script("code_size.py")
    source = (
        '"""A module."""\n\n# why\nX = """a\nb"""  # two lines\n\n\n'
        'def f():\n    """A function.\n\n    More.\n    """\n    return (\n        1\n    )\n'
    )
    assert size.lines_of_code(source) == 6
    (tmp_path / "room").mkdir()
    (tmp_path / "room" / "a.py").write_text(source)
    (tmp_path / "b.py").write_text("# a comment\n" * 400)
    assert size.main([str(tmp_path), "--max-lines", "6", "--max-files", "2"]) == 0
    assert capsys.readouterr().out.splitlines()[-2:] == ["sum                 2       6", "b.py has 400 lines"]
    assert size.main([str(tmp_path), "--max-files", "1", "--max-module", "350"]) == 1
    assert "2 files, at most 1 are allowed" in capsys.readouterr().err


def test_hops_counts_the_functions_of_the_package_that_were_called():
    hops = script("hops.py")
    from fedbench.core.errors import nearest

    crossed = hops.Crossed()
    hops.sys.setprofile(crossed)
    try:
        nearest("fedavk", ["fedavg"])
    finally:
        hops.sys.setprofile(None)
    assert ("core/errors.py", "nearest") in crossed.functions()
    assert all("<lambda>" not in name for _, name in crossed.functions())
