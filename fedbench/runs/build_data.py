"""From the ``data`` section of a configuration to a federated data set."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from fedbench.config.schema import RunConfig
from fedbench.config.targets import Component, call, function_of
from fedbench.core.errors import RequestError
from fedbench.core.user_code import is_own, place_of
from fedbench.data.assemble import assemble
from fedbench.data.dataset import FederatedDataset, with_validation
from fedbench.data.examples import Examples
from fedbench.data.files.fetch import mirrors
from fedbench.data.files.readers import refuse_too_large
from fedbench.data.noise import with_label_noise
from fedbench.data.partitions.basic import Partition
from fedbench.data.partitions.given import Given, checked
from fedbench.simulation.checks import kind

_MOST_BYTES = 2**30  # of the data sets that a process keeps
_kept: dict[str, FederatedDataset] = {}  # by configuration, the latest last; runs cannot change what they share


def shared_data(config: RunConfig) -> FederatedDataset:
    """Return the data set that a configuration asks for, on the host; the latest ones are read once for all runs.

    Raises:
        RequestError: If files are missing, or the request does not fit the data.
    """
    facts = config.identity.facts
    key = repr((config.data, config.data_dir, facts["files"], facts["code"], config.engine.precision))
    found = _kept.pop(key, None) or federated(config)
    _kept[key] = found
    while len(_kept) > 1 and sum(d.x.nbytes + d.y.nbytes for d in _kept.values()) > _MOST_BYTES:
        del _kept[next(iter(_kept))]
    return found


def federated(config: RunConfig) -> FederatedDataset:
    """Return the data set that a configuration asks for, on the host.

    Raises:
        RequestError: If files are missing, or the request does not fit the data.
    """
    data = config.data
    if data.clients:  # a client takes a kilobyte at least
        refuse_too_large(f"{data.clients} clients", 1000 * data.clients, "lower data.clients")
    examples = read_examples(config)
    rule = data.partition
    given = None if rule is None else _given(rule, examples)
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
    changed = "data.noise" if data.noise.clients else "data.validation" if data.validation else None
    if changed and assembled.shares_examples:
        raise RequestError(
            f"{changed} needs examples that belong to one client each, since it would change those of others; set "
            "data.partition.as_published=false"
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
    # generated examples are rounded to the run's own type as they are made
    given["feature_dtype"] = "float64" if config.engine.precision == "float64" else "float32"
    with mirrors(data.mirrors):
        found: Examples = call(data.source, "data.source", **given)
    source = function_of(data.source.target, "data.source")
    if is_own(source):
        _check_examples(found, source)
    return found


def as_given(data: FederatedDataset) -> Given:
    """Return the training and test examples of a data set's clients as a partition that is given by indices."""
    train, test = data.train.split(), data.test.split()
    if data.central:
        return Given(data.names, train, None, data.test.index.numpy(force=True))
    return Given(data.names, train, test)


def _given(rule: Component, examples: Examples) -> Given | None:
    """Return the partition of a rule that gives indices into all examples; None if it divides the training examples."""
    if rule.target is None:
        return None
    function = function_of(rule.target, "data.partition")
    if "held_out" not in inspect.signature(function).parameters:
        return None
    found, where = call(rule, "data.partition", y=examples.y, held_out=examples.tested), place_of(function)
    if not isinstance(found, Given):
        raise RequestError(
            f"data.partition: {where} returned {type(found).__name__}; a rule that takes held_out must return a Given "
            "(fedbench.data.partitions.given)"
        )
    return checked(found, len(examples.y), f"data.partition: {where}") if is_own(function) else found


def _partition(rule: Component) -> Partition:
    function = function_of(rule.target, "data.partition")
    where = f"data.partition: {place_of(function)}"

    def parts(y: np.ndarray, clients: int, rng: np.random.Generator) -> list[np.ndarray]:
        found = call(rule, "data.partition", y=y, clients=clients, rng=rng)
        if not is_own(function):
            return list(found)
        if not isinstance(found, list | tuple) or len(found) != clients:
            got = len(found) if isinstance(found, list | tuple) else type(found).__name__
            raise RequestError(f"{where} returned {got}; expected a list of {clients} arrays, one per client")
        given = Given(tuple(map(str, range(clients))), found)
        return list(checked(given, len(y), where, empty=True).train)

    return parts


def _check_examples(e: object, source: Callable[..., Any]) -> None:
    """Check that the arrays that a source of the user's own has returned fit together.

    Raises:
        RequestError: Naming the function, the array and the fault.
    """
    where = f"data.source: {place_of(source)} returned"
    if not isinstance(e, Examples):
        raise RequestError(f"{where} {kind(e)}; expected fedbench.data.examples.Examples")
    count, clients = len(e.y), len(e.names)
    numbers = isinstance(e.x, np.ndarray) and e.x.dtype.kind in "biuf" and np.isfinite(e.x).all()
    split = e.held_out is None or kind(e.held_out) == f"[{count}] bool"
    owned = e.owner is None or (_within(e.owner, clients) and e.owner.shape == (count,))
    rules = (
        (
            "y",
            _within(e.y, e.classes),
            f"a NumPy array of integers from 0 to classes - 1 = {e.classes - 1}",
        ),
        ("x", numbers and len(e.x) == count, f"a NumPy array of finite numbers, one entry per label, {count}"),
        ("held_out", split, f"[{count}] bool, True for test examples"),
        ("owner", owned, f"integers of shape [{count}], indices into names, of which there are {clients}"),
    )
    for name, fits, expected in rules:
        if not fits:
            value = getattr(e, name)
            whole = isinstance(value, np.ndarray) and value.dtype.kind in "iu" and value.size
            span = f", {value.min()} to {value.max()}" if whole else ""
            raise RequestError(f"{where} {name} {kind(value)}{span}; expected {expected}")


def _within(value: Any, end: int) -> bool:
    """Whether these are integers from 0 to below ``end``, at least one."""
    whole = isinstance(value, np.ndarray) and value.dtype.kind in "iu" and value.size
    return bool(whole and value.min() >= 0 and value.max() < end)
