"""Compiled code for dense models: hand-derived steps, agreement with plain autograd, and what it
leaves to others.
"""

import importlib.util
import math
import os
import stat
import subprocess
import sys
from dataclasses import replace

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


def agree(algo, data, tolerance=1e-12, **how):
    """Whether compiled code and plain autograd end with the same model."""
    compiled, plain = (
        final(
            algo,
            data,
            mode=mode,
            **how,
        )
        for mode in ("compiled", "loop")
    )
    return close(compiled, plain, tolerance)


def model_for(data, hidden):
    return task_for(data, MLP, hidden=hidden) if hidden else task_for(data)


def random(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("hidden", [[], [5], [17, 9], [33, 16, 8]], ids=str)
@pytest.mark.parametrize("features", [1, 8, 37])
def test_layers_of_any_size(features, hidden, dtype):
    """Rows shorter and longer than a vector of the CPU, and all remainders of register blocks."""
    data = federation(features=features, classes=7, dtype=dtype)
    work = LocalWork(lr=0.1, batch_size=7, epochs=(1, 3))
    tolerance = 1e-5 if dtype == torch.float32 else 1e-12
    assert agree(
        make("fedavg"),
        data,
        tolerance,
        task=model_for(data, hidden),
        work=work,
    )


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("batch", [None, 100], ids=["full batches", "batches of 100"])
def test_batches_that_pass_in_several_blocks(solver, batch):
    data = federation(sizes=(150, 64, 65, 3))
    work = LocalWork(lr=0.1, batch_size=batch, epochs=(2, 2))
    assert agree(
        make("fedprox", sgd(**SOLVERS[solver]), mu=0.5),
        data,
        work=work,
    )


@pytest.fixture
def compiled_library():
    """The library, or a skipped test where there is no compiler."""
    if kernels().library is None:
        pytest.skip(kernels().source)
    return kernels().library


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("hidden", [[], [5]], ids=str)
def test_no_example_depends_on_those_that_pass_with_it(hidden, dtype, compiled_library):
    """Every block of examples and outputs adds in one order with one rounding per term."""
    data = federation(
        sizes=(64,),
        features=300,
        classes=3,
        dtype=dtype,
    )
    task = model_for(data, hidden)
    kernel = DenseKernel(compiled_library, task)
    w = random(task.size).float()
    examples = kernel.examples(data.x, data.y, data)

    def losses(starts, counts):
        return kernel.measure(
            examples,
            torch.arange(64),
            np.array(starts),
            np.array(counts),
            w,
        )[0]

    (alone,) = losses(range(64), [1] * 64)
    for count in (2, 3, 5, 7, 64):
        (together,) = losses([0], [count])
        assert together.item() == sum(
            alone[:count].tolist(),
            start=0.0,
        )


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

    algo = Algorithm(start=start, step=solver["step"])
    assert agree(algo, federation(features=37))


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_client_that_diverges_changes_no_other(solver):
    data = federation()
    data.x[data.train.index[data.train.starts[1]]] = math.nan
    algo = make("ditto", sgd(**SOLVERS[solver]))
    ends = [
        snapshots(
            algo,
            data,
            mode=mode,
            rounds=1,
        )[-1]
        for mode in ("compiled", "loop")
    ]
    runs = [last.clients["personal"] for last in ends]
    assert [r.isfinite().all(1).tolist() for r in runs] == [[True, False, *[True] * 5]] * 2
    assert torch.allclose(*runs, rtol=1e-12, atol=1e-12, equal_nan=True)


def test_gradients_of_batches_that_a_method_has_changed():
    data = federation()
    task = model_for(data, [5])
    weight = random(2, 4).abs()
    weight[0, 0] = 0  # padding first
    rows = torch.arange(8).view(2, 4)
    batch = Batch(data.features(rows), data.labels(rows), weight)
    w = random(2, task.size)
    compiled, plain = (engine_of(task, mode).oracle for mode in ("compiled", "loop"))
    loss, gradient = plain.loss_and_grad(w, batch)
    own_loss, own_gradient = compiled.loss_and_grad(w, batch)
    assert torch.allclose(own_loss, loss, rtol=1e-12, atol=1e-14)
    for own in (own_gradient, compiled.grad(w, batch)):
        assert torch.allclose(own, gradient, rtol=1e-12, atol=1e-14)


def test_a_model_of_another_type_is_measured_in_the_type_of_the_data():
    data = federation()
    task = task_for(data)
    plan = ExamplePlan(
        task,
        data,
        data.train,
        np.arange(7),
        engine_of(task, "compiled"),
    )
    w = random(task.size).float()
    assert torch.equal(plan.sums(w)[0], plan.sums(w.double())[0])


@pytest.mark.filterwarnings("ignore:divide by zero")  # in the batches of an epoch of no examples
@pytest.mark.parametrize("name", ["fedavg", "adafedadam"])
@pytest.mark.parametrize("steps", [None, 3])
def test_a_client_without_examples_that_a_sampler_draws_does_nothing(steps, name):
    data = federation(sizes=(5, 0, 8))
    work = LocalWork(lr=0.1, batch_size=4, steps=steps)
    assert agree(
        make(name),
        data,
        work=work,
        sampler=lambda *_: np.arange(3),
    )


def test_images_stored_as_bytes():
    """Bytes are normalised by channel as the data set does it, bit for bit."""
    plain = federation(features=2 * 3 * 3, shape=(2, 3, 3))
    pixels = (256 * random(*plain.x.shape).sigmoid()).byte()
    data = replace(
        plain,
        x=pixels,
        mean=torch.tensor([0.3, 0.6]).double(),
        std=torch.tensor([0.2, 0.4]).double(),
    )
    every = torch.arange(len(pixels))
    converted = replace(plain, x=data.features(every))
    task = task_for(converted)
    how = {"task": task, "mode": "compiled"}
    ours = final(make("fedavg"), data, **how)
    theirs = final(make("fedavg"), converted, **how)
    assert torch.equal(ours, theirs)
    assert agree(make("fedavg"), data, task=task)


@pytest.mark.parametrize("own", [False, True], ids=["one model", "own models"])
def test_measurements_are_those_of_plain_passes(own, monkeypatch):
    # several pieces for the larger clients
    monkeypatch.setattr("fedbench.simulation.measurements._PIECE", 9)
    data = federation(tests=(0, 3, 12, 1, 40, 2, 5))
    task = model_for(data, [6])
    ids = np.array([6, 0, 2, 4])
    w = random(
        *([4] if own else []),
        task.size,
        seed=3,
    )
    engines = engine_of(task, "compiled", workers=2), engine_of(task, "loop")
    for rows in (data.train, data.test):
        plans = [ExamplePlan(task, data, rows, ids, engine) for engine in engines]
        (losses, hits), (plain_losses, plain_hits) = (plan.sums(w, hits=True) for plan in plans)
        assert torch.allclose(losses, plain_losses, rtol=1e-12, atol=1e-12)
        assert torch.equal(hits, plain_hits)
        if not own:
            (f, g), (plain_f, plain_g) = (plan.gradients(w) for plan in plans)
            assert torch.allclose(f, plain_f, rtol=1e-12, equal_nan=True)
            assert torch.allclose(g, plain_g, rtol=1e-10, atol=1e-14, equal_nan=True)
    engines[0].close()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_a_probability_that_rounds_to_one_gives_no_gradient(dtype):
    data = federation(sizes=(4,), dtype=dtype)
    data = data.relabelled(torch.zeros_like(data.y))
    task = task_for(data)
    w = torch.zeros(task.size, dtype=dtype)
    w[-data.classes] = 1000.0
    after = final(make("fedavg"), data, task=task, w=w, mode="compiled")
    assert torch.equal(after, w)


def test_little_work_is_done_by_one_thread(compiled_library):
    """The model has 21 parameters: 399457 examples are the most within 2^23 products."""
    kernel = DenseKernel(compiled_library, task_for(federation()))
    assert [kernel.threads(n, 4) for n in (1, 399457, 399458)] == [1, 1, 4]


def test_workers_and_cohorts_change_no_bit():
    plain, *others = (
        final(
            make("fedprox"),
            federation(),
            mode="compiled",
            workers=n,
            cohort_size=size,
        )
        for n, size in ((1, 1000), (2, 1000), (3, 1))
    )
    assert all(torch.equal(other, plain) for other in others)


@pytest.mark.parametrize(
    ("work", "shares", "parts"),
    [
        # in falling order 8, 5, 3, 1 of sum 17: the middle of 8 is below 8.5, the others' above
        ([3, 8, 1, 5], 2, [[1], [0, 2, 3]]),
        ([3, 8, 1], 5, [[1], [0], [2]]),
        ([], 2, []),
        ([0, 4, 4, 0], 2, [[1], [0, 2, 3]]),
        ([0, 0], 2, [[0, 1]]),
    ],
)
def test_shares_are_balanced(work, shares, parts):
    balanced_parts = balanced(np.array(work, dtype=np.int64), shares)
    assert [part.tolist() for part in balanced_parts] == parts


def plus_w(msg, local, *_):
    return local["w"]


@pytest.mark.parametrize(
    ("step", "known"),
    [
        (Descent(), True),
        (Descent(sgd(0.9, True, 0.1, 1.0), lr=0.3, extra=ProximalTerm(2.0)), True),
        (Descent(extra=ProximalTerm(2.0, "shift"), scale="factor"), True),
        (Descent(chain(sgd(weight_decay=0.1), sgd(0.5))), True),
        (Descent(adam(0.9, 0.99, 1e-8)), False),
        # decay after momentum is another solver
        (Descent(chain(sgd(0.5), sgd(weight_decay=0.1))), False),
        (Descent(gradient=plus_w), False),
        (plus_w, False),
    ],
)
def test_the_family_of_steps(step, known):
    assert DenseKernel.supports(step) is known


def test_only_dense_models_are_expressible():
    images = federation(features=64, shape=(1, 8, 8))
    assert expressible(task_for(images))
    assert expressible(task_for(images, MLP, hidden=[3]))
    convolutions = {"channels": [2], "kernel": 3, "hidden": 4}
    assert not expressible(task_for(images, ConvNet, **convolutions))


# ---- the library


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache, and a fresh answer of ``kernels``."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    library.kernels.cache_clear()
    yield tmp_path / "fedbench" / "kernels"
    library.kernels.cache_clear()


NOTHING = "-shared -fPIC -x c++ /dev/null -o"  # compiles a library without kernels


@pytest.fixture
def real():
    """The command of a real compiler."""
    command = library._compiler()
    if command is None:
        pytest.skip("no compiler")
    return command[0]


@pytest.fixture
def compiler(tmp_path, monkeypatch):
    """Make a shell script the compiler, which says ``version`` and then does ``build``."""

    def use(build, version="echo cc 1.0"):
        path = tmp_path / "cc"
        path.write_text(f'#!/bin/sh\nif test "$1" = --version; then {version}; exit; fi\n{build}\n')
        path.chmod(0o755)
        monkeypatch.setenv("CXX", str(path))
        return str(path)

    return use


def compiling(real):
    """Compile a library without kernels into the last argument."""
    return f'for last; do :; done; exec {real} {NOTHING} "$last"'


def test_without_a_compiler(cache, monkeypatch, capfd):
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(cache))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    found = library.kernels()
    assert found.library is None
    assert "no C++ compiler" in found.source
    assert "fedbench-harness[compiler]" in found.source
    slower = "fedbench: linear models and MLPs are slower without compiled kernels: "
    assert capfd.readouterr().err == f"{slower}{found.source}\n"
    library.kernels()  # says it once
    assert capfd.readouterr().err == ""
    assert not cache.exists()


