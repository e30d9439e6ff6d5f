"""Time pfl-research on its CIFAR-10 benchmark: 1000 users, 50 a round, two convolutions."""

import os
import time
from importlib.metadata import version
from typing import Any

import torch
import torch.nn.functional as F
from common import Rounds, accuracy, cifar10, parser, report, synchronize, use_tf32
from pfl.aggregate.simulate import SimulatedBackend
from pfl.aggregate.weighting import WeightByUser
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data import FederatedDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel
from torch import Tensor, nn

USERS = 1000
COHORT = 50


class Network(nn.Sequential):
    """The benchmark's network; simple_cnn.py is the same for fedbench."""

    def __init__(self) -> None:
        convolutions = [nn.Conv2d(3, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU()]
        pooling = [nn.MaxPool2d(2), nn.Dropout(0.25), nn.Flatten()]
        dense = [nn.Linear(12544, 128), nn.ReLU(), nn.Dropout(0.5), nn.Linear(128, 10)]
        super().__init__(*convolutions, *pooling, *dense)

    def forward(self, x: Tensor) -> Tensor:
        """Map images [B, 32, 32, 3] to logits [B, 10]."""
        return super().forward(x.permute(0, 3, 1, 2))

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the mean loss of a training batch."""
        self.train()
        return F.cross_entropy(self(x), y)

    def metrics(self, x: Tensor, y: Tensor) -> dict[str, Weighted]:
        """Return the accuracy; pfl-research evaluates the users of the first round."""
        return {"accuracy": Weighted(accuracy(self, x, y) * len(y), len(y))}


class Stopwatch(TrainingProcessCallback):
    """Records the seconds of every round."""

    def __init__(self, device: str) -> None:
        self.device = device
        self.rounds: Rounds = []
        self.begun = time.perf_counter()

    def after_central_iteration(self, *args: Any, **fields: Any) -> tuple[bool, Metrics]:
        """Record a round, and continue."""
        synchronize(self.device)
        ended = time.perf_counter()
        self.rounds.append((ended - self.begun, 50 * COHORT))
        self.begun = ended
        return False, Metrics()


def main() -> None:
    """Train, and print the figures."""
    args = parser(__doc__, rounds=1500).parse_args()
    os.environ["PFL_PYTORCH_DEVICE"] = args.device
    use_tf32()
    torch.manual_seed(0)
    x, y, test_x, test_y = cifar10(args.data, args.device)
    x = x.permute(0, 2, 3, 1).contiguous()
    parts = torch.randperm(len(x), device=args.device).chunk(USERS)
    users = {user: (x[rows], y[rows]) for user, rows in enumerate(parts)}
    data = FederatedDataset.from_slices(users, get_user_sampler("random", range(USERS)))
    network = Network().to(args.device)
    stopwatch = Stopwatch(args.device)
    FederatedAveraging().run(
        NNAlgorithmParams(
            central_num_iterations=args.rounds,
            evaluation_frequency=args.rounds,  # in the first round only
            train_cohort_size=COHORT,
            val_cohort_size=0,
        ),
        SimulatedBackend(data, data, postprocessors=[WeightByUser()]),
        PyTorchModel(network, torch.optim.SGD, torch.optim.SGD(network.parameters(), lr=1.0)),
        NNTrainHyperParams(local_num_epochs=1, local_learning_rate=0.1, local_batch_size=10),
        NNEvalHyperParams(local_batch_size=50),
        callbacks=[stopwatch],
        send_metrics_to_platform=False,
    )
    tested = accuracy(network, test_x.permute(0, 2, 3, 1), test_y)
    report(f"pfl-research {version('pfl')}", stopwatch.rounds, tested)


if __name__ == "__main__":
    main()
