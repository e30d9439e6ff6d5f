"""Where memory runs out, less is done at once and the result stays the same; what takes memory is counted."""

import itertools
import threading

import numpy as np
import pytest
import torch
from tools import close, engine_of, federation, make, simulated, stages_of, task_for

from fedbench.algorithms.fedavg import fedavg
from fedbench.core.optim import SGD
from fedbench.core.randomness import sample_cohort
from fedbench.models.dense import MLP
from fedbench.runs.build_engine import _fitting, client_bytes
from fedbench.simulation.engine import Engine, Limits
from fedbench.simulation.evaluation import evaluate
from fedbench.simulation.local_work import LocalWork, chunks
from fedbench.simulation.measurements import ExamplePlan, Measurements
from fedbench.simulation.memory import OutOfMemory, allocation_failed

SIZES = (1, 23, 4, 9, 40, 10, 2, 31, 7)
WORK = LocalWork(lr=0.1, batch_size=10, epochs=(1, 3))
TORCH = "[enforce fail at alloc_cpu.cpp:121] err == 0. DefaultCPUAllocator: can't allocate memory: you tried ..."


class Short:
    """Wraps an oracle or compiled code: models of more clients at once than there is memory for are an error."""

    def __init__(self, inner, error, clients):
        self._inner, self._error, self._clients = inner, error, clients
        self.failed = 0

    def __getattr__(self, name):
        what = getattr(self._inner, name)
        plain = ("most_clients", "reads", "supports", "task", "threads", "weighted_sum", "examples")
        return what if name in plain else self._guarded(name, what)

    def _guarded(self, name, what):
        def call(*args, **options):
            if name == "descend":
                models = len(args[7]["w"])  # of the local variables
            elif name == "measure":
                models = len(args[2]) if args[4].dim() == 2 or options.get("gradients") else 1
            else:
                models = len(args[0])
            if models > self._clients:
                self.failed += 1
                raise self._error
            return what(*args, **options)

        return call


def run(algo, engine, data, task, participation=1.0, rounds=3):
    """Return the last snapshot."""
    w = task.init(torch.Generator().manual_seed(0))
    stages = stages_of(algo, rounds, data.num_clients)
    try:
        *_, last = simulated(stages, task, data, WORK, engine, w, 0, sample_cohort(participation))
        return last
    finally:
        engine.close()


def same(a, b):
    """Whether two snapshots hold the same models and client states, up to rounding."""
    pairs = [
        (a.server["w"], b.server["w"]),
        *((a.clients[k].flatten(), b.clients[k].flatten()) for k in a.clients),
    ]
    return all(close(x, y, 1e-12) for x, y in pairs)


@pytest.mark.parametrize(
    ("name", "mode", "workers", "participation"),
    [
        ("adafedadam", "stacked", 1, 1.0),
        ("scaffold", "stacked", 3, 5),
        ("ditto", "loop", 2, 1.0),
        ("fafed", "compiled", 1, 1.0),
        ("qfedavg", "compiled", 2, 5),
    ],
)
def test_after_an_allocation_error_the_result_is_the_same(name, mode, workers, participation):
    data = federation(SIZES)
    task = task_for(data, MLP, hidden=(5,))
    plain = run(make(name), engine_of(task, mode, 1000, workers), data, task, participation)
    engine = engine_of(task, mode, 1000, workers)
    error = MemoryError("no memory") if mode == "compiled" else RuntimeError(TORCH)
    oracle = engine.oracle = Short(engine.oracle, error, 2)
    kernel = oracle
    if mode == "compiled":
        kernel = engine.kernel = Short(engine.kernel, error, 2)
    said = []
    engine.notify = said.append
    last = run(make(name), engine, data, task, participation)
    assert same(last, plain)
    assert oracle.failed + kernel.failed > 0
    assert min(engine.limits.clients, engine.limits.examples) < 100
    assert len(said) == engine.limits.errors > 0
    assert "memory ran out" in said[0]


