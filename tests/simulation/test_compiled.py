"""Compiled code for dense models: hand-derived steps, agreement with plain autograd, and what it leaves to others."""

import importlib.util
import math
import os
import stat
import subprocess
import sys

import numpy as np
import pytest
import torch
from tools import SOLVERS, close, engine_of, federation, final, make, snapshots, task_for

from fedbench.core.algorithm import Algorithm, Descent, GradientShift, ProximalTerm, descent
from fedbench.core.optim import adam, chain, sgd
from fedbench.core.types import Batch
from fedbench.models.cnn import ConvNet
from fedbench.models.dense import MLP
from fedbench.simulation.compiled import library
from fedbench.simulation.compiled.dense import DenseKernel, expressible
from fedbench.simulation.compiled.library import kernels
from fedbench.simulation.local_work import LocalWork, balanced
from fedbench.simulation.measurements import ExamplePlan


def test_a_step_by_hand():
    """From w = 0 all classes have probability 1/3: the step adds lr (1[k = y] - 1/3) x to row k, and to its bias."""
    data = federation(sizes=(1,), features=2, classes=3)
    x, y = data.x[0], int(data.y[0])
    task = task_for(data)
    w = final(
        make("fedavg"),
        data,
        task=task,
        w=torch.zeros(task.size, dtype=torch.float64),
        rounds=1,
        mode="compiled",
    )
    weight, bias = task.layout.views(w)
    for k in range(3):
        step = 0.1 * ((k == y) - 1 / 3)
        assert torch.allclose(weight[k], step * x, rtol=1e-15, atol=0)
        assert bias[k].item() == pytest.approx(step, rel=1e-15)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("hidden", [[], [5], [17, 9], [33, 16, 8]], ids=str)
