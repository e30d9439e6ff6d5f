"""Measure the training of large models on a GPU within a given time.

    python scripts/gpu_minutes.py [--seconds 480] [--out gpu_minutes.md] [--dry]

For each model, in the order of the runs that are missing, a step of several clients is measured in
float32 and TF32: eager and captured one client at a time, on several lanes, and vectorised over the
clients. Every row says whether the models after some steps have the same bits as eager ones, and
whether they are repeatable. Then come the kernels of a step by their time, and the speed of
evaluation by block size. Every line is printed and appended to the file at once, and the script
ends when the time is over. With --dry, the same code runs on a CPU with tiny batches.
"""

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import torch
from bench import synchronize
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import FlopCounterMode

from fedbench.core.types import Batch, Oracle
from fedbench.models.lstm import LSTM
from fedbench.models.resnet import resnet
from fedbench.models.vgg import VGG11
from fedbench.simulation.captured import CapturedOracle, write
from fedbench.simulation.oracles import make_oracle
from fedbench.simulation.task import Task

COLOUR = (3, 32, 32)
LARGE = (3, 64, 64)
TEXT = (80,)
VOCABULARY = 80
LANES = (4, 8, 16)
BLOCKS = (170, 683, 2731)  # images of an evaluation block; 170 images of CIFAR are 2^19 values
KERNELS = 12  # kernels in a table
STEPS = 5  # steps after which the bits of the models are compared


@dataclass(frozen=True)
class Case:
    """A model and the shape of a step.

    Attributes:
        name: Name of the model.
        make: Function that builds the model.
        clients: Number of clients in a step.
        batch: Examples per client.
        shape: Shape of an example.
    """

    name: str
    make: Callable[[], nn.Module]
    clients: int
    batch: int
    shape: tuple[int, ...]


CASES = [  # in the order of the missing client steps
    Case("ResNet-18, 7x7 stem", partial(resnet, COLOUR, 100, stem="7x7"), 10, 64, COLOUR),
    Case(
        "LSTM, 2 layers of 256",
        partial(LSTM, TEXT, VOCABULARY, VOCABULARY, None, embedding=8, hidden=256, layers=2),
        10,
        10,
        TEXT,
    ),
    Case("ResNet-18, 7x7 stem, 64x64", partial(resnet, LARGE, 200, stem="7x7"), 10, 64, LARGE),
    Case("VGG-11", partial(VGG11, COLOUR, 10), 16, 32, COLOUR),
    Case(
        "ResNet-50, 64x64",
        partial(resnet, LARGE, 14, depth=50, stem="7x7", groups=32),
        10,
        16,
        LARGE,
    ),
    Case("ResNet-18, 3x3 stem", partial(resnet, COLOUR, 10), 10, 128, COLOUR),
]


@dataclass
class Session:
    """The device, the remaining time, and the file to which lines are appended."""

    dry: bool
    seconds: float
    out: Path
    started: float = field(default_factory=time.monotonic)

    @property
    def device(self) -> torch.device:
        """The GPU, or the CPU of a rehearsal."""
        return torch.device("cpu" if self.dry else "cuda:0")

    @property
    def left(self) -> float:
        """Remaining seconds."""
        return self.started + self.seconds - time.monotonic()

    def say(self, line: str) -> None:
        """Print a line and append it to the file."""
        print(line, flush=True)
        with self.out.open("a", encoding="utf-8") as file:
            file.write(f"{line}\n")

    def milliseconds(self, call: Callable[[], object]) -> float:
        """Return the time of the fastest of some calls."""
        warm, calls = (0, 1) if self.dry else (4, 5)
        for _ in range(warm):
            call()
        best = float("inf")
        for _ in range(calls):
            synchronize(self.device)
            begun = time.perf_counter()
            call()
            synchronize(self.device)
            best = min(best, time.perf_counter() - begun)
        return 1000 * best


