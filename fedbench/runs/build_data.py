"""From the ``data`` section of a configuration to a federated data set."""

from __future__ import annotations

import importlib
import inspect
from dataclasses import replace

import numpy as np

from fedbench.config.schema import RunConfig
from fedbench.config.targets import Component, call, function_of
from fedbench.core.errors import RequestError
from fedbench.data.assemble import assemble
from fedbench.data.dataset import FederatedDataset
from fedbench.data.examples import Examples
from fedbench.data.files.fetch import Files, mirrors
from fedbench.data.noise_and_validation import with_label_noise, with_validation
from fedbench.data.partitions.basic import Partition
from fedbench.data.partitions.given import Given, checked
from fedbench.runs.custom_components import checked_examples
from fedbench.simulation.checks import is_own, place_of


def federated(config: RunConfig) -> FederatedDataset:
    """Return the data set that a configuration asks for, on the host.

    Raises:
        RequestError: If files are missing, or the request does not fit the data.
    """
    data = config.data
    examples = read_examples(config)
    rule = data.partition
    given = _given(rule, examples) if rule is not None and _sees_all(rule) else None
    if rule and given is None and examples.owner is not None:
        raise RequestError(f"data={config.names.data} assigns examples to clients itself; remove data.partition")
    assembled = assemble(
        examples,
        partition=None if rule is None or given is not None else _partition(rule),
        clients=data.clients,
        split=data.split,
        local_test=data.local_test,
        test_clients=data.test_clients,
        seed=data.seed,
        given=given,
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
    with mirrors(data.mirrors):
        found: Examples = call(data.source, "data.source", **given)
    source = function_of(data.source.target, "data.source")
    return checked_examples(found, source) if is_own(source) else found


def official_files(config: RunConfig) -> tuple[Files, ...]:
    """The published files of a configuration's source; none for generated data and files of the user's own."""
    module = importlib.import_module(function_of(config.data.source.target, "data.source").__module__)
    files: tuple[Files, ...] = getattr(module, "FILES", ())
    return files


def without_downloads(config: RunConfig) -> RunConfig:
    """Return the configuration with downloads disabled."""
    return replace(config, data=replace(config.data, download=False))


def _sees_all(rule: Component) -> bool:
    """Return whether a rule takes all examples with their official split, and gives clients indices of its own."""
    if rule.target is None:
        return False
    return "held_out" in inspect.signature(function_of(rule.target, "data.partition")).parameters


def _given(rule: Component, examples: Examples) -> Given:
    found = call(rule, "data.partition", y=examples.y, held_out=examples.tested)
    where = place_of(function_of(rule.target, "data.partition"))
    if not isinstance(found, Given):
        raise RequestError(
            f"data.partition: {where} returned {type(found).__name__}; a rule that takes held_out must return a Given "
            "(fedbench.data.partitions.given)"
        )
    return checked(found, len(examples.y), f"data.partition: {where}") if is_own_rule(rule) else found


def as_given(data: FederatedDataset) -> Given:
    """Return the training and test examples of a data set's clients as a partition that is given by indices."""
    train, test = data.train.split(), data.test.split()
    if data.central:
        return Given(data.names, train, None, data.test.index.numpy(force=True))
    return Given(data.names, train, test)


def is_own_rule(rule: Component) -> bool:
    """Return whether a partition is the user's own function."""
    return is_own(function_of(rule.target, "data.partition"))


def _partition(rule: Component) -> Partition:
    def parts(y: np.ndarray, clients: int, rng: np.random.Generator) -> list[np.ndarray]:
        found = call(rule, "data.partition", y=y, clients=clients, rng=rng)
        if not is_own_rule(rule):
            return list(found)
        where = f"data.partition: {place_of(function_of(rule.target, 'data.partition'))}"
        if not isinstance(found, list | tuple) or len(found) != clients:
            got = f"{len(found)}" if isinstance(found, list | tuple) else f"{type(found).__name__}"
            raise RequestError(f"{where} returned {got}; expected a list of {clients} arrays, one per client")
        names = tuple(f"{k}" for k in range(clients))
        return list(checked(Given(names, [np.asarray(rows) for rows in found]), len(y), where, empty=True).train)

    return parts