def test_the_packaged_compiler_is_used_where_the_system_has_none(
    cache, real, tmp_path, monkeypatch, capfd
):
    package = tmp_path / "site" / "ziglang"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "__main__.py").write_text(
        "import os, sys\n"
        "assert sys.argv[1] == 'c++'\n"
        "if sys.argv[2] == '--version':\n"
        "    sys.exit(print('zig 1.0'))\n"
        f"os.environ['PATH'] = {os.environ['PATH']!r}\n"
        f"os.execv({real!r}, [{real!r}, *{NOTHING.split()!r}, sys.argv[-1]])\n"
    )
    monkeypatch.syspath_prepend(str(package.parent))
    monkeypatch.setenv("PYTHONPATH", str(package.parent))
    monkeypatch.delenv("CXX", raising=False)
    assert library._compiler()[0] == real
    monkeypatch.setenv("PATH", str(cache))
    assert library.kernels().library is not None
    assert library.kernels().source == "zig 1.0"
    assert "about two minutes" in capfd.readouterr().err
    monkeypatch.setenv("CXX", "/nowhere/c++")  # a compiler that was asked for has no substitute
    assert library._compiler() is None


def test_a_compiler_that_fails_is_one_line(cache, compiler, capfd):
    path = compiler('echo "x: error: no" >&2; exit 1')
    assert library.kernels().library is None
    assert capfd.readouterr().err.splitlines() == [
        "fedbench: compiling the kernels (once per machine)",
        "fedbench: linear models and MLPs are slower without compiled kernels: "
        f"{path} failed: x: error: no",
    ]
    assert not list(cache.glob("*.so"))