def test_the_limits_hold_for_the_rest_of_a_run():
    threads = 3
    data = federation(SIZES)
    engine = engine_of(task_for(data), "stacked", 8, threads)
    oracle = engine.oracle = Short(engine.oracle, torch.OutOfMemoryError("CUDA out of memory"), 2)
    failed = []
    w = task_for(data).init(torch.Generator().manual_seed(0))
    for _ in simulated(
        stages_of(fedavg(SGD), 4, 9), task_for(data), data, WORK, engine, w, 0, sample_cohort()
    ):
        failed.append(oracle.failed)
    engine.close()
    assert failed[1] > 0
    assert set(failed[1:]) == {failed[1]}  # the first round only
    assert engine.cohort_size == 2
    assert (engine.workers, engine.limits.errors) == (threads, 2)  # 8, 4 (which trains 4 of 9), 2


def test_a_client_that_does_not_fit_is_an_error_with_the_remedy():
    """First the chunk, of 6 clients with similar work, is halved, then the threads are."""
    data = federation(SIZES)
    task = task_for(data)
    engine = engine_of(task, "stacked", 8, 4)
    engine.oracle = Short(engine.oracle, MemoryError("std::bad_alloc"), 0)
    seen = []
    engine.notify = lambda sentence: seen.append((engine.cohort_size, engine.workers))
    with pytest.raises(
        OutOfMemory,
        match=r"of one client does not fit .* use a smaller local.batch_size, .*bad_alloc",
    ):
        run(fedavg(SGD), engine, data, task)
    assert seen == [(3, 4), (2, 4), (1, 4), (1, 2), (1, 1)]


def test_other_errors_pass():
    data = federation(SIZES)
    task = task_for(data)
    engine = engine_of(task, "stacked", 8, 2)
    engine.oracle = Short(engine.oracle, RuntimeError("shape mismatch"), 1)
    with pytest.raises(RuntimeError, match="shape mismatch"):
        run(fedavg(SGD), engine, data, task)
    assert engine.limits == Limits()


@pytest.mark.parametrize(
    ("kind", "workers"), [("sums", 1), ("own", 3), ("gradients", 1), ("logits", 3)]
)
def test_blocks_of_measurements_shrink(kind, workers, monkeypatch):
    """Blocks of 512 examples of 1024 values are halved until they fit: 4 at once."""
    data = federation(SIZES, features=1024)
    task = task_for(data)
    w = task.init(torch.Generator().manual_seed(1))
    ids = np.arange(len(SIZES))

    def measured(engine):
        try:
            if kind == "sums":
                return Measurements(task, engine).mean_losses(data, ids, w)
            if kind == "own":
                return torch.from_numpy(
                    evaluate(Measurements(task, engine), data, w.expand(len(ids), -1)).train_loss
                )
            if kind == "logits":
                return Measurements(task, engine).predictions(data, w, ids, data.y).logits
            return ExamplePlan(task, data, data.train, ids, engine).gradients(w)[1]
        finally:
            engine.close()

    plain = measured(engine_of(task, "stacked", 8, workers))
    engine, failures = engine_of(task, "stacked", 8, workers), itertools.count()
    features, largest, lock = type(data).features, [], threading.Lock()

    def short(self, rows, change=None):
        with lock:
            if rows.numel() > 32:
                next(failures)
                raise RuntimeError(TORCH)
            largest.append(rows.numel())
        return features(self, rows, change)

    monkeypatch.setattr(type(data), "features", short)
    assert torch.allclose(measured(engine), plain, rtol=1e-12, atol=1e-14)
    assert next(failures) > 0
    assert max(largest) <= 32
    assert engine.limits.examples <= 32
    assert engine.limits.clients == Limits().clients


def test_an_example_that_does_not_fit_is_an_error():
    data = federation(SIZES)
    task = task_for(data)
    engine = engine_of(task, "stacked", 8, 2)
    with pytest.raises(OutOfMemory, match=r"measuring one example does not fit into memory"):

        def fails(w, x):
            raise MemoryError

        task.predict = fails
        Measurements(task, engine).mean_losses(data, np.arange(9), task.init(torch.Generator()))
    assert engine.workers == 1


def test_no_thread_is_at_work_when_an_error_is_raised():
    """Otherwise what the failed attempt holds would be held next to what the next one takes."""
    engine, at_work, started = Engine(None, "stacked", 1, 2), [], threading.Event()

    def item(k):
        if k == 0:
            started.wait(10)
            raise MemoryError
        at_work.append(k)
        started.set()
        threading.Event().wait(0.05)
        at_work.remove(k)

    with pytest.raises(MemoryError):
        engine.map(item, range(20))
    assert at_work == []
    engine.close()


