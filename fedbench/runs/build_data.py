"""Construction of a federated data set from the ``data`` section of a configuration."""

import inspect
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from fedbench.config.schema import Normalise, RunConfig
from fedbench.config.targets import Component, call, function_of
from fedbench.core.config_values import config_value
from fedbench.core.errors import RequestError
from fedbench.core.user_code import is_own, place_of
from fedbench.data.assemble import assemble
from fedbench.data.dataset import FederatedDataset, with_validation
from fedbench.data.examples import Examples, are_finite
from fedbench.data.files.fetch import mirrors
from fedbench.data.files.readers import refuse_too_large
from fedbench.data.noise import with_label_noise
from fedbench.data.partitions.basic import Partition
from fedbench.data.partitions.given import Given, checked
from fedbench.simulation.checks import kind, repeatable

_MOST_BYTES = 2**30  # total size of the data sets that a process keeps
# by configuration, most recently used last; runs cannot change shared data
_kept: dict[str, FederatedDataset] = {}


def shared_data(config: RunConfig) -> FederatedDataset:
    """Return the data set that a configuration requests, in host memory.

    The most recently used data sets stay in memory, for all runs of this process.

    Raises:
        RequestError: If files are missing or the request does not fit the data.
    """
    facts = config.identity.facts
    request = (
        config.data,
        config.data_dir,
        facts["files"],
        facts["code"],
        config.engine.precision,
    )
    key = repr(request)
    data = _kept.pop(key, None) or federated(config)
    _kept[key] = data
    size = sum(kept.x.nbytes + kept.y.nbytes for kept in _kept.values())
    while len(_kept) > 1 and size > _MOST_BYTES:
        oldest = _kept.pop(next(iter(_kept)))
        size -= oldest.x.nbytes + oldest.y.nbytes
    return data


def federated(config: RunConfig) -> FederatedDataset:
    """Return the data set that a configuration requests, in host memory.

    Raises:
        RequestError: If files are missing or the request does not fit the data.
    """
    section = config.data
    if section.clients:  # a client takes at least a kilobyte
        refuse_too_large(f"{section.clients} clients", 1000 * section.clients, "lower data.clients")
    examples = read_examples(config)
    rule = section.partition
    partition: Partition | Given | None = None
    if rule is not None and _gives_indices(rule):
        partition = _given(rule, examples)
    elif rule is not None:
        if examples.owner is not None:
            raise RequestError(
                f"data={config.names.data} assigns examples to clients itself; "
                "remove data.partition"
            )
        partition = _partition(rule)
    data = assemble(
        examples,
        partition=partition,
        clients=section.clients,
        split=section.split,
        local_test=section.local_test,
        test_clients=section.test_clients,
        seed=section.seed,
    )
    data = _normalised(data, section.normalise)

    changes = {"data.noise": section.noise.clients, "data.validation": section.validation}
    for key, share in changes.items():
        if share and data.shares_examples:
            raise RequestError(
                f"{key} needs examples that belong to one client each, since it would change those "
                "of others; set data.partition.as_published=false"
            )
    if section.noise.clients:
        data, _ = with_label_noise(data, section.noise, section.seed)
    if section.validation:
        data = with_validation(data, section.validation, section.seed)
    return data


def read_examples(config: RunConfig) -> Examples:
    """Return the examples of a configuration's data source, before they are assigned to clients.

    Raises:
        RequestError: If files are missing or malformed.
    """
    section = config.data
    source = function_of(section.source.target, "data.source")
    with mirrors(section.mirrors), repeatable(f"data.source: {place_of(source)}"):
        examples: Examples = call(
            section.source,
            "data.source",
            data_dir=config.data_dir,
            seed=section.seed,
            download=section.download,
            # generated examples are rounded to the run's dtype when they are created
            feature_dtype="float64" if config.engine.precision == "float64" else "float32",
        )
    if is_own(source):
        _check_examples(examples, place=f"data.source: {place_of(source)} returned")
    return examples


def _normalised(data: FederatedDataset, normalise: Normalise) -> FederatedDataset:
    """Return the data set with another normalisation of its images.

    Raises:
        RequestError: If the examples are not images of bytes, or have other channels.
    """
    if normalise == "source":
        return data
    given = f"data.normalise={config_value(normalise)}"
    if data.mean is None:
        raise RequestError(
            f"{given} is for images stored as bytes, got examples of shape {list(data.shape)}; "
            "use data.normalise=source"
        )
    channels = len(data.mean)
    if normalise == "none":
        mean = torch.zeros(channels)
        std = torch.ones(channels)
    else:
        means, deviations = normalise
        mean = torch.tensor(means, dtype=torch.float64)
        std = torch.tensor(deviations, dtype=torch.float64)
    if len(mean) != channels or len(std) != channels:
        raise RequestError(
            f"{given} needs {channels} means and {channels} deviations, one for every channel"
        )
    return replace(data, mean=mean.double(), std=std.double())


