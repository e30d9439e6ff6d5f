"""Where memory runs out, less is done at once and the result stays the same; what takes memory is
counted.
"""

import threading

import numpy as np
import pytest
import torch
from tools import close, engine_of, federation, make, simulated, stages_of, task_for

from fedbench.core.randomness import sample_cohort
from fedbench.models.dense import MLP
from fedbench.runs.build_engine import _fitting, client_bytes
from fedbench.simulation.engine import Engine, Limits
from fedbench.simulation.evaluation import evaluate
from fedbench.simulation.local_work import LocalWork
from fedbench.simulation.measurements import ExamplePlan, Measurements
from fedbench.simulation.memory import OutOfMemory, allocation_failed

DATA = federation((1, 23, 4, 9, 40, 10, 2, 31, 7))
TASK = task_for(DATA)
WORK = LocalWork(lr=0.1, batch_size=10, epochs=(1, 3))
FEDAVG = make("fedavg")
TORCH = "DefaultCPUAllocator: can't allocate memory: you tried ..."


class Short:
    """An oracle or compiled code: models of more clients at once than fit are an error."""

    def __init__(self, inner, error, clients):
        self._inner = inner
        self._error = error
        self._clients = clients
        self.failed = 0

    def __getattr__(self, name):
        inner = getattr(self._inner, name)
        plain = ("most_clients", "reads", "supports", "task", "threads", "weighted_sum", "examples")
        if name in plain:
            return inner

        def guarded(*args, **options):
            if models_of(name, args, options) > self._clients:
                self.failed += 1
                raise self._error
            return inner(*args, **options)

        return guarded


def models_of(name, args, options):
    """Return for how many models a call of an oracle or of compiled code needs memory."""
    if name == "descend":
        return len(args[7]["w"])  # of the local variables
    if name == "measure":
        return len(args[2]) if args[4].dim() == 2 or options.get("gradients") else 1
    return len(args[0])


def run(algo, engine, task=TASK, participation=1.0, rounds=3):
    """Return the snapshots."""
    w = task.init(torch.Generator().manual_seed(0))
    stages = stages_of(algo, rounds, DATA.num_clients)
    sampler = sample_cohort(participation)
    try:
        return list(simulated(stages, task, DATA, WORK, engine, w, 0, sampler))
    finally:
        engine.close()


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
    task = task_for(DATA, MLP, hidden=(5,))
    plain = run(
        make(name),
        engine_of(task, mode, 1000, workers),
        task,
        participation,
    )[-1]
    engine = engine_of(task, mode, 1000, workers)
    error = MemoryError("no memory") if mode == "compiled" else RuntimeError(TORCH)
    short = [Short(engine.oracle, error, 2)]
    engine.oracle = short[0]
    if mode == "compiled":
        engine.kernel = Short(engine.kernel, error, 2)
        short.append(engine.kernel)
    messages = []
    engine.notify = messages.append

    last = run(make(name), engine, task, participation)[-1]
    assert close(last.server["w"], plain.server["w"], 1e-12)
    for k, states in plain.clients.items():
        assert close(last.clients[k].flatten(), states.flatten(), 1e-12)
    assert sum(part.failed for part in short) > 0
    assert min(engine.limits.clients, engine.limits.examples) < 100
    assert len(messages) == engine.limits.errors > 0
    assert "memory ran out" in messages[0]


def short_engine(error, clients, workers):
    """An engine of chunks of 8 clients, and its oracle."""
    engine = engine_of(TASK, "stacked", 8, workers)
    engine.oracle = Short(engine.oracle, error, clients)
    return engine, engine.oracle


def test_the_limits_hold_for_the_rest_of_a_run():
    engine, oracle = short_engine(torch.OutOfMemoryError("CUDA out of memory"), 2, workers=3)
    run(FEDAVG, engine, rounds=1)
    failed = oracle.failed
    assert failed > 0
    assert engine.cohort_size == 2
    assert (engine.workers, engine.limits.errors) == (3, 2)  # 8, 4 (which trains 4 of 9), 2
    run(FEDAVG, engine, rounds=4)
    assert oracle.failed == failed


def test_a_client_that_does_not_fit_is_an_error_with_the_remedy():
    """First the chunk, of 6 clients with similar work, is halved, then the threads are."""
    engine, _ = short_engine(MemoryError("std::bad_alloc"), 0, workers=4)
    seen = []
    engine.notify = lambda sentence: seen.append((engine.cohort_size, engine.workers))
    message = r"of one client does not fit .* use a smaller local.batch_size, .*bad_alloc"
    with pytest.raises(OutOfMemory, match=message):
        run(FEDAVG, engine)
    assert seen == [(3, 4), (2, 4), (1, 4), (1, 2), (1, 1)]


def test_other_errors_pass():
    engine, _ = short_engine(RuntimeError("shape mismatch"), 1, workers=2)
    with pytest.raises(RuntimeError, match="shape mismatch"):
        run(FEDAVG, engine)
    assert engine.limits == Limits()