@pytest.mark.parametrize("features", [1, 8, 37])
def test_layers_of_any_size(features, hidden, dtype):
    """Rows shorter and longer than a vector of the CPU, and every remainder of the register blocks."""
    data = federation(features=features, classes=7, dtype=dtype)
    task = task_for(data, MLP, hidden=hidden) if hidden else task_for(data)
    work = LocalWork(lr=0.1, batch_size=7, epochs=(1, 3))
    a, b = (
        final(make("fedavg"), data, task=task, mode=mode, work=work)
        for mode in ("compiled", "loop")
    )
    assert close(a, b, 1e-5 if dtype == torch.float32 else 1e-12)


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("batch", [None, 100], ids=["full batches", "batches of 100"])
def test_batches_that_pass_in_several_blocks(solver, batch):
    data = federation(sizes=(150, 64, 65, 3))
    work = LocalWork(lr=0.1, batch_size=batch, epochs=(2, 2))
    algo = make("fedprox", sgd(**SOLVERS[solver]), mu=0.5)
    a, b = (final(algo, data, mode=mode, work=work) for mode in ("compiled", "loop"))
    assert close(a, b, 1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("hidden", [[], [5]], ids=str)
def test_no_example_depends_on_those_that_pass_with_it(hidden, dtype):
    """Every block of examples and outputs adds in one order with one rounding per term, also a single sum by itself."""
    data = federation(sizes=(64,), features=300, classes=3, dtype=dtype)
    task = task_for(data, MLP, hidden=hidden) if hidden else task_for(data)
    if (library := kernels().library) is None:
        pytest.skip(kernels().source)
    kernel, w = (
        DenseKernel(library, task),
        torch.randn(task.size, generator=torch.Generator().manual_seed(0)),
    )
    (alone,), _ = kernel.measure(
        kernel.examples(data.x, data.y, data),
        torch.arange(64),
        np.arange(64),
        np.ones(64, dtype=np.int64),
        w,
    )
    for count in (2, 3, 5, 7, 64):
        (together,), _ = kernel.measure(
            kernel.examples(data.x, data.y, data),
            torch.arange(64),
            np.zeros(1, dtype=np.int64),
            np.array([count]),
            w,
        )
        added = 0.0
        for loss in alone[:count].tolist():
            added += loss
        assert together.item() == added


EXTRAS = {
    "plain": None,
    "pull": ProximalTerm(0.5),
    "shift": GradientShift("shift"),
    "pull and offset": ProximalTerm(0.5, "shift"),
}


@pytest.mark.parametrize("extra", EXTRAS.values(), ids=EXTRAS)
@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("decay", [0.0, 0.1])
@pytest.mark.parametrize("clip", [None, 0.3])
def test_every_combination_of_parts_of_a_step(clip, decay, momentum, extra):
    solver = descent(sgd(momentum, weight_decay=decay, clip_norm=clip), extra=extra)

    def start(msg, client, info):
        return {**solver["start"](msg, client, info), "shift": 0.1 * msg["w"] + info.lr}

    algo, data = Algorithm(start=start, step=solver["step"]), federation(features=37)
    a, b = (final(algo, data, mode=mode) for mode in ("compiled", "loop"))
    assert close(a, b, 1e-12)


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_client_that_diverges_changes_no_other(solver):
    data = federation()
    data.x[data.train.index[data.train.starts[1]]] = math.nan
    runs = [
        snapshots(make("ditto", sgd(**SOLVERS[solver])), data, mode=mode, rounds=1)[-1].clients[
            "personal"
        ]
        for mode in ("compiled", "loop")
    ]
    assert [r.isfinite().all(1).tolist() for r in runs] == [[True, False, *[True] * 5]] * 2
    assert torch.allclose(*runs, rtol=1e-12, atol=1e-12, equal_nan=True)


@pytest.mark.parametrize("uneven", ["weights", "padding first"])
def test_gradients_of_batches_that_a_method_has_changed(uneven):
    data = federation()
    task = task_for(data, MLP, hidden=[5])
    generator = torch.Generator().manual_seed(0)
    w, weight = (torch.rand(2, n, generator=generator, dtype=torch.float64) for n in (task.size, 4))
    if uneven == "padding first":
        weight = torch.tensor([[0, 0.5, 0.5, 0], [0.25] * 4], dtype=torch.float64)
    rows = torch.arange(8).view(2, 4)
    batch = Batch(data.features(rows), data.labels(rows), weight)
    compiled, plain = engine_of(task, "compiled").oracle, engine_of(task, "loop").oracle
    for own, whole in zip(
        compiled.loss_and_grad(w, batch), plain.loss_and_grad(w, batch), strict=True
    ):
        assert torch.allclose(own, whole, rtol=1e-12, atol=1e-14)
    assert torch.allclose(compiled.grad(w, batch), plain.grad(w, batch), rtol=1e-12, atol=1e-14)


def test_a_model_of_another_type_is_measured_in_the_type_of_the_data():
    data = federation()
    task, ids = task_for(data), np.arange(7)
    w = torch.randn(task.size, generator=torch.Generator().manual_seed(0))
    engine = engine_of(task, "compiled")
    found, wanted = (
        ExamplePlan(task, data, data.train, ids, engine).sums(v)[0] for v in (w, w.double())
    )
    assert torch.equal(found, wanted)


@pytest.mark.filterwarnings("ignore:divide by zero")  # in the batches of an epoch of no examples
@pytest.mark.parametrize("name", ["fedavg", "adafedadam"])
@pytest.mark.parametrize("steps", [None, 3])
def test_a_client_without_examples_that_a_sampler_draws_does_nothing(steps, name):
    data, work = federation(sizes=(5, 0, 8)), LocalWork(lr=0.1, batch_size=4, steps=steps)

    def everyone(round, n, seed):
        return np.arange(3)

    a, b = (
        final(make(name), data, mode=mode, work=work, sampler=everyone)
        for mode in ("compiled", "loop")
    )
    assert close(a, b, 1e-12)


def test_images_stored_as_bytes():
    """Bytes are normalised by channel as the data set does it, bit for bit."""
    rng = np.random.default_rng(0)
    plain = federation(features=2 * 3 * 3, shape=(2, 3, 3))
    data = type(plain)(
        **{
            **plain.__dict__,
            "x": torch.from_numpy(rng.integers(0, 256, plain.x.shape, dtype=np.uint8)),
            "mean": torch.tensor([0.3, 0.6], dtype=torch.float64),
            "std": torch.tensor([0.2, 0.4], dtype=torch.float64),
        }
    )
    converted = type(plain)(**{**plain.__dict__, "x": data.features(torch.arange(len(data.x)))})
    runs = [
        final(make("fedavg"), d, task=task_for(converted), mode="compiled")
        for d in (data, converted)
    ]
    assert torch.equal(*runs)
    assert close(runs[0], final(make("fedavg"), data, task=task_for(converted), mode="loop"), 1e-12)


def test_a_limit_on_steps_ends_within_an_epoch():
    data, work = federation(), LocalWork(lr=0.1, batch_size=4, steps=7)
    a, b = (final(make("scaffold"), data, mode=mode, work=work) for mode in ("compiled", "loop"))
    assert close(a, b, 1e-12)


@pytest.mark.parametrize("own", [False, True], ids=["one model", "own models"])
def test_measurements_are_those_of_plain_passes(own, monkeypatch):
    # several pieces for the larger clients
    monkeypatch.setattr("fedbench.simulation.measurements._PIECE", 9)
    data = federation(tests=(0, 3, 12, 1, 40, 2, 5))
    task, ids = task_for(data, MLP, hidden=[6]), np.array([6, 0, 2, 4])
    generator = torch.Generator().manual_seed(3)
    w = torch.randn(*([4] if own else []), task.size, generator=generator, dtype=torch.float64)
    compiled, loop = engine_of(task, "compiled", workers=2), engine_of(task, "loop")
    for rows in (data.train, data.test):
        found, wanted = (
            ExamplePlan(task, data, rows, ids, e).sums(w, hits=True) for e in (compiled, loop)
        )
        assert torch.allclose(found[0], wanted[0], rtol=1e-12, atol=1e-12)
        assert torch.equal(found[1], wanted[1])
    if not own:
        (f, g), (f0, g0) = (
            ExamplePlan(task, data, data.train, ids, e).gradients(w) for e in (compiled, loop)
        )
        assert torch.allclose(f, f0, rtol=1e-12)
        assert torch.allclose(g, g0, rtol=1e-10, atol=1e-14)
    compiled.close()


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_numbers_that_are_not_finite_stay_so(bad):
    data = federation(sizes=(5, 8))
    task = task_for(data)
    w = torch.zeros(task.size, dtype=torch.float64)
    w[-1] = bad  # a bias
    for mode in ("compiled", "loop"):
        assert torch.isnan(final(make("fedavg"), data, task=task, w=w, mode=mode, rounds=1)).any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_a_probability_that_rounds_to_one_gives_no_gradient(dtype):
    data = federation(sizes=(4,), dtype=dtype)
    data = data.relabelled(torch.zeros_like(data.y))
    task = task_for(data)
    w = torch.zeros(task.size, dtype=dtype)
    w[-data.classes] = 1000.0
    assert torch.equal(final(make("fedavg"), data, task=task, w=w, mode="compiled"), w)


def test_little_work_is_done_by_one_thread():
    """The model has 21 parameters: 399457 examples are the most within 2^23 products."""
    library = kernels().library
    if library is None:
        pytest.skip(kernels().source)
    kernel = DenseKernel(library, task_for(federation()))
    assert [kernel.threads(n, 4) for n in (1, 399457, 399458)] == [1, 1, 4]


def test_workers_and_cohorts_change_no_bit():
    data = federation()
    runs = [
        snapshots(make("fedprox"), data, mode="compiled", workers=n, cohort_size=size)[-1].server[
            "w"
        ]
        for n, size in ((1, 1000), (2, 1000), (3, 1))
    ]
    assert torch.equal(runs[0], runs[1])
    assert torch.equal(runs[0], runs[2])


def test_shares_are_balanced():
    """In falling order 8, 5, 3, 1 of sum 17: the middle of 8 is below 8.5, those of the others are above."""
    parts = balanced(np.array([3, 8, 1, 5]), 2)
    assert [p.tolist() for p in parts] == [[1], [0, 2, 3]]
    assert [p.tolist() for p in balanced(np.array([3, 8, 1]), 5)] == [[1], [0], [2]]
    assert balanced(np.array([2, 1]), 1)[0].tolist() == [0, 1]
    assert balanced(np.array([], dtype=np.int64), 2) == []
    assert [p.tolist() for p in balanced(np.array([0, 4, 4, 0]), 2)] == [[1], [0, 2, 3]]
    assert [p.tolist() for p in balanced(np.array([0, 0]), 2)] == [[0, 1]]


def test_the_family_of_steps():
    known = [
        Descent(),
        Descent(sgd(0.9, True, 0.1, 1.0), lr=0.3, extra=ProximalTerm(2.0)),
        Descent(extra=GradientShift("shift")),
    ]
    known.append(Descent(extra=ProximalTerm(2.0, "shift"), scale="factor"))
    known.append(Descent(chain(sgd(weight_decay=0.1), sgd(0.5))))
    other = [
        Descent(adam(0.9, 0.99, 1e-8)),
        Descent(chain(sgd(0.5), sgd(weight_decay=0.1))),  # decay after momentum is another solver
        Descent(gradient=lambda oracle, msg, local, batch, info: local["w"]),
        Descent(extra=lambda msg, local, info: local["w"]),
        lambda oracle, msg, local, batch, info: local,
    ]
    assert all(DenseKernel.supports(step) for step in known)
    assert not any(DenseKernel.supports(step) for step in other)


def test_only_dense_models_are_expressible():
    images = federation(features=64, shape=(1, 8, 8))
    assert expressible(task_for(images))
    assert expressible(task_for(images, MLP, hidden=[3]))
    assert not expressible(task_for(images, ConvNet, channels=[2], kernel=3, hidden=4))


# ---- the library


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache, and a fresh answer of ``kernels``."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    library.kernels.cache_clear()
    yield tmp_path / "fedbench" / "kernels"
    library.kernels.cache_clear()


def script(path, text):
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def test_without_a_compiler(cache, monkeypatch, capfd):
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(cache))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert library.kernels().library is None
    assert "no C++ compiler" in library.kernels().source
    assert "fedbench-harness[compiler]" in library.kernels().source
    assert capfd.readouterr().err == ""
    assert not cache.exists()


