"""Options, data and figures that all drivers share."""

import argparse
import pickle
from pathlib import Path
from statistics import median

import torch
from torch import Tensor, nn

Rounds = list[tuple[float, int]]  # seconds, and number of trained images

TRAIN_IMAGES = 50_000


def parser(text: str | None, rounds: int) -> argparse.ArgumentParser:
    """Return a parser of the common options."""
    options = argparse.ArgumentParser(description=(text or "").partition("\n")[0])
    options.add_argument("--data", type=Path, required=True, help="has cifar-10-batches-py/")
    options.add_argument("--rounds", type=int, default=rounds, help="number of rounds, at least 2")
    options.add_argument("--device", default="cuda", help="cuda or cpu")
    return options


def use_tf32() -> None:
    """Use TF32 for products, not only for convolutions as by default."""
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.backends.cudnn.allow_tf32 = True


def synchronize(device: str) -> None:
    """Wait until the device has finished its work."""
    if device.startswith("cuda"):
        torch.cuda.synchronize()


def cifar10(data: Path, device: str) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the training images and labels, then the test images and labels."""
    images = []
    labels: list[int] = []
    for name in (*(f"data_batch_{k}" for k in range(1, 6)), "test_batch"):
        with (data / "cifar-10-batches-py" / name).open("rb") as file:
            batch = pickle.load(file, encoding="bytes")  # noqa: S301 (the official files)
        images.append(torch.from_numpy(batch[b"data"]))
        labels += batch[b"labels"]
    x = torch.cat(images).view(-1, 3, 32, 32).to(device).float()
    y = torch.tensor(labels, device=device)
    std, mean = torch.std_mean(x[:TRAIN_IMAGES], (0, 2, 3), keepdim=True)
    x = (x - mean) / std
    return x[:TRAIN_IMAGES], y[:TRAIN_IMAGES], x[TRAIN_IMAGES:], y[TRAIN_IMAGES:]


@torch.no_grad()
def accuracy(network: nn.Module, x: Tensor, y: Tensor) -> float:
    """Return the share of examples that the network classifies correctly."""
    correct = network.eval()(x).argmax(1) == y
    return float(correct.double().mean())


def report(name: str, rounds: Rounds, accuracy: float) -> None:
    """Print the figures of all rounds but the first, which also warms caches."""
    seconds = [passed for passed, _ in rounds[1:]]
    images = sum(number for _, number in rounds[1:])
    print(
        f"{name}: {median(seconds):.3f} s a round (median), {min(seconds):.3f} s (fastest), "
        f"{images / sum(seconds):.0f} images/s, test accuracy {accuracy:.2%} "
        f"after {len(rounds)} rounds",
        flush=True,
    )
