"""What tests of scenarios compare in snapshots and read of runs."""

import json

import torch

from fedbench.scenarios.layers import shown


def random_rows(count, size, seed=0):
    """Normal vectors [count, size] in float64."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(
        count,
        size,
        generator=generator,
        dtype=torch.float64,
    )


def bits(state):
    """The bytes of every entry of a state, which also compare NaN."""
    return {name: v.numpy().tobytes() for name, v in state.items()}


def method_states(snapshot):
    """The bytes of the method's states of server and clients, without those of scenarios."""
    return bits(shown(snapshot.server)), bits(shown(snapshot.clients))


def costs(snapshot):
    return snapshot.client_steps, snapshot.bytes_up, snapshot.bytes_down


def round_rows(path):
    """The rows of rounds.jsonl of a run."""
    return [json.loads(line) for line in (path / "rounds.jsonl").read_text().splitlines()]


def model_bytes(path):
    return (path / "model.safetensors").read_bytes()
