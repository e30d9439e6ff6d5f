"""From the section ``data`` to a federated data set."""

from __future__ import annotations

import importlib
from pathlib import Path

from fedbench.config.schema import data_seed
from fedbench.config.targets import call, function_of
from fedbench.core.errors import RequestError
from fedbench.core.trees import Tree
from fedbench.data.assemble import assemble
from fedbench.data.dataset import FederatedDataset
from fedbench.data.examples import Examples
from fedbench.data.files.download import Remote
from fedbench.data.label_noise import with_label_noise


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
    noise = call({"_target_": "fedbench.data.label_noise.LabelNoise", **data["noise"]}, "data.noise")
    assembled = assemble(
        examples,
        partition=rule and (lambda y, clients, rng: call(rule, "data.partition", y=y, clients=clients, rng=rng)),
        clients=data.get("clients"),
        split=data["split"],
        local_test=data["local_test"],
        test_clients=data["test_clients"],
        seed=data_seed(c),
    )
    return with_label_noise(assembled, noise, data_seed(c))[0] if noise.clients else assembled


def read_examples(c: Tree, name: str) -> Examples:
    """Return the examples of a configuration's source, before anybody owns them.

    Args:
        c: the resolved configuration.
        name: of the data set, for messages.

    Raises:
        RequestError: if files are missing or not of their form.
    """
    data, folder, source = c["data"], Path(c["data_dir"]).expanduser(), dict(_source(c, name))
    if data["local_test"] == "others" and data["test_clients"]:  # these too, and nobody's own examples set apart
        if source.get("clients") is not None:
            source["clients"] += data["test_clients"]
        if isinstance(source.get("split"), float):
            source["split"] = 1.0
    examples: Examples = call(source, "data.source", data_dir=folder, seed=data_seed(c), download=data["download"])
    return examples


def official_files(c: Tree, name: str) -> list[Remote]:
    """Return the published files of a configuration's source, none where it has none: made data, and a user's own."""
    module = importlib.import_module(function_of(_source(c, name), "data.source").__module__)
    files: list[Remote] = module.official() if hasattr(module, "official") else []
    return files


def _source(c: Tree, name: str) -> Tree:
    if "source" not in c["data"]:
        raise RequestError(f"data={name} names no source")
    source: Tree = c["data"]["source"]
    return source
