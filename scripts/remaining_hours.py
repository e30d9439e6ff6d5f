"""Estimate what the runs that the papers' own settings still need would take, by their arithmetic.

    python scripts/remaining_hours.py results --seconds 3 [--device cuda]

counts the multiplications of one example in every model (PyTorch's counter; the backward pass costs
twice the forward), multiplies them with the examples that a run trains on and evaluates, and
divides by what the device does: the model is trained for some seconds in a plain loop with the
batch size of the experiment, on one thread or on the GPU. Two cores do twice what one does; on a
GPU fedbench takes less time than that loop (docs/gpu.md). Prints a Markdown table, a row per
experiment.
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from statistics import mean

import pandas as pd
import torch
from bench import synchronize
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from fedbench.config.schema import RunConfig
from fedbench.config.targets import call
from fedbench.core.randomness import cohort_size
from fedbench.reproduce.plan import PlannedRun, locate, plan
from fedbench.runs.build import device_of
from fedbench.runs.results import Results

# shape of an example, classes, tokens, and test examples for every training example, by the module
# of the data's source
_DATA: dict[str, tuple[tuple[int, ...], int, int | None, float]] = {
    "cifar10": ((3, 32, 32), 10, None, 0.2),
    "cifar100": ((3, 32, 32), 100, None, 0.2),
    "cinic10": ((3, 32, 32), 10, None, 0.5),
    "tinyimagenet": ((3, 64, 64), 200, None, 0.1),
    "clothing1m": ((3, 64, 64), 14, None, 0.01),
    "mnist": ((1, 28, 28), 10, None, 1 / 6),
    "fmnist": ((1, 28, 28), 10, None, 1 / 6),
    "femnist": ((1, 28, 28), 62, None, 0.25),
    "emnist": ((1, 28, 28), 62, None, 0.25),
    "shakespeare": ((80,), 80, 80, 0.25),
    "sent140": ((25,), 2, 8000, 0.25),
    "synthetic": ((60,), 10, None, 0.25),
    "wikitext2": ((35,), 33278, 33278, 0.1),
}


def measured(
    model: nn.Module, source: str, batch: int, seconds: float, device: torch.device
) -> tuple[float, float]:
    """Return GFLOP of the forward pass of an example, and GFLOP/s of training on made-up examples of a data set."""
    shape, _, tokens, _ = _DATA[source]
    x = torch.randint(0, tokens, (batch, *shape)) if tokens else torch.randn(batch, *shape)
    if source == "sent140":  # its tokens are looked up before
        x = torch.randn(batch, *shape, 300)
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        y = model(x)
    forward = (
        counter.get_total_flops() / batch + sum(map(_recurrent, model.modules())) * shape[0]
    ) / 1e9
    labels, x, model = (
        torch.zeros(y[..., 0].numel(), dtype=torch.long, device=device),
        x.to(device),
        model.to(device),
    )

    def step() -> None:
        nn.functional.cross_entropy(model(x).flatten(0, -2), labels).backward()

    for _ in range(3 if device.type == "cuda" else 0):  # its libraries are loaded in the first step
        step()
    synchronize(device)
    steps, started = 0, time.perf_counter()
    while steps < 1 or time.perf_counter() - started < seconds:
        step()
        steps += 1
    synchronize(device)
    return forward, 3 * forward * batch * steps / (time.perf_counter() - started)


def _recurrent(module: nn.Module) -> float:
    """Return the FLOP per token of an LSTM, which the counter does not see: four gates of every layer."""
    if not isinstance(module, nn.LSTM):
        return 0.0
    h, inputs = (
        module.hidden_size,
        [module.input_size, *[module.hidden_size] * (module.num_layers - 1)],
    )
    return float(sum(2 * 4 * h * (size + h) for size in inputs))


def cost_of(
    run: PlannedRun, config: RunConfig, seconds: float, device: torch.device
) -> tuple[float, float]:
    """Return GFLOP of a run, and GFLOP/s of training, which is measured for some seconds."""
    setup, local, data = run.paper.setups[run.row.setup], config.local, config.stored_tree["data"]
    source = str(data["source"]["_target_"]).split(".")[-2]
    shape, classes, tokens, tested = _DATA[source]
    n = setup.examples_per_client * (data.get("split") or 1.0)
    batch = int(n) if local.batch_size is None else min(local.batch_size, int(n))
    vectors = None if tokens is None else torch.zeros(tokens, 300)
    model = call(
        config.model, "model", input_shape=shape, classes=classes, tokens=tokens, vectors=vectors
    )
    assert isinstance(model, nn.Module)
    forward, rate = measured(model, source, min(batch, 256), seconds, device)
    epochs = mean(local.epochs) if isinstance(local.epochs, Sequence) else local.epochs
    assert setup.clients is not None and epochs is not None
    steps = (
        config.rounds
        * cohort_size(config.participation, setup.clients)
        * (local.steps or epochs * -(-n // batch))
    )
    # over all training examples
    sweeps = config.rounds * (tested / config.eval_every + 1 / config.eval_train_every)
    return forward * (3 * steps * batch + sweeps * n * setup.clients), rate


def main() -> None:
    """Print the table."""
    p = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    p.add_argument(
        "results", type=Path, help="results directory, whose published runs count as done"
    )
    p.add_argument("--seconds", type=float, default=3, help="time of a measurement (default: 3)")
    p.add_argument("--device", default="cpu", help="as in a run (default: cpu)")
    asked = p.parse_args()
    torch.set_num_threads(1)
    device = device_of(asked.device, "float32")
    on_gpu = device.type == "cuda"
    found: dict[str, list[PlannedRun]] = defaultdict(list)
    for run in locate(plan([], "full"), [f"results_dir={asked.results}"], Results(asked.results)):
        if not run.done:
            found[run.experiment].append(run)
    rows = []
    for experiment, of in sorted(found.items()):
        assert of[0].config is not None
        gflop, rate = cost_of(of[0], of[0].config, asked.seconds, device)
        seconds = gflop / rate / (1 if on_gpu else 2)
        rows.append([experiment, len(of), gflop / 1000, rate, len(of) * seconds / 3600])
    where = torch.cuda.get_device_name(device) if on_gpu else "two cores"
    unit = "GFLOP/s" if on_gpu else "GFLOP/s of a core"
    heads = ["experiment", "runs", "TFLOP a run", unit, f"hours on {where}"]
    table = pd.DataFrame(rows, columns=heads)
    table.loc[len(table)] = {"experiment": "in all", **table[[heads[1], heads[4]]].sum()}
    table[heads[1]] = table[heads[1]].astype(int)
    print(table.to_markdown(index=False, floatfmt=("", "d", ",.0f", ".0f", ",.2f"), missingval=""))


if __name__ == "__main__":
    main()