NOTHING = "-shared -fPIC -x c++ /dev/null -o"  # compiles a library without kernels


def test_the_packaged_compiler_is_used_where_the_system_has_none(
    cache, tmp_path, monkeypatch, capfd
):
    real = library._compiler()
    if real is None:
        pytest.skip("no compiler")
    package = tmp_path / "site" / "ziglang"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "__main__.py").write_text(
        "import os, sys\n"
        "assert sys.argv[1] == 'c++'\n"
        "if sys.argv[2] == '--version':\n"
        "    sys.exit(print('zig 1.0'))\n"
        f"os.environ['PATH'] = {os.environ['PATH']!r}\n"
        f"os.execv({real[0]!r}, [{real[0]!r}, *{NOTHING.split()!r}, sys.argv[-1]])\n"
    )
    monkeypatch.syspath_prepend(str(package.parent))
    monkeypatch.setenv("PYTHONPATH", str(package.parent))
    monkeypatch.delenv("CXX", raising=False)
    assert library._compiler() == real
    monkeypatch.setenv("PATH", str(cache))
    assert library.kernels().library is not None
    assert library.kernels().source == "zig 1.0"
    assert "about two minutes" in capfd.readouterr().err
    monkeypatch.setenv("CXX", "/nowhere/c++")  # a compiler that was asked for has no substitute
    assert library._compiler() is None


