"""Time Flower's simulation of FedAvg on CIFAR-10: 100 clients, 10 a round, three convolutions."""

import os
import time
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from common import TRAIN_IMAGES, Rounds, accuracy, cifar10, parser, report
from flower.client import CLIENTS, EPOCHS, app, network
from flwr.app import ArrayRecord, ConfigRecord, Context, Message
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

COHORT = 10


class Timed(FedAvg):
    """FedAvg that measures the time from the choice of the clients to the new model."""

    rounds: Rounds = []  # noqa: RUF012 (there is one strategy)

    def configure_train(self, *args: Any) -> Iterable[Message]:
        """Begin a round."""
        self.begun = time.perf_counter()
        return super().configure_train(*args)

    def aggregate_train(self, *args: Any) -> tuple[Any, Any]:
        """End a round."""
        aggregated = super().aggregate_train(*args)
        seconds = time.perf_counter() - self.begun
        self.rounds.append((seconds, COHORT * EPOCHS * TRAIN_IMAGES // CLIENTS))
        return aggregated


def main() -> None:
    """Train, and print the figures."""
    options = parser(__doc__, rounds=200)
    cores = os.cpu_count() or 1
    options.add_argument("--processes", type=int, default=min(COHORT, cores))
    args = options.parse_args()
    torch.manual_seed(0)
    net = network("cpu")
    config = {"data": str(args.data.resolve()), "device": args.device}
    server = ServerApp()

    @server.main()
    def train(grid: Grid, context: Context) -> None:
        grid.pull_interval = 0.01  # by default, replies are collected every 0.1 s
        strategy = Timed(
            fraction_train=COHORT / CLIENTS,
            fraction_evaluate=0.0,
            min_available_nodes=CLIENTS,
        )
        initial = ArrayRecord(net.state_dict())
        result = strategy.start(grid, initial, args.rounds, train_config=ConfigRecord(config))
        net.load_state_dict(result.arrays.to_torch_state_dict())

    gpus = 0 if args.device == "cpu" else 1
    backend = {
        "client_resources": {"num_cpus": 1, "num_gpus": gpus / args.processes},
        "init_args": {"address": "local", "num_cpus": args.processes, "num_gpus": gpus},
    }
    run_simulation(server, app, CLIENTS, backend_config=backend)
    _, _, x, y = cifar10(Path(args.data), "cpu")
    report(f"Flower {version('flwr')}", Timed.rounds, accuracy(net, x, y))


if __name__ == "__main__":
    main()
