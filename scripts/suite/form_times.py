"""Part d: every form of the large models at the papers' batch sizes, in three precisions."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

import torch
import torch.nn.functional as F
from bench import matmul_rate
from suite.parts import Outcome, Part, Piece, Setting, of_each_form, wait_for
from suite.subjects import composed, forms, pictures, prepared, rounds_of, texts
from torch.utils.flop_counter import FlopCounterMode

from fedbench.config.schema import RunConfig
from fedbench.data.dataset import FederatedDataset
from fedbench.models.base import FusedLayer
from fedbench.runs.cores import available_cores
from fedbench.runs.train import PreparedRun
from fedbench.simulation.forms import Form

_BATCHES = 4  # full batches of a client in a round
_LONG = 5.0  # seconds of a first round after which a form is not timed again
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
    """Return the seconds of the fastest round, after two that warm up; of the first one if it takes long."""
    rounds, times = rounds_of(run), []

    def one() -> float:
        begun = clock()
        next(rounds)
        wait_for(setting.device)
        return clock() - begun

    next(rounds)  # the initial model
    if not setting.small:
        wait_for(setting.device)
        if (first := one()) > _LONG:
            return first
        one()
    while len(times) < _LEAST or (sum(times) < _SECONDS and not setting.small):
        times.append(one())
    return min(times)


def compare(subject: Subject, precision: str, setting: Setting) -> Outcome:
    """Time the forms of a model in one precision."""
    config = _short(composed("algo=fedavg", *subject.overrides, "rounds=100000"))
    batch = config.local.batch_size
    assert batch is not None
    data = subject.data([batch * (1 if setting.small else _BATCHES)] * subject.clients)
    steps = int((-(-data.train.counts // batch)).sum())  # of all clients in a round
    rate, operations = _measures(config, data, setting, precision)

    def row(form: Form) -> dict[str, object]:  # whose run is gone before the next one is prepared
        run = prepared(config, data, setting.device, form, precision)
        try:
            seconds = timed(run, setting) / steps
        finally:
            run.engine.close()
        return {"step": seconds, "share": operations / seconds / rate, **_used(run)}

    found = of_each_form(forms(config, data, setting.device, precision), setting, row)
    return {**found, "batch": batch, "clients": subject.clients, "gflop": operations / 1e9, "rate": rate}


def _measures(config: RunConfig, data: FederatedDataset, setting: Setting, precision: str) -> tuple[float, float]:
    """Return the rate of matrix products in a precision, and the operations of a step."""
    run = prepared(config, data, setting.device, Form("loop"), precision)  # which sets how products are rounded
    run.engine.close()
    assert config.local.batch_size is not None
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    rate = matmul_rate(available_cores(), setting.device, dtype)
    return rate, step_operations(run, config.local.batch_size)


def _short(config: RunConfig) -> RunConfig:
    """Return the configuration with one epoch and plain images, so that a round is a few steps of equal work."""
    return replace(
        config, local=replace(config.local, epochs=(1, 1), steps=None, crop=0, flip=False), participation=1.0
    )


def _used(run: PreparedRun) -> dict[str, int]:
    return {"cohort_size": run.engine.cohort_size, "memory_errors": run.engine.limits.errors}


def pieces(setting: Setting) -> list[Piece]:
    """Return a piece for each model and precision; one that does not fit into the time goes on in the next."""
    if setting.small:
        return [Piece(f"{name}, float32", 0.1, partial(compare, s, "float32")) for name, s in SMALL.items()]
    precisions = ("tf32", "float32", "bf16")
    return [
        Piece(f"{name}, {precision}", 1.0, partial(compare, subject, precision))
        for precision in precisions
        for name, subject in SUBJECTS.items()
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