def test_a_compiler_that_fails_is_one_line(cache, tmp_path, monkeypatch, capfd):
    compiler = script(
        tmp_path / "cc",
        'test "$1" = --version && echo cc 1.0 && exit 0; echo "x: error: no" >&2; exit 1',
    )
    monkeypatch.setenv("CXX", compiler)
    assert library.kernels().library is None
    lines = capfd.readouterr().err.splitlines()
    assert lines[0] == "fedbench: compiling the kernels (once per machine)"
    assert lines[1:] == [
        f"fedbench: the kernels are not available, runs are slower: {compiler} failed: x: error: no"
    ]
    assert not list(cache.glob("*.so"))


@pytest.mark.parametrize("user", ["without a home directory", "of a compiler that says nothing"])
def test_what_a_user_lacks_is_no_error(user, cache, tmp_path, monkeypatch, capfd):
    if user == "without a home directory":
        monkeypatch.delenv("XDG_CACHE_HOME")
        monkeypatch.setattr(os.path, "expanduser", lambda path: path)
        monkeypatch.setenv("CXX", script(tmp_path / "cc", "echo cc 1.0"))
    else:
        monkeypatch.setenv("CXX", script(tmp_path / "cc", 'test "$1" = --version || exit 1'))
    assert library.kernels().library is None
    assert "the kernels are not available" in capfd.readouterr().err