@pytest.mark.parametrize(("kind", "workers"), [("own", 3), ("gradients", 1), ("logits", 3)])
def test_blocks_of_measurements_shrink(kind, workers, monkeypatch):
    """Blocks of 512 examples of 1024 values are halved until they fit: 4 at once."""
    data = federation(DATA.train.counts, features=1024)
    task = task_for(data)
    w = task.init(torch.Generator().manual_seed(1))
    ids = np.arange(9)

    def measured(engine):
        measurements = Measurements(task, engine)
        match kind:
            case "own":
                return torch.from_numpy(evaluate(measurements, data, w.expand(9, -1)).train_loss)
            case "logits":
                return measurements.predictions(data, w, ids, data.y).logits
            case "gradients":
                return ExamplePlan(task, data, data.train, ids, engine).gradients(w)[1]

    engine = engine_of(task, "stacked", 8, workers)
    plain = measured(engine)
    assert engine.limits == Limits()
    features = type(data).features
    sizes = []

    def short(self, rows, change=None):
        sizes.append(rows.numel())
        if rows.numel() > 32:
            raise RuntimeError(TORCH)
        return features(self, rows, change)

    monkeypatch.setattr(type(data), "features", short)
    assert torch.allclose(measured(engine), plain, rtol=1e-12, atol=1e-14)
    engine.close()
    assert max(sizes) > 32
    assert engine.limits.examples <= 32
    assert engine.limits.clients == Limits().clients


def test_an_example_that_does_not_fit_is_an_error(monkeypatch):
    engine = engine_of(TASK, "stacked", 8, 2)

    def fails(w, x):
        raise MemoryError

    monkeypatch.setattr(TASK, "predict", fails)
    with pytest.raises(OutOfMemory, match=r"measuring one example does not fit into memory"):
        Measurements(TASK, engine).mean_losses(
            DATA,
            np.arange(9),
            torch.zeros(TASK.size).double(),
        )
    assert engine.workers == 1


def test_no_thread_is_at_work_when_an_error_is_raised():
    """Otherwise what the failed attempt holds would be held next to what the next one takes."""
    engine = Engine(None, "stacked", 1, 2)
    at_work = []
    started = threading.Event()

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
    ("error", "message"),
    [
        (MemoryError, ""),
        (torch.OutOfMemoryError, "CUDA out of memory. Tried to allocate 2 GiB"),
        (RuntimeError, TORCH),
        (RuntimeError, "DefaultCPUAllocator: not enough memory: you tried to allocate 8 bytes."),
        (RuntimeError, "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate`"),
        (RuntimeError, "cuDNN error: CUDNN_STATUS_ALLOC_FAILED"),
        (RuntimeError, "GET was unable to find an engine to execute this computation"),
    ],
)
def test_errors_that_mean_that_memory_ran_out(error, message):
    assert allocation_failed(error(message))


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (RuntimeError, "CUDA error: CUBLAS_STATUS_EXECUTION_FAILED"),
        (ValueError, "out of memory"),
        (OutOfMemory, "out of memory"),
    ],
)
def test_errors_that_do_not(error, message):
    assert not allocation_failed(error(message))


def test_torch_and_numpy_say_what_is_recognised():
    with pytest.raises(RuntimeError) as torchs:
        torch.empty(2**60)
    with pytest.raises(MemoryError) as numpys:
        np.empty(2**50)
    assert allocation_failed(torchs.value)
    assert allocation_failed(numpys.value)


def test_activations_of_an_mlp_are_counted_by_hand():
    """64 inputs, 32 hidden and 5 outputs in float64; ReLU and the linear layer after it share what
    they keep.
    """
    data = federation(features=64, classes=5)
    task = task_for(data, MLP, hidden=(32,))
    vectors = 8 * 8 * task.size
    at = {b: client_bytes(task, data, b) - vectors for b in (1, 4, 40)}
    assert at[40] == 10 * at[4] == 40 * at[1]
    # inputs, hidden values, logits, the logarithm of the sum, and the label
    least, most = 8 * (64 + 32), 8 * (64 + 2 * 32 + 3 * 5 + 4)
    assert 2 * least <= at[1] <= 2 * most


@pytest.mark.parametrize(
    ("chunk", "threads", "free", "fitting"),
    [
        (8, 2, 1600, (8, 2)),  # ample: the best for speed
        (8, 2, 1599, (4, 2)),
        (8, 2, 150, (1, 1)),
        (8, 2, 0, (1, 1)),
        (1, 16, 500, (1, 4)),
    ],
)
def test_chunks_and_threads_fit_into_the_memory(chunk, threads, free, fitting):
    """A client takes 100 MB."""
    assert _fitting(chunk, threads, (True, True), 100, free) == fitting


def test_sizes_that_were_asked_for_stay():
    assert _fitting(8, 16, (False, True), 100, 1600) == (8, 2)
    assert _fitting(8, 16, (False, False), 100, 1) == (8, 16)


@pytest.mark.parametrize(("automatic", "then"), [(True, 3), (False, 8)])
def test_a_resumed_run_keeps_its_chunks(automatic, then):
    """Sums depend on them by rounding; less free memory at another time must not change a run's
    last bits.
    """
    engine = Engine(None, "stacked", 8, automatic=automatic)
    engine.resume(Limits(errors=1), 3)
    assert (engine.cohort_size, engine.limits.errors) == (then, 1)