def test_worker_threads_record_no_gradients():
    engine = Engine(None, "stacked", 1, 2)
    assert torch.is_grad_enabled()
    assert engine.map(lambda item: torch.is_grad_enabled(), range(8)) == [False] * 8
    engine.close()


@pytest.mark.parametrize(
    ("error", "is_one"),
    [
        (MemoryError(), True),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"), True),
        (RuntimeError(TORCH), True),
        (
            RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate 8 bytes."),
            True,
        ),
        (RuntimeError("std::bad_alloc"), True),
        (
            RuntimeError(
                "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"
            ),
            True,
        ),
        (RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"), True),
        (RuntimeError("GET was unable to find an engine to execute this computation"), True),
        (RuntimeError("CUDA error: CUBLAS_STATUS_EXECUTION_FAILED"), False),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), False),
        (ValueError("out of memory"), False),
        (OutOfMemory("out of memory"), False),
    ],
)
def test_which_errors_mean_that_memory_ran_out(error, is_one):
    assert allocation_failed(error) == is_one


def test_torch_and_numpy_say_what_is_recognised():
    with pytest.raises(RuntimeError) as torchs:
        torch.empty(2**60)
    with pytest.raises(MemoryError) as numpys:
        np.empty(2**50)
    assert allocation_failed(torchs.value)
    assert allocation_failed(numpys.value)


def test_activations_of_an_mlp_are_counted_by_hand():
    """64 inputs, 32 hidden and 5 outputs in float64; ReLU and the linear layer after it share what they keep."""
    data = federation(features=64, classes=5)
    task = task_for(data, MLP, hidden=(32,))
    vectors = 8 * 8 * task.size
    at = {b: client_bytes(task, data, b) - vectors for b in (1, 4, 40)}
    assert at[40] == 10 * at[4] == 40 * at[1]
    # inputs, hidden values, logits, the logarithm of the sum, and the label
    least, most = 8 * (64 + 32), 8 * (64 + 2 * 32 + 3 * 5 + 4)
    assert 2 * least <= at[1] <= 2 * most


def test_chunks_and_threads_fit_into_the_memory():
    mb = 2**20
    assert _fitting(8, 2, (True, True), 100 * mb, 1600 * mb) == (8, 2)  # ample: the best for speed
    assert _fitting(8, 2, (True, True), 100 * mb, 1599 * mb) == (4, 2)
    assert _fitting(8, 2, (True, True), 100 * mb, 150 * mb) == (1, 1)
    assert _fitting(1, 16, (True, True), 100 * mb, 500 * mb) == (1, 4)
    assert _fitting(8, 16, (False, True), 100 * mb, 1600 * mb) == (8, 2)
    assert _fitting(8, 16, (False, False), 100 * mb, 1) == (8, 16)
    assert _fitting(8, 2, (True, True), 100 * mb, 0) == (1, 1)


@pytest.mark.parametrize("seed", range(5))
def test_chunks_are_those_of_a_loop_over_clients(seed):
    """A chunk ends where a batch would be more than a quarter plus 8 examples larger than its smallest."""
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 60))
    tau, widths, size = (
        rng.integers(1, 4, count),
        rng.integers(1, 80, count),
        int(rng.integers(1, 9)),
    )
    order = sorted(range(count), key=lambda k: (-tau[k], -widths[k], k))
    groups = []
    for k in order:
        inside = [widths[j] for j in groups[-1]] + [widths[k]] if groups else []
        if not groups or max(inside) > 1.25 * min(inside) + 8:
            groups.append([])
        groups[-1].append(k)
    want = [part.tolist() for g in groups for part in np.array_split(g, -(-len(g) // size))]
    assert [part.tolist() for part in chunks(np.arange(count), tau, widths, size)] == want


def test_no_clients_have_no_chunks():
    none = np.zeros(0, dtype=np.int64)
    assert chunks(none, none, none, 5) == []


@pytest.mark.parametrize(("automatic", "then"), [(True, 3), (False, 8)])
def test_a_resumed_run_keeps_its_chunks(automatic, then):
    """Sums depend on them by rounding; less free memory at another time must not change a run's last bits."""
    engine = Engine(None, "stacked", 8, automatic=automatic)
    engine.resume(Limits(errors=1), 3)
    assert (engine.cohort_size, engine.limits.errors) == (then, 1)
