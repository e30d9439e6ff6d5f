"""Estimate the time of the runs that are missing at the papers' own settings.

    python scripts/remaining_hours.py results --seconds 3 [--device cuda]

A run's time is the number of its client steps times the time of a step, plus the number of
evaluated examples times the time of an example. Both times are measured for some seconds on one
thread or on the GPU, with fedbench's own oracle and the experiment's model and batch size. Two
cores count as twice as fast as one. PyTorch counts the operations of a model on one example, and
the backward pass counts as two forward passes. The output is a Markdown table with a row per
experiment.
"""

import argparse
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import mean
from typing import NamedTuple

import pandas as pd
import torch
from bench import synchronize
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from fedbench.config.targets import call
from fedbench.core.randomness import cohort_size
from fedbench.core.types import Batch
from fedbench.reproduce.plan import PlannedRun, locate, plan
from fedbench.runs.build import device_of
from fedbench.runs.results import Results
from fedbench.simulation.captured import CapturedOracle
from fedbench.simulation.oracles import make_oracle
from fedbench.simulation.task import Task

LARGEST_BATCH = 256  # of a measurement
VECTOR = 300  # length of a word vector
GREY = (1, 28, 28)
COLOUR = (3, 32, 32)
LARGE_COLOUR = (3, 64, 64)


class DataKind(NamedTuple):
    """A kind of data.

    Attributes:
        shape: Shape of an example.
        classes: Number of classes.
        tested: Test examples per training example.
        tokens: Size of the vocabulary; None for data without tokens.
    """

    shape: tuple[int, ...]
    classes: int
    tested: float
    tokens: int | None = None


DATA = {  # by the module of the data's source
    "cifar10": DataKind(COLOUR, 10, 0.2),
    "cifar100": DataKind(COLOUR, 100, 0.2),
    "cinic10": DataKind(COLOUR, 10, 0.5),
    "tinyimagenet": DataKind(LARGE_COLOUR, 200, 0.1),
    "clothing1m": DataKind(LARGE_COLOUR, 14, 0.01),
    "mnist": DataKind(GREY, 10, 1 / 6),
    "fmnist": DataKind(GREY, 10, 1 / 6),
    "femnist": DataKind(GREY, 62, 0.25),
    "emnist": DataKind(GREY, 62, 0.25),
    "shakespeare": DataKind((80,), 80, 0.25, tokens=80),
    "sent140": DataKind((25,), 2, 0.25, tokens=8000),
    "synthetic": DataKind((60,), 10, 0.25),
    "wikitext2": DataKind((35,), 33278, 0.1, tokens=33278),
}


def random_batch(source: str, size: int) -> torch.Tensor:
    """Return random examples in the form of a data set."""
    data = DATA[source]
    if source == "sent140":  # its tokens are looked up before they reach the model
        return torch.randn(size, *data.shape, VECTOR)
    if data.tokens is not None:
        return torch.randint(0, data.tokens, (size, *data.shape))
    return torch.randn(size, *data.shape)


def forward_gflop(model: nn.Module, x: torch.Tensor) -> float:
    """Return the GFLOP of the forward pass of one example."""
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        model(x)
    counted = counter.get_total_flops() / len(x)

    tokens = x.shape[1]
    recurrent = tokens * sum(map(lstm_flop, model.modules()))
    return (counted + recurrent) / 1e9


def lstm_flop(module: nn.Module) -> int:
    """Return the FLOP per token of the four gates of an LSTM, which PyTorch does not count."""
    if not isinstance(module, nn.LSTM):
        return 0
    hidden = module.hidden_size
    first_layer = module.input_size + hidden
    other_layers = (module.num_layers - 1) * 2 * hidden
    return 8 * hidden * (first_layer + other_layers)


class Measured(NamedTuple):
    """Times of fedbench's own oracle, in seconds.

    Attributes:
        step: Time of a client's step on one batch.
        example: Time of the evaluation of one example.
    """

    step: float
    example: float


def measured(
    task: Task,
    x: torch.Tensor,
    seconds: float,
) -> Measured:
    """Return the times of a model on a batch, each measured for some seconds."""
    oracle = make_oracle(task, "stacked" if task.traits.dense else "loop")
    if task.device.type == "cuda":
        oracle = CapturedOracle(oracle)
    w = task.init(torch.Generator().manual_seed(0)).unsqueeze(0)
    x = x.to(task.device).unsqueeze(0)
    with torch.no_grad():
        y = torch.zeros_like(oracle.logits(w, x).argmax(-1))
    batch = Batch(x, y, torch.full(x.shape[:2], 1 / x.shape[1], device=task.device))
    rate = torch.full((1, 1), 1e-3, device=task.device)
    step = time_of(lambda: oracle.descend_(w, batch, rate), seconds, task.device)
    forward = time_of(lambda: oracle.logits(w, x), seconds, task.device)
    return Measured(step, forward / x.shape[1])