def test_compiled_once_into_a_private_directory(cache, tmp_path, monkeypatch, capfd):
    """The second call compiles nothing; a compiler of another version does."""
    real = library._compiler()
    if real is None:
        pytest.skip("no compiler")
    version = tmp_path / "version"
    version.write_text("cc 1.0")
    calls = tmp_path / "calls"
    monkeypatch.setenv(
        "CXX",
        script(
            tmp_path / "cc",
            f'test "$1" = --version && cat {version} && exit 0; echo . >> {calls}\n'
            f'for last; do :; done; exec {real[0]} {NOTHING} "$last"',
        ),
    )
    for wanted, text in ((1, "cc 1.0"), (1, "cc 1.0"), (2, "cc 2.0")):
        version.write_text(text)
        library.kernels.cache_clear()
        assert library.kernels().library is not None
        assert library.kernels().source == text
        assert len(calls.read_text().split()) == wanted
    assert stat.S_IMODE(cache.stat().st_mode) == 0o700
    assert len(list(cache.glob("*.so"))) == 2
    capfd.readouterr()


BUILT = """
import sys
from fedbench.simulation.compiled.library import kernels
sys.exit(kernels().library is None)
"""


@pytest.mark.parametrize("damage", ["empty", "cut", "flip", "renamed"])
def test_a_library_that_is_not_the_one_that_was_built_is_built_again(cache, tmp_path, damage):
    """In a process of its own: a library that is cut off ends the process that loads it."""
    real = library._compiler()
    if real is None:
        pytest.skip("no compiler")
    last = f'for last; do :; done; exec {real[0]} {NOTHING} "$last"'
    compiler = script(tmp_path / "cc", f'test "$1" = --version && echo cc 1.0 && exit 0; {last}')

    def run():
        environment = {**os.environ, "CXX": compiler, "XDG_CACHE_HOME": str(tmp_path)}
        command = [sys.executable, "-c", BUILT]
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        return done.returncode, "compiling" in done.stderr

    assert run() == (0, True)
    assert run() == (0, False)
    (built,) = cache.glob("*.so")
    whole = built.read_bytes()
    match damage:
        case "empty":
            built.write_bytes(b"")
        case "cut":
            built.write_bytes(whole[:4096])
        case "flip":
            built.write_bytes(whole[:-100] + bytes([whole[-100] ^ 1]) + whole[-99:])
        case _:
            built.rename(built.with_stem(built.stem[:-1]))
    assert run() == (0, True)
    assert run() == (0, False)


def test_a_cache_of_another_user_is_not_used(cache, monkeypatch, capfd):
    if library._compiler() is None:
        pytest.skip("no compiler")
    user = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: user + 1)
    assert library.kernels().library is None
    assert "belongs to another user" in capfd.readouterr().err
