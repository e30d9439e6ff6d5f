"""From the section ``data`` to a federated data set."""

from __future__ import annotations

from pathlib import Path

from fedbench.call import call
from fedbench.data.assemble import assemble
from fedbench.data.examples import Examples
from fedbench.data.federated import FederatedDataset
from fedbench.data.noise import with_label_noise
from fedbench.errors import RequestError
from fedbench.trees import Tree


def federated(c: Tree, name: str) -> FederatedDataset:
    """Return the data set that a configuration asks for, on the host.

    Args:
        c: the resolved configuration.
        name: of the data set, for messages.

    Raises:
        RequestError: if files are missing, or the request does not fit the data.
    """
    data, rule = c["data"], c["data"].get("partition")
    examples = read_examples(c, name)
    if rule and examples.owner is not None:
        raise RequestError(f"data={name} says itself which client owns what; leave data.partition out")
    noise = call({"_target_": "fedbench.data.noise.LabelNoise", **data["noise"]}, "data.noise")
    assembled = assemble(
        examples,
        partition=rule and (lambda y, clients, rng: call(rule, "data.partition", y=y, clients=clients, rng=rng)),
        clients=data.get("clients"),
        split=data["split"],
        local_test=data["local_test"],
        seed=data["seed"],
    )
    return with_label_noise(assembled, noise, data["seed"])[0] if noise.clients else assembled


def read_examples(c: Tree, name: str) -> Examples:
    """Return the examples of a configuration's source, before anybody owns them.

    Args:
        c: the resolved configuration.
        name: of the data set, for messages.

    Raises:
        RequestError: if files are missing or not of their form.
    """
    data = c["data"]
    if "source" not in data:
        raise RequestError(f"data={name} names no source")
    folder = Path(c["data_dir"]).expanduser()
    examples: Examples = call(
        data["source"], "data.source", data_dir=folder, seed=data["seed"], download=data["download"]
    )
    return examples