@torch.no_grad()
def time_of(
    call: Callable[[], object],
    seconds: float,
    device: torch.device,
) -> float:
    """Return the seconds of a call, averaged over calls during some seconds."""
    for _ in range(3 if device.type == "cuda" else 1):  # first calls load libraries
        call()
    synchronize(device)
    calls = 0
    started = time.perf_counter()
    while calls < 1 or time.perf_counter() - started < seconds:
        call()
        calls += 1
    synchronize(device)
    return (time.perf_counter() - started) / calls


class Cost(NamedTuple):
    """Cost of a run.

    Attributes:
        tflop: Operations in TFLOP.
        steps: Number of client steps.
        evaluated: Number of evaluated examples.
        times: Measured times.
    """

    tflop: float
    steps: float
    evaluated: float
    times: Measured

    @property
    def seconds(self) -> float:
        """Time of the run on one core or on the GPU."""
        return self.steps * self.times.step + self.evaluated * self.times.example


def cost_of(
    run: PlannedRun,
    seconds: float,
    device: torch.device,
) -> Cost:
    """Return the cost of a run, with times measured for some seconds."""
    setup = run.paper.setups[run.row.setup]
    config = run.config
    local = config.local
    options = config.stored_tree["data"]
    target = str(options["source"]["_target_"])
    source = target.split(".")[-2]
    data = DATA[source]
    assert setup.clients is not None

    split = options.get("split") or 1.0
    examples = setup.examples_per_client * split
    batch = int(examples)
    if local.batch_size is not None:
        batch = min(local.batch_size, batch)

    vectors = None if data.tokens is None else torch.zeros(data.tokens, VECTOR)
    model = call(
        config.model,
        "model",
        input_shape=data.shape,
        classes=data.classes,
        tokens=data.tokens,
        vectors=vectors,
    )
    assert isinstance(model, nn.Module)
    x = random_batch(source, min(batch, LARGEST_BATCH))
    forward = forward_gflop(model, x)
    times = measured(Task(model, device, torch.float32), x, seconds)
    times = times._replace(step=times.step * batch / len(x))

    steps = local.steps
    if not steps:
        epochs = local.epochs
        if isinstance(epochs, Sequence):
            epochs = mean(epochs)
        assert epochs is not None
        batches = -(-examples // batch)
        steps = epochs * batches
    cohort = cohort_size(config.participation, setup.clients)
    client_steps = config.rounds * cohort * steps

    # in passes over all training examples
    test_passes = data.tested / config.eval_every
    train_passes = 1 / config.eval_train_every
    passes = config.rounds * (test_passes + train_passes)
    evaluated = passes * examples * setup.clients
    tflop = forward * (3 * client_steps * batch + evaluated) / 1000
    return Cost(
        tflop,
        client_steps,
        evaluated,
        times,
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "results",
        type=Path,
        help="results directory; its runs count as done",
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=3,
        help="time of a measurement (default: 3)",
    )
    parser.add_argument(
        "--device",
        default="cpu",
        help="as in a run (default: cpu)",
    )
    args = parser.parse_args()

    torch.set_num_threads(1)
    device = device_of(args.device, "float32")
    if device.type == "cuda":
        place = torch.cuda.get_device_name(device)
        cores = 1
    else:
        place = "two cores"
        cores = 2

    missing: dict[str, list[PlannedRun]] = defaultdict(list)
    runs = locate(
        plan([], "full"),
        [f"results_dir={args.results}"],
        Results(args.results),
    )
    for run in runs:
        if not run.done:
            missing[run.experiment].append(run)

    rows = []
    for experiment, runs in sorted(missing.items()):
        cost = cost_of(runs[0], args.seconds, device)
        hours = len(runs) * cost.seconds / cores / 3600
        step = 1000 * cost.times.step
        rows.append([experiment, len(runs), cost.tflop, cost.steps, step, hours])
    heads = [
        "experiment",
        "runs",
        "TFLOP a run",
        "client steps a run",
        "ms a step",
        f"hours on {place}",
    ]
    table = pd.DataFrame(rows, columns=heads)
    sums = table[["runs", heads[-1]]].sum()
    table.loc[len(table)] = {"experiment": "in all", **sums}
    table["runs"] = table["runs"].astype(int)
    text = table.to_markdown(
        index=False,
        floatfmt=("", "d", ",.0f", ",.0f", ",.2f", ",.2f"),
        missingval="",
    )
    print(text)


if __name__ == "__main__":
    main()
