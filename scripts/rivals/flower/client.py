"""A client, which keeps data and network in the memory of its process."""

from functools import cache
from pathlib import Path

import torch
import torch.nn.functional as F
from common import cifar10, use_tf32
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from torch import Tensor, nn

CLIENTS = 100
EPOCHS = 2

app = ClientApp()


@cache
def network(device: str) -> nn.Module:
    """Return the network of this process; in fedbench, it is model=simplecnn."""
    layers: list[nn.Module] = []
    for inputs, outputs in ((3, 32), (32, 64), (64, 64)):
        layers += [nn.Conv2d(inputs, outputs, 3, padding=1), nn.MaxPool2d(2), nn.ReLU()]
    dense = [nn.Flatten(), nn.Linear(1024, 64), nn.ReLU(), nn.Linear(64, 10)]
    return nn.Sequential(*layers, *dense).to(device)


@cache
def examples(data: str, device: str) -> list[tuple[Tensor, Tensor]]:
    """Return the images and labels of every client."""
    use_tf32()
    torch.set_num_threads(1)  # the processes share the cores
    x, y, _, _ = cifar10(Path(data), device)
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    return [(x[rows], y[rows]) for rows in order.to(device).chunk(CLIENTS)]


@app.train()
def train(message: Message, context: Context) -> Message:
    """Train one client."""
    config = message.content["config"]
    device = str(config["device"])
    x, y = examples(str(config["data"]), device)[int(context.node_config["partition-id"])]
    net = network(device)
    net.load_state_dict(message.content["arrays"].to_torch_state_dict())
    parameters = list(net.parameters())
    for _ in range(EPOCHS):
        for rows in torch.randperm(len(x), device=device).split(32):
            loss = F.cross_entropy(net(x[rows]), y[rows])
            gradients = torch.autograd.grad(loss, parameters)
            with torch.no_grad():
                torch._foreach_add_(parameters, gradients, alpha=-0.05)
    arrays = ArrayRecord(net.state_dict())
    metrics = MetricRecord({"num-examples": len(x)})
    return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)
