"""The contract on a GPU: the numbers of a CPU, the same bits again, and less at once where memory
runs out.
"""

import pytest
import torch
from command_line import model_of, rows_of
from tools import (
    CASES,
    any_solver,
    case_id,
    close,
    engine_of,
    federation,
    final,
    make,
    share,
    simulated,
    snapshots,
    stages_of,
    task_for,
)
from torch import nn

from fedbench.algorithms.fedavg import fedavg
from fedbench.core.optim import SGD
from fedbench.core.options import Schedule
from fedbench.core.randomness import sample_cohort
from fedbench.core.types import Batch
from fedbench.models.dense import MLP
from fedbench.runs.build import device_of
from fedbench.simulation.captured import CapturedOracle
from fedbench.simulation.local_work import LocalWork
from fedbench.simulation.oracles import make_oracle
from fedbench.simulation.task import Task
from tests.models.test_models import DEEP
from tests.models.test_models import case as batch_of
from tests.simulation.test_captured import part_of, step_with_the_same_bits

if not torch.cuda.is_available():
    pytest.skip("these are the tests of a GPU, which make test-gpu runs", allow_module_level=True)

ROUNDS = 20
DRAWN = LocalWork(
    0.1,
    10,
    (1, 3),
    schedule=Schedule("cosine", decay_to=0.1, rounds=ROUNDS),
)
# what surrounds a method, at its defaults but for what a run of eight clients needs
AROUND = [
    "availability=bernoulli",
    "availability=stragglers",
    "privacy=central algo.weights=uniform participation=0.7",
    *(f"attack={kind} attack.clients=2" for kind in ("alie", "gaussian")),
    *(
        f"defence={rule} algo.weights=uniform"
        for rule in ("median", "krum", "geometric_median", "centered_clipping")
    ),
    *(f"compression={kind}" for kind in ("top_k", "random_k", "qsgd", "sign", "power")),
]


@pytest.fixture(autouse=True)
def gpu():
    """The GPU, as a run sets it up."""
    yield device_of("cuda", "float32")
    assert torch.cuda.current_stream() == torch.cuda.default_stream()
    device_of("cpu", "float32")


def agree(ours, theirs, name):
    assert close(
        ours.cpu().double().flatten(),
        theirs.double().flatten(),
        1e-9,
    ), name


