"""Part d: every form of the large models at the papers' batch sizes, in three precisions."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

import torch
import torch.nn.functional as F
from bench import matmul_rate
from suite.parts import Outcome, Part, Piece, Setting, release, wait_for
from suite.subjects import composed, forms, pictures, prepared, rounds_of, texts
from torch.utils.flop_counter import FlopCounterMode

from fedbench.config.schema import RunConfig
from fedbench.data.dataset import FederatedDataset
from fedbench.models.base import FusedLayer
from fedbench.runs.cores import available_cores
from fedbench.runs.train import PreparedRun

_BATCHES = 4  # full batches of a client in a round
_SECONDS, _LEAST = 1.0, 3  # a form is timed for this long, and for this many rounds at least


@dataclass(frozen=True)
class Subject:
    """A model at a paper's batch size.

    Attributes:
        overrides: Overrides that make the model and the batch size: those of a paper's experiment.
        data: Returns data for training examples per client.
        clients: Number of clients of a round.
    """

    overrides: tuple[str, ...]
    data: Callable[[list[int]], FederatedDataset]
    clients: int


def _images(sizes: list[int]) -> FederatedDataset:
    return pictures((3, 32, 32), sizes, 10)


SUBJECTS = {
    "VGG-11": Subject(("experiment=adafedadam/table5_cifar10_dir005",), _images, 16),
    "ResNet-18-GN": Subject(("experiment=fedcada/table2_device_cifar10_noniid_resnet18",), _images, 10),
    "ResNet-18-GN, 7x7 stem": Subject(("experiment=adafed/table1_cifar10_s2",), _images, 10),
    "LSTM, characters": Subject(
        ("experiment=adafed/table4_shakespeare_s1",), lambda n: texts(80, 80, n, 80), 31
    ),
    "LSTM, tweets": Subject(
        ("experiment=adafedadam/table5_sent140", "model.embedding=25"), lambda n: texts(25, 8000, n, 2), 64
    ),
    "LSTM, words": Subject(
        ("experiment=fafed/figure1_wikitext2",), lambda n: texts(35, 33278, n, 33278, every=True), 20
    ),
}  # fmt: skip
SMALL = {"simple CNN": Subject(("data=cifar10_dir0.05", "model=simplecnn", "local.batch_size=4"), _images, 2)}


def step_operations(run: PreparedRun, batch: int) -> float:
    """Return the floating-point operations of the products in a step, forward and backward, of one client."""
    model = run.task.model  # on the meta device: shapes alone
    fused = [m for m in model.modules() if isinstance(m, FusedLayer)]
    for layer in fused:
        layer.elementary = True  # the counter does not know fused kernels
    rows = run.data.train.index[:batch]
    read = run.data.features(rows), run.data.labels(rows)
    x, y = (torch.empty(tuple(v.shape), dtype=v.dtype, device="meta") for v in read)
    try:
        with FlopCounterMode(display=False) as counter:
            logits = model(x)
            F.cross_entropy(logits.flatten(0, -2), y.flatten()).backward()
    finally:
        for layer in fused:
            layer.elementary = False
        model.zero_grad(set_to_none=True)
    return float(counter.get_total_flops())


def timed(run: PreparedRun, setting: Setting, clock: Callable[[], float] = time.perf_counter) -> float:
    """Return the seconds of the fastest round, after two that warm up."""
    rounds, times = rounds_of(run), []
    for _ in range(1 if setting.small else 3):  # the first is the initial model
        next(rounds)
    wait_for(setting.device)
    while len(times) < _LEAST or (sum(times) < _SECONDS and not setting.small):
        begun = clock()
        next(rounds)
        wait_for(setting.device)
        times.append(clock() - begun)
    rounds.close()
    return min(times)


def compare(subject: Subject, precision: str, setting: Setting) -> Outcome:
    """Time the forms of a model in one precision; a form that fails is wrong, and the others go on."""
    config = composed("algo=fedavg", *subject.overrides, "rounds=100000")
    config = _short(config)
    batch = config.local.batch_size
    assert batch is not None
    data = subject.data([batch * (1 if setting.small else _BATCHES)] * subject.clients)
    steps = int((-(-data.train.counts // batch)).sum())  # of all clients in a round
    rate = operations = 0.0
    rows, wrong = [], []
    for form in forms(config, data, setting.device, precision):
        try:
            run = prepared(config, data, setting.device, form, precision)
            if not rate:  # products are now rounded as in this precision
                dtype = torch.bfloat16 if precision == "bf16" else torch.float32
                rate, operations = matmul_rate(available_cores(), setting.device, dtype), step_operations(run, batch)
            seconds = timed(run, setting) / steps
            run.engine.close()
            rows.append({"form": str(form), "step": seconds, "share": operations / seconds / rate, **_used(run)})
        except Exception as error:
            wrong.append(f"{form}: {type(error).__name__}: {(str(error).splitlines() or [''])[0]}")
        finally:
            release(setting.device)
    return {"batch": batch, "clients": subject.clients, "gflop": operations / 1e9, "rate": rate, "rows": rows} | {
        "wrong": wrong
    }


def _short(config: RunConfig) -> RunConfig:
    """Return the configuration with one epoch and plain images, so that a round is a few steps of equal work."""
    return replace(
        config, local=replace(config.local, epochs=(1, 1), steps=None, crop=0, flip=False), participation=1.0
    )


def _used(run: PreparedRun) -> dict[str, int]:
    return {"cohort_size": run.engine.cohort_size, "memory_errors": run.engine.limits.errors}


def pieces(setting: Setting) -> list[Piece]:
    """Return a piece for each model and precision."""
    if setting.small:
        return [Piece(f"{name}, float32", 0.1, partial(compare, s, "float32")) for name, s in SMALL.items()]
    precisions = ("tf32", "bf16", "float32")
    return [
        Piece(f"{name}, {precision}", 0.7 if "LSTM" in name else 1.2, partial(compare, subject, precision))
        for name, subject in SUBJECTS.items()
        for precision in precisions
    ]


def table(found: Mapping[str, Outcome]) -> list[str]:
    """Return the times of a client-step as a table, the fastest form of each model and precision first."""
    lines = [
        "| model, precision | form | clients at once | ms per client-step | share of the matmul rate |",
        "| --- | --- | ---: | ---: | ---: |",
    ]
    for name, f in found.items():
        for r in sorted(f.get("rows", []), key=lambda r: r["step"]):
            lines.append(f"| {name} | {r['form']} | {r['cohort_size']} | {1000 * r['step']:.3f} | {r['share']:.1%} |")
    return lines


PART = Part("d", "Forms", pieces, table)