class Rehearsed(CapturedOracle):
    """On a CPU, a captured step is a function that carries the step out again."""

    def _captured(
        self,
        run: Callable[[], list[Tensor]],
        outputs: list[Tensor],
    ) -> Callable[[], None]:
        return lambda: write(run(), outputs)


@dataclass(frozen=True)
class Problem:
    """A case on the device: models [A, P], batches, rates [A, 1], and the operations of a step."""

    case: Case
    task: Task
    w: Tensor
    batch: Batch
    rate: Tensor
    gflop: float

    @classmethod
    def of(cls, case: Case, session: Session) -> "Problem":
        """Return the problem of a case; a rehearsal has two clients with two examples each."""
        clients, size = (2, 2) if session.dry else (case.clients, case.batch)
        device = session.device
        with torch.device("meta"):
            task = Task(case.make(), device, torch.float32)
        generator = torch.Generator().manual_seed(0)
        if case.shape == TEXT:
            x = torch.randint(0, VOCABULARY, (clients, size, *TEXT), generator=generator)
        else:
            x = torch.randn(clients, size, *case.shape, generator=generator)
        y = torch.randint(0, 10, (clients, size), generator=generator)
        weight = torch.full((clients, size), 1 / size)
        batch = Batch(x.to(device), y.to(device), weight.to(device))
        w = task.init(generator).expand(clients, -1).clone()
        with FlopCounterMode(display=False) as counter:
            task.predict(w[0], batch.x[0, :1])
        forward = counter.get_total_flops()
        if case.shape == TEXT:  # PyTorch does not count an LSTM: gates of two layers, per token
            forward = 80 * 8 * 256 * (8 + 256 + 2 * 256)
        rate = torch.full((clients, 1), 1e-3, device=device)
        gflop = 3 * forward * clients * size / 1e9
        return cls(case, task, w, batch, rate, gflop)

    def after(
        self,
        oracle: Oracle,
        side: int,
        steps: int,
    ) -> Tensor:
        """Return the models after some steps, ``side`` clients at a time."""
        w = self.w.clone()
        for _ in range(steps):
            for first in range(0, len(w), side):
                part = slice(first, first + side)
                batch = Batch(*(v[part] for v in self.batch[:3]))
                oracle.descend_(w[part], batch, self.rate[part])
        return w


def set_precision(name: str) -> None:
    """Use float32 or TF32 for products and convolutions."""
    torch.backends.cuda.matmul.allow_tf32 = name == "tf32"
    torch.backends.cudnn.allow_tf32 = name == "tf32"


def forms(task: Task, dry: bool, clients: int) -> Iterator[tuple[str, Oracle, int]]:
    """Yield the ways to carry out a step: name, oracle and clients at a time."""
    captured = Rehearsed if dry else CapturedOracle
    yield "eager, one client at a time", make_oracle(task, "loop"), 1
    yield "captured, one client at a time", captured(make_oracle(task, "loop")), 1
    for lanes in LANES:
        oracle = captured(make_oracle(task, "loop", 1 if dry else lanes), aligned=True)
        yield f"captured, {lanes} lanes", oracle, clients
    yield "captured, vectorised", captured(make_oracle(task, "stacked")), clients