@pytest.mark.parametrize("case", CASES, ids=case_id)
def test_every_method_has_the_numbers_of_a_cpu_and_the_same_bits_again(case, gpu):
    """Twenty rounds with short batches, drawn epochs, a schedule and a part of the clients, in both
    modes.
    """
    how = {"rounds": ROUNDS, "work": DRAWN, "participation": share(case)}

    def run(data, mode, **more):
        return snapshots(
            make(case[0], any_solver(case), **case[1]),
            data,
            mode=mode,
            **how,
            **more,
        )

    here, data = run(federation(), "loop")[-1], federation().to(gpu, torch.float64)
    for mode in ("loop", "stacked"):
        seen = run(data, mode)
        rest = run(
            data,
            mode,
            resume=run(data, mode)[ROUNDS // 2],
        )
        for ours, theirs, again in (
            (seen[-1].server, here.server, rest[-1].server),
            (seen[-1].clients, here.clients, rest[-1].clients),
        ):
            assert ours.keys() == theirs.keys()
            for name in theirs:
                agree(ours[name], theirs[name], f"{mode}: {name}")
                assert torch.equal(ours[name], again[name]), f"{mode}: {name}"


@pytest.mark.parametrize("name", DEEP)
def test_every_model_has_the_numbers_of_a_cpu_and_repeatable_kernels(name, gpu):
    task, batch, w = batch_of(name)
    losses, grads = make_oracle(task, "loop").loss_and_grad(w, batch)
    moved = Batch(*(None if v is None else v.to(gpu) for v in batch[:4]))
    there = Task(task.model, gpu, torch.float64)
    torch.use_deterministic_algorithms(True)  # an operation whose bits may change raises
    try:
        for mode in ("loop", "stacked"):
            found = [make_oracle(there, mode).loss_and_grad(w.to(gpu), moved) for _ in range(3)]
            agree(found[0][0], losses, mode)
            agree(found[0][1], grads, mode)
            assert all(
                torch.equal(a, b)
                for other in found[1:]
                for a, b in zip(found[0], other, strict=True)
            )
            assert close(
                make_oracle(there, mode).logits(w.to(gpu), moved.x).cpu(),
                make_oracle(task, mode).logits(w, batch.x),
                1e-9,
            )
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize(("mode", "lanes"), [("loop", 1), ("loop", 2), ("stacked", 1)])
@pytest.mark.parametrize("name", DEEP)
def test_captured_steps_have_the_same_bits(name, mode, lanes, gpu):
    """Of a step and of one with fewer clients, for each of the three ways to ask, before and after
    it is captured.
    """
    task, batch, w = batch_of(name)
    task = Task(task.model, gpu, torch.float32)
    moved = (
        v if v is None else v.to(gpu, torch.float32 if v.is_floating_point() else v.dtype)
        for v in batch[:4]
    )
    whole = Batch(*moved)
    w = w.to(gpu, torch.float32)
    plain = make_oracle(task, mode)
    captured = CapturedOracle(make_oracle(task, mode, lanes), aligned=lanes > 1)
    for _ in range(5):
        for k in (1, len(w)):
            part = part_of(whole, k)
            theirs = step_with_the_same_bits(captured, plain, w[:k], part)
            grads = [captured.grad(v, part) for v in (w[:k], theirs)]
            assert torch.equal(grads[0], plain.grad(w[:k], part))
            assert torch.equal(grads[1], plain.grad(theirs, part))
            pairs = zip(
                captured.loss_and_grad(theirs, part), plain.loss_and_grad(theirs, part), strict=True
            )
            assert all(torch.equal(a, b) for a, b in pairs)
    assert len(captured.graphs) == 6


class Looking(nn.Module):
    """A model that looks at a number on the host."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(6, 3)

    def forward(self, x):
        return self.linear(x) * (2 if x.sum().item() > 0 else 1)


def test_a_step_that_cannot_be_captured_is_carried_out_as_before(gpu):
    data = federation().to(gpu, torch.float64)
    with torch.device("meta"):
        task = Task(Looking(), gpu, torch.float64)
    engine = engine_of(task, "loop", cohort_size=1)
    w = task.init(torch.Generator().manual_seed(0))
    seen = list(
        simulated(
            stages_of(fedavg(SGD), 6, 7),
            task,
            data,
            DRAWN,
            engine,
            w,
            0,
            sample_cohort(),
        )
    )
    assert (engine.oracle.graphs, engine.oracle.most) == ({}, 0)
    task = Task(task.model, torch.device("cpu"), torch.float64)
    here = final(
        fedavg(SGD),
        federation(),
        task=task,
        rounds=6,
        mode="loop",
        work=DRAWN,
    )
    agree(seen[-1].server["w"], here, "w")


@pytest.mark.parametrize("around", ["", *AROUND])
def test_runs_with_scenarios_have_the_numbers_of_a_cpu(around, fed, tmp_path):
    if "privacy" in around:
        pytest.importorskip("dp_accounting")
    given = ["data.clients=8", "rounds=20", "engine.precision=float64", *around.split()]
    rows = []
    for device in ("cpu", "cuda"):
        status, out, err = fed(*given, f"device={device}", f"results_dir={device}")
        assert status == 0, err
        rows.append(rows_of(tmp_path / out[-1]))
    for here, there in zip(*rows, strict=True):
        assert here.keys() == there.keys()
        for key, value in here.items():
            if isinstance(value, float) and "seconds" not in key:
                assert there[key] == pytest.approx(value, rel=1e-6, abs=1e-9), (here["round"], key)
            elif isinstance(value, int | list) and "memory" not in key:
                assert there[key] == pytest.approx(value, rel=1e-6), (here["round"], key)


@pytest.mark.parametrize("place", ["host", "file"])
def test_states_of_clients_off_the_gpu_change_no_bit(place, fed, tmp_path):
    given = ["data.clients=8", "rounds=4", "algo=scaffold", "local.momentum=0", "device=cuda"]
    found = []
    for where in ("device", place):
        status, out, err = fed(*given, f"engine.client_state={where}", f"results_dir={where}")
        assert status == 0, err
        found.append(model_of(tmp_path / out[-1]))
    assert found[0] == found[1]


@pytest.mark.parametrize("precision", ["tf32", "bf16"])
@pytest.mark.parametrize("model", ["mlp", "cnn", "lstm"])
def test_coarser_numbers_are_near(precision, model, gpu):
    """The loss to 2 %, the gradient to 15 %: pooling and ReLU let other values pass, and 5 % is too
    little for bf16.
    """
    name = {"mlp": "mlp", "cnn": "cnn, three channels", "lstm": "lstm"}[model]
    task, batch, w = batch_of(name)
    losses, grads = make_oracle(task, "loop").loss_and_grad(w, batch)
    device_of("cuda", precision)
    coarse = (v if v is None or not v.is_floating_point() else v.float() for v in batch[:4])
    moved = Batch(*(None if v is None else v.to(gpu) for v in coarse))
    there = Task(
        task.model,
        gpu,
        torch.float32,
        bf16=precision == "bf16",
    )
    for mode in ("loop", "stacked"):
        oracle = CapturedOracle(make_oracle(there, mode))
        for _ in range(4):
            f, g = oracle.loss_and_grad(w.to(gpu, torch.float32), moved)
            assert close(f.cpu().double(), losses, 0.02)
            assert close(g.cpu().double(), grads, 0.15)
        assert len(oracle.graphs) == 1


def test_a_run_goes_on_with_fewer_clients_at_once_when_memory_runs_out(gpu):
    """All 60 clients side by side do not fit into the memory that is left; the model is that of a
    run with enough.
    """
    sizes = [20] * 60
    data = federation(sizes, features=400).to(gpu, torch.float32)
    task = task_for(data, MLP, hidden=[2000])
    w = task.init(torch.Generator().manual_seed(0))

    def run(engine):
        return list(
            simulated(
                stages_of(fedavg(SGD), 2, 60), task, data, DRAWN, engine, w, 0, sample_cohort()
            )
        )

    enough = run(engine_of(task, "stacked"))[-1].server["w"]
    torch.cuda.empty_cache()
    total = torch.cuda.get_device_properties(gpu).total_memory
    torch.cuda.set_per_process_memory_fraction(
        (torch.cuda.memory_reserved() + 100 * w.nbytes) / total
    )
    try:
        engine = engine_of(task, "stacked")
        short = run(engine)[-1].server["w"]
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert engine.limits.errors > 0
    assert engine.limits.clients < 60
    assert torch.allclose(short, enough, rtol=1e-4, atol=1e-5)
