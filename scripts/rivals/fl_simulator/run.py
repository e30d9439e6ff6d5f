"""Time FL-Simulator's ResNet-18 with GroupNorm on CIFAR-10: 100 clients, Dirichlet 0.6.

Further options are passed on to its train.py.
"""

import os
import runpy
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from common import Rounds, parser, report, synchronize


def timed(server: type[Any]) -> type[Any]:
    """Return its server with a stopwatch; it is tested after the last round, and saves nothing."""

    class Timed(server):  # type: ignore[misc]
        rounds: Rounds = []  # noqa: RUF012 (there is one server)

        def _activate_clients_(self, t: int) -> np.ndarray:
            self.begun = time.perf_counter()
            return super()._activate_clients_(t)

        def _test_(self, t: int, selected_clients: np.ndarray) -> None:
            synchronize(self.device.type)
            seconds = time.perf_counter() - self.begun
            images = sum(len(self.datasets.client_y[client]) for client in selected_clients)
            self.rounds.append((seconds, images * self.args.local_epochs))

        def _save_results_(self) -> None:
            test = (self.datasets.test_x, self.datasets.test_y)
            _, accuracy = self._validate_(test)
            report("FL-Simulator", self.rounds, accuracy)

        def _summary_(self) -> None:
            pass

    return Timed


def main() -> None:
    """Train by its train.py, and print the figures."""
    options = parser(__doc__, rounds=1000)
    options.add_argument("--source", type=Path, required=True, help="checkout of FL-Simulator")
    args, others = options.parse_known_args()
    if args.device == "cpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    sys.path.insert(0, str(args.source))
    import server

    server.FedAvg = timed(server.FedAvg)
    with tempfile.TemporaryDirectory() as folder:
        raw = Path(folder, "Data", "Raw")
        raw.parent.mkdir()
        raw.symlink_to(args.data.resolve())
        sys.argv[1:] = ["--non-iid", f"--comm-rounds={args.rounds}", f"--data-file={folder}/"]
        sys.argv += others
        runpy.run_path(str(args.source / "train.py"), run_name="__main__")


if __name__ == "__main__":
    main()
