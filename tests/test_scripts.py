"""What a maintainer runs: that it measures what it says."""

import importlib.util
import sys
from dataclasses import replace
from importlib.machinery import SourceFileLoader

import pytest
import torch
from tools import ROOT, final, task_for

from fedbench.simulation.local_work import LocalWork


def script(name):
    loader = SourceFileLoader(name.removesuffix(".py"), str(ROOT / "scripts" / name))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    module = importlib.util.module_from_spec(spec)
    sys.modules[loader.name] = module
    loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", sorted(path.name for path in (ROOT / "scripts").glob("*.py")))
def test_every_script_finds_what_it_imports(name):
    assert script(name).__doc__


@pytest.mark.parametrize(
    ("name", "clients", "steps"),
    [("W1", 100, 871), ("W2", 200, 1934), ("W3", 10, 40), ("W4", 16, 256), ("W5", 10, 70)],
)
def test_the_workloads_are_those_that_peers_were_measured_on(name, clients, steps):
    """Client-steps of a round; W2's clients are redrawn here, so their number is only close."""
    bench = script("bench.py")
    w = bench.WORKLOADS[name]
    everyone = w.data().train.counts
    cohort = bench.sample_cohort(w.sampled)(0, everyone, 0)
    counts = everyone[cohort]
    assert len(counts) == clients
    found = w.work.epochs[0] * (-(-counts // w.work.batch_size)).sum()
    assert found == steps


def test_the_yardstick_is_fedavg(monkeypatch):
    """A round of the tight loop with full batches is a round of FedAvg from the same model."""
    bench = script("bench.py")
    data = bench.w1().to(torch.device("cpu"), torch.float32)
    w = replace(
        bench.WORKLOADS["W1"],
        work=LocalWork(0.01, 10_000),
    )
    sums = {}
    zeros_like = torch.zeros_like

    def kept(tensor):
        return sums.setdefault(tuple(tensor.shape), zeros_like(tensor))

    torch.manual_seed(0)
    start = torch.cat([p.detach().flatten() for p in w.plain().parameters()])
    with monkeypatch.context() as patch:
        patch.setattr(bench, "synchronize", lambda device: None)
        patch.setattr(bench.torch, "zeros_like", kept)
        bench.tight_loop(w, data)(0)
    theirs = torch.cat([sums[10, 60].flatten(), sums[10,]])
    how = {
        "task": task_for(data),
        "rounds": 1,
        "work": w.work,
        "w": start,
    }
    ours = final(bench.fedavg(bench.SGD), data, **how)
    assert torch.allclose(ours, theirs, rtol=1e-4, atol=1e-6)


# ---- sizes


SOURCE = '''"""A module."""

# why
X = 1


def f():
    """A function.

    More.
    """
'''
PRESSED = "    return [x for x in (1, 2) if x]\n"
AIRY = "    return [\n        x\n        for x in (1, 2)\n        if x\n    ]\n"


def test_code_size_counts_tokens_whatever_the_layout():
    measured = script("code_size.py").measured
    pressed = measured(SOURCE + PRESSED)
    airy = measured(SOURCE + AIRY)
    assert (pressed.tokens, pressed.lines, pressed.branches, pressed.wide) == (22, 3, 1, 0)
    assert (airy.tokens, airy.lines, airy.branches) == (22, 7, 1)
    assert measured(f"{'x' * 101} = 1\n").wide == 1


def test_code_size_has_limits(tmp_path, capsys):
    size = script("code_size.py")
    (tmp_path / "room").mkdir()
    (tmp_path / "room" / "a.py").write_text("X = 1\n")
    (tmp_path / "b.py").write_text("Y = 2\n# a comment\n")
    limits = "--max-tokens 6 --max-per-line 3 --max-branches 0 --max-wide 0"
    assert size.main([str(tmp_path), *limits.split()]) == 0
    sums = capsys.readouterr().out.splitlines()[-1]
    assert sums.split() == "sum 2 6 2 3.00 0.000 0.0%".split()
    assert size.main([str(tmp_path), "--max-tokens", "5"]) == 1
    assert "6 tokens, at most 5 are allowed" in capsys.readouterr().err