def measure_forms(case: Case, session: Session) -> None:
    """Write a row for each precision and way to carry out a step."""
    problem = Problem.of(case, session)
    clients, size = problem.batch.y.shape
    session.say(
        f"\n## {case.name}: {clients} clients with {size} examples, "
        f"{problem.task.size / 1e6:.1f} M parameters, {problem.gflop:.0f} GFLOP a step\n"
    )
    session.say("| precision | form | ms a step | examples/s | TFLOP/s | MiB | bits |")
    session.say("| --- | --- | ---: | ---: | ---: | ---: | --- |")
    for precision in ("float32", "tf32"):
        set_precision(precision)
        expected = None
        for name, oracle, side in forms(problem.task, session.dry, clients):
            if session.left < 20:
                return
            if not session.dry:
                torch.cuda.empty_cache()
                torch.cuda.reset_peak_memory_stats()
            try:
                models = problem.after(oracle, side, STEPS)
                again = problem.after(oracle, side, STEPS)
                ms = session.milliseconds(partial(problem.after, oracle, side, 1))
            except RuntimeError as error:  # out of memory, or a step that cannot be vectorised
                session.say(f"| {precision} | {name} | | | | | {str(error).splitlines()[0]} |")
                continue
            if expected is None:
                expected = models
            bits = "the same"
            if not torch.equal(models, expected):
                bits = f"off by {float((models - expected).abs().max()):.1e}"
            if not torch.equal(models, again):
                bits += ", NOT REPEATABLE"
            memory = 0 if session.dry else torch.cuda.max_memory_reserved() / 2**20
            session.say(
                f"| {precision} | {name} | {ms:.2f} | {1000 * clients * size / ms:.0f} "
                f"| {problem.gflop / ms:.1f} | {memory:.0f} | {bits} |"
            )


def measure_kernels(case: Case, session: Session) -> None:
    """Write the kernels of a step of one client by their time."""
    problem = Problem.of(case, session)
    oracle = make_oracle(problem.task, "loop")
    one = Batch(*(v[:1] for v in problem.batch[:3]))
    w = problem.w[:1]
    activity = ProfilerActivity.CPU if session.dry else ProfilerActivity.CUDA
    for precision in ("float32", "tf32"):
        set_precision(precision)
        for _ in range(3):
            oracle.descend_(w, one, problem.rate[:1])
        synchronize(session.device)
        with profile(activities=[activity]) as trace:
            oracle.descend_(w, one, problem.rate[:1])
            synchronize(session.device)
        times = {}
        for event in trace.key_averages():
            time_us = event.self_cpu_time_total if session.dry else event.self_device_time_total
            times[event.key] = (time_us / 1000, event.count)
        total = sum(ms for ms, _ in times.values())
        launches = sum(count for _, count in times.values())
        session.say(f"\n### {case.name}, {precision}: {launches} kernels, {total:.2f} ms\n")
        session.say("| kernel | ms | launches |")
        session.say("| --- | ---: | ---: |")
        slowest = sorted(times.items(), key=lambda entry: entry[1], reverse=True)
        for key, (ms, count) in slowest[:KERNELS]:
            session.say(f"| {key[:90].replace('|', '/')} | {ms:.3f} | {count} |")


def measure_evaluation(case: Case, session: Session) -> None:
    """Write the examples per second of a forward pass by block size."""
    problem = Problem.of(case, session)
    for precision in ("float32", "tf32"):
        set_precision(precision)
        for size in (2,) if session.dry else BLOCKS:
            x = problem.batch.x[0, :1].expand(size, *case.shape).contiguous()
            ms = session.milliseconds(partial(problem.task.predict, problem.w[0], x))
            session.say(
                f"- {case.name}, {precision}, blocks of {size}: {1000 * size / ms:.0f} examples/s"
            )


@torch.no_grad()
def main() -> None:
    """Measure until the time is over."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=480, help="time limit (default: 480)")
    parser.add_argument("--out", type=Path, default=Path("gpu_minutes.md"), help="Markdown file")
    parser.add_argument("--dry", action="store_true", help="rehearse on a CPU")
    args = parser.parse_args()

    session = Session(args.dry, args.seconds, args.out)
    where = "rehearsal on a CPU" if args.dry else torch.cuda.get_device_name()
    torch.backends.cudnn.deterministic = True
    session.say(f"# {where}, torch {torch.__version__}")
    for case in CASES:
        if session.left > 60:
            measure_forms(case, session)
    for case in CASES[:1] + CASES[3:4]:
        if session.left > 30:
            measure_kernels(case, session)
    session.say("\n## Evaluation\n")
    for case in CASES[:1] + CASES[3:4]:
        if session.left > 20:
            measure_evaluation(case, session)
    session.say(f"\n{args.seconds - session.left:.0f} s of {args.seconds:.0f} s used")


if __name__ == "__main__":
    main()