def as_given(data: FederatedDataset) -> Given:
    """Return the assignment of a data set's examples to clients as a partition given by indices."""
    train = data.train.split()
    if data.central:
        return Given(
            data.names,
            train,
            None,
            data.test.index.numpy(force=True),
        )
    return Given(data.names, train, data.test.split())


def _gives_indices(rule: Component) -> bool:
    """Return whether a rule returns indices into all examples, not only the training examples."""
    if rule.target is None:
        return False
    function = function_of(rule.target, "data.partition")
    return "held_out" in inspect.signature(function).parameters


def _given(rule: Component, examples: Examples) -> Given:
    """Return the partition of a rule that returns indices into all examples.

    Raises:
        RequestError: If the rule does not return a ``Given``.
    """
    function = function_of(rule.target, "data.partition")
    place = f"data.partition: {place_of(function)}"
    with repeatable(place):
        given = call(
            rule,
            "data.partition",
            y=examples.y,
            held_out=examples.tested,
        )
    if not isinstance(given, Given):
        raise RequestError(
            f"{place} returned {type(given).__name__}; a rule that takes held_out must return a "
            "Given (fedbench.data.partitions.given)"
        )
    return checked(given, len(examples.y), place) if is_own(function) else given


def _partition(rule: Component) -> Partition:
    """Return the function of a rule that divides the training examples among clients.

    Results of a user's function are checked.
    """
    function = function_of(rule.target, "data.partition")

    def partition(
        y: np.ndarray,
        clients: int,
        rng: np.random.Generator,
    ) -> list[np.ndarray]:
        place = f"data.partition: {place_of(function)}"
        with repeatable(place):
            parts = call(
                rule,
                "data.partition",
                y=y,
                clients=clients,
                rng=rng,
            )
        if not is_own(function):
            return list(parts)
        if not isinstance(parts, list | tuple):
            raise RequestError(
                f"{place} returned {kind(parts)}; "
                f"expected a list of {clients} arrays, one per client"
            )
        given = Given(tuple(map(str, range(clients))), parts)
        return list(checked(given, len(y), place, empty=True).train)

    return partition


def _check_examples(examples: object, place: str) -> None:
    """Check that the arrays returned by a user's data source fit together.

    Args:
        examples: The value that the source returned.
        place: Prefix of messages: the function, followed by "returned".

    Raises:
        RequestError: If the arrays do not fit together; the message names the function, the array
            and the fault.
    """
    if not isinstance(examples, Examples):
        raise RequestError(f"{place} {kind(examples)}; expected fedbench.data.examples.Examples")

    def check(name: str, fits: bool, expected: str) -> None:
        if fits:
            return
        array = getattr(examples, name)
        span = f", {array.min()} to {array.max()}" if _are_integers(array) else ""
        raise RequestError(f"{place} {name} {kind(array)}{span}; expected {expected}")

    check("classes", type(examples.classes) is int and examples.classes > 0, "a number of classes")
    y = examples.y
    largest = examples.classes - 1
    if _are_integers(y) and y.shape[1:] == (1,):
        check("y", False, f"labels of shape [{len(y)}]")
    are_labels = _are_integers(y) and y.min() >= 0 and y.max() <= largest
    check("y", are_labels, f"a NumPy array of integers from 0 to classes - 1 = {largest}")

    x = examples.x
    count = len(y)
    is_numeric = isinstance(x, np.ndarray) and x.dtype.kind in "biuf"
    are_numbers = is_numeric and are_finite(x)
    fits = are_numbers and len(x) == count
    check("x", fits, f"a NumPy array of finite numbers, one entry per label, {count}")

    marks = f"[{count}] bool"
    fits = examples.held_out is None or kind(examples.held_out) == marks
    check("held_out", fits, f"{marks}, True for test examples")

    owner = examples.owner
    if owner is None:
        return
    clients = len(examples.names)
    fits = _are_integers(owner) and owner.shape == (count,)
    fits = fits and owner.min() >= 0 and owner.max() < clients
    indices = f"integers of shape [{count}], indices into names"
    check("owner", fits, f"{indices}, of which there are {clients}")


def _are_integers(value: Any) -> bool:
    """Return whether a value is a non-empty array of integers."""
    return isinstance(value, np.ndarray) and value.dtype.kind in "iu" and value.size > 0