@pytest.mark.parametrize("lacks", ["home directory", "output of the compiler"])
def test_what_a_user_lacks_is_no_error(lacks, cache, compiler, monkeypatch, capfd):
    if lacks == "home directory":
        monkeypatch.delenv("XDG_CACHE_HOME")
        monkeypatch.setattr(os.path, "expanduser", lambda path: path)
        compiler("echo cc 1.0")
    else:
        compiler("exit 1", version="true")
    assert library.kernels().library is None
    assert "slower without compiled kernels" in capfd.readouterr().err


def test_compiled_once_into_a_private_directory(cache, compiler, real, tmp_path):
    """The second call compiles nothing; a compiler of another version does."""
    version = tmp_path / "version"
    calls = tmp_path / "calls"
    compiler(f"echo . >> {calls}; {compiling(real)}", version=f"cat {version}")
    for text, compiled in (("cc 1.0", 1), ("cc 1.0", 1), ("cc 2.0", 2)):
        version.write_text(text)
        library.kernels.cache_clear()
        assert library.kernels().library is not None
        assert library.kernels().source == text
        assert len(calls.read_text().split()) == compiled
    assert stat.S_IMODE(cache.stat().st_mode) == 0o700
    assert len(list(cache.glob("*.so"))) == 2


BUILT = """
import sys
from fedbench.simulation.compiled.library import kernels
sys.exit(kernels().library is None)
"""


DAMAGE = {
    "empty": lambda whole: b"",
    "cut": lambda whole: whole[:4096],
    "flip": lambda whole: whole[:-100] + bytes([whole[-100] ^ 1]) + whole[-99:],
}


@pytest.mark.processes
@pytest.mark.parametrize("damage", [*DAMAGE, "renamed"])
def test_a_library_that_is_not_the_one_that_was_built_is_built_again(cache, compiler, real, damage):
    """In a process of its own: a library that is cut off ends the process that loads it."""
    compiler(compiling(real))

    def run():
        done = subprocess.run(
            [sys.executable, "-c", BUILT],
            capture_output=True,
            text=True,
        )
        return done.returncode, "compiling" in done.stderr

    assert run() == (0, True)
    assert run() == (0, False)
    (built,) = cache.glob("*.so")
    if damage == "renamed":
        built.rename(built.with_stem(built.stem[:-1]))
    else:
        built.write_bytes(DAMAGE[damage](built.read_bytes()))
    assert run() == (0, True)
    assert run() == (0, False)


def test_a_cache_of_another_user_is_not_used(cache, real, monkeypatch, capfd):
    user = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: user + 1)
    assert library.kernels().library is None
    assert "belongs to another user" in capfd.readouterr().err
