"""How long the runs of a plan will take on this machine: from runs that are there, else from a short calibration."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import torch
from torch import nn

from fedbench.config.compose import compose_run
from fedbench.core.errors import RequestError
from fedbench.core.trees import Tree
from fedbench.papers.plan import PlannedRun
from fedbench.runs.store import DamagedRun, read_run

# training FLOPs per example of models that a profile puts in place of the paper's, by config name
_CUT_MODELS = {"linear": 1.8e5, "simplecnn": 2.7e7}
_CALIBRATION = 0.5  # seconds per kind of layer
_START = 1.0  # seconds to read data and set up (the smoke profile's 400 runs, measured)
_STEP = 3e-5  # seconds that a step costs however small it is, side by side with others (the linear model, measured)


@dataclass(frozen=True)
class Rates:
    """Floating-point operations per second of a training step, by what the model is made of."""

    dense: float
    convolution: float
    recurrent: float

    def of(self, model: str) -> float:
        """Return the rate for a model, by its name in the config tree."""
        if model.startswith("lstm"):
            return self.recurrent
        return self.dense if model.startswith(("linear", "mlp")) else self.convolution


@cache
def calibrate(device: str) -> Rates:
    """Measure the rates on a device, of one thread where it is the CPU, within seconds.

    Args:
        device: auto, or one of torch.

    Raises:
        RequestError: if torch cannot use the device.
    """
    where = _usable(device)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as runs do, whose workers are threads of their own
    try:
        return _measured(where)
    finally:
        torch.set_num_threads(threads)


def _measured(where: torch.device) -> Rates:
    x = torch.randn(32, 784, device=where)
    dense = nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512))
    image = torch.randn(32, 16, 32, 32, device=where).contiguous(memory_format=torch.channels_last)
    convolution = nn.Sequential(nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 64, 3, padding=1))
    text = torch.randn(10, 80, 64, device=where)
    recurrent = nn.LSTM(64, 128, batch_first=True)
    return Rates(
        dense=_rate(dense.to(where), x, 3 * 2 * 32 * (784 * 512 + 512 * 512)),
        convolution=_rate(convolution.to(where), image, 3 * 2 * 32 * 32 * 32 * 9 * (16 * 32 + 32 * 64)),
        recurrent=_rate(recurrent.to(where), text, 3 * 2 * 10 * 80 * 4 * 128 * (64 + 128)),
    )


def _usable(device: str) -> torch.device:
    try:
        where = torch.device(("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device)
        torch.ones(1, device=where).item()
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise RequestError(f"device={device} cannot be used here; use auto, cpu, cuda or cuda:<i>") from error
    return where


def _rate(model: nn.Module, x: torch.Tensor, operations: float) -> float:
    def step() -> None:
        out = model(x)
        (out[0] if isinstance(out, tuple) else out).sum().backward()
        if x.device.type == "cuda":
            torch.cuda.synchronize(x.device)

    step()
    best, until = float("inf"), time.perf_counter() + _CALIBRATION
    while (start := time.perf_counter()) < until:  # the best of many: other work on the machine slows most of them
        step()
        best = min(best, time.perf_counter() - start)
    return operations / best


class Estimator:
    """Estimates the seconds of runs.

    Args:
        rates: gives the rates when they are needed, so that a plan whose runs are all there measures nothing.
        cores: that a run has to itself.
    """

    def __init__(self, rates: Callable[[], Rates], cores: int = 1) -> None:
        self.rates, self.cores = rates, cores
        self._seen: dict[tuple[str, ...], float] = {}

    def seconds(self, job: PlannedRun, others: Sequence[PlannedRun]) -> float:
        """Return the seconds that a run will take.

        Args:
            job: the run.
            others: runs of the plan that are done.
        """
        if job.setting not in self._seen:
            measured = [t for o in others if o.setting == job.setting and (t := _took(o)) is not None]
            self._seen[job.setting] = sum(measured) / len(measured) if measured else self._computed(job)
        return self._seen[job.setting]

    def _workers(self, config: Tree) -> int:
        workers = config["engine"]["workers"]
        return self.cores if workers == "auto" else min(int(workers), self.cores)

    def _computed(self, job: PlannedRun) -> float:
        setup, config = job.paper.setups[job.row.setup], job.config
        flops = _CUT_MODELS.get(job.cut.get("model", ""), setup.flops)
        if hidden := job.cut.get("model.hidden"):
            flops *= (hidden / _paper_hidden(job.experiment)) ** 2
        clients = config["data"].get("clients") or setup.clients or 1
        share = config["participation"]
        cohort = share if isinstance(share, int) and share > 1 else max(1.0, share * clients)
        local, size = config["local"], setup.samples
        batch = size if local["batch_size"] == "full" else min(local["batch_size"], size)
        epochs = local["epochs"] if isinstance(local["epochs"], int) else sum(local["epochs"]) / 2
        steps = local["steps"] or epochs * -(-size // batch)
        factor = job.paper.methods[job.row.algo].gradients
        rate = self.rates().of(_kind(config)) * self._workers(config)
        training = cohort * steps * factor * max(batch * flops / rate, _STEP)
        looks = 1 / config["eval_every"]
        evaluation = looks * clients * size * flops / 3 / rate
        return float(_START + config["rounds"] * (training + evaluation))


@cache
def _paper_hidden(experiment: str) -> int:
    return int(compose_run([f"experiment={experiment}"]).model.section["hidden"])


def on_cpu(device: str) -> bool:
    """Whether a device, by its name in the configuration, is the CPU."""
    return _usable(device).type == "cpu"


def _kind(config: Tree) -> str:
    target = str(config["model"]["_target_"]).lower()
    return "lstm" if "lstm" in target else "mlp" if target.endswith(("mlp", "linear")) else "cnn"


def _took(job: PlannedRun) -> float | None:
    assert job.path is not None
    try:
        last = read_run(job.path).last_round()
    except DamagedRun:
        return None
    return float(last["seconds_train"] + last["seconds_eval"])
