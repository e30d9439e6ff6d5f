"""From the ``data`` section of a configuration to a federated data set."""

from __future__ import annotations

import importlib
from dataclasses import replace
from pkgutil import iter_modules

from fedbench.config.schema import RunConfig
from fedbench.config.targets import Component, call, function_of
from fedbench.core.errors import RequestError
from fedbench.data import sources
from fedbench.data.assemble import assemble
from fedbench.data.dataset import FederatedDataset
from fedbench.data.examples import Examples
from fedbench.data.files.download import Remote
from fedbench.data.files.mirrors import using
from fedbench.data.label_noise import with_label_noise
from fedbench.data.partitions.basic import Partition
from fedbench.data.validation import with_validation


def federated(config: RunConfig) -> FederatedDataset:
    """Return the data set that a configuration asks for, on the host.

    Raises:
        RequestError: If files are missing, or the request does not fit the data.
    """
    data = config.data
    examples = read_examples(config)
    if data.partition and examples.owner is not None:
        raise RequestError(f"data={config.names.data} assigns examples to clients itself; remove data.partition")
    assembled = assemble(
        examples,
        partition=None if data.partition is None else _partition(data.partition),
        clients=data.clients,
        split=data.split,
        local_test=data.local_test,
        test_clients=data.test_clients,
        seed=data.seed,
    )
    if assembled.shares_examples and data.noise.clients:
        raise RequestError(
            "data.noise needs examples that belong to one client each, since one client's noise would be in the labels "
            "of others; set data.partition.as_published=false"
        )
    if assembled.shares_examples and data.validation:
        raise RequestError(
            "data.validation needs examples that belong to one client each, since another client would train on those "
            "that are held out; set data.partition.as_published=false"
        )
    noisy = with_label_noise(assembled, data.noise, data.seed)[0] if data.noise.clients else assembled
    return with_validation(noisy, data.validation, data.seed) if data.validation else noisy


def read_examples(config: RunConfig) -> Examples:
    """Return the examples of a configuration's source, before they are assigned to clients.

    Raises:
        RequestError: If files are missing or malformed.
    """
    data = config.data
    given = {"data_dir": config.data_dir, "seed": data.seed, "download": data.download}
    with using(data.mirrors):
        examples: Examples = call(data.source, "data.source", **given)
    return examples


def official_files(config: RunConfig) -> list[Remote]:
    """Return the published files of a configuration's source; none for generated data and files of the user's own."""
    module = importlib.import_module(function_of(config.data.source.target, "data.source").__module__)
    files: list[Remote] = getattr(module, "OFFICIAL", [])
    return files


def all_official_files() -> list[Remote]:
    """Return the published files of all of fedbench's sources."""
    modules = [importlib.import_module(f"{sources.__name__}.{m.name}") for m in iter_modules(sources.__path__)]
    return [remote for module in modules for remote in getattr(module, "OFFICIAL", [])]


def without_downloads(config: RunConfig) -> RunConfig:
    """Return the configuration with downloads disabled."""
    return replace(config, data=replace(config.data, download=False))


def _partition(rule: Component) -> Partition:
    return lambda y, clients, rng: call(rule, "data.partition", y=y, clients=clients, rng=rng)
